//! Requests through a proxy to an origin that breaks off, stalls, lies and closes, each with a
//! number: none is lost, none is doubled, and none is answered with another's reply.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_tests::origin::{Received, reply};
use weir_tests::{Client, Failure, Origin, Server, request};

use crate::WEIR;

/// Number of requests; WEIR_CHAOS=N makes it another.
const REQUESTS: u64 = 20_000;

/// Number of clients at a time.
const CLIENTS: u64 = 16;

/// Returns the number in a request's target.
fn number_of(received: &Received) -> u64 {
    let target = received.line().split(' ').nth(1).unwrap_or_default();
    target.trim_start_matches('/').parse().unwrap()
}

/// Returns a body that tells the number and has a length of its own.
fn body_of(number: u64) -> Vec<u8> {
    let length = (number * 7919 % 20_000) as usize;
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

#[test]
fn every_request_is_answered_with_its_own_reply_or_an_error() {
    let requests = std::env::var("WEIR_CHAOS").map_or(REQUESTS, |text| text.parse().unwrap());
    let posts: Arc<Mutex<HashMap<u64, u64>>> = Arc::default();
    let (counts, random) = (Arc::clone(&posts), Mutex::new(Xoshiro256PlusPlus::seed_from_u64(7)));
    let origin = Origin::for_many(move |received| {
        let number = number_of(received);
        if received.line().starts_with("POST") {
            assert!(received.body == body_of(number + 1), "{number} came with another's content");
            *counts.lock().unwrap().entry(number).or_default() += 1;
        }
        let how = random.lock().unwrap().random_range(0..60);
        (misbehave(number, how), how < 6)
    });
    let options = ["--upstream-timeout", "5s", "--queue-target", "20s", "--min-rate", "0"];
    let server = Server::proxy(WEIR, &[&origin.url()], &options);
    let next = Arc::new(AtomicU64::new(0));
    let answered: Arc<Mutex<HashMap<&'static str, u64>>> = Arc::default();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|nth| {
            let (next, answered) = (Arc::clone(&next), Arc::clone(&answered));
            let address = server.address().clone();
            thread::spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(nth);
                let mut client = Client::connect(&address);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= requests {
                        return;
                    }
                    let outcome = ask(&mut client, number, random.random_range(0..8));
                    if outcome != "whole" && outcome != "error" {
                        client = Client::connect(&address);
                    }
                    *answered.lock().unwrap().entry(outcome).or_default() += 1;
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let answered = answered.lock().unwrap();
    assert_eq!(answered.values().sum::<u64>(), requests);
    assert!(!answered.contains_key("unexpected"), "{answered:?}");
    assert!(answered["whole"] > requests * 8 / 10, "{answered:?}");
    assert!(answered["error"] > 0 && answered["cut"] > 0, "{answered:?}");
    let doubled = posts.lock().unwrap().iter().filter(|(_, count)| **count > 1).count();
    assert_eq!(doubled, 0, "requests that must not be repeated");
    server.stop_cleanly();
}

/// Sends a request with this number, and returns what became of it.
fn ask(client: &mut Client, number: u64, kind: u64) -> &'static str {
    let target = format!("/{number}");
    let content = body_of(number + 1);
    let sent = match kind {
        0 => {
            let length = format!("Content-Length: {}", content.len());
            [request("POST", &target, &[&length]).as_bytes(), &content].concat()
        }
        1 => {
            let chunk = format!("{:x}\r\n", content.len());
            let head = request("POST", &target, &["Transfer-Encoding: chunked"]);
            [head.as_bytes(), chunk.as_bytes(), &content, b"\r\n0\r\n\r\n"].concat()
        }
        _ => request("GET", &target, &[]).into_bytes(),
    };
    if client.try_send(sent).is_err() {
        return "gone";
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
