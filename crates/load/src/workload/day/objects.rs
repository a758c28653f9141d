//! Which object a request names, and how long it is.
//!
//! - Popularity is Zipf-like with an exponent of 0.77, within the 0.64 to 0.83 that traces of
//!   proxies have (Breslau et al., *Web caching and Zipf-like distributions*, INFOCOM 1999).
//! - Beyond popularity, some requests repeat a recent one: the one k requests ago with a
//!   probability proportional to 1/k (Jin and Bestavros, *Sources and characteristics of Web
//!   temporal locality*, MASCOTS 2000).
//! - Lengths are log-normal with a Pareto tail (Barford and Crovella, *Generating representative
//!   Web workloads*, SIGMETRICS 1998), with a median of 3 KiB and a mean of about 12 KiB, and do
//!   not depend on popularity (Breslau et al.).

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::workload::draw::{cumulative, normal, pick};

const ZIPF_EXPONENT: f64 = 0.77;

/// Share of the requests that repeat one of the last [`RECENT`].
const RECENT_SHARE: f64 = 0.1;

/// Number of requests that are recent.
const RECENT: usize = 1000;

/// Median of the body of the lengths, bytes, and deviation of their logarithm.
const BODY: (f64, f64) = (3072.0, 1.3);

/// Share of the objects whose length is in the tail.
const TAIL_SHARE: f64 = 0.05;

/// Shortest length of the tail and its exponent, and the longest length, bytes.
const TAIL: (f64, f64, f64) = (30_720.0, 1.2, 1_048_576.0);

/// Seed of the lengths.
const LENGTH_SEED: u64 = 0x6c65_6e67_7468;

/// Draws objects, numbered from 0 by their popularity.
pub(super) struct Picker {
    popularity: Vec<f64>,
    ages: Vec<f64>,
    /// The last requests, as a ring.
    recent: Vec<u32>,
    next: usize,
}

impl Picker {
    pub(super) fn new(objects: u32) -> Self {
        let shares = |count: u32, exponent: f64| {
            let weights = (1..=count).map(|rank| f64::from(rank).powf(-exponent));
            let total: f64 = weights.clone().sum();
            cumulative(&weights.map(|weight| weight / total).collect::<Vec<_>>())
        };
        Self {
            popularity: shares(objects, ZIPF_EXPONENT),
            ages: shares(RECENT as u32, 1.0),
            recent: Vec::with_capacity(RECENT),
            next: 0,
        }
    }

    /// Returns the object of the next request.
    pub(super) fn pick(&mut self, chance: &mut Xoshiro256PlusPlus) -> u32 {
        let repeats = self.recent.len() == RECENT && chance.random::<f64>() < RECENT_SHARE;
        let object = if repeats {
            let age = 1 + pick(&self.ages, chance.random()) as usize;
            self.recent[(self.next + RECENT - age) % RECENT]
        } else {
            pick(&self.popularity, chance.random())
        };
        if self.recent.len() < RECENT {
            self.recent.push(object);
        } else {
            self.recent[self.next] = object;
        }
        self.next = (self.next + 1) % RECENT;
        object
    }
}

/// Returns the length of an object, bytes.
pub(super) fn bytes_of(object: u32) -> u64 {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(LENGTH_SEED ^ u64::from(object));
    let (shortest, exponent, longest) = TAIL;
    let bytes = if chance.random::<f64>() < TAIL_SHARE {
        shortest * (1.0 - chance.random::<f64>()).powf(-1.0 / exponent)
    } else {
        let (median, sigma) = BODY;
        median * (sigma * normal(&mut chance)).exp()
    };
    bytes.clamp(1.0, longest) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_the_median_and_the_mean_of_the_laws() {
        let mut bytes: Vec<u64> = (0..20_000).map(bytes_of).collect();
        bytes.sort_unstable();
        let mean = bytes.iter().sum::<u64>() as f64 / bytes.len() as f64;
        assert!((2900..3700).contains(&bytes[bytes.len() / 2]), "{}", bytes[bytes.len() / 2]);
        assert!((9_000.0..14_000.0).contains(&mean), "{mean}");
        assert!(bytes[0] >= 1 && bytes[bytes.len() - 1] == 1_048_576);
    }

    #[test]
    fn popularity_falls_with_the_rank_and_recent_requests_come_again() {
        let mut picker = Picker::new(5000);
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
        let seen: Vec<u32> = (0..200_000).map(|_| picker.pick(&mut chance)).collect();
        let count = |object: u32| seen.iter().filter(|one| **one == object).count() as f64;
        let measured = (count(0) / count(99)).ln() / 100_f64.ln();
        assert!((0.65..0.9).contains(&measured), "an exponent of {measured}");
        let again = seen.windows(2).filter(|pair| pair[0] == pair[1]).count() as f64;
        let alone = seen.iter().step_by(7).zip(seen.iter().skip(100_000).step_by(7));
        let alone = alone.filter(|(one, other)| one == other).count() as f64 * 14.0;
        assert!(again > 2.0 * alone, "{again} repeats at once, {alone} by popularity");
    }
}
