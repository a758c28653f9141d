//! The interactive part of the page: ECharts, compressed, the figures as data, and our own script,
//! which unpacks the library and draws the data. Colours are read from the style sheet.

use std::io;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use brotli::Decompressor;
use flate2::Compression;
use flate2::write::GzEncoder;
use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

use crate::findings::{Mark, Picture, Series};
use crate::report::number::{interval, number, unit_of, with_unit};
use crate::report::scale;
use crate::report::series_style::{INVALID, INVALID_NAME, series_style};

const SCRIPT: &str = include_str!("page.js");

/// The figures of a page, in its order.
#[derive(Default)]
pub(super) struct Figures(Vec<Value>);

impl Figures {
    /// Adds a figure and returns its index.
    pub(super) fn add(&mut self, picture: &Picture) -> usize {
        let all = picture.series.iter().enumerate();
        self.0.push(json!({
            "x": axis(&picture.x_label, picture.x_log),
            "y": axis(&picture.y_label, picture.y_log),
            "room": scale::cut_off(picture).map(|range| [range.start, range.end]),
            "series": all.map(|(nth, one)| series(picture, nth, one)).collect::<Vec<_>>(),
        }));
        self.0.len() - 1
    }

    /// Returns the scripts; empty without a figure.
    pub(super) fn scripts(&self) -> Markup {
        if self.0.is_empty() {
            return html! {};
        }
        let data = inert(&Value::Array(self.0.clone()));
        html! {
            script type="text/plain" id="engine" { (PreEscaped(engine())) }
            script type="application/json" id="figures" { (PreEscaped(data)) }
            script { (PreEscaped(SCRIPT)) }
        }
    }
}

fn axis(label: &str, log: bool) -> Value {
    json!({ "label": label, "log": log })
}

fn series(picture: &Picture, nth: usize, series: &Series) -> Value {
    let look = series_style(nth, series.stroke);
    let marks: Vec<&Mark> = series.marks.iter().collect();
    let at = |part: fn(&Mark) -> Option<f64>| -> Vec<Option<f64>> {
        marks.iter().map(|mark| part(mark).filter(|value| value.is_finite())).collect()
    };
    let invalid: Vec<&&Mark> = marks.iter().filter(|mark| mark.invalid_value.is_some()).collect();
    json!({
        "colour": look.ink.variable(),
        "corners": look.shape.map(|shape| shape.corners),
        "steps": look.steps,
        "joined": look.joined,
        "dash": look.dash.map(|(dash, gap)| [dash, gap]),
        "x": at(|mark| Some(mark.x)),
        "y": at(|mark| mark.estimate.map(|e| e.value)),
        "up": at(|mark| mark.estimate.map(|e| e.high - e.value)),
        "down": at(|mark| mark.estimate.map(|e| e.value - e.low)),
        "text": marks.iter().map(|mark| said(picture, series, mark)).collect::<Vec<_>>(),
        "invalid": {
            "corners": INVALID.corners,
            "x": invalid.iter().map(|mark| mark.x).collect::<Vec<_>>(),
            "y": invalid.iter().map(|mark| mark.invalid_value).collect::<Vec<_>>(),
            "text": invalid.iter().map(|m| said_invalid(picture, series, m)).collect::<Vec<_>>(),
        },
    })
}

/// Returns the hover text of a point.
fn said(picture: &Picture, series: &Series, mark: &Mark) -> String {
    let Some(estimate) = mark.estimate else { return String::new() };
    let value = with_unit(estimate.value, unit_of(&picture.y_label));
    let flagged = match mark.flagged {
        0 => String::new(),
        some => format!(", {some} flagged"),
    };
    let around = interval(&estimate, number);
    format!("{}: <b>{}</b> ({around}{flagged})", drawn(&series.label), drawn(&value))
}

fn said_invalid(picture: &Picture, series: &Series, mark: &Mark) -> String {
    let value = mark.invalid_value.map(|value| with_unit(value, unit_of(&picture.y_label)));
    let (label, value) = (drawn(&series.label), drawn(&value.unwrap_or_default()));
    format!("{label}: {value}, {INVALID_NAME}")
}

/// Escapes a text for the label of a point, which is HTML.
fn drawn(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Serialises JSON for a script element: it contains nothing that opens or closes one.
fn inert(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e")
}

/// Library that draws the figures, compressed; the build script takes it out of its crate.
const ENGINE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/echarts.min.js.br"));

/// Returns ECharts, compressed as browsers can unpack it, and encoded as text.
fn engine() -> &'static str {
    static PACKED: OnceLock<String> = OnceLock::new();
    // A memory takes every byte, and what the build packed can be unpacked: a test looks.
    PACKED.get_or_init(|| STANDARD.encode(repacked().unwrap_or_default()))
}

/// Unpacks ECharts from Brotli, which no script of a page can undo, and packs it as gzip, which
/// is a third larger.
fn repacked() -> io::Result<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    io::copy(&mut Decompressor::new(ENGINE, 1 << 16), &mut packer)?;
    packer.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::report::fixtures::{self, HOSTILE};

    #[test]
    fn the_engine_is_echarts_alone_and_small() {
        let packed = engine();
        assert!(packed.len() < 600_000, "{}", packed.len());
        let bytes = STANDARD.decode(packed).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        assert!(text.contains("echarts") && !text.contains("</script>"));
        assert!(text.len() > 900_000 && text.len() < 1_500_000, "{}", text.len());
    }

    #[test]
    fn data_opens_and_closes_no_element_and_reads_back() {
        let value = json!([HOSTILE]);
        let text = inert(&value);
        assert!(!text.contains(['<', '>']));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_hostile_label_is_text_at_a_point() {
        assert_eq!(drawn("<b>a</b> & b"), "&lt;b&gt;a&lt;/b&gt; &amp; b");
    }

    #[test]
    fn the_pointer_is_told_value_unit_interval_and_what_is_wrong() {
        let picture = &fixtures::findings().chapters[0].pictures[0];
        let first = &picture.series[0];
        assert_eq!(said(picture, first, &first.marks[0]), "accept 1: <b>4,000 /s</b> (one point)");
        assert!(said(picture, first, &first.marks[3]).ends_with("n = 5, 1 flagged)"));
        let second = &picture.series[1];
        let text = said_invalid(picture, second, second.marks.last().unwrap());
        assert!(text.starts_with("accept 10: ") && text.ends_with(INVALID_NAME), "{text}");
    }
}
