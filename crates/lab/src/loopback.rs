//! An environment for tests: loopback, with commands run directly. Not a testbed: nothing is
//! isolated.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::environment::{Environment, Side};

/// An environment with both sides on 127.0.0.1.
pub(crate) struct Loopback;

impl Environment for Loopback {
    fn command_in(&self, _side: Side, program: &OsStr, _groups: &[PathBuf]) -> Command {
        Command::new(program)
    }

    fn server_address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    }

    fn client_sources(&self) -> Vec<IpAddr> {
        vec![IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))]
    }

    fn proc_net(&self, _side: Side) -> PathBuf {
        "/proc/self/net".into()
    }

    fn cpus(&self, _side: Side) -> &[usize] {
        &[0]
    }

    fn shared(&self) -> bool {
        true
    }
}

/// [`Loopback`] that notes where the client's packets are to go.
#[derive(Default)]
pub(crate) struct NotingLoopback {
    /// The orders, as they came: true is to the client's processors.
    pub(crate) steered: RefCell<Vec<bool>>,
}

impl Environment for NotingLoopback {
    fn command_in(&self, side: Side, program: &OsStr, groups: &[PathBuf]) -> Command {
        Loopback.command_in(side, program, groups)
    }

    fn server_address(&self) -> IpAddr {
        Loopback.server_address()
    }

    fn client_sources(&self) -> Vec<IpAddr> {
        Loopback.client_sources()
    }

    fn steer_client_packets(&self, to_the_client: bool) -> io::Result<()> {
        self.steered.borrow_mut().push(to_the_client);
        Ok(())
    }

    fn proc_net(&self, side: Side) -> PathBuf {
        Loopback.proc_net(side)
    }

    fn cpus(&self, _side: Side) -> &[usize] {
        &[0]
    }

    fn shared(&self) -> bool {
        true
    }
}

/// Returns a port with no listener, below the ephemeral port range. Each port is returned at most
/// once per process.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 22_000 + (std::process::id() % 8_000) as u16;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Returns the `weir` binary built next to this test; `None`, with a message on stderr, if it is
/// not built.
pub(crate) fn weir() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let weir = test.parent()?.parent()?.join("weir");
    if weir.is_file() {
        return Some(weir);
    }
    eprintln!("weir is not built: skipped");
    None
}
