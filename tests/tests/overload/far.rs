//! Distant clients and floods of forged SYNs, on a real link with a delay: whatever they do, a
//! server with spare time refuses nothing.
//!
//! WEIR_FAR_SECONDS=60 runs the scenario in which the fault was found at full length, in all its
//! variants. Nothing here measures a duration.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use std::io::{ErrorKind, Read, Write};
use std::iter;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_sys::client;
use weir_tests::load::{LoadRun, load};
use weir_tests::remote_link::{RemoteLink, SERVER, tcp_count};
use weir_tests::wait::{WhenDone, until};
use weir_tests::{Address, Root, Server, Stopped};

use crate::WEIR;

/// Number of requests per session.
const REQUESTS: u32 = 20;

/// Counters of actual or possible refusals on account of load.
const REFUSALS: [&str; 9] = [
    "overloads",
    "syn_dropped",
    "refused_excess",
    "refused_stale",
    "departed",
    "turned_away",
    "closed_by_pressure",
    "closed_by_share",
    "refused_idle",
];

/// Returns the length of a run.
fn length() -> Duration {
    Duration::from_secs(whole_seconds().unwrap_or(6))
}

fn whole_seconds() -> Option<u64> {
    std::env::var("WEIR_FAR_SECONDS").ok()?.parse().ok()
}

/// Runs a test in a network namespace of its own, or skips it if that is not possible.
fn far_away(rtt: Duration, test: impl FnOnce(&RemoteLink) + Send) {
    let run = || match RemoteLink::begin(rtt) {
        Ok(far) => test(&far),
        Err(why) => println!("skipped: {why}"),
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap());
}

fn start(options: &[&str], root: &Root) -> (Server, SocketAddr) {
    let listen = ["--listen", &format!("{SERVER}:0")];
    let server = Server::start(WEIR, &[options, &listen].concat(), root);
    let Address::Tcp(address) = *server.address() else { panic!("no port") };
    (server, address)
}

fn counts(stopped: &Stopped, names: &[&str]) -> Vec<(String, u64)> {
    let stats = stopped.stats();
    let count = |name: &&str| (name.to_string(), stats["total"][name].as_u64().unwrap());
    names.iter().map(count).filter(|(_, count)| *count > 0).collect()
}

/// A session: a connection and its remaining requests, each sent when the last was answered.
struct Session {
    conn: TcpStream,
    left: u32,
    unread: usize,
    closes: bool,
}

impl Session {
    fn begin(address: SocketAddr, closes: bool) -> Self {
        let fd = client::stream(&address).unwrap();
        client::connect(std::os::fd::AsFd::as_fd(&fd), &address).unwrap();
        Self { conn: TcpStream::from(fd), left: REQUESTS, unread: 0, closes }
    }

    /// Makes as much progress as possible; returns whether the session is over.
    fn goes_on(&mut self, reply_len: usize) -> bool {
        if self.unread == 0 {
            let field = if self.closes && self.left == 1 { "Connection: close\r\n" } else { "" };
            let request = format!("GET /hello.txt HTTP/1.1\r\nHost: far\r\n{field}\r\n");
            match self.conn.write(request.as_bytes()) {
                Ok(count) => assert_eq!(count, request.len()),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                    return false;
                }
            }
            self.unread =
                reply_len + if field.is_empty() { 0 } else { "Connection: close\r\n".len() };
        }
        let mut reply = [0; 4096];
        match self.conn.read(&mut reply) {
            Ok(0) => panic!("closed, with {} requests to go", self.left),
            Ok(count) => self.unread -= count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                return false;
            }
        }
        self.left -= u32::from(self.unread == 0);
        self.left == 0
    }
}

/// Sessions on persistent connections.
#[derive(Clone, Copy, Debug)]
struct LongLived {
    rtt: Duration,
    /// Sessions per second.
    rate: u64,
    /// Number of sessions of which one closes its connection at the end.
    closes_one_in: u64,
    workers: &'static str,
}

impl LongLived {
    /// Runs sessions, with 24 at once after a tenth of the time, and 150 after half of it. Returns
    /// the number of sessions.
    fn play(&self, address: SocketAddr, reply_len: usize) -> u64 {
        let (began, length) = (Instant::now(), length());
        let (mut sessions, mut open, mut begun) = (Vec::<Session>::new(), Vec::new(), 0);
        while began.elapsed() < length || !sessions.is_empty() {
            let now = began.elapsed().min(length);
            let due = now.as_millis() as u64 * self.rate / 1000
                + if now > length / 10 { 24 } else { 0 }
                + if now > length / 2 { 150 } else { 0 };
            while begun < due {
                begun += 1;
                let closes = self.closes_one_in > 0 && begun % self.closes_one_in == 0;
                let caller = RemoteLink::address(address, 2 + (begun % 200) as u16);
                sessions.push(Session::begin(caller, closes));
            }
            for mut session in std::mem::take(&mut sessions) {
                if !session.goes_on(reply_len) {
                    sessions.push(session);
                } else if !session.closes {
                    open.push(session);
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        begun
    }

    /// Asserts that no connection was refused, or might have been.
    fn check(&self) {
        let root = Root::with_hello();
        let (server, address) = start(&["--workers", self.workers], &root);
        let begun = self.play(address, reply_len(address));
        let dropped = tcp_count("ListenDrops");
        let stopped = server.stop_cleanly();
        assert_eq!(counts(&stopped, &REFUSALS), [], "{self:?}");
        assert_eq!(dropped, 0, "{self:?}");
        let served = stopped.stats()["total"]["replies"].as_u64().unwrap();
        assert_eq!(served, begun * u64::from(REQUESTS) + 1, "{self:?}");
    }
}

/// Returns the length of a complete reply.
fn reply_len(address: SocketAddr) -> usize {
    let mut conn = TcpStream::connect(RemoteLink::address(address, 2)).unwrap();
    conn.write_all(b"GET /hello.txt HTTP/1.1\r\nHost: far\r\n\r\n").unwrap();
    let mut reply = [0; 4096];
    conn.read(&mut reply).unwrap()
}

/// Returns some of the runs, or all of them: near and far, one loop and two.
fn long_lived() -> Vec<LongLived> {
    let run = |rtt_ms, rate, closes_one_in, workers| LongLived {
        rtt: Duration::from_millis(rtt_ms),
        rate,
        closes_one_in,
        workers,
    };
    if whole_seconds().is_none() {
        return vec![
            run(0, 60, 20, "2"),
            run(40, 80, 150, "1"),
            run(100, 60, 0, "2"),
            run(200, 80, 300, "1"),
        ];
    }
    let mut runs = Vec::new();
    for rtt_ms in [0, 40, 100, 200] {
        for (rate, workers) in [(60, "1"), (60, "2"), (80, "1"), (80, "2")] {
            let closings = [20, 150, 300, 0].into_iter();
            runs.extend(closings.map(|closes_one_in| run(rtt_ms, rate, closes_one_in, workers)));
        }
    }
    runs
}

#[test]
fn connections_that_stay_open_make_nobody_seem_expensive() {
    for some in long_lived().chunks(4) {
        thread::scope(|scope| {
            for run in some {
                scope.spawn(move || far_away(run.rtt, |_| run.check()));
            }
        });
    }
}

/// Sends SYNs from addresses without a host, `per_ms` per millisecond, while a load runs. Returns
/// their number.
fn beside_forged(far: &RemoteLink, address: SocketAddr, per_ms: u32, run: impl FnOnce()) -> u32 {
    let SocketAddr::V4(to) = address else { panic!("{address}") };
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let forger = scope.spawn(|| {
            let (began, mut sent) = (Instant::now(), 0_u32);
            while !ends.load(Ordering::Relaxed) {
                while sent < began.elapsed().as_millis() as u32 * per_ms {
                    sent += 1;
                    let ip = Ipv4Addr::from(0x0a59_0000 + sent % 0xffff);
                    far.forge_syn(SocketAddrV4::new(ip, 1024 + (sent >> 8) as u16 % 60_000), to)
                        .unwrap();
                }
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        let done = WhenDone(&ends);
        run();
        drop(done);
        forger.join().unwrap()
    })
}

#[test]
fn a_flood_of_requests_from_nowhere_shuts_nobody_out() {
    far_away(Duration::from_millis(20), |far| {
        let root = Root::with_hello();
        let (server, address) = start(&["--workers", "1", "--bench-endpoints"], &root);
        let url = format!("http://{}/.weir/burn/2000/hello.txt", RemoteLink::address(address, 2));
        beside_forged(far, address, 20, || {
            // An overload brings the filter into force; after it there is time for every client.
            let ran = load(WEIR, "--rate 3000 --duration 1s --timeout 1s", &url);
            assert!(ran.count("replies") > 0, "{ran:?}");
            until("the overload was over", || {
                let overloaded = || server.new_report()["total"]["overloaded_ns"].as_u64();
                let before = overloaded();
                thread::sleep(Duration::from_millis(300));
                overloaded() == before
            });
            let calm = || load(WEIR, "--rate 50 --duration 2s --timeout 900ms", &url);
            // Without all replies, a run that its own machine made late says nothing of the server.
            let counts = |ran: &LoadRun| ran.count("replies") == 100 || ran.is_valid();
            match iter::repeat_with(calm).take(5).find(counts) {
                Some(ran) => assert_eq!(ran.count("replies"), 100, "{ran:?}"),
                None => println!("SKIPPED: of five runs none was on time"),
            }
        });
        let stopped = server.stop_cleanly();
        assert!(stopped.stats()["total"]["overloads"].as_u64() > Some(0));
    });
}
