//! The field lines of a head, as the cache of replies reads them.

use weir_cache::Fields;
use weir_http1::forward;

/// Field lines of a head that was parsed before, as far as the upstream is sent what they say.
pub(super) struct Head<'a> {
    pub head: &'a [u8],
    /// True if the client's word on where a request comes from is passed on.
    pub is_trusted: bool,
}

impl Fields for Head<'_> {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let is_sent = |(name, _): &(&[u8], &[u8])| self.is_trusted || !forward::is_forwarded(name);
        forward::lines(self.head).filter(is_sent)
    }
}
