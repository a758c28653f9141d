//! Paths between a client and a server: delay, jitter, loss, bandwidth with a queue, reordering and
//! duplication. A [`PathLaw`] says what paths there are; a [`Path`] is one of them, and says of
//! each packet when it arrives. It holds no packets and reads no clock.

mod law;
mod presets;
mod text;
mod under_way;

use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};

pub use self::law::{Loss, OneLaw, PathLaw, Span};
pub use self::presets::PRESETS;
pub use self::under_way::UnderWay;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// Arrivals of a packet: none if it is lost, two if it is duplicated. Nanoseconds.
pub type Arrivals = [Option<u64>; 2];

/// Jitter is cut off at this many standard deviations, which leaves out one packet in 16,000.
const JITTER_MAX: f64 = 4.0;

/// Least delay that sets a reordered packet apart.
const REORDER_MIN_NS: u64 = 1_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// The path of one client. Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct Path {
    up: Lane,
    down: Lane,
    loss: Loss,
    reorder: f64,
    duplicate: f64,
}

impl Path {
    /// Draws a path from a law.
    pub fn draw(law: &PathLaw, random: &mut impl Rng) -> Self {
        let one = law.draw(random);
        let rtt_ns = one.rtt.draw(random);
        let mut lane = |bits_per_s: u64| Lane {
            delay_ns: rtt_ns / 2,
            // The variances of the two ways add up.
            jitter_ns: one.jitter_ns as f64 / std::f64::consts::SQRT_2,
            bits_per_s,
            queue_ns: one.queue_ns,
            free_ns: 0,
            last_ns: 0,
            is_bad: one.loss.starts_bad(random),
        };
        Self {
            up: lane(one.up_bits_per_s),
            down: lane(one.down_bits_per_s),
            loss: one.loss,
            reorder: one.reorder,
            duplicate: one.duplicate,
        }
    }

    /// Returns the round trip without jitter and queues, nanoseconds.
    pub fn rtt_ns(&self) -> u64 {
        self.up.delay_ns + self.down.delay_ns
    }

    /// Sends a packet of `bytes` at `now_ns`, which does not run backwards.
    pub fn send(&mut self, way: Way, bytes: usize, now_ns: u64, random: &mut impl Rng) -> Arrivals {
        let lane = match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        };
        // The queue stands before the place where packets are lost.
        let Some(left_ns) = lane.leave(bytes, now_ns) else { return [None; 2] };
        if self.loss.takes(&mut lane.is_bad, random) {
            return [None; 2];
        }
        let is_late = self.reorder > 0.0 && random.random_bool(self.reorder);
        let arrival_ns = lane.arrive(left_ns, is_late, random);
        let is_doubled = self.duplicate > 0.0 && random.random_bool(self.duplicate);
        [Some(arrival_ns), is_doubled.then_some(arrival_ns)]
    }
}

/// One way of a path.
#[derive(Clone, Debug)]
struct Lane {
    delay_ns: u64,
    /// Standard deviation of the delay.
    jitter_ns: f64,
    /// 0: no limit.
    bits_per_s: u64,
    /// Longest wait in the queue before the link; packets that would wait longer are dropped.
    queue_ns: u64,
    /// Time at which the link has sent everything in the queue.
    free_ns: u64,
    /// Arrival of the last packet in order.
    last_ns: u64,
    /// Gilbert-Elliott: the channel is in its bad state.
    is_bad: bool,
}

impl Lane {
    /// Returns the time at which the link has sent the packet; `None` if the queue is full.
    fn leave(&mut self, bytes: usize, now_ns: u64) -> Option<u64> {
        if self.bits_per_s == 0 {
            return Some(now_ns);
        }
        let start_ns = self.free_ns.max(now_ns);
        if start_ns - now_ns > self.queue_ns {
            return None;
        }
        let took_ns = bytes as u64 * 8 * SECOND_NS / self.bits_per_s;
        self.free_ns = start_ns + took_ns;
        Some(self.free_ns)
    }

    fn arrive(&mut self, left_ns: u64, is_late: bool, random: &mut impl Rng) -> u64 {
        let drawn: f64 = if self.jitter_ns > 0.0 { StandardNormal.sample(random) } else { 0.0 };
        let jitter_ns = drawn.clamp(-JITTER_MAX, JITTER_MAX) * self.jitter_ns;
        let delay_ns = (self.delay_ns as f64 + jitter_ns).max(0.0) as u64;
        if is_late {
            // Those behind it are not held up.
            return left_ns + delay_ns + (self.delay_ns / 2).max(REORDER_MIN_NS);
        }
        self.last_ns = self.last_ns.max(left_ns + delay_ns);
        self.last_ns
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const MS: u64 = 1_000_000;

    fn path(text: &str) -> (Path, Xoshiro256PlusPlus) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let law: PathLaw = text.parse().unwrap();
        (Path::draw(&law, &mut random), random)
    }

    /// Round trips of packets an interval apart, and the share that is lost.
    fn measure(text: &str, packets: usize, apart_ns: u64) -> (Vec<f64>, f64) {
        let (mut path, mut random) = path(text);
        let mut trips_ms = Vec::new();
        for number in 0..packets as u64 {
            let sent_ns = number * apart_ns;
            let [up, _] = path.send(Way::Up, 64, sent_ns, &mut random);
            let Some(up_ns) = up else { continue };
            if let [Some(down_ns), _] = path.send(Way::Down, 64, up_ns, &mut random) {
                trips_ms.push((down_ns - sent_ns) as f64 / MS as f64);
            }
        }
        let lost = 1.0 - trips_ms.len() as f64 / packets as f64;
        (trips_ms, lost)
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn the_round_trip_and_its_deviation_are_those_asked_for() {
        let (trips_ms, lost) = measure("rtt=50ms,jitter=5ms", 100_000, 200 * MS);
        let mean_ms = mean(&trips_ms);
        let squares: Vec<f64> = trips_ms.iter().map(|trip| (trip - mean_ms).powi(2)).collect();
        let deviation_ms = mean(&squares).sqrt();
        assert!((mean_ms - 50.0).abs() < 0.2, "{mean_ms}");
        assert!((deviation_ms - 5.0).abs() < 0.1, "{deviation_ms}");
        assert!(lost.abs() < 1e-9);
    }

    #[test]
    fn loss_is_as_frequent_and_as_bursty_as_asked_for() {
        for (text, burst) in [("rtt=1ms,loss=2%", 1.02), ("rtt=1ms,loss=2%,burst=5", 5.0)] {
            let (mut path, mut random) = path(text);
            let lost: Vec<bool> = (0..500_000)
                .map(|at| path.send(Way::Up, 64, at * MS, &mut random)[0].is_none())
                .collect();
            let all = lost.iter().filter(|is_lost| **is_lost).count() as f64;
            let share = all / lost.len() as f64;
            let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
            assert!((share - 0.02).abs() < 0.001, "{text}: {share}");
            assert!((all / bursts / burst - 1.0).abs() < 0.03, "{text}: {}", all / bursts);
        }
    }

    #[test]
    fn the_first_packet_of_a_path_is_lost_as_often_as_the_others() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let law: PathLaw = "rtt=1ms,loss=2%,burst=5".parse().unwrap();
        let lost = (0..200_000)
            .filter(|_| {
                let mut path = Path::draw(&law, &mut random);
                path.send(Way::Up, 64, 0, &mut random)[0].is_none()
            })
            .count();
        let share = lost as f64 / 200_000.0;
        assert!((share - 0.02).abs() < 0.001, "{share}");
    }

    #[test]
    fn bandwidth_is_what_was_asked_for_and_its_queue_overflows() {
        let (mut path, mut random) = path("rtt=10ms,down=8m,queue=50ms");
        let mut arrived = Vec::new();
        // Twice what the link can do, for two seconds.
        for number in 0..2000_u64 {
            let sent_ns = number * MS / 2 * 2;
            for _ in 0..2 {
                if let [Some(at_ns), _] = path.send(Way::Down, 1000, sent_ns, &mut random) {
                    arrived.push((sent_ns, at_ns));
                }
            }
        }
        let span_ns = arrived.last().unwrap().1 - arrived[0].1;
        let bits_per_s = (arrived.len() - 1) as f64 * 8000.0 / (span_ns as f64 / 1e9);
        assert!((bits_per_s / 8e6 - 1.0).abs() < 0.001, "{bits_per_s}");
        let longest_ns = arrived.iter().map(|(sent_ns, at_ns)| at_ns - sent_ns).max().unwrap();
        assert!((55 * MS..=57 * MS).contains(&longest_ns), "{longest_ns}");
        // The other way is free.
        assert_eq!(path.send(Way::Up, 1000, 9_000 * MS, &mut random), [Some(9_005 * MS), None]);
    }

    #[test]
    fn packets_stay_in_order_unless_asked_otherwise() {
        for (text, reordered) in [("rtt=50ms,jitter=20ms", 0.0), ("rtt=50ms,reorder=3%", 0.03)] {
            let (mut path, mut random) = path(text);
            let at: Vec<u64> = (0..50_000)
                .filter_map(|number| path.send(Way::Up, 64, number * MS, &mut random)[0])
                .collect();
            let late = at.windows(2).filter(|pair| pair[1] < pair[0]).count() as f64;
            assert!((late / 50_000.0 - reordered).abs() < 0.003, "{text}: {late}");
        }
    }

    #[test]
    fn packets_are_doubled_as_asked_for() {
        let (mut path, mut random) = path("rtt=1ms,duplicate=10%");
        let doubled = (0..10_000)
            .filter(|number| path.send(Way::Up, 64, number * MS, &mut random)[1].is_some())
            .count();
        assert!((900..1100).contains(&doubled), "{doubled}");
    }

    #[test]
    fn a_seed_draws_the_same_paths() {
        let draw = || measure("mix", 1000, MS).0;
        assert_eq!(draw(), draw());
    }
}
