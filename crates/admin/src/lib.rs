//! The admin address of a server: what its operator's programs ask it. A thread of its own answers,
//! from the page of statistics, so that a server whose loops are full answers as quickly as an idle
//! one, and no loop does anything for it.
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
mod metrics;
mod process;
mod reply;
mod status;
mod text_format;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_http1::Status;
use weir_observe::OwnPage;
use weir_stats::page::{PageError, Snapshot};

pub use listener::{AdminListener, SocketGuard};
use process::ProcessUsage;
use reply::Reply;

/// Time for which a snapshot answers further requests, nanoseconds. A snapshot reads some files of
/// /proc for each loop.
const KEPT_NS: u64 = 500_000_000;

/// Paths that are answered.
const PATHS: &str = "/metrics /healthz /readyz /status.json";

/// State of the server that its page does not tell.
#[derive(Clone, Debug, Default)]
pub struct Lifecycle(Arc<AtomicBool>);

impl Lifecycle {
    /// Records that the server is stopping: it finishes what it has and takes nothing new.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The resources of the admin address.
struct Resources {
    lifecycle: Lifecycle,
    page: OwnPage,
    /// The last reading.
    reading: Option<Reading>,
}

/// The statistics at one time.
struct Reading {
    taken_ns: u64,
    snapshot: Snapshot,
    /// Use of the machine; `None` if /proc does not show it.
    process: Option<ProcessUsage>,
}

impl Resources {
    fn new(lifecycle: Lifecycle, page: OwnPage) -> Self {
        Self { lifecycle, page, reading: None }
    }

    /// Answers a GET or HEAD request for a path at `now_ns`, nanoseconds of CLOCK_MONOTONIC.
    fn get(&mut self, path: &str, now_ns: u64) -> Reply {
        match path {
            "/" => Reply::line(Status::OK, PATHS),
            "/healthz" => Reply::line(Status::OK, "ok"),
            "/readyz" if self.lifecycle.is_stopping() => {
                Reply::line(Status::SERVICE_UNAVAILABLE, "stopping")
            }
            "/readyz" => Reply::line(Status::OK, "ready"),
            "/metrics" => self.of_reading(now_ns, |reading, _| {
                let text = metrics::text(&reading.snapshot, reading.process.as_ref());
                Reply::content(text_format::MEDIA_TYPE, text)
            }),
            "/status.json" => self.of_reading(now_ns, |reading, is_stopping| {
                Reply::content("application/json", status::text(&reading.snapshot, is_stopping))
            }),
            _ => Reply::line(Status::NOT_FOUND, PATHS),
        }
    }

    fn of_reading(&mut self, now_ns: u64, reply: impl FnOnce(&Reading, bool) -> Reply) -> Reply {
        let is_stopping = self.lifecycle.is_stopping();
        match self.reading(now_ns) {
            Ok(reading) => reply(reading, is_stopping),
            Err(why) => {
                let why = format!("the statistics cannot be read: {why}");
                Reply::line(Status::SERVICE_UNAVAILABLE, &why)
            }
        }
    }

    /// Returns the last reading, or a new one if that is too old.
    fn reading(&mut self, now_ns: u64) -> Result<&Reading, PageError> {
        let last = self.reading.take();
        let is_kept = |last: &Reading| now_ns.saturating_sub(last.taken_ns) < KEPT_NS;
        let reading = match last.filter(is_kept) {
            Some(last) => last,
            None => {
                let snapshot = self.page.snapshot()?;
                let process = ProcessUsage::of_server(&snapshot);
                Reading { taken_ns: now_ns, snapshot, process }
            }
        };
        Ok(self.reading.insert(reading))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ready_until_it_stops_and_healthy_throughout() {
        let mut resources = fixtures::resources();
        let lifecycle = resources.lifecycle.clone();
        let paths = ["/healthz", "/readyz", "/", "/metrics", "/status.json"];
        let mut statuses = || paths.map(|path| resources.get(path, 0).code());
        assert_eq!(statuses(), [200; 5]);
        lifecycle.stop();
        assert_eq!(statuses(), [200, 503, 200, 200, 200]);
        assert!(resources.get("/status.json", 0).body().contains("\"state\": \"stopping\""));
    }

    #[test]
    fn what_is_not_there_is_not_found_and_names_what_is() {
        let reply = fixtures::resources().get("/metric", 0);
        assert_eq!(reply.code(), 404);
        assert!(reply.body().contains("/metrics"));
    }

    #[test]
    fn a_snapshot_answers_for_half_a_second() {
        let page = fixtures::Page::new(1);
        let publish = |count| page.publish(0, &fixtures::this_thread(), &[("replies", count)]);
        let mut resources = Resources::new(Lifecycle::default(), page.observed());
        let mut replies = |now_ns| {
            let text = resources.get("/metrics", now_ns).body().to_owned();
            let value = text.lines().find_map(|line| line.strip_prefix("weir_replies_total "));
            value.unwrap().parse::<u64>().unwrap()
        };
        publish(1);
        assert_eq!(replies(7), 1);
        publish(2);
        assert_eq!((replies(7 + KEPT_NS - 1), replies(7 + KEPT_NS)), (1, 2));
    }
}
