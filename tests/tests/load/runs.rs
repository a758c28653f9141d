//! `weir load` from the user's side: refused options, printed output, exit codes, and files written
//! for other programs. Its measurements are compared with servers in `load_counts.rs`,
//! `load_errors.rs` and `load_times.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use weir_tests::faulty::{Behaviour, Faulty};
use weir_tests::load::{RecordingServer, load};
use weir_tests::server::run;
use weir_tests::wait::until;
use weir_tests::{Root, Server, Stopped};

use crate::WEIR;

/// Runs `weir` with these words as arguments.
fn weir(line: &str) -> Stopped {
    run(Command::new(WEIR).args(line.split_whitespace()))
}

fn code(stopped: &Stopped) -> Option<i32> {
    stopped.status.code()
}

fn url(server: &Faulty) -> String {
    format!("http://{}/", server.address())
}

mod refusals {
    use super::*;

    /// Asserts that the command is refused before the first packet: exit code 2, nothing on
    /// standard output, and these words on standard error.
    fn refused(line: &str, words: &[&str]) {
        let server = Faulty::start(Behaviour::Good { body_bytes: 1 });
        let line = line.replace("URL", &url(&server));
        let stopped = weir(&format!("load {line}"));
        assert_eq!(code(&stopped), Some(2), "{line}: {stopped:?}");
        assert_eq!(stopped.stdout, "", "{line}");
        assert!(!stopped.stderr.contains("panicked"), "{}", stopped.stderr);
        assert_eq!(stopped.stderr.lines().count(), 1, "{line}: {}", stopped.stderr);
        for word in words {
            let said = stopped.stderr.contains(word);
            assert!(said, "{line}: {word:?} is not in {}", stopped.stderr);
        }
        assert_eq!(server.accepted(), 0, "{line}");
    }

    #[test]
    fn a_url_that_cannot_be_loaded() {
        refused("http:///x", &["no host"]);
        refused("ftp://127.0.0.1/", &["http://"]);
        refused("--insecure URL", &["--insecure is for https:// URLs"]);
        refused("--cacert /nowhere/x https://127.0.0.1/", &["--cacert /nowhere/x"]);
        refused("http://127.0.0.1:99999/", &["port"]);
        refused("http://no-such-host.invalid/", &["no-such-host.invalid"]);
    }

    #[test]
    fn options_that_make_no_load() {
        refused("--rate 0 URL", &["rate"]);
        refused("--rate -1 URL", &["-1"]);
        refused("--closed 0 URL", &["--closed"]);
        refused("--closed 1 --rate 5 URL", &["--closed", "--rate"]);
        refused("--duration 1 --warmup 1 URL", &["warm"]);
        refused("--arrivals nonsense URL", &["nonsense"]);
        refused("--rate 5 --arrivals ramp:1-2 URL", &["--rate"]);
        refused("--fail-if p99=3 URL", &["p99=3"]);
        refused("--requests-per-conn inf URL", &["inf"]);
        refused("--source 127.0.0.9-127.0.0.2 URL", &["--source"]);
    }

    #[test]
    fn loads_beyond_this_machine_are_refused() {
        let cores = available_parallelism().unwrap().get();
        refused(&format!("--threads {} URL", cores + 1), &["processors"]);
        refused("--rate 1000000 --close client --duration 60 URL", &["TIME_WAIT", "--close"]);
        refused("--idle 5000000 URL", &["5000000", "idle"]);
        let server = Faulty::start(Behaviour::Good { body_bytes: 1 });
        let line = format!("ulimit -n 100; exec {WEIR} load --idle 50 {}", url(&server));
        let stopped = run(Command::new("sh").args(["-c", &line]));
        assert_eq!(code(&stopped), Some(2), "{stopped:?}");
        assert!(stopped.stderr.contains("ulimit -n"), "{}", stopped.stderr);
    }

    #[test]
    fn files_that_are_none_of_their_format() {
        let dir = TempDir::new().unwrap();
        let write = |name: &str, text: &str| {
            fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name).display().to_string()
        };
        let absent = dir.path().join("absent").display().to_string();
        refused(&format!("--arrivals trace:{absent} URL"), &[&absent]);
        refused(&format!("--wsesslog 1,0,{absent} URL"), &[&absent]);
        refused(&format!("--wlog y,{absent} URL"), &[&absent]);
        refused(&format!("--replay {absent} URL"), &[&absent]);
        refused(&format!("--method POST --body {absent} URL"), &[&absent]);
        let trace = write("trace", "0\n1\nsoon\n");
        refused(&format!("--arrivals trace:{trace} URL"), &["soon"]);
        let log = write("sessions", "/a\n/b method=GRAB\n");
        refused(&format!("--wsesslog 1,0,{log} URL"), &[&format!("{log}:2:")]);
        let log = write("access.log", "nothing of the kind\n");
        refused(&format!("--replay {log} URL"), &[&format!("{log}:1:")]);
    }

    #[test]
    fn an_output_that_cannot_be_written() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("absent/run").display().to_string();
        for option in ["--json", "--ndjson", "--each", "--hdr-log"] {
            refused(&format!("{option} {path} URL"), &[&path]);
        }
    }
}

mod outputs {
    use super::*;

    const SHORT: &str = "--rate 100 --num 20 --duration 60 --timeout 20s";

    #[test]
    fn the_report_has_httperfs_lines() {
        let server = RecordingServer::plain();
        let ran = load(WEIR, &format!("--quiet {SHORT}"), server.url("/"));
        let lines: Vec<&str> = ran.stdout.lines().collect();
        for (begin, end) in [
            ("Total: connections 20 requests 20 replies 20 test-duration ", " s"),
            ("Connection rate: ", " concurrent connections)"),
            ("Connection time [ms]: min ", ""),
            ("Connection time [ms]: connect ", ""),
            ("Connection length [replies/conn]: 1.000", ""),
            ("Request rate: ", " ms/req)"),
            ("Request size [B]: ", ""),
            ("Reply rate [replies/s]: min ", " samples)"),
            ("Reply time [ms]: response ", ""),
            ("Reply size [B]: header ", ")"),
            ("Reply status: 1xx=0 2xx=20 3xx=0 4xx=0 5xx=0", ""),
            ("CPU time [s]: user ", "%)"),
            ("Net I/O: ", " bps)"),
            ("Errors: total 0 client-timo 0 socket-timo 0 connrefused 0 connreset 0", ""),
            ("Errors: fd-unavail 0 addrunavail 0 ftab-full 0 other 0", ""),
        ] {
            let found = lines.iter().any(|line| line.starts_with(begin) && line.ends_with(end));
            assert!(found, "{begin}…{end} is not in {}", ran.stdout);
        }
        assert_eq!(ran.stderr, "");
    }

    #[test]
    fn an_invalid_run_says_so_everywhere() {
        let server = Faulty::start(Behaviour::Silent);
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (seconds, log) = (path("seconds.ndjson"), path("run.hlog"));
        let outputs = format!("--ndjson {seconds} --hdr-log {log}");
        let limits = "--max-conns 2 --rate 50 --num 20 --duration 60 --timeout 1s";
        let ran = load(WEIR, &format!("{limits} {outputs}"), url(&server));
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.stdout.starts_with("INVALID"), "{}", ran.stdout);
        // Its last sentence may take several lines.
        let last = ran.stdout.lines().rfind(|line| !line.starts_with(' ')).unwrap();
        assert!(last.starts_with("INVALID: "), "{}", ran.stdout);
        assert_eq!(ran.json["verdict"]["verdict"], "INVALID");
        assert!(ran.json["verdict"]["reasons"][0].as_str().unwrap().contains("fd-unavail"));
        let seconds = fs::read_to_string(seconds).unwrap();
        let last: Value = serde_json::from_str(seconds.lines().last().unwrap()).unwrap();
        assert_eq!(last["verdict_so_far"], "INVALID", "{seconds}");
        let log = fs::read_to_string(log).unwrap();
        assert!(log.lines().last().unwrap().starts_with("#INVALID"), "{log}");
        assert!(ran.stderr.contains("INVALID"), "{}", ran.stderr);
    }

    #[test]
    fn each_second_is_a_line_of_the_ndjson_and_an_interval_of_the_log() {
        let server = RecordingServer::plain();
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (seconds, log) = (path("seconds.ndjson"), path("run.hlog"));
        let options = format!("--quiet --rate 50 --num 60 --ndjson {seconds} --hdr-log {log}");
        let ran = load(WEIR, &options, server.url("/"));
        let lines: Vec<Value> = fs::read_to_string(seconds)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let total = |key: &str| lines.iter().map(|line| line[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!((total("planned"), total("replies")), (60, ran.count("replies")));
        assert_eq!(lines.len(), ran.json["seconds"].as_array().unwrap().len());
        assert!(lines.len() >= 2);
        let log = fs::read_to_string(log).unwrap();
        let intervals = log.lines().filter(|line| line.contains(",HIST"));
        assert_eq!(intervals.count(), lines.len(), "{log}");
        assert!(log.contains("#[StartTime: "), "{log}");
    }

    #[test]
    fn the_log_s_times_begin_after_the_warm_up() {
        let server = RecordingServer::plain();
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("run.hlog");
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let output = format!("--quiet --hdr-log {}", path.display());
        load(WEIR, &format!("{output} --rate 50 --duration 3 --warmup 1.5"), server.url("/"));
        let log = fs::read_to_string(path).unwrap();
        let (_, base) = log.split_once("#[BaseTime: ").unwrap();
        let base: f64 = base.split(' ').next().unwrap().parse().unwrap();
        // It is rounded to milliseconds.
        assert!(base >= before + 1.499, "{before}: {log}");
        assert!(log.contains("\n0.000,1.000,"), "{log}");
    }

    #[test]
    fn json_on_standard_output_stands_alone_there() {
        let server = RecordingServer::plain();
        let stopped = weir(&format!("load {SHORT} --json - {}", server.url("/")));
        let document: Value = serde_json::from_str(&stopped.stdout).unwrap();
        assert_eq!(document["counts"]["replies"], 20);
    }

    #[test]
    fn progress_is_plain_lines_in_a_pipe_and_nothing_when_it_is_to_be_quiet() {
        let server = RecordingServer::plain();
        let options = "--rate 20 --num 30 --duration 60 --timeout 20s";
        let loud = load(WEIR, options, server.url("/"));
        let seconds = loud.json["seconds"].as_array().unwrap().len();
        let shown = loud.stderr.lines().filter(|line| line.contains("replies")).count();
        assert!(shown >= 1 && shown <= seconds, "{}", loud.stderr);
        assert!(!loud.stderr.contains(['\u{1b}', '\r']), "{:?}", loud.stderr);
        assert!(!loud.stdout.contains(['\u{1b}', '\r']), "{:?}", loud.stdout);
        let quiet = load(WEIR, &format!("{options} --quiet"), server.url("/"));
        assert_eq!(quiet.stderr, "");
    }

    #[test]
    fn a_condition_that_holds_is_exit_code_1() {
        let server = Faulty::start(Behaviour::Sleep { ms: 20 });
        let run =
            |conditions: &str| load(WEIR, &format!("--quiet {SHORT} {conditions}"), url(&server));
        let failed = run("--fail-if p50>10ms --fail-if errors>0");
        // A machine that was too busy to drive the load has its say as well.
        assert!(failed.code == 1 || !failed.is_valid(), "{failed:?}");
        let conditions = &failed.json["conditions"];
        assert_eq!(
            (&conditions[0]["holds"], &conditions[1]["holds"]),
            (&true.into(), &false.into())
        );
        assert!(failed.stdout.contains("it holds"), "{}", failed.stdout);
        let passed = run("--fail-if min<20ms --fail-if errors>0 --fail-if reply-timeout>0");
        assert!(passed.code == 0 || !passed.is_valid(), "{passed:?}");
    }

    /// Runs a load until the server has received enough; returns the report and its JSON.
    fn interrupted(url: &str, is_enough: impl Fn() -> bool) -> (String, Value) {
        let dir = TempDir::new().unwrap();
        let json = dir.path().join("run.json");
        let child = Command::new(WEIR)
            .args(["load", "--rate", "50", "--duration", "600", "--timeout", "20s", "--json"])
            .arg(&json)
            .arg(url)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("some were received", is_enough);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("interrupted"), "{text}");
        let document: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        assert_eq!(document["verdict"]["interrupted"], true);
        (text, document)
    }

    #[test]
    fn an_interrupted_run_says_what_it_has_cut_off() {
        let server = Faulty::start(Behaviour::Silent);
        let (text, document) = interrupted(&url(&server), || server.requests() >= 20);
        assert!(text.contains("\nCut off: "), "{text}");
        assert!(!text.contains("never due") && !text.contains("Session rate"), "{text}");
        let counts = &document["counts"];
        assert!(counts["cut_off"].as_u64() >= Some(20), "{document}");
        assert_eq!(counts["cut_off"], counts["abandoned"]);
    }

    #[test]
    fn an_interrupted_run_reports_what_was_done() {
        let server = RecordingServer::plain();
        let (_, document) = interrupted(&server.url("/"), || server.lines().len() >= 20);
        let count = |name: &str| document["counts"][name].as_u64().unwrap();
        assert_eq!(count("started"), count("replies") + count("errors") + count("abandoned"));
        // The stop may have come between a planned start and the start; between several on a
        // machine that was too busy to drive the load, which says so itself.
        let not_begun = count("planned") - count("started");
        assert!(not_begun <= 1 || document["verdict"]["valid"] == false, "{document}");
        assert!((20..600 * 50).contains(&count("replies")));
    }
}

mod scans {
    use super::*;

    #[test]
    fn sessions_that_are_shorter_than_on_average_are_no_knee() {
        let server = Faulty::start(Behaviour::Good { body_bytes: 100 });
        // With this seed both tries have a tenth fewer requests than as many sessions have on
        // average.
        let scan = "load scan --workload specweb99 --seed 18 --from 20 --rate-max 20";
        let times = "--duration 2s --warmup 200ms --pause 0 --goodput-min 0.95";
        let stopped = weir(&format!("{scan} {times} --quiet --json - {}", url(&server)));
        let document: Value = serde_json::from_str(&stopped.stdout).unwrap();
        let kind = &document["finding"]["kind"];
        // A machine that was too busy to drive the load has its say as well.
        assert!(kind == "rate-max" || kind == "client-limit", "{document}");
    }
}

mod memory {
    use super::*;

    /// Number of requests between the two memory readings.
    const REQUESTS: u64 = 3000;

    /// Maximum growth: more than histograms still need, and far less than a kilobyte per request.
    const GROWTH_MAX_KB: u64 = 1024;

    struct Running(Child);

    impl Running {
        fn resident_kb(&self) -> u64 {
            let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn requests_that_time_out_leave_nothing_behind() {
        let server = Faulty::start(Behaviour::Silent);
        let mut command = Command::new(WEIR);
        let options = "load --quiet --rate 1000 --duration 600 --timeout 300ms";
        command.args(options.split_whitespace()).arg(url(&server));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let running = Running(child);
        // By then the first have timed out, and the first second has been told.
        until("the first have timed out", || server.requests() >= 1200);
        let early_kb = running.resident_kb();
        until("many more have", || server.requests() >= 1200 + REQUESTS);
        let late_kb = running.resident_kb();
        assert!(late_kb <= early_kb + GROWTH_MAX_KB, "{early_kb} kB, then {late_kb} kB");
    }

    /// Number of idle connections that are measured together.
    const IDLE: u64 = 2000;

    /// Maximum size of an idle connection with TLS, bytes; measured are 4.5 kB.
    const IDLE_MAX_BYTES: u64 = 8000;

    /// Returns the resident memory of a load that holds idle connections, all of which are open.
    fn resident_kb_with(idle: u64) -> u64 {
        let root = Root::with_hello();
        let mut options = vec!["--listen", "https://127.0.0.1:0", "--tls-self-signed"];
        options.extend(["--access-log", "-"]);
        // All are accepted, also where handshakes are slow.
        options.extend(["--accept-limit", "inf"]);
        let server = Server::start(WEIR, &options, &root);
        let mut command = Command::new(WEIR);
        let options = "load --quiet --insecure --rate 20 --duration 600 --timeout 20s";
        command.args(options.split_whitespace()).args(["--idle", &idle.to_string()]);
        command.arg(format!("https://{}/hello.txt", server.authority()));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let running = Running(child);
        // The first request comes when the idle connections are open.
        until("some requests were answered", || server.stdout_so_far().lines().count() >= 10);
        assert!(server.open_connections() as u64 >= idle);
        running.resident_kb()
    }

    #[test]
    fn an_idle_connection_with_tls_keeps_no_buffers() {
        let grown_kb = resident_kb_with(IDLE).saturating_sub(resident_kb_with(0));
        let bytes = grown_kb * 1024 / IDLE;
        println!("an idle connection with TLS takes {bytes} bytes");
        assert!(bytes <= IDLE_MAX_BYTES, "{bytes} bytes");
    }
}

mod files {
    use super::*;

    /// Returns the size of a file of SPECweb99: `class2_3` has 4 times 10 kB.
    fn specweb_bytes(class: u32, file: u64) -> u64 {
        1024 * 10_u64.pow(class) * (file + 1) / 10
    }

    #[test]
    fn the_files_of_a_workload_are_what_it_asks_for() {
        let root = Root::new();
        let dir = root.path().display();
        let made = weir(&format!("load files {dir} --workload specweb99 --mb 10"));
        assert_eq!(code(&made), Some(0), "{made:?}");
        for directory in 0..2 {
            for class in 0..4 {
                for file in 0..9 {
                    let name = format!("file_set/dir{directory:05}/class{class}_{file}");
                    let bytes = fs::metadata(root.path().join(&name)).unwrap().len();
                    assert_eq!(bytes, specweb_bytes(class, file), "{name}");
                }
            }
        }
        let server = Server::start(WEIR, &["--access-log", "-"], &root);
        let options =
            "--quiet --rate 100 --num 30 --duration 60 --timeout 20s --workload specweb99 --mb 10";
        let ran = load(WEIR, options, format!("http://{}/", server.authority()));
        let log = server.stop_cleanly().stdout;
        assert_eq!(ran.json["counts"]["statuses"]["2xx"], ran.count("planned"));
        let sizes: u64 = log.lines().filter_map(logged_bytes).sum();
        assert_eq!(ran.count("received_bytes") - ran.count("received_head_bytes"), sizes);
    }

    /// Returns the bytes sent according to a log line, which must be those of its file.
    fn logged_bytes(line: &str) -> Option<u64> {
        let (_, rest) = line.split_once("\"GET /file_set/")?;
        let (file, rest) = rest.split_once(" HTTP/1.1\" 200 ")?;
        let (class, file) = file.split_once("/class")?.1.split_once('_')?;
        let bytes = rest.split(' ').next()?.parse().ok()?;
        assert_eq!(bytes, specweb_bytes(class.parse().ok()?, file.parse().ok()?), "{line}");
        Some(bytes)
    }

    #[test]
    fn every_named_workload_finds_its_files() {
        let root = Root::new();
        let names = ["one-byte", "2k", "6k", "one-packet", "1259", "8192"];
        for name in names {
            let made = weir(&format!("load files {} --workload {name}", root.path().display()));
            assert_eq!(code(&made), Some(0), "{name}: {made:?}");
        }
        // A head with Vary would not fit beside the file into one packet.
        let server = Server::start(WEIR, &["--compress=off"], &root);
        let mut bytes = BTreeMap::new();
        for name in names {
            let options = format!("--quiet --rate 200 --num 10 --duration 60 --workload {name}");
            let ran = load(WEIR, &options, format!("http://{}/", server.authority()));
            assert_eq!(ran.json["counts"]["statuses"]["2xx"], 10, "{name}");
            let each = (ran.count("received_bytes") - ran.count("received_head_bytes")) / 10;
            bytes.insert(name, each);
            if name == "one-packet" {
                assert_eq!(ran.count("received_bytes") / 10, 1448);
            }
        }
        let sizes = names.map(|name| bytes[name]);
        assert_eq!(sizes, [1, 2048, 6144, 1198, 1259, 8192]);
    }

    #[test]
    fn a_trace_says_its_marginals_and_drives_a_run() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("trace").display().to_string();
        let options = "--workload specweb99 --mb 10 --sessions 20000 --seed 3";
        let made = weir(&format!("load trace {path} {options}"));
        assert_eq!(code(&made), Some(0), "{made:?}");
        let said = format!("{}{}", made.stdout, made.stderr);
        assert!(said.contains("class"), "{said}");
        let text = fs::read_to_string(&path).unwrap();
        let mut sessions: Vec<Vec<&str>> = text
            .split("\n\n")
            .map(|session| session.lines().filter(|line| line.starts_with('/')).collect())
            .collect();
        sessions.retain(|session| !session.is_empty());
        assert_eq!(sessions.len(), 20_000);
        let server = RecordingServer::plain();
        let options =
            format!("--quiet --rate 50 --duration 60 --timeout 20s --wsesslog 10,0,{path}");
        let ran = load(WEIR, &options, server.url("/"));
        assert_eq!((ran.count("sessions"), ran.count("errors")), (10, 0));
        let mut requested: Vec<Vec<String>> = server
            .connections()
            .into_iter()
            .map(|connection| connection.requests.into_iter().map(|request| request.line).collect())
            .collect();
        requested.sort();
        let line = |target: &&str| format!("GET {target} HTTP/1.1");
        let mut expected: Vec<Vec<String>> =
            sessions[..10].iter().map(|session| session.iter().map(line).collect()).collect();
        expected.sort();
        assert_eq!(requested, expected);
    }
}
