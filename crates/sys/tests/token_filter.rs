//! The token SYN filter, on real sockets of both IP versions. Every test says that it skips where
//! programs may not be loaded.

#![allow(clippy::unwrap_used, clippy::panic)] // lints take a helper of a test for no test

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_sys::syn_filter::tokens::{Counts, Rules, TokenFilter, Tokens};
use weir_sys::{client, socket, syn_filter};

const PATIENCE: Duration = Duration::from_secs(30);

/// An epoch that outlasts any test.
const RULES: Rules =
    Rules { burst: 4, addresses_counted_max: 8, epoch_bits: 50, dropped_max: 2048 };

/// Interval between admitted SYNs, nanoseconds, so long that no bucket fills during a test.
const LONG_NS: u64 = 1_000_000_000_000;

/// A listener behind a filter.
struct Guarded {
    fd: OwnedFd,
    address: SocketAddr,
    filter: TokenFilter,
}

impl Guarded {
    /// Opens a listener with a filter; `None`, with a message, where that is not possible.
    fn open(address: &str) -> Option<Self> {
        let opened = socket::bind_tcp(address.parse().unwrap(), false);
        let made = opened.and_then(|fd| Ok((fd, TokenFilter::new(RULES)?)));
        let (fd, filter) = match made {
            Ok(made) => made,
            Err(error) => {
                println!("skipped on {address}: {error}");
                return None;
            }
        };
        socket::listen(fd.as_fd(), 512).unwrap();
        filter.attach(fd.as_fd()).unwrap();
        let address = socket::local_address(fd.as_fd()).unwrap().unwrap();
        Some(Self { fd, address, filter })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn set(&self, limit: u64, reserve: u64, share_ns: u64) {
        self.filter.set(Tokens { limit, reserve, share_ns, for_first: 0 });
    }

    /// Sends a SYN from an address and returns whether it passed. On loopback the verdict is known
    /// when connect(2) returns.
    fn passes(&self, source: Option<IpAddr>, kept: &mut Vec<OwnedFd>) -> bool {
        let before = self.filter.counts();
        let conn = client::stream(&self.address).unwrap();
        if let Some(source) = source {
            client::bind_source(conn.as_fd(), source).unwrap();
        }
        client::connect(conn.as_fd(), &self.address).unwrap();
        kept.push(conn);
        let until = Instant::now() + PATIENCE;
        loop {
            let Counts { passed, dropped, .. } = self.filter.counts();
            match (passed - before.passed, dropped - before.dropped) {
                (0, 0) => assert!(Instant::now() < until, "the SYN was never judged"),
                (passed, _) => return passed > 0,
            }
            sleep(Duration::from_micros(100));
        }
    }
}

fn for_each_ip(test: impl Fn(&Guarded)) {
    ["127.0.0.1:0", "[::1]:0"].iter().filter_map(|address| Guarded::open(address)).for_each(|it| {
        test(&it);
    });
}

fn v4(last: [u8; 2]) -> Option<IpAddr> {
    Some(Ipv4Addr::new(127, 1, last[0], last[1]).into())
}

#[test]
fn as_many_pass_as_there_are_tokens() {
    for_each_ip(|listener| {
        let mut kept = Vec::new();
        assert!((0..5).all(|_| listener.passes(None, &mut kept)), "open at first");
        listener.set(5 + 3, 0, 0);
        let passed = (0..6).filter(|_| listener.passes(None, &mut kept)).count();
        assert_eq!(passed, 3);
        assert_eq!(listener.filter.counts(), Counts { passed: 8, dropped: 3, ..Counts::default() });
        listener.set(9, 0, 0);
        assert!(listener.passes(None, &mut kept) && !listener.passes(None, &mut kept));
        listener.filter.open();
        assert!((0..5).all(|_| listener.passes(None, &mut kept)));
    });
}

#[test]
fn packets_other_than_syns_need_no_token() {
    for_each_ip(|listener| {
        listener.set(1, 0, 0);
        let mut client = TcpStream::connect(listener.address).unwrap();
        let until = Instant::now() + PATIENCE;
        let accepted = loop {
            match socket::accept(listener.fd()) {
                Ok((conn, _)) => break conn,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        };
        let mut conn = TcpStream::from(accepted);
        conn.set_nonblocking(false).unwrap();
        for word in [b"one", b"two"] {
            client.write_all(word).unwrap();
            let mut heard = [0; 3];
            conn.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, word);
        }
        drop(client);
        assert_eq!(conn.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(listener.filter.counts().passed, 1);
    });
}

#[test]
fn reserved_tokens_are_for_sources_that_have_not_had_their_share() {
    let Some(listener) = Guarded::open("127.0.0.1:0") else { return };
    let mut kept = Vec::new();
    listener.set(24, 16, LONG_NS);
    // Eight tokens are for all and sixteen are reserved: one source gets its burst of four and the
    // other four that are for all.
    let greedy = (0..40).filter(|_| listener.passes(v4([1, 1]), &mut kept)).count();
    assert_eq!(greedy, 8);
    for last in 1..=4 {
        let fair = (0..10).filter(|_| listener.passes(v4([2, last]), &mut kept)).count();
        assert_eq!(fair, 4);
    }
    assert!(!listener.passes(v4([3, 1]), &mut kept), "there are no more");
    let counts = listener.filter.counts();
    assert_eq!((counts.passed, counts.dropped), (24, 32 + 24 + 1));
    assert_eq!((counts.dropped_unfair, counts.weight), (32 + 24, 6));
}

#[test]
fn the_addresses_of_a_network_beyond_some_weigh_no_more() {
    let Some(listener) = Guarded::open("127.0.0.1:0") else { return };
    let mut kept = Vec::new();
    listener.set(u64::MAX - 1, 0, LONG_NS);
    for last in 1..=20 {
        assert!(listener.passes(v4([1, last]), &mut kept));
    }
    assert_eq!(listener.filter.counts().weight, 8);
    for network in 2..=7 {
        assert!(listener.passes(v4([network, 1]), &mut kept));
        assert!(listener.passes(v4([network, 1]), &mut kept));
    }
    assert_eq!(listener.filter.counts().weight, 8 + 6);
}

#[test]
fn new_addresses_of_a_network_have_no_more_than_the_shares_of_some() {
    let Some(listener) = Guarded::open("127.0.0.1:0") else { return };
    let mut kept = Vec::new();
    listener.set(100, 100, LONG_NS);
    // The bucket of a network has the bursts of eight addresses, of four SYNs each. The first seven
    // SYNs took less, since fewer addresses shared.
    let fair = (1..=40).filter(|last| listener.passes(v4([1, *last]), &mut kept)).count();
    assert_eq!(fair, 32 + 3);
    assert!(listener.passes(v4([2, 1]), &mut kept), "another network has its own");
    assert_eq!(listener.filter.counts().dropped_unfair, 5);
}

#[test]
fn over_ipv6_a_64_is_one_source() {
    let Some(listener) = Guarded::open("[::1]:0") else { return };
    let mut kept = Vec::new();
    listener.set(100, 100, LONG_NS);
    assert_eq!((0..9).filter(|_| listener.passes(None, &mut kept)).count(), 4);
    assert_eq!(listener.filter.counts().weight, 1);
}

#[test]
fn some_tokens_are_for_syns_that_were_not_dropped_before() {
    for_each_ip(|listener| {
        let set = |limit, for_first| {
            listener.filter.set(Tokens { limit, reserve: 0, share_ns: 0, for_first });
        };
        let again = |at_least| {
            let until = Instant::now() + PATIENCE;
            while listener.filter.counts().dropped_again < at_least {
                assert!(Instant::now() < until, "the SYN did not come again");
                sleep(Duration::from_millis(1));
            }
        };
        let (mut kept, mut late) = (Vec::new(), Vec::new());
        // A SYN that is dropped while none is told apart comes as the first later on.
        set(0, 0);
        assert!(!listener.passes(None, &mut late));
        late.clear();
        set(0, 3);
        assert!(!listener.passes(None, &mut late));
        assert_eq!(listener.filter.counts().dropped_again, 0);
        set(3, 3);
        again(1);
        assert!(listener.passes(None, &mut kept), "the tokens are for this one");
        // It took one: three are left, and the one that comes again needs a fourth.
        set(4, 3);
        again(2);
        set(5, 3);
        let until = Instant::now() + PATIENCE;
        while listener.filter.counts().passed < 2 {
            assert!(Instant::now() < until, "it was dropped each time");
            sleep(Duration::from_millis(1));
        }
        let Counts { passed, dropped_again, .. } = listener.filter.counts();
        assert_eq!(passed, 2);
        assert!(dropped_again >= 2);
        set(5, 3);
        assert!((0..3).all(|_| listener.passes(None, &mut kept)));
        assert!(!listener.passes(None, &mut kept));
    });
}

#[test]
fn the_latest_dropped_syns_are_known_when_the_map_is_full_of_others() {
    let Some(listener) = Guarded::open("127.0.0.1:0") else { return };
    listener.filter.set(Tokens { limit: 0, reserve: 0, share_ns: 0, for_first: 3 });
    // All come twice, and the last find the map full.
    let count = 450;
    let known = [count; 6].map(|count| {
        let before = listener.filter.counts();
        let mut clients = Vec::new();
        assert!((0..count).all(|_| !listener.passes(None, &mut clients)));
        let until = Instant::now() + PATIENCE;
        while listener.filter.counts().dropped < before.dropped + 2 * count {
            assert!(Instant::now() < until, "the SYNs did not come again");
            sleep(Duration::from_millis(1));
        }
        listener.filter.counts().dropped_again - before.dropped_again
    });
    assert!(known.iter().all(|known| *known >= count), "{known:?}");
}

#[test]
fn a_filter_that_was_taken_away_counts_no_more_and_can_come_back() {
    for_each_ip(|listener| {
        let mut kept = Vec::new();
        listener.set(0, 0, 0);
        assert!(!listener.passes(None, &mut kept));
        syn_filter::detach(listener.fd()).unwrap();
        let before = listener.filter.counts();
        drop(TcpStream::connect(listener.address).unwrap());
        assert_eq!(listener.filter.counts(), before);
        listener.filter.attach(listener.fd()).unwrap();
        assert!(!listener.passes(None, &mut kept));
        syn_filter::random::attach(listener.fd(), 1e-9).unwrap();
        drop(TcpStream::connect(listener.address).unwrap());
        assert_eq!(listener.filter.counts().passed, before.passed);
    });
}
