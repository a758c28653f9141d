//! The token SYN filter at the link: SYNs made by hand on a real interface. Every test says that it
//! skips where there can be no link, or no filter at one.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use weir_accept::{ADDRESSES_COUNTED_MAX, BURST};
use weir_packet::segment::{Flags, Segment};
use weir_packet::seq::Seq;
use weir_packet::wire::{self, Ends, Macs, TcpPacket};
use weir_sys::interface::{self, Interface};
use weir_sys::network::Network;
use weir_sys::packet_socket::PacketSocket;
use weir_sys::syn_filter::tokens::{Rules, TokenFilter, Tokens};
use weir_sys::{socket, syn_filter};
use weir_tests::link::ip;
use weir_tests::load::load;
pub(crate) use weir_tests::own_link::SERVER_V4;
use weir_tests::own_link::{self, INTERFACE, SERVER_V6};
use weir_tests::server::run;
use weir_tests::{Root, Server};

use crate::WEIR;

/// Length of an epoch, 2^40 ns, far longer than the test: across a boundary the weights would be
/// those of two epochs.
const EPOCH_BITS: u32 = 40;

/// The rules of the policies, but for the epoch.
pub(crate) const RULES: Rules = Rules {
    burst: BURST as u32,
    addresses_counted_max: ADDRESSES_COUNTED_MAX,
    epoch_bits: EPOCH_BITS,
    dropped_max: 1024,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A link: the end that sends, and that of the server.
pub(crate) struct Link {
    socket: PacketSocket,
    client: Interface,
    server: Interface,
}

/// A listening socket whose filter is at the link and at the socket.
pub(crate) struct Guarded {
    fd: OwnedFd,
    pub address: SocketAddr,
    pub filter: TokenFilter,
}

/// Runs a test in a network namespace of its own with a link, or skips it.
pub(crate) fn on_a_link(test: impl FnOnce(&Link) + Send) {
    let run = || match Link::begin() {
        Ok(link) => test(&link),
        Err(why) => println!("skipped: {why}"),
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap());
}

impl Link {
    fn begin() -> Result<Self, String> {
        own_link::enter()?;
        let because = |error: std::io::Error| error.to_string();
        let client = interface::find(INTERFACE).map_err(because)?;
        let server = interface::find("weir-s").map_err(because)?;
        let nobody = Network { first: IpAddr::from([192, 0, 2, 0]), prefix: 24 };
        let socket = PacketSocket::open(client.index, nobody).map_err(because)?;
        let mut filter = TokenFilter::new(RULES).map_err(because)?;
        filter.attach_to_links(([0, 0, 0, 0], 1).into()).map_err(because)?;
        Ok(Self { socket, client, server })
    }

    /// Listens on any port of an address.
    pub(crate) fn listen(&self, ip: &str) -> Guarded {
        let fd = socket::bind_tcp((ip.parse::<IpAddr>().unwrap(), 0).into(), false).unwrap();
        socket::listen(fd.as_fd(), 512).unwrap();
        let address = socket::local_address(fd.as_fd()).unwrap().unwrap();
        let mut filter = TokenFilter::new(RULES).unwrap();
        filter.attach(fd.as_fd()).unwrap();
        assert!(filter.attach_to_links(address).unwrap() >= 1);
        Guarded { fd, address, filter }
    }

    /// Sends a SYN over the link.
    pub(crate) fn send_syn(&self, source: SocketAddr, destination: SocketAddr) {
        self.send_syn_numbered(0, source, destination);
    }

    /// Sends a SYN with a sequence number over the link.
    fn send_syn_numbered(&self, number: u32, source: SocketAddr, destination: SocketAddr) {
        let flags = Flags { syn: true, ..Flags::default() };
        let segment = Segment { seq: Seq(number), flags, window: 1024, ..Segment::default() };
        self.send(segment, source, destination);
    }

    fn send(&self, segment: Segment<'_>, source: SocketAddr, destination: SocketAddr) {
        let ends = Ends { source, destination };
        let macs = Macs { source: self.client.mac, destination: self.server.mac };
        let mut frame = Vec::new();
        wire::build(&mut frame, macs, &TcpPacket { ends, segment });
        assert_eq!(self.socket.send(&frame, 0, &[frame.len()]).unwrap(), 1);
    }
}

impl Guarded {
    fn set(&self, limit: u64) {
        self.filter.set(Tokens { limit, ..Tokens::default() });
    }

    /// Returns how many SYNs have been judged.
    pub(crate) fn judged(&self) -> u64 {
        let counts = self.filter.counts();
        counts.passed + counts.dropped
    }

    /// Waits until that many have been judged.
    pub(crate) fn wait_for(&self, judged: u64) {
        let until = Instant::now() + PATIENCE;
        while self.judged() < judged {
            assert!(Instant::now() < until, "{:?}: a SYN was not judged", self.filter.counts());
            thread::sleep(Duration::from_micros(50));
        }
        assert_eq!(self.judged(), judged, "a SYN was judged twice");
    }

    /// Returns how many handshakes wait for their third packet (SYN_RECV in proc_pid_net(5)).
    fn handshakes(&self) -> usize {
        let file = if self.address.is_ipv4() { "tcp" } else { "tcp6" };
        let table = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        let port = format!(":{:04X}", self.address.port());
        let is_one = |line: &&str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields[1].ends_with(&port) && fields[3] == "03"
        };
        table.lines().skip(1).filter(is_one).count()
    }
}

/// Returns a client's address and the server's, of the same IP version.
fn peers() -> [(&'static str, &'static str); 2] {
    [(SERVER_V4, "10.77.128.1"), (SERVER_V6, "fd77:0:0:1::1")]
}

fn client(ip: &str, port: u16) -> SocketAddr {
    (ip.parse::<IpAddr>().unwrap(), port).into()
}

#[test]
fn as_many_pass_the_link_as_there_are_tokens() {
    on_a_link(|link| {
        for (server, ip) in peers() {
            let listener = link.listen(server);
            listener.set(3);
            for port in 0..10 {
                link.send_syn(client(ip, 4000 + port), listener.address);
                listener.wait_for(u64::from(port) + 1);
            }
            assert_eq!(listener.filter.counts().passed, 3, "{server}");
            assert_eq!(listener.handshakes(), 3, "{server}");
            // Without the socket's filter the link's goes on.
            syn_filter::detach(listener.fd.as_fd()).unwrap();
            link.send_syn(client(ip, 5000), listener.address);
            listener.wait_for(11);
            assert_eq!((listener.filter.counts().dropped, listener.handshakes()), (8, 3));
        }
    });
}

#[test]
fn a_syn_that_comes_again_has_the_source_the_port_and_the_number_of_the_first() {
    on_a_link(|link| {
        for (server, ip) in peers() {
            let listener = link.listen(server);
            let other = ip.replace('1', "2");
            let first = (1, ip, 4000);
            let syns = [first, (1, ip, 4000), (2, ip, 4000), (1, ip, 4001), (1, &other, 4000)];
            listener.filter.set(Tokens { for_first: 1, ..Tokens::default() });
            let send = |(number, ip, port): (u32, &str, u16)| {
                let judged = listener.judged();
                link.send_syn_numbered(number, client(ip, port), listener.address);
                listener.wait_for(judged + 1);
                listener.filter.counts()
            };
            let known = syns.map(|syn| send(syn).dropped_again);
            assert_eq!(known, [0, 1, 1, 1, 1], "{server}");
            // A token that is not for it, and then one that is for any.
            listener.filter.set(Tokens { limit: 1, for_first: 1, ..Tokens::default() });
            assert_eq!(send(first).passed, 0, "{server}");
            listener.filter.set(Tokens { limit: 2, for_first: 1, ..Tokens::default() });
            assert_eq!(send(first).passed, 1, "{server}");
        }
    });
}

#[test]
fn without_a_limit_the_link_lets_everything_pass() {
    on_a_link(|link| {
        for (server, ip) in peers() {
            let listener = link.listen(server);
            listener.set(0);
            listener.filter.open();
            link.send_syn(client(ip, 4000), listener.address);
            // Judged by the socket's filter.
            listener.wait_for(1);
            assert_eq!((listener.filter.counts().passed, listener.handshakes()), (1, 1));
        }
    });
}

#[test]
fn what_is_no_syn_for_the_listener_is_not_judged() {
    on_a_link(|link| {
        for (server, ip) in peers() {
            let listener = link.listen(server);
            listener.set(0);
            let mut other = listener.address;
            other.set_port(listener.address.port() ^ 1);
            link.send_syn(client(ip, 4000), other);
            let fin = Flags { fin: true, ..Flags::default() };
            let segment = Segment { flags: fin, ..Segment::default() };
            link.send(segment, client(ip, 4000), listener.address);
            // The link keeps the order of packets.
            link.send_syn(client(ip, 4000), listener.address);
            listener.wait_for(1);
            assert_eq!(listener.filter.counts().dropped, 1);
        }
    });
}

#[test]
fn a_syn_for_an_address_added_later_is_judged_at_the_socket() {
    on_a_link(|link| {
        let listener = link.listen("0.0.0.0");
        ip("address add 10.79.0.1/24 dev weir-s").unwrap();
        listener.set(1);
        let to = ("10.79.0.1".parse::<IpAddr>().unwrap(), listener.address.port()).into();
        for port in 0..3 {
            link.send_syn(client("10.77.128.1", 4000 + port), to);
            listener.wait_for(u64::from(port) + 1);
        }
        assert_eq!((listener.filter.counts().dropped, listener.handshakes()), (2, 1));
        // None was judged at the link.
        syn_filter::detach(listener.fd.as_fd()).unwrap();
        link.send_syn(client("10.77.128.1", 5000), to);
        let own = (SERVER_V4.parse::<IpAddr>().unwrap(), listener.address.port()).into();
        link.send_syn(client("10.77.128.1", 5001), own);
        listener.wait_for(4);
    });
}

/// Returns how many packets have reached IP in the network of this thread (`Ip: InReceives` of
/// proc_pid_net(5)).
fn received() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
    let mut words = || lines.next().unwrap().split_whitespace();
    let (mut names, mut values) = (words(), words());
    let at = names.position(|name| name == "InReceives").unwrap();
    values.nth(at).unwrap().parse().unwrap()
}

/// Returns how many packets have arrived at the server's end of the link, before any filter
/// (`/proc/net/dev` of proc_pid_net(5)).
fn arrived() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let counts = text.lines().find_map(|line| line.trim_start().strip_prefix("weir-s:")).unwrap();
    counts.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn what_a_server_drops_at_the_link_does_not_reach_ip() {
    on_a_link(|_| {
        let root = Root::with_hello();
        let listen = format!("{SERVER_V4}:0");
        // The queue is short, so that few connections wait before there is an overload.
        let options =
            ["--workers", "1", "--bench-endpoints", "--listenq", "128", "--listen", &listen];
        for (place, at_the_link) in [("link", true), ("auto", true), ("socket", false)] {
            let place = ["--syn-filter-at", place];
            let server = Server::start(WEIR, &[&options[..], &place].concat(), &root);
            let (arrived_before, received_before) = (arrived(), received());
            let url = format!("http://{}/.weir/burn/10000/hello.txt", server.authority());
            // The kernel remembers about a thousand neighbours.
            let options = format!(
                "--rate 5000 --duration 2s --timeout 1s --stack packet --interface {INTERFACE} \
                 --source 10.77.128.0/25"
            );
            let ran = load(WEIR, &options, url);
            let stopped = server.stop_cleanly();
            let dropped = stopped.stats()["total"]["syn_dropped"].as_u64().unwrap();
            assert!(ran.count("replies") > 0 && dropped > 2000, "{dropped} dropped");
            let received = received() - received_before;
            let arrived = arrived() - arrived_before;
            // Answers of neighbours are missing too: they are no IP.
            let told = format!("{arrived} arrived, {received} received, {dropped} dropped");
            // The two are not read at the same moment.
            let missing = arrived.saturating_sub(received);
            assert_eq!(missing >= dropped, at_the_link, "{told}");
        }
    });
}

#[test]
fn where_there_can_be_no_filter_at_a_link_the_server_says_why() {
    let root = Root::with_hello();
    let run = |options: &[&str]| {
        let mut command = std::process::Command::new(WEIR);
        command.args(["serve", "--syn-filter-at", "link", "--listen", "127.0.0.1:0"]);
        run(command.args(options).arg(root.path()))
    };
    let stopped = run(&["--workers", "2"]);
    assert_eq!(stopped.status.code(), Some(2), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("several loops share the addresses"), "{}", stopped.stderr);
    let stopped = run(&["--workers", "1"]);
    assert_eq!(stopped.status.code(), Some(2), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("--syn-filter-at link is unavailable"), "{}", stopped.stderr);
}
