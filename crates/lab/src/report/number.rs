//! Formats numbers for people: three digits, or all before the point, with thousands separated by
//! commas.

use crate::findings::Estimate;

/// Formats a number with three digits, or all before the point; a dash if it is none.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        return "–".to_owned();
    }
    let text = match size {
        0.0 => "0".to_owned(),
        f64::INFINITY => "∞".to_owned(),
        ..0.000_1 | 1e15.. => format!("{size:.2e}"),
        100.0.. => grouped(&format!("{size:.0}")),
        _ => {
            let places = (2.0 - size.log10().floor()).max(0.0) as usize;
            let digits = format!("{size:.places$}");
            // The logarithm of what is just below 100 may be 2: then there is no point.
            let whole = digits.split_once('.').map_or(&*digits, |_| digits.trim_end_matches('0'));
            whole.trim_end_matches('.').to_owned()
        }
    };
    if value < 0.0 { format!("−{text}") } else { text }
}

/// Formats a share as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

/// Formats the interval of an estimate and its number of points; `write` formats the numbers.
pub(super) fn interval(estimate: &Estimate, write: impl Fn(f64) -> String) -> String {
    let ends =
        || format!("{} to {}, n = {}", write(estimate.low), write(estimate.high), estimate.n);
    match estimate.n {
        0 | 1 => "one point".to_owned(),
        _ if !estimate.has_interval() => format!("range {}", ends()),
        _ => ends(),
    }
}

/// Formats the evidence of a verdict: the interval, half its width as a share of the median, and
/// the number of points.
pub(super) fn evidence(estimate: &Estimate, write: impl Fn(f64) -> String) -> String {
    match estimate.half_width() {
        Some(share) if share.is_finite() => {
            let (low, high) = (write(estimate.low), write(estimate.high));
            format!("{low} to {high}, ± {}, n = {}", percent(share), estimate.n)
        }
        _ => interval(estimate, write),
    }
}

/// Formats a number with its unit, separated by a space; the unit `1/s` becomes `/s`.
pub(super) fn with_unit(value: f64, unit: &str) -> String {
    let unit = unit.strip_prefix('1').filter(|rest| rest.starts_with('/')).unwrap_or(unit);
    if unit.is_empty() { number(value) } else { format!("{} {unit}", number(value)) }
}

/// Returns the unit at the end of an axis label: `1/s` for `replies, 1/s`.
pub(super) fn unit_of(label: &str) -> &str {
    label.rsplit_once(", ").map_or("", |(_, unit)| unit.trim())
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_all_before_the_point() {
        for (value, text) in [
            (0.0, "0"),
            (1.234_000_000_1, "1.23"),
            (1.05, "1.05"),
            (9.999, "10"),
            (99.96, "100"),
            (99.999_999_999_999_99, "100"),
            (9.999_999_999_999_99, "10"),
            (12.0, "12"),
            (0.062_5, "0.0625"),
            (0.5, "0.5"),
            (999.6, "1,000"),
            (12_249.3, "12,249"),
            (2_015_457.0, "2,015,457"),
            (-2.345_6, "−2.35"),
            (-26_000.0, "−26,000"),
            (0.000_012_3, "1.23e-5"),
            (f64::NAN, "–"),
            (f64::INFINITY, "∞"),
            (f64::NEG_INFINITY, "−∞"),
        ] {
            assert_eq!(number(value), text, "{value:?}");
        }
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(percent(0.456), "45.6 %");
        assert_eq!(percent(1.0), "100 %");
    }

    #[test]
    fn an_interval_names_its_points_and_one_point_has_none() {
        let many = Estimate { value: 2.0, low: 1.5, high: 2500.0, n: 3 };
        assert_eq!(interval(&many, number), "1.5 to 2,500, n = 3");
        assert_eq!(interval(&Estimate { n: 2, ..many }, number), "range 1.5 to 2,500, n = 2");
        assert_eq!(evidence(&Estimate { n: 2, ..many }, number), "range 1.5 to 2,500, n = 2");
        let close = Estimate { value: 100.0, low: 98.0, high: 102.0, n: 6 };
        assert_eq!(evidence(&close, number), "98 to 102, ± 2 %, n = 6");
        assert_eq!(interval(&Estimate { n: 1, ..many }, number), "one point");
        let endless = Estimate { high: f64::INFINITY, ..close };
        assert_eq!(evidence(&endless, number), "98 to ∞, n = 6");
        let infinite = Estimate { value: f64::INFINITY, low: f64::INFINITY, ..endless };
        assert_eq!(evidence(&infinite, number), "∞ to ∞, ± 0 %, n = 6");
    }

    #[test]
    fn a_unit_comes_last_in_a_label_and_after_a_number() {
        assert_eq!(unit_of("requests offered, 1/s"), "1/s");
        assert_eq!(unit_of("a ratio"), "");
        assert_eq!(with_unit(1500.0, "1/s"), "1,500 /s");
        assert_eq!(with_unit(1500.0, "µs"), "1,500 µs");
        assert_eq!(with_unit(2.0, ""), "2");
    }
}
