//! One run, as it is written to the results: a line of JSON that says everything about it.

use serde::Serialize;

use super::cases::Per;
use super::machine::Setup;
use super::window::Window;
use super::wrk::{Load, Outcome};

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
    /// The server's arguments; the folder of the run stands as `$RUN`, that of the files as
    /// `$FILES`.
    pub(super) arguments: String,
    pub(super) load: &'a Load,
    pub(super) idle_connections: usize,
    /// Why the run does not count; empty when it does.
    pub(super) flags: Vec<String>,
    /// Nothing when the run could not be made.
    pub(super) measured: Option<Measured>,
    pub(super) setup: &'a Setup,
}

/// What a run gave.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measured {
    /// The server's core, from before wrk started to after it ended.
    #[serde(flatten)]
    pub(super) window: Window,
    /// What the kernel charged to the server's processes in the window, in seconds.
    pub(super) server_s: f64,
    pub(super) wrk: Outcome,
    /// The server's resident set after the warm-up, before and after the idle connections.
    pub(super) resident_bytes: Option<[u64; 2]>,
}

impl Run<'_> {
    /// What was measured, if the run counts.
    pub(super) fn valid(&self) -> Option<&Measured> {
        self.measured.as_ref().filter(|_| self.flags.is_empty())
    }

    /// What one idle connection adds to the server's resident set, in bytes.
    pub(super) fn bytes_per_idle(&self) -> Option<f64> {
        let [before, after] = self.valid()?.resident_bytes?;
        (self.idle_connections > 0)
            .then(|| after.saturating_sub(before) as f64 / self.idle_connections as f64)
    }
}

impl Measured {
    /// The time of the server's core for one request or byte, in seconds.
    pub(super) fn cost_s(&self, per: Per) -> f64 {
        self.window.core_busy_s
            / match per {
                Per::Request => self.wrk.requests as f64,
                Per::Byte => self.wrk.bytes as f64,
            }
    }

    pub(super) fn requests_per_s(&self) -> f64 {
        self.wrk.requests as f64 * 1e6 / self.wrk.duration_us as f64
    }

    /// The bytes sent, heads too, for each second the core was busy.
    pub(super) fn bytes_per_core_s(&self) -> f64 {
        self.wrk.bytes as f64 / self.window.core_busy_s
    }

    /// Why the run does not count, in words; empty when it does.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut complaints = self.wrk.complaints();
        complaints.extend(self.window.complaint(self.server_s));
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::bench::window::tests::half_busy;

    fn measured(server_s: f64) -> Measured {
        let wrk = Outcome { requests: 10, bytes: 1000, duration_us: 500_000, ..Outcome::default() };
        Measured { window: half_busy(), server_s, wrk, resident_bytes: None }
    }

    #[test]
    fn costs_are_shares_of_the_busy_time() {
        let measured = measured(0.5);
        assert!((measured.cost_s(Per::Request) - 0.05).abs() < 1e-9);
        assert!((measured.cost_s(Per::Byte) - 0.0005).abs() < 1e-9);
        assert!((measured.requests_per_s() - 20.0).abs() < 1e-9);
        assert!((measured.bytes_per_core_s() - 2000.0).abs() < 1e-9);
    }

    #[test]
    fn errors_and_company_are_complained_of() {
        assert!(measured(0.48).complaints().is_empty());
        let mut wrong = measured(0.3);
        wrong.wrk.timeouts = 2;
        let expected = ["2 timeouts", "other processes had 20 % of the core"];
        assert_eq!(wrong.complaints(), expected);
    }
}
