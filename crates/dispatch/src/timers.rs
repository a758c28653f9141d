//! Deadlines of slots: a timer wheel with one lazy entry per slot. It has no clock: `now` is an
//! argument.
//!
//! A connection's deadline moves at every request; moving an entry each time would cost more than
//! it is worth. So an entry only guarantees that its slot is checked *no later than* its tick: when
//! the tick comes, the slot's current deadline is queried, and the entry moves there, or is
//! dropped.

const TICK_NS: u64 = 10_000_000;
const TICKS: u64 = 4096;
const WORDS: usize = (TICKS / 64) as usize;
const NEVER: u64 = u64::MAX;

/// A wheel of 4096 ticks of 10 ms. An entry for a more distant deadline is checked on the way.
#[derive(Debug)]
pub struct TimerWheel {
    wheel: Vec<Vec<u32>>,
    /// A bit per bucket of the wheel, set while the bucket is not empty.
    occupied: [u64; WORDS],
    /// Tick of each slot's entry, so that at most one entry per slot counts.
    armed: Vec<u64>,
    /// The first tick not yet processed.
    next: u64,
    /// Slots found alive while ticks are processed, with their deadlines.
    alive: Vec<(u32, u64)>,
    /// Emptied buckets, reused for the next to be filled, so that memory use follows the number of
    /// buckets filled at once, and not the number ever filled.
    spare: Vec<Vec<u32>>,
}

impl TimerWheel {
    /// Creates an empty wheel that starts at `now_ns`.
    pub fn new(now_ns: u64) -> Self {
        Self {
            wheel: vec![Vec::new(); TICKS as usize],
            armed: Vec::new(),
            occupied: [0; WORDS],
            next: now_ns / TICK_NS,
            alive: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Ensures that `slot` is checked no later than one tick after `deadline_ns`.
    pub fn arm(&mut self, slot: u32, deadline_ns: u64) {
        let tick = deadline_ns.div_ceil(TICK_NS).clamp(self.next, self.next + TICKS - 1);
        let index = slot as usize;
        if index >= self.armed.len() {
            self.armed.resize(index + 1, NEVER);
        }
        if self.armed[index] > tick {
            self.armed[index] = tick;
            let bucket = (tick % TICKS) as usize;
            if self.wheel[bucket].capacity() == 0 {
                self.wheel[bucket] = self.spare.pop().unwrap_or_default();
            }
            self.wheel[bucket].push(slot);
            self.occupied[bucket / 64] |= 1 << (bucket % 64);
        }
    }

    /// Time of the next check, nanoseconds on the same clock; `None` while no entry is armed.
    pub fn next_ns(&self) -> Option<u64> {
        let start = (self.next % TICKS) as usize;
        // The word of `start` comes twice: first its high bits, a lap later its low ones.
        (0..=WORDS).find_map(|step| {
            let word = (start / 64 + step) % WORDS;
            let mask = match step {
                0 => u64::MAX << (start % 64),
                WORDS => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let bits = self.occupied[word] & mask;
            let bucket = word as u64 * 64 + u64::from(bits.trailing_zeros());
            let ahead = (bucket + TICKS - start as u64) % TICKS;
            (bits != 0).then_some((self.next + ahead) * TICK_NS)
        })
    }

    /// Appends to `expired` the slots whose deadline has passed. `deadline_of` returns a slot's
    /// current deadline, or `None` when it no longer has one.
    pub fn expire(
        &mut self,
        now_ns: u64,
        mut deadline_of: impl FnMut(u32) -> Option<u64>,
        expired: &mut Vec<u32>,
    ) {
        let now_tick = now_ns / TICK_NS;
        // After a long sleep every bucket is processed once, not once per lap.
        let last = now_tick.min(self.next + TICKS - 1);
        for tick in self.next..=last {
            let index = (tick % TICKS) as usize;
            if self.occupied[index / 64] >> (index % 64) & 1 == 0 {
                continue;
            }
            self.occupied[index / 64] &= !(1 << (index % 64));
            let mut bucket = std::mem::take(&mut self.wheel[index]);
            for slot in bucket.drain(..) {
                if self.armed[slot as usize] != tick {
                    continue; // superseded by an earlier entry
                }
                self.armed[slot as usize] = NEVER;
                match deadline_of(slot) {
                    Some(deadline) if deadline <= now_ns => expired.push(slot),
                    Some(deadline) => self.alive.push((slot, deadline)),
                    None => {}
                }
            }
            // Nothing was armed into this bucket meanwhile.
            self.spare.push(bucket);
        }
        // Only now that the wheel stands at the present: an entry armed behind it is never seen.
        self.next = self.next.max(now_tick + 1);
        let mut alive = std::mem::take(&mut self.alive);
        alive.drain(..).for_each(|(slot, deadline)| self.arm(slot, deadline));
        self.alive = alive;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_expires_within_a_tick_and_none_early() {
        let mut timers = TimerWheel::new(0);
        let mut deadlines: Vec<Option<u64>> = vec![None; 200];
        let mut random = 88_172_645_463_325_252_u64;
        let mut now = 0;
        let mut expired = Vec::new();
        for _ in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let slot = (random % 200) as u32;
            let far = if random & 0x100 == 0 { 200_000_000_000 } else { 300_000_000 };
            deadlines[slot as usize] = Some(now + (random >> 16) % far);
            timers.arm(slot, deadlines[slot as usize].unwrap());
            now += (random >> 9) % 20_000_000;
            timers.expire(now, |slot| deadlines[slot as usize], &mut expired);
            for slot in expired.drain(..) {
                assert!(deadlines[slot as usize].take().unwrap() <= now);
            }
            let overdue = deadlines.iter().flatten().filter(|&&at| at + TICK_NS < now).count();
            assert_eq!(overdue, 0);
            if let Some(at) = timers.next_ns() {
                assert!(at + TICK_NS > now);
            }
        }
    }

    #[test]
    fn a_deadline_laps_away_is_carried_along() {
        let mut timers = TimerWheel::new(0);
        let deadline = 10 * TICKS * TICK_NS + 7;
        timers.arm(3, deadline);
        let mut expired = Vec::new();
        let mut looks = 0;
        while expired.is_empty() {
            let now = timers.next_ns().unwrap();
            timers.expire(now, |_| Some(deadline), &mut expired);
            looks += 1;
            assert_eq!(expired.is_empty(), now < deadline);
        }
        assert!((10..13).contains(&looks));
        assert_eq!(timers.next_ns(), None);
    }

    #[test]
    fn a_deadline_armed_before_a_long_sleep_outlives_it() {
        let mut timers = TimerWheel::new(0);
        let (deadline, mut expired) = (100_000_000_000, Vec::new());
        timers.arm(3, deadline);
        timers.expire(90_000_000_000, |_| Some(deadline), &mut expired);
        assert!(expired.is_empty());
        assert_eq!(timers.next_ns(), Some(deadline));
        timers.expire(deadline, |_| Some(deadline), &mut expired);
        assert_eq!(expired, [3]);
    }

    #[test]
    fn a_slot_is_armed_after_a_long_quiet() {
        let (mut timers, mut expired) = (TimerWheel::new(0), Vec::new());
        let (quiet, deadline) = (88_000_000_000, 91_000_000_000);
        timers.arm(0, quiet + 5);
        timers.expire(quiet, |_| Some(deadline), &mut expired);
        timers.arm(0, deadline);
        timers.expire(deadline, |_| Some(deadline), &mut expired);
        assert_eq!(expired, [0]);
    }

    #[test]
    fn memory_goes_by_the_buckets_that_are_full_at_once() {
        let (mut timers, mut expired) = (TimerWheel::new(0), Vec::new());
        for tick in 0..2 * TICKS {
            let now = tick * TICK_NS;
            (0..100).for_each(|slot| timers.arm(slot, now + TICK_NS));
            timers.expire(now, |_| Some(now + TICK_NS), &mut expired);
            timers.expire(now + TICK_NS, |_| Some(now), &mut expired);
        }
        let kept = timers.wheel.iter().filter(|bucket| bucket.capacity() > 0).count();
        assert!(kept + timers.spare.len() <= 4, "{kept} {}", timers.spare.len());
        assert_eq!(expired.len() as u64, 200 * TICKS);
    }

    #[test]
    fn a_long_sleep_expires_everything_at_once_and_leaves_nothing() {
        let mut timers = TimerWheel::new(0);
        (0..100).for_each(|slot| timers.arm(slot, u64::from(slot) * 1_000_000_000));
        let mut expired = Vec::new();
        let now = 10_000_000_000_000;
        timers.expire(now, |slot| Some(u64::from(slot) * 1_000_000_000), &mut expired);
        expired.sort_unstable();
        assert_eq!(expired, (0..100).collect::<Vec<u32>>());
        assert_eq!(timers.next_ns(), None);
    }
}
