//! The present state of an upstream, which all loops share: each publishes it with its counters,
//! and a reader takes it from the loop that has published last.

use serde_json::{Value, json};

use super::layout::UPSTREAM_WORDS;

/// Number that stands for no limit.
const NO_LIMIT: u64 = u32::MAX as u64;

/// The present state of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamState {
    /// Name of the upstream.
    pub name: String,
    /// Number of its servers.
    pub servers: u64,
    /// Maximum number of requests in flight; `None` if there is none.
    pub limit: Option<u64>,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that wait for a place.
    pub waiting: u64,
    /// Servers that their checks find down.
    pub servers_down: u64,
}

impl UpstreamState {
    /// Returns the numbers of a slot.
    pub fn words(&self) -> [u64; UPSTREAM_WORDS] {
        let limit = self.limit.map_or(NO_LIMIT, |limit| limit.min(NO_LIMIT));
        [limit, self.in_flight, self.waiting, self.servers_down]
    }

    /// Creates the state from the numbers of a slot.
    pub(super) fn of_words(name: &str, servers: u64, words: [u64; UPSTREAM_WORDS]) -> Self {
        let [limit, in_flight, waiting, servers_down] = words;
        let limit = Some(limit).filter(|limit| *limit < NO_LIMIT);
        Self { name: name.into(), servers, limit, in_flight, waiting, servers_down }
    }

    /// Returns the state as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "servers": self.servers,
            "servers_down": self.servers_down,
            "limit": self.limit,
            "in_flight": self.in_flight,
            "waiting": self.waiting,
        })
    }
}
