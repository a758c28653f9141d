//! The content of a request that is taken before a place at the upstream is asked for, so that a
//! client that sends it slowly keeps no place.

use crate::context::WorkerContext;
use crate::context::forwarded::Forward;
use crate::upstream::buffers::Lease;

/// Memory of a request up to which it is not counted, bytes: as much as is read at a time.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// Tells a client to send its content (RFC 9110 section 10.1.1).
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl Forward {
    /// Returns whether enough of the content has been taken to ask for a place: the whole, or as
    /// much as there is memory for.
    pub(super) fn has_gathered(&mut self, context: &WorkerContext) -> bool {
        let bytes = self.exchange.request_capacity();
        if !self.exchange.wants_client() || self.request_taken() && bytes <= UNCOUNTED_BYTES {
            return true;
        }
        let Some(upstreams) = &context.upstreams else { return true };
        let more = bytes.saturating_sub(self.content_lease.bytes());
        let bytes_max = if context.memory.is_short_now() { 0 } else { usize::MAX };
        let has_memory = self.content_lease.grow(upstreams.buffers(), more, bytes_max);
        !has_memory || self.request_taken()
    }

    /// Gives back the memory of content that has been sent.
    pub(super) fn release_content(&mut self) {
        if self.content_lease.bytes() > 0 && self.exchange.is_sent() {
            self.content_lease = Lease::default();
        }
    }
}
