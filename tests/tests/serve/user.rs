//! `--user`: a server that is started as root is another user once it has bound its addresses, and
//! its logs, its certificates and its successors go on as before, by a process that keeps the
//! privileges. Needs root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Signal, geteuid};
use weir_sys::user::User;
use weir_tests::family::family_of;
use weir_tests::server::{Attempt, attempt, copy_program, run};
use weir_tests::tls::{Authority, Issued, NAMES, VERSIONS};
use weir_tests::wait::until;
use weir_tests::{Client, Root, Server, Setup, suite};

use crate::WEIR;

suite! {
    every_architecture:
    every_process_is_the_user_and_the_logs_are_opened_again,
}

suite! {
    every_tls_architecture:
    a_key_that_root_alone_may_read_is_read_again,
    a_key_that_nobody_else_may_read_yet_is_read_once_they_may,
}

/// Capabilities, by their numbers (linux/capability.h).
const DAC_OVERRIDE: u64 = 1 << 1;
const NET_ADMIN: u64 = 1 << 12;
const BPF: u64 = 1 << 39;

/// Says that another process serves now.
const TAKEN_OVER: &str = "serves from now on";

/// Returns whether this test is root, and there is the user; says so if not.
fn is_possible() -> bool {
    let is_possible = geteuid().is_root() && User::find("nobody", None).is_ok();
    if !is_possible {
        println!("SKIPPED: this takes root, and a user nobody");
    }
    is_possible
}

/// A site that everybody may read, and a directory of root's alone.
fn site() -> (Root, PathBuf) {
    let root = Root::with_hello();
    for dir in [root.outside(), root.path()] {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
    let dir = root.outside().join("roots");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    (root, dir)
}

/// Returns the value of a field of a status file (proc_pid_status(5)).
fn field(status: &Path, name: &str) -> String {
    let status = fs::read_to_string(status).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// Asserts that all threads of a process, and of its children, are a user and nothing more.
fn check_family(pid: u32) {
    let (uid, gid) = User::find("nobody", None).unwrap().ids();
    for pid in family_of(pid) {
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let status = task.path().join("status");
            let expect = |name: &str, value: &str| {
                assert_eq!(field(&status, name), value, "{}: {name}", status.display());
            };
            expect("Uid:", &vec![uid.to_string(); 4].join("\t"));
            expect("Gid:", &vec![gid.to_string(); 4].join("\t"));
            expect("NoNewPrivs:", "1");
            for name in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
                expect(name, "0000000000000000");
            }
            assert!(!field(&status, "Groups:").split(' ').any(|group| group == "0"));
        }
        // What may be traced by others of its user has files of its own there: proc(5).
        assert_eq!(fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid(), 0, "{pid}");
    }
}

/// Returns the process that keeps the privileges of a server: it has the same command line, with
/// the path of a root that no other has.
fn keeper(root: &Root) -> Option<PathBuf> {
    let path = root.path().to_str().unwrap().as_bytes();
    fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).find(|dir| {
        let line = fs::read(dir.join("cmdline")).unwrap_or_default();
        let name = fs::read_to_string(dir.join("comm")).unwrap_or_default();
        name == "weir-privileged\n" && line.windows(path.len()).any(|part| part == path)
    })
}

/// Asserts that the process that keeps the privileges has no others.
fn check_keeper(dir: &Path, allowed: u64) {
    let status = dir.join("status");
    for name in ["CapPrm:", "CapEff:"] {
        let kept = u64::from_str_radix(&field(&status, name), 16).unwrap();
        assert_eq!(kept & !allowed, 0, "{name} {kept:x}");
    }
    assert_eq!(field(&status, "CapInh:"), "0000000000000000");
    assert_eq!(field(&status, "Groups:"), "");
    assert_eq!((&*field(&status, "NoNewPrivs:"), &*field(&status, "Threads:")), ("1", "1"));
    assert_eq!(field(&status, "Seccomp:"), "2");
    let targets = fs::read_dir(dir.join("fd")).unwrap().flatten();
    let targets = targets.map(|fd| fs::read_link(fd.path()).unwrap());
    let sockets = targets.filter(|to| to.to_str().is_some_and(|to| to.starts_with("socket:")));
    assert_eq!(sockets.count(), 1, "it has its channel, and no socket of a client's");
}

/// Stops a server, which writes its statistics as the user that it is.
fn stop_cleanly(server: Server) {
    fs::set_permissions(server.run_dir(), Permissions::from_mode(0o777)).unwrap();
    server.stop_cleanly();
}

fn lines(log: &Path) -> usize {
    fs::read_to_string(log).unwrap_or_default().lines().count()
}

fn every_process_is_the_user_and_the_logs_are_opened_again(setup: &Setup) {
    if !is_possible() {
        return;
    }
    let (root, dir) = site();
    let (log, errors) = (dir.join("access.log"), dir.join("error.log"));
    let options = ["--user", "nobody", "--workers", "1", "--stat-page=off", "--access-log"];
    let logs = [log.to_str().unwrap(), "--error-log", errors.to_str().unwrap()];
    let server = setup.serve(&root, &[&options[..], &logs].concat());
    check_family(server.id());
    check_keeper(&keeper(&root).expect("it keeps the privileges"), NET_ADMIN | BPF | DAC_OVERRIDE);
    let get = || assert_eq!(server.get("/hello.txt").text(), "hello");
    get();
    until("the line was written", || lines(&log) == 1);
    let moved = log.with_extension("old");
    fs::rename(&log, &moved).unwrap();
    fs::remove_file(&errors).unwrap();
    server.signal(Signal::HUP);
    until("the logs were opened again", || log.exists() && errors.exists());
    get();
    until("the line was written", || lines(&log) == 1);
    assert_eq!(lines(&moved), 1);
    check_family(server.id());
    stop_cleanly(server);
    until("nobody keeps the privileges", || keeper(&root).is_none());
}

/// Returns the certificate that a client sees.
fn seen(server: &Server, authority: &Authority) -> Option<Vec<u8>> {
    let clients = std::sync::Arc::new(authority.clients(&VERSIONS));
    let mut client = Client::connect_tls(server.address(), &clients, NAMES[0]);
    assert_eq!(client.get("/hello.txt").text(), "hello");
    Some(client.tls().peer_certificates()?.first()?.to_vec())
}

fn a_key_that_root_alone_may_read_is_read_again(setup: &Setup) {
    if !is_possible() {
        return;
    }
    let (root, _) = site();
    let authority = Authority::new();
    let issue = || -> Issued {
        let issued = authority.issue("server", &NAMES);
        fs::set_permissions(&issued.key_file, Permissions::from_mode(0o600)).unwrap();
        issued
    };
    let issued = issue();
    let dir = issued.key_file.parent().unwrap();
    fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
    let options = ["--user", "nobody", "--workers", "1", "--stat-page=off"];
    let server = setup.serve(&root, &[&options[..], &issued.options()].concat());
    assert_eq!(seen(&server, &authority).unwrap(), issued.certificate.to_vec());
    let renewed = issue().certificate.to_vec();
    assert_ne!(renewed, issued.certificate.to_vec());
    until("the new certificate is shown", || seen(&server, &authority).as_ref() == Some(&renewed));
    check_family(server.id());
    stop_cleanly(server);
}

/// A script writes a file and then says who may read it, which changes neither its length nor the
/// time of its modification.
fn a_key_that_nobody_else_may_read_yet_is_read_once_they_may(setup: &Setup) {
    if !is_possible() {
        return;
    }
    let (root, _) = site();
    let authority = Authority::new();
    let issue = |file: &str, mode: u32| {
        let issued = authority.issue(file, &NAMES);
        fs::set_permissions(&issued.certificate_file, Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(&issued.key_file, Permissions::from_mode(mode)).unwrap();
        issued
    };
    let issued = issue("server", 0o644);
    let dir = issued.key_file.parent().unwrap();
    fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    let options = ["--user", "nobody", "--workers", "1", "--stat-page=off"];
    let server = setup.serve(&root, &[&options[..], &issued.options()].concat());
    let renewed = issue("renewed", 0o600);
    // One with two names is opened by no privilege either.
    fs::hard_link(&renewed.key_file, dir.join("second-name")).unwrap();
    // The key last, so that all is in place once it is refused.
    fs::rename(&renewed.certificate_file, &issued.certificate_file).unwrap();
    fs::rename(&renewed.key_file, &issued.key_file).unwrap();
    let refusals = || server.stderr_so_far().matches("server.key: Permission denied").count();
    until("it may not be read", || refusals() == 1);
    assert_eq!(seen(&server, &authority).unwrap(), issued.certificate.to_vec());
    fs::set_permissions(&issued.key_file, Permissions::from_mode(0o644)).unwrap();
    let renewed = renewed.certificate.to_vec();
    until("the new certificate is shown", || seen(&server, &authority).as_ref() == Some(&renewed));
    assert_eq!(refusals(), 1);
    stop_cleanly(server);
}

/// Starts a server with a configuration and a key of root's alone; `None`, and says so, where there
/// is no filter for it.
fn serve_by_file(root: &Root, config: &Path) -> Option<Server> {
    let options = ["--syn-filter", "tokens", "--user", "nobody", "--stat-page=off"];
    let mut command = Command::new(WEIR);
    command.arg("serve").arg(root.path()).args(options).args(["--workers", "1", "--config"]);
    match attempt(command.arg(config).args(["--listen", "127.0.0.1:0"])) {
        Attempt::Serves(server) => Some(server),
        Attempt::Refused(stopped) => {
            assert!(stopped.stderr.contains("--syn-filter tokens"), "{}", stopped.stderr);
            println!("SKIPPED: {}", stopped.stderr);
            None
        }
    }
}

#[test]
fn successors_are_the_user_too_and_have_the_filter_the_configuration_and_the_log() {
    if !is_possible() {
        return;
    }
    let (root, dir) = site();
    let (log, config) = (dir.join("access.log"), dir.join("weir.toml"));
    let write = |delay: &str| {
        let log = log.display();
        let text = format!("access-log = \"{log}\"\ndelay-target = \"{delay}\"\n");
        fs::write(&config, text).unwrap();
    };
    write("20ms");
    let Some(server) = serve_by_file(&root, &config) else { return };
    let get = || assert_eq!(server.get("/hello.txt").text(), "hello");
    let succeed = |signal, count| {
        server.signal(signal);
        until("a successor serves", || {
            let said = server.stderr_so_far();
            assert!(!said.contains("nothing was changed"), "{said}");
            said.matches(TAKEN_OVER).count() == count
        });
        get();
        check_family(server.id());
    };
    get();
    // It says `--syn-filter tokens`: a successor without a filter would not start.
    write("30ms");
    succeed(Signal::HUP, 1);
    succeed(Signal::USR2, 2);
    until("all three lines are in one file", || lines(&log) == 3);
    stop_cleanly(server);
    until("nobody keeps the privileges", || keeper(&root).is_none());
}

#[test]
fn root_finds_the_successors_of_a_server_that_is_another_user() {
    if !is_possible() {
        return;
    }
    let (root, _) = site();
    // The user has to reach the program that an upgrade starts.
    let program = root.outside().join("weir");
    copy_program(WEIR, &program);
    let options = ["--user", "nobody", "--workers", "1", "--listen", "127.0.0.1:0"];
    let start = [program.to_str().unwrap(), "serve", root.path().to_str().unwrap()];
    // Both look where a user's files of statistics are by default.
    let script = "unset WEIR_RUN_DIR XDG_RUNTIME_DIR && exec \"$@\"";
    let arguments = [&start[..], &options].concat();
    let server = Server::start_in_shell(script, Stdio::null(), &arguments);
    let first = server.id().to_string();
    let ask = |task: &str| {
        let mut command = Command::new(WEIR);
        command.env_remove("WEIR_RUN_DIR").env_remove("XDG_RUNTIME_DIR");
        let stopped = run(command.args([task, &first]));
        assert_eq!(stopped.status.code(), Some(0), "{task}: {}", stopped.stderr);
        stopped.stdout
    };
    for _ in 0..2 {
        let said = ask("upgrade");
        let next: u32 = said.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
        until("it is the one", || ask("stat").contains(&format!(", process {next}, ")));
    }
    assert_eq!(server.get("/hello.txt").text(), "hello");
    stop_cleanly(server);
    until("nobody keeps the privileges", || keeper(&root).is_none());
}

#[test]
fn a_file_that_was_not_read_before_is_refused_at_a_reload_and_the_server_goes_on() {
    if !is_possible() {
        return;
    }
    let (root, dir) = site();
    let (config, page) = (dir.join("weir.toml"), dir.join("404.html"));
    fs::write(&page, "another").unwrap();
    fs::write(&config, "delay-target = \"20ms\"\n").unwrap();
    let Some(server) = serve_by_file(&root, &config) else { return };
    fs::write(&config, format!("error-page = [\"404={}\"]\n", page.display())).unwrap();
    server.signal(Signal::HUP);
    until("it is refused", || server.stderr_so_far().contains("nothing was changed"));
    let said = server.stderr_so_far();
    assert!(said.contains("404.html: Permission denied"), "{said}");
    assert_eq!(server.get("/hello.txt").text(), "hello");
    stop_cleanly(server);
}

#[test]
fn a_successor_of_root_becomes_the_user_and_never_another_one() {
    if !is_possible() {
        return;
    }
    let (root, dir) = site();
    let config = dir.join("weir.toml");
    fs::write(&config, "").unwrap();
    let options = ["--stat-page=off", "--workers", "1", "--config", config.to_str().unwrap()];
    let server = Server::start(WEIR, &options, &root);
    let reload = |text: &str, said: &str| {
        fs::write(&config, text).unwrap();
        server.signal(Signal::HUP);
        until(said, || server.stderr_so_far().contains(said));
        assert_eq!(server.get("/hello.txt").text(), "hello");
    };
    reload("user = \"nobody\"\n", TAKEN_OVER);
    let said = server.stderr_so_far();
    let line = said.lines().find(|line| line.contains(TAKEN_OVER)).unwrap();
    check_family(line.split_whitespace().find_map(|word| word.parse().ok()).unwrap());
    reload("user = \"1:1\"\n", "another user for good");
    stop_cleanly(server);
    until("nobody keeps the privileges", || keeper(&root).is_none());
}

#[test]
fn a_server_goes_on_when_nobody_keeps_its_privileges_any_more() {
    if !is_possible() {
        return;
    }
    let (root, dir) = site();
    let log = dir.join("access.log");
    let options = ["--user", "nobody", "--access-log", log.to_str().unwrap()];
    let server = Server::start(WEIR, &options, &root);
    let keeper_dir = keeper(&root).unwrap();
    // A terminal, or a service manager, sends these to all processes.
    let pid: u32 = keeper_dir.file_name().unwrap().to_str().unwrap().parse().unwrap();
    weir_sys::descent::signal(pid, Signal::TERM.as_raw()).unwrap();
    weir_sys::descent::signal(pid, Signal::INT.as_raw()).unwrap();
    assert!(keeper(&root).is_some());
    weir_sys::descent::signal(pid, Signal::KILL.as_raw()).unwrap();
    until("nobody keeps the privileges", || keeper(&root).is_none());
    server.signal(Signal::HUP);
    until("the log stays", || server.stderr_so_far().contains("cannot reopen the access log"));
    assert_eq!(server.get("/hello.txt").text(), "hello");
    stop_cleanly(server);
    assert_eq!(lines(&log), 1);
}

#[test]
fn a_user_that_is_not_there_is_refused_in_a_sentence() {
    let root = Root::with_hello();
    for user in ["nobody-of-this-name", "root", ":", "4294967295:1", "1:no-such-group"] {
        let mut command = Command::new(WEIR);
        command.arg("serve").arg(root.path()).args(["--listen", "127.0.0.1:0", "--user", user]);
        let Attempt::Refused(stopped) = attempt(&mut command) else { panic!("{user} serves") };
        assert_eq!(stopped.status.code(), Some(2), "{user}");
        let is_sentence = stopped.stderr.lines().count() == 1 && stopped.stderr.contains("--user");
        assert!(is_sentence, "{user}: {}", stopped.stderr);
    }
}

#[test]
fn without_the_privileges_to_change_the_user_it_is_refused_in_a_sentence() {
    if !is_possible() {
        return;
    }
    let (root, _) = site();
    // The program is where the user does not reach it, perhaps.
    let program = root.outside().join("weir");
    copy_program(WEIR, &program);
    let mut command = Command::new(&program);
    let (uid, gid) = User::find("nobody", None).unwrap().ids();
    command.uid(uid).gid(gid).arg("serve").arg(root.path());
    command.args(["--listen", "127.0.0.1:0", "--stat-page=off", "--user", "1:1"]);
    let Attempt::Refused(stopped) = attempt(&mut command) else { panic!("it serves") };
    assert_eq!(stopped.status.code(), Some(2), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("started as root"), "{}", stopped.stderr);
}

#[test]
fn a_check_tells_the_place_of_a_root_that_the_user_may_not_read() {
    if !is_possible() {
        return;
    }
    let (root, dir) = site();
    let (program, config) = (root.outside().join("weir"), root.outside().join("weir.toml"));
    copy_program(WEIR, &program);
    let (www, dir) = (root.path().display(), dir.display());
    for (text, line) in [
        (format!("root = '{dir}'\n"), 1),
        (format!("root = '{www}'\n[[site]]\nhosts = ['a']\nroot = '{dir}'\n"), 4),
        (
            format!(
                "root = '{www}'\n[[site]]\nhosts = ['a']\n\
                 [[site.route]]\npath = '/x'\nroot = '{dir}'\n"
            ),
            6,
        ),
        (format!("root = '{www}'\n[[route]]\nroot = '{dir}'\n"), 3),
    ] {
        fs::write(&config, &text).unwrap();
        let (uid, gid) = User::find("nobody", None).unwrap().ids();
        let stopped = run(Command::new(&program).uid(uid).gid(gid).arg("check").arg(&config));
        let says = format!("line {line}, column 8: {dir}: Permission denied");
        assert_eq!(stopped.status.code(), Some(2), "{text}: {}", stopped.stderr);
        assert!(stopped.stderr.contains(&says), "{text}: {}", stopped.stderr);
    }
}

#[test]
fn a_check_takes_a_root_whose_names_the_user_may_not_read_unless_they_are_listed() {
    if !is_possible() {
        return;
    }
    let (root, dir) = site();
    fs::set_permissions(&dir, Permissions::from_mode(0o711)).unwrap();
    let (program, config) = (root.outside().join("weir"), root.outside().join("weir.toml"));
    copy_program(WEIR, &program);
    for (listing, code) in [(false, 0), (true, 2)] {
        fs::write(&config, format!("root = '{}'\nlisting = {listing}\n", dir.display())).unwrap();
        let (uid, gid) = User::find("nobody", None).unwrap().ids();
        let checked = run(Command::new(&program).uid(uid).gid(gid).arg("check").arg(&config));
        assert_eq!(checked.status.code(), Some(code), "listing {listing}: {}", checked.stderr);
    }
}

#[test]
fn the_files_of_unix_sockets_are_the_users() {
    if !is_possible() {
        return;
    }
    let (root, _) = site();
    let (path, admin) = (root.outside().join("socket"), root.outside().join("admin"));
    let [address, of_admin] = [&path, &admin].map(|path| format!("unix:{}", path.display()));
    let options = ["--user", "nobody", "--listen", &address, "--admin", &of_admin];
    let server = Server::start(WEIR, &options, &root);
    let ids = User::find("nobody", None).unwrap().ids();
    for (path, mode) in [(&path, None), (&admin, Some(0o600))] {
        let status = fs::metadata(path).unwrap();
        assert_eq!((status.uid(), status.gid()), ids, "{}", path.display());
        assert!(mode.is_none_or(|mode| status.mode() & 0o777 == mode));
    }
    assert_eq!(server.get("/hello.txt").text(), "hello");
    stop_cleanly(server);
}
