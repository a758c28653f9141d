//! Controls that an overload policy may use, and ways to refuse: their spellings, and sets of them.
//! Makes no decisions.

use std::fmt;
use std::str::FromStr;

/// A control, which can be turned off on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Accepts less while the work in hand takes longer than the target.
    Budget,
    /// Shortens the accept queue to what can be served in time (listen(2) again).
    Backlog,
    /// Drops SYNs by a filter on the listening socket.
    SynFilter,
    /// Refuses connections that have waited too long before parsing anything from them.
    Stale,
    /// Drops connections whose client has gone before parsing anything from them.
    Departed,
    /// Serves the newest first while a queue that is too old is cleared.
    Newest,
    /// Closes connections after their reply while too many are open.
    Close,
}

/// Table of all controls with their spellings and summaries.
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
    /// Returns all controls.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// Returns the spelling of the control in options.
    pub fn spelling(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Returns a summary of the control.
    pub fn summary(self) -> &'static str {
        TABLE[self as usize].2
    }
}

/// A set of controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controls(u8);

impl Default for Controls {
    /// Returns the set of all controls.
    fn default() -> Self {
        Self::ALL
    }
}

impl Controls {
    /// All controls.
    pub const ALL: Self = Self(u8::MAX);

    /// No controls: an accept-limit only.
    pub const NONE: Self = Self(0);

    /// Returns whether a control may be used.
    pub fn has(self, control: Control) -> bool {
        self.0 & 1 << control as u8 != 0
    }

    /// Returns the set without a control.
    #[must_use]
    pub fn without(self, control: Control) -> Self {
        Self(self.0 & !(1 << control as u8))
    }

    /// Returns the set without the controls of a list such as `syn-filter,stale`; `all` means all
    /// of them.
    ///
    /// # Errors
    /// A sentence about a word that names none.
    pub fn without_list(self, list: &str) -> Result<Self, String> {
        let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
        let mut words = words;
        words.try_fold(self, |set, word| match word {
            "all" => Ok(Self::NONE),
            word => Ok(set.without(word.parse()?)),
        })
    }
}

impl FromStr for Control {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let row = TABLE.iter().find(|row| row.1 == text);
        row.map(|row| row.0).ok_or_else(|| {
            let names: Vec<_> = Control::all().map(Control::spelling).collect();
            format!("{text:?} is no overload control: {} or all", names.join(", "))
        })
    }
}

/// Filters on a listening socket that may drop SYNs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynFilter {
    /// A program that lets a SYN through in exchange for a token (eBPF).
    #[default]
    Tokens,
    /// A filter that drops a share of SYNs at random (classic BPF).
    Random,
    /// No filter: a full accept queue refuses.
    None,
}

/// Table of all filters with their spellings.
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

/// Ways to refuse a connection that cannot be served in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel drops the SYN: cheapest, and the client retries after a second. A connection
    /// accepted nevertheless is reset.
    #[default]
    Kernel,
    /// Accept and reset: the client learns it at once.
    Rst,
    /// Accept and close.
    Fin,
    /// Accept and answer with `503 Service Unavailable` and Retry-After (RFC 9110 §15.6.4).
    Status503,
}

/// Table of all refusals with their spellings.
const REFUSALS: &[(Refusal, &str)] = &[
    (Refusal::Kernel, "kernel"),
    (Refusal::Rst, "rst"),
    (Refusal::Fin, "fin"),
    (Refusal::Status503, "503"),
];

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
            assert_eq!(control.spelling().parse(), Ok(control));
            assert!(!control.summary().is_empty());
        }
        for (refusal, spelling) in REFUSALS {
            assert_eq!(refusal.to_string(), *spelling);
            assert_eq!(spelling.parse(), Ok(*refusal));
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
        let error = Controls::ALL.without_list("syn-filter,x").unwrap_err();
        assert!(error.starts_with("\"x\" is no overload control: budget, backlog,"), "{error}");
    }
}
