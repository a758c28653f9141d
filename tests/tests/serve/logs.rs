//! The access log: whose requests, its own formats, standard output, the system's logger and
//! journald, identifiers of requests, and what fail2ban makes of it.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::OFlags;
use rustix::process::Signal;
use serde_json::Value;
use weir_tests::server::run;
use weir_tests::wait::{TIMEOUT, until};
use weir_tests::{Origin, Root, Server, Setup, suite};

use crate::WEIR;
use crate::proxy_cache::reply_with;
use crate::succession::upgrade;

suite! {
    every_architecture_at_once:
    a_line_has_the_fields_of_its_format,
}

suite! {
    every_forwarding_architecture_at_once:
    a_request_has_one_identifier_in_the_log_and_at_its_upstream,
    a_request_that_a_stored_reply_answers_has_the_identifier_that_its_upstream_was_told,
}

/// Flag of an open that does not wait for the other end.
const NONBLOCK: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// `Aladdin:wrong`, encoded (RFC 7617 section 2).
const WRONG: &str = "Authorization: Basic QWxhZGRpbjp3cm9uZw==";

/// `eve [x] "GET / HTTP/1.1" 401 0 ":wrong`, encoded.
const EVE: &str = "Authorization: Basic ZXZlIFt4XSAiR0VUIC8gSFRUUC8xLjEiIDQwMSAwICI6d3Jvbmc=";

/// Hash of `open sesame`, as `htpasswd -nbBC 4` makes it.
const PASSWORDS: &str = "Aladdin:$2y$04$vKRXkql.bdkV4Qq.4L6Adu2xBNxLNyVOVnVoU/S/VqNBLPSFCZuca\n";

/// `Aladdin:open sesame`, encoded.
const ALADDIN: &str = "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";

fn a_line_has_the_fields_of_its_format(setup: &Setup) {
    let root = Root::with_hello();
    let log = root.outside().join("access.log");
    let format = "{remote} {peer} {user} {host} \"{request}\" {status} {bytes} \"{user_agent}\"";
    let options = [
        "--workers",
        "1",
        "--access-log",
        log.to_str().unwrap(),
        "--log-format",
        format,
        "--trusted-proxy",
        "127.0.0.0/8",
    ];
    let server = setup.serve(&root, &options);
    let forwarded = "X-Forwarded-For: 198.51.100.9, 192.0.2.7";
    let fields = [ALADDIN, forwarded, "User-Agent: a \"b\" \u{e9}"];
    server.get_with("/hello.txt", &fields);
    server.stop_cleanly();
    let line = fs::read_to_string(&log).unwrap();
    let request = "\"GET /hello.txt HTTP/1.1\" 200 5 \"a \\\"b\\\" \\xc3\\xa9\"\n";
    assert_eq!(line, format!("192.0.2.7 127.0.0.1 Aladdin test.example {request}"));
}

fn a_request_has_one_identifier_in_the_log_and_at_its_upstream(setup: &Setup) {
    let root = Root::new();
    let origin = Origin::echo();
    let told = |options: &[&str], name: &str| {
        let log = root.outside().join(format!("{}-{name}", setup.arch.spelling));
        let own = ["--access-log", log.to_str().unwrap(), "--log-format", "{id}"];
        let server = setup.proxy(&[&origin.url()], &[&own[..], options].concat());
        let before = origin.received().len();
        server.get_with("/", &["X-Request-Id: from-the-client"]);
        server.stop_cleanly();
        let received = origin.received();
        let upstream = received[before].fields("X-Request-Id").join(" ");
        (fs::read_to_string(log).unwrap().trim_end().to_owned(), upstream)
    };
    let (logged, upstream) = told(&["--request-id=on"], "strangers");
    assert_eq!(logged, upstream);
    assert!(logged.len() == 32 && logged.bytes().all(|byte| byte.is_ascii_hexdigit()), "{logged}");
    let trusting = ["--request-id=on", "--trusted-proxy", "127.0.0.0/8"];
    assert_eq!(told(&trusting, "trusted"), ("from-the-client".into(), "from-the-client".into()));
    // Without the option it is a field like any other.
    assert_eq!(told(&[], "off"), ("-".into(), "from-the-client".into()));
}

fn a_request_that_a_stored_reply_answers_has_the_identifier_that_its_upstream_was_told(
    setup: &Setup,
) {
    let root = Root::new();
    let origin = Origin::start(|received| {
        if received.fields("If-None-Match").is_empty() {
            return reply_with("Cache-Control: max-age=0\r\nETag: \"v\"\r\n", b"same");
        }
        b"HTTP/1.1 304 Not Modified\r\nETag: \"v\"\r\n\r\n".to_vec()
    });
    let log = root.outside().join("access.log");
    let own = ["--access-log", log.to_str().unwrap(), "--log-format", "{id}", "--request-id=on"];
    let options = [&own[..], &["--cache", "1M", "--workers", "1"]].concat();
    let server = setup.proxy(&[&origin.url()], &options);
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "same");
    }
    server.stop_cleanly();
    let received = origin.received();
    assert!(!received[1].fields("If-None-Match").is_empty(), "{received:?}");
    let told: Vec<&str> = received.iter().flat_map(|each| each.fields("X-Request-Id")).collect();
    let logged = fs::read_to_string(log).unwrap();
    assert_eq!(logged.lines().collect::<Vec<_>>(), told);
}

#[test]
fn a_wrong_format_is_refused_in_a_sentence() {
    let mut command = Command::new(WEIR);
    command.args(["serve", "--access-log", "-", "--log-format", "{remot}"]);
    let stopped = run(&mut command);
    assert_eq!(stopped.status.code(), Some(2));
    assert!(stopped.stderr.contains("remot") && stopped.stderr.contains("user_agent"));
}

/// Serves a request with this User-Agent to a log at a socket of this name, and returns what the
/// socket is sent.
fn sent_to(root: &Root, prefix: &str, agent: &[u8]) -> String {
    let path = root.outside().join("socket");
    let socket = logger(&path);
    let target = format!("{prefix}:{}", path.display());
    let server = Server::start(WEIR, &["--access-log", &target], root);
    let mut client = server.connect();
    let head = b"GET /hello.txt HTTP/1.1\r\nHost: test.example\r\nUser-Agent: ";
    client.send([&head[..], agent, b"\r\n\r\n"].concat());
    assert_eq!(client.reply().status, 200);
    let stats = server.stop_cleanly().stats();
    assert_eq!(stats["total"]["log_lines"].as_u64(), Some(1), "{stats}");
    assert_eq!(stats["total"]["log_lines_lost"].as_u64(), Some(0), "{stats}");
    received(&socket)
}

/// Binds the socket of a logger.
fn logger(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// Returns the next message that a logger is sent.
fn received(socket: &UnixDatagram) -> String {
    let mut datagram = vec![0; 1 << 20];
    let len = socket.recv(&mut datagram).unwrap();
    String::from_utf8(datagram[..len].to_vec()).unwrap()
}

#[test]
fn a_logger_that_was_started_anew_gets_the_next_line() {
    for prefix in ["syslog", "journald"] {
        let root = Root::with_hello();
        let path = root.outside().join("socket");
        let first = logger(&path);
        let target = format!("{prefix}:{}", path.display());
        let server = Server::start(WEIR, &["--access-log", &target], &root);
        server.get("/hello.txt?first");
        assert!(received(&first).contains("?first"), "{prefix}");
        drop(first);
        fs::remove_file(&path).unwrap();
        let second = logger(&path);
        server.get("/hello.txt?second");
        assert!(received(&second).contains("?second"), "{prefix}");
        let stats = server.stop_cleanly().stats();
        assert_eq!(stats["total"]["log_lines_lost"].as_u64(), Some(0), "{prefix}: {stats}");
    }
}

#[test]
fn standard_output_has_the_lines_of_its_log_alone() {
    let root = Root::with_hello();
    let options = ["--workers", "1", "--access-log", "-", "--log-format", "json"];
    let server = Server::start(WEIR, &options, &root);
    server.get("/hello.txt?first");
    upgrade(&server, 0);
    server.get("/hello.txt?second");
    let stopped = server.stop();
    assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
    let line = |text: &str| serde_json::from_str::<Value>(text).expect(text);
    let lines: Vec<Value> = stopped.stdout.lines().map(line).collect();
    assert_eq!(lines.len(), 2, "{}", stopped.stdout);
    // Each of the two servers says so.
    let ready = stopped.stderr.lines().filter(|line| line.starts_with("weir: serving "));
    assert_eq!(ready.count(), 2, "{}", stopped.stderr);
}

#[test]
fn an_output_that_is_a_pipe_and_named_by_its_path_has_the_log() {
    for arch in ["loop", "processes"] {
        let root = Root::with_hello();
        let logs = ["--access-log", "/dev/stdout", "--error-log", "/dev/stderr"];
        let options = ["--arch", arch, "--workers", "1"];
        let server = Server::start(WEIR, &[&options[..], &logs].concat(), &root);
        server.get("/hello.txt?first");
        until("a line was written", || server.stdout_so_far().contains("?first"));
        server.signal(Signal::HUP);
        let again = "the logs were opened again";
        until("they were opened again", || server.stderr_so_far().contains(again));
        server.get("/hello.txt?second");
        until("a line was written", || server.stdout_so_far().contains("?second"));
        let said = server.stop_cleanly().stderr;
        assert!(!said.contains("cannot reopen"), "{arch}: {said}");
    }
}

#[test]
fn an_output_that_is_a_socket_and_named_by_its_path_is_refused_in_a_sentence() {
    let (_reader, socket) = UnixStream::pair().unwrap();
    let mut command = Command::new(WEIR);
    command.args(["serve", "/", "--listen", "127.0.0.1:0", "--access-log", "/dev/stdout"]);
    let refused = command.stdout(OwnedFd::from(socket)).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.starts_with("weir: cannot open the access log: /dev/stdout: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn the_systems_logger_gets_a_message_of_rfc_5424_for_each_line() {
    let message = sent_to(&Root::with_hello(), "syslog", b"x");
    let words: Vec<_> = message.splitn(8, ' ').collect();
    let [head, time, _host, app, process, kind, data, line] = words[..] else {
        unreachable!("{message}")
    };
    assert_eq!((head, app, kind, data), ("<30>1", "weir", "access", "-"));
    assert!(time.ends_with('Z') && process.parse::<u32>().is_ok(), "{message}");
    assert!(line.starts_with("127.0.0.1 - - [") && !line.contains('\n'), "{message}");
}

#[test]
fn journald_gets_an_entry_with_fields_for_each_line() {
    let entry = sent_to(&Root::with_hello(), "journald", b"x");
    let value = |name: &str| {
        let mut values =
            entry.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        values.next().unwrap_or_else(|| unreachable!("no {name}: {entry}"))
    };
    assert!(value("MESSAGE").starts_with("127.0.0.1 - - ["));
    assert_eq!(value("PRIORITY"), "6");
    assert_eq!(value("WEIR_REQUEST"), "GET /hello.txt HTTP/1.1");
    assert_eq!((value("WEIR_STATUS"), value("WEIR_USER_AGENT")), ("200", "x"));
    assert!(entry.lines().all(|line| line.contains('=')), "{entry}");
}

#[test]
fn a_client_cannot_make_its_entry_too_large_to_be_sent() {
    for prefix in ["syslog", "journald"] {
        let message = sent_to(&Root::with_hello(), prefix, &[0xff; 60_000]);
        assert!(message.contains("\\xff\\xff...\""), "{prefix}: {}", message.len());
        assert!(message.contains("\"GET /hello.txt HTTP/1.1\" 200 5 "), "{prefix}");
    }
}

/// Makes a pipe with a name.
fn pipe(root: &Root, name: &str) -> PathBuf {
    let path = root.outside().join(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[test]
fn a_pipe_that_nobody_reads_is_refused_in_a_sentence() {
    let root = Root::with_hello();
    let path = pipe(&root, "pipe");
    for option in ["--access-log", "--error-log"] {
        for arch in ["loop", "processes"] {
            let mut command = Command::new(WEIR);
            command.args(["serve", "/", "--listen", "127.0.0.1:0", "--arch", arch, option]);
            let stopped = run(command.arg(&path));
            assert_eq!(stopped.status.code(), Some(2), "{option} {arch}: {}", stopped.stderr);
            let log = &option[2..].replace('-', " ");
            let says = format!("weir: cannot open the {log}: {}: no process", path.display());
            assert!(stopped.stderr.starts_with(&says), "{arch}: {}", stopped.stderr);
            assert_eq!(stopped.stderr.lines().count(), 1, "{arch}: {}", stopped.stderr);
        }
    }
}

#[test]
fn a_log_that_is_not_opened_again_goes_on_where_it_was_and_that_is_said() {
    for arch in ["loop", "processes"] {
        let root = Root::with_hello();
        let (path, moved) = (pipe(&root, "pipe"), root.outside().join("moved"));
        let mut log = File::options().read(true).custom_flags(NONBLOCK).open(&path).unwrap();
        let options = ["--arch", arch, "--workers", "1", "--access-log", path.to_str().unwrap()];
        let server = Server::start(WEIR, &options, &root);
        let mut logged = String::new();
        let mut is_logged = |target: &str| {
            // Nothing there yet is an error like any other.
            let _ = log.read_to_string(&mut logged);
            logged.contains(target)
        };
        server.get("/hello.txt?first");
        until("a line was written", || is_logged("?first"));
        fs::rename(&path, &moved).unwrap();
        fs::create_dir(&path).unwrap();
        server.signal(Signal::HUP);
        until("it was said", || {
            let said = server.stderr_so_far();
            said.contains(": cannot reopen the access log: ")
                && said.contains("; it goes on where it was")
                && said.contains("the configuration is the same")
        });
        let said = server.stderr_so_far();
        assert!(!said.contains("the logs were opened again"), "{arch}: {said}");
        server.get("/hello.txt?second");
        until("a line was written", || is_logged("?second"));
        fs::remove_dir(&path).unwrap();
        fs::rename(&moved, &path).unwrap();
        until("that was said too", || {
            server.signal(Signal::HUP);
            server.stderr_so_far().contains("the logs were opened again")
        });
        // Child processes have tried the same, each for itself.
        let said = server.stop_cleanly().stderr;
        assert_eq!(said.matches("cannot reopen the access log").count(), 1, "{arch}: {said}");
    }
}

#[test]
fn a_pipe_that_is_full_makes_nobody_wait() {
    let root = Root::with_hello();
    let path = pipe(&root, "pipe");
    let log = File::options().read(true).custom_flags(NONBLOCK).open(&path).unwrap();
    rustix::pipe::fcntl_setpipe_size(&log, 4096).unwrap();
    let server = Server::start(WEIR, &["--access-log", path.to_str().unwrap()], &root);
    let agent = format!("User-Agent: {}", "x".repeat(5000));
    until("its writer waits", || {
        assert_eq!(server.get_with("/hello.txt", &[&agent]).status, 200);
        server.signal(Signal::HUP);
        server.stderr_so_far().contains("the access log is stuck and was not reopened")
    });
    assert_eq!(server.get("/hello.txt").text(), "hello");
    server.stop_cleanly();
}

fn filter(name: &str) -> PathBuf {
    let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib");
    contrib.join("fail2ban/filter.d").join(format!("{name}.conf"))
}

/// Returns the addresses of the lines that a filter matches, with its tags replaced as fail2ban
/// does, and the date cut out.
fn matched(name: &str, log: &str) -> Vec<String> {
    let text = fs::read_to_string(filter(name)).unwrap();
    let failures = text.lines().find_map(|line| line.strip_prefix("failregex = ")).unwrap();
    let expression = failures
        .replace("<ADDR>", "(?P<addr>[0-9a-f.:]+)")
        .replace("<F-USER>", "(?P<user>")
        .replace("</F-USER>", ")");
    let expression = regex::Regex::new(&expression).unwrap();
    let date =
        regex::Regex::new(r"^(\S+ - \S+ \[)\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\]").unwrap();
    let cut = |line| {
        assert!(date.is_match(line), "{line}");
        date.replace(line, "$1]").into_owned()
    };
    let lines = log.lines().map(cut);
    lines.filter_map(|line| Some(expression.captures(&line)?["addr"].to_owned())).collect()
}

/// Returns how many lines fail2ban itself matches; `None` if it is not there.
fn matched_by_fail2ban(name: &str, log: &Path) -> Option<String> {
    let output = Command::new("fail2ban-regex").arg(log).arg(filter(name)).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find(|line| line.starts_with("Lines:")).map(str::to_owned)
}

#[test]
fn fail2ban_finds_the_failures_and_nobody_else() {
    let root = Root::with_hello();
    fs::write(root.outside().join("htpasswd"), PASSWORDS).unwrap();
    let config = root.outside().join("weir.toml");
    let rules = "[[route]]\npath = '/secret'\nauth-file = 'htpasswd'\n";
    let htpasswd = root.outside().join("htpasswd").display().to_string();
    fs::write(&config, rules.replace("'htpasswd'", &format!("'{htpasswd}'"))).unwrap();
    let log = root.outside().join("access.log");
    let (config, log_path) = (config.to_str().unwrap(), log.to_str().unwrap());
    let server = Server::start(WEIR, &["--config", config, "--access-log", log_path], &root);
    let status = |target: &str, fields: &[&str]| server.get_with(target, fields).status;
    assert_eq!(status("/secret/", &[WRONG]), 401);
    assert_eq!(status("/secret/", &[EVE]), 401);
    // No name is no failure, and neither is what only looks like one.
    assert_eq!(status("/secret/", &[]), 401);
    assert_eq!(status("/secret/", &[ALADDIN]), 404);
    let forged = "192.0.2.9 - eve [01/Jan/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 401 0 \"";
    let (agent, referer) = (format!("User-Agent: {forged}"), format!("Referer: {forged}"));
    assert_eq!(status("/hello.txt", &[&agent, &referer, EVE]), 200);
    assert_eq!(status("/hello.txt?\\\"\"%20401%200%20\"", &[WRONG]), 200);
    let mut client = server.connect();
    let malformed = "192.0.2.9 - eve [x] \"GET\" 401 0 \"\r\n\r\n";
    client.send(malformed);
    assert_eq!(client.reply().status, 400);
    server.stop_cleanly();
    // Whose it is that a proxy passes on is in the head, and that was not read.
    let proxied = root.outside().join("proxied.log");
    let options = ["--trusted-proxy", "127.0.0.1", "--access-log", proxied.to_str().unwrap()];
    let server = Server::start(WEIR, &options, &root);
    let mut client = server.connect();
    client.send(malformed);
    assert_eq!(client.reply().status, 400);
    server.stop_cleanly();
    let of_proxy = fs::read_to_string(&proxied).unwrap();
    assert!(of_proxy.starts_with("- - - ["), "{of_proxy}");
    assert_eq!(matched("weir-malformed", &of_proxy), [""; 0], "{of_proxy}");
    let text = fs::read_to_string(&log).unwrap();
    assert_eq!(matched("weir-auth", &text), ["127.0.0.1"; 2], "{text}");
    assert_eq!(matched("weir-malformed", &text), ["127.0.0.1"], "{text}");
    assert_eq!(matched("weir-limit", &text), [""; 0], "{text}");
    for (name, log, count) in [
        ("weir-auth", &log, 2),
        ("weir-malformed", &log, 1),
        ("weir-malformed", &proxied, 0),
        ("weir-limit", &log, 0),
    ] {
        match matched_by_fail2ban(name, log) {
            None => eprintln!("skipped: fail2ban is not there"),
            Some(said) => assert!(said.contains(&format!(" {count} matched")), "{said}: {text}"),
        }
    }
}
