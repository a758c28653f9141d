//! Number of new connections that a listener takes while all it serves waits for one upstream that
//! has more than it can do: the last rung, below the refusals with a 503.
//!
//! A refusal costs the proxy a connection and a reply, and where the upstream is on the same
//! machine, the upstream pays for it. So once refusals are the greater part of what the proxy does,
//! SYNs are dropped before anything is spent on them. Requests wait for the upstream all the while:
//! for each that leaves it, a little more than one connection comes in, and while too few wait, all
//! do. So no new client's SYN is dropped while a place is free, as far as this is called when one
//! becomes so.
//!
//! Many places become free at once where service times are alike, or when more requests may be in
//! flight than before. As many must wait by then as there will be places; how many that is shows
//! when the queue has run dry.
//!
//! A client whose SYN was dropped sends it again after a second (RFC 6298 section 2). It comes
//! behind those that send their first, as the oldest of a queue that is late does: otherwise many
//! of those that are served would be clients of a second ago, and as many new ones would be put
//! off for a second in their turn. So it waits, too, for the few milliseconds in which new clients
//! take the places that have just become free.
//!
//! This is for a listener of which every request needs the upstream. Where there is also something
//! else to be had, such as a file, nobody knows before the request what a connection is for.

use super::admission::Load;

/// Minimum time over which requests and refusals are compared, nanoseconds.
const WINDOW_NS: u64 = 1_000_000_000;

/// Number of refusals in such a time below which nobody notices what they cost.
const REFUSED_MIN: u64 = 100;

/// Ratio of refusals to requests that have left the upstream, from which SYNs are dropped: two and
/// a half times as much comes as can be served. Below 1, with the SYNs dropped among the refusals,
/// none is dropped any more.
const BEGIN_RATIO: f64 = 1.5;

/// Number of connections that come in for each request that leaves the upstream. One would leave
/// the queue to run dry when a connection brings no request.
const LET_IN: f64 = 1.25;

/// Minimum number of connections that may come in at once, if none has for a while. It is as many
/// as may still wait, if that is more.
const BURST: f64 = 8.0;

/// Divisor of the number that may wait: so many are to wait at least. Where the newest goes first,
/// those that come on top of what is served wait for the delay target, and are refused: a quarter
/// more than is served keeps the queue a quarter full.
const TO_WAIT_PART: usize = 8;

/// Divisor of the number that may wait: so many are to wait less than that at most. If all were,
/// each request that ends would let in whoever comes until another one waits.
const LEFT_PART: usize = 4;

/// Divisor of the number that is to wait, by which it becomes less in a window.
const DECAY_PART: usize = 8;

/// Time for which a place has been free before retransmitted SYNs pass like any other, nanoseconds.
/// In a flood, new clients come to take it sooner, if they are not far away.
const FREE_NS: u64 = 25_000_000;

/// Time for which new clients have left a burst unused, or nobody waited, before a retransmitted
/// SYN passes, nanoseconds.
const UNUSED_NS: u64 = 100_000_000;

/// Counts of the filter in front of a listener, since any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilteredSyns {
    /// SYNs that passed.
    pub passed: u64,
    /// SYNs dropped on account of the upstream, at all listeners of the loop. Those that are known
    /// for retransmitted ones are not among them: they come from the same clients again.
    pub dropped: u64,
}

/// Numbers of SYNs that may pass in total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynLimits {
    /// By which a client's first passes; `u64::MAX`: all do.
    pub first: u64,
    /// By which a retransmitted one does.
    pub retransmitted: u64,
}

/// Limit of one listener of one loop. Times are nanoseconds of one monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Shedding {
    /// Number of loops, and of the listeners of all of them: the connections are divided evenly.
    loops: u64,
    listeners: u64,
    is_active: bool,
    /// Start of the present comparison, and the counts then.
    since_ns: u64,
    load_then: Load,
    dropped_then: u64,
    /// Requests that had left the upstream at the last look.
    ended: u64,
    /// SYNs that may pass in total; that of the last look while all may.
    limit: f64,
    /// Number of requests that are to wait: while fewer do, all first SYNs pass.
    to_wait: usize,
    /// That number when one waited last.
    to_wait_dry: usize,
    /// Time since which a place has been free, if one is.
    free_since_ns: Option<u64>,
    /// Time at which requests last waited and new clients had used up the burst.
    used_up_ns: u64,
}

impl Shedding {
    /// Creates the limit of one of so many listeners of each loop.
    #[must_use]
    pub fn new(loops: usize, listeners_each: usize) -> Self {
        let loops = loops.max(1) as u64;
        Self {
            loops,
            listeners: loops * listeners_each.max(1) as u64,
            is_active: false,
            since_ns: 0,
            load_then: Load::default(),
            dropped_then: 0,
            ended: 0,
            limit: 0.0,
            to_wait: 0,
            to_wait_dry: 0,
            free_since_ns: None,
            used_up_ns: 0,
        }
    }

    /// Returns whether SYNs may be dropped, now or soon.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// Returns whether [`Shedding::limits`] must be called now.
    #[must_use]
    pub fn wants_load(&self, now_ns: u64) -> bool {
        self.is_active || self.compares(now_ns)
    }

    fn compares(&self, now_ns: u64) -> bool {
        now_ns >= self.since_ns.saturating_add(WINDOW_NS)
    }

    /// Returns how many SYNs may pass from now on; `None`: all may. To be called whenever a request
    /// has come to the upstream or left it.
    pub fn limits(&mut self, now_ns: u64, load: &Load, syns: FilteredSyns) -> Option<SynLimits> {
        self.judge(now_ns, load, syns);
        let ended = load.ended.saturating_sub(std::mem::replace(&mut self.ended, load.ended));
        let passed = syns.passed as f64;
        if !self.is_active {
            (self.limit, self.free_since_ns) = (passed, None);
            return None;
        }
        self.adapt(load);
        if load.waiting > 0 && self.limit < passed + BURST {
            self.used_up_ns = now_ns;
        }
        self.free_since_ns = (load.free_places > 0).then(|| self.free_since_ns.unwrap_or(now_ns));
        if self.free_since_ns.is_some_and(|since_ns| now_ns >= since_ns + FREE_NS) {
            self.limit = passed;
            return None;
        }
        let each = |count: f64| count / self.listeners as f64;
        let room = load.waiting_allowed.saturating_sub(load.waiting);
        let burst = each(room as f64).max(BURST);
        self.limit = (self.limit + each(LET_IN * ended as f64)).clamp(passed, passed + burst);
        let is_unused = now_ns >= self.used_up_ns.saturating_add(UNUSED_NS);
        Some(SynLimits {
            first: if load.waiting >= self.to_wait { self.limit as u64 } else { u64::MAX },
            retransmitted: if is_unused { syns.passed + 1 } else { 0 },
        })
    }

    /// Adapts the number of requests that are to wait: more when the queue has run dry, by the
    /// places left free, and fewer by and by.
    fn adapt(&mut self, load: &Load) {
        if load.waiting > 0 {
            self.to_wait_dry = self.to_wait;
        } else {
            self.to_wait = self.to_wait.max(self.to_wait_dry + load.free_places);
        }
        let allowed = load.waiting_allowed;
        let least = allowed.div_ceil(TO_WAIT_PART).max(1);
        let most = allowed - allowed.div_ceil(LEFT_PART);
        self.to_wait = self.to_wait.clamp(least, most.max(least));
    }

    /// Compares what is refused with what the upstream does.
    fn judge(&mut self, now_ns: u64, load: &Load, syns: FilteredSyns) {
        if !self.compares(now_ns) {
            return;
        }
        let ended = load.ended.saturating_sub(self.load_then.ended) as f64;
        let refused = load.refused.saturating_sub(self.load_then.refused);
        let dropped = syns.dropped.saturating_sub(self.dropped_then) * self.loops;
        self.is_active = if self.is_active {
            (refused + dropped) as f64 > ended
        } else {
            // Some policies for the queue bound the wait, and not the length.
            let is_bounded = load.waiting_allowed < usize::MAX;
            is_bounded && refused >= REFUSED_MIN && refused as f64 > BEGIN_RATIO * ended
        };
        self.to_wait -= self.to_wait.div_ceil(DECAY_PART);
        (self.since_ns, self.load_then, self.dropped_then) = (now_ns, *load, syns.dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn load(ended: u64, refused: u64, waiting: usize) -> Load {
        Load { ended, refused, waiting, waiting_allowed: 20, free_places: 0 }
    }

    /// Returns the limits of first SYNs and of retransmitted ones.
    fn limits(shedding: &mut Shedding, at_ms: u64, load: Load, syns: FilteredSyns) -> Limits {
        let limits = shedding.limits(at_ms * MS, &load, syns);
        limits.map(|limits| (limits.first, limits.retransmitted))
    }

    type Limits = Option<(u64, u64)>;

    /// Returns one that is active, at a second, with a hundred requests and a thousand refusals,
    /// whose burst new clients have used up.
    fn active() -> Shedding {
        let mut shedding = Shedding::new(1, 1);
        let began = limits(&mut shedding, 1000, load(100, 1000, 20), FilteredSyns::default());
        assert_eq!(began, Some((8, 0)));
        shedding
    }

    #[test]
    fn it_begins_when_most_is_refused() {
        let judged = |ended, refused| {
            let mut shedding = Shedding::new(1, 1);
            shedding.limits(1000 * MS, &load(ended, refused, 20), FilteredSyns::default());
            shedding.is_active()
        };
        assert!(!judged(1000, 1400) && judged(1000, 1600));
        assert!(!judged(10, 99) && judged(10, 100));
        let mut shedding = Shedding::new(1, 1);
        let unbounded = Load { waiting_allowed: usize::MAX, ..load(100, 1000, 20) };
        assert_eq!(limits(&mut shedding, 1000, unbounded, FilteredSyns::default()), None);
        assert!(!shedding.is_active());
    }

    #[test]
    fn five_connections_come_in_for_four_requests() {
        let mut shedding = active();
        let mut syns = FilteredSyns { passed: 8, dropped: 100 };
        let mut first = |at_ms, ended, syns| {
            limits(&mut shedding, at_ms, load(ended, 1000, 20), syns).map(|(first, _)| first)
        };
        assert_eq!(first(1001, 104, syns), Some(13));
        syns.passed = 13;
        assert_eq!(first(1002, 108, syns), Some(18));
        // None comes for a while: no more than a burst is saved up.
        assert_eq!(first(1100, 508, syns), Some(21));
    }

    #[test]
    fn as_many_come_in_at_once_as_may_still_wait() {
        let mut shedding = active();
        let syns = FilteredSyns { passed: 8, dropped: 100 };
        assert_eq!(limits(&mut shedding, 1001, load(180, 1000, 3), syns), Some((8 + 17, 0)));
        assert_eq!(limits(&mut shedding, 1002, load(180, 1000, 10), syns), Some((8 + 10, 0)));
    }

    #[test]
    fn retransmitted_ones_pass_once_new_ones_have_left_a_burst_unused() {
        let mut shedding = active();
        let mut syns = FilteredSyns { passed: 8, dropped: 100 };
        let mut retransmitted = |at_ms, ended, syns| {
            limits(&mut shedding, at_ms, load(ended, 1000, 20), syns).map(|(_, limit)| limit)
        };
        assert_eq!(retransmitted(1001, 500, syns), Some(0));
        assert_eq!(retransmitted(1100, 500, syns), Some(0));
        assert_eq!(retransmitted(1101, 500, syns), Some(syns.passed + 1));
        syns.passed += 1;
        assert_eq!(retransmitted(1102, 500, syns), Some(0));
    }

    #[test]
    fn all_pass_once_a_place_has_been_free_for_a_while() {
        let mut shedding = active();
        let syns = FilteredSyns { passed: 8, dropped: 100 };
        let mut at = |at_ms, free_places| {
            let load = Load { free_places, ..load(100, 1000, 0) };
            limits(&mut shedding, at_ms, load, syns)
        };
        // Counted from when it was seen, however long ago the last look was.
        assert_eq!((at(1100, 1), at(1124, 2)), (Some((u64::MAX, 9)), Some((u64::MAX, 9))));
        assert_eq!(at(1125, 1), None);
        assert_eq!((at(1126, 0), at(1130, 1)), (Some((u64::MAX, 9)), Some((u64::MAX, 9))));
        assert_eq!((at(1154, 1), at(1155, 1)), (Some((u64::MAX, 9)), None));
    }

    #[test]
    fn all_first_ones_pass_while_few_wait() {
        let mut shedding = active();
        let mut first = |waiting, passed| {
            let syns = FilteredSyns { passed, dropped: 100 };
            limits(&mut shedding, 1001, load(104, 1000, waiting), syns).map(|(first, _)| first)
        };
        assert_eq!(first(2, 8), Some(u64::MAX));
        assert_eq!(first(3, 40), Some(40));
    }

    #[test]
    fn more_are_to_wait_by_the_places_that_were_left_free() {
        let mut shedding = active();
        let mut first = |waiting, free_places| {
            let load = Load { free_places, ..load(100, 1000, waiting) };
            limits(&mut shedding, 1001, load, FilteredSyns::default()).map(|(first, _)| first)
        };
        assert_eq!(first(3, 0), Some(8));
        // They were five at most; it is never more than three quarters of those that may wait.
        for free_places in [0, 2, 5, 1] {
            assert_eq!(first(0, free_places), Some(u64::MAX));
        }
        assert_eq!((first(7, 0), first(8, 0)), (Some(u64::MAX), Some(8)));
        first(0, 40);
        assert_eq!((first(14, 0), first(15, 0)), (Some(u64::MAX), Some(8)));
    }

    #[test]
    fn fewer_are_to_wait_by_and_by() {
        let mut shedding = active();
        let mut first = |at_ms, waiting, free_places| {
            let load = Load { free_places, ..load(100, at_ms, waiting) };
            limits(&mut shedding, at_ms, load, FilteredSyns::default()).map(|(first, _)| first)
        };
        assert_eq!((first(1001, 0, 40), first(1002, 14, 0)), (Some(u64::MAX), Some(u64::MAX)));
        // Of the 20 that may wait, an eighth less each second, down to an eighth of them.
        for (second, to_wait) in (2..).zip([13, 11, 9, 7, 6, 5, 4, 3, 3]) {
            let at_ms = 1000 * second;
            assert_eq!(first(at_ms, to_wait, 0), Some(8), "{second}");
            assert_eq!(first(at_ms + 1, to_wait - 1, 0), Some(u64::MAX), "{second}");
        }
    }

    #[test]
    fn it_ends_when_less_than_twice_as_much_comes_as_can_be_served() {
        for (dropped, lasts) in [(150, true), (90, false)] {
            let mut shedding = active();
            let syns = FilteredSyns { passed: 200, dropped };
            shedding.limits(2000 * MS, &load(200, 1010, 20), syns);
            assert_eq!(shedding.is_active(), lasts, "{dropped}");
        }
    }

    #[test]
    fn loops_divide_the_connections() {
        let mut shedding = Shedding::new(2, 2);
        shedding.limits(1000 * MS, &load(100, 1000, 20), FilteredSyns::default());
        let syns = FilteredSyns { passed: 8, dropped: 0 };
        assert_eq!(limits(&mut shedding, 1001, load(116, 1000, 20), syns), Some((13, 0)));
    }
}
