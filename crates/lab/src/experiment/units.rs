//! Numbers and names with a range, which is checked where they are read.

use std::fmt::{self, Display, Formatter};
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, de};

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(try_from = "u32")]
pub struct Bounded<const MIN: u32, const MAX: u32>(u32);

/// A number of connections, requests, repetitions or reads: 1 or more.
pub type Count = Bounded<1, { u32::MAX }>;

/// Processor time burnt per request, in microseconds: as much as `weir serve` burns at most.
pub type BurnUs = Bounded<0, 1_000_000>;

/// Processor time burnt per request behind a proxy, in microseconds.
pub type ProxyBurnUs = Bounded<1, 1_000_000>;

impl<const MIN: u32, const MAX: u32> TryFrom<u32> for Bounded<MIN, MAX> {
    type Error = String;

    fn try_from(value: u32) -> Result<Self, String> {
        match (MIN..=MAX).contains(&value) {
            true => Ok(Self(value)),
            false if MAX == u32::MAX => Err(format!("{value} is not {MIN} or more")),
            false => Err(format!("{value} is not {MIN} to {MAX}")),
        }
    }
}

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    /// Creates a number from one that is known at compile time.
    pub const fn of<const VALUE: u32>() -> Self {
        const { assert!(MIN <= VALUE && VALUE <= MAX) };
        Self(VALUE)
    }
}

impl<const MIN: u32, const MAX: u32> Deref for Bounded<MIN, MAX> {
    type Target = u32;

    fn deref(&self) -> &u32 {
        &self.0
    }
}

impl<const MIN: u32, const MAX: u32> Display for Bounded<MIN, MAX> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Defines a number with a fractional part that a condition holds for.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $says:literal, $holds:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, PartialOrd)]
        #[serde(try_from = "f64")]
        pub struct $name(f64);

        impl TryFrom<f64> for $name {
            type Error = String;

            fn try_from(value: f64) -> Result<Self, String> {
                let holds: fn(f64) -> bool = $holds;
                match value.is_finite() && holds(value) {
                    true => Ok(Self(value)),
                    false => Err(format!("{value} is not {}", $says)),
                }
            }
        }

        impl Deref for $name {
            type Target = f64;

            fn deref(&self) -> &f64 {
                &self.0
            }
        }

        impl Display for $name {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A rate, in sessions per second or as a multiple of a capacity, or a factor of one.
    Rate, "positive", |value| value > 0.0
}

number! {
    /// A time in seconds.
    Seconds, "a positive time", |value| value > 0.0
}

number! {
    /// A time in seconds that may be 0.
    SecondsOrNone, "a time", |value| value >= 0.0
}

number! {
    /// A percentage of a whole.
    Percent, "a percentage above 0, at most 100", |value| value > 0.0 && value <= 100.0
}

number! {
    /// A share of a whole.
    Fraction, "a share between 0 and 1", |value| value > 0.0 && value <= 1.0
}

impl Seconds {
    /// Default timeout of a load.
    pub(super) const ONE: Self = Self(1.0);

    /// Default duration of a point.
    pub(super) const THREE: Self = Self(3.0);

    /// Default duration of a probe.
    pub(super) const QUARTER: Self = Self(0.25);

    /// Returns this time, or `least` seconds if it is shorter.
    pub fn at_least(self, least: f64) -> Self {
        Self(self.0.max(least))
    }
}

impl SecondsOrNone {
    /// Default warm-up of a load.
    pub(super) const ONE: Self = Self(1.0);

    /// Default cool-down of a load.
    pub(super) const NONE: Self = Self(0.0);
}

/// Reads an id. It is plain, because it becomes part of file names and table rows.
pub(super) fn id<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let id = String::deserialize(from)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    match !id.is_empty() && id.bytes().all(plain) {
        true => Ok(id),
        false => {
            Err(de::Error::custom(format!("`{id}`: an id is letters, digits and any of . - _ +")))
        }
    }
}

/// Reads a text that is not blank.
pub(super) fn filled<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    match text.trim().is_empty() {
        true => Err(de::Error::custom("the text is empty")),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_its_range_is_refused_with_the_range() {
        assert_eq!(BurnUs::try_from(1_000_001).unwrap_err(), "1000001 is not 0 to 1000000");
        assert_eq!(Count::try_from(0).unwrap_err(), "0 is not 1 or more");
        assert_eq!(*Count::of::<5>(), 5);
        for (value, says) in [(0.0, "0 is not positive"), (f64::NAN, "NaN is not positive")] {
            assert_eq!(Rate::try_from(value).unwrap_err(), says);
        }
        assert!(Seconds::try_from(f64::INFINITY).is_err() && Fraction::try_from(1.5).is_err());
        assert_eq!(SecondsOrNone::try_from(-1.0).unwrap_err(), "-1 is not a time");
        assert_eq!(*Seconds::ONE.at_least(2.0), 2.0);
    }
}
