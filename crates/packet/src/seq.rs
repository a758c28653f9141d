//! Sequence numbers, which wrap (RFC 9293 section 3.4).

/// A sequence number. Two are compared by their distance, which is less than 2^31 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seq(pub u32);

impl Seq {
    /// Returns whether this number comes before `other`.
    pub fn is_before(self, other: Seq) -> bool {
        self.distance_to(other) > 0
    }

    /// Returns whether this number comes after `other`.
    pub fn is_after(self, other: Seq) -> bool {
        other.is_before(self)
    }

    /// Returns the bytes from here to `other`, negative if that comes before.
    pub fn distance_to(self, other: Seq) -> i32 {
        other.0.wrapping_sub(self.0) as i32
    }

    /// Returns the number `bytes` further on.
    #[must_use]
    pub fn plus(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_add(bytes))
    }

    /// Returns the later of two numbers.
    #[must_use]
    pub fn max(self, other: Seq) -> Seq {
        if self.is_before(other) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_across_the_wrap() {
        let (old, new) = (Seq(u32::MAX - 1), Seq(3));
        assert!(old.is_before(new) && new.is_after(old) && !new.is_before(old));
        assert_eq!((old.distance_to(new), new.distance_to(old)), (5, -5));
        assert_eq!((old.plus(5), old.max(new), new.max(old)), (new, new, new));
        assert!(!new.is_before(new) && !new.is_after(new));
    }
}
