//! The interface between a testbed and the servers, loads and measurements that run on it: two
//! sides with their processors and addresses. The testbed module builds it.

use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command};

/// A side of the testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side on which servers run.
    Server,
    /// The side on which load generators run.
    Client,
}

/// A link, as a TCP that is not the kernel's finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketLink {
    /// Name of the interface.
    pub interface: String,
    /// A network whose addresses no kernel has, and that the server reaches through the link.
    pub network: String,
    /// Name of the interface at the server's end.
    pub server_interface: String,
    /// An address on the link that no kernel has, for a server with a TCP of its own.
    pub server_address: IpAddr,
}

/// An environment in which processes are started and observed.
pub trait Environment {
    /// Returns a command that runs `program` on a side: in its network namespace, on its
    /// processors, and killed when the thread that starts it ends, hence with the lab. Its process
    /// id is that of the program. Its standard input is empty unless set.
    fn command(&self, side: Side, program: &OsStr) -> Command {
        self.command_in(side, program, &[])
    }

    /// Like [`Environment::command`], but runs the program and its descendants in the given control
    /// groups, directories of cgroups(7).
    fn command_in(&self, side: Side, program: &OsStr, groups: &[PathBuf]) -> Command;

    /// Starts a command of [`Environment::command`] such that all descendants of the program end
    /// with the lab too, however it ends. Servers and loads are started this way. A tool that finds
    /// a process by its id, such as `strace -p`, must be spawned directly: ids may differ inside
    /// the testbed.
    ///
    /// # Errors
    /// Returns the error of [`Command::spawn`].
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        command.spawn()
    }

    /// Returns the address that servers listen on.
    fn server_address(&self) -> IpAddr;

    /// Returns the source addresses of loads; empty means that the kernel chooses.
    fn client_sources(&self) -> Vec<IpAddr>;

    /// Returns where a client with a TCP of its own finds the server; `None` where there is no
    /// link.
    fn packet_link(&self) -> Option<PacketLink> {
        None
    }

    /// Has the client's packets handled by its own processors, as they are until this is called, or
    /// leaves them to the processors that send them. A client that asks for its packets now and
    /// then is not interrupted for each; the server's processors pay for what they put into its
    /// ring, and are spared the interrupts that they would send.
    ///
    /// # Errors
    /// Returns the kernel's error.
    fn steer_client_packets(&self, _to_the_client: bool) -> io::Result<()> {
        Ok(())
    }

    /// Returns the directory with a side's `netstat`, `snmp` and `tcp`: `/proc/PID/net`.
    fn proc_net(&self, side: Side) -> PathBuf;

    /// Returns the processors of a side.
    fn cpus(&self, side: Side) -> &[usize];

    /// Returns whether the two sides share one network namespace, as on loopback.
    fn shared(&self) -> bool;
}
