//! Both directions of a forwarded exchange at once: origins that answer before they have read, and
//! protocols that end one side before the other.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;

use weir_tests::origin::{After, by_hand, reply};
use weir_tests::wait::{TIMEOUT, until};
use weir_tests::{Client, Origin, Root, Server, Setup, request, suite};

use crate::WEIR;
use crate::proxy_buffers::stat;
use crate::sites::serve;

/// Length of a content larger than all the buffers on its way.
const LARGE: usize = 48 << 20;

/// The reply that changes to another protocol.
const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";

suite! {
    every_forwarding_setup:
    large_content_arrives_whole_and_on_a_connection_that_is_kept,
    a_client_that_vanishes_in_the_middle_of_its_content_takes_the_request_along,
    an_origin_that_answers_while_it_reads_is_never_waited_for_in_one_direction,
    an_answer_before_the_content_is_passed_on_though_the_origin_reads_no_more,
    the_end_of_one_side_of_another_protocol_leaves_the_other_open,
}

suite! {
    every_forwarding_architecture:
    what_the_origin_sent_last_in_another_protocol_arrives_whole,
    what_the_origin_sent_last_arrives_though_nothing_can_be_sent_to_it_any_more,
    a_protocol_that_a_reset_has_cut_does_not_end_as_if_it_were_whole,
    a_client_that_sends_nothing_is_told_that_a_reset_has_cut_its_protocol,
    a_reset_that_cuts_what_the_client_has_sent_is_passed_on,
    a_limit_of_content_is_none_of_another_protocol,
    an_interim_reply_does_not_cost_the_client_its_answer,
    a_reply_until_the_close_that_is_cut_by_a_reset_does_not_look_whole,
    a_client_that_reads_nothing_before_it_has_sent_all_is_read,
    a_client_whose_content_nobody_wants_any_more_keeps_no_loop_busy,
}

suite! {
    every_forwarding_architecture_at_once:
    a_slow_client_gives_up_its_place,
}

fn proxy(setup: &Setup, origin: SocketAddr, options: &[&str]) -> Server {
    setup.proxy(&[&format!("http://{origin}")], options)
}

/// Sends a POST with a content of [`LARGE`] bytes in a thread of its own.
pub(crate) fn post_large(client: &Client) -> thread::JoinHandle<()> {
    let mut client = client.another_end();
    thread::spawn(move || {
        let length = format!("Content-Length: {LARGE}");
        let head = request("POST", "/", &[&length]);
        let _ = client.try_send([head.as_bytes(), &vec![b'x'; LARGE]].concat());
    })
}

fn large_content_arrives_whole_and_on_a_connection_that_is_kept(setup: &Setup) {
    const CONTENT_BYTES: u32 = 64 << 20;
    static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        (0..CONTENT_BYTES).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
    });
    let origin = Origin::for_many(|received| {
        let is_same = received.body == *CONTENT;
        (reply(if is_same { b"same" } else { b"other" }), After::Keep)
    });
    let server = proxy(setup, origin.address(), &["--workers", "1"]);
    let mut client = server.connect();
    let length = format!("Content-Length: {CONTENT_BYTES}");
    for _ in 0..2 {
        client.send(request("POST", "/", &[&length]));
        client.send(&*CONTENT);
        assert_eq!(client.reply().text(), "same");
    }
    assert_eq!(origin.connections(), 1);
    let total = server.stop_cleanly().stats()["total"].clone();
    let spliced = total["upstream_spliced_bytes"].as_u64().unwrap();
    let least = if setup.arch.spelling == "ring" { 0 } else { u64::from(CONTENT_BYTES) };
    assert!(spliced >= least, "{spliced}");
    assert!(total["bytes_in"].as_u64().unwrap() > 2 * u64::from(CONTENT_BYTES));
}

fn a_client_that_vanishes_in_the_middle_of_its_content_takes_the_request_along(setup: &Setup) {
    let (ends, ended) = mpsc::channel();
    let origin = by_hand(move |mut stream, mut bytes| {
        let _ = stream.read_to_end(&mut bytes);
        let _ = ends.send(bytes.len());
    });
    let server = proxy(setup, origin, &[]);
    for resets in [false, true] {
        let mut client = server.connect();
        let length = format!("Content-Length: {LARGE}");
        client.send(request("POST", "/", &[&length]));
        client.send(vec![b'x'; LARGE / 2]);
        if resets {
            client.reset();
        } else {
            drop(client);
        }
        let received = ended.recv_timeout(TIMEOUT).unwrap();
        assert!(received <= LARGE / 2, "{received}");
    }
    server.stop_cleanly();
}

fn an_origin_that_answers_while_it_reads_is_never_waited_for_in_one_direction(setup: &Setup) {
    let origin = by_hand(|mut stream, mut bytes| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
        let mut buffer = vec![0; 64 << 10];
        drop(bytes.splice(0..0, head.into_bytes()));
        while stream.write_all(&bytes).is_ok() {
            match stream.read(&mut buffer) {
                Ok(count @ 1..) => bytes = buffer[..count].to_vec(),
                _ => return,
            }
        }
    });
    let server = proxy(setup, origin, &[]);
    let mut client = server.connect();
    let sender = post_large(&client);
    let reply = client.reply();
    assert!(reply.body == vec![b'x'; LARGE], "{} bytes", reply.body.len());
    sender.join().unwrap();
    server.stop_cleanly();
}

/// Starts an origin that answers 413 to a content of which it reads nothing.
pub(crate) fn answers_and_reads_nothing() -> SocketAddr {
    by_hand(|mut stream, _| {
        // The content has filled the buffers by then.
        thread::sleep(Duration::from_millis(200));
        let _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
        thread::park();
    })
}

fn an_answer_before_the_content_is_passed_on_though_the_origin_reads_no_more(setup: &Setup) {
    let origin = answers_and_reads_nothing();
    let server = proxy(setup, origin, &[]);
    let mut client = server.connect();
    let _sender = post_large(&client);
    let reply = client.reply();
    assert_eq!((reply.status, reply.text().as_str()), (413, "no"));
    assert!(reply.lists("Connection", "close"));
}

fn the_end_of_one_side_of_another_protocol_leaves_the_other_open(setup: &Setup) {
    let origin = by_hand(|mut stream, mut bytes| {
        stream.write_all(SWITCH).unwrap();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(format!("{} bytes", bytes.len()).as_bytes()).unwrap();
    });
    let server = proxy(setup, origin, &[]);
    let mut client = server.connect();
    client.send(request("GET", "/", &["Connection: upgrade", "Upgrade: x"]));
    assert_eq!(client.head().unwrap().status, 101);
    client.send(vec![b'x'; 3_000_000]);
    client.finish_sending();
    assert_eq!(client.rest().unwrap(), b"3000000 bytes");
    server.stop_cleanly();
}

fn what_the_origin_sent_last_in_another_protocol_arrives_whole(setup: &Setup) {
    let origin = by_hand(|mut stream, _| {
        stream.write_all(SWITCH).unwrap();
        stream.write_all(&vec![b'y'; 3_000_000]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let server = proxy(setup, origin, &[]);
    let mut client = server.connect();
    client.send(request("GET", "/", &["Connection: upgrade", "Upgrade: x"]));
    assert_eq!(client.head().unwrap().status, 101);
    let mut sending = client.another_end();
    let (ends, ended) = mpsc::channel::<()>();
    let sender = thread::spawn(move || {
        // Bytes that the proxy must not answer with a reset.
        while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
            let _ = sending.try_send(b"z");
        }
    });
    assert_eq!(client.rest().unwrap().len(), 3_000_000);
    drop(ends);
    sender.join().unwrap();
}

/// Writes to a proxy whose client reads nothing, without waiting, until it takes no more. Returns
/// the number of bytes.
fn fill(stream: &mut impl Write) -> usize {
    let (mut sent, mut refused) = (0, 0);
    while refused < 100 {
        if let Ok(bytes) = stream.write(&[b'y'; 64 << 10]) {
            (sent, refused) = (sent + bytes, 0);
        } else {
            refused += 1;
            thread::sleep(Duration::from_millis(5));
        }
    }
    sent
}

fn what_the_origin_sent_last_arrives_though_nothing_can_be_sent_to_it_any_more(setup: &Setup) {
    let root = Root::new();
    let path = root.outside().join("origin.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let origin = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.write_all(SWITCH).unwrap();
        stream.set_nonblocking(true).unwrap();
        // What was written waits at the proxy's end: a Unix socket has no other place for it.
        fill(&mut stream)
    });
    let options = ["--workers", "1", "--stall-timeout", "10m"];
    let server = setup.proxy(&[&format!("unix:{}", path.display())], &options);
    let mut client = server.connect();
    client.send(request("GET", "/", &["Connection: upgrade", "Upgrade: x"]));
    assert_eq!(client.head().unwrap().status, 101);
    let sent = origin.join().unwrap();
    // A ring sends once the call is over: it is the next one that fails.
    for _ in 0..3 {
        client.send(b"more");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.rest().unwrap().len(), sent);
    drop(client);
    assert_eq!(server.stop_cleanly().stats()["total"]["upstream_failed"], 0);
}

/// Returns a proxy and its client, of whose protocol an origin has sent more than is taken and then
/// reset the connection.
fn cut(setup: &Setup) -> (Server, Client) {
    let (cuts, cut) = mpsc::channel();
    let origin = by_hand(move |mut stream, _| {
        stream.write_all(SWITCH).unwrap();
        stream.set_nonblocking(true).unwrap();
        fill(&mut stream);
        // What it has not sent yet is lost.
        sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        cuts.send(()).unwrap();
    });
    let server = proxy(setup, origin, &["--workers", "1", "--stall-timeout", "10m"]);
    let mut client = server.connect();
    client.send(request("GET", "/", &["Connection: upgrade", "Upgrade: x"]));
    assert_eq!(client.head().unwrap().status, 101);
    cut.recv_timeout(TIMEOUT).unwrap();
    (server, client)
}

fn a_protocol_that_a_reset_has_cut_does_not_end_as_if_it_were_whole(setup: &Setup) {
    let (server, mut client) = cut(setup);
    // The kernel tells of the reset once: to one of these. A ring sends once the call is over.
    let before = stat(&server, "bytes_in");
    client.send(b"more");
    until("it is taken", || stat(&server, "bytes_in") >= before + 4);
    // The client is told of its own once: by the second, or where it reads.
    let second = client.try_send(b"more");
    thread::sleep(Duration::from_millis(50));
    let reset = second.and_then(|()| client.rest()).unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    server.stop_cleanly();
}

fn a_client_that_sends_nothing_is_told_that_a_reset_has_cut_its_protocol(setup: &Setup) {
    let (server, mut client) = cut(setup);
    let reset = client.rest().unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    server.stop_cleanly();
}

fn a_reset_that_cuts_what_the_client_has_sent_is_passed_on(setup: &Setup) {
    let (streams, stream) = mpsc::channel();
    let origin = by_hand(move |mut stream, _| {
        stream.write_all(SWITCH).unwrap();
        streams.send(stream).unwrap();
    });
    let server = proxy(setup, origin, &["--workers", "1", "--stall-timeout", "10m"]);
    let mut client = TcpStream::connect(server.authority()).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let asks = request("GET", "/", &["Connection: upgrade", "Upgrade: x"]);
    client.write_all(asks.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    client.set_nonblocking(true).unwrap();
    // A send of the proxy has then sent a part, and waits for room.
    fill(&mut client);
    let stream = stream.recv_timeout(TIMEOUT).unwrap();
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
    client.set_nonblocking(false).unwrap();
    let reset = client.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    server.stop_cleanly();
}

fn a_limit_of_content_is_none_of_another_protocol(setup: &Setup) {
    let origin = by_hand(|mut stream, mut bytes| {
        stream.write_all(SWITCH).unwrap();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let root = Root::with_hello();
    let text = format!(
        "[[upstream]]\nname = 'app'\nservers = 'http://{origin}'\n\
         [[site]]\nhosts = ['test.example']\nupstream = 'app'\nmax-body = 10\n"
    );
    let server = serve(setup, &root, &text);
    let mut client = server.connect();
    client.send(request("GET", "/", &["Connection: upgrade", "Upgrade: x"]));
    assert_eq!(client.head().unwrap().status, 101);
    client.send([b'x'; 100]);
    client.finish_sending();
    assert_eq!(client.rest().unwrap(), [b'x'; 100]);
    server.stop_cleanly();
}

fn an_interim_reply_does_not_cost_the_client_its_answer(setup: &Setup) {
    let origin = by_hand(|mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        thread::sleep(Duration::from_millis(50));
    });
    let server = proxy(setup, origin, &[]);
    let mut client = server.connect();
    for _ in 0..2 {
        client.send(request("GET", "/", &[]));
        assert_eq!(client.head().unwrap().status, 103);
        assert_eq!(client.reply().status, 502);
    }
    server.stop_cleanly();
}

fn a_reply_until_the_close_that_is_cut_by_a_reset_does_not_look_whole(setup: &Setup) {
    let origin = by_hand(|mut stream, _| {
        // The proxy has more to send than is taken: its send meets the reset.
        thread::sleep(Duration::from_millis(100));
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nsome of it");
        thread::sleep(Duration::from_millis(100));
        // With content unread.
        drop(stream);
    });
    let server = proxy(setup, origin, &[]);
    let mut client = server.connect();
    let sender = post_large(&client);
    let reply = client.try_reply();
    assert!(!reply.is_ok_and(|reply| reply.status == 200), "it looks whole");
    drop(client);
    sender.join().unwrap();
}

fn a_client_that_reads_nothing_before_it_has_sent_all_is_read(setup: &Setup) {
    let origin = by_hand(|mut stream, mut bytes| {
        stream.write_all(SWITCH).unwrap();
        // More than the buffers to the client hold.
        let mut reading = stream.try_clone().unwrap();
        let reader = thread::spawn(move || reading.read_to_end(&mut bytes).map(|_| bytes.len()));
        stream.write_all(&vec![b'y'; LARGE / 2]).unwrap();
        let received = reader.join().unwrap().unwrap();
        stream.write_all(format!(" {received} bytes").as_bytes()).unwrap();
    });
    let server = proxy(setup, origin, &["--stall-timeout", "10m"]);
    let mut client = server.connect();
    client.send(request("GET", "/", &["Connection: upgrade", "Upgrade: x"]));
    assert_eq!(client.head().unwrap().status, 101);
    client.send(vec![b'x'; LARGE]);
    client.finish_sending();
    let rest = client.rest().unwrap();
    assert_eq!(rest.len(), LARGE / 2 + format!(" {LARGE} bytes").len());
    server.stop_cleanly();
}

fn a_client_whose_content_nobody_wants_any_more_keeps_no_loop_busy(setup: &Setup) {
    let origin = by_hand(|mut stream, _| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 8 << 20);
        let _ = stream.write_all(head.as_bytes());
        let mut reading = stream.try_clone().unwrap();
        thread::spawn(move || std::io::copy(&mut reading, &mut std::io::sink()));
        let _ = stream.write_all(&vec![b'y'; 8 << 20]);
        thread::park();
    });
    let options = ["--workers", "1", "--reply-buffer", "64M", "--buffers-total", "64M"];
    let server = proxy(setup, origin, &options);
    let mut client = Client::connect_narrow(server.address());
    client.send(request("GET", "/", &["Content-Length: 100000000"]));
    assert_eq!(client.head().unwrap().status, 200);
    // Nothing of the reply is read from here on, and some more is sent, a while after.
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(100));
        client.send(b"more");
    }
    thread::sleep(Duration::from_millis(500));
    drop(client);
    let stats = server.stop_cleanly().stats()["total"].clone();
    let waits = stats["getevents_calls"].as_f64().unwrap();
    assert!(waits < 2_000.0, "{waits}");
}

fn a_slow_client_gives_up_its_place(setup: &Setup) {
    let origin = Origin::start(|received| {
        let is_large = received.line().contains("large");
        reply(&vec![b'x'; if is_large { LARGE } else { 1 }])
    });
    let limits = ["--min-rate", "100000", "--min-rate-grace", "200ms"];
    let place = ["--max-in-flight", "1", "--queue-target", "30s"];
    let server = proxy(setup, origin.address(), &[limits, place].concat());
    // One that sends its content slowly.
    let mut sending = server.connect();
    sending.send(request("POST", "/", &["Content-Length: 1000"]));
    assert!(!sending.trickle(&[b'x'; 1000], Duration::from_millis(20)));
    let refused = sending.reply();
    assert_eq!((refused.status, refused.lists("Connection", "close")), (408, true));
    assert_eq!(server.get("/").text(), "x");
    // One that takes its reply slowly, or not at all.
    let mut taking = Client::connect_narrow(server.address());
    taking.send(request("GET", "/large", &[]));
    assert_eq!(taking.head().unwrap().status, 200);
    assert_eq!(server.get("/").text(), "x");
    assert!(taking.rest().is_err(), "it looks whole");
    drop(sending);
    let stopped = server.stop_cleanly();
    assert_eq!(stopped.stats()["total"]["timeout_rate"], 2);
}
