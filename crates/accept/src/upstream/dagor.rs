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
    /// Sum of the waits of the window, nanoseconds, and the number of all requests sent.
    waited_ns: f64,
    sent: u32,
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
            sent: 0,
        }
    }

    fn level(asked: Asked) -> usize {
        let class = if asked.class == Class::High { 0 } else { USERS };
        class + asked.user as usize % USERS
    }

    fn end_window(&mut self, now_ns: u64) {
        let is_overloaded = self.waited_ns > OVERLOADED_NS * f64::from(self.sent);
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

    fn note_sent_at_once(&mut self) {
        self.sent += 1;
    }

    fn takes_newest(&self, _oldest_waited_ns: u64) -> bool {
        false
    }

    fn drops(&mut self, _now_ns: u64, waited_ns: u64) -> bool {
        self.waited_ns += waited_ns as f64;
        self.sent += 1;
        false
    }

    fn waiting_max(&self, _in_time: usize) -> usize {
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of a thousand users that a policy admits after a window in which it admitted all, of
    /// whom so many were sent at once, and the others after 30 ms.
    fn admitted_after(at_once: u32) -> usize {
        let mut dagor = Dagor::new();
        let admits = |dagor: &mut Dagor, now_ns, user| {
            dagor.admits(now_ns, Asked { user, ..Asked::default() }, 0)
        };
        for user in 0..1000 {
            assert!(admits(&mut dagor, 0, user));
            if user < at_once {
                dagor.note_sent_at_once();
            } else {
                assert!(!dagor.drops(0, 30_000_000));
            }
        }
        (0..1000).filter(|&user| admits(&mut dagor, WINDOW_NS, user)).count()
    }

    #[test]
    fn the_mean_wait_is_that_of_all_requests_those_sent_at_once_among_them() {
        assert_eq!(admitted_after(900), 1000);
        let fewer = admitted_after(100);
        assert!((900..1000).contains(&fewer), "{fewer}");
    }
}
