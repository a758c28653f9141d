//! Computes the ranges of the axes of a static figure, and the ticks of logarithmic ones.

use std::ops::Range;

use crate::findings::{Picture, Series, Stroke};

/// Returns ticks at 1, 2 and 5 of each decade; at 1 alone over many decades, and at nearly all
/// digits over less than one.
pub(super) fn log_ticks(range: &Range<f64>) -> Vec<f64> {
    let (first, last) = (range.start.log10().floor() as i32, range.end.log10().ceil() as i32);
    let digits: &[f64] = match (range.end / range.start).log10() {
        ..1.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        ..3.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let decades = first..=last;
    let all =
        decades.flat_map(|decade| digits.iter().map(move |digit| digit * 10_f64.powi(decade)));
    all.filter(|tick| range.contains(tick)).collect()
}

/// Returns whether there is nothing to draw.
pub(super) fn is_empty(picture: &Picture) -> bool {
    let mut marks = picture.series.iter().flat_map(|series| &series.marks);
    marks.all(|mark| mark.estimate.is_none() && mark.invalid_value.is_none())
}

/// Returns whether any point of a figure is INVALID.
pub(super) fn any_invalid(picture: &Picture) -> bool {
    picture.series.iter().flat_map(|series| &series.marks).any(|mark| mark.invalid_value.is_some())
}

/// Returns the range of the horizontal axis.
pub(super) fn x_range(picture: &Picture) -> Range<f64> {
    let all = picture.series.iter().flat_map(|series| &series.marks).map(|mark| mark.x);
    let Some((low, high)) = ends(all, picture.x_log) else { return empty(picture.x_log) };
    if picture.x_log {
        return low / 1.25..high * 1.25;
    }
    let room = if high > low { (high - low) * 0.04 } else { high.abs().max(1.0) * 0.5 };
    let start = if low >= 0.0 { (low - room).max(0.0) } else { low - room };
    // A sweep that starts near zero shows zero.
    let start = if low >= 0.0 && low < 0.25 * high { 0.0 } else { start };
    start..high + room
}

/// Limit up to which an offered rate extends the axis, as a multiple of the highest measured value:
/// beyond it, the measured values would have no room left.
const OFFERED_MAX: f64 = 1.5;

/// Returns the range of the vertical axis, which starts at 0 unless it is logarithmic or has values
/// below 0, and has 0 in it unless it is logarithmic.
pub(super) fn y_range(picture: &Picture) -> Range<f64> {
    let is_offered = |series: &&Series| series.stroke == Stroke::Offered;
    let measured = picture.series.iter().filter(|series| !is_offered(series)).flat_map(values);
    let offered = picture.series.iter().filter(is_offered).flat_map(values);
    let found = match ends(measured, picture.y_log) {
        None => ends(offered, picture.y_log),
        Some((low, high)) => {
            let near = offered.filter(|value| *value <= OFFERED_MAX * high);
            ends(near.chain([low, high]), picture.y_log)
        }
    };
    let Some((low, high)) = found else { return empty(picture.y_log) };
    if picture.y_log {
        return low / 1.5..high * 1.5;
    }
    let (low, high) = (low.min(0.0), high.max(0.0));
    let high = if high > low { high } else { low + 1.0 };
    low * 1.08..high * 1.08
}

/// Returns all values drawn of a series, by height: a line alone has no intervals.
fn values(series: &Series) -> impl Iterator<Item = f64> {
    let alone = series.stroke != Stroke::Marks;
    series.marks.iter().flat_map(move |mark| {
        let estimate =
            mark.estimate.map(|e| if alone { [e.value; 3] } else { [e.low, e.value, e.high] });
        estimate.into_iter().flatten().chain(mark.invalid_value)
    })
}

/// Returns the range of the vertical axis if a value exceeds it: the offered rate continues above.
pub(super) fn cut_off(picture: &Picture) -> Option<Range<f64>> {
    let range = y_range(picture);
    let mut all = picture.series.iter().flat_map(values);
    (!picture.y_log && all.any(|value| value > range.end)).then_some(range)
}

fn empty(log: bool) -> Range<f64> {
    if log { 1.0..10.0 } else { 0.0..1.0 }
}

fn ends(values: impl Iterator<Item = f64>, log: bool) -> Option<(f64, f64)> {
    let good = |value: &f64| value.is_finite() && (!log || *value > 0.0);
    values.filter(good).fold(None, |ends, value| {
        let (low, high) = ends.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Estimate;
    use crate::report::fixtures;

    #[test]
    fn a_linear_axis_starts_at_zero_and_a_logarithmic_one_above_it() {
        let mut picture = fixtures::findings().chapters[0].pictures[0].clone();
        picture.y_log = false;
        assert!(y_range(&picture).start.abs() < 1e-12);
        picture.y_log = true;
        assert!(y_range(&picture).start > 0.0);
    }

    #[test]
    fn values_below_zero_are_on_the_axis_and_so_is_zero() {
        let mut picture = fixtures::findings().chapters[0].pictures[0].clone();
        picture.y_log = false;
        for mark in picture.series.iter_mut().flat_map(|series| &mut series.marks) {
            let below = |e: Estimate| Estimate { value: -3.0, low: -5.0, high: -1.0, ..e };
            (mark.estimate, mark.invalid_value) = (mark.estimate.map(below), None);
        }
        let range = y_range(&picture);
        assert!(range.start < -5.0 && range.contains(&-1.0), "{range:?}");
        assert!(range.end.abs() < 1e-12, "{range:?}");
    }

    #[test]
    fn the_offered_load_is_in_the_figure_only_if_it_is_near() {
        let mut picture = fixtures::findings().chapters[0].pictures[0].clone();
        let high = y_range(&picture).end;
        assert_eq!(cut_off(&picture), None);
        let mut offered = picture.series[0].clone();
        offered.stroke = Stroke::Offered;
        let at = |mark: &mut crate::findings::Mark, value| {
            mark.estimate = mark.estimate.map(|e| Estimate { value, low: 0.0, high: 1e9, ..e });
        };
        offered.marks.iter_mut().for_each(|mark| at(mark, 10.0 * high));
        at(&mut offered.marks[0], 1.2 * high);
        picture.series.push(offered);
        let range = y_range(&picture);
        assert!(range.end > 1.2 * high && range.end < 2.0 * high, "{range:?}");
        assert_eq!(cut_off(&picture), Some(range));
        picture.series.truncate(0);
        assert_eq!(cut_off(&picture), None);
    }

    #[test]
    fn a_logarithmic_axis_has_a_handful_of_round_ticks() {
        assert_eq!(log_ticks(&(15.0..300.0)), [20.0, 50.0, 100.0, 200.0]);
        assert_eq!(log_ticks(&(0.8..12_500.0)), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(log_ticks(&(2.5..4.5)), [3.0, 4.0]);
    }
}
