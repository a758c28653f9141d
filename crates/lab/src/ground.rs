//! What an experiment stands on, as servers, loads and measures need to know it: two sides, their
//! processors and addresses. How it is built is the testbed's.

use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command};

/// A side of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where servers run.
    Server,
    /// Where loads run.
    Client,
}

/// Where processes are started and looked at.
pub trait Ground {
    /// A command that runs `program` on a side: in its network namespace, on its processors, and
    /// gone when the thread that starts it is, thus when the lab is. Its process id is that of the
    /// program. It reads nothing unless told to.
    fn command(&self, side: Side, program: &OsStr) -> Command {
        self.command_in(side, program, &[])
    }

    /// The same in these control groups, folders of cgroups(7), and so is all it starts.
    fn command_in(&self, side: Side, program: &OsStr, groups: &[PathBuf]) -> Command;

    /// Starts a command of [`Ground::command`] so that what the program starts is gone with the lab
    /// too, whatever ends it. Servers and loads are started so. A tool that finds a process by its
    /// id, as `strace -p` does, is started plainly: ids may mean something else in there.
    ///
    /// # Errors
    /// What [`Command::spawn`] says.
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        command.spawn()
    }

    /// The address servers listen on.
    fn server_address(&self) -> IpAddr;

    /// The addresses loads come from; none means that the kernel chooses.
    fn client_sources(&self) -> Vec<IpAddr>;

    /// The directory with a side's `netstat`, `snmp`, `tcp`: `/proc/PID/net`.
    fn proc_net(&self, side: Side) -> PathBuf;

    /// The processors of a side.
    fn cpus(&self, side: Side) -> &[usize];

    /// Whether the two sides share one network namespace: loopback.
    fn shared(&self) -> bool;
}
