//! Listener queries and the random SYN filter, on real sockets of both IP versions. No test here
//! asserts a speed: time limits of waits only turn a hang into a failure.

#![allow(clippy::unwrap_used, clippy::panic)] // lints take a helper of a test for no test

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use weir_sys::listener::{Arrival, Queue, arrival, drops, queue};
use weir_sys::syn_filter::detach;
use weir_sys::syn_filter::random::attach as drop_share;
use weir_sys::{client, socket};

const PATIENCE: Duration = Duration::from_secs(30);

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(1));
    }
}

/// A listener on loopback, and its address.
struct TestListener {
    fd: OwnedFd,
    address: SocketAddr,
}

impl TestListener {
    fn open(address: &str, backlog: i32) -> Option<Self> {
        let fd = match socket::bind_tcp(address.parse().unwrap(), false) {
            Err(error) if address.starts_with('[') => {
                eprintln!("skipped for IPv6: {error}");
                return None;
            }
            other => other.unwrap(),
        };
        socket::listen(fd.as_fd(), backlog).unwrap();
        let address = socket::local_address(fd.as_fd()).unwrap().unwrap();
        Some(Self { fd, address })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn queue(&self) -> Queue {
        queue(self.fd()).unwrap()
    }

    fn drops(&self) -> u32 {
        drops(self.fd()).unwrap()
    }

    /// Connects a client and waits until it is counted in the queue.
    fn connect(&self) -> TcpStream {
        let before = self.queue().len;
        let client = TcpStream::connect_timeout(&self.address, PATIENCE).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        until("the connection is queued", || self.queue().len > before);
        client
    }

    /// Starts to connect a client, without waiting for it.
    fn try_connect(&self) -> TcpStream {
        let fd = client::stream(&self.address).unwrap();
        client::connect(fd.as_fd(), &self.address).unwrap();
        TcpStream::from(fd)
    }

    /// Starts to connect a client whose SYN is dropped; it will retry.
    fn connect_unanswered(&self) -> TcpStream {
        let before = self.drops();
        let client = self.try_connect();
        until("a drop is counted", || self.drops() > before);
        assert!(is_pending(&client));
        client
    }

    /// Waits for a connection and accepts it, in blocking mode.
    fn accept(&self) -> TcpStream {
        until("somebody is in the queue", || self.queue().len > 0);
        let conn = TcpStream::from(socket::accept(self.fd()).unwrap().0);
        conn.set_nonblocking(false).unwrap();
        conn.set_read_timeout(Some(PATIENCE)).unwrap();
        conn
    }
}

fn is_pending(client: &TcpStream) -> bool {
    let connected = client.peer_addr();
    assert!(client::take_error(client.as_fd()).unwrap().is_none());
    connected.is_err_and(|error| error.kind() == ErrorKind::NotConnected)
}

/// Runs a test for both IP versions.
fn for_each_ip(backlog: i32, test: impl Fn(&TestListener)) {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        if let Some(listener) = TestListener::open(address, backlog) {
            test(&listener);
        }
    }
}

/// Like [`for_each_ip`], for a test that drops SYNs, if that is permitted here.
fn for_each_ip_with_filter(backlog: i32, test: impl Fn(&TestListener)) {
    let listener = TestListener::open("127.0.0.1:0", 1).unwrap();
    match drop_share(listener.fd(), 1.0) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            eprintln!("skipped: this kernel asks for CAP_NET_ADMIN");
        }
        other => {
            other.unwrap();
            for_each_ip(backlog, test);
        }
    }
}

/// Runs `act` on a thread without any capability; capabilities are what gives root its power.
fn unprivileged(act: impl FnOnce() + Send) {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    let powerless = || {
        set_capabilities(None, sets).unwrap();
        act();
    };
    std::thread::scope(|scope| scope.spawn(powerless).join().unwrap());
}

fn see(conn: &TcpStream) -> Arrival {
    arrival(conn.as_fd()).unwrap()
}

/// Checks that bytes pass in both directions.
fn talk(client: &TcpStream, conn: &TcpStream) {
    for (mut from, mut to) in [(client, conn), (conn, client)] {
        let (sent, mut got) = ([7; 3000], [0; 3000]);
        from.write_all(&sent).unwrap();
        to.read_exact(&mut got).unwrap();
        assert_eq!(sent, got);
    }
}

#[test]
fn the_queue_counts_who_waits_and_its_bound_follows_listen() {
    for_each_ip(7, |listener| {
        assert_eq!(listener.queue(), Queue { len: 0, max: 7 });
        let _clients = [listener.connect(), listener.connect()];
        assert_eq!(listener.queue(), Queue { len: 2, max: 7 });
        let _conn = listener.accept();
        assert_eq!(listener.queue(), Queue { len: 1, max: 7 });
        socket::listen(listener.fd(), 9).unwrap();
        assert_eq!(listener.queue(), Queue { len: 1, max: 9 });
    });
}

#[test]
fn a_queue_made_shorter_keeps_those_in_it_and_refuses_more() {
    for_each_ip(8, |listener| {
        let clients =
            [listener.connect(), listener.connect(), listener.connect(), listener.connect()];
        assert_eq!(listener.drops(), 0);
        socket::listen(listener.fd(), 2).unwrap();
        assert_eq!(listener.queue(), Queue { len: 4, max: 2 });
        let _late = listener.connect_unanswered();
        for client in &clients {
            talk(client, &listener.accept());
        }
    });
}

#[test]
fn a_full_queue_holds_one_more_than_its_bound_and_counts_its_drops() {
    for_each_ip(1, |listener| {
        let _clients = [listener.connect(), listener.connect()];
        assert_eq!((listener.queue(), listener.drops()), (Queue { len: 2, max: 1 }, 0));
        let _late = listener.connect_unanswered();
        assert_eq!(listener.queue().len, 2);
    });
}

#[test]
fn a_filter_that_drops_all_is_without_mercy_until_it_is_taken_away() {
    let ways: [fn(&TestListener); 4] = [
        |listener| detach(listener.fd()).unwrap(),
        |listener| drop_share(listener.fd(), 0.0).unwrap(),
        |listener| drop_share(listener.fd(), -1.0).unwrap(),
        |listener| drop_share(listener.fd(), f64::NAN).unwrap(),
    ];
    for open in ways {
        for_each_ip_with_filter(8, |listener| {
            for share in [1.0, 2.0, f64::INFINITY] {
                drop_share(listener.fd(), share).unwrap();
                let _clients = [(); 10].map(|()| listener.connect_unanswered());
                assert_eq!(listener.queue().len, 0);
            }
            open(listener);
            listener.connect();
        });
    }
}

#[test]
fn a_filter_that_drops_half_of_them_drops_some_and_passes_some() {
    const CALLS: u32 = 64;
    for_each_ip_with_filter(CALLS as i32, |listener| {
        drop_share(listener.fd(), 0.5).unwrap();
        let _clients = [(); CALLS as usize].map(|()| listener.try_connect());
        // A uniform outcome has a probability of 2 in 2⁶⁴.
        until("each was dropped or passed", || listener.queue().len + listener.drops() >= CALLS);
        assert!(listener.queue().len > 0 && listener.drops() > 0);
    });
}

#[test]
fn the_least_share_passes_nearly_all() {
    for_each_ip_with_filter(64, |listener| {
        for share in [f64::MIN_POSITIVE, 1e-9] {
            drop_share(listener.fd(), share).unwrap();
            let _clients = [(); 20].map(|()| listener.connect());
            // A drop has a probability of about 1 in 10⁷.
            assert_eq!(listener.drops(), 0);
        }
    });
}

#[test]
fn accepted_connections_continue_when_all_syns_are_dropped() {
    for_each_ip_with_filter(32, |listener| {
        let mut pairs = vec![(listener.connect(), listener.accept())];
        drop_share(listener.fd(), 1e-9).unwrap();
        pairs.push((listener.connect(), listener.accept()));
        drop_share(listener.fd(), 1.0).unwrap();
        let _late = listener.connect_unanswered();
        for (client, conn) in &mut pairs {
            talk(client, conn);
            // As if it had been accepted behind the closed filter.
            drop_share(conn.as_fd(), 1.0).unwrap();
            talk(client, conn);
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(conn.read(&mut [0]).unwrap(), 0);
        }
    });
}

#[test]
fn a_reset_passes_the_filter() {
    for_each_ip_with_filter(8, |listener| {
        let (client, conn) = (listener.connect(), listener.accept());
        drop_share(conn.as_fd(), 1.0).unwrap();
        socket::reset_on_close(client.as_fd());
        drop(client);
        until("the reset is seen", || see(&conn).departed);
    });
}

#[test]
fn taking_away_what_is_not_there_is_no_error() {
    for_each_ip(8, |listener| {
        detach(listener.fd()).unwrap();
        drop_share(listener.fd(), 0.0).unwrap();
    });
    for_each_ip_with_filter(8, |listener| {
        drop_share(listener.fd(), 0.5).unwrap();
        detach(listener.fd()).unwrap();
        detach(listener.fd()).unwrap();
    });
}

#[test]
fn without_privilege_a_filter_can_be_taken_away_and_put_there_or_not() {
    for_each_ip_with_filter(8, |listener| {
        drop_share(listener.fd(), 1.0).unwrap();
        unprivileged(|| detach(listener.fd()).unwrap());
        listener.connect();
    });
    for_each_ip(8, |listener| {
        unprivileged(|| match drop_share(listener.fd(), 1.0) {
            Ok(()) => drop(listener.connect_unanswered()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied);
                listener.connect();
            }
        });
    });
}

#[test]
fn the_age_counts_from_the_newest_data_read_or_not() {
    for_each_ip(8, |listener| {
        let (mut client, mut conn) = (listener.connect(), listener.accept());
        sleep(Duration::from_millis(50));
        let silent = see(&conn);
        let expected = Arrival { age_ns: 0, departed: false, spoken: false, ..silent };
        assert_eq!(silent, expected);
        assert!(silent.rtt_ns > 0, "a handshake takes time");
        assert!(silent.established_ns >= 30_000_000, "{silent:?}");
        client.write_all(b"a").unwrap();
        until("the data is seen", || see(&conn).spoken);
        assert!(see(&conn).established_ns >= silent.established_ns);
        // From here on the data is old, by a time that only the kernel knows.
        sleep(Duration::from_millis(50));
        let aged = see(&conn);
        assert!(aged.age_ns >= 30_000_000, "{aged:?}");
        conn.read_exact(&mut [0]).unwrap();
        assert!(see(&conn).age_ns >= aged.age_ns);
        client.shutdown(Shutdown::Write).unwrap();
        until("the FIN is seen", || see(&conn).departed);
        assert!(see(&conn).age_ns >= aged.age_ns);
    });
}

#[test]
fn a_close_and_a_half_close_and_a_reset_are_departures_and_nobodys_words() {
    let ways: [fn(TcpStream) -> Option<TcpStream>; 3] = [
        |client| {
            drop(client);
            None
        },
        |client| client.shutdown(Shutdown::Write).map(|()| Some(client)).unwrap(),
        |client| {
            socket::reset_on_close(client.as_fd());
            None
        },
    ];
    for leave in ways {
        for words in ["", "a", "a whole request"] {
            for_each_ip(8, |listener| {
                let (mut client, conn) = (listener.connect(), listener.accept());
                client.write_all(words.as_bytes()).unwrap();
                until("the words are seen", || see(&conn).spoken || words.is_empty());
                assert!(!see(&conn).departed);
                let _half = leave(client);
                until("the departure is seen", || see(&conn).departed);
                assert_eq!(see(&conn).spoken, !words.is_empty());
            });
        }
    }
}

#[test]
fn who_left_before_the_accept_has_departed_with_what_was_said() {
    for_each_ip(8, |listener| {
        let mut client = listener.connect();
        client.write_all(b"a").unwrap();
        drop(client);
        let conn = listener.accept();
        until("the departure is seen", || see(&conn).departed);
        assert!(see(&conn).spoken);
    });
}

#[test]
fn one_that_both_sides_closed_has_departed() {
    for_each_ip(8, |listener| {
        let (client, conn) = (listener.connect(), listener.accept());
        conn.shutdown(Shutdown::Write).unwrap();
        assert!(!see(&conn).departed);
        drop(client);
        until("the departure is seen", || see(&conn).departed);
        assert!(!see(&conn).spoken);
    });
}

#[test]
fn a_socket_that_does_not_listen_has_no_queue() {
    let error = |fd: BorrowedFd<'_>| queue(fd).unwrap_err().kind();
    let bound = socket::bind_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
    assert_eq!(error(bound.as_fd()), ErrorKind::InvalidInput);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(error(client.as_fd()), ErrorKind::InvalidInput);
}

#[test]
fn a_unix_socket_says_that_it_has_neither_queue_nor_arrivals() {
    let name = format!("weir-sys-listener-{}", std::process::id());
    let address = UnixAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let fd = listener.as_fd();
    assert_eq!(queue(fd).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    assert_eq!(arrival(fd).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    assert_eq!(drops(fd).unwrap(), 0);
    drop_share(fd, 1.0).unwrap();
    std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
    detach(fd).unwrap();
}
