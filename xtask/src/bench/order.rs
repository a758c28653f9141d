//! Chance that can be repeated. The order of the runs of a round is shuffled, so that no contestant
//! always follows the same one, and the same for the same seed; so is the noise files are made of.

/// A linear congruential generator (Knuth's MMIX constants). Good enough to shuffle a dozen
/// things.
pub(super) struct Lcg(u64);

impl Lcg {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        const STEP: u64 = 1_442_695_040_888_963_407;
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(STEP);
        // The low bits of such a generator have short periods.
        ((self.0 >> 33) as usize) % bound
    }

    /// Fisher and Yates' shuffle.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(seed: u64) -> Vec<usize> {
        let mut items: Vec<usize> = (0..12).collect();
        Lcg::new(seed).shuffle(&mut items);
        items
    }

    #[test]
    fn a_seed_gives_one_order() {
        assert_eq!(shuffled(7), shuffled(7));
        assert_ne!(shuffled(7), shuffled(8));
    }

    #[test]
    fn nothing_is_lost() {
        let mut items = shuffled(3);
        items.sort_unstable();
        assert_eq!(items, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn every_place_is_reached() {
        let mut lcg = Lcg::new(1);
        let mut first = [0; 4];
        for _ in 0..400 {
            let mut items = [0, 1, 2, 3];
            lcg.shuffle(&mut items);
            first[items[0]] += 1;
        }
        assert!(first.iter().all(|count| *count > 50), "{first:?}");
    }
}
