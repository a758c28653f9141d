//! A workload that is ready to run, and the parts that all workloads are built from.

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::Workload;
use crate::session::{RequestId, RequestTable, RequestTemplate, SessionSource};

/// A workload, with the requests its sessions name.
#[derive(Clone)]
pub struct BuiltWorkload {
    /// Makes the sessions.
    pub workload: Arc<dyn Workload>,
    /// The requests that they name.
    pub requests: RequestTable,
}

/// A request table in which each distinct request is prepared once.
pub(super) struct RequestInterner<'a> {
    template: &'a RequestTemplate,
    pub(super) requests: RequestTable,
    ids: HashMap<(String, String, Vec<u8>), RequestId>,
}

impl<'a> RequestInterner<'a> {
    pub(super) fn new(template: &'a RequestTemplate) -> Self {
        Self { template, requests: RequestTable::default(), ids: HashMap::new() }
    }

    /// Returns the id of a request, which is prepared if it is new.
    pub(super) fn id(&mut self, method: &str, target: &str, body: &[u8]) -> RequestId {
        let key = (method.to_owned(), target.to_owned(), body.to_vec());
        *self
            .ids
            .entry(key)
            .or_insert_with(|| self.requests.push(self.template.request(method, target, body)))
    }
}

/// A deterministic workload: every source is a copy of the same one.
pub(super) struct ClonedSource<S>(pub(super) S);

impl<S: SessionSource + Clone + Sync + 'static> Workload for ClonedSource<S> {
    fn source(&self, _seed: u64) -> Box<dyn SessionSource> {
        Box::new(self.0.clone())
    }
}
