//! Precision on request: how narrow intervals are to become, and after how many rounds to give up.

use serde::{Deserialize, Serialize};

use super::units::{Bounded, Percent};

/// Number of rounds below which no interval counts as narrow, however narrow it is: one within
/// fewer values cannot have a coverage of 95 %, and is often narrow by luck.
pub const PRECISION_ROUNDS_MIN: u32 = 6;

/// Default maximum number of rounds.
pub const MAX_ROUNDS: u32 = 20;

/// The precision wanted of a sweep's compared quantities.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Precision {
    /// Half the width of an interval, as a percentage of its median.
    pub percent: Percent,
    /// Maximum number of rounds.
    #[serde(default = "max_rounds")]
    pub max_rounds: Bounded<PRECISION_ROUNDS_MIN, 1000>,
}

impl Precision {
    /// Creates a precision.
    ///
    /// # Errors
    /// Returns a sentence if a number is out of its range.
    pub fn new(percent: f64, max_rounds: u32) -> Result<Self, String> {
        Ok(Self { percent: percent.try_into()?, max_rounds: max_rounds.try_into()? })
    }

    /// Returns the half-width wanted, as a share of the median.
    pub fn share(&self) -> f64 {
        *self.percent / 100.0
    }
}

fn max_rounds() -> Bounded<PRECISION_ROUNDS_MIN, 1000> {
    Bounded::of::<MAX_ROUNDS>()
}
