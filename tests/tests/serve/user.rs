//! `--user`: a server that is started as root is another user once it has bound its addresses, and
//! its SYN filters, its log and its successors work as before. Needs root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, geteuid};
use weir_sys::user::User;
use weir_tests::family::family_of;
use weir_tests::server::{Attempt, attempt};
use weir_tests::wait::until;
use weir_tests::{Root, Server, Setup, suite};

use crate::WEIR;

suite! {
    every_architecture:
    every_process_is_the_user_and_the_log_is_opened_again,
}

/// Returns whether this test is root, and there is the user; says so if not.
fn is_possible() -> bool {
    let is_possible = geteuid().is_root() && User::find("nobody", None).is_ok();
    if !is_possible {
        println!("SKIPPED: this takes root, and a user nobody");
    }
    is_possible
}

/// A site that everybody may read, and the path of a log in a directory of root's alone.
fn site() -> (Root, PathBuf) {
    let root = Root::with_hello();
    for dir in [root.outside(), root.path()] {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
    let dir = root.outside().join("log");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    (root, dir.join("access.log"))
}

/// Returns the value of a field of a process's status (proc_pid_status(5)).
fn field(pid: u32, task: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{task}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// Asserts that all threads of a process, and of its children, are a user and nothing more.
fn check_family(pid: u32) {
    let (uid, gid) = User::find("nobody", None).unwrap().ids();
    for pid in family_of(pid) {
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let task = task.file_name().to_str().unwrap().parse().unwrap();
            for (name, id) in [("Uid:", uid), ("Gid:", gid)] {
                assert_eq!(
                    field(pid, task, name),
                    vec![id.to_string(); 4].join("\t"),
                    "{pid} {task}"
                );
            }
            for name in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
                assert_eq!(field(pid, task, name), "0000000000000000", "{pid} {task}");
            }
        }
    }
}

fn lines(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().lines().count()
}

fn every_process_is_the_user_and_the_log_is_opened_again(setup: &Setup) {
    if !is_possible() {
        return;
    }
    let (root, log) = site();
    let shown = log.to_str().unwrap();
    let options = ["--user", "nobody", "--workers", "1", "--stat-page=off", "--access-log"];
    let server = setup.serve(&root, &[&options[..], &[shown]].concat());
    check_family(server.id());
    let get = || assert_eq!(server.get("/hello.txt").text(), "hello");
    get();
    until("the line was written", || lines(&log) == 1);
    let moved = log.with_extension("old");
    fs::rename(&log, &moved).unwrap();
    server.signal(Signal::HUP);
    until("the log was opened again", || log.exists());
    get();
    until("the line was written", || lines(&log) == 1);
    assert_eq!(lines(&moved), 1);
    check_family(server.id());
    let stopped = server.stop();
    assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
}

#[test]
fn a_successor_is_the_user_too_and_has_the_filter_and_the_log() {
    if !is_possible() {
        return;
    }
    let (root, log) = site();
    let config = root.outside().join("weir.toml");
    let write = |delay: &str| {
        let log = log.display();
        let text = format!("access-log = \"{log}\"\ndelay-target = \"{delay}\"\n");
        fs::write(&config, text).unwrap();
    };
    write("20ms");
    let config = config.to_str().unwrap();
    let options = ["--syn-filter", "tokens", "--user", "nobody", "--stat-page=off"];
    let options = [&options[..], &["--workers", "1", "--config", config]].concat();
    let mut command = Command::new(WEIR);
    command.arg("serve").arg(root.path()).args(options).args(["--listen", "127.0.0.1:0"]);
    let server = match attempt(&mut command) {
        Attempt::Serves(server) => server,
        Attempt::Refused(stopped) if stopped.stderr.contains("--syn-filter tokens") => {
            return println!("SKIPPED: {}", stopped.stderr);
        }
        Attempt::Refused(stopped) => panic!("{}", stopped.stderr),
    };
    assert_eq!(server.get("/hello.txt").text(), "hello");
    write("30ms");
    server.signal(Signal::HUP);
    until("a successor serves", || {
        let said = server.stderr_so_far();
        assert!(!said.contains("nothing was changed"), "{said}");
        said.contains("serves from now on")
    });
    assert_eq!(server.get("/hello.txt").text(), "hello");
    check_family(server.id());
    // The predecessor's log has one line, and the successor's is the same file.
    until("both lines were written", || lines(&log) == 2);
    let stopped = server.stop();
    assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
}

#[test]
fn a_user_that_is_not_there_is_refused_in_a_sentence() {
    let root = Root::with_hello();
    for user in ["nobody-of-this-name", "root", ":", "nobody:no-such-group"] {
        let mut command = Command::new(WEIR);
        command.arg("serve").arg(root.path()).args(["--listen", "127.0.0.1:0", "--user", user]);
        let Attempt::Refused(stopped) = attempt(&mut command) else { panic!("{user} serves") };
        assert_eq!(stopped.status.code(), Some(2), "{user}");
        assert!(stopped.stderr.contains("--user"), "{user}: {}", stopped.stderr);
    }
}

#[test]
fn the_file_of_a_unix_socket_is_the_users() {
    if !is_possible() {
        return;
    }
    let (root, _) = site();
    let path = root.outside().join("socket");
    let address = format!("unix:{}", path.display());
    let options = ["--user", "nobody", "--stat-page=off", "--listen", &address];
    let server = Server::start(WEIR, &options, &root);
    let (uid, _) = User::find("nobody", None).unwrap().ids();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&fs::metadata(&path).unwrap()), uid);
    assert_eq!(server.get("/hello.txt").text(), "hello");
}
