//! Features specific to `--arch fiber`: fibers that end, a pool that serves to completion, stacks.
//! Features common to all architectures are in `behaviour.rs`.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use weir_sys::fiber_stack::mappings_each;
use weir_sys::process::mappings_max;
use weir_tests::family::{is_stopped, sleeps_of};
use weir_tests::server::run;
use weir_tests::wait::until;
use weir_tests::{Client, Root, Server, Stopped, assert_same, request};

use crate::WEIR;

const ON_DEMAND: [&str; 4] = ["--arch", "fiber", "--workers", "1"];

fn serve(root: &Root, options: &[&str]) -> Server {
    Server::start(WEIR, &[&ON_DEMAND[..], options].concat(), root)
}

/// Starts a server with a pool of fibers, each of which accepts up to `limit` connections at a
/// time.
fn serve_pool(root: &Root, fibers: &str, limit: &str, options: &[&str]) -> Server {
    let pool = format!("pool={fibers}");
    serve(root, &[&["--arch-option", &pool, "--accept-limit", limit], options].concat())
}

fn count(stopped: &Stopped, name: &str) -> u64 {
    stopped.stats()["total"][name].as_u64().unwrap()
}

/// Returns a counter of the last table that the server printed.
fn counted_so_far(server: &Server, name: &str) -> Option<u64> {
    let stderr = server.stderr_so_far();
    let line = stderr.lines().rev().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Waits until this many fibers are left.
fn until_alive(server: &Server, fibers: u64) {
    until("the other fibers had ended", || {
        let before = server.stderr_so_far().len();
        server.signal(Signal::USR1);
        let last = "fibers_runnable_max";
        until("the table was printed", || server.stderr_so_far()[before..].contains(last));
        let count = |name| counted_so_far(server, name).unwrap_or(0);
        count("fibers_begun") - count("fibers_ended") == fibers
    });
}

/// Returns a connection that was served once and stays open.
fn kept(server: &Server) -> Client {
    let mut client = server.connect();
    assert_eq!(client.get("/hello.txt").text(), "hello");
    client
}

mod on_demand {
    use super::*;

    #[test]
    fn each_of_thousands_of_connections_has_a_fiber_and_none_is_left() {
        let root = Root::with_hello();
        for mechanism in ["epoll-et", "poll"] {
            let server = serve(&root, &["--mechanism", mechanism]);
            let mut crowd: Vec<_> = (0..3000).map(|_| kept(&server)).collect();
            for client in &mut crowd {
                assert_eq!(client.get("/hello.txt").text(), "hello");
            }
            drop(crowd);
            // The accepting fiber.
            until_alive(&server, 1);
            let stopped = server.stop_cleanly();
            assert_eq!(count(&stopped, "fibers_max"), 3001);
            assert_eq!(count(&stopped, "fibers_begun"), count(&stopped, "fibers_ended"));
        }
    }

    #[test]
    fn a_deadline_ends_the_fiber_of_its_connection() {
        let root = Root::with_hello();
        let deadlines = ["--idle-timeout", "200ms", "--header-timeout", "200ms"];
        let server = serve(&root, &deadlines);
        let mut idle = kept(&server);
        let silent = server.connect();
        let mut halfway = server.connect();
        halfway.send("GET /hello.txt HT");
        assert_eq!(halfway.reply().status, 408);
        assert!(halfway.is_closed());
        assert!(idle.is_closed());
        until_alive(&server, 1);
        drop(silent);
        server.stop_cleanly();
    }

    #[test]
    fn fibers_end_when_their_connections_are_closed_to_make_room() {
        let root = Root::with_hello();
        let server = serve(&root, &["--max-conns", "40"]);
        let _crowd: Vec<_> = (0..200).map(|_| kept(&server)).collect();
        let stopped = server.stop_cleanly();
        assert!(count(&stopped, "evicted") > 0);
        // The accepting fiber, those of open connections, and of the quarter just closed.
        let fibers_max = count(&stopped, "fibers_max");
        assert!(fibers_max <= 1 + 40 + 10, "{fibers_max}");
    }

    #[test]
    fn the_end_does_not_wait_for_suspended_fibers() {
        let root = Root::with_hello();
        root.write_noise("large", 8 << 20);
        for mechanism in weir_tests::mechanisms() {
            let options = ["--mechanism", mechanism, "--drain-timeout", "200ms"];
            let server = serve(&root, &options);
            let _idle: Vec<_> = (0..20).map(|_| kept(&server)).collect();
            let _silent = server.connect();
            let mut halfway = kept(&server);
            halfway.send("GET /hello.txt HT");
            let mut download = Client::connect_narrow(server.address());
            download.send(request("GET", "/large", &[]));
            download.head().unwrap();
            let stopped = server.stop_cleanly();
            assert_eq!(count(&stopped, "fibers_begun"), count(&stopped, "fibers_ended"));
            assert_eq!(count(&stopped, "accepted"), count(&stopped, "closed"), "{mechanism}");
        }
    }

    #[test]
    fn every_policy_is_served_by_fibers() {
        let root = Root::with_hello();
        for policy in ["limit", "match-close", "timed", "codel", "adaptive"] {
            for preset in ["default", "accept1", "eager+close", "cm"] {
                let server = serve(&root, &["--preset", preset, "--accept-policy", policy]);
                let mut crowd: Vec<_> = (0..50).map(|_| kept(&server)).collect();
                for client in &mut crowd {
                    assert_eq!(client.get("/hello.txt").text(), "hello", "{policy} {preset}");
                }
                server.stop_cleanly();
            }
        }
    }
}

mod pool {
    use super::*;

    #[test]
    fn a_fiber_serves_its_accepted_connections_one_after_the_other() {
        let root = Root::with_hello();
        for name in ["x", "a", "b"] {
            root.write(name, name);
        }
        for mechanism in weir_tests::mechanisms() {
            let log = root.outside().join(format!("{mechanism}.log"));
            let options = ["--mechanism", mechanism, "--access-log", log.to_str().unwrap()];
            let server = serve_pool(&root, "1", "2", &options);
            let mut first = server.connect();
            assert_eq!(first.get("/x").text(), "x");
            let (mut second, mut third) = (server.connect(), server.connect());
            third.send(request("GET", "/b", &[]));
            // Both are accepted together now.
            drop(first);
            (0..3).for_each(|_| assert_eq!(second.get("/a").text(), "a"));
            drop(second);
            assert_eq!(third.reply().text(), "b");
            server.stop_cleanly();
            assert_eq!(targets_in(&fs::read_to_string(log).unwrap()), "/x /a /a /a /b");
        }
    }

    /// Returns the targets of an access log, in order.
    fn targets_in(log: &str) -> String {
        let targets = log.lines().map(|line| line.split('"').nth(1).unwrap());
        let targets: Vec<_> = targets.map(|line| line.split(' ').nth(1).unwrap()).collect();
        targets.join(" ")
    }

    #[test]
    fn a_pool_of_one_serves_every_connection() {
        let root = Root::with_hello();
        for mechanism in weir_tests::mechanisms() {
            for limit in ["1", "auto", "inf"] {
                let server = serve_pool(&root, "1", limit, &["--mechanism", mechanism]);
                for _ in 0..100 {
                    assert_eq!(server.get("/hello.txt").text(), "hello", "{mechanism}");
                }
                let stopped = server.stop_cleanly();
                assert_eq!(count(&stopped, "fibers_max"), 1);
            }
        }
    }

    #[test]
    fn no_more_connections_are_open_than_there_are_fibers() {
        let root = Root::with_hello();
        let server = serve_pool(&root, "3", "1", &[]);
        let crowd: Vec<_> = (0..3).map(|_| kept(&server)).collect();
        let mut late: Vec<_> = (0..10).map(|_| server.connect()).collect();
        late.iter_mut().for_each(|client| client.send(request("GET", "/hello.txt", &[])));
        drop(crowd);
        // Each closes after its reply, and makes room for the next.
        for mut client in late {
            assert_eq!(client.reply().text(), "hello");
        }
        let stopped = server.stop_cleanly();
        assert_eq!(count(&stopped, "open_max"), 3);
        assert_eq!(count(&stopped, "fibers_begun"), 3);
    }

    #[test]
    fn pending_connections_do_not_keep_a_busy_pool_awake() {
        let root = Root::with_hello();
        // With epoll2 no wait sleeps while a connection is open.
        for mechanism in weir_tests::mechanisms().into_iter().filter(|name| *name != "epoll2") {
            let server = serve_pool(&root, "1", "1", &["--mechanism", mechanism]);
            let mut busy = kept(&server);
            let mut waiting = server.connect();
            waiting.send(request("GET", "/hello.txt", &[]));
            (0..200).for_each(|_| assert_eq!(busy.get("/hello.txt").text(), "hello"));
            drop(busy);
            assert_eq!(waiting.reply().text(), "hello");
            let calls = count(&server.stop_cleanly(), "getevents_calls");
            assert!(calls < 1000, "{mechanism}: {calls} waits for 202 requests");
        }
    }

    #[test]
    fn fibers_without_work_serve_several_listeners() {
        let root = Root::with_hello();
        let unix = format!("unix:{}", root.outside().join("weir.socket").display());
        let listen = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--listen", &unix];
        let server = serve_pool(&root, "2", "2", &listen);
        for address in server.addresses.iter().cycle().take(30) {
            assert_eq!(Client::connect(address).get("/hello.txt").text(), "hello");
        }
        server.stop_cleanly();
    }

    #[test]
    fn connections_pending_at_the_end_are_served() {
        let root = Root::with_hello();
        for fibers in ["1", "4"] {
            let server = serve_pool(&root, fibers, "1", &["--drain-timeout", "10m"]);
            let busy: Vec<_> = (0..fibers.parse().unwrap()).map(|_: u32| kept(&server)).collect();
            let mut waiting: Vec<_> = (0..8).map(|_| server.connect()).collect();
            waiting.iter_mut().for_each(|client| client.send(request("GET", "/hello.txt", &[])));
            server.signal(Signal::TERM);
            for mut client in waiting {
                assert_eq!(client.reply().text(), "hello");
            }
            drop(busy);
            let stopped = server.wait();
            assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
            assert_eq!(count(&stopped, "fibers_begun"), count(&stopped, "fibers_ended"));
        }
    }

    #[test]
    fn an_impossible_combination_is_refused_at_the_start() {
        let root = Root::with_hello();
        let wrong: [(&[&str], &str); 5] = [
            (&["--arch-option", "pool=4"], "accept policy other than limit"),
            (&["--preset", "cm", "--arch-option", "pool=4"], "--accept-on-close"),
            (&["--arch-option", "pool=100001"], "from 0 to 100000"),
            (&["--arch-option", "stack-kib=8"], "from 32 to 1024"),
            (&["--arch-option", "pool=100000", "--accept-limit", "1"], "vm.max_map_count"),
        ];
        for (options, sentence) in wrong {
            let is_unlimited = mappings_each().is_none() || mappings_max() > 200_000;
            if sentence == "vm.max_map_count" && is_unlimited {
                println!("SKIPPED: vm.max_map_count does not bound the fibers here");
                continue;
            }
            let arguments = ["serve", root.path().to_str().unwrap(), "--listen", "127.0.0.1:0"];
            let mut command = Command::new(WEIR);
            let stopped = run(command.args(arguments).args(ON_DEMAND).args(options));
            assert_eq!(stopped.status.code(), Some(2), "{options:?}: {}", stopped.stderr);
            assert!(stopped.stderr.contains(sentence), "{}", stopped.stderr);
        }
    }
}

mod stacks {
    use super::*;

    /// Starts a server with address space for some hundred stacks.
    fn serve_with_few_stacks(root: &Root, options: &[&str]) -> Server {
        let served = root.path().to_str().unwrap();
        let serve = [WEIR, "serve", served, "--listen", "127.0.0.1:0"];
        let stacks = ["--arch-option", "stack-kib=1024"];
        let arguments = [&serve[..], &ON_DEMAND, &stacks, options].concat();
        Server::start_in_shell("ulimit -v 500000; exec \"$@\"", Stdio::null(), &arguments)
    }

    #[test]
    fn running_out_of_stacks_is_survived() {
        let root = Root::with_hello();
        // A policy that drops no connection, so that each is counted when it is closed.
        let server = serve_with_few_stacks(&root, &["--accept-policy", "limit"]);
        let mut crowd: Vec<_> = (0..1000).map(|_| server.connect()).collect();
        until("there was no stack", || server.stderr_so_far().contains("cannot accept"));
        let ask = |client: &mut Client| client.try_send(request("GET", "/hello.txt", &[]));
        let sent: Vec<_> = crowd.iter_mut().map(ask).collect();
        // Some were refused, but the server continues.
        drop((crowd, sent));
        for _ in 0..100 {
            assert_eq!(server.get("/hello.txt").text(), "hello");
        }
        let stopped = server.stop_cleanly();
        assert!(count(&stopped, "accept_failed") > 0);
        assert_eq!(count(&stopped, "accepted"), count(&stopped, "closed"));
        assert_eq!(count(&stopped, "fibers_begun"), count(&stopped, "fibers_ended"));
    }

    #[test]
    fn a_loop_sleeps_while_deferred_connections_wait_for_stacks() {
        const CROWD: usize = 600;
        let root = Root::with_hello();
        let newest = ["--accept-policy", "codel", "--delay-target", "1ms"];
        let others = ["--controls-off", "backlog,syn-filter,stale,close", "--bench-endpoints"];
        let server = serve_with_few_stacks(&root, &[&newest[..], &others].concat());
        server.signal(Signal::STOP);
        until("it is stopped", || is_stopped(server.id()));
        // While the first are served, the others grow old: those are deferred.
        let connect = |nth| {
            let mut client = server.connect();
            let target = if nth < 10 { "/.weir/burn?us=10000" } else { "/hello.txt" };
            client.send(request("GET", target, &[]));
            client
        };
        let mut crowd: Vec<_> = (0..CROWD).map(connect).collect();
        server.signal(Signal::CONT);
        until("all were accepted", || {
            server.signal(Signal::USR1);
            counted_so_far(&server, "accepted") == Some(CROWD as u64)
        });
        let before = sleeps_of(server.id(), "weir-0");
        until("the loop sleeps", || sleeps_of(server.id(), "weir-0") >= before + 3);
        // What is given back is used at once.
        crowd.drain(..CROWD / 3 * 2);
        for client in &mut crowd {
            assert_eq!(client.reply().text(), "hello");
        }
        drop(crowd);
        let stopped = server.stop_cleanly();
        assert!(count(&stopped, "fibers_max") < CROWD as u64);
        assert_eq!((count(&stopped, "accept_failed"), count(&stopped, "end_failed")), (0, 0));
        assert_eq!(count(&stopped, "fibers_begun"), count(&stopped, "fibers_ended"));
    }

    #[test]
    fn the_smallest_stack_is_enough_for_every_kind_of_reply() {
        let root = Root::with_hello();
        let files = root.write_file_set();
        let log = root.outside().join("log");
        let options = ["--arch-option", "stack-kib=32", "--listing", "--bench-endpoints"];
        let logged = ["--access-log", log.to_str().unwrap(), "--log-format", "json"];
        let server = serve(&root, &[&options[..], &logged].concat());
        for file in &files {
            assert_same(&server.get(&file.target).body, &file.body, &file.target);
        }
        let missing = format!("/{}", "x/".repeat(2000));
        let odd = ["/", "/dir", "/dir/nested/", "/.weir/burn?us=1", "/%2e%2e/secret.txt", &missing];
        for target in odd {
            server.get(target);
        }
        let fields: Vec<_> = (0..60).map(|n| format!("X-{n}: {}", "y".repeat(60))).collect();
        let fields: Vec<_> = fields.iter().map(String::as_str).collect();
        server.get_with("/hello.txt", &fields);
        for field in [
            "Range: bytes=0-1,3-3,-1",
            "Range: bytes=9-",
            "Accept-Encoding: gzip;q=0.5, br, zstd",
            "If-None-Match: \"x\", W/\"y\"",
            "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT",
        ] {
            server.get_with("/app.js", &[field]);
            server.get_with("/hello.txt", &[field]);
        }
        for bytes in ["\0\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\n\r\n"]
        {
            let mut client = server.connect();
            client.send(bytes);
            assert!(client.reply().status >= 400);
        }
        server.stop_cleanly();
    }
}
