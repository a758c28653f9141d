//! The architectures by name: the table from which options, help, pages and tests are generated.

pub(crate) mod options;

use weir_dispatch::readiness::settings::{Settings, Tunable};

use crate::strategy::{OutputPath, Strategy};

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchitectureName {
    /// A single thread with one event loop (SPED).
    Loop,
    /// The event loop, with threads that wait for disks (AMPED).
    Helpers,
    /// Two queues, filled by completions (TUX).
    Ring,
    /// User-level threads in one thread (Knot).
    Fiber,
    /// Kernel threads, one per connection or a pool (MT).
    Threads,
    /// Preforked processes (MP).
    Processes,
}

/// A row of the table of architectures.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The architecture.
    pub name: ArchitectureName,
    /// Spelling in options.
    pub spelling: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Source in which it was first measured.
    pub source: &'static str,
    /// True if an event mechanism watches its connections.
    pub takes_mechanism: bool,
    /// True if a loop is one thread that waits, accepts and serves in turn, so that these phases
    /// can be timed.
    pub has_phases: bool,
    /// Reason for which its connections forward no requests to upstreams; `None` if they do.
    pub forwards_not: Option<&'static str>,
    /// Reason for which its connections speak no TLS; `None` if they do.
    pub tls_not: Option<&'static str>,
    /// Options of the architecture.
    pub tunables: &'static [Tunable],
    /// Choices incompatible with it.
    pub exclusions: &'static [Exclusion],
}

/// A choice that is incompatible with an architecture.
#[derive(Clone, Copy, Debug)]
pub struct Exclusion {
    /// The choice.
    pub choice: Choice,
    /// Reason: the end of a sentence that begins with the architecture and "because".
    pub why: &'static str,
}

/// A choice of the strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Reading again until a read fails.
    FullRead,
    /// Accepting after each close.
    AcceptOnClose,
    /// A policy other than the accept-limit.
    OtherPolicies,
    /// Accepting after each close, in a pool of fibers.
    AcceptOnCloseInPool,
    /// A policy other than the accept-limit, in a pool of fibers.
    OtherPoliciesInPool,
    /// TCP_CORK around the head and the body of a reply.
    Cork,
}

impl Choice {
    /// Returns its spelling in options.
    pub fn spelling(self) -> &'static str {
        match self {
            Self::FullRead => "--full-read=on",
            Self::AcceptOnClose => "--accept-on-close=on",
            Self::OtherPolicies => "an accept policy other than limit",
            Self::AcceptOnCloseInPool => "--arch-option pool=N with --accept-on-close=on",
            Self::OtherPoliciesInPool => {
                "--arch-option pool=N with an accept policy other than limit"
            }
            Self::Cork => "--output cork",
        }
    }

    fn is_in(self, strategy: &Strategy, settings: &Settings) -> bool {
        let has_pool = settings.get(&options::fiber::POOL) > 0;
        match self {
            Self::FullRead => strategy.full_read,
            Self::AcceptOnClose => strategy.accept_on_close,
            Self::OtherPolicies => strategy.accept_policy != weir_accept::PolicyName::Limit,
            Self::AcceptOnCloseInPool => has_pool && strategy.accept_on_close,
            Self::OtherPoliciesInPool => {
                has_pool && strategy.accept_policy != weir_accept::PolicyName::Limit
            }
            Self::Cork => strategy.output == OutputPath::Cork,
        }
    }
}

/// All architectures; the first is the default.
pub const TABLE: &[Row] = &[
    Row {
        name: ArchitectureName::Loop,
        spelling: "loop",
        summary: "one event loop: wait for events, accept, serve, repeat (SPED)",
        source: "brecht-select fig. 2, pariag-accept fig. 3.1",
        takes_mechanism: true,
        has_phases: true,
        forwards_not: None,
        tls_not: None,
        tunables: &[options::HELPERS],
        exclusions: &[],
    },
    Row {
        name: ArchitectureName::Helpers,
        spelling: "helpers",
        summary: "the event loop, with helper threads that read from disks (AMPED)",
        source: "chandra-dispatch §2 (Flash)",
        takes_mechanism: true,
        has_phases: true,
        forwards_not: None,
        tls_not: None,
        tunables: &[options::AMPED_HELPERS],
        exclusions: &[],
    },
    Row {
        name: ArchitectureName::Ring,
        spelling: "ring",
        summary: "two queues, of connections and of work, filled by io_uring completions (TUX)",
        source: "brecht-select fig. 13, pariag-accept fig. 4.6",
        takes_mechanism: false,
        has_phases: true,
        forwards_not: None,
        tls_not: Some(
            "the kernel receives into its buffers and sends from them, past the calls on a socket, \
             in whose place TLS stands",
        ),
        tunables: options::ring::ALL,
        exclusions: &[
            Exclusion {
                choice: Choice::FullRead,
                why: "data arrives as completions, and no read can be repeated until it fails",
            },
            Exclusion {
                choice: Choice::AcceptOnClose,
                why: "its accept-phase runs before each work-phase, and never within one",
            },
            Exclusion {
                choice: Choice::Cork,
                why: "it reads a file into memory and sends it from there, and has no sendfile",
            },
        ],
    },
    Row {
        name: ArchitectureName::Fiber,
        spelling: "fiber",
        summary: "user-level threads in the blocking style, scheduled over a mechanism (Knot)",
        source: "pariag-accept §3.1.2",
        takes_mechanism: true,
        has_phases: true,
        forwards_not: None,
        tls_not: None,
        tunables: options::fiber::ALL,
        exclusions: &[
            Exclusion {
                choice: Choice::OtherPoliciesInPool,
                why: "connections accepted by a fiber of the pool wait for each other to close, \
                      which only that policy allows for (--accept-policy limit)",
            },
            Exclusion {
                choice: Choice::AcceptOnCloseInPool,
                why: "a fiber of the pool accepts again only when it has served all it accepted",
            },
        ],
    },
    Row {
        name: ArchitectureName::Threads,
        spelling: "threads",
        summary: "a kernel thread per connection, or a pool of threads (MT)",
        source: "Flash §3.2; pariag-accept ch. 3 (the script of Knot-C)",
        takes_mechanism: false,
        has_phases: false,
        forwards_not: Some(
            "a thread parks in poll(2) for its client alone, and a place would not wake it",
        ),
        tls_not: None,
        tunables: options::threads::ALL,
        exclusions: &[NO_ACCEPT_ON_CLOSE],
    },
    Row {
        name: ArchitectureName::Processes,
        spelling: "processes",
        summary: "preforked processes, each serving one connection at a time (MP)",
        source: "Flash §3.1; Apache's prefork",
        takes_mechanism: false,
        has_phases: false,
        forwards_not: Some(
            "the places of an upstream are counted in memory, which its processes do not share",
        ),
        tls_not: None,
        tunables: options::processes::ALL,
        exclusions: &[NO_ACCEPT_ON_CLOSE],
    },
];

const NO_ACCEPT_ON_CLOSE: Exclusion = Exclusion {
    choice: Choice::AcceptOnClose,
    why: "a thread or process that serves a connection to its end accepts after it or never",
};

impl ArchitectureName {
    /// Returns its row of the table.
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.name == self).unwrap_or(&TABLE[0])
    }
}

impl ArchitectureName {
    /// Returns whether a connection that is read eagerly is served when it is accepted, and not
    /// later.
    pub(crate) fn serves_at_once(self, settings: &Settings) -> bool {
        match self {
            Self::Loop | Self::Helpers | Self::Fiber | Self::Processes => true,
            Self::Ring => false,
            Self::Threads => settings.get(&options::threads::POOL) > 0,
        }
    }

    /// Returns the number of helpers per loop.
    pub(crate) fn helpers(self, settings: &Settings) -> usize {
        let tunable = match self {
            Self::Loop | Self::Fiber => options::HELPERS,
            Self::Helpers => options::AMPED_HELPERS,
            Self::Ring | Self::Threads | Self::Processes => return 0,
        };
        settings.get(&tunable) as usize
    }

    /// Returns whether a loop waits for a file that is not in memory, instead of having it fetched
    /// elsewhere.
    pub(crate) fn waits_for_disks(self, settings: &Settings) -> bool {
        !matches!(self, Self::Ring | Self::Threads) && self.helpers(settings) == 0
    }
}

impl Row {
    /// Returns a choice of the strategy that is incompatible with this architecture and its
    /// settings; `None` if there is none.
    pub fn excludes(&self, strategy: &Strategy, settings: &Settings) -> Option<&'static Exclusion> {
        self.exclusions.iter().find(|exclusion| exclusion.choice.is_in(strategy, settings))
    }
}
