//! The middle and the ends of a few figures. Knows nothing of what they measure.

/// The median of some values, the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// The spread of `values`; none of no values.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let upper = values.get(values.len() / 2)?;
        let lower = values.get(values.len().saturating_sub(1) / 2)?;
        let (least, most) = (*values.first()?, *values.last()?);
        Some(Self { median: (lower + upper) / 2.0, least, most })
    }
}

/// Each of `own` divided by the one of `base` of the same round; the first of a pair is the round.
pub(crate) fn paired_ratios(own: &[(u32, f64)], base: &[(u32, f64)]) -> Vec<f64> {
    let ratio = |(round, value): &(u32, f64)| {
        let (_, other) = base.iter().find(|(of, _)| of == round)?;
        Some(value / other)
    };
    own.iter().filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_medians() {
        let median = |values: &[f64]| Spread::of(values.to_vec()).map(|spread| spread.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn the_ends_are_the_ends() {
        let spread = Spread { median: 2.0, least: 1.0, most: 3.0 };
        assert_eq!(Spread::of(vec![2.0, 3.0, 1.0]), Some(spread));
    }

    #[test]
    fn only_what_is_of_one_round_is_paired() {
        let ratios = paired_ratios(&[(1, 3.0), (2, 8.0), (3, 1.0)], &[(2, 4.0), (1, 2.0)]);
        assert_eq!(ratios, [1.5, 2.0]);
    }
}
