//! Random numbers. A number drawn for a request depends on the seed and the request alone, so that
//! two policies meet the same clients, whatever either has done before. All numbers are uniform.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

/// The purpose of a random number; a session draws a separate number for each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Draw {
    Core,
    Class,
    Requests,
    Rtt,
    Service,
    Think,
    Source,
    Handshake,
}

/// Random numbers addressed by purpose, session and request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRng(u64);

impl RequestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed).random())
    }

    /// Returns the number for one purpose, session and request, uniform in [0, 1).
    pub(crate) fn draw(self, draw: Draw, session: u64, request: u32) -> f64 {
        let name = session ^ (u64::from(request) << 40) ^ ((draw as u64) << 60);
        SplitMix64::seed_from_u64(self.0 ^ name.wrapping_mul(0x9e37_79b9_7f4a_7c15)).random()
    }
}

/// Returns an independent sequence of random numbers, identified by `number`.
pub(crate) fn stream(seed: u64, number: u64) -> Xoshiro256PlusPlus {
    let mixed: u64 = SplitMix64::seed_from_u64(seed).random();
    Xoshiro256PlusPlus::seed_from_u64(mixed ^ number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_under_one_name_are_always_the_same() {
        let request_rng = RequestRng::new(1);
        assert_eq!(request_rng.draw(Draw::Core, 7, 0), request_rng.draw(Draw::Core, 7, 0));
        assert_ne!(request_rng.draw(Draw::Core, 7, 0), request_rng.draw(Draw::Class, 7, 0));
        assert_ne!(request_rng.draw(Draw::Service, 7, 0), request_rng.draw(Draw::Service, 7, 1));
        assert_ne!(request_rng.draw(Draw::Core, 7, 0), RequestRng::new(2).draw(Draw::Core, 7, 0));
    }

    #[test]
    fn the_numbers_of_successive_sessions_fill_the_unit_evenly() {
        let request_rng = RequestRng::new(3);
        let mut tenths = [0_u32; 10];
        for session in 0..10_000 {
            tenths[(request_rng.draw(Draw::Service, session, 0) * 10.0) as usize] += 1;
        }
        // Chi-square with 9 degrees of freedom: 99.9 % below 27.9.
        let chi: f64 = tenths.iter().map(|n| (f64::from(*n) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 27.9, "{chi}");
    }
}
