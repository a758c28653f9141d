//! Requests through a proxy to an origin that breaks off, stalls, lies and closes, each with a
//! number: none is lost, none is doubled, and none is answered with another's reply.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_tests::origin::{After, Received, reply};
use weir_tests::setups::forwarders;
use weir_tests::{Address, Client, Failure, Origin, Server, request};

use crate::WEIR;

/// Number of requests of all set-ups together; WEIR_CHAOS=N makes it another.
const REQUESTS: u64 = 24_000;

/// Number of clients at a time.
const CLIENTS: u64 = 16;

/// Returns the number in a request's target.
fn number_of(received: &Received) -> u64 {
    let target = received.line().split(' ').nth(1).unwrap_or_default();
    target.trim_start_matches('/').parse().unwrap()
}

/// Returns a body that tells the number and has a length of its own.
fn body_of(number: u64) -> Vec<u8> {
    let length_max = if number.is_multiple_of(16) { 20_000 } else { 300 };
    let length = (number * 7919 % length_max) as usize;
    let mut body = format!("{number}:").into_bytes();
    body.resize(body.len() + length, b'a' + (number % 26) as u8);
    body
}

/// Returns bytes of a reply to a request, in one of the ways in which a server may misbehave.
fn misbehave(number: u64, how: u64) -> Vec<u8> {
    let whole = reply(&body_of(number));
    let chunked = || {
        let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for part in body_of(number).chunks(1000) {
            bytes.extend(format!("{:x}\r\n", part.len()).bytes());
            bytes.extend(part);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n\r\n");
        bytes
    };
    match how {
        0 => Vec::new(),
        1 => whole[..10].to_vec(),
        2 => whole[..whole.len() / 2].to_vec(),
        3 => b"garbage\r\n\r\n".to_vec(),
        4 => [b"HTTP/1.0 200 OK\r\n\r\n", &body_of(number)[..]].concat(),
        5 => {
            let mut cut = chunked();
            cut.truncate(cut.len() - 5);
            cut
        }
        6 => {
            thread::sleep(Duration::from_millis(3));
            whole
        }
        // More than was asked for, in the same segment: later, nobody could tell.
        7 if whole.len() < 1000 => {
            [&whole[..], b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"].concat()
        }
        8 => [b"HTTP/1.1 103 Early Hints\r\n\r\n", &whole[..]].concat(),
        9..14 => chunked(),
        _ => whole,
    }
}

/// What an origin has seen of the POSTs.
#[derive(Default)]
struct Posts {
    /// How often each came, by its number.
    counts: HashMap<u64, u64>,
    /// Those that came with another's content.
    mixed: Vec<u64>,
}

#[test]
fn no_request_is_lost_doubled_or_answered_with_another_s_reply() {
    let requests = std::env::var("WEIR_CHAOS").map_or(REQUESTS, |text| text.parse().unwrap());
    let patient = ["--queue-target", "20s", "--min-rate", "0"];
    let mut set_ups: Vec<&[&str]> = vec![
        &["--workers", "2"],
        // Clients wait for a place, and for each other's loops.
        &["--workers", "2", "--max-in-flight", "2"],
        // Stalls are longer than this.
        &["--workers", "1", "--first-byte-timeout", "1s", "--upstream-idle-timeout", "1s"],
    ];
    if forwarders(WEIR).iter().any(|setup| setup.arch.spelling == "ring") {
        set_ups.push(&["--arch", "ring", "--workers", "2", "--max-in-flight", "2"]);
    }
    for options in &set_ups {
        run(requests / set_ups.len() as u64, &[options, &patient[..]].concat());
    }
}

/// Sends requests through a proxy with these options, and checks what became of each.
fn run(requests: u64, options: &[&str]) {
    let posts: Arc<Mutex<Posts>> = Arc::default();
    let origin = origin(&posts);
    let server = Server::proxy(WEIR, &[&origin.url()], options);
    let next = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|nth| {
            let (next, address) = (Arc::clone(&next), server.address().clone());
            thread::spawn(move || be_client(nth, &address, &next, requests))
        })
        .collect();
    let mut answered: HashMap<&'static str, u64> = HashMap::new();
    for (outcome, count) in clients.into_iter().flat_map(|client| client.join().unwrap()) {
        *answered.entry(outcome).or_default() += count;
    }
    println!("{options:?}: {answered:?}");
    assert_eq!(answered.values().sum::<u64>(), requests);
    assert!(!answered.contains_key("unexpected"), "{answered:?}");
    assert!(answered["whole"] > requests * 8 / 10, "{answered:?}");
    assert!(answered["error"] > 0 && answered["cut"] > 0, "{answered:?}");
    let posts = posts.lock().unwrap();
    let doubled = posts.counts.iter().filter(|(_, count)| **count > 1).count();
    assert_eq!(doubled, 0, "requests that must not be repeated");
    assert_eq!(posts.mixed, [0; 0]);
    assert_eq!(origin.malformed(), 0);
    server.stop_cleanly();
}

/// Starts an origin that misbehaves, and counts the POSTs by their number.
fn origin(posts: &Arc<Mutex<Posts>>) -> Origin {
    let (posts, random) = (Arc::clone(posts), Mutex::new(Xoshiro256PlusPlus::seed_from_u64(7)));
    Origin::for_many(move |received| {
        let number = number_of(received);
        if received.line().starts_with("POST") {
            let mut posts = posts.lock().unwrap();
            *posts.counts.entry(number).or_default() += 1;
            if received.body != body_of(number + 1) {
                posts.mixed.push(number);
            }
        }
        let (how, resets) = {
            let mut random = random.lock().unwrap();
            (random.random_range(0..60), random.random_bool(0.3))
        };
        if how == 6 && number.is_multiple_of(64) {
            thread::sleep(Duration::from_millis(1500));
        }
        let after = match how {
            0..6 if resets => After::Reset,
            0..6 => After::Close,
            _ => After::Keep,
        };
        (misbehave(number, how), after)
    })
}

/// Sends requests until there are no more. Returns the number of each outcome.
fn be_client(
    seed: u64,
    address: &Address,
    next: &AtomicU64,
    requests: u64,
) -> HashMap<&'static str, u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut client = Client::connect(address);
    let mut outcomes = HashMap::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= requests {
            return outcomes;
        }
        let outcome = ask(&mut client, number, random.random_range(0..40));
        if outcome != "whole" && outcome != "error" {
            client = Client::connect(address);
        }
        *outcomes.entry(outcome).or_default() += 1;
    }
}

/// Sends a request with this number, and returns what became of it.
fn ask(client: &mut Client, number: u64, kind: u64) -> &'static str {
    let target = format!("/{number}");
    let content = body_of(number + 1);
    let sent = match kind {
        0..5 => {
            let length = format!("Content-Length: {}", content.len());
            [request("POST", &target, &[&length]).as_bytes(), &content].concat()
        }
        5..10 => {
            let chunk = format!("{:x}\r\n", content.len());
            let head = request("POST", &target, &["Transfer-Encoding: chunked"]);
            [head.as_bytes(), chunk.as_bytes(), &content, b"\r\n0\r\n\r\n"].concat()
        }
        _ => request("GET", &target, &[]).into_bytes(),
    };
    if client.try_send(sent).is_err() {
        return "gone";
    }
    if kind == 39 {
        // It does not wait for the reply.
        return "left";
    }
    match client.try_reply_after_interim() {
        Ok(reply) if reply.status == 200 => {
            assert!(reply.body == body_of(number), "{number} has another's reply");
            if reply.lists("Connection", "close") { "whole, closed" } else { "whole" }
        }
        Ok(reply) if matches!(reply.status, 502 | 504) => {
            if reply.lists("Connection", "close") {
                "error, closed"
            } else {
                "error"
            }
        }
        Err(Failure::Short(_) | Failure::Closed(_)) => "cut",
        other => {
            // Shown, and asserted not to be there.
            println!("{number}: {other:?}");
            "unexpected"
        }
    }
}
