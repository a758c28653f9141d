//! A server that leaves its place to a new process: by SIGHUP when its configuration has changed,
//! by SIGUSR2, by `weir upgrade`.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::OFlags;
use rustix::process::Signal;
use weir_tests::family::{children_of, sleeps_of};
use weir_tests::server::{UNHURRIED, copy_program, run};
use weir_tests::tls_front::{FrontSettings, TlsFront};
use weir_tests::wait::{WhenDone, until};
use weir_tests::{Address, Client, Origin, Root, Server, Setup, request, suite};

use crate::WEIR;

suite! {
    every_setup:
    a_successor_takes_over_and_open_connections_are_answered_once_more,
}

suite! {
    every_architecture:
    a_request_under_way_is_answered_by_the_server_that_began_it,
    a_client_that_reads_its_reply_meanwhile_is_answered_once_more,
}

/// Says that another process serves now.
pub(crate) const TAKEN_OVER: &str = "serves from now on";

/// Says that none does.
pub(crate) const UNCHANGED: &str = "nothing was changed: ";

/// Says that none needs to.
const SAME: &str = "the configuration is the same";

/// A user of an htpasswd file with the password `open sesame`, as `htpasswd -nbBC 4` makes the
/// hash, and the field of a request with it.
const OLD_PASSWORD: (&str, &str) = (
    "Aladdin:$2y$04$vKRXkql.bdkV4Qq.4L6Adu2xBNxLNyVOVnVoU/S/VqNBLPSFCZuca\n",
    "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
);

/// The same user with `pass:word`, as `openssl passwd -5` makes the hash.
const NEW_PASSWORD: (&str, &str) = (
    "Aladdin:$5$saltfive$pNvdRB17wsMiPvkrsJDs07F2tiiNDcUVIIuT1Gu0FS3\n",
    "Authorization: Basic QWxhZGRpbjpwYXNzOndvcmQ=",
);

pub(crate) fn successions(server: &Server) -> usize {
    server.stderr_so_far().matches(TAKEN_OVER).count()
}

/// Has the last of `before` successors replaced.
pub(crate) fn upgrade(server: &Server, before: usize) {
    server.signal(Signal::USR2);
    until("another process serves", || successions(server) == before + 1);
}

/// Returns the process id of the last successor.
fn last_successor(server: &Server) -> u32 {
    let text = server.stderr_so_far();
    let line = text.lines().rfind(|line| line.contains(TAKEN_OVER)).unwrap();
    line.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
}

fn has_page(server: &Server, pid: u32) -> bool {
    server.run_dir().join(format!("{pid}.stat")).exists()
}

fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

/// Stops all servers, by the process that was started.
pub(crate) fn stop(server: Server, name: &str) {
    let stopped = server.stop();
    assert_eq!(stopped.status.code(), Some(0), "{name}: {}", stopped.stderr);
    assert!(!stopped.stderr.contains("panicked"), "{name}: {}", stopped.stderr);
}

/// A configuration file in a folder of its own.
pub(crate) struct ConfigFile {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl ConfigFile {
    pub(crate) fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.toml");
        fs::write(&path, text).unwrap();
        Self { _folder: folder, path }
    }

    pub(crate) fn set(&self, text: &str) {
        fs::write(&self.path, text).unwrap();
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub(crate) fn serve(&self, root: &Root) -> Server {
        Server::start(WEIR, &["--config", self.path()], root)
    }
}

fn a_successor_takes_over_and_open_connections_are_answered_once_more(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &["--workers", "2"]);
    let name = &setup.name;
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/hello.txt").text(), "hello");
    }
    upgrade(&server, 0);
    for client in &mut clients {
        let reply = client.get("/hello.txt");
        assert_eq!(reply.text(), "hello", "{name}");
        assert!(reply.lists("connection", "close"), "{name}: {reply:?}");
        assert!(client.ends(), "{name}");
    }
    let mut new: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut new {
        let reply = client.get("/hello.txt");
        assert!(!reply.lists("connection", "close"), "{name}: {reply:?}");
    }
    drop((clients, new));
    // The process that was started passes signals on, and lives as long.
    upgrade(&server, 1);
    assert_eq!(server.get("/hello.txt").text(), "hello", "{name}");
    stop(server, name);
}

fn a_request_under_way_is_answered_by_the_server_that_began_it(setup: &Setup) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    let whole = request("GET", "/hello.txt", &[]);
    let (first, rest) = whole.split_at(whole.len() / 2);
    let mut half_sent = server.connect();
    half_sent.send(first);
    until("it was accepted", || setup.arch.spelling == "ring" || server.open_connections() > 0);
    upgrade(&server, 0);
    assert_eq!(server.get("/hello.txt").text(), "hello", "{}", setup.name);
    half_sent.send(rest);
    assert_eq!(half_sent.reply().text(), "hello", "{}", setup.name);
    stop(server, &setup.name);
}

fn a_client_that_reads_its_reply_meanwhile_is_answered_once_more(setup: &Setup) {
    let root = Root::with_hello();
    root.write_noise("large", 8 << 20);
    let server = setup.serve(&root, &[]);
    let mut reader = Client::connect_narrow(server.address());
    reader.send(request("GET", "/large", &[]));
    let head = reader.head().unwrap();
    assert!(!head.lists("connection", "close"), "{}: {head:?}", setup.name);
    upgrade(&server, 0);
    reader.body(head).unwrap();
    let reply = reader.get("/hello.txt");
    assert!(reply.lists("connection", "close"), "{}: {reply:?}", setup.name);
    assert!(reader.ends(), "{}", setup.name);
    stop(server, &setup.name);
}

#[test]
fn a_changed_configuration_is_read_again_and_a_wrong_one_changes_nothing() {
    let root = Root::with_hello();
    let file = ConfigFile::new("header = 'X-Version: one'\n");
    let server = file.serve(&root);
    let version = || server.get("/hello.txt").expect_field("x-version").to_owned();
    assert_eq!(version(), "one");
    file.set("header = 'X-Version: two'\nno-such-option = 1\n");
    server.signal(Signal::HUP);
    until("the file was refused", || server.stderr_so_far().contains(UNCHANGED));
    let said = server.stderr_so_far();
    assert!(said.contains("line 2, column 1: there is no option"), "{said}");
    assert_eq!(said.lines().count(), 1, "one sentence: {said}");
    assert_eq!(version(), "one");
    file.set("header = 'X-Version: two'\nworkers = 3\n");
    server.signal(Signal::HUP);
    until("another process serves", || successions(&server) == 1);
    until("it has said so", || server.stdout_so_far().contains("3 loops"));
    assert_eq!(version(), "two");
    stop(server, "");
}

#[test]
fn a_successor_that_cannot_start_says_why_and_leaves_everything_as_it_was() {
    let root = Root::with_hello();
    let file = ConfigFile::new("workers = 2\n");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = file.serve(&root);
    let mut client = server.connect();
    assert_eq!(client.get("/hello.txt").text(), "hello");
    // What only the successor can find out.
    file.set("workers = 2\naccess-log = '/no/such/folder/log'\n");
    server.signal(Signal::HUP);
    until("it has failed", || server.stderr_so_far().contains(UNCHANGED));
    let said = server.stderr_so_far();
    assert!(said.contains("cannot open the access log"), "{said}");
    assert_eq!(said.lines().count(), 1, "one sentence: {said}");
    file.set(&format!("admin = '{}'\n", taken.local_addr().unwrap()));
    server.signal(Signal::HUP);
    until("it has failed again", || server.stderr_so_far().matches(UNCHANGED).count() == 2);
    let reply = client.get("/hello.txt");
    assert!(!reply.lists("connection", "close"), "{reply:?}");
    for _ in 0..20 {
        assert_eq!(server.get("/hello.txt").text(), "hello");
    }
    assert_eq!(server.listening_sockets(), 2);
    server.stop_cleanly();
}

#[test]
fn an_unchanged_configuration_starts_no_other_process() {
    let root = Root::with_hello();
    let page = root.outside().join("404.html");
    fs::write(&page, "one").unwrap();
    let file = ConfigFile::new(&format!("error-page = '404={}'\n", page.display()));
    let server = file.serve(&root);
    server.signal(Signal::HUP);
    until("it was read again", || server.stderr_so_far().contains(SAME));
    assert_eq!(successions(&server), 0);
    // The file is the same, and what it names is not.
    fs::write(&page, "two").unwrap();
    server.signal(Signal::HUP);
    until("another process serves", || successions(&server) == 1);
    assert_eq!(server.get("/none").text(), "two");
    stop(server, "");
}

#[test]
fn an_unchanged_configuration_with_many_hosts_starts_no_other_process() {
    let root = Root::with_hello();
    let hosts: Vec<String> = (0..8).map(|nth| format!("'{nth}.example'")).collect();
    let file = ConfigFile::new(&format!("[[site]]\nhosts = [{}]\n", hosts.join(", ")));
    let server = file.serve(&root);
    server.signal(Signal::HUP);
    until("it was read again", || server.stderr_so_far().contains(SAME));
    assert_eq!(successions(&server), 0);
    server.stop_cleanly();
}

#[test]
fn a_reload_takes_in_a_changed_password() {
    let root = Root::with_hello();
    let users = root.outside().join("users");
    fs::write(&users, OLD_PASSWORD.0).unwrap();
    let text = format!("[[route]]\npath = '/'\nauth-file = '{}'\n", users.display());
    let file = ConfigFile::new(&text);
    let server = file.serve(&root);
    let statuses = || {
        [OLD_PASSWORD.1, NEW_PASSWORD.1]
            .map(|password| server.get_with("/hello.txt", &[password]).status)
    };
    assert_eq!(statuses(), [200, 401]);
    // As many users, and another hash.
    fs::write(&users, NEW_PASSWORD.0).unwrap();
    server.signal(Signal::HUP);
    until("another process serves", || successions(&server) == 1);
    assert_eq!(statuses(), [401, 200]);
    stop(server, "");
}

#[test]
fn a_reload_takes_in_changed_certificates_for_upstreams() {
    let origin = Origin::echo();
    let settings = FrontSettings { asks_for_certificate: true, ..FrontSettings::default() };
    let [front, other] = [(); 2].map(|()| TlsFront::start(origin.address(), &settings));
    let folder = tempfile::tempdir().unwrap();
    let [ca, own] = ["ca.pem", "own.pem"].map(|name| folder.path().join(name));
    fs::copy(other.ca_file(), &ca).unwrap();
    fs::copy(other.client_file(), &own).unwrap();
    let [ca_name, own_name] = [&ca, &own].map(|path| path.to_str().unwrap());
    let options =
        ["--upstream-ca", ca_name, "--upstream-cert", own_name, "--upstream-key", own_name];
    let server = Server::proxy(WEIR, &[&front.url("")], &options);
    assert_eq!(server.get("/").status, 502);
    server.signal(Signal::HUP);
    until("it was read again", || server.stderr_so_far().contains(SAME));
    assert_eq!(successions(&server), 0);
    // The proxy trusts the server from now on, and after the next reload the server trusts it.
    for (new, place, status) in [(front.ca_file(), &ca, 502), (front.client_file(), &own, 200)] {
        let before = successions(&server);
        fs::copy(new, place).unwrap();
        server.signal(Signal::HUP);
        until("another process serves", || successions(&server) == before + 1);
        assert_eq!(server.get("/").status, status, "{}", place.display());
    }
    stop(server, "");
}

#[test]
fn a_reload_takes_in_changed_authorities_of_the_system() {
    let origin = Origin::echo();
    let [front, other] =
        [(); 2].map(|()| TlsFront::start(origin.address(), &FrontSettings::default()));
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("trusted.pem");
    fs::copy(other.ca_file(), &trusted).unwrap();
    let script = "export SSL_CERT_FILE=\"$1\"; shift; exec \"$@\"";
    let url = front.url("");
    let arguments = [trusted.to_str().unwrap(), WEIR, "proxy", &url, "--listen", "127.0.0.1:0"];
    let server = Server::start_in_shell(script, Stdio::null(), &arguments);
    assert_eq!(server.get("/").status, 502);
    fs::copy(front.ca_file(), &trusted).unwrap();
    server.signal(Signal::HUP);
    until("another process serves", || successions(&server) == 1);
    assert_eq!(server.get("/").status, 200);
    stop(server, "");
}

#[test]
fn loops_become_more_and_fewer_and_no_connection_is_refused() {
    let root = Root::with_hello();
    let file = ConfigFile::new("workers = 1\n");
    let server = file.serve(&root);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for is_kept in [false, true, false] {
            let (server, ends) = (&server, &ends);
            scope.spawn(move || {
                let mut client = server.connect();
                while !ends.load(Ordering::Relaxed) {
                    let reply = client.get("/hello.txt");
                    assert_eq!(reply.text(), "hello");
                    if !is_kept || reply.lists("connection", "close") {
                        client = server.connect();
                    }
                }
            });
        }
        let _done = WhenDone(&ends);
        for (index, workers) in [4, 1, 3, 2].into_iter().enumerate() {
            file.set(&format!("workers = {workers}\n"));
            server.signal(Signal::HUP);
            until("another process serves", || successions(&server) == index + 1);
        }
    });
    // None is closed as long as it may have a queue.
    assert_eq!(server.listening_sockets(), 4);
    stop(server, "");
}

#[test]
fn a_connection_that_waits_in_a_queue_is_served_by_the_successor() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &[UNHURRIED, ["--workers", "4"]].concat(), &root);
    // Its loops accept nothing now, and it still hears the signal once it goes on.
    server.signal(Signal::STOP);
    let mut waiting: Vec<Client> = (0..32).map(|_| server.connect()).collect();
    for client in &mut waiting {
        client.send(request("GET", "/hello.txt", &[]));
    }
    server.signal(Signal::USR2);
    server.signal(Signal::CONT);
    until("another process serves", || successions(&server) == 1);
    for client in &mut waiting {
        assert_eq!(client.reply().text(), "hello");
    }
    stop(server, "");
}

#[test]
fn files_of_unix_sockets_are_left_to_the_successor_and_those_it_leaves_are_removed() {
    let root = Root::with_hello();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let unix = |name: &str| format!("unix:{}", path(name).display());
    let (one, two, admin) = (unix("one"), unix("two"), unix("admin"));
    let file = ConfigFile::new(&format!("admin = '{admin}'\nlisten = ['{one}', '{two}']\n"));
    let config = file.path.to_str().unwrap();
    let served = root.path().to_str().unwrap();
    let arguments = [WEIR, "serve", served, "--config", config];
    let server = Server::start_in_shell("exec \"$@\"", Stdio::null(), &arguments);
    assert_eq!(server.addresses.len(), 2);
    upgrade(&server, 0);
    for address in &server.addresses {
        assert_eq!(Client::connect(address).get("/hello.txt").text(), "hello");
    }
    let ask = |path: &Path| Client::connect(&Address::Unix(path.into())).get("/readyz").text();
    assert_eq!(ask(&path("admin")), "ready\n");
    file.set(&format!("listen = '{one}'\n"));
    server.signal(Signal::HUP);
    until("a third process serves", || successions(&server) == 2);
    until("the others were removed", || !path("two").exists() && !path("admin").exists());
    assert_eq!(server.get("/hello.txt").text(), "hello");
    stop(server, "");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_sockets_of_a_service_manager_go_to_the_successor_as_such() {
    let root = Root::with_hello();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let script = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
    let stdin = Stdio::from(OwnedFd::from(listener));
    let served = root.path().to_str().unwrap();
    let arguments = [WEIR, "serve", served, "--listen", "127.0.0.1:0"];
    let server = Server::start_in_shell(script, stdin, &arguments);
    assert_eq!(server.addresses, std::slice::from_ref(&address));
    for index in 0..2 {
        upgrade(&server, index);
        assert_eq!(server.get("/hello.txt").text(), "hello");
        until("it has said where", || server.stdout_so_far().lines().count() == index + 2);
        let said = server.stdout_so_far();
        let Address::Tcp(address) = &address else { unreachable!() };
        assert!(said.lines().all(|line| line.contains(&address.to_string())), "{said}");
    }
    stop(server, "");
}

#[test]
fn both_servers_are_listed_while_one_finishes_and_the_second_ends_with_the_first() {
    let root = Root::with_hello();
    root.write_noise("large", 8 << 20);
    let server = Server::start(WEIR, &["--drain-timeout", "10m"], &root);
    let mut download = server.connect();
    download.send(request("GET", "/large", &[]));
    let head = download.head().unwrap();
    upgrade(&server, 0);
    let successor = last_successor(&server);
    let list = || {
        let mut command = Command::new(WEIR);
        run(command.env("WEIR_RUN_DIR", server.run_dir()).arg("stat")).stdout
    };
    let listed = list();
    for pid in [server.id(), successor] {
        assert!(listed.contains(&pid.to_string()), "{listed}");
    }
    assert_eq!(server.get("/hello.txt").text(), "hello");
    assert_eq!(download.body(head).unwrap().body.len(), 8 << 20);
    drop(download);
    until("one has finished", || !has_page(&server, server.id()));
    assert!(has_page(&server, successor));
    stop(server, "");
    assert!(has_ended(successor));
}

#[test]
fn an_upgrade_starts_what_is_installed_and_a_reload_what_runs() {
    let root = Root::with_hello();
    let folder = tempfile::tempdir().unwrap();
    let installed = folder.path().join("weir");
    let install = |text: Option<&str>| {
        let new = folder.path().join("new");
        match text {
            None => copy_program(WEIR, &new),
            Some(text) => {
                fs::write(&new, text).unwrap();
                fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        fs::rename(new, &installed).unwrap();
    };
    install(None);
    let file = ConfigFile::new("header = 'X-Version: one'\n");
    let options = ["--config", file.path.to_str().unwrap()];
    let server = Server::start(installed.to_str().unwrap(), &options, &root);
    install(Some("#!/bin/sh\nexit 7\n"));
    file.set("header = 'X-Version: two'\n");
    server.signal(Signal::HUP);
    until("another process serves", || successions(&server) == 1);
    assert_eq!(server.get("/hello.txt").expect_field("x-version"), "two");
    let name = fs::read_to_string(format!("/proc/{}/comm", last_successor(&server))).unwrap();
    assert_eq!(name.trim_end(), "weir");
    server.signal(Signal::USR2);
    until("the program has failed", || server.stderr_so_far().contains("exit status: 7"));
    assert_eq!(server.get("/hello.txt").expect_field("x-version"), "two");
    install(None);
    upgrade(&server, 1);
    assert_eq!(server.get("/hello.txt").expect_field("x-version"), "two");
    stop(server, "");
}

#[test]
fn an_upgrade_is_asked_for_by_process_id_and_says_what_came_of_it() {
    let root = Root::with_hello();
    let file = ConfigFile::new("");
    let server = file.serve(&root);
    let upgrade = |pid: u32| {
        let mut command = Command::new(WEIR);
        run(command.env("WEIR_RUN_DIR", server.run_dir()).args(["upgrade", &pid.to_string()]))
    };
    file.set("no-such-option = 1\n");
    let refused = upgrade(server.id());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains("goes on"), "{refused:?}");
    file.set("");
    let done = upgrade(server.id());
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.contains(&format!("serves in place of {}", server.id())), "{done:?}");
    assert_eq!(server.get("/hello.txt").text(), "hello");
    assert_eq!(upgrade(1).status.code(), Some(2));
    stop(server, "");
}

#[test]
fn an_upgrade_to_a_server_without_statistics_is_seen() {
    let root = Root::with_hello();
    let file = ConfigFile::new("");
    let server = file.serve(&root);
    file.set("stat-page = false\n");
    let mut command = Command::new(WEIR);
    command.env("WEIR_RUN_DIR", server.run_dir()).args(["upgrade", &server.id().to_string()]);
    let done = run(&mut command);
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr);
    until("it was said", || successions(&server) == 1);
    let serves = format!("{} serves in place of {}\n", last_successor(&server), server.id());
    assert!(done.stdout.ends_with(&serves), "{}", done.stdout);
    assert_eq!(server.get("/hello.txt").text(), "hello");
    stop(server, "");
}

/// Writes a page to the process that waits for it at a pipe.
fn write_page(pipe: &Path) {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    until("it is read", || {
        // Without a reader it is not opened.
        let opened = File::options().write(true).custom_flags(flags).open(pipe);
        opened.is_ok_and(|mut pipe| pipe.write_all(b"page").is_ok())
    });
}

#[test]
fn an_upgrade_that_comes_during_a_reload_is_over_once_the_installed_program_serves() {
    let root = Root::with_hello();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    copy_program(WEIR, &path("weir"));
    let file = ConfigFile::new("");
    let options = ["--config", file.path()];
    let server = Server::start(path("weir").to_str().unwrap(), &options, &root);
    // Each process that reads the configuration waits here, until it is written to.
    let page = path("page");
    assert!(Command::new("mkfifo").arg(&page).status().unwrap().success());
    file.set(&format!("error-page = '404={}'\n", page.display()));
    server.signal(Signal::HUP);
    write_page(&page);
    until("a successor starts", || !children_of(server.id()).is_empty());
    copy_program(WEIR, &path("new"));
    fs::rename(path("new"), path("weir")).unwrap();
    let mut command = Command::new(WEIR);
    command.env("WEIR_RUN_DIR", server.run_dir()).args(["upgrade", &server.id().to_string()]);
    let upgrade = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Sleeps are between its looks, which come after that.
    until("it has asked", || sleeps_of(upgrade.id(), "weir-under-test") >= 10);
    write_page(&page);
    until("the reload's successor serves", || successions(&server) == 1);
    write_page(&page);
    let done = upgrade.wait_with_output().unwrap();
    let [said, errors] = [done.stdout, done.stderr].map(|it| String::from_utf8(it).unwrap());
    assert_eq!(done.status.code(), Some(0), "{errors}");
    until("another process serves", || successions(&server) == 2);
    let serves = format!("{} serves in place of {}\n", last_successor(&server), server.id());
    assert!(said.ends_with(&serves), "{said}");
    stop(server, "");
}

#[test]
fn a_process_stands_for_the_server_that_has_taken_its_place() {
    let root = Root::with_hello();
    let patient = ["--header-timeout", "10m", "--drain-timeout", "10m"];
    let server = Server::start(WEIR, &patient, &root);
    let weir = |words: &[&str], pid: u32| {
        let mut command = Command::new(WEIR);
        command.env("WEIR_RUN_DIR", server.run_dir()).args(words).arg(pid.to_string());
        let done = run(&mut command);
        assert_eq!(done.status.code(), Some(0), "{words:?} {pid}: {}", done.stderr);
        done.stdout
    };
    let upgrade_by = |pid: u32, replaced: u32| {
        let before = successions(&server);
        let said = weir(&["upgrade"], pid);
        assert!(said.ends_with(&format!("serves in place of {replaced}\n")), "{said}");
        until("it was said", || successions(&server) == before + 1);
        last_successor(&server)
    };
    let second = upgrade_by(server.id(), server.id());
    until("the first has finished", || !has_page(&server, server.id()));
    assert!(weir(&["stat"], server.id()).contains(&format!("process {second},")));
    let third = upgrade_by(server.id(), second);
    // It has a connection to finish, and so its page.
    let mut client = server.connect();
    client.send("GET /hello.txt HTTP/1.1\r\n");
    until("the connection was accepted", || server.open_connections() == 1);
    let fourth = upgrade_by(third, third);
    assert!(weir(&["stat"], third).contains(&format!("process {third},")));
    let fifth = upgrade_by(third, fourth);
    assert!(weir(&["stat"], fifth).contains(&format!("process {fifth},")));
    client.send("Host: a\r\n\r\n");
    assert_eq!(client.reply().text(), "hello");
    stop(server, "");
}

#[test]
fn a_successor_that_dies_takes_the_first_process_with_it() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &[], &root);
    upgrade(&server, 0);
    let kill = ["-KILL", &last_successor(&server).to_string()];
    assert!(run(Command::new("kill").args(kill)).status.success());
    let stopped = server.wait();
    assert_eq!(stopped.status.code(), Some(137), "{}", stopped.stderr);
}

#[test]
fn a_service_manager_is_told_of_readiness_reloads_successors_life_and_the_stop() {
    let root = Root::with_hello();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(weir_tests::wait::TIMEOUT)).unwrap();
    let file = ConfigFile::new("workers = 2\n");
    let script = format!(
        "export NOTIFY_SOCKET={} WATCHDOG_PID=$$ WATCHDOG_USEC=60000; exec \"$@\"",
        path.display()
    );
    let (config, served) = (file.path.to_str().unwrap(), root.path().to_str().unwrap());
    let arguments = [WEIR, "serve", served, "--listen", "127.0.0.1:0", "--config", config];
    let mut server = Server::start_in_shell(&script, Stdio::null(), &arguments);
    // Signs of life may come at any time.
    let next = |wanted: &str| loop {
        let mut message = [0; 1024];
        let length = manager.recv(&mut message).unwrap();
        let text = String::from_utf8_lossy(&message[..length]).into_owned();
        if wanted == "WATCHDOG=1" || text.trim_end() != "WATCHDOG=1" {
            break text;
        }
    };
    let has = |text: &str, line: &str| text.lines().any(|each| each.starts_with(line));
    let ready = next("READY");
    assert!(has(&ready, "READY=1") && ready.contains(", 2 loops)"), "{ready}");
    assert!(has(&next("WATCHDOG=1"), "WATCHDOG=1"));
    file.set("nonsense");
    server.signal(Signal::HUP);
    let reloading = next("RELOADING");
    assert!(has(&reloading, "RELOADING=1") && has(&reloading, "MONOTONIC_USEC="), "{reloading}");
    let ready = next("READY");
    assert!(has(&ready, "READY=1") && !has(&ready, "MAINPID="), "{ready}");
    file.set("workers = 1\nheader = 'X-Version: two'\n");
    server.signal(Signal::HUP);
    assert!(has(&next("RELOADING"), "RELOADING=1"));
    let ready = next("READY");
    assert!(has(&ready, "READY=1"), "{ready}");
    until("it has said so", || successions(&server) == 1);
    let successor = last_successor(&server);
    assert!(has(&ready, &format!("MAINPID={successor}")), "{ready}");
    // The successor's own words follow, and its signs of life.
    let status = next("STATUS");
    assert!(has(&status, "STATUS=serving") && status.contains(", 1 loop)"), "{status}");
    assert!(has(&next("WATCHDOG=1"), "WATCHDOG=1"));
    assert_eq!(server.get("/hello.txt").expect_field("x-version"), "two");
    // The manager knows the main process: the first one ends by itself.
    until("the first one has ended", || server.has_ended());
    assert_eq!(server.get("/hello.txt").text(), "hello");
    assert!(run(Command::new("kill").arg(successor.to_string())).status.success());
    assert!(has(&next("STOPPING"), "STOPPING=1"));
    until("it has ended", || has_ended(successor));
}

/// Returns the process id of a server that shows its statistics, besides the first one.
fn second_page(server: &Server) -> Option<u32> {
    let names = fs::read_dir(server.run_dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let pid = |name: &str| name.strip_suffix(".stat")?.parse::<u32>().ok();
    let mut pids = names.filter_map(|name| pid(name.to_str()?));
    pids.find(|pid| *pid != server.id())
}

#[test]
fn a_stop_that_comes_while_a_server_under_a_manager_hands_over_stops_its_successor() {
    let root = Root::with_hello();
    let folder = tempfile::tempdir().unwrap();
    let served = root.path().to_str().unwrap();
    let arguments = [WEIR, "serve", served, "--listen", "127.0.0.1:0", "--workers", "1"];
    let arguments = [&arguments[..], &["--bench-endpoints"]].concat();
    for attempt in 0..10 {
        let path = folder.path().join(attempt.to_string());
        let _manager = UnixDatagram::bind(&path).unwrap();
        let script = format!("export NOTIFY_SOCKET={}; exec \"$@\"", path.display());
        let mut server = Server::start_in_shell(&script, Stdio::null(), &arguments);
        // For a second the loop does not hear that it is to leave its sockets.
        let mut client = server.connect();
        client.send(request("GET", "/.weir/burn?us=1000000", &[]));
        until("it is served", || server.open_connections() == 1);
        server.signal(Signal::USR2);
        until("a successor is there", || second_page(&server).is_some());
        let successor = second_page(&server).unwrap();
        server.signal(Signal::TERM);
        if client.replies_there() > 0 || successions(&server) > 0 {
            // A manager would have told the successor, which has taken over by then.
            run(Command::new("kill").args(["-KILL", &successor.to_string()]));
            continue;
        }
        assert_eq!(client.reply().status, 200);
        drop(client);
        until("the successor has ended", || has_ended(successor));
        until("the first one has ended", || server.has_ended());
        return;
    }
    println!("SKIPPED: on this machine a server takes a second to start");
}

#[test]
fn the_units_are_understood_and_confine_the_server() {
    let unit =
        |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/systemd").join(name);
    let analyze = |arguments: &[&str], unit: &Path| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).arg(unit).stdin(Stdio::null()).output()
    };
    let Ok(checked) = analyze(&["verify"], &unit("weir.service")) else {
        println!("SKIPPED: there is no systemd-analyze");
        return;
    };
    // The program and its page need not be installed here; an old systemd knows no notify-reload.
    let excused = ["is not executable", "notify-reload", "man weir(1)"];
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    let of_unit = |line: &&str| line.contains("weir.service");
    let wrong = said.lines().filter(of_unit);
    let wrong: Vec<_> =
        wrong.filter(|line| !excused.iter().any(|excuse| line.contains(excuse))).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    // Tenths: below 2.0.
    let bounds = ["security", "--offline=true", "--no-pager", "--threshold=19"];
    let judged = analyze(&bounds, &unit("weir.service")).unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
}

/// Returns the files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn no_command_that_a_page_or_a_unit_names_needs_a_new_systemd() {
    for folder in ["../contrib", "../docs"] {
        let files = files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        assert!(!files.is_empty());
        for file in files {
            // Before systemd 252 only `--kill-who` is known, and later ones know both.
            let text = fs::read(&file).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains("--kill-whom"), "{}", file.display());
        }
    }
}
