//! Admission by level, as in WeChat's DAGOR (Zhou and others, "Overload Control for Scaling WeChat
//! Microservices", SoCC 2018, section 4.2). The level of a request is its class, and within it the
//! hash of its user. Once a second, or after 2000 requests, the highest level that is admitted is
//! moved: down to admit a twentieth less if requests waited for more than 20 ms on average, else up
//! to admit a hundredth more. The oldest goes first. For comparison.

use super::queue_policy::{Asked, Class, QueuePolicy};

/// Length of a window: time, nanoseconds, and requests.
const WINDOW_NS: u64 = 1_000_000_000;
const WINDOW_REQUESTS: u32 = 2000;

/// Mean wait above which the server is overloaded, nanoseconds.
const OVERLOADED_NS: f64 = 20e6;

/// Changes of the number of requests admitted in a window.
const LESS: f64 = 0.95;
const MORE: f64 = 1.01;

/// Levels of users within a class, and of both classes.
const USERS: usize = 128;
const LEVELS: usize = 2 * USERS;

/// The policy.
#[derive(Clone, Debug)]
pub struct Dagor {
    /// Levels below this one are admitted.
    admitted_below: usize,
    /// Requests of the window, by level, and those admitted.
    by_level: [u32; LEVELS],
    requests: u32,
    admitted: u32,
    began_ns: u64,
    /// Sum of the waits of the window, nanoseconds, and their number.
    waited_ns: f64,
    waits: u32,
}

impl Dagor {
    /// Creates the policy.
    #[must_use]
    pub fn new() -> Self {
        Self {
            admitted_below: LEVELS,
            by_level: [0; LEVELS],
            requests: 0,
            admitted: 0,
            began_ns: 0,
            waited_ns: 0.0,
            waits: 0,
        }
    }

    fn level(asked: Asked) -> usize {
        let class = if asked.class == Class::High { 0 } else { USERS };
        class + asked.user as usize % USERS
    }

    fn end_window(&mut self, now_ns: u64) {
        let is_overloaded = self.waited_ns > OVERLOADED_NS * f64::from(self.waits);
        let factor = if is_overloaded { LESS } else { MORE };
        let wanted = f64::from(self.admitted) * factor;
        let mut sum = 0.0;
        let reaches = |&count: &u32| {
            sum += f64::from(count);
            sum > wanted
        };
        let level = self.by_level.iter().position(reaches).unwrap_or(LEVELS);
        // One level at least is admitted, and a level more where a hundredth is less than one.
        let least = if is_overloaded { 1 } else { (self.admitted_below + 1).min(LEVELS) };
        let most = if is_overloaded { self.admitted_below } else { LEVELS };
        let admitted_below = level.clamp(least.min(most), most);
        *self = Self { admitted_below, began_ns: now_ns, ..Self::new() };
    }
}

impl Default for Dagor {
    fn default() -> Self {
        Self::new()
    }
}

impl QueuePolicy for Dagor {
    fn admits(&mut self, now_ns: u64, asked: Asked, _waiting: usize) -> bool {
        if now_ns >= self.began_ns + WINDOW_NS || self.requests >= WINDOW_REQUESTS {
            self.end_window(now_ns);
        }
        let level = Self::level(asked);
        let admits = level < self.admitted_below;
        self.by_level[level] += 1;
        self.requests += 1;
        self.admitted += u32::from(admits);
        admits
    }

    fn takes_newest(&self, _oldest_waited_ns: u64) -> bool {
        false
    }

    fn drops(&mut self, _now_ns: u64, waited_ns: u64) -> bool {
        self.waited_ns += waited_ns as f64;
        self.waits += 1;
        false
    }

    fn waiting_max(&self, _in_time: usize) -> usize {
        usize::MAX
    }
}
