//! How series are told apart: a colour, a shape and a dash each, so that any two differ in more
//! than colour. The same table serves the still figures, the legends and the interactive ones.

/// Red, green, blue.
pub(super) type Rgb = (u8, u8, u8);

/// A series' look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Which of `COLOURS`.
    pub colour: usize,
    /// Its marker.
    pub shape: &'static Shape,
    /// Its line: lengths of a dash and of the gap after it, px; none is solid.
    pub dash: Option<(u32, u32)>,
}

/// A marker.
#[derive(Debug)]
pub(super) struct Shape {
    /// Its name in plotly.js.
    pub symbol: &'static str,
    /// Its corners around (0, 0), about 1 away from it; y grows downwards.
    pub corners: &'static [(f64, f64)],
}

/// A colour on white and on black: Okabe and Ito's, darkened or lightened until each has a contrast
/// of 3 and more to its paper; their yellow is left out.
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
        symbol: "circle",
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
    Shape {
        symbol: "square",
        corners: &[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    },
    Shape { symbol: "triangle-up", corners: &[(0.0, -1.1), (1.05, 0.75), (-1.05, 0.75)] },
    Shape { symbol: "diamond", corners: &[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)] },
    Shape { symbol: "triangle-down", corners: &[(0.0, 1.1), (1.05, -0.75), (-1.05, -0.75)] },
    Shape {
        symbol: "cross",
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
    symbol: "x-open",
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

/// What INVALID points are called in legends.
pub(super) const INVALID_NAME: &str = "INVALID: the client was the limit";

const DASHES: [Option<(u32, u32)>; 4] = [None, Some((9, 4)), Some((3, 3)), Some((16, 5))];

/// The look of the series at this place of a figure.
pub(super) fn look(nth: usize) -> Look {
    Look {
        colour: nth % COLOURS.len(),
        shape: &SHAPES[nth % SHAPES.len()],
        dash: DASHES[nth % DASHES.len()],
    }
}

/// A colour as CSS has it.
pub(super) fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The contrast of two colours: WCAG 2.2, "contrast ratio".
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
    fn any_two_of_twelve_series_differ_in_shape_or_dash() {
        let looks: Vec<_> = (0..12).map(look).map(|look| (look.shape.symbol, look.dash)).collect();
        for (nth, one) in looks.iter().enumerate() {
            assert!(!looks[..nth].contains(one), "{nth}");
        }
    }
}
