//! Serving a connection once: the progress that its thread makes while it has the worker, and the
//! wait that follows.

use std::os::fd::AsRawFd;
use std::time::Duration;

use weir_dispatch::readiness::{Interest, Token};
use weir_sys::poll::{POLLIN, POLLOUT};
use weir_sys::{heap, socket};

use super::model::{GroupWorker, ThreadGroup};
use super::park::{NO_FD, Park, Wait, WakeReason};
use crate::http::connection::Action;
use crate::worker::Model;

/// Longest sleep of a thread that does not wait for its connection's socket.
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl GroupWorker {
    /// Lets a connection make as much progress as it can without waiting. Returns its thread's next
    /// step.
    pub(crate) fn serve_once(&mut self, token: Token, reason: WakeReason) -> Park {
        self.note_wake(reason);
        self.model.unserved.remove(&token);
        if !self.core.table.is_current(token) {
            self.close_orphan(token);
            return Park::Gone;
        }
        self.model.serving = Some(token.slot);
        if let Some(conn) = self.core.table.conn(token.slot) {
            conn.registered = None;
        }
        let is_served = match reason {
            WakeReason::First | WakeReason::Ready | WakeReason::Fetched => {
                self.admit_request(token)
            }
            WakeReason::Resumed => true,
            WakeReason::Tried | WakeReason::Late => false,
        };
        if is_served {
            ThreadGroup::serve(self, token.slot);
        }
        let park = self.park(token);
        self.model.serving = None;
        // Threads may be many, and each may wait for long.
        heap::settle();
        let context = &mut self.core.context;
        context.memory.note_served(context.now_ns());
        self.wake_timekeeper();
        park
    }

    /// Counts a service, and the wait for one descriptor before it as a getevents-phase.
    fn note_wake(&mut self, reason: WakeReason) {
        let counters = &mut self.core.context.counters;
        counters.getevents_calls.add(matches!(reason, WakeReason::Ready | WakeReason::Late).into());
        counters.getevents_ready.add((reason == WakeReason::Ready).into());
        self.model.served += 1;
    }

    /// Handles the deadline if it has come, and returns the thread's next step.
    fn park(&mut self, token: Token) -> Park {
        let now_ns = self.core.context.now_ns();
        self.expire_if_late(token, now_ns);
        if !self.core.table.is_current(token) {
            return Park::Gone;
        }
        let Some(conn) = self.core.table.conn(token.slot) else { return Park::Gone };
        if let Some(fetch) = conn.fetch() {
            return Park::Fetch(fetch);
        }
        if conn.action() == Action::Yield {
            return Park::Yield;
        }
        let left_ns = conn.deadline_ns().saturating_sub(now_ns);
        if matches!(conn.action(), Action::Pause | Action::Forward) {
            // Nothing about the socket ends a pause, or the wait for a password while enough is
            // unread: poll(2) would return at once for what is not read. The thread looks now and
            // then whether another has closed it.
            conn.registered = Some(Interest::Nothing);
            let timeout = Duration::from_nanos(left_ns).min(PAUSE_MAX);
            return Park::Wait(Wait::new(NO_FD, 0, Some(timeout)));
        }
        let writes = conn.awaits_room();
        // After a spent write budget it is unknown whether the socket is full.
        if let Some(output) = conn.output().filter(|_| writes) {
            output.full_since_ns.get_or_insert(now_ns);
        }
        let (interest, events) =
            if writes { (Interest::Write, POLLOUT) } else { (Interest::Read, POLLIN) };
        conn.registered = Some(interest);
        let timeout = (conn.deadline_ns() < u64::MAX).then(|| Duration::from_nanos(left_ns));
        Park::Wait(Wait::new(conn.fd().as_raw_fd(), events, timeout))
    }

    fn expire_if_late(&mut self, token: Token, now_ns: u64) {
        if !self.core.table.is_current(token) {
            return;
        }
        let Some(conn) = self.core.table.conn(token.slot) else { return };
        if conn.deadline_ns() <= now_ns
            && let Action::Close(reason) = conn.expire(&mut self.core.context)
        {
            ThreadGroup::close(self, token.slot, reason);
        }
    }

    /// Closes the socket of a connection that was closed while its thread waited.
    fn close_orphan(&mut self, token: Token) {
        if let Some(fd) = self.model.orphaned_sockets.remove(&token) {
            socket::close(fd);
        }
    }
}
