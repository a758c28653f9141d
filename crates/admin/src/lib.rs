//! The admin address of a server: what its operator's programs ask it. A thread of its own answers,
//! from the page of statistics, so that a server whose loops are full answers as quickly as an idle
//! one, and no loop does anything for it.
//!
//! It must not know how a server serves: it sees the page, as `weir stat` does, and whether the
//! server is stopping.

mod exchange;
mod listener;
mod metrics;
mod process;
mod status;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_observe::ServerPage;
use weir_stats::page::Snapshot;

pub use listener::AdminListener;

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

/// A reply.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: u16,
    reason: &'static str,
    media_type: &'static str,
    body: String,
}

impl Reply {
    /// Returns a reply of one line of text.
    fn line(status: u16, reason: &'static str, text: &str) -> Self {
        let body = format!("{text}\n");
        Self { status, reason, media_type: "text/plain; charset=utf-8", body }
    }
}

/// The resources of the admin address.
struct Resources {
    lifecycle: Lifecycle,
    /// The server's page, once it was there.
    page: Option<ServerPage>,
}

impl Resources {
    fn new(lifecycle: Lifecycle) -> Self {
        Self { lifecycle, page: None }
    }

    /// Answers a GET or HEAD request for a path.
    fn get(&mut self, path: &str) -> Reply {
        match path {
            "/" => Reply::line(200, "OK", "/metrics /healthz /readyz /status.json"),
            "/healthz" => Reply::line(200, "OK", "ok"),
            "/readyz" if self.lifecycle.is_stopping() => {
                Reply::line(503, "Service Unavailable", "stopping")
            }
            "/readyz" => Reply::line(200, "OK", "ready"),
            "/metrics" => self.of_snapshot(|snapshot, _| Reply {
                status: 200,
                reason: "OK",
                media_type: metrics::MEDIA_TYPE,
                body: metrics::text(snapshot, process::ProcessUsage::of_this_process().as_ref()),
            }),
            "/status.json" => self.of_snapshot(|snapshot, is_stopping| Reply {
                status: 200,
                reason: "OK",
                media_type: "application/json",
                body: status::text(snapshot, is_stopping),
            }),
            _ => Reply::line(404, "Not Found", "/metrics /healthz /readyz /status.json"),
        }
    }

    fn of_snapshot(&mut self, reply: impl FnOnce(&Snapshot, bool) -> Reply) -> Reply {
        match self.snapshot() {
            Ok(snapshot) => reply(&snapshot, self.lifecycle.is_stopping()),
            Err(why) => Reply::line(503, "Service Unavailable", &why),
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot, String> {
        if self.page.is_none() {
            let page = ServerPage::open(std::process::id());
            self.page = Some(page.map_err(|error| error.to_string())?);
        }
        let page = self.page.as_ref().ok_or("the statistics cannot be read")?;
        page.snapshot().map_err(|error| format!("the statistics cannot be read: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ready_until_it_stops_and_healthy_throughout() {
        let lifecycle = Lifecycle::default();
        let mut resources = Resources::new(lifecycle.clone());
        let mut statuses = || ["/healthz", "/readyz", "/"].map(|path| resources.get(path).status);
        assert_eq!(statuses(), [200, 200, 200]);
        lifecycle.stop();
        assert_eq!(statuses(), [200, 503, 200]);
    }

    #[test]
    fn what_is_not_there_is_not_found_and_names_what_is() {
        let reply = Resources::new(Lifecycle::default()).get("/metric");
        assert_eq!(reply.status, 404);
        assert!(reply.body.contains("/metrics"));
    }

    #[test]
    fn a_page_that_cannot_be_read_is_said() {
        let reply = Resources::new(Lifecycle::default()).get("/metrics");
        assert_eq!(reply.status, 503);
        assert!(reply.body.contains("publishes its statistics"), "{}", reply.body);
    }
}
