//! Bytes received ahead of their turn, until the holes before them are filled.

use crate::segment::SACK_MAX;
use crate::seq::Seq;

/// Blocks kept at once. A peer that makes more holes sends the later ones again.
const BLOCKS_MAX: usize = 64;

/// Blocks beyond the next number expected, in order and apart from each other.
#[derive(Debug, Default)]
pub(super) struct Holes {
    blocks: Vec<(Seq, Vec<u8>)>,
    /// The block that last grew, which is reported first (RFC 2018 section 4).
    latest: Seq,
}

impl Holes {
    /// Adds bytes at `seq`; those that overlap what is there are dropped.
    pub(super) fn add(&mut self, seq: Seq, bytes: &[u8]) {
        let mut index = self.blocks.partition_point(|(start, _)| !start.is_after(seq));
        if let Some((start, before)) = index.checked_sub(1).and_then(|at| self.blocks.get_mut(at)) {
            let end = start.plus(before.len() as u32);
            if !end.is_before(seq) {
                // It continues the block before it.
                let overlap = seq.distance_to(end) as usize;
                let Some(rest) = bytes.get(overlap..) else { return };
                before.extend_from_slice(rest);
                index -= 1;
                self.latest = *start;
                return self.join(index);
            }
        }
        if self.blocks.len() >= BLOCKS_MAX {
            return;
        }
        self.blocks.insert(index, (seq, bytes.to_vec()));
        self.latest = seq;
        self.join(index);
    }

    /// Joins block number `index` with those that it has reached.
    fn join(&mut self, index: usize) {
        while let [(start, block), (next_start, next), ..] = &mut self.blocks[index..] {
            let overlap = next_start.distance_to(start.plus(block.len() as u32));
            if overlap < 0 {
                return;
            }
            block.extend_from_slice(next.get(overlap as usize..).unwrap_or_default());
            self.blocks.remove(index + 1);
        }
    }

    /// Removes and returns the bytes that continue at `expected`, if any do.
    pub(super) fn take(&mut self, expected: Seq) -> Option<Vec<u8>> {
        while let Some((start, block)) = self.blocks.first() {
            if start.is_after(expected) {
                return None;
            }
            let known = start.distance_to(expected) as usize;
            let has_more = known < block.len();
            let (_, mut block) = self.blocks.remove(0);
            if has_more {
                block.drain(..known);
                return Some(block);
            }
        }
        None
    }

    /// Returns the bytes of memory in use.
    pub(super) fn held_bytes(&self) -> usize {
        let bytes: usize = self.blocks.iter().map(|(_, block)| block.capacity()).sum();
        size_of::<Self>() + bytes
    }

    /// Returns whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the blocks to be reported, the one that last grew first (RFC 2018 section 4).
    pub(super) fn sack(&self) -> [Option<(Seq, Seq)>; SACK_MAX] {
        let mut all = [None; SACK_MAX];
        let range = |(start, block): &(Seq, Vec<u8>)| (*start, start.plus(block.len() as u32));
        let latest = self.blocks.iter().find(|(start, _)| *start == self.latest).map(range);
        let others = self.blocks.iter().filter(|(start, _)| *start != self.latest).map(range);
        for (place, block) in all.iter_mut().zip(latest.into_iter().chain(others)) {
            *place = Some(block);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_join_and_are_reported_latest_first() {
        let mut holes = Holes::default();
        holes.add(Seq(10), b"abc");
        holes.add(Seq(20), b"xyz");
        let block = |from, to| Some((Seq(from), Seq(to)));
        assert_eq!(holes.sack(), [block(20, 23), block(10, 13), None]);
        holes.add(Seq(12), b"cdefghijkl");
        assert_eq!(holes.sack(), [block(10, 23), None, None]);
        assert_eq!(holes.take(Seq(9)), None);
        assert_eq!(holes.take(Seq(11)), Some(b"bcdefghijklz".to_vec()));
        assert!(holes.is_empty());
    }

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(
            parts in prop::collection::vec((0_u32..200, 1_u32..40), 1..40),
        ) {
            let stream: Vec<u8> = (0..240_u32).map(|at| (at * 7) as u8).collect();
            // Numbers wrap in the middle.
            let base = Seq(u32::MAX - 100);
            let mut holes = Holes::default();
            let mut known = vec![false; 240];
            for (from, length) in parts {
                let range = from as usize..(from + length) as usize;
                holes.add(base.plus(from), &stream[range.clone()]);
                known[range].fill(true);
            }
            for from in 0..240_u32 {
                if !known[from as usize] {
                    continue;
                }
                if let Some(bytes) = holes.take(base.plus(from)) {
                    let range = from as usize..from as usize + bytes.len();
                    prop_assert!(known[range.clone()].iter().all(|is_known| *is_known));
                    prop_assert_eq!(&stream[range.clone()], &bytes[..]);
                    known[range].fill(false);
                }
            }
            prop_assert!(holes.is_empty());
            prop_assert!(known.iter().all(|is_known| !is_known));
        }
    }
}
