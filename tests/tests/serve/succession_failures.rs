//! A successor that fails: the server that goes on has everything that it had.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use weir_tests::family::{children_of, family_of, signal};
use weir_tests::wait::until;
use weir_tests::{Address, Client, Root, Server, Setup, request, suite};

use crate::WEIR;
use crate::succession::{ConfigFile, TAKEN_OVER, UNCHANGED, stop, successions, upgrade};

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

/// A pipe in place of a server's standard error, whose reader reads when it is told to.
struct ErrorPipe {
    path: PathBuf,
    /// Both ends, neither of which waits.
    ends: File,
}

impl ErrorPipe {
    fn new(folder: &Path) -> Self {
        let path = folder.join("stderr");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let ends = File::options().read(true).write(true).custom_flags(flags).open(&path).unwrap();
        Self { path, ends }
    }

    /// Makes everybody wait who writes to it.
    fn fill(&mut self) {
        // Whole pages, to none of which more can be added.
        while self.ends.write(&[b' '; 4096]).is_ok() {}
    }

    /// Returns what is in it, and makes room.
    fn take(&mut self) -> String {
        let mut text = Vec::new();
        let end = self.ends.read_to_end(&mut text).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::WouldBlock);
        String::from_utf8(text).unwrap()
    }
}

fn a_successor_takes_no_connection_before_it_is_ready(setup: &Setup) {
    let (root, name) = (Root::with_hello(), &setup.name);
    let mut stderr = ErrorPipe::new(root.outside());
    let log = root.outside().join("log");
    let count = |what: &str| fs::read_to_string(&log).unwrap().matches(what).count();
    let file = ConfigFile::new("workers = 1\n");
    let mut arguments = vec![WEIR, "serve", root.path().to_str().unwrap()];
    let options = ["--config", file.path(), "--error-log", log.to_str().unwrap()];
    arguments.extend(setup.with(&[&options[..], &["--listen", "127.0.0.1:0"]].concat()));
    let script = format!("exec \"$@\" 2>>'{}'", stderr.path.display());
    let server = Server::start_in_shell(&script, Stdio::null(), &arguments);
    let before = family_of(server.id());
    let ask = |times: u32| {
        for _ in 0..times {
            assert_eq!(server.get("/hello.txt").text(), "hello", "{name}");
        }
    };
    // It has bound a socket for its second loop when it says that nobody can read its statistics,
    // and waits for a reader.
    fs::set_permissions(server.run_dir(), Permissions::from_mode(0o777)).unwrap();
    stderr.fill();
    file.set("workers = 2\n");
    server.signal(Signal::HUP);
    until("the successor has bound a socket", || server.has_silent_socket());
    ask(200);
    assert_eq!(server.listening_sockets(), 1, "{name}");
    kill_newcomers(&server, &before);
    until("it is known to have failed", || count(UNCHANGED) == 1);
    ask(200);
    assert_eq!(server.listening_sockets(), 1, "{name}");
    stderr.take();
    server.signal(Signal::HUP);
    until("another process serves", || count(TAKEN_OVER) == 1);
    ask(20);
    assert_eq!(server.listening_sockets(), 2, "{name}");
    stop(server, name);
    let said = stderr.take();
    assert!(said.contains("statistics cannot be read"), "{name}: {said}");
    assert!(!said.contains("panicked"), "{name}: {said}");
}

/// Starts a server whose standard error is a pipe, and nothing else of which waits for its reader.
fn serve_with_stderr(stderr: &ErrorPipe, log: &Path, file: &ConfigFile, root: &Root) -> Server {
    let mut arguments = vec![WEIR, "serve", root.path().to_str().unwrap()];
    arguments.extend(["--config", file.path(), "--error-log", log.to_str().unwrap()]);
    // Lacks of the sandbox would be said at the start.
    arguments.extend(["--sandbox", "off", "--listen", "127.0.0.1:0"]);
    let script = format!("exec \"$@\" 2>>'{}'", stderr.path.display());
    Server::start_in_shell(&script, Stdio::null(), &arguments)
}

#[test]
fn a_server_ends_though_nobody_reads_its_last_report() {
    let root = Root::with_hello();
    let mut stderr = ErrorPipe::new(root.outside());
    let file = ConfigFile::new("workers = 1\n");
    let server = serve_with_stderr(&stderr, &root.outside().join("log"), &file, &root);
    stderr.fill();
    stop(server, "");
}

#[test]
fn a_server_reloads_though_nobody_reads_its_report() {
    let root = Root::with_hello();
    let mut stderr = ErrorPipe::new(root.outside());
    let log = root.outside().join("log");
    let file = ConfigFile::new("workers = 1\n");
    let server = serve_with_stderr(&stderr, &log, &file, &root);
    stderr.fill();
    server.new_report();
    file.set("workers = 2\n");
    server.signal(Signal::HUP);
    until("another process serves", || fs::read_to_string(&log).unwrap().contains(TAKEN_OVER));
    assert_eq!(server.get("/hello.txt").text(), "hello");
    stop(server, "");
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

/// Starts a server of processes, two for each worker.
fn serve_by_processes(workers: &str, root: &Root) -> Server {
    let options = ["--arch", "processes", "--arch-option", "pool=2", "--workers", workers];
    Server::start(WEIR, &options, root)
}

/// Returns how many children of a process have ended, and were not released.
fn unreleased(parent: u32) -> usize {
    let stats = fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let ended = format!(") Z {parent} ");
    stats.filter(|stat| stat.contains(&ended)).count()
}

#[test]
fn the_processes_of_a_successor_that_fails_are_released() {
    let root = Root::with_hello();
    let server = serve_by_processes("2", &root);
    fs::remove_dir_all(root.path()).unwrap();
    for failed in 1..=2 {
        server.signal(Signal::USR2);
        until("the successor has failed", || failures(&server) == failed);
        until("its processes are released", || unreleased(server.id()) == 0);
    }
    stop(server, "");
}

#[test]
fn a_worker_whose_processes_die_is_replaced_and_who_waits_for_it_is_served() {
    for workers in ["1", "2"] {
        let root = Root::with_hello();
        let server = serve_by_processes(workers, &root);
        signal(children_of(server.id())[0], Signal::KILL);
        until("they have died", || server.stderr_so_far().contains("has died, and they with it"));
        // Some of them wait in the queue of the socket that nobody accepts from.
        let mut clients: Vec<Client> = (0..16).map(|_| server.connect()).collect();
        let asks = request("GET", "/hello.txt", &["Connection: close"]);
        clients.iter_mut().for_each(|client| client.send(&asks));
        assert!(clients.iter_mut().all(|client| client.reply().text() == "hello"), "{workers}");
        until("another process serves", || successions(&server) == 1);
        stop(server, workers);
    }
}

#[test]
fn a_server_without_a_worker_that_cannot_be_replaced_ends_with_an_error() {
    let root = Root::with_hello();
    let server = serve_by_processes("1", &root);
    fs::remove_dir_all(root.path()).unwrap();
    signal(children_of(server.id())[0], Signal::KILL);
    let stopped = server.wait();
    assert_eq!(stopped.status.code(), Some(1), "{}", stopped.stderr);
}
