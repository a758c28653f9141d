//! The testbed: two networks joined by a link, processors for each side, and nothing left behind.
//!
//! With namespaces, each side's network lives in a *namespace holder* process, and all processes of
//! the run live in a PID namespace whose first process is the server's holder. A holder ends when
//! its standard input is closed, hence with the lab, however that ends. When the first process of
//! the PID namespace ends, the kernel kills all others in it; with their last process, the networks
//! and the link vanish. Nothing has a name on the host or a file on its disk. The client's holder
//! runs outside of the PID namespace and kills processes started in a network but not in the
//! namespace.
//!
//! Without namespaces there is one holder, which kills every process with the run's mark when its
//! input ends. Nothing on the host is changed.
//!
//! Servers, loads and measurements use it through [`Environment`].

mod build;
mod cleanup;
mod cpus;
mod description;
mod enter;
mod holder_main;
mod link;
mod namespace_holder;
mod settings;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use weir_sys::namespace::PidNamespace;

pub use cpus::{format_list, parse_list};
pub use description::{Description, Mode, RequestedMode, SideDescription, TestbedOptions};
pub use enter::enter_main;
pub use holder_main::holder_main;
pub use link::ADDRESSES_MAX;

use crate::environment::{Environment, PacketLink, Side};
use namespace_holder::NamespaceHolder;

/// A testbed. Dropping it tears everything down; callers wait for the processes they started first.
#[derive(Debug)]
pub struct Testbed {
    weir: PathBuf,
    holders: NamespaceHolders,
    description: Description,
}

#[derive(Debug)]
enum NamespaceHolders {
    Namespaces(Namespaces),
    Loopback { holder: RefCell<NamespaceHolder>, run: String },
}

// Declared, thus dropped, in the order in which they end: the first process of the PID namespace
// takes all the others with it.
#[derive(Debug)]
struct Namespaces {
    server: NamespaceHolder,
    client: NamespaceHolder,
    pids: PidNamespace,
}

impl Testbed {
    /// Returns its description, for the record.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Checks that the testbed is still complete.
    ///
    /// # Errors
    /// Returns a sentence that names what is gone.
    pub fn check_alive(&mut self) -> Result<(), String> {
        let dead = match &mut self.holders {
            NamespaceHolders::Namespaces(both) => {
                [("server", both.server.is_alive()), ("client", both.client.is_alive())]
                    .into_iter()
                    .find_map(|(side, alive)| (!alive).then_some(side))
            }
            NamespaceHolders::Loopback { holder, .. } => {
                (!holder.get_mut().is_alive()).then_some("run")
            }
        };
        match dead {
            Some(of) => Err(format!("the holder of the {of} was killed: the testbed is gone")),
            None => Ok(()),
        }
    }

    fn side(&self, side: Side) -> &SideDescription {
        match side {
            Side::Server => &self.description.server,
            Side::Client => &self.description.client,
        }
    }
}

impl Namespaces {
    fn holder(&self, side: Side) -> &NamespaceHolder {
        match side {
            Side::Server => &self.server,
            Side::Client => &self.client,
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // Both are told before either is waited for: each waits for processes that the other kills.
        self.server.release();
        self.client.release();
    }
}

impl Environment for Testbed {
    fn command_in(&self, side: Side, program: &OsStr, groups: &[PathBuf]) -> Command {
        let place = (self.side(side).cpus.as_slice(), groups);
        match &self.holders {
            NamespaceHolders::Namespaces(both) => {
                enter(&self.weir, Some(both.holder(side)), place, program)
            }
            NamespaceHolders::Loopback { run, .. } => {
                let mut command = enter(&self.weir, None, place, program);
                // A mark by which the holder identifies the process, until it overwrites its
                // environment.
                command.env(cleanup::RUN_VARIABLE, run);
                command
            }
        }
    }

    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        match &self.holders {
            NamespaceHolders::Namespaces(both) => both.pids.spawn_inside(|| command.spawn()),
            NamespaceHolders::Loopback { holder, .. } => {
                let child = command.spawn()?;
                let told = holder.borrow_mut().add_group(child.id());
                told.map_err(io::Error::other)?;
                Ok(child)
            }
        }
    }

    fn server_address(&self) -> IpAddr {
        match self.description.mode {
            Mode::Namespaces => link::SERVER,
            Mode::Loopback => link::LOOPBACK_SERVER,
        }
    }

    fn client_sources(&self) -> Vec<IpAddr> {
        self.description.client.addresses.clone()
    }

    fn packet_link(&self) -> Option<PacketLink> {
        (self.description.mode == Mode::Namespaces).then(link::packet_link)
    }

    fn steer_client_packets(&self, to_the_client: bool) -> io::Result<()> {
        let NamespaceHolders::Namespaces(both) = &self.holders else { return Ok(()) };
        let client = self.side(Side::Client);
        // Where steering is not to be had, the description says so.
        if client.rps_cpus.is_none() {
            return Ok(());
        }
        let cpus: &[usize] = if to_the_client { &client.cpus } else { &[] };
        let seen_by_the_holder = both.client.proc().join("root");
        std::fs::write(
            link::packet_cpus_file(&seen_by_the_holder, Side::Client),
            cpus::format_mask(cpus),
        )
    }

    fn proc_net(&self, side: Side) -> PathBuf {
        match &self.holders {
            NamespaceHolders::Namespaces(both) => both.holder(side).proc().join("net"),
            NamespaceHolders::Loopback { holder, .. } => holder.borrow().proc().join("net"),
        }
    }

    fn cpus(&self, side: Side) -> &[usize] {
        &self.side(side).cpus
    }

    fn shared(&self) -> bool {
        self.description.mode == Mode::Loopback
    }
}

/// Returns a command that runs a program in a holder's namespaces, on these processors and in these
/// control groups.
fn enter(
    weir: &Path,
    holder: Option<&NamespaceHolder>,
    (cpus, groups): (&[usize], &[PathBuf]),
    program: &OsStr,
) -> Command {
    let mut command = Command::new(weir);
    command.arg("lab-enter");
    for group in groups {
        command.arg("--group").arg(group);
    }
    if let Some(holder) = holder {
        let namespaces = holder.proc().join("ns");
        command.arg("--net").arg(namespaces.join("net"));
        command.arg("--mnt").arg(namespaces.join("mnt"));
    }
    command.args(["--cpus", &format_list(cpus)]);
    command.args(["--parent", &std::process::id().to_string(), "--"]).arg(program);
    // A process group of its own, out of reach of a terminal's interrupt: the lab ends it in order.
    command.stdin(Stdio::null()).process_group(0);
    command
}
