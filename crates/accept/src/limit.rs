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

const NOT_A_LIMIT: &str = "an accept-limit is a number of connections, `inf` or `auto`";

impl FromStr for Limit {
    type Err = &'static str;

    /// Parses an accept-limit; zero means no bound, as in the papers' `--accept-count 0`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text.to_ascii_lowercase().as_str() {
            "inf" => Ok(Self::Inf),
            "auto" => Ok(Self::Auto),
            number => match number.parse::<u64>() {
                Ok(0) => Ok(Self::Inf),
                Ok(count) => Ok(Self::Count(count)),
                Err(_) => Err(NOT_A_LIMIT),
            },
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
        assert_eq!("00".parse(), Ok(Limit::Inf));
        assert_eq!("25".parse(), Ok(Limit::Count(25)));
        assert_eq!("auto".parse(), Ok(Limit::Auto));
        assert_eq!("-1".parse::<Limit>(), Err(NOT_A_LIMIT));
        assert_eq!("ten".parse::<Limit>(), Err(NOT_A_LIMIT));
    }

    #[test]
    fn a_printed_limit_can_be_parsed() {
        for limit in [Limit::Count(7), Limit::Inf, Limit::Auto] {
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
    }
}
