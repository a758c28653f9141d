//! Threads and processes: their specific features, which of them serves which connection, and how
//! they end together. Requirements on every architecture are tested elsewhere, for all of them.

use std::process::Command;
use std::thread;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use weir_tests::family::{children_of, parent_of, signal};
use weir_tests::files::Served;
use weir_tests::server::{Stopped, UNHURRIED, run};
use weir_tests::wait::until;
use weir_tests::{Client, Root, Server, assert_same, request};

use crate::WEIR;
use crate::admin::{ADMIN, admin};
use crate::memory::figure;

/// Starts one worker of an architecture.
fn serve(arch: &str, options: &[&str], root: &Root) -> Server {
    let options = [&["--workers", "1", "--arch", arch][..], options].concat();
    let server = Server::start(WEIR, &options, root);
    assert!(server.ready.contains(&format!("({arch},")), "{}", server.ready);
    server
}

fn counted(stopped: &Stopped, name: &str) -> u64 {
    stopped.stats()["total"][name].as_u64().unwrap()
}

/// Sends a GET and closes after the reply, which has arrived when this returns.
fn get_and_close(server: &Server) {
    let mut client = server.connect();
    assert_eq!(client.get_with("/hello.txt", &["Connection: close"]).text(), "hello");
    assert!(client.is_closed());
}

mod on_demand {
    use super::*;

    #[test]
    fn each_connection_has_a_thread_and_the_acceptor_is_one_more() {
        let root = Root::with_hello();
        let server = serve("threads", &[], &root);
        let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/hello.txt").text(), "hello");
        }
        drop(clients);
        assert_eq!(counted(&server.stop_cleanly(), "threads_max"), 41);
    }

    #[test]
    fn a_thread_that_is_done_serves_another_connection() {
        let root = Root::with_hello();
        let server = serve("threads", &[], &root);
        (0..100).for_each(|_| get_and_close(&server));
        let threads_max = counted(&server.stop_cleanly(), "threads_max");
        assert!((2..50).contains(&threads_max), "{threads_max} threads for 100 connections");
    }

    #[test]
    fn a_connection_waits_while_no_thread_can_be_started() {
        let root = Root::with_hello();
        let options = ["--arch-option", "stack-kib=65536", "--accept-limit", "1"];
        let server = serve("threads", &options, &root);
        limit_memory(&server, 80 << 20);
        let mut first = server.connect();
        assert_eq!(first.get("/hello.txt").text(), "hello");
        let mut second = server.connect();
        second.send(request("GET", "/hello.txt", &[]));
        until("the message was printed", || {
            server.stderr_so_far().contains("no thread is available")
        });
        first.finish_sending();
        assert_eq!(second.reply().text(), "hello");
        server.stop_cleanly();
    }

    /// Limits the address space of the process to its current size plus `more` bytes (RLIMIT_AS,
    /// prlimit(2)).
    fn limit_memory(server: &Server, more: u64) {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", server.id())).unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        let limit = Some(pages * rustix::param::page_size() as u64 + more);
        let limit = Rlimit { current: limit, maximum: limit };
        prlimit(Pid::from_raw(server.id() as i32), Resource::As, limit).unwrap();
    }

    #[test]
    fn accept_on_close_is_refused_with_one_sentence() {
        for arch in ["threads", "processes"] {
            let options = ["serve", "/", "--arch", arch, "--preset", "cm"];
            let stopped = run(Command::new(WEIR).args(options));
            assert_eq!(stopped.status.code(), Some(2));
            let says = format!("--accept-on-close=on makes no sense with --arch {arch}: ");
            assert!(stopped.stderr.contains(&says), "{}", stopped.stderr);
        }
    }
}

mod pool {
    use super::*;

    #[test]
    fn one_thread_serves_a_connection_to_its_end_before_the_next() {
        let root = Root::with_hello();
        let options = ["--arch-option", "pool=1", "--accept-limit", "1"];
        let server = serve("threads", &options, &root);
        let mut first = server.connect();
        assert_eq!(first.get("/hello.txt").text(), "hello");
        let mut second = server.connect();
        second.send(request("GET", "/hello.txt", &[]));
        for _ in 0..20 {
            assert_eq!(first.get("/hello.txt").text(), "hello");
        }
        drop(first);
        assert_eq!(second.reply().text(), "hello");
        drop(second);
        let stopped = server.stop_cleanly();
        assert_eq!((counted(&stopped, "open_max"), counted(&stopped, "requests")), (1, 22));
        assert_eq!(counted(&stopped, "threads_max"), 2);
    }

    #[test]
    fn connections_accepted_together_are_served_one_after_the_other() {
        let root = Root::with_hello();
        // As in the papers: accepted first, and served afterwards.
        let options = ["--preset", "accept10", "--arch-option", "pool=2"];
        let server = serve("threads", &options, &root);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50).for_each(|_| get_and_close(&server)));
            }
        });
        let stopped = server.stop_cleanly();
        assert_eq!((counted(&stopped, "accepted"), counted(&stopped, "requests")), (400, 400));
        assert!(counted(&stopped, "open_max") <= 20);
    }

    #[test]
    fn a_pool_that_is_full_of_silent_clients_serves_on_after_their_deadline() {
        let root = Root::with_hello();
        let options = ["--arch-option", "pool=3", "--header-timeout", "100ms"];
        let server = serve("threads", &options, &root);
        let silent: Vec<_> = (0..9).map(|_| server.connect()).collect();
        get_and_close(&server);
        assert!(silent.into_iter().all(|mut client| client.ends()));
        assert!(counted(&server.stop_cleanly(), "timeout_header") > 0);
    }

    #[test]
    fn the_stack_of_a_thread_that_has_served_nobody_is_in_the_account_of_memory() {
        let root = Root::with_hello();
        let of_memory = ["--arch-option", "pool=1000", "--memory", "1G"];
        let server = serve("threads", &[&of_memory[..], &ADMIN].concat(), &root);
        let address = admin(&server);
        // Served by a single thread. The stacks of the others are most of the memory in use.
        let mut client = server.connect();
        until("all stacks are in the account", || {
            assert_eq!(client.get("/hello.txt").text(), "hello");
            let stacks = figure(&address, "memory_stacks_bytes");
            stacks >= 1000 * (16 << 10) && figure(&address, "memory_used_bytes") > stacks
        });
        drop(client);
        server.stop_cleanly();
    }
}

/// Requirements on every variant of threads and processes.
mod each_variant {
    use super::*;

    const VARIANTS: [(&str, &[&str]); 3] = [
        ("threads", &[]),
        ("threads", &["--arch-option", "pool=24"]),
        ("processes", &["--arch-option", "pool=24"]),
    ];

    #[test]
    fn the_counters_equal_what_the_clients_sent() {
        let root = Root::with_hello();
        for (arch, options) in VARIANTS {
            let server = serve(arch, &[&UNHURRIED[..], options].concat(), &root);
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        (0..20).for_each(|_| get_and_close(&server));
                        let mut kept = server.connect();
                        for _ in 0..20 {
                            assert_eq!(kept.get("/hello.txt").text(), "hello");
                        }
                    });
                }
            });
            server.signal(Signal::USR1);
            until("the table was printed", || server.stderr_so_far().contains("requests"));
            let stopped = server.stop_cleanly();
            let counted = ["accepted", "closed", "requests", "replies", "status_2xx"]
                .map(|name| counted(&stopped, name));
            assert_eq!(counted, [168, 168, 320, 320, 320], "{arch} {options:?}");
        }
    }

    #[test]
    fn processor_time_and_context_switches_of_all_threads_are_reported() {
        let root = Root::with_hello();
        for (arch, options) in VARIANTS {
            let options = [options, &["--bench-endpoints", "--profile-calls"]].concat();
            let server = serve(arch, &options, &root);
            let burns = request("GET", "/.weir/burn?us=20000", &[]);
            let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
            clients.iter_mut().for_each(|client| client.send(&burns));
            clients.iter_mut().for_each(|client| assert_eq!(client.reply().status, 200));
            let stopped = server.stop_cleanly();
            let cpu_ns = counted(&stopped, "cpu_user_ns") + counted(&stopped, "cpu_system_ns");
            // A burn is counted work: it takes less time on a processor that has become faster.
            assert!(cpu_ns >= 50_000_000, "{arch} {options:?}: {cpu_ns}");
            assert!(counted(&stopped, "context_switches_voluntary") >= 5, "{arch}");
            let calls = &stopped.stats()["total"]["calls"];
            let made = |call: &str| calls[call]["count"].as_u64().unwrap();
            let failed = counted(&stopped, "accept_would_block");
            assert_eq!((made("accept4") - failed, made("sendto")), (5, 5), "{arch}: {calls}");
        }
    }

    #[test]
    fn a_connection_closed_at_its_deadline_is_never_mistaken_for_a_new_one() {
        let root = Root::new();
        let files: Vec<_> = (0..4).map(|i| root.write_noise(&format!("f{i}"), 5000 + i)).collect();
        for (arch, options) in VARIANTS {
            let deadlines = ["--header-timeout", "20ms", "--idle-timeout", "20ms"];
            let options = [options, &deadlines, &["--max-conns", "48"]].concat();
            let server = serve(arch, &options, &root);
            // Some clients stay silent, some send a request and stay, and some reset: descriptor
            // numbers are reused all the time. On a busy machine any client may be late, and cut,
            // but none gets the file of another.
            let ask = |client: &mut Client, file: &Served| {
                let sent = client.try_send(request("GET", &file.target, &[]));
                let reply = sent.ok().and_then(|()| client.try_reply().ok());
                reply.map_or(0, |reply| {
                    u64::from(
                        reply.status == 200 && {
                            assert_same(
                                &reply.body,
                                &file.body,
                                format_args!("{arch} {options:?}"),
                            );
                            true
                        },
                    )
                })
            };
            let rounds = |file: &Served| -> u64 {
                let round = |_| {
                    let (mut silent, mut kept) = (server.connect(), server.connect());
                    let mut replies = ask(&mut kept, file);
                    server.connect().reset();
                    replies += ask(&mut server.connect(), file);
                    assert!(kept.ends() && silent.ends(), "{arch} {options:?}");
                    replies
                };
                (0..40).map(round).sum()
            };
            let replies: u64 = thread::scope(|scope| {
                let all: Vec<_> = files.iter().map(|file| scope.spawn(|| rounds(file))).collect();
                all.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            let stopped = server.stop_cleanly();
            assert!(counted(&stopped, "timeout_header") > 0, "{arch} {options:?}");
            assert!((1..=counted(&stopped, "status_2xx")).contains(&replies), "{arch}");
        }
    }

    #[test]
    fn a_stop_wakes_threads_that_wait_for_their_clients() {
        let root = Root::with_hello();
        root.write_noise("large", 8 << 20);
        for (arch, options) in VARIANTS {
            let patient = ["--idle-timeout", "10m", "--header-timeout", "10m"];
            let options = [options, &patient, &["--drain-timeout", "200ms"]].concat();
            let server = serve(arch, &options, &root);
            let mut kept: Vec<_> = (0..6).map(|_| server.connect()).collect();
            for client in &mut kept {
                assert_eq!(client.get("/hello.txt").text(), "hello");
            }
            let mut silent: Vec<_> = (0..6).map(|_| server.connect()).collect();
            let mut slow = Client::connect_narrow(server.address());
            slow.send(request("GET", "/large", &[]));
            slow.head().unwrap();
            server.stop_cleanly();
            assert!(kept.iter_mut().all(Client::is_closed), "{arch} {options:?}");
            assert!(silent.iter_mut().all(Client::ends), "{arch} {options:?}");
            assert!(slow.ends(), "{arch} {options:?}");
        }
    }

    #[test]
    fn a_failed_start_is_one_sentence_and_exit_status_2() {
        let root = Root::with_hello();
        let served = root.path().to_str().unwrap();
        let missing = root.outside().join("missing");
        let missing = missing.to_str().unwrap();
        let log = format!("{missing}/log");
        let wrong: [(&str, &[&str]); 4] = [
            (missing, &[]),
            (served, &["--access-log", &log]),
            (served, &["--arch-option", "pool=10001"]),
            (served, &["--arch-option", "mechanism=1"]),
        ];
        for arch in ["threads", "processes"] {
            for (dir, options) in wrong {
                let start = ["serve", dir, "--listen", "127.0.0.1:0", "--arch", arch];
                let stopped = run(Command::new(WEIR).args(start).args(options));
                assert_eq!(stopped.status.code(), Some(2), "{arch} {options:?}");
                assert_eq!(stopped.stderr.lines().count(), 1, "{arch}: {}", stopped.stderr);
            }
        }
    }
}

mod processes {
    use super::*;

    /// Returns the master process and its children.
    fn master_and_children(server: &Server) -> (u32, Vec<u32>) {
        let masters = children_of(server.id());
        assert_eq!(masters.len(), 1, "{masters:?}");
        (masters[0], children_of(masters[0]))
    }

    fn kill(pid: u32) {
        signal(pid, Signal::KILL);
    }

    fn has_died(server: &Server) -> bool {
        server.stderr_so_far().contains("has died (signal 9)")
    }

    #[test]
    fn a_dead_child_loses_only_its_connection_and_is_replaced() {
        let root = Root::with_hello();
        let server = serve("processes", &["--arch-option", "pool=2"], &root);
        let mut clients = [server.connect(), server.connect()];
        for client in &mut clients {
            assert_eq!(client.get("/hello.txt").text(), "hello");
        }
        let (master, children) = master_and_children(&server);
        assert_eq!(children.len(), 2);
        kill(children[0]);
        until("the death was reported", || has_died(&server));
        let mut alive = 0;
        for client in &mut clients {
            let sent = client.try_send(request("GET", "/hello.txt", &[]));
            alive += u32::from(sent.is_ok() && client.try_reply().is_ok());
        }
        assert_eq!(alive, 1);
        get_and_close(&server);
        until("it was replaced", || children_of(master).len() == 2);
        let stopped = server.stop_cleanly();
        assert_eq!(counted(&stopped, "children_lost"), 1);
        assert!(!children_of(master).contains(&children[0]));
    }

    /// Number of descriptors by which a process is woken (eventfd(2)).
    fn wakers(pid: u32) -> usize {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let targets = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        targets.filter(|target| target.as_os_str() == "anon_inode:[eventfd]").count()
    }

    #[test]
    fn a_child_that_serves_has_one_waker_and_not_that_of_the_start() {
        let root = Root::with_hello();
        let server = serve("processes", &["--arch-option", "pool=2"], &root);
        let (master, children) = master_and_children(&server);
        let have_one = |children: &[u32]| children.iter().all(|child| wakers(*child) == 1);
        until("they have begun", || have_one(&children));
        kill(children[0]);
        until("the death was reported", || has_died(&server));
        until("it was replaced", || {
            let now = children_of(master);
            now.len() == 2 && have_one(&now)
        });
        server.stop_cleanly();
    }

    /// Has a child misuse its channels in a way that it outlives.
    fn misuse(server: &Server, way: &str) {
        assert_eq!(server.get(&format!("/.weir/try/{way}/")).text(), "done", "{way}");
    }

    #[test]
    fn a_child_has_nothing_to_say_in_the_name_of_its_master() {
        let root = Root::with_hello();
        let options = ["--arch-option", "pool=2", "--bench-endpoints"];
        let server = serve("processes", &options, &root);
        misuse(&server, "forge");
        get_and_close(&server);
        let stopped = server.stop_cleanly();
        assert!(!stopped.stderr.contains("has died"), "{}", stopped.stderr);
        assert_eq!(counted(&stopped, "requests"), 2);
    }

    #[test]
    fn a_child_that_reports_its_end_untold_is_replaced() {
        let root = Root::with_hello();
        let options = ["--arch-option", "pool=2", "--bench-endpoints"];
        let server = serve("processes", &options, &root);
        let (master, children) = master_and_children(&server);
        let mut client = server.connect();
        client.send(request("GET", "/.weir/try/resign/", &[]));
        assert!(client.is_closed());
        until("it was replaced", || {
            let now = children_of(master);
            now.len() == 2 && now.iter().any(|child| !children.contains(child))
        });
        get_and_close(&server);
        assert_eq!(counted(&server.stop_cleanly(), "children_lost"), 1);
    }

    #[test]
    fn a_master_sleeps_though_a_child_has_closed_its_channel() {
        let root = Root::with_hello();
        let options = ["--arch-option", "pool=2", "--bench-endpoints"];
        let server = serve("processes", &options, &root);
        misuse(&server, "hush");
        let status = format!("/proc/{}/status", master_and_children(&server).0);
        until("the master slept", || {
            std::fs::read_to_string(&status).is_ok_and(|status| status.contains("State:\tS"))
        });
        // What a child reports at its end is lost.
        server.stop();
    }

    #[test]
    fn no_process_outlives_the_main_process() {
        let root = Root::with_hello();
        let mut server = serve("processes", &["--arch-option", "pool=5"], &root);
        let mut client = server.connect();
        assert_eq!(client.get("/hello.txt").text(), "hello");
        let (master, mut all) = master_and_children(&server);
        assert_eq!(all.len(), 5);
        all.push(master);
        server.signal(Signal::KILL);
        until("it was killed", || server.has_ended());
        until("all had ended", || all.iter().all(|&pid| parent_of(pid).is_none()));
        assert!(client.ends());
    }

    #[test]
    fn children_die_with_their_master() {
        let root = Root::with_hello();
        let server = serve("processes", &["--arch-option", "pool=3"], &root);
        let (master, children) = master_and_children(&server);
        kill(master);
        until("all had ended", || children.iter().all(|&pid| parent_of(pid).is_none()));
        let told = "the master of a worker's children has died, and they with it";
        until("it was told", || server.stderr_so_far().contains(told));
        // Others serve in their place.
        assert_eq!(server.get("/hello.txt").text(), "hello");
        server.stop();
    }

    #[test]
    fn there_are_no_more_children_than_connections_allowed() {
        let root = Root::with_hello();
        let server = serve("processes", &["--max-conns", "3"], &root);
        assert_eq!(master_and_children(&server).1.len(), 3);
        get_and_close(&server);
        server.stop_cleanly();
    }

    #[test]
    fn each_child_opens_the_log_again() {
        let root = Root::with_hello();
        let (log, rotated) = (root.outside().join("log"), root.outside().join("log.1"));
        let options = ["--arch-option", "pool=4", "--access-log", log.to_str().unwrap()];
        let server = serve("processes", &options, &root);
        let lines = |path| std::fs::read_to_string(path).unwrap_or_default().lines().count();
        // Each child has one of them.
        let mut kept: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for client in &mut kept {
            assert_eq!(client.get("/hello.txt").text(), "hello");
        }
        until("they were logged", || lines(&log) == 4);
        std::fs::rename(&log, &rotated).unwrap();
        server.signal(Signal::HUP);
        until("the log was opened again", || log.exists());
        server.signal(Signal::USR1);
        until("all had answered", || server.stderr_so_far().contains("requests"));
        for client in &mut kept {
            assert_eq!(client.get("/hello.txt").text(), "hello");
        }
        server.stop_cleanly();
        assert_eq!((lines(&rotated), lines(&log)), (4, 4));
    }
}
