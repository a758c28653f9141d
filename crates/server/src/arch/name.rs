//! The architectures by name: the one table that options, help, pages and tests are made from.
//! Knows nothing of how one works.

use weir_dispatch::readiness::settings::Knob;

use crate::Strategy;

/// Which architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// One thread, one event loop (SPED).
    Loop,
}

/// A row of the table of architectures.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which.
    pub name: Name,
    /// As the option spells it.
    pub spelling: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Where it was measured first.
    pub source: &'static str,
    /// Whether an event mechanism watches its connections.
    pub takes_mechanism: bool,
    /// What can be set about it.
    pub knobs: &'static [Knob],
    /// What makes no sense with it.
    pub exclusions: &'static [Exclusion],
}

/// Something that makes no sense with an architecture.
#[derive(Clone, Copy, Debug)]
pub struct Exclusion {
    /// What.
    pub choice: Choice,
    /// Why not: the end of a sentence that begins with the architecture and "because".
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
}

impl Choice {
    /// As the options spell it.
    pub fn spelling(self) -> &'static str {
        match self {
            Self::FullRead => "--full-read on",
            Self::AcceptOnClose => "--accept-on-close on",
            Self::OtherPolicies => "an accept policy other than limit",
        }
    }

    fn is_in(self, strategy: &Strategy) -> bool {
        match self {
            Self::FullRead => strategy.full_read,
            Self::AcceptOnClose => strategy.accept_on_close,
            Self::OtherPolicies => strategy.accept_policy != weir_accept::Name::Limit,
        }
    }
}

/// Every architecture; the first is what runs when nothing is said.
pub const TABLE: &[Row] = &[Row {
    name: Name::Loop,
    spelling: "loop",
    summary: "one event loop: who is ready, accept, work, again (SPED)",
    source: "brecht-select fig. 2, pariag-accept fig. 3.1",
    takes_mechanism: true,
    knobs: &[],
    exclusions: &[],
}];

impl Name {
    /// Its row of the table.
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.name == self).unwrap_or(&TABLE[0])
    }
}

impl Row {
    /// What of a strategy makes no sense with this architecture; `None` when all of it does.
    pub fn excludes(&self, strategy: &Strategy) -> Option<&'static Exclusion> {
        self.exclusions.iter().find(|exclusion| exclusion.choice.is_in(strategy))
    }
}
