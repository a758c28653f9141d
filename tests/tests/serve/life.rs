//! Life of the process: listeners, options and their errors, signals, logs, limits. HTTP semantics
//! are tested in `http.rs`.

use std::fs;
use std::net::{Ipv6Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::Signal;
use serde_json::Value;
use weir_tests::server::run;
use weir_tests::wait::until;
use weir_tests::{Address, Client, Root, Server, Setup, Stopped, assert_same, suite};

use crate::WEIR;

mod listeners {
    use super::*;

    suite! {
        every_setup:
        a_unix_socket_is_served,
        several_listeners_are_served_at_once,
        a_socket_from_the_service_manager_wins,
    }

    #[test]
    fn ipv6_is_served() {
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
            println!("skipped: there is no IPv6 here");
            return;
        }
        let root = Root::with_hello();
        let server = Server::start(WEIR, &["--listen", "[::1]:0"], &root);
        assert!(matches!(server.address(), Address::Tcp(address) if address.is_ipv6()));
        assert_eq!(server.get("/hello.txt").text(), "hello");
        server.stop_cleanly();
    }

    fn a_unix_socket_is_served(setup: &Setup) {
        let root = Root::with_hello();
        let socket = root.outside().join("weir.socket");
        let listen = format!("unix:{}", socket.display());
        let server = setup.serve(&root, &["--listen", &listen]);
        assert_eq!(server.addresses, [Address::Unix(socket)]);
        let mut client = server.connect();
        assert_eq!(client.get("/hello.txt").text(), "hello");
        assert_eq!(client.get("/hello.txt").text(), "hello");
        server.stop_cleanly();
    }

    #[test]
    fn a_unix_socket_left_behind_is_no_obstacle() {
        let root = Root::with_hello();
        let listen = format!("unix:{}", root.outside().join("weir.socket").display());
        let mut killed = Server::start(WEIR, &["--listen", &listen], &root);
        killed.signal(Signal::KILL);
        until("it was killed", || killed.has_ended());
        let server = Server::start(WEIR, &["--listen", &listen], &root);
        assert_eq!(server.get("/hello.txt").text(), "hello");
    }

    #[test]
    fn an_ordinary_file_is_not_replaced_by_a_socket() {
        let root = Root::with_hello();
        let precious = root.outside().join("precious");
        fs::write(&precious, "precious").unwrap();
        let listen = format!("unix:{}", precious.display());
        let args = ["serve", root.path().to_str().unwrap(), "--listen", &listen];
        let stopped = run(Command::new(WEIR).args(args));
        assert_eq!(stopped.status.code(), Some(2), "{}", stopped.stderr);
        assert_eq!(fs::read_to_string(precious).unwrap(), "precious");
    }

    #[test]
    fn a_successor_on_the_same_unix_socket_stays_reachable() {
        let root = Root::with_hello();
        root.write_noise("large", 8 << 20);
        let listen = format!("unix:{}", root.outside().join("weir.socket").display());
        let old = Server::start(WEIR, &["--listen", &listen, "--drain-timeout", "10m"], &root);
        let mut download = old.connect();
        download.send(weir_tests::request("GET", "/large", &[]));
        let head = download.head().unwrap();
        old.signal(Signal::TERM);
        until("the old server listens no more", || {
            Client::connect_with(old.address(), None).is_err()
        });
        let new = Server::start(WEIR, &["--listen", &listen], &root);
        assert_eq!(download.body(head).unwrap().body.len(), 8 << 20);
        assert_eq!(old.wait().status.code(), Some(0));
        assert_eq!(new.get("/hello.txt").text(), "hello");
    }

    fn several_listeners_are_served_at_once(setup: &Setup) {
        let root = Root::with_hello();
        let unix = format!("unix:{}", root.outside().join("weir.socket").display());
        let listen = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--listen", &unix];
        let server = setup.serve(&root, &listen);
        assert_eq!(server.addresses.len(), 3, "{}", server.ready);
        let mut staying: Vec<_> = server.addresses.iter().map(Client::connect).collect();
        for address in server.addresses.iter().chain(&server.addresses) {
            assert_eq!(Client::connect(address).get("/hello.txt").text(), "hello");
            for client in &mut staying {
                assert_eq!(client.get("/hello.txt").text(), "hello");
            }
        }
        server.stop_cleanly();
    }

    /// Starts a server that inherits `listener` as descriptor 3, with the environment set by
    /// `export`.
    fn activated(listener: TcpListener, root: &Root, export: &str, options: &[&str]) -> Server {
        let script = format!("exec 3<&0 </dev/null; export {export}; exec \"$@\"");
        let stdin = Stdio::from(OwnedFd::from(listener));
        let served = root.path().to_str().unwrap();
        let arguments = [&[WEIR, "serve", served, "--listen", "127.0.0.1:0"], options].concat();
        Server::start_in_shell(&script, stdin, &arguments)
    }

    fn a_socket_from_the_service_manager_wins(setup: &Setup) {
        let root = Root::with_hello();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let export = "LISTEN_PID=$$ LISTEN_FDS=1";
        let server = activated(listener, &root, export, &setup.with(&[]));
        assert_eq!(server.addresses, [address]);
        let mut staying = server.connect();
        for _ in 0..3 {
            assert_eq!(server.get("/hello.txt").text(), "hello");
            assert_eq!(staying.get("/hello.txt").text(), "hello");
        }
        server.stop_cleanly();
    }

    #[test]
    fn missing_listen_fds_are_an_error_and_not_the_servers_own_descriptors() {
        let root = Root::with_hello();
        let script = "export LISTEN_PID=$$ LISTEN_FDS=9; exec \"$@\"";
        let served = root.path().to_str().unwrap();
        let mut command = Command::new("sh");
        let stopped = run(command.args(["-c", script, "sh", WEIR, "serve", served]));
        assert_eq!(stopped.status.code(), Some(2), "{}", stopped.stderr);
        let message = "cannot use the sockets of LISTEN_FDS: Bad file descriptor";
        assert!(stopped.stderr.contains(message), "{}", stopped.stderr);
    }

    #[test]
    fn sockets_meant_for_another_process_are_ignored() {
        let root = Root::with_hello();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let server = activated(listener, &root, "LISTEN_PID=1 LISTEN_FDS=1", &[]);
        assert!(!server.addresses.contains(&address));
        assert_eq!(server.get("/hello.txt").text(), "hello");
    }
}

mod limits {
    use super::*;

    suite! {
        every_setup:
        a_low_limit_of_descriptors_is_kept,
        running_out_of_descriptors_is_survived,
    }

    fn a_low_limit_of_descriptors_is_kept(setup: &Setup) {
        let root = Root::with_hello();
        let served = root.path().to_str().unwrap();
        let options = setup.with(&["--listen", "127.0.0.1:0"]);
        let arguments = [&[WEIR, "serve", served], &options[..]].concat();
        let script = "ulimit -n 64; exec \"$@\"";
        let server = Server::start_in_shell(script, Stdio::null(), &arguments);
        let crowd: Vec<_> = (0..200).map(|_| server.connect()).collect();
        drop(crowd);
        for _ in 0..100 {
            assert_eq!(server.get("/hello.txt").text(), "hello");
        }
        server.stop_cleanly();
    }

    fn running_out_of_descriptors_is_survived(setup: &Setup) {
        let root = Root::with_hello();
        let server = setup.serve(&root, &["--workers", "1", "--accept-limit", "1"]);
        assert_eq!(server.get("/hello.txt").text(), "hello");
        // The server read its limit at the start; a lower one makes accepts fail (EMFILE).
        server.limit_descriptors(10);
        let crowd: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for mut client in crowd {
            let _ = client.try_send(weir_tests::request("GET", "/hello.txt", &[]));
            client.finish_sending();
            assert!(client.ends());
        }
        until("the crowd was closed", || server.open_connections() == 0);
        for _ in 0..100 {
            // A pool of fibers may hold as many closed connections as it can accept in a round.
            until("the earlier ones were closed", || server.open_connections() <= 2);
            assert_eq!(server.get("/hello.txt").text(), "hello");
        }
        until("all were closed", || server.open_connections() == 0);
        server.stop_cleanly();
    }

    #[test]
    fn connections_beyond_the_cap_wait_or_are_refused_and_later_served() {
        let root = Root::with_hello();
        let server = Server::start(WEIR, &["--max-conns", "5"], &root);
        let crowd: Vec<_> = (0..20).map(|_| server.connect()).collect();
        drop(crowd);
        for _ in 0..20 {
            assert_eq!(server.get("/hello.txt").text(), "hello");
        }
        server.stop_cleanly();
    }

    #[test]
    fn idle_connections_are_closed() {
        let root = Root::with_hello();
        let server = Server::start(WEIR, &["--idle-timeout", "200ms"], &root);
        let mut client = server.connect();
        assert_eq!(client.get("/hello.txt").text(), "hello");
        assert!(client.is_closed());
    }

    #[test]
    fn silent_connections_are_closed() {
        let root = Root::with_hello();
        let options = ["--header-timeout", "200ms", "--idle-timeout", "200ms"];
        let server = Server::start(WEIR, &options, &root);
        assert!(server.connect().ends());
    }
}

mod loops {
    use super::*;

    suite! {
        every_setup:
        two_workers_serve,
        loops_that_share_a_listener_lose_no_connection,
    }

    fn two_workers_serve(setup: &Setup) {
        let root = Root::new();
        let files = root.write_file_set();
        let server = setup.serve(&root, &["--workers", "2"]);
        assert!(server.ready.ends_with("2 loops)"), "{}", server.ready);
        for file in &files {
            assert_same(&server.get(&file.target).body, &file.body, &file.target);
        }
        let stats = server.stop_cleanly().stats();
        let loops = stats["loops"].as_array().unwrap();
        assert_eq!(loops.len(), 2);
        let accepted: Option<u64> = loops.iter().map(|each| each["accepted"].as_u64()).sum();
        assert_eq!(accepted, stats["total"]["accepted"].as_u64());
        assert_eq!(accepted, Some(files.len() as u64));
    }

    fn loops_that_share_a_listener_lose_no_connection(setup: &Setup) {
        let root = Root::with_hello();
        let server = setup.serve(&root, &["--workers", "2", "--share-listener"]);
        thread::scope(|scope| {
            for _ in 0..8 {
                let get_all = || {
                    for _ in 0..50 {
                        assert_eq!(server.get("/hello.txt").text(), "hello");
                    }
                };
                scope.spawn(get_all);
            }
        });
        let stats = server.stop_cleanly().stats();
        assert_eq!(stats["total"]["accepted"], 8 * 50);
        assert_eq!(stats["total"]["requests"], 8 * 50);
    }

    #[test]
    fn a_shared_listener_is_one_socket_and_others_are_one_per_loop() {
        let root = Root::with_hello();
        let sockets = |share: &str| {
            let server = Server::start(WEIR, &["--workers", "2", share], &root);
            let inodes = server.listening_sockets();
            server.stop_cleanly();
            inodes
        };
        assert_eq!(sockets("--share-listener=on"), 1);
        assert_eq!(sockets("--share-listener=off"), 2);
    }

    #[test]
    fn loops_can_be_pinned() {
        let root = Root::with_hello();
        let server = Server::start(WEIR, &["--workers", "1", "--cpus", "0"], &root);
        assert_eq!(server.get("/hello.txt").text(), "hello");
        server.stop_cleanly();
    }

    #[test]
    fn profiled_calls_are_in_the_table_and_in_the_statistics() {
        let root = Root::with_hello();
        let ended = |options: &[&str]| {
            let server = Server::start(WEIR, options, &root);
            assert_eq!(server.get("/hello.txt").text(), "hello");
            server.stop_cleanly()
        };
        let plain = ended(&["--mechanism", "epoll-et"]);
        let profiled = ended(&["--mechanism", "epoll-et", "--profile-calls"]);
        for call in ["epoll_wait", "accept4", "epoll_ctl"] {
            assert!(profiled.stderr.contains(call), "{call} in {}", profiled.stderr);
            assert!(profiled.stats().to_string().contains(call), "{call}");
        }
        assert!(!plain.stderr.contains("accept4"), "{}", plain.stderr);
    }
}

mod logs {
    use super::*;

    /// Parses a combined log line: request line, status, bytes, referrer, user agent. A quoted
    /// value contains no quotation mark but an escaped one.
    fn combined(line: &str) -> Option<[String; 5]> {
        let rest = line.strip_prefix("127.0.0.1 - - [")?;
        let (date, rest) = rest.split_once("] ")?;
        assert_eq!(date.len(), "09/Sep/2001:01:46:40 +0000".len(), "{date}");
        let (request, rest) = quoted(rest)?;
        let (status, rest) = rest.strip_prefix(' ')?.split_once(' ')?;
        let (bytes, rest) = rest.split_once(' ')?;
        let (referrer, rest) = quoted(rest)?;
        let (agent, rest) = quoted(rest.strip_prefix(' ')?)?;
        rest.is_empty().then(|| [request, status, bytes, referrer, agent].map(str::to_owned))
    }

    fn quoted(text: &str) -> Option<(&str, &str)> {
        let text = text.strip_prefix('"')?;
        let mut escaped = false;
        for (at, c) in text.char_indices() {
            match c {
                '"' if !escaped => return Some((&text[..at], &text[at + 1..])),
                _ => escaped = c == '\\' && !escaped,
            }
        }
        None
    }

    const HOSTILE_AGENT: &str = "a\" 200 1 \"b\\";

    /// Sends requests whose log lines are hard to get right. Returns the statuses in order.
    fn hostile_requests(server: &Server) -> Vec<u16> {
        let mut client = server.connect();
        let agent = format!("User-Agent: {HOSTILE_AGENT}");
        let mut replies = vec![
            client.get_with("/hello.txt", &["User-Agent: plain", "Referer: http://a.example/"]),
            client.get_with("/hello.txt", &[&agent]),
            client.get("/%0d%0a127.0.0.1%20-%20-%20fake"),
            client.get("/quote%22"),
            client.head_with("/hello.txt", &[]),
        ];
        client.send(
            b"GET /\"raw HTTP/1.1\r\nHost: a\r\nUser-Agent: \xff\tb\r\nConnection: close\r\n\r\n",
        );
        replies.push(client.reply());
        replies.iter().map(|reply| reply.status).collect()
    }

    fn serve_and_log(format: &str) -> (Vec<u16>, String) {
        let root = Root::with_hello();
        let log = root.outside().join("access.log");
        let options = ["--access-log", log.to_str().unwrap(), "--log-format", format];
        let server = Server::start(WEIR, &options, &root);
        let statuses = hostile_requests(&server);
        server.stop_cleanly();
        (statuses, String::from_utf8(fs::read(log).unwrap()).expect("a log in UTF-8"))
    }

    #[test]
    fn combined_lines_parse_whatever_the_client_sends() {
        let (statuses, log) = serve_and_log("combined");
        let lines: Vec<_> = log.lines().map(|line| combined(line).expect(line)).collect();
        let logged: Vec<u16> = lines.iter().map(|line| line[1].parse().unwrap()).collect();
        assert_eq!(logged, statuses);
        assert_eq!(lines[0][0], "GET /hello.txt HTTP/1.1");
        assert_eq!(lines[0][2..], ["5", "http://a.example/", "plain"]);
        assert!(!lines[1][4].is_empty());
        assert!(lines[4][0].starts_with("HEAD "), "{log}");
        assert!(!log.chars().any(|c| c.is_control() && c != '\n'), "{log:?}");
    }

    #[test]
    fn json_lines_parse_whatever_the_client_sends() {
        let (statuses, log) = serve_and_log("json");
        let lines: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert_eq!(lines.len(), statuses.len());
        for (line, status) in lines.iter().zip(statuses) {
            assert_eq!(line["status"], status, "{line}");
        }
        let has = |line: &Value, text: &str| line.as_object().unwrap().values().any(|v| v == text);
        assert!(has(&lines[0], "plain") && has(&lines[0], "http://a.example/"), "{}", lines[0]);
        assert!(has(&lines[1], HOSTILE_AGENT), "{}", lines[1]);
    }

    #[test]
    fn a_log_can_go_to_standard_output() {
        let root = Root::with_hello();
        let server = Server::start(WEIR, &["--access-log", "-"], &root);
        server.get("/hello.txt");
        let stopped = server.stop_cleanly();
        let line = stopped.stdout.lines().next().expect("a line of the log");
        assert_eq!(combined(line).expect(line)[0], "GET /hello.txt HTTP/1.1");
    }

    #[test]
    fn sighup_reopens_the_log() {
        let root = Root::with_hello();
        let (log, rotated) = (root.outside().join("log"), root.outside().join("log.1"));
        let server = Server::start(WEIR, &["--access-log", log.to_str().unwrap()], &root);
        server.get("/hello.txt?before");
        until("it was logged", || fs::read_to_string(&log).unwrap().contains("?before"));
        fs::rename(&log, &rotated).unwrap();
        server.signal(Signal::HUP);
        until("the log was opened again", || log.exists());
        server.get("/hello.txt?after");
        server.stop_cleanly();
        let (new, old) = (fs::read_to_string(log).unwrap(), fs::read_to_string(rotated).unwrap());
        assert!(old.contains("?before") && !old.contains("?after"), "{old}");
        assert!(new.contains("?after") && !new.contains("?before"), "{new}");
    }

    #[test]
    fn lines_reach_the_log_while_the_server_runs() {
        let root = Root::with_hello();
        let log = root.outside().join("log");
        let server = Server::start(WEIR, &["--access-log", log.to_str().unwrap()], &root);
        server.get("/hello.txt");
        until("the line was written", || fs::read_to_string(&log).unwrap().ends_with('\n'));
    }
}

mod signals {
    use super::*;

    #[test]
    fn sigusr1_prints_the_table_and_serving_goes_on() {
        let root = Root::with_hello();
        let server = Server::start(WEIR, &[], &root);
        let mut client = server.connect();
        assert_eq!(client.get("/hello.txt").text(), "hello");
        let before = server.stderr_so_far();
        server.signal(Signal::USR1);
        until("the table was printed", || server.stderr_so_far().len() > before.len());
        assert_eq!(client.get("/hello.txt").text(), "hello");
        assert_eq!(server.get("/hello.txt").text(), "hello");
        server.stop_cleanly();
    }

    #[test]
    fn sigint_stops_as_sigterm_does() {
        let root = Root::with_hello();
        let server = Server::start(WEIR, &[], &root);
        server.signal(Signal::INT);
        let stopped = server.wait();
        assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
        assert!(!stopped.stderr.is_empty(), "the table is printed at the end");
    }

    #[test]
    fn the_drain_has_an_end() {
        let root = Root::new();
        root.write_noise("large", 8 << 20);
        let server = Server::start(WEIR, &["--drain-timeout", "300ms"], &root);
        let mut client = Client::connect_narrow(server.address());
        client.send(weir_tests::request("GET", "/large", &[]));
        client.head().unwrap();
        server.signal(Signal::TERM);
        server.wait();
        assert!(client.ends());
    }
}

mod configuration {
    use super::*;

    #[test]
    fn a_file_sets_what_options_set() {
        let root = Root::with_hello();
        let config = root.outside().join("weir.toml");
        let text = "mechanism = \"poll\"\npreset = \"accept10\"\nheader = [\"X-From: file\"]\n\
            idle-timeout = \"5s\"\ndotfiles = true\n";
        fs::write(&config, text).unwrap();
        root.write(".env", "dot");
        let server = Server::start(WEIR, &["--config", config.to_str().unwrap()], &root);
        assert!(server.ready.contains("(poll,"), "{}", server.ready);
        assert_eq!(server.get("/hello.txt").field("X-From"), Some("file"));
        assert_eq!(server.get("/.env").text(), "dot");
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let root = Root::with_hello();
        let config = root.outside().join("weir.toml");
        fs::write(&config, "mechanism = \"poll\"\n").unwrap();
        let options = ["--config", config.to_str().unwrap(), "--mechanism", "select"];
        let server = Server::start(WEIR, &options, &root);
        assert!(server.ready.contains("(select,"), "{}", server.ready);
    }

    fn serve(root: &Path, options: &[&str]) -> Stopped {
        run(Command::new(WEIR).arg("serve").arg(root).args(options))
    }

    fn says_one_sentence(stopped: &Stopped, about: &str) {
        assert_eq!(stopped.stderr.trim_end().lines().count(), 1, "{about}: {}", stopped.stderr);
        assert!(stopped.stderr.starts_with("weir: "), "{about}: {}", stopped.stderr);
        assert_eq!(stopped.stdout, "", "{about}");
    }

    #[test]
    fn a_wrong_option_is_one_sentence_and_exit_status_2() {
        let root = Root::with_hello();
        let missing = root.outside().join("missing");
        let missing = missing.to_str().unwrap();
        let wrong: [&[&str]; 20] = [
            &["--mechanism", "devnull"],
            &["--preset", "none"],
            &["--no-such-option"],
            &["--accept-limit", "many"],
            &["--listen", "nonsense"],
            &["--listen", "127.0.0.1:99999"],
            &["--cache-size", "12q"],
            &["--idle-timeout", "soon"],
            &["--idle-timeout", "-1s"],
            &["--eager-read=maybe"],
            &["--cpus", "1-"],
            &["--header", "no colon"],
            &["--header", "X: a\r\nY: b"],
            &["--error-page", "404"],
            &["--error-page", &format!("404={missing}")],
            &["--mime", "html"],
            &["--precompressed", "zip"],
            &["--symlinks", "outside"],
            &["--log-format", "xml"],
            &["--config", missing],
        ];
        for options in wrong {
            let stopped = serve(root.path(), options);
            assert_eq!(stopped.status.code(), Some(2), "{options:?}: {}", stopped.stderr);
            says_one_sentence(&stopped, &format!("{options:?}"));
        }
    }

    #[test]
    fn a_wrong_line_in_the_file_is_one_sentence_and_exit_status_2() {
        let root = Root::with_hello();
        let config = root.outside().join("weir.toml");
        for text in ["no-such-key = 1\n", "mechanism = 7\n", "mechanism = \n", "preset = \"x\"\n"] {
            fs::write(&config, text).unwrap();
            let stopped = serve(root.path(), &["--config", config.to_str().unwrap()]);
            assert_eq!(stopped.status.code(), Some(2), "{text:?}: {}", stopped.stderr);
            says_one_sentence(&stopped, text);
        }
    }

    #[test]
    fn an_invalid_root_is_one_sentence() {
        let root = Root::with_hello();
        for wrong in [root.outside().join("missing"), root.path().join("hello.txt")] {
            let stopped = serve(&wrong, &["--listen", "127.0.0.1:0"]);
            assert_eq!(stopped.status.code(), Some(2), "{}", stopped.stderr);
            says_one_sentence(&stopped, "root");
            assert!(stopped.stderr.contains(wrong.to_str().unwrap()), "{}", stopped.stderr);
        }
    }

    #[test]
    fn a_port_in_use_is_one_sentence() {
        let root = Root::with_hello();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let stopped = serve(root.path(), &["--listen", &address]);
        assert!(matches!(stopped.status.code(), Some(1 | 2)), "{:?}", stopped.status);
        says_one_sentence(&stopped, "port in use");
        assert!(stopped.stderr.contains(&address), "{}", stopped.stderr);
    }

    #[test]
    fn help_and_version_are_on_standard_output() {
        let help = run(Command::new(WEIR).args(["serve", "--help"]));
        assert_eq!((help.status.code(), &help.stderr[..]), (Some(0), ""));
        assert!(help.stdout.contains("--accept-limit"), "{}", help.stdout);
        let version = run(Command::new(WEIR).arg("--version"));
        assert_eq!(version.status.code(), Some(0));
        assert!(version.stdout.starts_with("weir "), "{}", version.stdout);
    }

    #[test]
    fn every_subcommand_has_a_manual_page_with_its_options() {
        let page = |words: &[&str]| {
            let stopped = run(Command::new(WEIR).arg("man").args(words));
            assert_eq!(stopped.status.code(), Some(0), "{words:?}: {}", stopped.stderr);
            stopped.stdout.replace("\\-", "-")
        };
        let named = |page: &str, above: &str| -> Vec<String> {
            let lines = page.lines().filter_map(|line| line.strip_suffix("(1)"));
            lines.filter_map(|line| line.strip_prefix(above).map(str::to_owned)).collect()
        };
        let all = page(&[]);
        let subcommands = named(&all, "weir-");
        for wanted in ["serve", "proxy", "load", "lab", "man"] {
            assert!(subcommands.iter().any(|name| name == wanted), "{wanted}: {subcommands:?}");
        }
        for name in &subcommands {
            let own = page(&[name.as_str()]);
            assert!(own.contains(&format!(".TH weir-{name} 1 ")), "{name}: {own}");
            for below in named(&own, &format!("weir-{name}-")) {
                assert!(page(&[name.as_str(), &below]).contains("--help"), "{name} {below}");
            }
        }
        assert!(page(&["serve"]).contains("--accept-limit"));
        let wrong = run(Command::new(WEIR).args(["man", "nothing"]));
        assert_eq!(wrong.status.code(), Some(2));
        says_one_sentence(&wrong, "nothing");
    }

    #[test]
    fn what_cannot_be_printed_is_one_sentence() {
        for words in [&["man"][..], &["completions", "bash"], &["completions", "zsh"]] {
            let full = fs::File::options().write(true).open("/dev/full").unwrap();
            let output = Command::new(WEIR).args(words).stdout(full).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
            assert!(said.starts_with("weir: cannot print: "), "{words:?}: {said}");
        }
    }
}
