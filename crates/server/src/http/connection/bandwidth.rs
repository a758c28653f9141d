//! The part of the connection machine that keeps to the bandwidth of each client: before a write,
//! bytes are reserved for it, and where they are for later, the connection pauses until then.

use weir_accept::client_limits::Reservation;

use super::{Action, Connection};
use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;
use crate::context::output::{Output, Pace};
use crate::context::read_rate::ReadRateLimits;

impl Connection {
    /// Returns whether some of the output may be sent now; else the connection pauses until its
    /// deadline. `least_bytes`: those that can only be sent together.
    #[inline]
    pub(crate) fn may_send(&mut self, least_bytes: u64, context: &mut WorkerContext) -> bool {
        context.clients.as_ref().is_none_or(|clients| !clients.limit_bandwidth())
            || self.has_reserved(least_bytes, context)
    }

    #[cold]
    fn has_reserved(&mut self, least_bytes: u64, context: &mut WorkerContext) -> bool {
        let now_ns = context.now_ns();
        let (Some(output), Some(clients)) = (self.output.as_deref_mut(), &context.clients) else {
            return true;
        };
        if output.pace.reserved_bytes.is_none_or(|bytes| bytes == 0 || bytes < least_bytes) {
            let wanted_bytes = output.unsent_bytes().min(context.write_budget.bytes());
            if wanted_bytes == 0 && least_bytes == 0 {
                return true;
            }
            let more = least_bytes.saturating_sub(output.pace.reserved_bytes.unwrap_or(0));
            let Some(reserved) = clients.reserve(self.peer, more, wanted_bytes, &context.config)
            else {
                output.pace.reserved_bytes = None;
                return true;
            };
            let Reservation { bytes, wait_ns } = reserved;
            *output.pace.reserved_bytes.get_or_insert(0) += bytes;
            if wait_ns > 0 {
                output.pace.pause_ns = Some((now_ns, now_ns.saturating_add(wait_ns)));
                // From now on it is not the client that takes nothing.
                output.full_since_ns = None;
                context.counters.client_bandwidth_pauses.one();
            }
        }
        match output.pace.pause_ns {
            Some((_, until_ns)) if until_ns > now_ns => {
                self.deadline_ns = until_ns.min(self.request_deadline_ns(context));
                false
            }
            Some(_) => {
                self.end_pause(now_ns, context);
                true
            }
            None => true,
        }
    }

    /// Returns whether it pauses because of its client's bandwidth.
    pub(crate) fn is_paused(&self) -> bool {
        self.pause_end_ns().is_some()
    }

    /// Returns the start of its pause, nanoseconds; `None` if there is none.
    pub(super) fn pause_begin_ns(&self) -> Option<u64> {
        let (since_ns, _) = self.output.as_ref()?.pace.pause_ns?;
        Some(since_ns)
    }

    /// Returns the end of its pause, nanoseconds; `None` if there is none.
    pub(super) fn pause_end_ns(&self) -> Option<u64> {
        let (_, until_ns) = self.output.as_ref()?.pace.pause_ns?;
        Some(until_ns)
    }

    /// Ends a pause, which is no time in which the client took nothing.
    fn end_pause(&mut self, now_ns: u64, context: &WorkerContext) {
        let request_deadline_ns = self.request_deadline_ns(context);
        let Some(output) = self.output.as_deref_mut() else { return };
        let Some((since_ns, _)) = output.pace.pause_ns.take() else { return };
        output.read_rate.pass_over(now_ns.saturating_sub(since_ns));
        let limits = ReadRateLimits::of(&context.config);
        self.deadline_ns = output.read_rate.due_ns(&limits).min(request_deadline_ns);
    }

    /// Ends the pause of a reply at its deadline, or the connection at that of its request.
    pub(super) fn expire_pause(&mut self, context: &WorkerContext) -> Action {
        if self.request_deadline_ns(context) <= context.now_ns() {
            return self.close_for(CloseReason::RequestTimeout);
        }
        self.end_pause_if_over(context);
        self.action()
    }

    /// Ends a pause whose time is over; returns whether there was one.
    pub(super) fn end_pause_if_over(&mut self, context: &WorkerContext) -> bool {
        let now_ns = context.now_ns();
        let is_over = self.pause_end_ns().is_some_and(|until_ns| until_ns <= now_ns);
        if is_over {
            self.end_pause(now_ns, context);
        }
        is_over
    }

    /// Gives back the bytes that were reserved for an output and not sent.
    pub(super) fn give_back_bytes(&self, output: &mut Output, context: &WorkerContext) {
        if let (Pace { reserved_bytes: Some(bytes @ 1..), .. }, Some(clients)) =
            (std::mem::take(&mut output.pace), &context.clients)
        {
            clients.give_back(self.peer, bytes);
        }
    }
}
