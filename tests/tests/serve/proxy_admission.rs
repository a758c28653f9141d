//! Admission to upstreams, as the client on one side and the origin on the other see it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;
use rustix::process::Signal;

use weir_tests::origin::{Gate, Received, by_hand, reply};
use weir_tests::wait::{until, until_within};
use weir_tests::{Client, Origin, Server, Setup, request, suite};

use crate::WEIR;

suite! {
    every_forwarding_architecture:
    requests_of_the_high_class_are_sent_first,
    a_tunnel_takes_no_place,
    a_stream_of_events_takes_no_place,
    what_a_post_streams_keeps_its_place_to_its_end,
    a_request_keeps_its_place_while_the_server_works_though_its_client_has_gone,
    an_interim_reply_does_not_end_the_server_s_work,
    a_client_has_waited_since_it_asked_for_a_place,
    a_place_is_not_kept_for_ever_for_a_client_that_has_gone,
    requests_that_the_server_passes_over_keep_half_of_the_places,
    validations_that_the_server_passes_over_keep_half_of_the_places,
    a_reply_whose_client_has_gone_is_awaited_as_long_as_another_waits_for_it,
    a_failure_counts_though_the_client_has_gone,
    a_client_that_leaves_in_the_middle_of_its_reply_has_not_departed,
    a_client_that_ends_its_side_with_its_request_gets_the_reply,
    a_client_that_ends_its_side_with_its_content_gets_the_reply,
    a_client_that_ends_its_side_gets_the_reply_of_a_server_that_reads_slowly,
    a_client_that_ends_its_side_with_a_slow_request_waits_for_another_s_reply,
    a_loop_that_ends_leaves_its_places_to_another,
}

/// Digits at the front of content that tell its length.
const LENGTH_DIGITS: usize = 8;

fn proxy(setup: &Setup, url: &str, options: &[&str]) -> Server {
    let few = ["--workers", "1", "--max-in-flight", "1", "--queue-target", "20s"];
    setup.proxy(&[url], &[&few, options].concat())
}

/// An origin whose first connections are handled by a test; it says "done" on the others.
struct ByHand {
    url: String,
    opened: Arc<AtomicUsize>,
}

impl ByHand {
    /// Starts it. `count`: connections that `handle` gets, after the head of their request.
    fn start(count: usize, handle: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        let opened = Arc::new(AtomicUsize::new(0));
        let at_origin = Arc::clone(&opened);
        let address = by_hand(move |mut stream, _| {
            if at_origin.fetch_add(1, Ordering::Relaxed) < count {
                handle(&mut stream);
            } else {
                done(&mut stream);
            }
        });
        Self { url: format!("http://{address}"), opened }
    }

    /// Number of connections so far.
    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

/// Sends the last reply on a connection.
fn done(stream: &mut TcpStream) {
    let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\n";
    let _ = stream.write_all(&[head, &b"done"[..]].concat());
}

/// Asserts that no more than `count` requests are sent to the origin for a while: it is at work.
fn assert_waits(count: usize, mut sent: impl FnMut() -> usize) {
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(10));
        assert_eq!(sent(), count, "the server is at work");
    }
}

/// Waits until a count has a value.
fn until_counted(server: &Server, name: &str, value: u64) {
    until(name, || {
        server.signal(Signal::USR1);
        server.stats_so_far().is_some_and(|stats| stats["total"][name] == value)
    });
}

/// Waits a while for a reply to the first client, has a second ask, and the first leave. Returns
/// the second, which waits for a place.
fn leave_to_a_second(server: &Server, first: Client) -> Client {
    wait_for_a_reply();
    let mut second = server.connect();
    second.send(request("GET", "/second", &[]));
    until_counted(server, "upstream_requests", 2);
    drop(first);
    until_counted(server, "upstream_departed", 1);
    second
}

/// Waits for a sixteenth of the time for which a place is then kept for a client that leaves: long
/// enough for a test to see that it is.
fn wait_for_a_reply() {
    thread::sleep(Duration::from_millis(500));
}

fn requests_of_the_high_class_are_sent_first(setup: &Setup) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = Origin::start(move |_| {
        at_origin.pass();
        reply(b"done")
    });
    let server = proxy(setup, &origin.url(), &["--high-priority", "/pay"]);
    let mut clients = [(); 4].map(|()| server.connect());
    let targets = ["/first", "/normal", "/pay/../low", "/%70ay/now"];
    for ((client, target), nth) in clients.iter_mut().zip(targets).zip(1..) {
        client.send(request("GET", target, &[]));
        until_counted(&server, "upstream_requests", nth);
    }
    gate.open();
    for client in &mut clients {
        assert_eq!(client.reply().text(), "done");
    }
    let lines: Vec<_> = origin.received().iter().map(|one| one.line().to_owned()).collect();
    let expected = ["/first", "/%70ay/now", "/normal", "/pay/../low"];
    let expected = expected.map(|path| format!("GET {path} HTTP/1.1"));
    assert_eq!(lines, expected);
    server.stop_cleanly();
}

fn a_tunnel_takes_no_place(setup: &Setup) {
    let origin = Origin::start(|received: &Received| {
        if received.fields("upgrade").is_empty() {
            return reply(b"plain");
        }
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n".to_vec()
    });
    let server = proxy(setup, &origin.url(), &[]);
    let mut tunnel = server.connect();
    tunnel.send(request("GET", "/tunnel", &["Connection: Upgrade", "Upgrade: echo"]));
    assert_eq!(tunnel.head().unwrap().status, 101);
    assert_eq!(server.get("/plain").text(), "plain");
    // It is still open.
    tunnel.send(request("GET", "/through", &["Connection: Upgrade", "Upgrade: echo"]));
    until("the bytes pass", || origin.received().len() == 3);
}

fn a_stream_of_events_takes_no_place(setup: &Setup) {
    let origin = Origin::start(|received: &Received| {
        if received.line().starts_with("GET /plain") {
            return reply(b"plain");
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        [head.as_bytes(), b"8\r\ndata: 1\n\r\n"].concat()
    });
    let server = proxy(setup, &origin.url(), &[]);
    let mut stream = server.connect();
    stream.send(request("GET", "/events", &["Accept: text/event-stream"]));
    assert_eq!(stream.head().unwrap().status, 200);
    // The stream has not ended.
    assert_eq!(server.get("/plain").text(), "plain");
    assert_eq!(origin.received().len(), 2);
}

fn what_a_post_streams_keeps_its_place_to_its_end(setup: &Setup) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = ByHand::start(1, move |stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        let _ = stream.write_all(&[head.as_bytes(), b"8\r\ndata: 1\n\r\n"].concat());
        at_origin.pass();
        let _ = stream.write_all(b"0\r\n\r\n");
    });
    let server = proxy(setup, &origin.url, &[]);
    let mut stream = server.connect();
    stream.send(request("POST", "/complete", &["Accept: text/event-stream", "Content-Length: 0"]));
    let head = stream.head().unwrap();
    let mut other = server.connect();
    other.send(request("GET", "/", &[]));
    until_counted(&server, "upstream_requests", 2);
    assert_waits(1, || origin.opened());
    gate.open();
    assert_eq!(stream.body(head).unwrap().text(), "data: 1\n");
    assert_eq!(other.reply().text(), "done");
    assert_eq!(server.stop_cleanly().stats()["total"]["upstream_waited"], 1);
}

/// Starts an origin that answers a request that begins so only once its gate is open.
fn gated_at(start: &'static str) -> (Origin, Gate) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = Origin::start(move |received: &Received| {
        if received.line().starts_with(start) {
            at_origin.pass();
        }
        reply(b"done")
    });
    (origin, gate)
}

fn a_request_keeps_its_place_while_the_server_works_though_its_client_has_gone(setup: &Setup) {
    let (origin, gate) = gated_at("GET /first");
    let server = proxy(setup, &origin.url(), &[]);
    let mut first = server.connect();
    first.send(request("GET", "/first", &[]));
    until("the first is sent", || origin.received().len() == 1);
    let mut second = leave_to_a_second(&server, first);
    assert_waits(1, || origin.received().len());
    gate.open();
    assert_eq!(second.reply().text(), "done");
    // Its connection is kept, too.
    assert_eq!((origin.connections(), origin.in_flight_max()), (1, 1));
    server.stop_cleanly();
}

fn an_interim_reply_does_not_end_the_server_s_work(setup: &Setup) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = ByHand::start(1, move |stream| {
        let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        at_origin.pass();
        done(stream);
    });
    let server = proxy(setup, &origin.url, &[]);
    let mut first = server.connect();
    first.send(request("GET", "/first", &[]));
    assert_eq!(first.head().unwrap().status, 103);
    let mut second = leave_to_a_second(&server, first);
    assert_waits(1, || origin.opened());
    gate.open();
    assert_eq!(second.reply().text(), "done");
    server.stop_cleanly();
}

fn a_client_has_waited_since_it_asked_for_a_place(setup: &Setup) {
    let (first_gate, gate) = (Gate::default(), Gate::default());
    let at_origin = [first_gate.clone(), gate.clone()];
    let origin = Origin::start(move |received: &Received| {
        match received.line() {
            "GET /first HTTP/1.1" => at_origin[0].pass(),
            "GET /second HTTP/1.1" => at_origin[1].pass(),
            _ => {}
        }
        reply(b"done")
    });
    let server = proxy(setup, &origin.url(), &[]);
    let mut first = server.connect();
    first.send(request("GET", "/first", &[]));
    until("the first is sent", || origin.received().len() == 1);
    let mut second = server.connect();
    second.send(request("GET", "/second", &[]));
    // None of it is after it is sent.
    wait_for_a_reply();
    first_gate.open();
    until("the second is sent", || origin.received().len() == 2);
    drop(second);
    let mut third = server.connect();
    third.send(request("GET", "/third", &[]));
    until_counted(&server, "upstream_requests", 3);
    thread::sleep(Duration::from_millis(300));
    assert_waits(2, || origin.received().len());
    gate.open();
    assert_eq!(third.reply().text(), "done");
    assert_eq!(origin.in_flight_max(), 1);
}

fn a_place_is_not_kept_for_ever_for_a_client_that_has_gone(setup: &Setup) {
    let (origin, gate) = gated_at("GET /never");
    let server = proxy(setup, &origin.url(), &[]);
    let mut first = server.connect();
    first.send(request("GET", "/never", &[]));
    until("the first is sent", || origin.received().len() == 1);
    // It has waited, and does not end its side with its request.
    thread::sleep(Duration::from_millis(150));
    drop(first);
    assert_eq!(server.get("/second").text(), "done");
    gate.open();
    let stats = server.stop_cleanly().stats()["total"].clone();
    assert_eq!((&stats["upstream_timeouts"], &stats["upstream_failed"]), (&0.into(), &0.into()));
}

/// Starts an origin that handles its first connections as it is told, and lets the next `count`
/// hang. Returns it, and how many of these have been closed.
fn hanging(
    before: usize,
    handle: impl Fn(&mut TcpStream) + Send + Sync + 'static,
    count: usize,
) -> (ByHand, Arc<AtomicUsize>) {
    let given_up = Arc::new(AtomicUsize::new(0));
    let (at_origin, begun) = (Arc::clone(&given_up), AtomicUsize::new(0));
    let origin = ByHand::start(before + count, move |stream| {
        if begun.fetch_add(1, Ordering::Relaxed) < before {
            return handle(stream);
        }
        let _ = stream.read(&mut [0]);
        at_origin.fetch_add(1, Ordering::Relaxed);
    });
    (origin, given_up)
}

/// Asserts that of two requests that an origin lets hang, which have two of three places, one is
/// given up once others have passed them, and the other is not.
fn assert_one_is_given_up(server: &Server, given_up: &AtomicUsize) {
    assert_eq!(given_up.load(Ordering::Relaxed), 0, "the server may come to them");
    for _ in 0..3 {
        assert_eq!(server.get("/").text(), "done");
    }
    let within = Duration::from_secs(10);
    until_within(within, "the oldest is given up", || given_up.load(Ordering::Relaxed) == 1);
    assert_eq!(server.get("/").text(), "done");
    assert_eq!(given_up.load(Ordering::Relaxed), 1);
}

/// Options under which two requests that hang have more than half of the places.
const THREE_PLACES: [&str; 6] = ["--workers", "1", "--max-in-flight", "3", "--queue-target", "20s"];

fn requests_that_the_server_passes_over_keep_half_of_the_places(setup: &Setup) {
    for options in [&[][..], &["--cache", "16M"]] {
        let (origin, given_up) = hanging(0, |_| {}, 2);
        let server = setup.proxy(&[&origin.url], &[&THREE_PLACES[..], options].concat());
        let hung = ["/first", "/second"].map(|target| {
            let mut client = server.connect();
            client.send(request("GET", target, &[]));
            client
        });
        until("both are sent", || origin.opened() == 2);
        // A sixteenth of the time for which their places are kept.
        thread::sleep(Duration::from_secs(1));
        drop(hung);
        until_counted(&server, "upstream_departed", 2);
        assert_one_is_given_up(&server, &given_up);
    }
}

fn validations_that_the_server_passes_over_keep_half_of_the_places(setup: &Setup) {
    let stale = |stream: &mut TcpStream| {
        let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\
                     Cache-Control: max-age=0, stale-while-revalidate=60\r\n\r\n";
        let _ = stream.write_all(&[head, &b"stale"[..]].concat());
    };
    let (origin, given_up) = hanging(2, stale, 2);
    let server = setup.proxy(&[&origin.url], &[&THREE_PLACES[..], &["--cache", "16M"]].concat());
    for count in [2, 4] {
        for target in ["/first", "/second"] {
            assert_eq!(server.get(target).text(), "stale");
        }
        until("each is asked for", || origin.opened() == count);
    }
    assert_one_is_given_up(&server, &given_up);
}

fn a_reply_whose_client_has_gone_is_awaited_as_long_as_another_waits_for_it(setup: &Setup) {
    let (origin, gate) = gated_at("GET /first");
    let server = proxy(setup, &origin.url(), &["--cache", "16M"]);
    let mut leader = server.connect();
    leader.send(request("GET", "/first", &[]));
    until("the first is sent", || origin.received().len() == 1);
    wait_past_the_end_of_a_request();
    drop(leader);
    until_counted(&server, "upstream_departed", 1);
    let mut follower = server.connect();
    follower.send(request("GET", "/first", &[]));
    until_counted(&server, "proxy_cache_collapsed", 1);
    // For longer than the first would keep its place for a client that has gone.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(origin.received().len(), 1);
    gate.open();
    assert_eq!(follower.reply().text(), "done");
    server.stop_cleanly();
}

/// Time alone decides: nothing else happens that the loop would wake for.
#[test]
fn a_place_in_excess_of_a_limit_that_has_sunk_is_given_up_in_time() {
    // By its first limit of 20, half of the places are theirs.
    const HUNG: usize = 10;
    let (given_up, begun) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let at_origin = Arc::clone(&given_up);
    let origin = ByHand::start(HUNG + 1, move |stream| {
        if begun.fetch_add(1, Ordering::Relaxed) < HUNG {
            let _ = stream.read(&mut [0]);
            at_origin.fetch_add(1, Ordering::Relaxed);
        } else {
            let _ = stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let options = ["--workers", "1", "--in-flight-policy", "aimd", "--queue-target", "20s"];
    let server = Server::proxy(WEIR, &[&origin.url], &options);
    let hung: Vec<_> = (0..HUNG)
        .map(|nth| {
            let mut client = server.connect();
            client.send(request("GET", &format!("/{nth}"), &[]));
            client
        })
        .collect();
    until("all are sent", || origin.opened() == HUNG);
    // A sixteenth of the time for which their places are kept otherwise.
    thread::sleep(Duration::from_secs(1));
    drop(hung);
    until_counted(&server, "upstream_departed", HUNG as u64);
    assert_eq!(server.get("/").status, 500);
    let within = Duration::from_secs(10);
    until_within(within, "one is given up", || given_up.load(Ordering::Relaxed) == 1);
}

fn a_failure_counts_though_the_client_has_gone(setup: &Setup) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let broken = ByHand::start(1, move |_| at_origin.pass());
    let late = ByHand::start(1, |stream| _ = stream.read(&mut [0]));
    for (origin, counted) in [(broken, "upstream_failed"), (late, "upstream_timeout_first_byte")] {
        let server = proxy(setup, &origin.url, &["--first-byte-timeout", "2s"]);
        let mut client = server.connect();
        client.send(request("GET", "/", &[]));
        until("it is sent", || origin.opened() == 1);
        // Its place is kept for longer than the server may take.
        wait_for_a_reply();
        drop(client);
        until_counted(&server, "upstream_departed", 1);
        gate.open();
        until_counted(&server, counted, 1);
        assert_eq!(server.get("/").text(), "done");
        let stats = server.stop_cleanly().stats()["total"].clone();
        let failures = ["upstream_failed", "upstream_timeouts"].map(|name| stats[name].as_u64());
        assert_eq!(failures.into_iter().flatten().sum::<u64>(), 1, "{counted}");
    }
}

fn a_client_that_leaves_in_the_middle_of_its_reply_has_not_departed(setup: &Setup) {
    let origin = ByHand::start(2, |stream| {
        let mut head = [0; 4];
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        let _ = stream.read(&mut head);
    });
    let options = ["--workers", "1", "--max-in-flight", "3", "--drain-timeout", "100ms"];
    let server = setup.proxy(&[&origin.url], &options);
    let mut clients = [server.connect(), server.connect()];
    for client in &mut clients {
        client.send(request("GET", "/", &[]));
        assert_eq!(client.head().unwrap().status, 200);
    }
    let [left, stays] = clients;
    // It has waited, and does not end its side with its request.
    thread::sleep(Duration::from_millis(150));
    drop(left);
    until_counted(&server, "closed", 1);
    let stopped = server.stop_cleanly();
    drop(stays);
    assert_eq!(stopped.stats()["total"]["upstream_departed"], 0);
}

fn a_client_that_ends_its_side_with_its_request_gets_the_reply(setup: &Setup) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = Origin::start(move |received: &Received| {
        at_origin.pass();
        if received.body.is_empty() { reply(&[b'x'; 300_000]) } else { reply(&received.body) }
    });
    let server = proxy(setup, &origin.url(), &[]);
    let get = request("GET", "/", &[]);
    let post = request("POST", "/", &["Content-Length: 4"]) + "half";
    // The first has a place, the others wait for one; the last has asked for more than one thing.
    let sent = [get.clone(), post.clone(), [&*post, &*get, &*get].concat()];
    // The end is there when the request is read.
    server.signal(Signal::STOP);
    let mut clients = sent.map(|sent| {
        let mut client = server.connect();
        client.send(sent);
        client.finish_sending();
        client
    });
    server.signal(Signal::CONT);
    until_counted(&server, "upstream_requests", 3);
    // One that had gone would have been taken out by then.
    thread::sleep(Duration::from_millis(50));
    gate.open();
    let lengths = [&[300_000][..], &[4], &[4, 300_000, 300_000]];
    for (client, lengths) in clients.iter_mut().zip(lengths) {
        for &length in lengths {
            assert_eq!(client.reply().body.len(), length);
        }
        assert!(client.ends());
    }
    assert_eq!(server.stop_cleanly().stats()["total"]["upstream_departed"], 0);
}

/// Waits for longer than an end may come behind its request.
fn wait_past_the_end_of_a_request() {
    thread::sleep(Duration::from_millis(100));
}

fn a_client_that_ends_its_side_with_its_content_gets_the_reply(setup: &Setup) {
    // The content is taken before a place is asked for, or once it is there.
    for options in [&[][..], &["--request-buffer", "0"]] {
        let (origin, gate) = gated_at("GET /first");
        let server = proxy(setup, &origin.url(), options);
        let mut first = server.connect();
        first.send(request("GET", "/first", &[]));
        until("the first is sent", || origin.received().len() == 1);
        let mut chunked = server.connect();
        let head = request("POST", "/", &["Transfer-Encoding: chunked"]);
        chunked.send_last(head + "4\r\nhalf\r\n0\r\n\r\n");
        let mut late = server.connect();
        late.send(request("POST", "/", &["Content-Length: 4"]));
        wait_past_the_end_of_a_request();
        late.send_last("half");
        until_counted(&server, "upstream_waited", 2);
        // One that had gone would have been taken out by then.
        thread::sleep(Duration::from_millis(50));
        gate.open();
        for client in [&mut first, &mut chunked, &mut late] {
            assert_eq!(client.reply().text(), "done", "{options:?}");
        }
        assert!(chunked.ends() && late.ends());
        assert!(origin.received()[1..].iter().all(|post| post.body == b"half"));
        assert_eq!(server.stop_cleanly().stats()["total"]["upstream_departed"], 0);
    }
}

fn a_client_that_ends_its_side_gets_the_reply_of_a_server_that_reads_slowly(setup: &Setup) {
    // More than the buffers on its way; their ends fall into different parts of what leaves the
    // proxy at once.
    let lengths = (0..12).map(|nth| (8 << 20) - nth * (64 << 10));
    let origin = by_hand(|mut stream, bytes| {
        sockopt::set_socket_recv_buffer_size(&stream, 64 << 10).unwrap();
        let mut told = bytes;
        let mut piece = vec![0; 128 << 10];
        while told.len() < LENGTH_DIGITS {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => told.extend_from_slice(&piece[..count]),
                _ => return,
            }
        }
        let length: usize = str::from_utf8(&told[..LENGTH_DIGITS]).unwrap().parse().unwrap();
        let mut left = length - told.len();
        while left > 0 {
            // The last of it waits in the proxy for longer than an end may come behind it.
            thread::sleep(Duration::from_millis(30));
            let count = left.min(piece.len());
            if stream.read_exact(&mut piece[..count]).is_err() {
                return;
            }
            left -= count;
        }
        done(&mut stream);
    });
    let options = ["--workers", "1", "--max-in-flight", "inf"];
    let server = setup.proxy(&[&format!("http://{origin}")], &options);
    thread::scope(|scope| {
        for length in lengths {
            let mut client = server.connect();
            scope.spawn(move || {
                client.send(request("POST", "/", &[&format!("Content-Length: {length}")]));
                let told = format!("{length:0LENGTH_DIGITS$}");
                client.send([told.as_bytes(), &vec![b'x'; length - told.len()]].concat());
                client.finish_sending();
                assert_eq!(client.reply().text(), "done");
            });
        }
    });
    server.stop_cleanly();
}

fn a_client_that_ends_its_side_with_a_slow_request_waits_for_another_s_reply(setup: &Setup) {
    let (origin, gate) = gated_at("GET /first");
    let server = proxy(setup, &origin.url(), &["--cache", "16M"]);
    let mut leader = server.connect();
    let get = request("GET", "/first", &[]);
    leader.send(&get);
    until("the first is sent", || origin.received().len() == 1);
    let mut follower = server.connect();
    let (front, rest) = get.split_at(10);
    follower.send(front);
    wait_past_the_end_of_a_request();
    follower.send_last(rest);
    until_counted(&server, "proxy_cache_collapsed", 1);
    // If it had gone, that would have been noticed by then.
    thread::sleep(Duration::from_millis(50));
    gate.open();
    for client in [&mut leader, &mut follower] {
        assert_eq!(client.reply().text(), "done");
    }
    assert!(follower.ends());
    server.stop_cleanly();
}

/// Returns the loop that has accepted the connections since `before`, and how many each has by now.
fn loop_of_the_last(server: &Server, before: &[u64; 2]) -> (usize, [u64; 2]) {
    let mut accepted = *before;
    until("the connection is accepted", || {
        server.signal(Signal::USR1);
        let Some(stats) = server.stats_so_far() else { return false };
        accepted = [0, 1].map(|index| stats["loops"][index]["accepted"].as_u64().unwrap());
        accepted != *before
    });
    (usize::from(accepted[1] > before[1]), accepted)
}

fn a_loop_that_ends_leaves_its_places_to_another(setup: &Setup) {
    let (origin, gate) = gated_at("GET /first");
    let options = ["--workers", "2", "--max-in-flight", "1", "--queue-target", "20s"];
    let server = setup.proxy(&[&origin.url()], &options);
    let mut first = server.connect();
    let (first_loop, mut accepted) = loop_of_the_last(&server, &[0, 0]);
    first.send(request("GET", "/first", &[]));
    until("the first is sent", || origin.received().len() == 1);
    wait_for_a_reply();
    let mut second = loop {
        let client = server.connect();
        let (its_loop, by_now) = loop_of_the_last(&server, &accepted);
        accepted = by_now;
        if its_loop != first_loop {
            break client;
        }
    };
    second.send(request("GET", "/second", &[]));
    until_counted(&server, "upstream_waited", 1);
    drop(first);
    until_counted(&server, "upstream_departed", 1);
    server.signal(Signal::TERM);
    assert_eq!(second.reply().text(), "done");
    gate.open();
    server.wait().check_end();
}
