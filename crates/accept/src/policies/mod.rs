//! The accept policies, a file each, and their table: options, help, documentation and the lab take
//! the names from here, servers and the simulator the policies.

mod adaptive;
mod codel;
mod fixed;
mod match_close;
mod ramp;
mod timed;

use std::fmt;
use std::str::FromStr;

pub use adaptive::Adaptive;
pub use codel::Codel;
pub use fixed::FixedLimit;
pub use match_close::MatchClose;
pub use ramp::{RAMP_MAX, Ramp};
pub use timed::Timed;

use crate::conserving::Conserving;
use crate::limit::Limit;
use crate::name::PolicyName;
use crate::policy::{Policy, PolicyConfig};

/// A row of the table of policies.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The policy.
    pub name: PolicyName,
    /// Spelling in options.
    pub spelling: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Source in the literature.
    pub source: &'static str,
    /// True if it may refuse, and so has a use for a SYN filter.
    pub refuses: bool,
    create: fn(&PolicyConfig) -> Box<dyn Policy + Send>,
}

/// Table of all policies.
pub const TABLE: &[Row] = &[
    Row {
        name: PolicyName::Adaptive,
        spelling: "adaptive",
        summary: "keeps the delay of served requests at the target, with every control",
        source: "docs/overload.md",
        refuses: true,
        create: |config| Box::new(Conserving::new(Adaptive::new(config), config)),
    },
    Row {
        name: PolicyName::Limit,
        spelling: "limit",
        summary: "at most --accept-limit connections per accept-phase, and nothing else",
        source: "brecht-select §4.1",
        refuses: false,
        create: limit,
    },
    Row {
        name: PolicyName::MatchClose,
        spelling: "match-close",
        summary: "all pending connections until saturated, then as many as have closed since",
        source: "pariag-accept ch. 6",
        refuses: false,
        create: |_| Box::new(MatchClose::default()),
    },
    Row {
        name: PolicyName::Timed,
        spelling: "timed",
        summary: "all pending connections, for a tenth of the delay target per accept-phase",
        source: "after pariag-accept ch. 6",
        refuses: false,
        create: |config| Box::new(Timed::new(config)),
    },
    Row {
        name: PolicyName::Codel,
        spelling: "codel",
        summary: "refuses connections that waited too long, by the minimum wait of each interval",
        source: "RFC 8289; Maurer, Fail at Scale",
        refuses: true,
        create: |config| Box::new(Conserving::new(Codel::new(config), config)),
    },
];

fn limit(config: &PolicyConfig) -> Box<dyn Policy + Send> {
    match config.limit {
        Limit::Count(count) => Box::new(FixedLimit(Some(count))),
        Limit::Inf => Box::new(FixedLimit(None)),
        Limit::Auto => Box::new(Ramp::default()),
    }
}

impl PolicyConfig {
    /// Creates the policy.
    pub fn policy(&self) -> Box<dyn Policy + Send> {
        (self.name.row().create)(self)
    }
}

impl PolicyName {
    /// Returns its row of the table.
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.name == self).unwrap_or(&TABLE[0])
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().spelling)
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        TABLE
            .iter()
            .find(|row| row.spelling == text)
            .map(|row| row.name)
            .ok_or_else(|| format!("no accept policy is called {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_be_read_back() {
        for row in TABLE {
            assert_eq!(row.name.to_string().parse(), Ok(row.name));
        }
        assert!("none".parse::<PolicyName>().is_err());
    }
}
