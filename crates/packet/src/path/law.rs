//! Laws from which paths are drawn.

use rand::{Rng, RngExt};

/// A law of paths: one kind, or several with the share of each.
#[derive(Clone, Debug, PartialEq)]
pub struct PathLaw {
    /// Each kind and its weight.
    pub(super) kinds: Vec<(u32, OneLaw)>,
    /// The text it was read from.
    pub(super) text: String,
}

impl PathLaw {
    /// Draws the kind of a path.
    pub(super) fn draw(&self, random: &mut impl Rng) -> OneLaw {
        let all: u32 = self.kinds.iter().map(|(weight, _)| weight).sum();
        let mut left = if all > 0 { random.random_range(0..all) } else { 0 };
        for (weight, kind) in &self.kinds {
            if left < *weight {
                return *kind;
            }
            left -= weight;
        }
        OneLaw::default()
    }

    /// Returns the kind of every path; `None` if there are several kinds.
    pub fn only(&self) -> Option<OneLaw> {
        match self.kinds.as_slice() {
            [(_, kind)] => Some(*kind),
            _ => None,
        }
    }

    /// Returns the longest round trip without queues and jitter, nanoseconds.
    pub fn rtt_max_ns(&self) -> u64 {
        self.kinds.iter().map(|(_, kind)| kind.rtt.to_ns).max().unwrap_or(0)
    }
}

impl std::fmt::Display for PathLaw {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}

/// A kind of path. Times are nanoseconds, chances are of 1 for each packet and way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneLaw {
    /// Round trip without jitter and queues.
    pub rtt: Span,
    /// Standard deviation of the round trip.
    pub jitter_ns: u64,
    /// Loss.
    pub loss: Loss,
    /// Bandwidth to the client, bits per second; 0: no limit.
    pub down_bits_per_s: u64,
    /// Bandwidth to the server, bits per second; 0: no limit.
    pub up_bits_per_s: u64,
    /// Longest wait for a link with a limit; packets that would wait longer are dropped.
    pub queue_ns: u64,
    /// Chance of arriving after packets sent later.
    pub reorder: f64,
    /// Chance of arriving twice.
    pub duplicate: f64,
}

/// Default length of a queue: what home routers hold (bufferbloat left out).
pub(super) const QUEUE_NS: u64 = 100_000_000;

impl Default for OneLaw {
    fn default() -> Self {
        Self {
            rtt: Span::default(),
            jitter_ns: 0,
            loss: Loss::default(),
            down_bits_per_s: 0,
            up_bits_per_s: 0,
            queue_ns: QUEUE_NS,
            reorder: 0.0,
            duplicate: 0.0,
        }
    }
}

/// A span of times, each as likely as any other. Nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The shortest.
    pub from_ns: u64,
    /// The longest.
    pub to_ns: u64,
}

impl Span {
    pub(super) fn draw(self, random: &mut impl Rng) -> u64 {
        if self.from_ns < self.to_ns {
            random.random_range(self.from_ns..=self.to_ns)
        } else {
            self.from_ns
        }
    }
}

/// Loss: a channel that loses nothing in its good state and everything in its bad one (Gilbert).
/// With bursts of one packet each loss is independent of the last (Bernoulli).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Share of packets lost.
    pub share: f64,
    /// Mean number of packets lost in a row; below 1 and at 1: independent losses.
    pub burst: f64,
}

impl Loss {
    /// Draws whether the channel is in its bad state before the first packet, as often as it is in
    /// the long run: paths of a few packets lose as many as long ones.
    pub(super) fn starts_bad(self, random: &mut impl Rng) -> bool {
        self.burst > 1.0 && random.random_bool(self.share)
    }

    /// Returns whether the channel, whose state is `is_bad`, loses the next packet.
    pub(super) fn takes(self, is_bad: &mut bool, random: &mut impl Rng) -> bool {
        if self.share <= 0.0 {
            return false;
        }
        if self.burst <= 1.0 {
            return random.random_bool(self.share);
        }
        let recovers = 1.0 / self.burst;
        let fails = (recovers * self.share / (1.0 - self.share)).min(1.0);
        let turns = random.random_bool(if *is_bad { recovers } else { fails });
        *is_bad ^= turns;
        *is_bad
    }
}
