//! Drops of connection requests: packets made by hand provoke each kind on a link of its own. The
//! lab must tell it from the others to the last one, and the sum of all kinds must be what the
//! kernel counts for the network and for the socket.
//!
//! WEIR_DROPS=1000000 provokes as many of each kind. Nothing here measures a duration.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType};
use weir_lab::measure::kernel::{self, Counters, Drops, Traced, classify};
use weir_lab::record::{Kernel, TracedDrops};
use weir_sys::drop_trace::{DropTrace, Listeners};
use weir_sys::syn_filter::random;
use weir_sys::{listener, tun};
use weir_tests::link::{self, ACK, RST, SYN, packet};

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 89, 0, 1), 80);

/// Returns the number of drops to provoke of each kind.
fn drops() -> u64 {
    std::env::var("WEIR_DROPS").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000)
}

/// A listening socket, at one end of a link whose other end is this test.
struct Scene {
    tun: tun::Tun,
    listener: OwnedFd,
    trace: DropTrace,
    /// The counters of the network and of the socket when the test began to count.
    before: (Counters, u32),
    /// Number of the next client: each has an address and a port of its own.
    next: u32,
}

/// A client in the middle of its handshake.
#[derive(Clone, Copy)]
struct Client {
    address: SocketAddrV4,
    /// The number that the server's answer began with.
    theirs: u32,
}

impl Scene {
    fn begin(backlog: i32, settings: &[(&str, &str)]) -> Result<Self, String> {
        let tun = link::begin(*SERVER.ip())?;
        for (name, value) in settings {
            std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value)
                .map_err(|error| format!("{name} cannot be set: {error}"))?;
        }
        let network = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino() as u32;
        let trace = DropTrace::begin(Listeners { network, port: SERVER.port() })
            .map_err(|error| error.to_string())?;
        let listener = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&listener, &SERVER).unwrap();
        rustix::net::listen(&listener, backlog).unwrap();
        Ok(Self { tun, listener, trace, before: Default::default(), next: 0 })
    }

    /// Sends a packet to the server, which has dealt with it when this returns.
    fn send(&self, from: SocketAddrV4, flags: u8, ours: u32, theirs: u32) {
        rustix::io::write(&self.tun.fd, &packet(from, SERVER, flags, ours, theirs)).unwrap();
    }

    fn client(&mut self) -> SocketAddrV4 {
        self.next += 1;
        let host = Ipv4Addr::from(u32::from(*SERVER.ip()) + 1 + self.next % 60_000);
        SocketAddrV4::new(host, 1024 + (self.next / 60_000) as u16)
    }

    /// Sends a SYN of a new client, and returns the client if it is answered.
    fn syn(&mut self) -> Option<Client> {
        let address = self.client();
        self.send(address, SYN, 0, 0);
        let mut packet = [0; 2048];
        loop {
            let mut fds = [PollFd::from_borrowed_fd(self.tun.fd.as_fd(), PollFlags::IN)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut fds, Some(&at_once)).unwrap() == 0 {
                return None;
            }
            let count = rustix::io::read(&self.tun.fd, &mut packet).unwrap();
            if count >= 40 && packet[16..20] == address.ip().octets() && packet[33] == SYN | ACK {
                let theirs = u32::from_be_bytes(packet[24..28].try_into().unwrap());
                return Some(Client { address, theirs });
            }
        }
    }

    fn ack(&self, client: Client) {
        self.send(client.address, ACK, 1, client.theirs.wrapping_add(1));
    }

    /// Completes handshakes until the accept queue is full.
    fn fill_accept_queue(&mut self) {
        let is_full = |queue: listener::Queue| queue.len > queue.max;
        while !is_full(listener::queue(self.listener.as_fd()).unwrap()) {
            let client = self.syn().unwrap();
            self.ack(client);
        }
    }

    /// Begins to count. Nothing may have been dropped before.
    fn mark(&mut self) {
        self.before = (counters(), listener::drops(self.listener.as_fd()).unwrap());
        assert_eq!(self.traced(), TracedDrops::default());
    }

    fn traced(&self) -> TracedDrops {
        let counts = self.trace.counts();
        TracedDrops {
            overflow: counts.overflow,
            overflow_of_cookie: counts.overflow_of_cookie,
            filter: counts.filter,
            other: counts.other,
        }
    }

    /// Returns the drops since [`Scene::mark`] by kind. Their sum must be what the kernel has
    /// counted.
    fn drops(&self) -> Kinds {
        let moved = kernel::moved(&self.before.0, &counters());
        let own = listener::drops(self.listener.as_fd()).unwrap().wrapping_sub(self.before.1);
        let traced = self.traced();
        let kernel = Kernel { moved, traced: Some(traced), ..Kernel::default() };
        let Drops { all, accept_queue_full, syn_queue_full, drop_request, traced: parts, .. } =
            classify(&kernel);
        let Traced { accept_queue_full_at_syn, listen_overflow, filter, other } = parts.unwrap();
        let at_accept_queue = accept_queue_full_at_syn + listen_overflow;
        assert_eq!(at_accept_queue, accept_queue_full, "{kernel:?}");
        assert_eq!(at_accept_queue + syn_queue_full + drop_request, all, "{kernel:?}");
        // A third ACK counts twice there unless it has a cookie.
        assert_eq!(all + traced.overflow + filter + other, u64::from(own), "{kernel:?}");
        Kinds {
            accept_queue_full: accept_queue_full_at_syn,
            listen_overflow,
            syn_queue_full,
            drop_request,
            filter,
            other,
        }
    }
}

/// Drops by kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kinds {
    accept_queue_full: u64,
    listen_overflow: u64,
    syn_queue_full: u64,
    drop_request: u64,
    filter: u64,
    other: u64,
}

fn counters() -> Counters {
    kernel::read(Path::new("/proc/thread-self/net")).unwrap()
}

const NO_COOKIES: (&str, &str) = ("tcp_syncookies", "0");
const ONLY_COOKIES: (&str, &str) = ("tcp_syncookies", "2");

/// Runs a test on a link of its own, or skips it.
fn scene(backlog: i32, settings: &[(&str, &str)], test: impl FnOnce(Scene) + Send) {
    let run = || match Scene::begin(backlog, settings) {
        Ok(scene) => test(scene),
        Err(why) => println!("skipped: {why}"),
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap());
}

/// Sends SYNs of new clients until as many as wanted were not answered.
fn syns_in_vain(scene: &mut Scene) {
    let mut in_vain = 0;
    while in_vain < drops() {
        in_vain += u64::from(scene.syn().is_none());
    }
}

#[test]
fn a_syn_that_finds_the_accept_queue_full_is_an_accept_queue_full() {
    scene(8, &[NO_COOKIES], |mut scene| {
        scene.fill_accept_queue();
        scene.mark();
        syns_in_vain(&mut scene);
        assert_eq!(scene.drops(), Kinds { accept_queue_full: drops(), ..Kinds::default() });
    });
}

#[test]
fn a_third_ack_that_finds_the_accept_queue_full_is_a_listen_overflow() {
    for cookies in [NO_COOKIES, ONLY_COOKIES] {
        scene(128, &[cookies], |mut scene| {
            let clients: Vec<_> = (0..32).map(|_| scene.syn().unwrap()).collect();
            scene.fill_accept_queue();
            scene.mark();
            for client in clients.iter().cycle().take(drops() as usize) {
                scene.ack(*client);
            }
            let expected = Kinds { listen_overflow: drops(), ..Kinds::default() };
            assert_eq!(scene.drops(), expected, "{cookies:?}");
        });
    }
}

#[test]
fn a_syn_that_finds_the_syn_queue_full_is_a_syn_queue_full() {
    scene(8, &[NO_COOKIES], |mut scene| {
        scene.mark();
        syns_in_vain(&mut scene);
        assert_eq!(scene.drops(), Kinds { syn_queue_full: drops(), ..Kinds::default() });
    });
}

#[test]
fn a_syn_that_finds_the_syn_queue_three_quarters_full_is_a_drop_request() {
    scene(128, &[NO_COOKIES, ("tcp_max_syn_backlog", "16")], |mut scene| {
        scene.mark();
        syns_in_vain(&mut scene);
        assert_eq!(scene.drops(), Kinds { drop_request: drops(), ..Kinds::default() });
    });
}

#[test]
fn a_syn_that_the_filter_drops_is_in_no_counter_of_the_network() {
    scene(8, &[], |mut scene| {
        random::attach(scene.listener.as_fd(), 1.0).unwrap();
        scene.mark();
        syns_in_vain(&mut scene);
        assert_eq!(scene.drops(), Kinds { filter: drops(), ..Kinds::default() });
    });
}

#[test]
fn what_is_no_part_of_a_handshake_is_another_drop() {
    scene(8, &[], |mut scene| {
        let (client, stranger) = (scene.syn().unwrap(), scene.client());
        scene.mark();
        for at in 0..drops() {
            let (from, flags) = if at % 2 == 0 { (client.address, SYN) } else { (stranger, RST) };
            scene.send(from, flags, 0, 0);
        }
        assert_eq!(scene.drops(), Kinds { other: drops(), ..Kinds::default() });
    });
}

#[test]
fn no_drop_is_lost_among_kinds_that_come_at_once() {
    scene(128, &[NO_COOKIES], |mut scene| {
        let clients: Vec<_> = (0..32).map(|_| scene.syn().unwrap()).collect();
        scene.fill_accept_queue();
        random::attach(scene.listener.as_fd(), 0.5).unwrap();
        scene.mark();
        let strangers: Vec<_> = (0..drops()).map(|_| scene.client()).collect();
        thread::scope(|threads| {
            threads.spawn(|| strangers.iter().for_each(|from| scene.send(*from, SYN, 0, 0)));
            threads.spawn(|| {
                clients.iter().cycle().take(drops() as usize).for_each(|client| scene.ack(*client));
            });
        });
        let kinds = scene.drops();
        assert_eq!(kinds.accept_queue_full + kinds.filter, drops(), "{kinds:?}");
        assert!(kinds.accept_queue_full > 0 && kinds.filter > 0, "{kinds:?}");
        let expected = Kinds { listen_overflow: drops(), ..Kinds::default() };
        assert_eq!(Kinds { accept_queue_full: 0, filter: 0, ..kinds }, expected);
    });
}
