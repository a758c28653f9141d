//! Refusals in the error log: some of them each second, with how many were not written. A refusal
//! that is not written costs a count and a comparison, so that a flood cannot make the log its
//! victim.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weir_accept::upstream::Reason;
use weir_sys::socket::UNKNOWN_PEER;

use crate::config::{Config, ErrorLog};

/// Cause of a refusal, with the figure by which it was decided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RefusalCause {
    /// More connections wait than can be served in time.
    Excess {
        /// Length of the accept queue, and its bound.
        queue: u64,
        bound: u64,
    },
    /// A connection, or a request on one, has waited for longer than this, nanoseconds.
    Stale { wait_max_ns: Option<u64> },
    /// Its source has used up its share while others wait; time per request, nanoseconds.
    Unfair { each_ns: u64 },
    /// The memory budget is used up: bytes in use, and the budget.
    Memory { used: u64, limit: u64 },
    /// The same, for a request on an open connection.
    MemoryRequest { used: u64, limit: u64 },
    /// Its client has as many connections open as it may have.
    ClientConnections,
    /// Its client makes requests at more than its rate.
    ClientRequests { retry_after_s: u64 },
    /// It has come through here so often, and would go to an upstream, by its index, again.
    Loop { upstream: usize, passes: usize },
    /// The queue of an upstream, by its index.
    Upstream { upstream: usize, reason: Reason },
}

impl RefusalCause {
    fn what(self) -> &'static str {
        match self {
            Self::Excess { .. } | Self::Memory { .. } | Self::ClientConnections => "connection",
            Self::Stale { .. } | Self::Unfair { .. } => "connection",
            Self::ClientRequests { .. } | Self::MemoryRequest { .. } => "request",
            Self::Loop { .. } | Self::Upstream { .. } => "request",
        }
    }
}

/// A cause as the log tells it.
struct Told<'a>(RefusalCause, &'a Config);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(cause, config) = self;
        match *cause {
            RefusalCause::Excess { queue, bound } => {
                write!(f, "excess queue={queue} bound={bound}")
            }
            RefusalCause::Stale { wait_max_ns } => {
                write!(f, "stale wait_max_ms={}", ms(wait_max_ns.unwrap_or_default()))
            }
            RefusalCause::Unfair { each_ns } => write!(f, "unfair each_ms={}", ms(each_ns)),
            RefusalCause::Memory { used, limit } | RefusalCause::MemoryRequest { used, limit } => {
                write!(f, "memory used={used} limit={limit}")
            }
            RefusalCause::ClientConnections => {
                let limit = config.client_limits.and_then(|limits| limits.each.connections);
                write!(f, "client-connections limit={}", limit.unwrap_or_default())
            }
            RefusalCause::ClientRequests { retry_after_s } => {
                write!(f, "client-requests retry_after_s={retry_after_s}")
            }
            RefusalCause::Loop { upstream, passes } => {
                let name = config.upstreams.get(upstream).map_or("", |upstream| &upstream.name);
                write!(f, "loop passes={passes} upstream={name}")
            }
            RefusalCause::Upstream { upstream, reason } => {
                let Some(upstream) = config.upstreams.get(upstream) else { return Ok(()) };
                let reason = match reason {
                    Reason::Stale => "stale",
                    Reason::Excess => "excess",
                };
                let (name, target_ms) = (&upstream.name, ms(upstream.admission.target_ns));
                write!(f, "upstream-{reason} delay_target_ms={target_ms} upstream={name}")
            }
        }
    }
}

/// Returns a time in milliseconds, with what is below one.
fn ms(ns: u64) -> f64 {
    (ns / 1_000) as f64 / 1e3
}

/// A loop's part of the sampling.
#[derive(Debug, Default)]
pub(crate) struct RefusalSampler {
    /// Refusals not written, of which the log has not been told.
    unwritten: u64,
    /// Time before which none is written, nanoseconds.
    next_ns: u64,
}

impl RefusalSampler {
    /// Creates the sampler of a loop.
    pub(super) fn of(log: &ErrorLog) -> Self {
        let next_ns = if log.has_refusals() { 0 } else { u64::MAX };
        Self { unwritten: 0, next_ns }
    }

    /// Counts a refusal. Returns whether it may be one of those that are written.
    #[inline]
    pub(super) fn count(&mut self, now_ns: u64) -> bool {
        self.unwritten += 1;
        now_ns >= self.next_ns
    }

    /// Writes the refusal just counted, if the log takes another.
    #[cold]
    pub(super) fn write(
        &mut self,
        client: IpAddr,
        cause: RefusalCause,
        config: &Config,
        now_ns: u64,
    ) {
        let Some(unwritten) = self.ask(&config.errors, Instant::now(), now_ns) else { return };
        let (what, told) = (cause.what(), Told(cause, config));
        let client = Some(client).filter(|client| *client != UNKNOWN_PEER.ip());
        let client = client.map_or_else(|| "unix".into(), |it| it.to_canonical().to_string());
        config
            .errors
            .notice(&format!("refused {what} client={client} unwritten={unwritten} reason={told}"));
    }

    /// Asks the log, which all loops share, for a line for the refusal just counted. Returns how
    /// many refusals were not written since the last line.
    fn ask(&mut self, log: &ErrorLog, now: Instant, now_ns: u64) -> Option<u64> {
        let others = std::mem::take(&mut self.unwritten).saturating_sub(1);
        match log.sample_refusal(now, others) {
            Ok(unwritten) => Some(unwritten),
            Err(left) => {
                self.next_ns = now_ns.saturating_add(nanoseconds(left));
                None
            }
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ErrorLogOptions, LogLevel, LogTarget};

    #[test]
    fn refusals_beyond_the_sample_are_counted_and_cost_no_question() {
        let options =
            ErrorLogOptions { target: LogTarget::Stderr, level: LogLevel::Notice, refusals: 1 };
        let log = ErrorLog::new(options, |_| {});
        let mut sampler = RefusalSampler::of(&log);
        let begin = Instant::now();
        assert!(sampler.count(5));
        assert_eq!(sampler.ask(&log, begin, 5), Some(0));
        assert!(sampler.count(6));
        assert_eq!(sampler.ask(&log, begin, 6), None);
        for _ in 0..100 {
            assert!(!sampler.count(7), "the log is not asked again in this second");
        }
        let later_ns = 2_000_000_000;
        assert!(sampler.count(later_ns));
        assert_eq!(sampler.ask(&log, begin + Duration::from_secs(2), later_ns), Some(101));
    }

    #[test]
    fn without_a_sample_nothing_is_asked() {
        let options =
            ErrorLogOptions { target: LogTarget::Stderr, level: LogLevel::Notice, refusals: 0 };
        let mut sampler = RefusalSampler::of(&ErrorLog::new(options, |_| {}));
        assert!(!sampler.count(u64::MAX - 1));
    }
}
