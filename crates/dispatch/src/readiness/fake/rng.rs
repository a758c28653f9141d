//! Seeded random numbers: the same on every machine.

/// A generator (splitmix64).
#[derive(Debug, Default)]
pub(in crate::readiness) struct SeededRng(u64);

impl SeededRng {
    pub(in crate::readiness) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number less than `end`, which is not 0.
    pub(in crate::readiness) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns true once in `times`, on average.
    pub(in crate::readiness) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(in crate::readiness) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub(in crate::readiness) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}
