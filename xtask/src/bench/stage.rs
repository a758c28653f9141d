//! What every measurement stands on: cores, files to serve, ports, and a server at its place. Knows
//! no case and no load.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

use super::LOAD_CORE;
use super::peers::{Server, Site};
use super::process::{CommandLine, Running, free_address};
use super::window::Window;

/// How long a core is watched with nothing running.
const BACKGROUND_WINDOW: Duration = Duration::from_secs(1);

/// Pins this program to the core of the load.
pub(super) fn stay_off_the_servers_core() -> Result<()> {
    ensure!(thread::available_parallelism()?.get() > LOAD_CORE, "two cores are needed");
    stay_on(LOAD_CORE)
}

/// Pins the calling thread.
pub(super) fn stay_on(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot stay on core {core}"))
}

/// The part of the time in which a core is busy with nothing that is measured.
pub(super) fn background_share(core: usize) -> Result<f64> {
    let open = Window::open(core)?;
    thread::sleep(BACKGROUND_WINDOW);
    Ok(open.close()?.busy_share())
}

/// The files that are served, and the ports they are served on.
pub(super) struct Stage {
    files: TempDir,
    next_port: Cell<u16>,
}

/// Where one server runs, for as long as this is kept.
pub(super) struct Place {
    /// The folder of the run.
    pub(super) folder: TempDir,
    pub(super) address: SocketAddr,
    /// The server's arguments; the folder of the run stands as `$RUN`, that of the files as
    /// `$FILES`.
    pub(super) arguments: String,
    line: CommandLine,
}

impl Stage {
    /// Writes a file of each of `sizes`, named after it, and looks for ports from `first_port` on.
    pub(super) fn new(sizes: &[u64], first_port: u16) -> Result<Self> {
        let files = tempfile::Builder::new().prefix("weir-files-").tempdir()?;
        for size in sizes {
            let content: Vec<u8> = (0..*size).map(|at| (at % 251) as u8).collect();
            fs::write(files.path().join(format!("{size}.bin")), content)?;
        }
        Ok(Self { files, next_port: Cell::new(first_port) })
    }

    /// A new folder and an address for `server`; each is one port further, and so finds no
    /// connections of the last one lingering.
    pub(super) fn place(&self, server: &Server) -> Result<Place> {
        let folder = run_folder()?;
        let address = free_address(self.next_port.get())?;
        self.next_port.set(address.port() + 1);
        let site = Site { folder: folder.path(), files: self.files.path(), address };
        let line = server.command_line(&site)?;
        let arguments = line
            .arguments
            .join(" ")
            .replace(&*self.files.path().to_string_lossy(), "$FILES")
            .replace(&*folder.path().to_string_lossy(), "$RUN");
        Ok(Place { folder, address, arguments, line })
    }
}

impl Place {
    /// Starts the server.
    pub(super) fn start(&self) -> Result<Running> {
        Running::start(&self.line, self.address, self.path())
    }

    /// The folder of the run.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// A new folder for what a run reads and writes.
pub(super) fn run_folder() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("weir-run-").tempdir()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_its_own_place_and_the_same_files() {
        let stage = Stage::new(&[0, 300], 20_000).unwrap();
        assert_eq!(fs::read(stage.files.path().join("300.bin")).unwrap().len(), 300);
        let server = Server::Weir { program: "weir".into(), options: vec![] };
        let [one, other] = [stage.place(&server).unwrap(), stage.place(&server).unwrap()];
        assert!(one.address.port() < other.address.port() && one.path() != other.path());
        let expected = format!("serve $FILES --listen {} --workers 1", one.address);
        assert_eq!(one.arguments, expected);
    }
}
