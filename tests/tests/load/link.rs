//! `weir load link`: two network namespaces joined by paths, and programs that know nothing of it.
//! Skipped where there is no network namespace to be had.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use weir_sys::namespace;
use weir_tests::server::run;
use weir_tests::wait;

use crate::WEIR;

/// Address of the servers' end.
const SERVER: &str = "10.79.0.2:9000";

/// A network namespace, which goes with its process.
struct Space(Child);

impl Space {
    fn new() -> Option<Self> {
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let mut command = Command::new("unshare");
        let mut space = Self(command.args(["--net", "sleep", "1000"]).spawn().ok()?);
        // It has one of its own once sleep(1) runs, or has failed.
        wait::until("a namespace", || {
            space.0.try_wait().unwrap().is_some()
                || fs::read_link(space.link()).is_ok_and(|link| link != own)
        });
        space.0.try_wait().unwrap().is_none().then_some(space)
    }

    fn link(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.id()).into()
    }

    /// Returns a socket in the namespace.
    fn socket(&self, address: &str) -> UdpSocket {
        let open = || {
            namespace::enter_network(&self.link()).unwrap();
            UdpSocket::bind(address).unwrap()
        };
        thread::scope(|scope| scope.spawn(open).join().unwrap())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A link while it lasts.
struct Running(Child);

impl Running {
    fn start(clients: &Space, servers: &Space, path: &str, json: &Path) -> Self {
        let mut command = Command::new(WEIR);
        let [clients, servers] = [clients, servers].map(|space| space.0.id().to_string());
        command.args(["load", "link", "--path", path, "--clients", &clients]);
        command.args(["--servers", &servers, "--seed", "7", "--json"]).arg(json);
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    fn stop(mut self, json: &Path) -> Value {
        let id = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(id, Signal::TERM).unwrap();
        self.0.wait().unwrap();
        serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap()
    }
}

fn spaces() -> Option<[Space; 2]> {
    let spaces = [Space::new()?, Space::new()?];
    // A link needs a device too.
    if Path::new("/dev/net/tun").exists() { Some(spaces) } else { None }
}

/// Waits for the link's interface.
fn await_link(space: &Space) {
    let devices = || {
        namespace::enter_network(&space.link()).unwrap();
        fs::read_to_string("/proc/thread-self/net/route").unwrap()
    };
    wait::until("the link", || {
        let routes = thread::scope(|scope| scope.spawn(devices).join().unwrap());
        routes.contains("weir0")
    });
}

#[test]
fn every_packet_arrives_or_is_lost_as_counted_and_none_is_early() {
    let Some([clients, servers]) = spaces() else {
        return println!("skipped: no network namespace, or no TUN device, can be had");
    };
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("link.json");
    let link = Running::start(&clients, &servers, "rtt=20ms,loss=10%", &json);
    await_link(&clients);
    await_link(&servers);
    let server = servers.socket("0.0.0.0:9000");
    let client = clients.socket("0.0.0.0:0");
    server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let (mut began, mut received) = (Vec::new(), 0);
    // In parts that fit the socket's buffer.
    for part in 0..10_u16 {
        for number in 0..100 {
            began.push(Instant::now());
            client.send_to(&(100 * part + number).to_be_bytes(), SERVER).unwrap();
        }
        let mut packet = [0; 2];
        while server.recv(&mut packet).is_ok() {
            received += 1;
            let sent = began[usize::from(u16::from_be_bytes(packet))];
            assert!(sent.elapsed() >= Duration::from_millis(10), "{:?}", sent.elapsed());
        }
    }
    let counts = link.stop(&json);
    let up = |name: &str| counts["up"][name].as_u64().unwrap();
    // Some are the kernel's own.
    assert!(up("sent") >= 1000 && counts["clients"].as_u64() >= Some(1), "{counts}");
    assert_eq!(up("arrived") + up("lost"), up("sent"), "{counts}");
    assert!((50..150).contains(&(1000 - received)), "{received} of 1000");
    assert!(up("arrived") >= received, "{counts}");
}

#[test]
fn a_link_that_cannot_be_had_gets_one_sentence() {
    let table = [
        ("--clients 1 --servers 1", "one network namespace"),
        ("--clients nobody-here --servers 1", "no such network namespace"),
        ("--clients 1 --servers 2 --network 8.8.0.0/16", "not private"),
        ("--clients 1 --servers 2 --network 10.0.0.0/31", "four addresses"),
    ];
    for (options, sentence) in table {
        let mut command = Command::new(WEIR);
        command.args(["load", "link", "--path", "lan"]).args(options.split(' '));
        let refused = run(&mut command);
        assert_eq!(refused.status.code(), Some(2), "{options}: {}", refused.stderr);
        let said = &refused.stderr;
        let is_root = !said.contains("as root");
        assert!(said.contains(sentence) || !is_root, "{options}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
