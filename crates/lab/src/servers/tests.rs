//! Tests of every installed server on loopback: it accepts its configuration, serves, compresses,
//! and is gone after it was stopped or dropped.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;

use super::launch::READY_WITHIN;
use super::*;
use crate::experiment::{UpstreamKind, UpstreamSpec};
use crate::loopback::{self, Loopback};
use crate::process_group::lives;

const PROGRAMS: [Kind; 5] = [Kind::Nginx, Kind::H2o, Kind::Lighttpd, Kind::Haproxy, Kind::Apache];

/// The lighttpd package that may be missing.
const MODULE: &str = "lighttpd-mod-deflate";

fn spec(kind: Kind) -> ServerSpec {
    ServerSpec::plain(kind)
}

fn gzip(kind: Kind) -> ServerSpec {
    ServerSpec::with(kind, "gzip = true")
}

/// The directories of a run, whose paths have a space; Apache, as another user, must have access.
struct Place {
    base: tempfile::TempDir,
    port: u16,
}

impl Place {
    fn new() -> Self {
        let base = tempfile::Builder::new().prefix("a b").tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(base.path().join("run")).unwrap();
        write_root(Path::new("unused"), crate::workload::PAGE, None, &base.path().join("www"))
            .unwrap();
        fs::write(base.path().join("www/small.txt"), "hello").unwrap();
        Self { base, port: loopback::free_port() }
    }

    fn start(&self, spec: &ServerSpec, weir: &Path) -> Result<RunningServer, String> {
        self.start_before(spec, weir, None)
    }

    /// Starts a server, as a proxy of an application if there is one.
    fn start_before(
        &self,
        spec: &ServerSpec,
        weir: &Path,
        upstream: Option<&UpstreamSpec>,
    ) -> Result<RunningServer, String> {
        start(&Launch {
            spec,
            environment: &Loopback,
            weir,
            root: &self.base.path().join("www"),
            dir: &self.base.path().join("run"),
            port: self.port,
            calls: true,
            upstream,
            serves_files: true,
            bench_endpoints: spec.proxy_burn_us().is_some(),
            workers: 2,
            groups: &[],
        })
    }

    fn site<'a>(&'a self, spec: &'a ServerSpec, dirs: &'a [PathBuf; 2]) -> Site<'a> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        Site {
            spec,
            address,
            root: &dirs[0],
            dir: &dirs[1],
            workers: 2,
            files_max: 4096,
            as_root: rustix::process::geteuid().is_root(),
            upstreams: upstream::sockets(spec, None),
            serves_files: false,
            tls: spec.tls().map(|key| IdentityFiles::make(key, address, &dirs[1]).unwrap()),
        }
    }

    fn dirs(&self) -> [PathBuf; 2] {
        ["www", "run"].map(|name| self.base.path().join(name))
    }

    /// Returns the head and the body of the reply to a request.
    fn fetch(&self, path: &str, field: &str) -> (String, Vec<u8>) {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{field}\r\n");
        connection.write_all(request.as_bytes()).unwrap();
        let mut reply = Vec::new();
        connection.read_to_end(&mut reply).unwrap();
        let head_ends = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let body = reply.split_off(head_ends);
        (String::from_utf8(reply).unwrap().to_ascii_lowercase(), body)
    }
}

fn is_installed(kind: Kind) -> bool {
    let version = version(kind, Path::new("unused"));
    if let Err(why) = &version {
        eprintln!("{why}: skipped");
    }
    version.is_ok()
}

#[test]
fn a_server_with_a_tcp_of_its_own_needs_a_link() {
    assert_eq!(address(&Loopback, Kind::Weir), Ok(Loopback.server_address()));
    let refused = address(&Loopback, Kind::Sink).unwrap_err();
    assert!(refused.contains("tcp_sink needs namespaces"), "{refused}");
    let place = Place::new();
    assert_eq!(place.start(&spec(Kind::Sink), Path::new("weir")).err(), Some(refused));
}

#[test]
fn a_server_that_is_operated_has_a_log_an_admin_address_and_limits() {
    let Some(weir) = loopback::weir() else { return };
    let place = Place::new();
    let log = || fs::read_to_string(place.dirs()[1].join("access.log")).unwrap_or_default();
    let mut kinds = vec![(Kind::Weir, "access-log = true\noperated = true")];
    if is_installed(Kind::Nginx) {
        kinds.push((Kind::Nginx, "access-log = true"));
    }
    for (kind, settings) in kinds {
        let running = place.start(&ServerSpec::with(kind, settings), &weir).unwrap();
        let (head, _) = place.fetch("/small.txt", "");
        assert!(head.starts_with("http/1.1 200 "), "{kind:?}: {head}");
        let is_admin = place.dirs()[1].join("admin.sock").exists();
        assert_eq!(is_admin, kind == Kind::Weir);
        running.stop().how.unwrap();
        assert!(log().contains("\"GET /small.txt HTTP/1.1\" 200 5 "), "{kind:?}: {}", log());
        fs::remove_file(place.dirs()[1].join("access.log")).unwrap();
    }
    let running = place.start(&spec(Kind::Weir), &weir).unwrap();
    place.fetch("/small.txt", "");
    running.stop().how.unwrap();
    assert_eq!(log(), "");
}

#[test]
fn installed_peers_serve_the_page_and_are_gone_when_stopped() {
    for kind in PROGRAMS.into_iter().filter(|kind| is_installed(*kind)) {
        let place = Place::new();
        let mut running = place.start(&spec(kind), Path::new("unused")).unwrap();
        let (head, body) = place.fetch("/page.html", "Accept-Encoding: gzip\r\n");
        assert!(head.starts_with("http/1.1 200 "), "{kind:?}: {head}");
        assert!(head.contains("content-type: text/html"), "{kind:?}: {head}");
        assert!(!head.contains("content-encoding"), "{kind:?}: {head}");
        assert_eq!(body, fs::read(place.base.path().join("www/page.html")).unwrap(), "{kind:?}");
        let (head, body) = place.fetch("/small.txt", "");
        assert!(head.contains("text/plain") && body == b"hello", "{kind:?}: {head}");
        assert!(place.fetch("/absent", "").0.starts_with("http/1.1 404 "), "{kind:?}");
        let shown = format!("{} {}", running.command(), running.config().unwrap());
        assert!(!shown.contains(&place.base.path().display().to_string()), "{kind:?}: {shown}");
        assert!(shown.contains("ROOT") && shown.contains("DIR"), "{kind:?}: {shown}");
        assert!(running.alive() && lives(running.pids()[0]), "{kind:?}");
        assert!(running.snapshot().unwrap().is_none());
        let pid = running.pids()[0];
        let ended = running.stop();
        assert_eq!(ended.how, Ok(()), "{kind:?}");
        assert!(ended.stats.is_none() && !lives(pid), "{kind:?}");
    }
}

#[test]
fn installed_peers_compress_on_the_fly_and_are_gone_when_dropped() {
    // haproxy compresses what the weir behind it answers.
    let weir = loopback::weir();
    let has_what_it_needs = |kind: &Kind| *kind != Kind::Haproxy || weir.is_some();
    for kind in PROGRAMS.into_iter().filter(has_what_it_needs).filter(|kind| is_installed(*kind)) {
        let place = Place::new();
        let started = place.start(&gzip(kind), weir.as_deref().unwrap_or(Path::new("unused")));
        if let Some(why) = started.as_ref().err().filter(|why| why.contains(MODULE)) {
            eprintln!("{why}: skipped");
            continue;
        }
        let running = started.unwrap();
        let (head, body) = place.fetch("/page.html", "Accept-Encoding: gzip\r\n");
        assert!(head.starts_with("http/1.1 200 "), "{kind:?}: {head}");
        assert!(head.contains("content-encoding: gzip"), "{kind:?}: {head}");
        assert!((1_000..30_720).contains(&body.len()), "{kind:?}: {}", body.len());
        let pids = running.pids();
        assert_eq!(pids.len(), if kind == Kind::Haproxy { 2 } else { 1 });
        drop(running);
        assert!(!pids.into_iter().any(lives), "{kind:?}");
    }
}

#[test]
fn installed_peers_speak_tls_with_the_certificate_of_the_run() {
    for kind in
        [Kind::Nginx, Kind::H2o, Kind::Haproxy].into_iter().filter(|kind| is_installed(*kind))
    {
        let place = Place::new();
        let running =
            place.start(&ServerSpec::with(kind, "tls = \"rsa-2048\""), Path::new("unused"));
        let running = running.unwrap();
        let mut connection = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
        // The head of a record that is no handshake: the answer is an alert (RFC 8446 section 6).
        connection.write_all(&[0x16, 3, 1, 0, 1, 0xff]).unwrap();
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A server may reset the connection behind the alert.
        let _ = connection.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer[0] == 0x15, "{kind:?}: {answer:?}");
        assert!(running.config().unwrap().contains("DIR/"), "{kind:?}");
        running.stop();
        let pem = fs::read_to_string(place.base.path().join("run/identity.pem")).unwrap();
        assert!(pem.contains("BEGIN CERTIFICATE") && pem.contains("PRIVATE KEY"), "{kind:?}");
    }
}

fn proxy(kind: Kind) -> ServerSpec {
    ServerSpec::with(kind, "proxy-burn-us = 1")
}

#[test]
fn a_proxy_passes_on_what_is_behind_it_and_both_are_stopped() {
    let Some(weir) = loopback::weir() else { return };
    let proxies = [Kind::Nginx, Kind::H2o, Kind::Haproxy];
    for kind in proxies.into_iter().filter(|kind| is_installed(*kind)) {
        let place = Place::new();
        let mut running = place.start(&proxy(kind), &weir).unwrap();
        let (head, body) = place.fetch("/.weir/burn/1/page.html", "");
        assert!(head.starts_with("http/1.1 200 "), "{kind:?}: {head}");
        assert_eq!(body, fs::read(place.base.path().join("www/page.html")).unwrap(), "{kind:?}");
        let config = running.config().unwrap();
        assert!(
            config.starts_with("# upstream-0.sock: weir serve ROOT --listen=unix:"),
            "{config}"
        );
        assert!(running.alive() && running.snapshot().unwrap().is_none());
        let pids = running.pids();
        assert_eq!((pids.len(), running.stop().how), (2, Ok(())), "{kind:?}");
        assert!(!pids.into_iter().any(lives), "{kind:?}");
    }
}

#[test]
fn a_proxy_whose_upstream_is_gone_is_not_alive_and_says_so() {
    let Some(weir) = loopback::weir().filter(|_| is_installed(Kind::Haproxy)) else { return };
    let place = Place::new();
    let mut running = place.start(&proxy(Kind::Haproxy), &weir).unwrap();
    running.upstreams().signal_last(Signal::KILL);
    assert!(!running.alive());
    let how = running.stop().how.unwrap_err();
    assert!(how.starts_with("the upstream ended by itself"), "{how}");
}

/// Returns a server-wide directive in the program's own syntax.
fn directive(kind: Kind) -> &'static str {
    match kind {
        Kind::Nginx => "multi_accept on",
        Kind::H2o => "num-name-resolution-threads: 1",
        Kind::Lighttpd => "server.max-read-idle = 60",
        Kind::Haproxy => "tune.maxaccept 1",
        _ => "Timeout 60",
    }
}

#[test]
fn peers_find_their_configuration_in_order() {
    let checks = [
        (Kind::Nginx, &["-t", "-e", "stderr", "-c"][..]),
        (Kind::H2o, &["-m", "test", "-c"]),
        (Kind::Lighttpd, &["-tt", "-f"]),
        (Kind::Haproxy, &["-c", "-f"]),
        (Kind::Apache, &["-t", "-f"]),
    ];
    for (kind, flags) in checks.into_iter().filter(|(kind, _)| is_installed(*kind)) {
        let place = Place::new();
        let dirs = place.dirs();
        let settings = match kind {
            Kind::H2o => "gzip = true",
            // Its module may be missing. No port has as many digits as the backlog.
            Kind::Lighttpd => "backlog = 765432",
            _ => "backlog = 765432\ngzip = true",
        };
        let options = vec![directive(kind).to_owned()];
        let spec = ServerSpec { options, ..ServerSpec::with(kind, settings) };
        let server_program = server_program(kind).unwrap();
        let text = (server_program.configuration)(&place.site(&spec, &dirs)).unwrap();
        assert!(text.contains(directive(kind)), "{text}");
        assert_eq!(text.contains("765432"), kind != Kind::H2o, "{text}");
        let path = dirs[1].join("conf");
        fs::write(&path, &text).unwrap();
        let output =
            Command::new(server_program.find().unwrap()).args(flags).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{kind:?}: {said}\n{text}");
    }
}

/// Returns an application with two servers of two workers each, and a path of it.
fn application(kind: UpstreamKind) -> (UpstreamSpec, String) {
    let text = "workers = 2\nmean-us = 2000\nlaw = \"exponential\"\nburn-us = 100\nservers = 2";
    let spec: UpstreamSpec =
        toml::from_str(&format!("kind = \"{}\"\n{text}", kind.name())).unwrap();
    let path = format!("{}/file-1k.bin", spec.prefix(7));
    (spec, path)
}

#[test]
fn installed_applications_answer_behind_weir_and_come_back_after_their_death() {
    let Some(weir) = loopback::weir() else { return };
    for kind in UpstreamKind::ALL {
        if let Err(why) = application_version(kind) {
            eprintln!("{why}: skipped");
            continue;
        }
        let (application, path) = application(kind);
        let place = Place::new();
        fs::write(place.base.path().join("www/file-1k.bin"), [b'x'; 1024]).unwrap();
        let mut running = place.start_before(&spec(Kind::Weir), &weir, Some(&application)).unwrap();
        let serves = || {
            let (head, body) = place.fetch(&path, "");
            assert!(head.starts_with("http/1.1 200 ") && body == [b'x'; 1024], "{kind:?}: {head}");
        };
        serves();
        assert_eq!(running.pids().len(), 3, "{kind:?}");
        running.upstreams().kill_last().unwrap();
        assert!(!running.alive() && running.pids().len() == 2, "{kind:?}");
        serves();
        running.upstreams().start_last(&Loopback).unwrap();
        assert!(running.alive(), "{kind:?}");
        serves();
        assert_eq!(running.stop().how, Ok(()), "{kind:?}");
    }
}

#[test]
fn installed_proxies_pass_on_what_is_for_an_application_and_serve_files_themselves() {
    let Some(weir) = loopback::weir() else { return };
    let proxies = [Kind::Weir, Kind::Nginx, Kind::Haproxy, Kind::Envoy];
    for kind in proxies.into_iter().filter(|kind| *kind == Kind::Weir || is_installed(*kind)) {
        let (application, path) = application(UpstreamKind::Weir);
        let place = Place::new();
        fs::write(place.base.path().join("www/file-1k.bin"), "application").unwrap();
        let running = place.start_before(&spec(kind), &weir, Some(&application)).unwrap();
        let (head, body) = place.fetch(&path, "");
        assert!(head.starts_with("http/1.1 200 ") && body == b"application", "{kind:?}: {head}");
        if kind != Kind::Envoy {
            assert_eq!(place.fetch("/small.txt", "").1, b"hello", "{kind:?}");
        }
        let config = running.config().unwrap_or("# upstream-1.sock: weir serve ROOT").to_owned();
        assert!(config.contains("# upstream-1.sock: weir serve ROOT"), "{kind:?}: {config}");
        assert_eq!(running.stop().how, Ok(()), "{kind:?}");
    }
}

#[test]
fn envoy_alone_has_nothing_to_answer_with() {
    let place = Place::new();
    let dirs = place.dirs();
    let spec = spec(Kind::Envoy);
    let why = (envoy::PROGRAM.configuration)(&place.site(&spec, &dirs)).unwrap_err();
    assert!(why.contains("needs an upstream"), "{why}");
}

#[test]
fn nginx_directives_stand_in_their_blocks() {
    let place = Place::new();
    let dirs = place.dirs();
    let options = ["accept_mutex on;", "timer_resolution 1ms", "gzip_comp_level 1"];
    let spec = ServerSpec { options: options.map(str::to_owned).to_vec(), ..spec(Kind::Nginx) };
    let text = (nginx::PROGRAM.configuration)(&place.site(&spec, &dirs)).unwrap();
    let at = |what: &str| text.find(what).unwrap();
    assert!(at("timer_resolution 1ms;") < at("events {"));
    assert!((at("events {")..at("http {")).contains(&at("accept_mutex on;")));
    assert!((at("http {")..at("server {")).contains(&at("gzip_comp_level 1;")));
}

#[test]
fn weir_gets_its_options_last() {
    let place = Place::new();
    let settings = "backlog = 5\narch = \"fiber\"\narch-options = [\"pool=7\"]\n\
                    options = [\"--preset\", \"accept1\"]";
    let spec = ServerSpec::with(Kind::Weir, settings);
    let dirs = [PathBuf::from("/www"), PathBuf::from("/run")];
    let site = Site { address: SocketAddr::from(([10, 0, 0, 1], 80)), ..place.site(&spec, &dirs) };
    let expected = "serve /www --listen 10.0.0.1:80 --workers 2 --stats-json /run/stats.json \
                    --listenq 5 --arch fiber --arch-option pool=7 --bench-endpoints=on \
                    --profile-calls=on --preset accept1";
    assert_eq!(weir::arguments(&site, true, true).join(" "), expected);
    let bare = weir::arguments(&site, false, false).join(" ");
    assert!(!bare.contains("bench") && !bare.contains("profile"), "{bare}");
    let compresses = |settings: &str| {
        let spec = ServerSpec::with(Kind::Weir, settings);
        let arguments = weir::arguments(&place.site(&spec, &dirs), false, false);
        arguments.iter().filter(|one| one.starts_with("--compress")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(compresses(""), ["--compress=off"]);
    assert_eq!(compresses("options = [\"--compress=on\"]"), ["--compress=on"]);
    assert!(compresses("gzip = true").is_empty());
}

#[test]
fn weir_shows_its_statistics_while_it_runs_and_at_its_end() {
    let Some(weir) = loopback::weir() else { return };
    let place = Place::new();
    let mut running = place.start(&spec(Kind::Weir), &weir).unwrap();
    assert_eq!(place.fetch("/small.txt", "").1, b"hello");
    let first = running.snapshot().unwrap().unwrap();
    assert_eq!(first["total"]["accepted"], 1, "{first}");
    assert_eq!(place.fetch("/small.txt", "").1, b"hello");
    let second = running.snapshot().unwrap().unwrap();
    assert_eq!(second["total"]["accepted"], 2, "{second}");
    let command = running.command().to_owned();
    assert!(command.starts_with("weir serve ROOT --listen 127.0.0.1:"), "{command}");
    assert!(command.contains("--stats-json DIR/stats.json"), "{command}");
    // An open connection does not keep it from stopping at once.
    let _open = TcpStream::connect(("127.0.0.1", place.port)).unwrap();
    let pid = running.pids()[0];
    let ended = running.stop();
    assert_eq!(ended.how, Ok(()));
    assert!(ended.stats.unwrap()["total"]["accepted"].as_u64().unwrap() >= 2);
    assert!(!lives(pid));
}

#[test]
fn a_server_that_ends_by_itself_is_told() {
    let Some(weir) = loopback::weir() else { return };
    let place = Place::new();
    let mut running = place.start(&spec(Kind::Weir), &weir).unwrap();
    running.group.signal(Signal::KILL);
    assert!(running.group.ended_within(READY_WITHIN));
    assert!(!running.alive() && running.snapshot().is_err());
    let how = running.stop().how.unwrap_err();
    assert!(how.contains("by itself"), "{how}");
}

#[test]
fn a_server_that_cannot_start_is_an_error_with_its_words() {
    let Some(weir) = loopback::weir() else { return };
    let place = Place::new();
    let options = vec!["--no-such-option".to_owned()];
    let wrong = ServerSpec { options, ..spec(Kind::Weir) };
    let why = place.start(&wrong, &weir).err().unwrap();
    assert!(why.contains("no-such-option"), "{why}");
    let _taken = std::net::TcpListener::bind(("127.0.0.1", place.port)).unwrap();
    let why = place.start(&spec(Kind::Weir), &weir).err().unwrap();
    assert!(why.contains("already"), "{why}");
}

#[test]
fn haproxy_refuses_a_tree_of_files() {
    let place = Place::new();
    let dirs = place.dirs();
    fs::create_dir(dirs[0].join("file_set")).unwrap();
    let spec = spec(Kind::Haproxy);
    let why = (haproxy::PROGRAM.configuration)(&place.site(&spec, &dirs)).unwrap_err();
    assert!(why.contains("specweb99"), "{why}");
}

#[test]
fn listening_sockets_are_told_from_others() {
    let table = "  sl  local_address rem_address   st tx_queue\n   \
                 0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n   \
                 1: 0200007F:1F91 0100007F:9999 01 00000000:00000000\n   \
                 2: 00000000:1F92 00000000:0000 0A 00000000:00000000\n";
    let address = |last: u8, port: u16| SocketAddr::from(([127, 0, 0, last], port));
    assert!(has_listener(table, address(1, 8080)));
    assert!(!has_listener(table, address(2, 8080)));
    assert!(!has_listener(table, address(2, 8081)));
    assert!(has_listener(table, address(9, 8082)));
    assert!(!has_listener(table, address(1, 80)));
}
