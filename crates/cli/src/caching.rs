//! The options of the cache of replies.

use clap::Args;
use weir_server::{CacheConfig, IpNet, ReplyCache, Upstream};

use crate::{forwarding, values};

/// Smallest cache: the table of keys alone takes some of it.
const BYTES_MIN: u64 = 1 << 20;

/// The cache of what upstreams reply.
#[derive(Debug, Args)]
pub(crate) struct CacheOptions {
    /// Memory for replies of upstreams, which are stored and sent again by the rules of RFC 9111,
    /// all loops together, from 1M; 0: none are stored
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes,
          help_heading = "Cache")]
    pub cache: u64,

    /// Replies with a content larger than this, or than an eighth of the cache, are not stored
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = values::size,
          help_heading = "Cache")]
    pub cache_object_max: u64,

    /// Fraction of the time since its last change for which a reply is fresh that does not say how
    /// long it is (RFC 9111 section 4.2.2)
    #[arg(long, value_name = "N", default_value = "0.1", value_parser = fraction,
          help_heading = "Cache")]
    pub cache_heuristic: f32,

    /// Networks of clients that may remove a stored reply, by a request PURGE for it; may be
    /// repeated. Default: none may
    #[arg(long, value_name = "CIDR", value_parser = forwarding::options::network,
          help_heading = "Cache")]
    pub cache_purge: Vec<IpNet>,
}

impl CacheOptions {
    /// Returns the cache of what `upstreams` reply; `None` if none is wanted.
    ///
    /// # Errors
    /// A sentence: there are no upstreams.
    pub(crate) fn cache(self, upstreams: &[Upstream]) -> Result<Option<ReplyCache>, String> {
        if self.cache > 0 && upstreams.is_empty() {
            return Err("--cache is for replies of upstreams, and there is none".into());
        }
        let bounds = CacheConfig {
            bytes_max: self.cache,
            object_bytes_max: values::saturated(self.cache_object_max),
            heuristic: self.cache_heuristic,
        };
        Ok((self.cache > 0).then_some(ReplyCache { bounds, purgers: self.cache_purge }))
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        bytes @ 1..BYTES_MIN => Err(format!("{bytes} bytes are too few: a cache has 1M or more")),
        bytes => Ok(bytes),
    }
}

fn fraction(text: &str) -> Result<f32, String> {
    let fraction = text.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
    fraction.ok_or_else(|| "a fraction is a number from 0 to 1".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_none_or_not_too_small() {
        assert_eq!((bytes("0"), bytes("1M")), (Ok(0), Ok(1 << 20)));
        assert!(bytes("1k").is_err() && bytes("x").is_err());
        assert_eq!((fraction("0"), fraction("0.25")), (Ok(0.0), Ok(0.25)));
        assert!(["-0.1", "1.5", "NaN", ""].iter().all(|text| fraction(text).is_err()));
    }
}
