//! Tests of each installed generator against `weir serve` on loopback, and of the arguments each is
//! given. The figures themselves are not judged.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::*;
use crate::environment::Environment;
use crate::experiment::{Arrivals, Count, Kind, LoadSpec, Seconds, ServerSpec};
use crate::loopback::{self, Loopback, NotingLoopback};
use crate::servers::{self, Launch, RunningServer};

const SHORT_S: f64 = 0.5;

fn load(generator: Generator, workload: &str) -> LoadSpec {
    LoadSpec { generator, workload: workload.to_owned(), ..LoadSpec::default() }
}

fn request<'a>(load: &'a LoadSpec, dir: &'a Path, port: u16, weir: &'a Path) -> LoadRequest<'a> {
    LoadRequest {
        steps_s: None,
        load,
        duration_s: SHORT_S,
        warmup_s: 0.25,
        cooldown_s: 0.0,
        rate: None,
        closed: None,
        idle: 0,
        conns: None,
        spike: None,
        replay: None,
        twice_s: None,
        timeline_ms: None,
        sources: Loopback.client_sources(),
        prefix: "",
        gzip: false,
        tls: false,
        environment: &Loopback,
        weir,
        server: SocketAddr::from(([127, 0, 0, 1], port)),
        dir,
        seed: 7,
    }
}

/// Starts a server of the small file; returns it with its port.
fn serve(base: &Path, weir: &Path) -> (RunningServer, u16) {
    let spec = ServerSpec::plain(Kind::Weir);
    let (root, dir, port) = (base.join("www"), base.join("run"), loopback::free_port());
    servers::write_root(weir, "one-byte", None, &root).unwrap();
    fs::create_dir(&dir).unwrap();
    let (environment, calls, bench_endpoints, workers) = (&Loopback, false, true, 1);
    let launch = Launch {
        upstream: None,
        serves_files: false,
        spec: &spec,
        environment,
        weir,
        root: &root,
        dir: &dir,
        port,
        calls,
        bench_endpoints,
        workers,
        groups: &[],
    };
    (servers::start(&launch).unwrap(), port)
}

#[test]
fn weir_load_reports_a_plausible_load() {
    let Some(weir) = loopback::weir() else { return };
    let base = tempfile::tempdir().unwrap();
    let (server, port) = serve(base.path(), &weir);
    let spec = load(Generator::Weir, "one-byte");
    let request =
        LoadRequest { rate: Some(100.0), idle: 5, ..request(&spec, base.path(), port, &weir) };
    let running = start(&request).unwrap();
    let (from, to) = running.window();
    assert_eq!((to - from).as_secs_f64(), SHORT_S);
    let result = running.wait().unwrap();
    // Rounding decides which of the two requests next to the warm-up's end is measured.
    assert!((49..=51).contains(&result.replies), "{result:?}");
    assert!(result.open_loop && result.errors.is_empty() && result.replies_refused == 0);
    assert_eq!(result.valid, result.reasons.is_empty());
    assert_eq!(result.response.unwrap().count, result.replies);
    assert!(result.generator.starts_with("weir load "), "{}", result.generator);
    assert!(result.command.contains("--json DIR/load.json"), "{}", result.command);
    assert_eq!(server.stop().how, Ok(()));
}

#[test]
fn a_replay_has_the_log_in_place_of_a_rate_and_a_path() {
    let spec = load(Generator::Weir, "day");
    let replay = Replay { log: "/tmp/day.log".into(), speed: 1500.0 };
    let (dir, weir) = (Path::new("/tmp"), Path::new("weir"));
    let own = request(&spec, dir, 8080, weir);
    let own = LoadRequest { rate: Some(9.0), replay: Some(&replay), prefix: "/x", ..own };
    let words = weir::invocation(&own).unwrap().arguments.join(" ");
    assert!(words.contains(" --replay /tmp/day.log --speed 1500 "), "{words}");
    assert!(words.ends_with(" http://127.0.0.1:8080"), "{words}");
    assert!(!words.contains("--rate") && !words.contains("--workload"), "{words}");
    assert!(own.plain("wrk").unwrap_err().contains("replays no log"));
}

#[test]
fn httperf_reports_a_plausible_load() {
    let Some(weir) = loopback::weir() else { return };
    if let Err(why) = version(Generator::Httperf) {
        eprintln!("{why}: skipped");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let (_server, port) = serve(base.path(), &weir);
    let spec = load(Generator::Httperf, "one-byte");
    let request = LoadRequest { rate: Some(100.0), ..request(&spec, base.path(), port, &weir) };
    let result = start(&request).unwrap().wait().unwrap();
    assert_eq!((result.replies, result.replies_refused), (50, 0), "{result:?}");
    assert!(result.open_loop && result.generator.starts_with("httperf 0."), "{result:?}");
}

#[test]
fn generators_of_closed_loops_report_one() {
    let Some(weir) = loopback::weir() else { return };
    for generator in Generator::ALL.into_iter().filter(|it| it.is_closed_loop()) {
        if let Err(why) = version(generator) {
            eprintln!("{why}: skipped");
            continue;
        }
        let base = tempfile::tempdir().unwrap();
        let (_server, port) = serve(base.path(), &weir);
        let spec = load(generator, "one-byte");
        let request = LoadRequest { closed: Some(2), ..request(&spec, base.path(), port, &weir) };
        let result = start(&request).unwrap().wait().unwrap();
        assert!(result.replies > 0 && result.replies_refused == 0, "{result:?}");
        assert!(!result.open_loop && result.planned_per_s.is_none());
    }
}

#[test]
fn a_generator_that_refuses_or_is_dropped_is_gone() {
    let Some(weir) = loopback::weir() else { return };
    let base = tempfile::tempdir().unwrap();
    let mut spec = load(Generator::Weir, "one-byte");
    let long = LoadRequest { rate: Some(1.0), ..request(&spec, base.path(), 9, &weir) };
    let running = start(&LoadRequest { duration_s: 100.0, ..long }).unwrap();
    let pid = running.group.pid();
    drop(running);
    assert!(!crate::process_group::lives(pid));
    spec.options.push("--no-such-option".to_owned());
    let wrong = LoadRequest { rate: Some(1.0), ..request(&spec, base.path(), 9, &weir) };
    let why = start(&wrong).unwrap().wait().unwrap_err();
    assert!(why.contains("no-such-option"), "{why}");
}

#[test]
fn a_load_leaves_the_client_s_packets_where_they_go() {
    let dir = tempfile::tempdir().unwrap();
    let environment = NotingLoopback::default();
    let spec = load(Generator::Weir, "2k");
    let plain = request(&spec, dir.path(), 9, Path::new("no-such-weir"));
    let request = LoadRequest { rate: Some(1.0), environment: &environment, ..plain };
    assert!(start(&request).is_err());
    assert!(environment.steered.borrow().is_empty());
}

#[test]
fn weir_load_is_told_all_of_an_order() {
    let spec = LoadSpec {
        requests_per_conn: Some(Count::of::<3>()),
        arrivals: Some(Arrivals::Poisson),
        options: vec!["--close".to_owned(), "reset".to_owned()],
        ..load(Generator::Weir, "one-packet")
    };
    let dir = Path::new("/x");
    let request = LoadRequest {
        rate: Some(250.0),
        idle: 1000,
        prefix: "/.weir/burn/60",
        gzip: true,
        ..request(&spec, dir, 80, Path::new("/bin/weir"))
    };
    let invocation = weir::invocation(&request).unwrap();
    let expected = "weir load --quiet --rate 250 --arrivals poisson --duration 0.75s \
        --warmup 0.25s --timeout 1s --source 127.0.0.2 --cpus 0 --threads 1 --seed 7 --idle 1000 \
        --requests-per-conn 3 --workload one-packet --header 'Accept-Encoding: gzip' \
        --json DIR/load.json --close reset http://127.0.0.1:80/.weir/burn/60/";
    assert_eq!(shown(&invocation, &request), expected);
    // A thousand idle connections take half a second to open.
    let (from, to) = invocation.window;
    assert!(from >= Duration::from_millis(750) && to - from == Duration::from_millis(500));
}

/// Returns the command line of `weir load` for the usual order with one change.
fn told(spec: &LoadSpec, change: fn(&mut LoadRequest<'_>)) -> String {
    let mut request = request(spec, Path::new("/x"), 80, Path::new("/bin/weir"));
    change(&mut request);
    shown(&weir::invocation(&request).unwrap(), &request)
}

#[test]
fn a_load_that_goes_on_is_measured_for_as_long() {
    let spec = load(Generator::Weir, "one-packet");
    let words = told(&spec, |request| {
        request.rate = Some(250.0);
        request.cooldown_s = 2.0;
    });
    assert!(words.contains(" --duration 2.75s --warmup 0.25s --cooldown 2s "), "{words}");
    let window = |cooldown_s| {
        let order = request(&spec, Path::new("/x"), 80, Path::new("/bin/weir"));
        weir::invocation(&LoadRequest { rate: Some(1.0), cooldown_s, ..order }).unwrap().window
    };
    assert_eq!(window(2.0), window(0.0));
}

#[test]
fn a_spike_is_a_law_of_steps_and_a_timeline_a_line_a_request() {
    let words = told(&load(Generator::Weir, "one-packet"), |request| {
        let (base, height) = (50.0, 500.0);
        request.rate = Some(height);
        request.spike = Some(Spike { base, height, before_s: 0.1, for_s: 0.3, after_s: 0.1 });
        request.timeline_ms = Some(100);
    });
    let law = "weir load --quiet --arrivals steps:50x0.35s,500x0.3s,50x0.1s --duration 0.75s ";
    assert!(words.starts_with(law) && !words.contains("--rate"), "{words}");
    assert!(words.contains("--each DIR/each.ndjson"), "{words}");
}

#[test]
fn who_comes_back_asks_for_the_one_file_below_the_prefix() {
    let words = told(&load(Generator::Weir, "2k"), |request| {
        (request.rate, request.twice_s, request.prefix) = (Some(5.0), Some(1.5), "/.weir/burn/60");
    });
    assert!(words.contains(" --wsess 1000000000000,2,1.5 "), "{words}");
    assert!(words.ends_with(" http://127.0.0.1:80/.weir/burn/60/2k.txt"), "{words}");
    assert!(!words.contains("--workload"), "{words}");
}

#[test]
fn a_closed_loop_has_no_law_of_arrivals() {
    let law = LoadSpec { arrivals: Some(Arrivals::Poisson), ..load(Generator::Weir, "2k") };
    let words = told(&law, |request| request.closed = Some(3));
    assert!(words.contains("--closed 3") && !words.contains("--arrivals"), "{words}");
}

#[test]
fn a_mix_is_a_list_of_whole_paths_and_each_request_is_told_of_in_an_open_loop() {
    let class = RequestClass::of;
    let mix = vec![class(0.75, 1), class(0.25, 2)];
    let spec = LoadSpec { mix, ..load(Generator::Weir, "one-byte") };
    let dir = tempfile::tempdir().unwrap();
    let open =
        LoadRequest { rate: Some(5.0), ..request(&spec, dir.path(), 80, Path::new("/bin/weir")) };
    let said = shown(&weir::invocation(&open).unwrap(), &open);
    let expected = "--each DIR/each.ndjson --wlog y,DIR/mix.uris http://127.0.0.1:80";
    assert!(said.ends_with(expected) && !said.contains("--workload"), "{said}");
    let closed = LoadRequest { rate: None, closed: Some(3), ..open };
    assert!(!shown(&weir::invocation(&closed).unwrap(), &closed).contains("--each"));
}

#[test]
fn the_classes_of_a_mix_are_told_apart() {
    let Some(weir) = loopback::weir() else { return };
    let base = tempfile::tempdir().unwrap();
    let (_server, port) = serve(base.path(), &weir);
    let class = RequestClass::of;
    let mix = vec![class(0.75, 1), class(0.25, 2)];
    let spec = LoadSpec {
        mix,
        timeout_s: Seconds::try_from(0.25).unwrap(),
        ..load(Generator::Weir, "one-byte")
    };
    let request = LoadRequest { rate: Some(400.0), ..request(&spec, base.path(), port, &weir) };
    let result = start(&request).unwrap().wait().unwrap();
    assert_eq!(result.replies_refused, 0, "{result:?}");
    let [cheap, dear] = &result.classes[..] else { panic!("{result:?}") };
    assert_eq!((cheap.burn_us, dear.burn_us, cheap.window_s), (1, 2, 0.25));
    // A quarter of a second of requests, whose classes are random.
    assert!((99..=101).contains(&(cheap.planned + dear.planned)), "{result:?}");
    assert!(cheap.planned > dear.planned && dear.planned > 0, "{result:?}");
    assert!(cheap.replies <= cheap.planned && cheap.response.is_some(), "{result:?}");
}

#[test]
fn the_page_is_asked_for_itself() {
    let arrivals = Some(Arrivals::Poisson);
    let spec = LoadSpec { arrivals, ..load(Generator::Weir, "page-40k") };
    let request = LoadRequest {
        closed: Some(4),
        ..request(&spec, Path::new("/x"), 80, Path::new("/bin/weir"))
    };
    let words = weir::invocation(&request).unwrap().arguments.join(" ");
    // A closed loop has no law of arrivals.
    assert!(!words.contains("--arrivals"), "{words}");
    assert!(words.ends_with(" http://127.0.0.1:80/page.html"), "{words}");
    assert!(words.contains("--closed 4") && !words.contains("--workload"), "{words}");
}

#[test]
fn loads_that_a_generator_cannot_make_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |generator, workload, change: fn(&mut LoadRequest<'_>)| {
        let spec = load(generator, workload);
        let mut request = request(&spec, dir.path(), 9, Path::new("weir"));
        change(&mut request);
        start(&request).err().unwrap()
    };
    let rate = |request: &mut LoadRequest<'_>| request.rate = Some(5.0);
    let closed = |request: &mut LoadRequest<'_>| {
        request.closed = Some(5);
    };
    assert!(refused(Generator::Httperf, "2k", closed).contains("open loop"));
    assert!(refused(Generator::Httperf, "specweb99", rate).contains("specweb99"));
    assert!(refused(Generator::Wrk, "2k", rate).contains("closed loop"));
    assert!(refused(Generator::Wrk, "specweb99", closed).contains("specweb99"));
    let idle = |request: &mut LoadRequest<'_>| {
        request.closed = Some(5);
        request.idle = 3;
    };
    assert!(refused(Generator::Wrk, "2k", idle).contains("idle"));
    let conns =
        |request: &mut LoadRequest<'_>| (request.rate, request.conns) = (Some(5.0), Some(3));
    assert!(refused(Generator::Httperf, "2k", conns).contains("share a rate"));
    let along_time = |request: &mut LoadRequest<'_>| {
        (request.rate, request.timeline_ms) = (Some(5.0), Some(100));
    };
    assert!(refused(Generator::Httperf, "2k", along_time).contains("no timelines"));
    assert!(refused(Generator::Weir, "2k", |_| ()).contains("a rate or"));
}
