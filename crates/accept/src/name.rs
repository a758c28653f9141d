//! Table of accept policies: names, summaries and sources.

use std::fmt;
use std::str::FromStr;

/// An accept policy, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A fixed accept-limit: [`crate::FixedLimit`], [`crate::Ramp`].
    Limit,
    /// [`crate::MatchClose`].
    MatchClose,
    /// [`crate::Timed`].
    Timed,
    /// [`crate::Codel`].
    Codel,
    /// [`crate::Adaptive`].
    Adaptive,
}

/// A row of the table of policies.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The policy.
    pub name: Name,
    /// Spelling in options.
    pub spelling: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Source in the literature.
    pub source: &'static str,
}

/// Table of all policies.
pub const TABLE: &[Row] = &[
    Row {
        name: Name::Adaptive,
        spelling: "adaptive",
        summary: "keeps the delay of served requests at the target, with every control",
        source: "docs/overload.md",
    },
    Row {
        name: Name::Limit,
        spelling: "limit",
        summary: "at most --accept-limit connections per accept-phase, and nothing else",
        source: "brecht-select §4.1",
    },
    Row {
        name: Name::MatchClose,
        spelling: "match-close",
        summary: "all pending connections until saturated, then as many as have closed since",
        source: "pariag-accept ch. 6",
    },
    Row {
        name: Name::Timed,
        spelling: "timed",
        summary: "all pending connections, for a tenth of the delay target per accept-phase",
        source: "after pariag-accept ch. 6",
    },
    Row {
        name: Name::Codel,
        spelling: "codel",
        summary: "refuses connections that waited too long, by the minimum wait of each interval",
        source: "RFC 8289; Maurer, Fail at Scale",
    },
];

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = TABLE.iter().find(|row| row.name == *self);
        f.write_str(row.map_or("", |row| row.spelling))
    }
}

impl FromStr for Name {
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
        assert!("none".parse::<Name>().is_err());
    }
}
