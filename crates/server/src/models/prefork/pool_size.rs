//! The number of children of a worker, and of connections of each.

use crate::architecture::options::processes::POOL;
use crate::config::Config;

/// Returns the number of children per worker: no more than may have a connection each.
pub(crate) fn children(config: &Config) -> usize {
    let pool = config.arch_settings.get(&POOL) as usize;
    pool.min(config.conns_max.div_ceil(config.workers.max(1))).max(1)
}

/// Returns the maximum number of open connections per child.
pub(crate) fn open_max(config: &Config) -> usize {
    config.conns_max.div_ceil(config.workers.max(1) * children(config)).max(1)
}
