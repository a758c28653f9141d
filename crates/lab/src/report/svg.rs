//! Draws a figure as SVG without scripts: axes, lines with their intervals, a legend below them. It
//! is light and opaque, so that it is readable on any page.

use std::error::Error;
use std::ops::Range;

use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, IntoLogRange};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{DashedPathElement, PathElement, Polygon, Text};
use plotters::prelude::{FontDesc, FontFamily, FontStyle, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, RGBColor, ShapeStyle, TextStyle, WHITE};

use super::number::number;
use super::scale::{any_invalid, is_empty, log_ticks, x_range, y_range};
use super::series_style::{self, INVALID, INVALID_NAME, PALE, SeriesStyle, Shape};
use crate::findings::{Mark, Picture, Series};
use crate::fit;

/// The parts of a figure to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The whole figure.
    Whole,
    /// Only the axes and the plot between them: the page has the title and the legend.
    Bare,
}

const WIDTH: u32 = 720;
const HEIGHT: u32 = 432;
const MARGIN: i32 = 16;
/// Height of a row of the legend, and of a line of text.
const ROW: i32 = 19;
/// Approximate width of a letter, of the small text and of the title.
const LETTER: f64 = 7.0;
const TITLE_LETTER: f64 = 9.4;
/// Width of the line and the marker before a name of the legend.
const GLYPH: i32 = 38;
const MARKER: f64 = 4.5;

const INK: RGBColor = RGBColor(31, 35, 40);
const PALE_INK: RGBColor = RGBColor(PALE.0, PALE.1, PALE.2);
const GRID: RGBColor = RGBColor(225, 228, 232);

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Projection<'a> = &'a dyn Fn(f64, f64) -> (i32, i32);
type DrawResult = Result<(), Box<dyn Error>>;

/// Draws a figure as SVG.
///
/// # Errors
///
/// Returns a message with the figure's id.
pub(super) fn draw(picture: &Picture, frame: Frame) -> Result<String, String> {
    let mut svg = String::new();
    sketch(&mut svg, picture, frame)
        .map_err(|e| format!("the figure {} cannot be drawn: {e}", picture.id))?;
    Ok(format!("{}\n", svg.trim_end()))
}

fn sketch(svg: &mut String, picture: &Picture, frame: Frame) -> DrawResult {
    let legend = if frame == Frame::Whole { Legend::of(picture) } else { Legend::default() };
    let title = match frame {
        Frame::Whole => wrapped(&picture.title, TITLE_LETTER, 2),
        Frame::Bare => Vec::new(),
    };
    // More than two rows of legend make the sheet higher, not the plot lower.
    let height = HEIGHT as i32 + (legend.height() - 2 * ROW).max(0);
    let sheet = SVGBackend::with_string(svg, (WIDTH, height as u32)).into_drawing_area();
    sheet.fill(&WHITE)?;
    let mut top = MARGIN;
    for line in &title {
        write(&sheet, line, (MARGIN, top + 6), 15.0, true)?;
        top += ROW + 3;
    }
    for line in wrapped(&picture.y_label, LETTER, 2) {
        write(&sheet, &line, (MARGIN, top + 6), 12.5, false)?;
        top += ROW - 2;
    }
    let bottom = legend.height() + MARGIN;
    let area = sheet.margin(top + 4, bottom, MARGIN / 2, MARGIN + 8);
    let (x, y) = (x_range(picture), y_range(picture));
    let log = |range: Range<f64>| {
        let ticks = log_ticks(&range);
        range.log_scale().with_key_points(ticks)
    };
    match (picture.x_log, picture.y_log) {
        (false, false) => chart(&sheet, &area, picture, x, y)?,
        (true, false) => chart(&sheet, &area, picture, log(x), y)?,
        (false, true) => chart(&sheet, &area, picture, x, log(y))?,
        (true, true) => chart(&sheet, &area, picture, log(x), log(y))?,
    }
    legend.draw(&sheet, height - MARGIN / 2 - legend.height())?;
    Ok(sheet.present()?)
}

/// Draws the axes, and the lines between them.
fn chart<X, Y>(sheet: &Canvas<'_>, area: &Canvas<'_>, picture: &Picture, x: X, y: Y) -> DrawResult
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .x_label_area_size(46)
        .y_label_area_size(66)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_labels(8)
        .y_labels(7)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .x_desc(fit::cut(&picture.x_label, 90))
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .axis_style(PALE_INK)
        .label_style(font(12.5, false).color(&INK))
        .axis_desc_style(font(12.5, false).color(&INK))
        .draw()?;
    let place = |x: f64, y: f64| chart.backend_coord(&(x, y));
    let range = y_range(picture);
    if is_empty(picture) {
        let (x, y) = area.get_pixel_range();
        let at = ((x.start + x.end) / 2 - 40, (y.start + y.end) / 2);
        write(sheet, "nothing was measured", at, 14.0, false)?;
    }
    for (nth, series) in picture.series.iter().enumerate() {
        let look = series_style::series_style(nth, series.stroke);
        let seen = |x, y| seen(picture, x, y);
        // An interval that goes below a logarithmic axis is drawn down to it.
        let floor = if picture.y_log { range.start } else { f64::NEG_INFINITY };
        match look.shape {
            Some(shape) => marks(sheet, series, (look, shape), &place, (&seen, floor))?,
            None if look.steps => steps(sheet, series, look, &place, &range)?,
            None => lines(sheet, series, look, &place, &seen)?,
        }
    }
    Ok(())
}

/// Draws a line from point to point, broken where a point is missing.
fn lines(
    sheet: &Canvas<'_>,
    series: &Series,
    look: SeriesStyle,
    place: Projection<'_>,
    seen: Seen<'_>,
) -> DrawResult {
    let points = points(series, place, seen);
    for run in points.split(Option::is_none) {
        path(sheet, run.iter().flatten().copied().collect(), look)?;
    }
    Ok(())
}

/// Draws steps, each from its point to the next. A step above the figure is left out; the lines
/// leading to it and back are clipped at the edge.
fn steps(
    sheet: &Canvas<'_>,
    series: &Series,
    look: SeriesStyle,
    place: Projection<'_>,
    range: &Range<f64>,
) -> DrawResult {
    let values = series.marks.iter().filter_map(|mark| Some((mark.x, mark.estimate?.value)));
    let values: Vec<(f64, f64)> = values.filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let inside = |y: f64| y.clamp(range.start, range.end);
    for pair in values.windows(2) {
        let [(x, y), (next_x, next_y)] = [pair[0], pair[1]];
        let mut corners = vec![(x, y), (next_x, y), (next_x, inside(next_y))];
        if y > range.end {
            corners = vec![(next_x, range.end), (next_x, inside(next_y))];
        }
        path(sheet, corners.into_iter().map(|(x, y)| place(x, inside(y))).collect(), look)?;
    }
    Ok(())
}

/// Returns a point if it can be drawn: a logarithmic axis shows only values above 0.
fn seen(picture: &Picture, x: f64, y: f64) -> Option<(f64, f64)> {
    let is_on = |value: f64, is_log: bool| value.is_finite() && (!is_log || value > 0.0);
    (is_on(x, picture.x_log) && is_on(y, picture.y_log)).then_some((x, y))
}

type Seen<'a> = &'a dyn Fn(f64, f64) -> Option<(f64, f64)>;

fn marks(
    sheet: &Canvas<'_>,
    series: &Series,
    (look, shape): (SeriesStyle, &Shape),
    place: Projection<'_>,
    (seen, floor): (Seen<'_>, f64),
) -> DrawResult {
    let colour = colour(look);
    let at = |x: f64, y: f64| seen(x, y).map(|(x, y)| place(x, y));
    if look.joined {
        lines(sheet, series, look, place, seen)?;
    }
    for mark in &series.marks {
        if let Some(estimate) = mark.estimate.filter(|estimate| estimate.n > 1) {
            let low = at(mark.x, estimate.low.max(floor));
            whisker(sheet, low, at(mark.x, estimate.high), colour)?;
        }
    }
    // Samples are many, and close together.
    let size = if look.joined { MARKER } else { MARKER / 2.0 };
    for point in points(series, place, seen).into_iter().flatten() {
        sheet.draw(&Polygon::new(corners(shape, point, size), colour.filled()))?;
    }
    for mark in &series.marks {
        if let Some(point) = mark.invalid_value.and_then(|value| at(mark.x, value)) {
            hollow(sheet, point, colour)?;
        }
    }
    Ok(())
}

fn points(series: &Series, place: Projection<'_>, seen: Seen<'_>) -> Vec<Option<(i32, i32)>> {
    let valid = |mark: &Mark| seen(mark.x, mark.estimate?.value).map(|(x, y)| place(x, y));
    series.marks.iter().map(valid).collect()
}

fn path(sheet: &Canvas<'_>, points: Vec<(i32, i32)>, look: SeriesStyle) -> DrawResult {
    let style = colour(look).stroke_width(2);
    match look.dash {
        _ if points.len() < 2 => Ok(()),
        None => Ok(sheet.draw(&PathElement::new(points, style))?),
        Some((dash, gap)) => Ok(sheet.draw(&DashedPathElement::new(points, dash, gap, style))?),
    }
}

fn whisker(
    sheet: &Canvas<'_>,
    low: Option<(i32, i32)>,
    high: Option<(i32, i32)>,
    colour: RGBColor,
) -> DrawResult {
    let (Some((x, low)), Some((_, high))) = (low, high) else { return Ok(()) };
    let style: ShapeStyle = colour.stroke_width(1);
    sheet.draw(&PathElement::new([(x, low), (x, high)], style))?;
    for y in [low, high] {
        sheet.draw(&PathElement::new([(x - 4, y), (x + 4, y)], style))?;
    }
    Ok(())
}

fn hollow(sheet: &Canvas<'_>, point: (i32, i32), colour: RGBColor) -> DrawResult {
    let mut corners = corners(&INVALID, point, MARKER + 1.5);
    corners.extend(corners.first().copied());
    Ok(sheet.draw(&PathElement::new(corners, colour.stroke_width(1)))?)
}

fn corners(shape: &Shape, (x, y): (i32, i32), size: f64) -> Vec<(i32, i32)> {
    let round =
        |(dx, dy): &(f64, f64)| (x + (dx * size).round() as i32, y + (dy * size).round() as i32);
    shape.corners.iter().map(round).collect()
}

fn colour(look: SeriesStyle) -> RGBColor {
    let (red, green, blue) = look.ink.on_white();
    RGBColor(red, green, blue)
}

/// Names below the plot, row by row, each placed where the previous one ends.
#[derive(Default)]
struct Legend(Vec<Entry>);

/// A name, with its place in the legend; INVALID points have no style of their own.
struct Entry {
    name: String,
    look: Option<SeriesStyle>,
    x: i32,
    row: i32,
}

impl Legend {
    fn of(picture: &Picture) -> Self {
        let name = |(nth, series): (usize, &Series)| {
            (fit::cut(&series.label, 90), Some(series_style::series_style(nth, series.stroke)))
        };
        let mut names: Vec<_> = picture.series.iter().enumerate().map(name).collect();
        if any_invalid(picture) {
            names.push((INVALID_NAME.to_owned(), None));
        }
        let (mut x, mut row) = (MARGIN, 0);
        let mut entries = Vec::new();
        for (name, look) in names {
            let width = GLYPH + (name.chars().count() as f64 * LETTER) as i32;
            if x > MARGIN && x + width > WIDTH as i32 - MARGIN {
                (x, row) = (MARGIN, row + 1);
            }
            entries.push(Entry { name, look, x, row });
            x += width + MARGIN;
        }
        Self(entries)
    }

    fn height(&self) -> i32 {
        self.0.last().map_or(0, |last| (last.row + 1) * ROW)
    }

    fn draw(&self, sheet: &Canvas<'_>, top: i32) -> DrawResult {
        for entry in &self.0 {
            let (x, y) = (entry.x, top + entry.row * ROW + ROW / 2);
            let middle = (x + (GLYPH - 8) / 2, y);
            if let Some(look) = entry.look {
                if look.joined {
                    path(sheet, vec![(x, y), (x + GLYPH - 8, y)], look)?;
                }
                if let Some(shape) = look.shape {
                    let corners = corners(shape, middle, MARKER);
                    sheet.draw(&Polygon::new(corners, colour(look).filled()))?;
                }
            } else {
                hollow(sheet, middle, PALE_INK)?;
            }
            write(sheet, &entry.name, (x + GLYPH, y), 12.5, false)?;
        }
        Ok(())
    }
}

fn write(sheet: &Canvas<'_>, text: &str, at: (i32, i32), size: f64, bold: bool) -> DrawResult {
    let style: TextStyle<'_> = font(size, bold).color(&INK);
    let style = style.pos(Pos::new(HPos::Left, VPos::Center));
    Ok(sheet.draw(&Text::new(text.to_owned(), at, style))?)
}

fn font(size: f64, bold: bool) -> FontDesc<'static> {
    // The backend divides font sizes by this.
    const EM: f64 = 1.24;
    let weight = if bold { FontStyle::Bold } else { FontStyle::Normal };
    FontDesc::new(FontFamily::SansSerif, size * EM, weight)
}

/// Wraps a text to the width of the sheet, at most `lines_max` lines; the rest is cut.
fn wrapped(text: &str, letter: f64, lines_max: usize) -> Vec<String> {
    let room = (f64::from(WIDTH - 2 * MARGIN as u32) / letter) as usize;
    fit::wrapped(text, room, lines_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{Estimate, Stroke};
    use crate::report::fixtures;

    fn texts(svg: &str) -> Vec<String> {
        let tree = roxmltree::Document::parse(svg).unwrap();
        let texts = tree.descendants().filter(|node| node.has_tag_name("text"));
        texts.map(|node| node.text().unwrap_or_default().trim().to_owned()).collect()
    }

    #[test]
    fn every_figure_is_xml_and_names_each_of_its_series_title_and_axes() {
        let findings = fixtures::findings();
        let pictures = findings.chapters.iter().flat_map(|chapter| &chapter.pictures);
        for picture in pictures {
            let svg = draw(picture, Frame::Whole).unwrap();
            let texts = texts(&svg);
            for series in &picture.series {
                assert!(texts.contains(&series.label), "{}: {texts:?}", series.label);
            }
            let all = texts.join(" ");
            for label in [&picture.title, &picture.x_label, &picture.y_label] {
                assert!(all.contains(label.as_str()), "{label}: {all}");
            }
            assert_eq!(all.contains(INVALID_NAME), any_invalid(picture));
        }
    }

    #[test]
    fn the_page_has_title_and_legend_so_the_bare_figure_has_none() {
        let picture = &fixtures::findings().chapters[0].pictures[0];
        let texts = texts(&draw(picture, Frame::Bare).unwrap());
        assert!(!texts.contains(&picture.title));
        assert!(!texts.contains(&picture.series[0].label));
        assert!(texts.join(" ").contains(&picture.y_label));
    }

    #[test]
    fn zeros_and_numbers_that_are_none_do_not_stop_a_logarithmic_figure() {
        let mut picture = fixtures::findings().chapters[0].pictures[0].clone();
        (picture.x_log, picture.y_log) = (true, true);
        let mark = |x, value| Mark {
            at: x,
            x,
            estimate: Some(Estimate { value, low: 0.0, high: f64::INFINITY, n: 3 }),
            ..Mark::default()
        };
        picture.series[0].marks = vec![mark(0.0, 1.0), mark(1.0, 0.0), mark(10.0, f64::NAN)];
        roxmltree::Document::parse(&draw(&picture, Frame::Whole).unwrap()).unwrap();
        picture.series[0].marks = vec![mark(5.0, 3.0)];
        picture.series.truncate(1);
        roxmltree::Document::parse(&draw(&picture, Frame::Whole).unwrap()).unwrap();
    }

    /// Returns the number of elements of a colour in a figure of one series.
    fn drawn(picture: &Picture, marks: Vec<Mark>, colour: &str) -> usize {
        let series = Series { marks, ..picture.series[0].clone() };
        let picture = Picture { series: vec![series], y_log: true, ..picture.clone() };
        let svg = draw(&picture, Frame::Bare).unwrap();
        let tree = roxmltree::Document::parse(&svg).unwrap();
        let has = |node: &roxmltree::Node<'_, '_>| {
            ["fill", "stroke"].iter().any(|name| node.attribute(*name) == Some(colour))
        };
        tree.descendants().filter(has).count()
    }

    #[test]
    fn a_zero_has_no_place_on_a_logarithmic_axis_but_an_interval_from_it_has() {
        let picture = &fixtures::findings().chapters[0].pictures[0];
        let RGBColor(red, green, blue) = colour(series_style::series_style(0, Stroke::Marks));
        let colour = format!("#{red:02X}{green:02X}{blue:02X}");
        let drawn = |marks: Vec<Mark>| drawn(picture, marks, &colour);
        let mark = |x, value: f64, n| Mark {
            at: x,
            x,
            estimate: Some(Estimate { value, low: 0.0, high: value, n }),
            ..Mark::default()
        };
        let invalid = |x, value| Mark { at: x, x, invalid_value: Some(value), ..Mark::default() };
        let point = drawn(vec![mark(5.0, 3.0, 1)]);
        assert!(point > 0);
        assert_eq!(drawn(vec![mark(1.0, 0.0, 1), mark(5.0, 3.0, 1)]), point);
        assert_eq!(drawn(vec![mark(1.0, 0.0, 3), mark(5.0, 3.0, 1)]), point);
        assert_eq!(drawn(vec![invalid(1.0, 0.0), mark(5.0, 3.0, 1)]), point);
        assert!(drawn(vec![invalid(1.0, 2.0), mark(5.0, 3.0, 1)]) > point);
        // The interval: a line, and a bar at each end.
        assert_eq!(drawn(vec![mark(5.0, 3.0, 3)]), point + 3);
    }

    #[test]
    fn a_long_title_fits_the_sheet() {
        let lines = wrapped(&"word ".repeat(60), TITLE_LETTER, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with('…') && lines.iter().all(|line| line.chars().count() <= 80));
    }
}
