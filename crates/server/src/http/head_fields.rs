//! The field lines of a head, as the cache of replies reads them.

use weir_cache::Fields;
use weir_http1::forward;

/// Field lines of a head that was parsed before.
pub(super) struct Head<'a>(pub &'a [u8]);

impl Fields for Head<'_> {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        forward::lines(self.0)
    }
}
