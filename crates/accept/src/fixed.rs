//! The classic accept-limit: at most N connections an accept-phase (brecht-select §4.1,
//! `accept-count`; pariag-accept ch. 3, `accept-limit`). Knows nothing but N.

use std::fmt;
use std::str::FromStr;

use crate::{Outcome, Policy, View};

/// An accept-limit: a number of connections, or no bound but max-conns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this many a phase; at least one.
    Count(u64),
    /// Until none is waiting: the papers' Inf.
    Inf,
}

/// Not an accept-limit: neither a number nor `inf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotALimit;

impl fmt::Display for NotALimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an accept-limit is a number of connections, or `inf`")
    }
}

impl std::error::Error for NotALimit {}

impl FromStr for Limit {
    type Err = NotALimit;

    /// Zero means no bound, as in the papers' `--accept-count 0`.
    fn from_str(text: &str) -> Result<Self, NotALimit> {
        if text.eq_ignore_ascii_case("inf") {
            return Ok(Self::Inf);
        }
        match text.parse() {
            Ok(0) => Ok(Self::Inf),
            Ok(count) => Ok(Self::Count(count)),
            Err(_) => Err(NotALimit),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Inf => f.write_str("inf"),
        }
    }
}

/// The policy that always answers with its limit, less what max-conns forbids.
#[derive(Clone, Copy, Debug)]
pub struct FixedLimit(pub Limit);

impl Policy for FixedLimit {
    fn budget(&mut self, _: u64, view: &View) -> u64 {
        let room = view.open_max.saturating_sub(view.open) as u64;
        match self.0 {
            Limit::Count(count) => count.min(room),
            Limit::Inf => room,
        }
    }

    fn finished(&mut self, _: u64, _: Outcome) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_the_limit_or_the_room_left() {
        let view = |open| View { open, open_max: 100, closed_since: 0 };
        assert_eq!(FixedLimit(Limit::Count(25)).budget(0, &view(0)), 25);
        assert_eq!(FixedLimit(Limit::Count(25)).budget(0, &view(90)), 10);
        assert_eq!(FixedLimit(Limit::Inf).budget(0, &view(1)), 99);
        assert_eq!(FixedLimit(Limit::Inf).budget(0, &view(101)), 0);
    }

    #[test]
    fn a_limit_is_spelled_as_in_the_papers() {
        assert_eq!("inf".parse(), Ok(Limit::Inf));
        assert_eq!("Inf".parse(), Ok(Limit::Inf));
        assert_eq!("0".parse(), Ok(Limit::Inf));
        assert_eq!("25".parse(), Ok(Limit::Count(25)));
        assert_eq!("-1".parse::<Limit>(), Err(NotALimit));
        assert_eq!("ten".parse::<Limit>(), Err(NotALimit));
    }
}
