//! The levels of the memory budget: from which share of it on what has to give way.

/// Shares of the budget from which on the levels hold, in percent: those of [`MemoryLevel`] after
/// the first.
const LEVELS_PERCENT: [u64; 5] = [80, 85, 90, 95, 100];

/// Share of the budget down to which caches give back, in percent.
const CACHES_TO_PERCENT: u64 = 75;

/// State of the budget, and with it what gives way. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum MemoryLevel {
    /// There is enough.
    #[default]
    Ample = 0,
    /// Caches give back, and nothing more is stored.
    Caches = 1,
    /// Idle connections are closed, and others after their reply.
    Idle = 2,
    /// New connections are refused, and those that wait for their client are closed.
    Connections = 3,
    /// Requests on open connections are refused.
    Requests = 4,
    /// A connection that is to be served is closed instead.
    Full = 5,
}

impl MemoryLevel {
    const SHORT: [Self; LEVELS_PERCENT.len()] =
        [Self::Caches, Self::Idle, Self::Connections, Self::Requests, Self::Full];

    /// Returns the level at which `used` bytes of a budget are in use.
    pub(super) fn of(used: u64, limit: u64) -> Self {
        let rows = Self::SHORT.into_iter().zip(LEVELS_PERCENT);
        let reached = rows.take_while(|(_, share)| used >= percent(limit, *share));
        reached.last().map_or(Self::Ample, |(level, _)| level)
    }
}

/// Returns the bytes of a budget from which on there is not enough.
pub(super) fn ample_bytes(limit: u64) -> u64 {
    percent(limit, LEVELS_PERCENT[0])
}

/// Returns the bytes of a budget down to which caches give back.
pub(super) fn caches_to_bytes(limit: u64) -> u64 {
    percent(limit, CACHES_TO_PERCENT)
}

fn percent(whole: u64, percent: u64) -> u64 {
    // In this order a limit may be any number.
    whole / 100 * percent + whole % 100 * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gives_way_comes_in_an_order() {
        let levels = [0, 799, 800, 850, 900, 949, 950, 999, 1000, u64::MAX];
        let found = levels.map(|used| MemoryLevel::of(used, 1000));
        use MemoryLevel::*;
        let wanted =
            [Ample, Ample, Caches, Idle, Connections, Connections, Requests, Requests, Full, Full];
        assert_eq!(found, wanted);
        assert!(Caches < Idle && Requests < Full);
    }

    #[test]
    fn a_share_of_any_limit_is_exact_enough() {
        assert_eq!([caches_to_bytes(1000), ample_bytes(199)], [750, 159]);
        assert!(percent(u64::MAX, 100) > u64::MAX - 100);
    }
}
