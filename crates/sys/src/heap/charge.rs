//! Charges to the parts of the account, for as long as what is charged lives.

use std::ops::Deref;

use super::account::{Part, charge, count, of_thread};
use super::c_library::buffer_bytes;

/// Memory that was mapped without the allocator, charged to a part and to the whole for as long as
/// this lives.
#[derive(Debug)]
pub struct MappedCharge(Charge);

impl MappedCharge {
    /// Charges bytes to a part, and to the whole.
    pub fn of(part: Part, bytes: usize) -> Self {
        let charge = Charge::of(part, bytes);
        count(charge.bytes);
        Self(charge)
    }
}

impl Drop for MappedCharge {
    fn drop(&mut self) {
        count(self.0.bytes.wrapping_neg());
    }
}

/// Bytes charged to a part for as long as this lives.
#[derive(Debug)]
pub struct Charge {
    part: Part,
    bytes: i64,
}

impl Charge {
    /// Charges bytes to a part.
    pub fn of(part: Part, bytes: usize) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        charge(part, bytes);
        Self { part, bytes }
    }

    /// Charges other bytes in their place.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        charge(self.part, bytes.wrapping_sub(self.bytes));
        self.bytes = bytes;
    }

    /// Charges besides what an operation allocates, less what it frees.
    #[inline]
    pub fn measure<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let before = of_thread();
        let result = operation();
        let more = of_thread().wrapping_sub(before);
        charge(self.part, more);
        self.bytes = self.bytes.wrapping_add(more);
        result
    }

    /// Returns the bytes charged.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(0)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        charge(self.part, self.bytes.wrapping_neg());
    }
}

/// A value with the memory that it takes, charged to a part for as long as it lives.
#[derive(Debug)]
pub struct Charged<T> {
    value: T,
    charge: Charge,
}

impl<T> Charged<T> {
    /// Makes a value, and charges what that allocates.
    pub fn of(part: Part, make: impl FnOnce() -> T) -> Self {
        let mut charge = Charge::of(part, 0);
        let value = charge.measure(make);
        Self { value, charge }
    }

    /// Returns the bytes charged.
    pub fn charged_bytes(&self) -> u64 {
        self.charge.bytes()
    }

    /// Does something with the value, and charges what that allocates.
    #[inline]
    pub fn measure<R>(&mut self, operation: impl FnOnce(&mut T) -> R) -> R {
        let Self { value, charge } = self;
        charge.measure(|| operation(value))
    }

    /// Does something with the value that may grow `other`, which is not a part of it.
    #[inline]
    pub fn measure_beside<R>(
        &mut self,
        other: &mut Vec<u8>,
        operation: impl FnOnce(&mut T, &mut Vec<u8>) -> R,
    ) -> R {
        let before = buffer_bytes(other);
        let result = self.measure(|value| operation(value, other));
        let grown = buffer_bytes(other) - before;
        if grown != 0 {
            charge(self.charge.part, -grown);
            self.charge.bytes = self.charge.bytes.wrapping_sub(grown);
        }
        result
    }
}

impl<T, E> Charged<Result<T, E>> {
    /// Returns the value, unless there is an error in its place.
    ///
    /// # Errors
    /// That error.
    pub fn transpose(self) -> Result<Charged<T>, E> {
        let Self { value, charge } = self;
        value.map(|value| Charged { value, charge })
    }
}

impl<T> Deref for Charged<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::bytes_of;
    use super::*;

    #[test]
    fn a_charge_is_of_its_part_for_as_long_as_it_lives() {
        let mut charge = Charge::of(Part::Clients, 1000);
        assert_eq!(bytes_of(Part::Clients), 1000);
        let block = charge.measure(|| Box::new([0_u8; 500]));
        assert_eq!((bytes_of(Part::Clients), charge.bytes()), (1512, 1512));
        charge.measure(|| drop(block));
        charge.set(7);
        assert_eq!(bytes_of(Part::Clients), 7);
        drop(charge);
        assert_eq!(bytes_of(Part::Clients), 0);
    }

    #[test]
    fn a_value_is_charged_what_it_takes_and_not_what_it_writes_elsewhere() {
        let mut value = Charged::of(Part::Tls, || vec![0_u8; 100]);
        assert_eq!((bytes_of(Part::Tls), value.len()), (112, 100));
        let mut other = Vec::new();
        value.measure_beside(&mut other, |value, other| {
            value.reserve_exact(900);
            other.reserve_exact(5000);
        });
        assert_eq!(bytes_of(Part::Tls), 1008);
        drop((value, other));
        assert_eq!(bytes_of(Part::Tls), 0);
    }

    #[test]
    fn what_is_mapped_is_counted_as_well() {
        let before = of_thread();
        let charge = MappedCharge::of(Part::Stacks, 5000);
        assert_eq!((of_thread() - before, bytes_of(Part::Stacks) >= 5000), (5000, true));
        drop(charge);
        assert_eq!(of_thread(), before);
    }
}
