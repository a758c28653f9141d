//! The sandbox: what an intruder would try from within a thread that serves is refused, under every
//! architecture and mechanism, and what a server does goes on.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use seccompiler::{SeccompAction, SeccompFilter};
use weir_sys::sandbox::Support;
use weir_sys::sandbox::intruder::ATTEMPTS;
use weir_tests::server::{Attempt, attempt};
use weir_tests::{Origin, Root, Server, Setup, suite};

use crate::WEIR;

suite! {
    every_setup:
    an_intruder_is_refused_and_the_next_request_is_answered,
}

suite! {
    every_architecture:
    every_thread_but_the_main_one_is_confined,
}

suite! {
    every_forwarding_setup:
    a_proxy_connects_to_its_upstreams_and_to_nothing_else,
}

/// Without a page of statistics, so that less was done before a loop is confined.
const OPTIONS: [&str; 6] =
    ["--sandbox", "on", "--bench-endpoints", "--stat-page=off", "--workers", "1"];

/// Number of landlock_create_ruleset(2), the same on every architecture.
const LANDLOCK_CREATE_RULESET: i64 = 444;

/// Returns whether this kernel has all that `--sandbox on` asks for; says so if not.
fn is_possible() -> bool {
    let Support { landlock, seccomp } = Support::find();
    let has_all = landlock > 0 && seccomp;
    if !has_all {
        println!("SKIPPED: this kernel has no Landlock, or no seccomp");
    }
    has_all
}

/// Has the server try something, and returns what came of it.
fn tried(server: &Server, name: &str, path: &Path) -> String {
    let reply = server.get(&format!("/.weir/try/{name}{}", path.display()));
    assert_eq!(reply.status, 200, "{name}");
    reply.text()
}

/// EPERM and EACCES, by which calls and files are refused.
fn is_refusal(outcome: &str) -> bool {
    outcome.ends_with("(os error 1)") || outcome.ends_with("(os error 13)")
}

fn an_intruder_is_refused_and_the_next_request_is_answered(setup: &Setup) {
    if !is_possible() {
        return;
    }
    let root = Root::with_hello();
    let server = setup.serve(&root, &OPTIONS);
    let made = root.path().join("made-by-an-intruder");
    for name in ATTEMPTS {
        let file = if name == "write" { &made } else { &root.path().join("hello.txt") };
        let outcome = tried(&server, name, file);
        assert!(is_refusal(&outcome), "{}: {name}: {outcome}", setup.name);
    }
    assert!(!made.exists());
    assert_eq!(server.get("/hello.txt").text(), "hello");
    server.stop_cleanly();
}

#[test]
fn without_the_sandbox_an_intruder_can() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &["--sandbox", "off", "--bench-endpoints"], &root);
    let file = root.outside().join("made-by-an-intruder");
    for name in ["read", "write", "unlink", "fork"] {
        assert_eq!(tried(&server, name, &file), "done", "{name}");
    }
    for name in
        ["connect", "mptcp", "sendto", "sendmsg", "smc", "unix", "datagram", "affinity", "idle"]
    {
        let outcome = tried(&server, name, &file);
        assert!(!is_refusal(&outcome), "{name}: {outcome}");
    }
}

/// Returns the names and the modes of the filters of a process's threads (proc_pid_status(5)).
fn threads(pid: u32) -> Vec<(u32, String, String)> {
    let field = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .flatten()
        .filter_map(|task| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let id = field(&status, "Pid:").parse().ok()?;
            Some((id, field(&status, "Name:"), field(&status, "Seccomp:")))
        })
        .collect()
}

fn every_thread_but_the_main_one_is_confined(setup: &Setup) {
    if !is_possible() {
        return;
    }
    let root = Root::with_hello();
    let log = root.outside().join("access.log");
    // The admin address shows the page of statistics.
    let more = ["--stat-page=on", "--access-log", log.to_str().unwrap(), "--admin", "127.0.0.1:0"];
    let options = OPTIONS.iter().filter(|option| !option.starts_with("--stat-page"));
    let options: Vec<_> = options.copied().chain(more).collect();
    let server = setup.serve(&root, &options);
    assert_eq!(server.get("/hello.txt").text(), "hello");
    let forks = setup.arch.spelling == "processes";
    let mut confined = 0;
    for pid in weir_tests::family::family_of(server.id()) {
        for (id, name, mode) in threads(pid) {
            // The main thread starts successors; where children serve, a thread passes on what
            // they say.
            let is_of_main = pid == server.id() && (id == pid || forks && name == "weir-0");
            assert_eq!(mode == "2", !is_of_main, "{}: {pid}, {name}: {mode}", setup.name);
            confined += u32::from(mode == "2");
        }
    }
    assert!(confined > 1, "{}", setup.name);
    server.stop_cleanly();
}

fn a_proxy_connects_to_its_upstreams_and_to_nothing_else(setup: &Setup) {
    if !is_possible() {
        return;
    }
    let origin = Origin::start(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec());
    let upstream = format!("app={}", origin.url());
    let forwards = ["--upstream", &upstream, "--route", "/app=app"];
    let root = Root::with_hello();
    let server = setup.serve(&root, &[&OPTIONS[..], &forwards].concat());
    for name in ATTEMPTS.into_iter().filter(|name| *name != "connect" || has_ports()) {
        let outcome = tried(&server, name, Path::new("/"));
        assert!(is_refusal(&outcome), "{}: {name}: {outcome}", setup.name);
    }
    assert_eq!(server.get("/app").text(), "hi");
    server.stop_cleanly();
}

#[test]
fn a_proxy_opens_no_directory_and_a_server_opens_its_root() {
    let origin = Origin::start(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec());
    let root = Root::with_hello();
    let script = format!("cd '{}' && exec \"$@\"", root.path().display());
    let (url, real) = (origin.url(), root.path().canonicalize().unwrap());
    let has_open = |server: &Server| {
        let mut fds = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().flatten();
        fds.any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == real))
    };
    for (task, target, opens) in
        [(&["proxy", &url][..], "/", false), (&["serve"], "/hello.txt", true)]
    {
        let arguments = [&[WEIR][..], task, &["--listen", "127.0.0.1:0"]].concat();
        let server = Server::start_in_shell(&script, Stdio::null(), &arguments);
        assert_eq!(server.get(target).status, 200, "{task:?}");
        assert_eq!(has_open(&server), opens, "{task:?}");
        server.stop_cleanly();
    }
}

/// Returns whether Landlock confines connections, which it does from Linux 6.7 on.
fn has_ports() -> bool {
    Support::find().landlock >= 4
}

/// Starts a server where there is no Landlock.
fn without_landlock(root: &Root, mode: &str) -> Attempt {
    let mut command = Command::new(WEIR);
    command.arg("serve").arg(root.path()).args(["--sandbox", mode, "--listen", "127.0.0.1:0"]);
    let start = move || {
        let rules = [(LANDLOCK_CREATE_RULESET, Vec::new())].into();
        let (other, lacks) = (SeccompAction::Allow, SeccompAction::Errno(38));
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, other, lacks, arch).unwrap();
        let filter: seccompiler::BpfProgram = filter.try_into().unwrap();
        // Of this thread, and of what it starts.
        seccompiler::apply_filter(&filter).unwrap();
        attempt(&mut command)
    };
    std::thread::spawn(start).join().unwrap()
}

#[test]
fn a_kernel_without_landlock_is_told_of_or_refused() {
    let root = Root::with_hello();
    let Attempt::Serves(server) = without_landlock(&root, "auto") else { panic!("refused") };
    assert_eq!(server.get("/hello.txt").text(), "hello");
    let said = server.stop_cleanly().stderr;
    assert!(said.contains("files are not confined"), "{said}");
    let Attempt::Refused(stopped) = without_landlock(&root, "on") else { panic!("it serves") };
    assert_eq!(stopped.status.code(), Some(2));
    let is_sentence = stopped.stderr.lines().count() == 1 && stopped.stderr.contains("--sandbox");
    assert!(is_sentence, "{}", stopped.stderr);
}
