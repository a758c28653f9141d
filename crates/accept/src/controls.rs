//! What an overload control may use, and how it refuses: the spellings and the set. It decides
//! nothing.

use std::fmt;
use std::str::FromStr;

/// One control, which can be turned off by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Accept less while the work in hand takes longer than the target.
    Budget,
    /// Shorten the accept queue to what can be served in time (listen(2) again).
    Backlog,
    /// Drop connection requests by a filter on the listening socket.
    SynFilter,
    /// Refuse those that have waited too long before anything of them is parsed.
    Stale,
    /// Drop those whose client has gone before anything of them is parsed.
    Departed,
    /// Serve the newest first while a queue that is too old is cleared.
    Newest,
    /// Close connections after their reply while those that are open are too many.
    Close,
}

/// Every control with its spelling and what it does.
const TABLE: &[(Control, &str, &str)] = &[
    (Control::Budget, "budget", "accept less while the work in hand takes longer than the target"),
    (Control::Backlog, "backlog", "shorten the accept queue to what can be served in time"),
    (
        Control::SynFilter,
        "syn-filter",
        "drop connection requests before the kernel keeps anything of them",
    ),
    (Control::Stale, "stale", "refuse those that have waited too long, unread"),
    (Control::Departed, "departed", "drop those whose client has gone, unread"),
    (Control::Newest, "newest", "serve the newest first while an old queue is cleared"),
    (Control::Close, "close", "close after each reply while open connections are too many"),
];

impl Control {
    /// Every control.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// As an option spells it.
    pub fn spelled(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// What it does, in a line.
    pub fn summary(self) -> &'static str {
        TABLE[self as usize].2
    }
}

/// A set of controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controls(u8);

impl Default for Controls {
    /// All of them.
    fn default() -> Self {
        Self::ALL
    }
}

impl Controls {
    /// Every control there is.
    pub const ALL: Self = Self(u8::MAX);

    /// No control: an accept-limit and nothing else.
    pub const NONE: Self = Self(0);

    /// Whether a control may be used.
    pub fn has(self, control: Control) -> bool {
        self.0 & 1 << control as u8 != 0
    }

    /// The set without a control.
    #[must_use]
    pub fn without(self, control: Control) -> Self {
        Self(self.0 & !(1 << control as u8))
    }

    /// The set without those of a list such as `syn-filter,stale`; `all` is all of them.
    ///
    /// # Errors
    /// [`NotAControl`] for a word that names none.
    pub fn without_list(self, list: &str) -> Result<Self, NotAControl> {
        let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
        let mut words = words;
        words.try_fold(self, |set, word| match word {
            "all" => Ok(Self::NONE),
            word => Ok(set.without(word.parse()?)),
        })
    }
}

/// Not the name of a control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAControl(String);

impl fmt::Display for NotAControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Control::all().map(Control::spelled).collect();
        write!(f, "{:?} is no overload control: {} or all", self.0, names.join(", "))
    }
}

impl std::error::Error for NotAControl {}

impl FromStr for Control {
    type Err = NotAControl;

    fn from_str(text: &str) -> Result<Self, NotAControl> {
        let row = TABLE.iter().find(|row| row.1 == text);
        row.map(|row| row.0).ok_or_else(|| NotAControl(text.to_owned()))
    }
}

/// Filters that may stand before a listening socket and drop connection requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynFilter {
    /// A program that lets a SYN through against a token (eBPF).
    #[default]
    Tokens,
    /// A filter that drops a share of them by chance (classic BPF).
    Random,
    /// Nothing: a full accept queue refuses.
    None,
}

/// Every filter with its spelling.
const SYN_FILTERS: &[(SynFilter, &str)] =
    &[(SynFilter::Tokens, "tokens"), (SynFilter::Random, "random"), (SynFilter::None, "none")];

impl fmt::Display for SynFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SYN_FILTERS[*self as usize].1)
    }
}

impl FromStr for SynFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let row = SYN_FILTERS.iter().find(|row| row.1 == text);
        row.map(|row| row.0).ok_or_else(|| format!("{text:?}: tokens, random or none"))
    }
}

/// How a connection that cannot be served in time is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// By the kernel, which drops its request: cheapest, and the client asks again after a second.
    /// One that was accepted all the same is reset.
    #[default]
    Kernel,
    /// Accepted and reset: the client knows at once.
    Rst,
    /// Accepted and closed.
    Fin,
    /// Accepted and answered with `503 Service Unavailable` and Retry-After (RFC 9110 §15.6.4).
    Status503,
}

/// Every refusal with its spelling.
const REFUSALS: &[(Refusal, &str)] = &[
    (Refusal::Kernel, "kernel"),
    (Refusal::Rst, "rst"),
    (Refusal::Fin, "fin"),
    (Refusal::Status503, "503"),
];

impl Refusal {
    /// The spellings, in the order of the variants.
    pub fn spellings() -> impl Iterator<Item = &'static str> {
        REFUSALS.iter().map(|row| row.1)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REFUSALS[*self as usize].1)
    }
}

impl FromStr for Refusal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let row = REFUSALS.iter().find(|row| row.1 == text);
        row.map(|row| row.0).ok_or_else(|| format!("{text:?}: kernel, rst, fin or 503"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_in_the_order_of_their_variants() {
        for control in Control::all() {
            assert_eq!(control.spelled().parse(), Ok(control));
            assert!(!control.summary().is_empty());
        }
        for (refusal, spelled) in REFUSALS {
            assert_eq!(refusal.to_string(), *spelled);
            assert_eq!(spelled.parse(), Ok(*refusal));
        }
    }

    #[test]
    fn a_list_takes_controls_away() {
        let set = Controls::ALL.without_list("syn-filter, stale").unwrap();
        assert!(
            !set.has(Control::SynFilter) && !set.has(Control::Stale) && set.has(Control::Close)
        );
        assert_eq!(set.without_list("all"), Ok(Controls::NONE));
        assert!(Control::all().all(|control| !Controls::NONE.has(control)));
        let error = Controls::ALL.without_list("syn-filter,x").unwrap_err().to_string();
        assert!(error.starts_with("\"x\" is no overload control: budget, backlog,"), "{error}");
    }
}
