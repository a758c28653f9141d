//! Readiness: the table of mechanisms. A mechanism is a file beside this one and two lines here;
//! help, docs, tests, measurements and the server use the table. The guarantees of a mechanism are
//! in `contract.rs`; nothing here depends on how one works.

mod armed;
mod contract;
mod deletions;
mod edges;
pub mod kernel;
pub mod settings;
mod signalled;

mod devpoll;
mod epoll2;
mod epoll_busy;
mod epoll_ctlv;
mod epoll_et;
mod epoll_exclusive;
mod epoll_lt;
mod poll;
mod rtsig;
mod rtsig_bulk;
mod scalable_select;
mod select;
mod select_isset;
mod signal_per_fd;
mod uring_poll;

use std::io;

use contract::PerSlot;
pub use contract::{Counts, Interest, Mechanism, Token};
use kernel::{Kernel, Linux};
use settings::{Settings, Tunable};

/// A row of the table of mechanisms.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name of the mechanism.
    pub name: MechanismName,
    /// Spelling in the option.
    pub spelling: &'static str,
    /// Description, in a single line.
    pub summary: &'static str,
    /// Publication that first measured it.
    pub source: &'static str,
    /// Settings that the operator can change.
    pub tunables: &'static [Tunable],
}

/// An operation generic over the mechanism type, such as the loop, which is compiled for each.
pub trait Visitor {
    /// Result of the operation.
    type Output;

    /// Performs the operation with `M`.
    fn visit<M: Mechanism>(self) -> Self::Output;
}

macro_rules! table {
    ($($module:ident $name:ident $spelling:literal $summary:literal $source:literal),+ $(,)?) => {
        $(pub use $module::$name;)+

        /// Name of a mechanism.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum MechanismName { $($name),+ }

        /// All mechanisms.
        pub const TABLE: &[Row] = &[$(Row {
            name: MechanismName::$name,
            spelling: $spelling,
            summary: $summary,
            source: $source,
            tunables: <$name as Mechanism>::TUNABLES,
        }),+];

        impl MechanismName {
            /// Performs an operation with the mechanism of this name, on kernel `K`.
            pub fn visit<K: Kernel, V: Visitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Self::$name => visitor.visit::<$name<K>>()),+
                }
            }
        }
    };
}

table! {
    select Select "select"
        "bitmaps of any size, copied in and out at every call" "brecht-select",
    select_isset SelectIsset "select-isset"
        "select; its result is searched descriptor by descriptor, not word by word"
        "banga-scalable",
    poll Poll "poll"
        "an array of descriptors at every call" "gammo-epoll",
    epoll_lt EpollLt "epoll-lt"
        "level-triggered; an epoll_ctl at every change of interest" "gammo-epoll",
    epoll_et EpollEt "epoll-et"
        "edge-triggered; the server keeps the state of each socket" "gammo-epoll",
    epoll2 Epoll2 "epoll2"
        "level-triggered, both interests set once; two epoll_ctl calls per connection"
        "gammo-epoll",
    epoll_ctlv EpollCtlv "epoll-ctlv"
        "level-triggered; all changes of an iteration in one call" "gammo-epoll",
    epoll_exclusive EpollExclusive "epoll-exclusive"
        "epoll-et for loops that share a listener: a connection wakes one loop" "epoll_ctl(2)",
    epoll_busy EpollBusy "epoll-busy"
        "epoll-et that polls for a while before it sleeps" "ioctl_eventpoll(2)",
    rtsig Rtsig "rtsig"
        "a real-time signal per event, one taken per call" "chandra-dispatch",
    rtsig_bulk RtsigBulk "rtsig-bulk"
        "a real-time signal per event, many taken per call" "chandra-dispatch",
    signal_per_fd SignalPerFd "signal-per-fd"
        "real-time signals, at most one queued per descriptor" "chandra-dispatch",
    devpoll DevPoll "devpoll"
        "an interest set in the kernel, results in shared memory; a poll armed per event"
        "chandra-dispatch",
    uring_poll UringPoll "uring-poll"
        "multishot polls of io_uring; the server keeps the state of each socket"
        "docs/mechanisms.md",
    scalable_select ScalableSelectSet "scalable-select"
        "select over sets kept in the kernel; checks only descriptors that may have changed"
        "banga-scalable",
}

impl MechanismName {
    /// Returns the row of this mechanism.
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.name == self).unwrap_or(&TABLE[0])
    }

    /// Performs an operation with this mechanism, on the kernel that runs this process.
    pub fn with<V: Visitor>(self, visitor: V) -> V::Output {
        self.visit::<Linux, V>(visitor)
    }

    /// Opens this mechanism with default settings and closes it, in a thread of its own: the end of
    /// a ring interrupts the thread that created it, some time later.
    ///
    /// # Errors
    /// As [`Mechanism::open`]: the kernel does not support it, or forbids it.
    pub fn try_open(self) -> io::Result<()> {
        struct Open;
        impl Visitor for Open {
            type Output = io::Result<()>;
            fn visit<M: Mechanism>(self) -> io::Result<()> {
                M::open(&Settings::default()).map(drop)
            }
        }
        let opening = std::thread::Builder::new().spawn(move || self.with(Open))?;
        opening.join().unwrap_or_else(|_| Err(io::Error::other("opening it panicked")))
    }
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;
