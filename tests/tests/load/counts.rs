//! Counts and requests of `weir load`, compared with servers that count too. Each run ends by
//! itself once all is done, so that no figure depends on the speed of the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

use tempfile::TempDir;
use weir_tests::faulty::{Behaviour, Faulty};
use weir_tests::load::{
    ConnectionRecord, End, LoadRun, RecordingServer, ReplySettings, RequestRecord, load,
};
use weir_tests::wait::until;
use weir_tests::{Root, Server};

use crate::WEIR;

/// Runs a load whose arrivals are limited by `options`, and in which nothing times out.
fn done(options: &str, url: impl Display) -> LoadRun {
    let ran = load(WEIR, &format!("--quiet --timeout 20s --duration 60 {options}"), url);
    assert_eq!(ran.errors(), BTreeMap::new(), "{options}");
    assert_eq!(ran.count("planned"), ran.count("replies"), "{options}");
    ran
}

fn url(server: &Faulty) -> String {
    format!("http://{}/", server.address())
}

/// Asserts that both sides count the same connections, requests and bytes.
fn agree(ran: &LoadRun, server: &RecordingServer) -> Vec<ConnectionRecord> {
    let connections = server.connections();
    let total = |of: fn(&ConnectionRecord) -> u64| connections.iter().map(of).sum::<u64>();
    assert_eq!(connections.len() as u64, ran.count("connects"));
    assert_eq!(total(|connection| connection.requests.len() as u64), ran.count("replies"));
    assert_eq!(total(|connection| connection.bytes_in), ran.count("sent_bytes"));
    assert_eq!(total(|connection| connection.bytes_out), ran.count("received_bytes"));
    connections
}

fn requests_per_connection(connections: &[ConnectionRecord]) -> BTreeSet<usize> {
    connections.iter().map(|connection| connection.requests.len()).collect()
}

fn write(dir: &TempDir, name: &str, text: &str) -> String {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn targets(server: &RecordingServer) -> Vec<String> {
    let target = |line: &String| line.split(' ').nth(1).unwrap().to_owned();
    server.lines().iter().map(target).collect()
}

mod connections {
    use super::*;

    #[test]
    fn an_arrival_is_a_request_on_a_connection_of_its_own() {
        let server = RecordingServer::plain();
        let ran = done("--rate 400 --num 60", server.url("/a?b=c"));
        let connections = agree(&ran, &server);
        assert_eq!((connections.len(), ran.count("arrivals"), ran.count("sessions")), (60, 60, 60));
        assert_eq!(requests_per_connection(&connections), BTreeSet::from([1]));
        assert!(server.lines().iter().all(|line| line == "GET /a?b=c HTTP/1.1"));
        assert!(
            connections
                .iter()
                .all(|connection| connection.requests[0].head.contains("Connection: close\r\n"))
        );
        assert!(
            connections[0].requests[0].head.contains(&format!("Host: {}\r\n", server.address()))
        );
        assert_eq!(ran.json["counts"]["statuses"]["2xx"], 60);
        let head = ran.count("received_bytes") - ran.count("received_head_bytes");
        assert_eq!(head, 60 * 1000);
    }

    #[test]
    fn a_connection_carries_so_many_requests_one_after_the_other() {
        let server = RecordingServer::plain();
        let ran = done("--rate 200 --num 20 --requests-per-conn 5", server.url("/"));
        let connections = agree(&ran, &server);
        assert_eq!((connections.len(), ran.count("arrivals"), ran.count("replies")), (20, 20, 100));
        assert_eq!(requests_per_connection(&connections), BTreeSet::from([5]));
        for connection in &connections {
            assert!(one_at_a_time(&connection.requests));
            let closes = |request: &RequestRecord| request.head.contains("Connection: close\r\n");
            let closing: Vec<bool> = connection.requests.iter().map(closes).collect();
            assert_eq!(closing, [false, false, false, false, true]);
        }
    }

    #[test]
    fn so_many_requests_are_pipelined_and_no_more() {
        // It answers only once four requests are there: without them nothing would ever come.
        let server = RecordingServer::start(ReplySettings { body_bytes: 10, hold: 4 });
        let ran = done("--rate 100 --num 10 --requests-per-conn 8 --pipeline 4", server.url("/"));
        for connection in agree(&ran, &server) {
            assert_eq!(connection.requests.len(), 8);
            // The fifth comes after the answer to the fourth.
            assert!(connection.requests[4].read > connection.requests[3].answered.unwrap());
        }
    }

    #[test]
    fn shared_connections_are_opened_once_and_all_used() {
        let server = RecordingServer::plain();
        let ran = done("--rate 400 --num 100 --conns 10", server.url("/"));
        let connections = agree(&ran, &server);
        assert_eq!((connections.len(), ran.count("replies")), (10, 100));
        assert!(connections.iter().all(|connection| !connection.requests.is_empty()));
        assert_eq!((ran.count("reconnects"), ran.count("errors")), (0, 0));
        assert_eq!(ran.json["connections"]["open_max"], 10);
    }

    #[test]
    fn a_closed_loop_has_one_request_a_connection_under_way() {
        let server = RecordingServer::plain();
        let ran = done("--closed 3 --requests-per-conn inf --num 200", server.url("/"));
        let connections = agree(&ran, &server);
        assert_eq!((connections.len(), ran.count("replies")), (3, 200));
        assert!(connections.iter().all(|connection| one_at_a_time(&connection.requests)));
        let server = RecordingServer::plain();
        let ran = done("--closed 3 --requests-per-conn 5 --num 20", server.url("/"));
        let connections = agree(&ran, &server);
        assert_eq!((connections.len(), ran.count("replies")), (20, 100));
        assert!(ran.json["connections"]["open_max"].as_u64().unwrap() <= 3);
    }

    #[test]
    fn a_server_that_closes_while_requests_remain_is_connected_again() {
        let server = Faulty::start(Behaviour::GoodOneRequest);
        let ran = done("--rate 100 --num 10 --requests-per-conn 3", url(&server));
        assert_eq!((server.accepted(), server.requests()), (30, 30));
        assert_eq!((ran.count("replies"), ran.count("connects")), (30, 30));
        assert_eq!((ran.count("arrivals"), ran.count("sessions")), (10, 10));
        assert_eq!(ran.count("reconnects"), 20);
    }

    #[test]
    fn whoever_is_told_to_close_closes() {
        for (close, end) in
            [("server", End::AsRequested), ("client", End::Closed), ("reset", End::Reset)]
        {
            let server = RecordingServer::plain();
            let ran = done(&format!("--rate 200 --num 10 --close {close}"), server.url("/"));
            agree(&ran, &server);
            until("all have ended", || {
                server.connections().iter().all(|connection| connection.end.is_some())
            });
            for connection in server.connections() {
                assert_eq!(connection.end.unwrap().1, end);
                let asks = connection.requests[0].head.contains("Connection: close\r\n");
                assert_eq!(asks, end == End::AsRequested);
            }
        }
    }

    #[test]
    fn sources_are_taken_in_turn() {
        let server = RecordingServer::plain();
        let ran = done("--rate 200 --num 20 --source 127.0.0.2-127.0.0.5", server.url("/"));
        let mut peers = BTreeMap::<IpAddr, u64>::new();
        agree(&ran, &server)
            .iter()
            .for_each(|connection| *peers.entry(connection.peer.ip()).or_default() += 1);
        let expected = (2..=5).map(|last| (IpAddr::from([127, 0, 0, last]), 5)).collect();
        assert_eq!(peers, expected);
    }

    fn one_at_a_time(request: &[RequestRecord]) -> bool {
        request.windows(2).all(|pair| pair[1].read > pair[0].answered.unwrap())
    }
}

mod background {
    use super::*;

    #[test]
    fn idle_connections_are_held_while_requests_go_on() {
        let server = RecordingServer::plain();
        let ran = done("--rate 200 --num 60 --idle 200", server.url("/"));
        assert_eq!((ran.count("background_opened"), ran.count("background_lost")), (200, 0));
        assert_eq!((ran.count("replies"), ran.count("connects")), (60, 60));
        until("all have ended", || {
            server.connections().iter().all(|connection| connection.end.is_some())
        });
        let connections = server.connections();
        let (idle, busy): (Vec<_>, Vec<_>) =
            connections.iter().partition(|connection| connection.requests.is_empty());
        assert_eq!((idle.len(), busy.len()), (200, 60));
        let over =
            busy.iter().map(|connection| connection.requests[0].answered.unwrap()).max().unwrap();
        assert!(
            idle.iter()
                .all(|connection| connection.end.unwrap().0 > over && connection.bytes_in == 0)
        );
        assert!(ran.json["connections"]["open_max"].as_u64().unwrap() > 200);
    }

    #[test]
    fn idle_connections_are_held_until_the_last_thread_has_nothing_left_to_do() {
        if available_parallelism().unwrap().get() < 2 {
            println!("skipped: there is one processor here");
            return;
        }
        let server = RecordingServer::plain();
        // Of two threads with an idle connection each, one has a session and the other has none.
        let ran = done("--wsess 1,6,0.1 --rate 100 --threads 2 --idle 2", server.url("/"));
        assert_eq!((ran.count("background_opened"), ran.count("background_lost")), (2, 0));
        until("all have ended", || {
            server.connections().iter().all(|connection| connection.end.is_some())
        });
        let connections = server.connections();
        let (idle, busy): (Vec<_>, Vec<_>) =
            connections.iter().partition(|connection| connection.requests.is_empty());
        assert_eq!((idle.len(), busy.len(), busy[0].requests.len()), (2, 1, 6));
        let over = busy[0].requests[5].answered.unwrap();
        assert!(idle.iter().all(|connection| connection.end.unwrap().0 > over), "{idle:?}");
    }

    #[test]
    fn idle_connections_that_the_server_closes_are_opened_again() {
        let root = Root::with_hello();
        let server =
            Server::start(WEIR, &["--header-timeout", "300ms", "--idle-timeout", "300ms"], &root);
        let url = format!("http://{}/hello.txt", server.authority());
        let ran = done("--rate 50 --num 75 --idle 20", url);
        let (opened, lost) = (ran.count("background_opened"), ran.count("background_lost"));
        assert!(opened > 20 && lost > 0 && opened <= 20 + lost, "{opened} opened, {lost} lost");
        let stats = server.stop_cleanly().stats();
        assert_eq!(stats["total"]["accepted"], opened + ran.count("connects"));
    }

    #[test]
    fn slow_senders_send_their_requests_in_pieces() {
        let server = RecordingServer::plain();
        let ran = done("--rate 50 --num 100 --slow-senders 3", server.url("/"));
        let connections = server.connections();
        // They never ask for a close.
        let (fast, slow): (Vec<&RequestRecord>, Vec<&RequestRecord>) = connections
            .iter()
            .flat_map(|connection| &connection.requests)
            .partition(|request| request.head.contains("Connection: close\r\n"));
        assert_eq!((fast.len() as u64, connections.len()), (ran.count("replies"), 103));
        assert!(fast.iter().all(|request| request.reads == 1));
        assert!(!slow.is_empty() && slow.iter().all(|request| request.reads > 1), "{slow:?}");
        assert_eq!((ran.count("background_opened"), ran.count("background_lost")), (3, 0));
        // The last reply of each may not have been read.
        let replies = ran.count("background_replies");
        assert!(
            (slow.len().saturating_sub(3) as u64..=slow.len() as u64).contains(&replies),
            "{replies}"
        );
    }

    #[test]
    fn slow_readers_leave_their_replies_with_the_server() {
        let server = RecordingServer::start(ReplySettings { body_bytes: 8 << 20, hold: 1 });
        let ran = done("--rate 20 --num 5 --slow-readers 2", server.url("/"));
        assert_eq!((ran.count("replies"), ran.count("background_replies")), (5, 0));
        let connections = server.connections();
        let written = connections
            .iter()
            .filter(|connection| connection.requests.iter().any(|request| request.written));
        assert_eq!(written.count(), 5);
        assert_eq!(connections.len(), 7);
        assert_eq!(ran.count("background_opened"), 2);
    }
}

mod requests {
    use super::*;

    #[test]
    fn methods_bodies_and_headers_are_sent_as_given() {
        let dir = TempDir::new().unwrap();
        let body = write(&dir, "body", "some=content\n");
        let server = RecordingServer::plain();
        let options = format!("--rate 200 --num 5 --method POST --body {body} --header X-A:b");
        let ran = done(&options, server.url("/form"));
        for connection in agree(&ran, &server) {
            let request = &connection.requests[0];
            assert_eq!(request.line, "POST /form HTTP/1.1");
            assert_eq!(request.body, b"some=content\n");
            assert!(request.head.contains("Content-Length: 13\r\n"), "{}", request.head);
            assert!(request.head.to_lowercase().contains("x-a: b\r\n"), "{}", request.head);
        }
    }

    #[test]
    fn a_reply_to_head_has_no_body() {
        let server = RecordingServer::plain();
        let ran = done("--rate 200 --num 5 --method HEAD --requests-per-conn 3", server.url("/"));
        let connections = agree(&ran, &server);
        assert_eq!((connections.len(), ran.count("replies")), (5, 15));
        assert_eq!(ran.count("received_bytes"), ran.count("received_head_bytes"));
    }

    #[test]
    fn http_1_0_asks_to_keep_a_connection() {
        let server = RecordingServer::plain();
        let ran = done("--rate 200 --num 5 --http 1.0 --requests-per-conn 2", server.url("/"));
        for connection in agree(&ran, &server) {
            let [first, last] = &connection.requests[..] else { panic!("{connection:?}") };
            assert!(first.line.ends_with(" HTTP/1.0") && first.head.contains("keep-alive"));
            assert!(!last.head.contains("keep-alive"));
        }
    }

    #[test]
    fn every_form_of_a_good_reply_is_whole() {
        let good = Behaviour::Good { body_bytes: Behaviour::BODY_BYTES };
        for (behaviour, connections) in [
            (good, 10),
            (Behaviour::Chunked, 10),
            (Behaviour::Interim100, 10),
            (Behaviour::Http10, 30),
            (Behaviour::CloseFramed, 30),
        ] {
            let server = Faulty::start(behaviour.clone());
            let ran = done("--rate 200 --num 10 --requests-per-conn 3", url(&server));
            assert_eq!((server.accepted(), server.requests()), (connections, 30), "{behaviour:?}");
            assert_eq!(ran.json["counts"]["statuses"]["2xx"], 30, "{behaviour:?}");
            assert!(ran.count("received_bytes") > 30 * Behaviour::BODY_BYTES as u64);
        }
    }

    #[test]
    fn statuses_are_counted_by_class() {
        let root = Root::with_hello();
        root.write("directory/index.html", "index");
        let server = Server::start(WEIR, &["--access-log", "-"], &root);
        let dir = TempDir::new().unwrap();
        let list = write(&dir, "list", "/hello.txt\n/absent\n/hello.txt\n/directory\n");
        let url = format!("http://{}/", server.authority());
        let ran = done(&format!("--rate 200 --num 40 --wlog y,{list}"), url);
        let stopped = server.stop_cleanly();
        for (class, status, count) in
            [("2xx", " 200 ", 20), ("4xx", " 404 ", 10), ("3xx", " 301 ", 10)]
        {
            assert_eq!(ran.json["counts"]["statuses"][class], count, "{}", stopped.stdout);
            let logged = stopped.stdout.lines().filter(|line| line.contains(status)).count();
            assert_eq!(logged, count);
        }
    }
}

mod arrivals {
    use super::*;

    #[test]
    fn the_warm_up_is_sent_and_not_counted() {
        let server = RecordingServer::plain();
        let ran = load(WEIR, "--quiet --rate 100 --duration 1 --warmup 0.5", server.url("/"));
        assert_eq!((ran.count("planned"), ran.count("replies")), (50, 50));
        assert_eq!(server.lines().len(), 100);
        assert_eq!(ran.each.len(), 50);
        assert_eq!((ran.whole_count("connected"), ran.whole_count("replies")), (100, 100));
    }

    #[test]
    fn the_cool_down_is_sent_and_not_counted() {
        let server = RecordingServer::plain();
        let options = "--quiet --rate 100 --duration 1 --warmup 0.25 --cooldown 0.25";
        let ran = load(WEIR, options, server.url("/"));
        assert_eq!((ran.count("planned"), ran.count("replies")), (50, 50));
        assert_eq!((server.lines().len(), ran.each.len()), (100, 50));
        assert_eq!((ran.whole_count("connected"), ran.whole_count("replies")), (100, 100));
        assert_eq!(ran.json["rates"]["scheduled_s"], 0.5);
        assert_eq!(ran.json["description"]["cooldown_s"], 0.25);
        assert!(ran.is_valid());
    }

    #[test]
    fn the_whole_run_is_what_the_server_has_counted() {
        let root = Root::with_hello();
        for (options, warm_up) in [("", 100), ("--closed 2 --num 300", 1), ("--idle 20", 100)] {
            let server = Server::start(WEIR, &[], &root);
            let url = format!("http://{}/hello.txt", server.authority());
            let pace = if options.contains("--closed") { "" } else { "--rate 200" };
            let common = "--quiet --timeout 20s --duration 1 --warmup 0.5";
            let ran = load(WEIR, &format!("{common} {pace} {options}"), url);
            let stats = server.stop_cleanly().stats();
            let connections = ran.whole_count("connected") + ran.whole_count("background_opened");
            assert_eq!(stats["total"]["accepted"], connections, "{options}");
            assert_eq!(stats["total"]["replies"], ran.whole_count("replies"), "{options}");
            assert_eq!(ran.whole_count("errors"), 0, "{options}");
            let left_out = ran.whole_count("replies") - ran.count("replies");
            assert!(left_out >= warm_up, "{left_out} {options}");
        }
    }

    #[test]
    fn two_threads_do_what_one_does() {
        if available_parallelism().unwrap().get() < 2 {
            println!("skipped: there is one processor here");
            return;
        }
        let dir = TempDir::new().unwrap();
        let list = write(&dir, "list", "/a\n/b\n/c\n/d\n/e\n");
        let sorted = |threads: u32| {
            let server = RecordingServer::plain();
            let shape = "--rate 200 --num 60 --requests-per-conn 2";
            let options = format!("{shape} --wlog y,{list} --threads {threads}");
            let ran = done(&options, server.url("/"));
            agree(&ran, &server);
            assert_eq!(ran.json["threads"].as_array().unwrap().len(), threads as usize);
            // The plan ends where one arrival more would have begun, whichever thread's it is.
            assert_eq!(ran.json["rates"]["scheduled_s"], 0.3, "{threads} threads");
            let mut targets = targets(&server);
            targets.sort_unstable();
            targets
        };
        assert_eq!(sorted(1).len(), 120);
        assert_eq!(sorted(1), sorted(2));
    }

    #[test]
    fn a_seed_is_the_same_run_again() {
        let run = |seed: u64| {
            let server = RecordingServer::plain();
            // One connection after the other, so that the server sees them in order.
            let options = format!("--closed 1 --num 20 --workload specweb99 --mb 10 --seed {seed}");
            let ran = done(&options, server.url("/x/"));
            agree(&ran, &server);
            server.lines()
        };
        let first = run(7);
        assert!(first.len() > 20);
        assert!(first.iter().all(|line| line.starts_with("GET /x/file_set/dir")));
        assert_eq!(first, run(7));
        assert_ne!(first, run(8));
    }
}

mod sessions {
    use super::*;

    const THINK: Duration = Duration::from_millis(80);

    #[test]
    fn bursts_are_as_httperf_sends_them_with_think_times_between() {
        let server = RecordingServer::plain();
        let options = "--rate 100 --wsess 6,5,0.08 --burst-length 3";
        let ran = done(options, server.url("/"));
        let connections = agree(&ran, &server);
        assert_eq!((connections.len(), ran.count("sessions"), ran.count("replies")), (6, 6, 30));
        for connection in &connections {
            let [first, second, third, fourth, fifth] = &connection.requests[..] else {
                panic!("{connection:?}")
            };
            // The first of a burst goes alone, the rest together.
            assert!(second.read > first.answered.unwrap());
            assert!(fourth.read - third.answered.unwrap() >= THINK);
            assert!(fifth.read > fourth.answered.unwrap());
        }
        assert!(ran.stdout.contains("Session rate [sess/s]"), "{}", ran.stdout);
    }

    #[test]
    fn the_rest_of_a_burst_goes_together() {
        let server = RecordingServer::plain();
        let ran = done("--rate 100 --wsess 4,4,0 --burst-length 4", server.url("/"));
        for connection in agree(&ran, &server) {
            // What is written at once is read at once.
            let reads: u64 = connection.requests[1..].iter().map(|request| request.reads).sum();
            assert_eq!(reads, 1, "{connection:?}");
        }
    }

    #[test]
    fn a_session_log_is_played_as_written() {
        let dir = TempDir::new().unwrap();
        let log = "# two sessions\n\
                   /page think=0.08\n    /image1\n    /image2\n\
                   /form method=POST contents=\"a=1&b=2\"\n\
                   \n\
                   /alone method=HEAD\n";
        let path = write(&dir, "log", log);
        let server = RecordingServer::plain();
        let ran = done(&format!("--rate 50 --wsesslog 4,0,{path}"), server.url("/"));
        let connections = agree(&ran, &server);
        assert_eq!((connections.len(), ran.count("sessions"), ran.count("replies")), (4, 4, 10));
        let long: Vec<&ConnectionRecord> =
            connections.iter().filter(|connection| connection.requests.len() == 4).collect();
        assert_eq!(long.len(), 2);
        for connection in long {
            let lines: Vec<&str> =
                connection.requests.iter().map(|request| request.line.as_str()).collect();
            let expected = ["GET /page", "GET /image1", "GET /image2", "POST /form"];
            assert_eq!(lines, expected.map(|line| format!("{line} HTTP/1.1")));
            assert_eq!(connection.requests[3].body, b"a=1&b=2");
            assert!(
                connection.requests[3].read - connection.requests[2].answered.unwrap() >= THINK
            );
        }
        let short = connections
            .iter()
            .filter(|connection| connection.requests[0].line == "HEAD /alone HTTP/1.1");
        assert_eq!(short.count(), 2);
    }

    #[test]
    fn a_list_of_uris_is_taken_once_or_again_and_again() {
        let dir = TempDir::new().unwrap();
        let list = write(&dir, "list", "/a\0/b\0/c\0");
        let run = |options: &str| {
            let server = RecordingServer::plain();
            let ran = done(&format!("--rate 50 {options}"), server.url("/"));
            agree(&ran, &server);
            let mut targets = targets(&server);
            targets.sort_unstable();
            targets
        };
        assert_eq!(run(&format!("--wlog n,{list}")), ["/a", "/b", "/c"]);
        let around = run(&format!("--wlog y,{list} --num 7"));
        assert_eq!(around, ["/a", "/a", "/a", "/b", "/b", "/c", "/c"]);
    }

    #[test]
    fn a_working_set_is_walked_through() {
        let server = RecordingServer::plain();
        let options = "--rate 100 --num 2 --requests-per-conn 10 --wset 20,0.5";
        let ran = done(options, server.url("/set"));
        agree(&ran, &server);
        let mut targets = targets(&server);
        targets.sort_unstable();
        let twice =
            |number: u32| [format!("/set/0/{number}.html"), format!("/set/0/{number}.html")];
        assert_eq!(targets, (0..10).flat_map(twice).collect::<Vec<_>>());
    }

    #[test]
    fn an_access_log_is_replayed_request_by_request() {
        let dir = TempDir::new().unwrap();
        let (first, second) = (dir.path().join("first.log"), dir.path().join("second.log"));
        let root = Root::with_hello();
        root.write("directory/index.html", "index");
        root.write("100%.txt", "percent");
        let serve =
            |log: &Path| Server::start(WEIR, &["--access-log", log.to_str().unwrap()], &root);
        let crawled = serve(&first);
        let mut client = crawled.connect();
        for target in
            ["/", "/hello.txt", "/100%25.txt", "/absent?x=\"1\"", "/directory", "/hello.txt"]
        {
            client.get(target);
        }
        client.head_with("/hello.txt", &[]);
        crawled.stop_cleanly();
        let replayed = serve(&second);
        let options = format!("--quiet --replay {} --speed 100", first.display());
        let ran = load(WEIR, &options, format!("http://{}/", replayed.authority()));
        replayed.stop_cleanly();
        assert_eq!(logged(&first).len(), 7);
        assert_eq!(logged(&first), logged(&second));
        assert_eq!((ran.count("planned"), ran.count("replies")), (7, 7));
    }

    /// Returns method, target and status of each line of a log, sorted.
    fn logged(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| {
                let (_, quoted) = line.split_once("] \"").unwrap();
                let (request, rest) = quoted.split_once(" HTTP/1.1\" ").unwrap();
                format!("{request} {}", rest.split(' ').next().unwrap())
            })
            .collect();
        lines.sort_unstable();
        lines
    }
}
