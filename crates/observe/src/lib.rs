//! The observer's side of a server's statistics: finds running servers, maps the page that each
//! publishes, and adds what the kernel counts for its threads. An observer in the server's own
//! process is handed the page, and needs to find nothing.
//!
//! Nothing here sends a signal or a message, and no server does anything for it. It must not know
//! how a server counts; the layout of a page is in `weir-stats`.

mod own_page;
mod usage;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

use weir_stats::page::{Layout, PageError, Snapshot, Words};
use weir_sys::descent::descendants_of;
use weir_sys::process::{monotonic_ns, unix_ns};
use weir_sys::run_dir::{self, Server};
use weir_sys::shared_page::ReadNumbers;

pub use own_page::OwnPage;
use usage::Usages;

/// Delay before a page is copied again whose writer was interrupted in the middle of a publication,
/// and number of such copies: one second in all.
const RETRY_DELAY: Duration = Duration::from_micros(500);
const RETRIES: u32 = 2_000;

/// Reason for which a server's page cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// No process has this id.
    NoProcess(u32),
    /// The process publishes no statistics.
    NoServer(u32),
    /// The file cannot be opened or mapped.
    Io(u32, io::Error),
    /// The file is no page that can be read.
    Page(u32, PageError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess(pid) => write!(f, "there is no process {pid}"),
            Self::NoServer(pid) => {
                write!(f, "process {pid} is no weir server that publishes its statistics")
            }
            Self::Io(pid, why) => write!(f, "the statistics of {pid} cannot be read: {why}"),
            Self::Page(pid, why) => write!(f, "the statistics of {pid} cannot be read: {why}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// The page of a server, mapped for reading.
#[derive(Debug)]
pub struct ServerPage {
    pid: u32,
    numbers: ReadNumbers,
    layout: Layout,
}

impl ServerPage {
    /// Maps the page of the server with this process id.
    ///
    /// # Errors
    /// There is no such server, or its page cannot be read.
    pub fn open(pid: u32) -> Result<Self, OpenError> {
        let absent = || {
            let is_there = Path::new(&format!("/proc/{pid}")).exists();
            if is_there { OpenError::NoServer(pid) } else { OpenError::NoProcess(pid) }
        };
        match run_dir::open(pid) {
            Ok(Server::Running(file)) => Self::map(pid, &file),
            Ok(Server::Gone) => Err(absent()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(absent()),
            Err(error) => Err(OpenError::Io(pid, error)),
        }
    }

    /// Maps the page of the server that a process stands for: its own, or else that of the last
    /// server of those that have taken its place, if it was started first.
    ///
    /// # Errors
    /// As of [`ServerPage::open`].
    pub fn of_process(pid: u32) -> Result<Self, OpenError> {
        match Self::open(pid) {
            Err(OpenError::NoServer(_)) => {
                last(pages_of(pid.into())).ok_or(OpenError::NoServer(pid))
            }
            opened => opened,
        }
    }

    /// Maps the page of the last server that has taken the place of this one; `None` if there is
    /// none.
    pub fn last_successor(&self) -> Option<Self> {
        let is_later = |page: &Self| page.started_ns() > self.started_ns();
        last(pages_of(self.first_pid()).filter(is_later))
    }

    /// Returns the id of the process that was started first, of those that have taken each other's
    /// place.
    fn first_pid(&self) -> u64 {
        match self.layout.description.first_pid {
            0 => self.pid.into(),
            first => first,
        }
    }

    fn started_ns(&self) -> u64 {
        self.layout.description.started_ns
    }

    fn map(pid: u32, file: &OwnedFd) -> Result<Self, OpenError> {
        let numbers =
            ReadNumbers::of_file(file.as_fd()).map_err(|error| OpenError::Io(pid, error))?;
        let layout = Layout::read(&Numbers(&numbers), numbers.len())
            .map_err(|error| OpenError::Page(pid, error))?;
        Ok(Self { pid, numbers, layout })
    }

    /// Returns the process id of the server.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns what the header says about the server.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the numbers of every loop, those of the kernel included where /proc shows them.
    /// Tries again for a second while a loop does not run that was interrupted as it published.
    ///
    /// # Errors
    /// [`PageError::Busy`] after that.
    pub fn snapshot(&self) -> Result<Snapshot, PageError> {
        let mut snapshot = self.copy()?;
        let mut usages = Usages::default();
        snapshot.add_usage(|owner| usages.of(owner));
        Ok(snapshot)
    }

    /// Returns whether the server has ended: its file has been removed, or is another server's.
    pub fn has_ended(&self) -> bool {
        match Self::open(self.pid) {
            Ok(page) => page.layout.description != self.layout.description,
            Err(error) => matches!(error, OpenError::NoProcess(_) | OpenError::NoServer(_)),
        }
    }

    fn copy(&self) -> Result<Snapshot, PageError> {
        for _ in 0..RETRIES {
            match self.layout.snapshot(&Numbers(&self.numbers), monotonic_ns(), unix_ns()) {
                Err(PageError::Busy) => thread::sleep(RETRY_DELAY),
                done => return done,
            }
        }
        Err(PageError::Busy)
    }
}

/// Returns the process ids of the running servers that this user can find, lowest first.
pub fn servers() -> Vec<u32> {
    run_dir::servers()
}

/// Returns the one of several servers that has taken the place of all others; `None` if there is
/// none.
pub fn successor_of_all(pages: Vec<ServerPage>) -> Option<ServerPage> {
    let first_pid = pages.first()?.first_pid();
    let are_one = pages.iter().all(|page| page.first_pid() == first_pid);
    last(pages.into_iter()).filter(|_| are_one)
}

/// Maps the pages of the servers that have taken each other's place from this process on. While
/// that runs the others are its descendants, so that those of another user are found too.
fn pages_of(first_pid: u64) -> impl Iterator<Item = ServerPage> {
    let first = u32::try_from(first_pid).ok();
    let family = first.into_iter().flat_map(|pid| iter::once(pid).chain(descendants_of(pid)));
    let pids: BTreeSet<u32> = servers().into_iter().chain(family).collect();
    let pages = pids.into_iter().filter_map(|pid| ServerPage::open(pid).ok());
    pages.filter(move |page| page.first_pid() == first_pid)
}

fn last(pages: impl Iterator<Item = ServerPage>) -> Option<ServerPage> {
    pages.max_by_key(ServerPage::started_ns)
}

/// Mapped numbers, as `weir-stats` loads them.
struct Numbers<'a>(&'a ReadNumbers);

impl Words for Numbers<'_> {
    #[inline]
    fn load(&self, index: usize) -> Option<u64> {
        self.0.load(index)
    }
}
