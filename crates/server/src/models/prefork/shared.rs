//! Memory that all processes of a server share, mapped before the first of them is forked.

use std::sync::Arc;

use super::account::SharedAccount;
use super::pool_size;
use crate::config::{Config, Error};
use crate::context::clients::Clients;
use crate::control::StartLatch;
use crate::stat_page::StatPage;

/// Handles to that memory, and the latch of the children.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    /// The page of statistics.
    pub(super) page: Option<StatPage>,
    /// The limits of each client.
    clients: Option<Arc<Clients>>,
    /// The account of the memory of all children.
    account: SharedAccount,
    /// The latch that the children wait for.
    pub(super) latch: Arc<StartLatch>,
    /// Number of children of a master.
    children: usize,
}

impl Shared {
    /// Maps what is not mapped yet.
    ///
    /// # Errors
    /// A message: there is no memory for the limits of each client.
    pub(super) fn of(
        config: &Config,
        page: Option<&StatPage>,
        latch: &Arc<StartLatch>,
    ) -> Result<Self, Error> {
        let children = pool_size::children(config);
        let clients = config.client_limits.as_ref().map(|limits| {
            Clients::shared(limits, config.workers * children, pool_size::open_max(config))
        });
        Ok(Self {
            page: page.cloned(),
            // Before the account, which takes over what was charged for it.
            clients: clients.transpose()?.map(Arc::new),
            account: SharedAccount::of(config),
            latch: Arc::clone(latch),
            children,
        })
    }

    /// Counts the memory of this process, a child, in the account; returns the limits of each
    /// client as it uses them.
    pub(super) fn join(&self, worker: usize, child: usize) -> Option<Arc<Clients>> {
        self.account.join(worker, child);
        self.clients.as_ref()?.of_process(self.process(worker, child)).map(Arc::new)
    }

    /// Takes the memory and the connections of a child that has ended off what they count in.
    pub(super) fn leave(&self, worker: usize, child: usize) {
        self.account.leave(worker, child);
        if let Some(clients) = &self.clients {
            clients.leave(self.process(worker, child));
        }
    }

    /// Takes what all children of a master count off, which have ended with it.
    pub(super) fn leave_all(&self, worker: usize) {
        (0..self.children).for_each(|child| self.leave(worker, child));
    }

    /// Returns the number of a child among those of all masters.
    fn process(&self, worker: usize, child: usize) -> usize {
        worker * self.children + child
    }
}
