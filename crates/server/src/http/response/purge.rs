//! PURGE: removes what is stored for a target, by the convention of caches.

use weir_cache::Resource;
use weir_http1::{Request, Status};

use super::Reply;
use crate::http::course::told;
use crate::http::head_fields::Head;
use crate::sites::Rule;

impl Reply<'_, '_> {
    /// Removes what is stored for a target, if the client may.
    pub(super) fn purge(&mut self, request: &Request<'_>, path: &[u8], query: Option<&[u8]>) {
        let config = self.context.config();
        if !config.may_purge(self.info.peer, request.head) {
            return self.plain(Status::FORBIDDEN, b"");
        }
        let rule = self.info.ruling.and_then(|ruling| config.rule(ruling.rule?));
        let upstream = rule.and_then(Rule::upstream);
        let cache = self.context.upstreams.as_ref().and_then(|upstreams| upstreams.cache());
        let removed = cache.zip(upstream).is_some_and(|(cache, upstream)| {
            let is_trusted = config.trusts_peer(self.info.peer);
            let told = &told(&Head { head: request.head, is_trusted });
            let host = request.host.unwrap_or_default();
            let resource = Resource { upstream, is_tls: false, host, told, path, query };
            // Nobody tells another address than the one that is named.
            if config.trusted.is_empty() {
                let mut key = Vec::new();
                let mut remove = |is_tls| {
                    Resource { is_tls, ..resource }.write_key(&mut key);
                    cache.remove(&key)
                };
                // Both, whichever of them it is sent by.
                remove(false) | remove(true)
            } else {
                cache.remove_all(resource.named_by())
            }
        });
        self.plain(if removed { Status::OK } else { Status::NOT_FOUND }, b"");
    }
}
