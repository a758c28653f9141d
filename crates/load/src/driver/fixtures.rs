//! A configuration for the tests of the driver's machines.

use std::sync::Arc;

use crate::config::{Config, LoadModel, StackKind, Workload};
use crate::schedule::ArrivalLaw;
use crate::session::{RequestTable, RequestTemplate, Session, SessionSource};

/// A second, nanoseconds.
pub(super) const S: u64 = 1_000_000_000;

/// A workload without sessions: the tests make their own.
struct NoSessions;

impl Workload for NoSessions {
    fn source(&self, _seed: u64) -> Box<dyn SessionSource> {
        Box::new(NoSessions)
    }
}

impl SessionSource for NoSessions {
    fn fill(&mut self, _arrival: u64, _session: &mut Session) -> bool {
        false
    }
}

/// Creates the configuration of a run of 10 s with a timeout of 5 s, at 1 arrival per second. Its
/// requests are `GET /0` and `GET /1`.
pub(super) fn config() -> Config {
    let template = RequestTemplate { authority: "h".into(), ..RequestTemplate::default() };
    let mut requests = RequestTable::default();
    for target in ["/0", "/1"] {
        requests.push(template.request("GET", target, b""));
    }
    Config {
        addresses: vec![([127, 0, 0, 1], 1).into()],
        unix_socket: None,
        tls: None,
        model: LoadModel::Open(ArrivalLaw::Constant { rate: 1.0 }),
        duration_ns: 10 * S,
        arrivals_max: 0,
        warmup_ns: 0,
        cooldown_ns: 0,
        workload: Arc::new(NoSessions),
        requests: Arc::new(requests),
        shared_conns: 0,
        keep_open: false,
        idle: 0,
        slow_senders: 0,
        slow_readers: 0,
        slow_rate: 1,
        send_rate: None,
        background_rate: 1.0,
        timeout_ns: 5 * S,
        deadline_ns: 0,
        sources: Vec::new(),
        reset: false,
        conns_max: 0,
        threads: 1,
        cpus: Vec::new(),
        stack: StackKind::Kernel,
        seed: 0,
        each: false,
    }
}
