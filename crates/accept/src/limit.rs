//! Accept-limits and their spelling.

use std::fmt;
use std::str::FromStr;

/// An accept-limit: maximum number of connections per accept-phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this many; at least one.
    Count(u64),
    /// Until none is waiting: the papers' Inf.
    Inf,
    /// As many as seem to be waiting: [`crate::Ramp`].
    Auto,
}

/// Error: not an accept-limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotALimit;

impl fmt::Display for NotALimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an accept-limit is a number of connections, `inf` or `auto`")
    }
}

impl std::error::Error for NotALimit {}

impl FromStr for Limit {
    type Err = NotALimit;

    /// Parses an accept-limit; zero means no bound, as in the papers' `--accept-count 0`.
    fn from_str(text: &str) -> Result<Self, NotALimit> {
        match text.to_ascii_lowercase().as_str() {
            "inf" | "0" => Ok(Self::Inf),
            "auto" => Ok(Self::Auto),
            number => number.parse().map(Self::Count).map_err(|_| NotALimit),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Inf => f.write_str("inf"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_spelled_as_in_the_papers() {
        assert_eq!("inf".parse(), Ok(Limit::Inf));
        assert_eq!("Inf".parse(), Ok(Limit::Inf));
        assert_eq!("0".parse(), Ok(Limit::Inf));
        assert_eq!("25".parse(), Ok(Limit::Count(25)));
        assert_eq!("auto".parse(), Ok(Limit::Auto));
        assert_eq!("-1".parse::<Limit>(), Err(NotALimit));
        assert_eq!("ten".parse::<Limit>(), Err(NotALimit));
    }

    #[test]
    fn a_printed_limit_can_be_parsed() {
        for limit in [Limit::Count(7), Limit::Inf, Limit::Auto] {
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
    }
}
