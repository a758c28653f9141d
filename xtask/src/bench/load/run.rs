//! One run, as it is written to the results: a line of JSON that says everything about it. Knows no
//! case.

use serde::Serialize;

use super::client::Ended;
use super::generator::{Said, Tally, Weir};
use crate::bench::machine::Setup;
use crate::bench::window::Window;

/// The errors, of all requests, with which a run still says something.
pub(super) const ERROR_SHARE_MAX: f64 = 0.01;

/// One of those compared. Within a group the server and the load are the same.
pub(super) struct Entry<T> {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) of: T,
}

/// A run of one contestant.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run<'a> {
    pub(super) case: &'a str,
    pub(super) group: &'a str,
    pub(super) contestant: &'a str,
    /// From 1.
    pub(super) round: u32,
    /// The run's place in its round, from 1.
    pub(super) place: usize,
    #[serde(flatten)]
    pub(super) notes: Notes,
    /// Nothing when the run could not be made.
    pub(super) measured: Option<Measured>,
    pub(super) setup: &'a Setup,
}

/// What a run notes while it is made; the folder of the run stands as `$RUN`, that of the files as
/// `$FILES`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Notes {
    /// How the client was called.
    pub(super) client: String,
    /// The server's arguments, or what it was.
    pub(super) server: String,
    /// Why the run does not count; empty when it does.
    pub(super) flags: Vec<String>,
}

/// What a run gave.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    /// The client's core, from before the client started to after it ended.
    #[serde(flatten)]
    pub(super) window: Window,
    /// What the kernel charged to the client, user and system, in seconds.
    pub(super) client_s: f64,
    #[serde(flatten)]
    pub(super) tally: Tally,
    /// The client's age in seconds and its resident set in bytes, when it was looked at.
    pub(super) resident: Vec<(f64, u64)>,
    /// The most descriptors that the server was seen to have.
    pub(super) server_descriptors: Option<usize>,
}

impl Run<'_> {
    /// What was measured, if the run counts.
    pub(super) fn valid(&self) -> Option<&Measured> {
        self.measured.as_ref().filter(|_| self.notes.flags.is_empty())
    }

    /// The names of the group and the contestant.
    pub(super) fn full_name(&self) -> String {
        [self.group, self.contestant].join(" ").trim().to_owned()
    }
}

impl Measured {
    /// What a client cost that has ended, and what it counted.
    pub(super) fn new(ended: &Ended, tally: Tally) -> Self {
        Self {
            window: ended.window,
            client_s: ended.client_s,
            tally,
            resident: Vec::new(),
            server_descriptors: None,
        }
    }

    /// What `weir load` reported, if it was the client.
    pub(super) fn weir(&self) -> Option<&Weir> {
        match &self.tally.said {
            Said::Weir(report) => Some(report),
            _ => None,
        }
    }

    /// Whole replies for each second that the client's core was not idle.
    pub(super) fn per_core_s(&self) -> f64 {
        self.tally.replies as f64 / self.window.core_not_idle_s
    }

    /// The time of the client's core for one whole reply, in microseconds.
    pub(super) fn core_us(&self) -> f64 {
        self.window.core_not_idle_s * 1e6 / self.tally.replies as f64
    }

    /// The same, as the kernel's samples have it.
    pub(super) fn sampled_us(&self) -> f64 {
        self.window.core_busy_s * 1e6 / self.tally.replies as f64
    }

    /// The time charged to the client for one whole reply, in microseconds.
    pub(super) fn own_us(&self) -> f64 {
        self.client_s * 1e6 / self.tally.replies as f64
    }

    /// Whole replies a second, by the client's clock.
    pub(super) fn replies_per_s(&self) -> f64 {
        self.tally.replies as f64 / self.tally.took_s
    }

    /// Why the run does not count, in words, where replies are what it is about.
    pub(super) fn complaints(&self) -> Vec<String> {
        let Tally { replies, errors, .. } = self.tally;
        let mut complaints = Vec::new();
        if replies == 0 {
            complaints.push("no request was answered".to_owned());
        }
        if errors as f64 > (replies + errors) as f64 * ERROR_SHARE_MAX {
            complaints.push(format!("{errors} errors"));
        }
        complaints.extend(self.window.complaint(self.client_s));
        complaints
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    use crate::bench::window::tests::half_busy;
    use crate::bench::wrk::Outcome;

    /// Half a second of the core, and as much of the client, for `replies` in a second.
    pub(in crate::bench::load) fn measured(replies: u64, errors: u64) -> Measured {
        let said = Said::Wrk(Outcome::default());
        let ended = Ended { window: half_busy(), client_s: 0.5, ..Ended::default() };
        Measured::new(&ended, Tally { replies, errors, took_s: 1.0, said })
    }

    pub(in crate::bench::load) fn run<'a>(
        names: (&'a str, &'a str),
        round: u32,
        measured: Option<Measured>,
        setup: &'a Setup,
    ) -> Run<'a> {
        let (group, contestant) = names;
        let notes = Notes::default();
        Run { case: "close", group, contestant, round, place: 1, notes, measured, setup }
    }

    #[test]
    fn costs_are_for_whole_replies() {
        let measured = measured(1000, 5);
        assert!((measured.per_core_s() - 2000.0).abs() < 1e-6);
        assert!((measured.core_us() - 500.0).abs() < 1e-6);
        assert!((measured.sampled_us() - 500.0).abs() < 1e-6);
        assert!((measured.own_us() - 500.0).abs() < 1e-6);
        assert!((measured.replies_per_s() - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn a_run_counts_with_few_errors_and_not_with_many() {
        assert_eq!(measured(1000, 5).complaints(), [""; 0]);
        assert_eq!(measured(1000, 11).complaints(), ["11 errors"]);
        assert_eq!(measured(0, 0).complaints(), ["no request was answered"]);
        let busy = Measured { client_s: 0.3, ..measured(1000, 0) };
        assert_eq!(busy.complaints(), ["other processes had 20 % of the core"]);
    }
}
