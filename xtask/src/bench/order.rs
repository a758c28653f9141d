//! Chance that can be repeated. The order of the runs of a round is shuffled, so that no contestant
//! always follows the same one, and the same for the same seed; so is the noise files are made of.

/// An item's turn in a round.
pub(super) struct Turn<'a, T> {
    /// From 1.
    pub(super) round: u32,
    /// The place in the round, from 1.
    pub(super) place: usize,
    pub(super) item: &'a T,
}

/// Every item once in each of `rounds` rounds, in an order shuffled anew each time.
pub(super) fn rounds<T>(seed: u64, rounds: u32, items: &[T]) -> Vec<Turn<'_, T>> {
    let mut order = Lcg::new(seed);
    let mut turns = Vec::new();
    for round in 1..=rounds {
        let mut shuffled: Vec<&T> = items.iter().collect();
        order.shuffle(&mut shuffled);
        let places = shuffled.into_iter().zip(1..);
        turns.extend(places.map(|(item, place)| Turn { round, place, item }));
    }
    turns
}

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
    fn everybody_has_a_turn_in_every_round() {
        let turns = rounds(1, 3, &['a', 'b']);
        assert_eq!(turns.len(), 6);
        for (round, turns) in (1..).zip(turns.chunks(2)) {
            assert!(turns.iter().all(|turn| turn.round == round));
            assert_eq!([turns[0].place, turns[1].place], [1, 2]);
            assert_ne!(turns[0].item, turns[1].item);
        }
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
