//! Styles of series: a colour, a shape and a dash each, so that any two differ in more than colour.
//! The same table serves the static figures, the legends and the interactive ones. Lines along time
//! have no shapes: they have too many points.

use crate::findings::Stroke;

/// Red, green, blue.
pub(super) type Rgb = (u8, u8, u8);

/// The style of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesStyle {
    /// Its colour.
    pub ink: Ink,
    /// Its marker; `None` for a line alone, without intervals.
    pub shape: Option<&'static Shape>,
    /// Its line: lengths of a dash and of the gap after it, px; `None` for a solid line.
    pub dash: Option<(u32, u32)>,
    /// True if it is drawn as steps, each from its point to the next.
    pub steps: bool,
    /// True if a line joins its points.
    pub joined: bool,
}

/// The colour of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    /// An index into `COLOURS`.
    Series(usize),
    /// Grey: not one of the series to be compared.
    Pale,
}

impl Ink {
    /// Returns its name among the CSS variables of the page.
    pub(super) fn variable(self) -> String {
        match self {
            Self::Series(colour) => format!("--series-{colour}"),
            Self::Pale => "--pale".to_owned(),
        }
    }

    /// Returns its colour on white.
    pub(super) fn on_white(self) -> Rgb {
        match self {
            Self::Series(colour) => COLOURS[colour].0,
            Self::Pale => PALE,
        }
    }
}

/// Grey on white.
pub(super) const PALE: Rgb = (89, 99, 110);

/// A marker.
#[derive(Debug)]
pub(super) struct Shape {
    /// Its corners around (0, 0), at a distance of about 1; y grows downwards.
    pub corners: &'static [(f64, f64)],
}

/// Colours of series, on white and on black: the palette of Okabe and Ito without its yellow,
/// darkened or lightened to a contrast of at least 3 to the background.
pub(super) const COLOURS: [(Rgb, Rgb); 7] = [
    ((0, 114, 178), (86, 160, 224)),
    ((213, 94, 0), (240, 128, 60)),
    ((0, 140, 102), (44, 194, 149)),
    ((168, 85, 127), (222, 156, 194)),
    ((31, 35, 40), (230, 233, 236)),
    ((176, 112, 0), (230, 175, 30)),
    ((46, 134, 184), (130, 205, 245)),
];

const SHAPES: [Shape; 6] = [
    Shape {
        corners: &[
            (0.0, -0.95),
            (0.67, -0.67),
            (0.95, 0.0),
            (0.67, 0.67),
            (0.0, 0.95),
            (-0.67, 0.67),
            (-0.95, 0.0),
            (-0.67, -0.67),
        ],
    },
    Shape { corners: &[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)] },
    Shape { corners: &[(0.0, -1.1), (1.05, 0.75), (-1.05, 0.75)] },
    Shape { corners: &[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)] },
    Shape { corners: &[(0.0, 1.1), (1.05, -0.75), (-1.05, -0.75)] },
    Shape {
        corners: &[
            (-0.4, -1.1),
            (0.4, -1.1),
            (0.4, -0.4),
            (1.1, -0.4),
            (1.1, 0.4),
            (0.4, 0.4),
            (0.4, 1.1),
            (-0.4, 1.1),
            (-0.4, 0.4),
            (-1.1, 0.4),
            (-1.1, -0.4),
            (-0.4, -0.4),
        ],
    },
];

/// The marker of INVALID points, hollow in the series' colour.
pub(super) const INVALID: Shape = Shape {
    corners: &[
        (-1.0, -0.45),
        (-0.45, -1.0),
        (0.0, -0.55),
        (0.45, -1.0),
        (1.0, -0.45),
        (0.55, 0.0),
        (1.0, 0.45),
        (0.45, 1.0),
        (0.0, 0.55),
        (-0.45, 1.0),
        (-1.0, 0.45),
        (-0.55, 0.0),
    ],
};

/// Name of INVALID points in legends.
pub(super) const INVALID_NAME: &str = "INVALID: the client was the limit";

/// Lengths of a dash and of the gap after it, px; `None` for a solid line.
const DASHES: [Option<(u32, u32)>; 6] =
    [None, Some((9, 4)), Some((3, 3)), Some((16, 5)), Some((3, 9)), Some((16, 14))];

/// Number of dashes that lines with markers have: with as many as there are markers, the seventh
/// would look like the first.
const MARKED_DASHES: usize = 4;

/// Number of dashes that lines of one colour have, before their colour comes again.
const COLOUR_DASHES: usize = 3;

/// Returns the style of the `nth` series of a figure, drawn with this stroke.
pub(super) fn series_style(nth: usize, stroke: Stroke) -> SeriesStyle {
    let line = |ink, dash| SeriesStyle { ink, shape: None, dash, steps: false, joined: true };
    match stroke {
        Stroke::Marks => SeriesStyle {
            ink: Ink::Series(nth % COLOURS.len()),
            shape: Some(&SHAPES[nth % SHAPES.len()]),
            dash: DASHES[nth % MARKED_DASHES],
            steps: false,
            joined: true,
        },
        Stroke::Dots { colour, shape } => SeriesStyle {
            ink: Ink::Series(colour as usize % COLOURS.len()),
            shape: Some(&SHAPES[shape as usize % SHAPES.len()]),
            dash: None,
            steps: false,
            joined: false,
        },
        Stroke::Line { colour, dash } => {
            let (turn, colour) = (colour as usize / COLOURS.len(), colour as usize % COLOURS.len());
            let dash = COLOUR_DASHES * turn + dash as usize;
            line(Ink::Series(colour), DASHES[dash % DASHES.len()])
        }
        Stroke::Offered => SeriesStyle { steps: true, ..line(Ink::Pale, None) },
    }
}

/// Formats a colour for CSS.
pub(super) fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the contrast of two colours: WCAG 2.2, "contrast ratio".
    pub(in crate::report) fn contrast(one: Rgb, other: Rgb) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    fn luminance((red, green, blue): Rgb) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    }

    #[test]
    fn lines_stand_out_from_both_papers() {
        for (light, dark) in COLOURS {
            assert!(contrast(light, (255, 255, 255)) >= 3.0, "{light:?}");
            assert!(contrast(dark, (22, 25, 29)) >= 3.0, "{dark:?}");
        }
    }

    #[test]
    fn lines_that_belong_together_have_one_colour_and_three_dashes() {
        let line = |colour, dash| series_style(0, Stroke::Line { colour, dash });
        assert_eq!(line(3, 0).ink, line(3, 2).ink);
        let all = (0..14).flat_map(|colour| [0, 1, 2].map(|dash| line(colour, dash)));
        let all: Vec<_> = all.map(|look| (look.ink.variable(), look.dash)).collect();
        let several: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(several.len(), all.len());
        assert!(series_style(3, Stroke::Offered).steps);
    }

    #[test]
    fn any_two_of_twelve_series_differ_in_shape_or_dash() {
        let looks = (0..12).map(|nth| series_style(nth, Stroke::Marks));
        let looks: Vec<_> = looks.map(|look| (look.shape.unwrap().corners, look.dash)).collect();
        for (nth, one) in looks.iter().enumerate() {
            assert!(!looks[..nth].contains(one), "{nth}");
        }
    }
}
