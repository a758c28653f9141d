//! The admin address of a server: what its operator and his programs ask it. A thread of its own
//! answers, from the page of statistics, so that a server whose loops are full answers as quickly
//! as an idle one, and no loop does anything for it. It reads the page once per second in any case,
//! for the history of the last minutes.
//!
//! It must not know how a server serves: it sees the page, as `weir stat` does, and whether the
//! server is stopping.

mod answer;
mod connections;
mod exchange;
#[cfg(test)]
mod fixtures;
mod help;
mod listener;
mod live_page;
mod metrics;
mod process;
mod reply;
mod sampler;
mod status;
mod text_format;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use weir_http1::Status;
use weir_observe::OwnPage;
use weir_stats::page::{PageError, Snapshot};

pub use listener::{AdminListener, SocketGuard};
use live_page::Nonces;
use process::ProcessUsage;
use reply::Reply;
use sampler::Sampler;

/// Time for which a snapshot answers further requests, nanoseconds. A snapshot reads some files of
/// /proc for each loop.
const KEPT_NS: u64 = 500_000_000;

/// Paths that are answered.
const PATHS: &str = "/ /metrics /healthz /readyz /status.json";

/// State of the server that its page does not tell.
#[derive(Clone, Debug, Default)]
pub struct Lifecycle(Arc<AtomicU8>);

/// Bits of the state: a server that has a successor may be told to stop, or not.
const STOPS: u8 = 1;
const HAS_SUCCESSOR: u8 = 1 << 1;

impl Lifecycle {
    /// Records that the server is stopping: it finishes what it has and takes nothing new.
    pub fn stop(&self) {
        self.0.fetch_or(STOPS, Ordering::Relaxed);
    }

    /// Records that a successor answers on the admin address: open connections are finished.
    pub fn hand_over(&self) {
        self.0.fetch_or(HAS_SUCCESSOR, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.has(STOPS)
    }

    fn has_successor(&self) -> bool {
        self.has(HAS_SUCCESSOR)
    }

    fn has(&self, bit: u8) -> bool {
        self.0.load(Ordering::Relaxed) & bit != 0
    }
}

/// The resources of the admin address.
struct Resources {
    lifecycle: Lifecycle,
    page: OwnPage,
    /// The last reading.
    reading: Option<Reading>,
    sampler: Sampler,
    nonces: Nonces,
}

/// The statistics at one time.
struct Reading {
    taken_ns: u64,
    snapshot: Snapshot,
}

impl Resources {
    fn new(lifecycle: Lifecycle, page: OwnPage, sampler: Sampler) -> Self {
        Self { lifecycle, page, reading: None, sampler, nonces: Nonces::default() }
    }

    /// Returns the time of the next sample, nanoseconds of CLOCK_MONOTONIC.
    fn due_ns(&self) -> u64 {
        self.sampler.due_ns()
    }

    /// Adds a sample to the history if one is due. A page that cannot be read has none; the next
    /// sample is over a longer time then.
    fn sample(&mut self, now_ns: u64) {
        if !self.sampler.is_due(now_ns) {
            return;
        }
        self.reading = None;
        if let Ok(reading) = reading(&mut self.reading, &self.page, now_ns) {
            self.sampler.add(&reading.snapshot);
        }
    }

    /// Answers a GET or HEAD request at `now_ns`, nanoseconds of CLOCK_MONOTONIC.
    fn get(&mut self, path: &str, query: Option<&[u8]>, now_ns: u64) -> Reply {
        match path {
            "/" => {
                let nonce = self.nonces.next();
                Reply::page(live_page::html(&nonce), live_page::policy(&nonce))
            }
            "/healthz" => Reply::line(Status::OK, "ok"),
            "/readyz" if self.lifecycle.is_stopping() => {
                Reply::line(Status::SERVICE_UNAVAILABLE, "stopping")
            }
            "/readyz" => Reply::line(Status::OK, "ready"),
            "/metrics" => self.of_reading(now_ns, |reading, _, _| {
                let process = ProcessUsage::of_server(&reading.snapshot);
                let text = metrics::text(&reading.snapshot, process.as_ref());
                Reply::content(text_format::MEDIA_TYPE, text)
            }),
            "/status.json" => self.of_reading(now_ns, |reading, sampler, is_stopping| {
                let Sampler { history, .. } = sampler;
                let since = status::since(query);
                let text = status::text(&reading.snapshot, history, since, is_stopping);
                Reply::content("application/json", text)
            }),
            _ => Reply::line(Status::NOT_FOUND, PATHS),
        }
    }

    fn of_reading(
        &mut self,
        now_ns: u64,
        reply: impl FnOnce(&Reading, &Sampler, bool) -> Reply,
    ) -> Reply {
        let is_stopping = self.lifecycle.is_stopping();
        match reading(&mut self.reading, &self.page, now_ns) {
            Ok(reading) => reply(reading, &self.sampler, is_stopping),
            Err(why) => {
                let why = format!("the statistics cannot be read: {why}");
                Reply::line(Status::SERVICE_UNAVAILABLE, &why)
            }
        }
    }
}

/// Returns the last reading, or a new one if that is too old.
fn reading<'a>(
    last: &'a mut Option<Reading>,
    page: &OwnPage,
    now_ns: u64,
) -> Result<&'a Reading, PageError> {
    let is_kept = |last: &Reading| now_ns.saturating_sub(last.taken_ns) < KEPT_NS;
    let reading = match last.take().filter(is_kept) {
        Some(last) => last,
        None => Reading { taken_ns: now_ns, snapshot: page.snapshot()? },
    };
    Ok(last.insert(reading))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ready_until_it_stops_and_healthy_throughout() {
        let mut resources = fixtures::resources();
        let lifecycle = resources.lifecycle.clone();
        let paths = ["/healthz", "/readyz", "/", "/metrics", "/status.json"];
        let mut statuses = || paths.map(|path| resources.get(path, None, 0).code());
        assert_eq!(statuses(), [200; 5]);
        lifecycle.stop();
        assert_eq!(statuses(), [200, 503, 200, 200, 200]);
        assert!(resources.get("/status.json", None, 0).body().contains("\"state\": \"stopping\""));
    }

    #[test]
    fn a_server_with_a_successor_is_ready_by_that_until_it_is_told_to_stop() {
        let mut resources = fixtures::resources();
        let lifecycle = resources.lifecycle.clone();
        let mut readyz = || resources.get("/readyz", None, 0).code();
        lifecycle.hand_over();
        assert_eq!((readyz(), lifecycle.has_successor()), (200, true));
        lifecycle.stop();
        assert_eq!((readyz(), lifecycle.has_successor()), (503, true));
    }

    #[test]
    fn what_is_not_there_is_not_found_and_names_what_is() {
        let reply = fixtures::resources().get("/metric", None, 0);
        assert_eq!(reply.code(), 404);
        assert!(reply.body().contains("/metrics"));
    }

    #[test]
    fn a_snapshot_answers_for_half_a_second() {
        let page = fixtures::Page::new(1);
        let publish = |count| page.publish(0, &fixtures::this_thread(), &[("replies", count)]);
        let mut resources = fixtures::resources_of(&page);
        let mut replies = |now_ns| {
            let text = resources.get("/metrics", None, now_ns).body().to_owned();
            let value = text.lines().find_map(|line| line.strip_prefix("weir_replies_total "));
            value.unwrap().parse::<u64>().unwrap()
        };
        publish(1);
        assert_eq!(replies(7), 1);
        publish(2);
        assert_eq!((replies(7 + KEPT_NS - 1), replies(7 + KEPT_NS)), (1, 2));
    }

    #[test]
    fn the_history_grows_by_a_sample_each_second() {
        let mut resources = fixtures::resources();
        let second = 1_000_000_000;
        for now_ns in [0, second / 2, second, second + 1, 2 * second] {
            resources.sample(now_ns);
        }
        assert_eq!(resources.due_ns(), 3 * second);
        assert_eq!(resources.sampler.history.taken(), 2);
        let reply = resources.get("/status.json", Some(b"since=1"), 2 * second);
        assert!(reply.body().contains("\"first\":1"), "{}", reply.body());
    }
}
