//! A successor that fails: the server that goes on has everything that it had.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use weir_tests::family::family_of;
use weir_tests::wait::until;
use weir_tests::{Address, Client, Root, Server, Setup, suite};

use crate::WEIR;
use crate::succession::{ConfigFile, UNCHANGED, stop, successions, upgrade};

suite! {
    every_architecture:
    a_successor_takes_no_connection_before_it_is_ready,
}

fn failures(server: &Server) -> usize {
    server.stderr_so_far().matches(UNCHANGED).count()
}

/// Starts a server whose addresses are all from its configuration file.
fn serve_alone(file: &ConfigFile, root: &Root) -> Server {
    let served = root.path().to_str().unwrap();
    let arguments = [WEIR, "serve", served, "--config", file.path()];
    Server::start_in_shell("exec \"$@\"", Stdio::null(), &arguments)
}

/// Ends all that has joined a server's family since that was `before`.
fn kill_newcomers(server: &Server, before: &[u32]) {
    let new = family_of(server.id()).into_iter().filter(|pid| !before.contains(pid));
    for pid in new.filter_map(|pid| Pid::from_raw(pid as i32)) {
        // One may have ended with another.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn a_successor_takes_no_connection_before_it_is_ready(setup: &Setup) {
    let (root, name) = (Root::with_hello(), &setup.name);
    let log = root.outside().join("log");
    assert!(Command::new("mkfifo").arg(&log).status().unwrap().success());
    let file = ConfigFile::new("workers = 1\n");
    let server = setup.serve(&root, &["--config", file.path()]);
    let before = family_of(server.id());
    let ask = |times: u32| {
        for _ in 0..times {
            assert_eq!(server.get("/hello.txt").text(), "hello", "{name}");
        }
    };
    // It has bound a socket for its second loop when it opens the log, and waits for a reader.
    file.set(&format!("workers = 2\naccess-log = '{}'\n", log.display()));
    server.signal(Signal::HUP);
    until("the successor has bound a socket", || server.has_silent_socket());
    ask(200);
    assert_eq!(server.listening_sockets(), 1, "{name}");
    kill_newcomers(&server, &before);
    until("it is known to have failed", || failures(&server) == 1);
    ask(200);
    assert_eq!(server.listening_sockets(), 1, "{name}");
    let _reader = File::options().read(true).write(true).open(&log).unwrap();
    server.signal(Signal::HUP);
    until("another process serves", || successions(&server) == 1);
    ask(20);
    assert_eq!(server.listening_sockets(), 2, "{name}");
    stop(server, name);
}

#[test]
fn sockets_that_are_taken_over_change_with_the_server_alone() {
    let root = Root::with_hello();
    let file = ConfigFile::new("workers = 1\nuser-timeout = '10s'\n");
    let server = file.serve(&root);
    assert_eq!(server.user_timeouts_ms(), [10_000]);
    let next = "workers = 1\nuser-timeout = '20s'\n";
    file.set(&format!("{next}access-log = '/no/such/folder/log'\n"));
    server.signal(Signal::HUP);
    until("the successor has failed", || failures(&server) == 1);
    assert_eq!(server.user_timeouts_ms(), [10_000]);
    file.set(next);
    server.signal(Signal::HUP);
    until("another process serves", || successions(&server) == 1);
    until("its limit holds", || server.user_timeouts_ms() == [20_000]);
    stop(server, "");
}

#[test]
fn socket_files_outlive_a_successor_that_fails() {
    let root = Root::with_hello();
    let folder = tempfile::tempdir().unwrap();
    let [unix, admin] = ["unix", "admin"].map(|name| folder.path().join(name));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = |more: &str| {
        let (unix, admin) = (unix.display(), admin.display());
        format!("admin = 'unix:{admin}'\nlisten = ['127.0.0.1:0', 'unix:{unix}'{more}]\n")
    };
    let file = ConfigFile::new(&config(""));
    let server = serve_alone(&file, &root);
    let ask =
        |path: &Path, target: &str| Client::connect(&Address::Unix(path.into())).get(target).text();
    let check = || {
        assert_eq!(ask(&unix, "/hello.txt"), "hello");
        assert_eq!(ask(&admin, "/readyz"), "ready\n");
    };
    check();
    // What only the successor can find out.
    file.set(&config(&format!(", '{}'", taken.local_addr().unwrap())));
    server.signal(Signal::HUP);
    until("the successor has failed", || failures(&server) == 1);
    let said = server.stderr_so_far();
    assert!(said.contains("cannot listen on"), "{said}");
    check();
    file.set(&config(""));
    upgrade(&server, 0);
    check();
    stop(server, "");
    assert!(!unix.exists() && !admin.exists(), "they are the successor's to remove");
}
