//! Estimates with their statistical uncertainty, and how they compare with what was asked for.

use serde::{Deserialize, Serialize};

/// Largest difference from what was asked for, as a share of it.
pub(super) const BAR: f64 = 0.02;

/// Standard errors to either side of an interval of 95 %, for many values.
const NORMAL: f64 = 1.96;

/// The same for few values, by their number from 2 on (Student's t).
const STUDENT: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/// A mean of independent values.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Estimate {
    /// The mean.
    pub(super) mean: f64,
    /// Half the width of its interval of 95 %.
    pub(super) half_width: f64,
    /// Number of values.
    pub(super) n: usize,
}

/// Comparison with what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// The whole interval is within the bar.
    Within,
    /// The whole interval is outside.
    Outside,
    /// The interval is too wide to say.
    Undecided,
}

impl Verdict {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Within => "within 2 %",
            Self::Outside => "NOT within 2 %",
            Self::Undecided => "undecided",
        }
    }
}

impl Estimate {
    /// Returns the mean of values; `None` for fewer than two.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let (mean, variance) = moments(values)?;
        let n = values.len();
        let errors = STUDENT.get(n - 2).copied().unwrap_or(NORMAL);
        Some(Self { mean, half_width: errors * (variance / n as f64).sqrt(), n })
    }

    /// Returns the root of an estimate; its interval is the first term of a series.
    pub(super) fn root(self) -> Self {
        let mean = self.mean.sqrt();
        let half_width = if mean > 0.0 { self.half_width / (2.0 * mean) } else { 0.0 };
        Self { mean, half_width, ..self }
    }

    /// Returns the estimate in another unit.
    pub(super) fn times(self, factor: f64) -> Self {
        Self { mean: factor * self.mean, half_width: factor * self.half_width, ..self }
    }

    /// Compares with what was asked for. Of nothing there must be nothing.
    pub(super) fn against(self, asked: f64) -> Verdict {
        let off = (self.mean - asked).abs();
        if off + self.half_width <= BAR * asked {
            Verdict::Within
        } else if off - self.half_width > BAR * asked {
            Verdict::Outside
        } else {
            Verdict::Undecided
        }
    }
}

/// Returns mean and variance of values; `None` for fewer than two.
pub(super) fn moments(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, squares / (n - 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_an_interval_that_few_values_widen() {
        let few = Estimate::of(&[9.0, 10.0, 11.0]).unwrap();
        assert_eq!((few.mean, few.n), (10.0, 3));
        assert!((few.half_width - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9, "{few:?}");
        let many = Estimate::of(&[9.0, 11.0].repeat(50)).unwrap();
        assert!((many.half_width - 0.197).abs() < 1e-3, "{many:?}");
        assert_eq!(Estimate::of(&[1.0]), None);
    }

    #[test]
    fn a_verdict_needs_the_whole_interval() {
        let against = |mean, half_width| Estimate { mean, half_width, n: 9 }.against(100.0);
        assert_eq!(against(101.0, 0.9), Verdict::Within);
        assert_eq!(against(101.0, 1.1), Verdict::Undecided);
        assert_eq!(against(97.0, 1.1), Verdict::Undecided);
        assert_eq!(against(97.0, 0.9), Verdict::Outside);
        let none = Estimate { mean: 0.0, half_width: 0.0, n: 9 };
        assert_eq!(none.against(0.0), Verdict::Within);
        assert_eq!(Estimate { mean: 0.1, ..none }.against(0.0), Verdict::Outside);
    }

    #[test]
    fn a_root_keeps_the_relative_width_halved() {
        let root = Estimate { mean: 100.0, half_width: 4.0, n: 9 }.root();
        assert_eq!((root.mean, root.half_width), (10.0, 0.2));
    }
}
