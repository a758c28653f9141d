//! The text format of Prometheus, version 0.0.4: metrics in, lines out. Nothing here knows what is
//! counted.

use std::fmt::Write;

/// Media type of the format.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only rises while the server runs.
    Counter,
    /// It may fall.
    Gauge,
}

/// A metric.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) kind: Kind,
    /// Values, each with its label.
    pub(crate) samples: Vec<(Option<(&'static str, String)>, f64)>,
}

impl Metric {
    /// Creates a metric with one value.
    pub(crate) fn plain(name: &str, help: &str, kind: Kind, value: f64) -> Self {
        Self { name: name.into(), help: help.into(), kind, samples: vec![(None, value)] }
    }
}

/// Returns the lines.
pub(crate) fn text(metrics: &[Metric]) -> String {
    let mut text = String::with_capacity(metrics.len() * 160);
    for Metric { name, help, kind, samples } in metrics {
        let kind = if *kind == Kind::Counter { "counter" } else { "gauge" };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing into a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (label, value) in samples {
            let value = number(*value);
            let _ = match label {
                None => writeln!(text, "{name} {value}"),
                Some((key, of)) => {
                    let of = of.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                    writeln!(text, "{name}{{{key}=\"{of}\"}} {value}")
                }
            };
        }
    }
    text
}

/// Returns a value as the format has it.
fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".into() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_its_help_its_type_and_its_values() {
        let label = |of: &str| Some(("of", of.to_owned()));
        let metrics = [
            Metric::plain("most", "limit", Kind::Gauge, f64::INFINITY),
            Metric {
                name: "all_total".into(),
                help: "a \\ and\na line".into(),
                kind: Kind::Counter,
                samples: vec![(label("a"), 0.5), (label("\"\\\n"), 3e9)],
            },
        ];
        let expected = "\
            # HELP most limit\n\
            # TYPE most gauge\n\
            most +Inf\n\
            # HELP all_total a \\\\ and\\na line\n\
            # TYPE all_total counter\n\
            all_total{of=\"a\"} 0.5\n\
            all_total{of=\"\\\"\\\\\\n\"} 3000000000\n";
        assert_eq!(text(&metrics), expected);
    }
}
