//! Made-up experiments and points with known medians, for tests.

use crate::experiment::Experiment;
use crate::paper::Paper;
use crate::record::{Key, Line, LoadResult, Point, ServerResult, Times};

/// Two servers at 1, 2 and 4 times the capacity of the first, in three rounds.
pub(super) const TEXT: &str = r#"
title = "Two servers"
question = "Which is faster?"
about = """
One
paragraph.

Another."""
[[server]]
id = "one"
label = "accept 1"
kind = "weir"
[[server]]
id = "two"
label = "nginx"
kind = "nginx"
gzip = true
[[sweep]]
id = "up"
x = "rate"
values = [1, 2, 4]
rate-unit = "reference"
reference = "one"
burn-us = 60
[[figure]]
id = "fig-1"
title = "Replies"
sweep = "up"
y = ["reply_rate"]
[[table]]
id = "table-1"
title = "At the end"
sweep = "up"
columns = ["reply_rate", "response_p99"]
"#;

pub(super) fn experiment() -> Experiment {
    Experiment::parse(TEXT).unwrap()
}

/// Returns a paper with these values and claims.
pub(super) fn paper(rest: &str) -> Paper {
    let head = "title = \"P\"\nauthors = \"A\"\nyear = 2004\nset-up = \"Old machines.\"\n";
    Paper::parse(&format!("{head}{rest}")).unwrap()
}

pub(super) fn key(server: &str, x: f64, round: u32) -> Key {
    let (experiment, sweep) = ("p/e".to_owned(), "up".to_owned());
    Key { experiment, sweep, server: server.to_owned(), x, round }
}

/// Returns a valid point with these replies per second, a rate of 1000 times `x` and a p99 of 1 ms.
pub(super) fn point(server: &str, x: f64, round: u32, replies_per_s: f64) -> Point {
    let response = Some(Times { count: 1, p99_us: Some(1000.0), ..Times::default() });
    Point {
        key: key(server, x, round),
        began: "2004-01-01T00:00:00Z".to_owned(),
        took_s: 5.0,
        rate: Some(1000.0 * x),
        load: LoadResult { valid: true, replies_per_s, response, ..LoadResult::default() },
        server: ServerResult { command: format!("{server} --run"), ..ServerResult::default() },
        ..Point::default()
    }
}

pub(super) fn line(server: &str, x: f64, round: u32, replies_per_s: f64) -> Line {
    Line::Point(Box::new(point(server, x, round, replies_per_s)))
}

/// Returns a point whose generator could not keep up.
pub(super) fn invalid(server: &str, x: f64, round: u32, why: &str) -> Line {
    let mut point = point(server, x, round, 1e6);
    point.load.valid = false;
    point.load.reasons = vec![why.to_owned()];
    Line::Point(Box::new(point))
}

/// Returns three rounds of points of a server: replies per second at each value.
pub(super) fn lines(server: &str, at: &[(f64, [f64; 3])]) -> Vec<Line> {
    let rounds = at.iter().flat_map(|(x, rates)| (0..).zip(rates).map(move |(r, v)| (*x, r, *v)));
    rounds.map(|(x, round, rate)| line(server, x, round, rate)).collect()
}

/// Returns the points of both servers: the first loses throughput past its peak, the second does
/// not.
pub(super) fn both() -> Vec<Line> {
    let mut all = lines(
        "one",
        &[(1.0, [900.0, 1000.0, 1100.0]), (2.0, [1200.0; 3]), (4.0, [600.0, 500.0, 550.0])],
    );
    all.extend(lines(
        "two",
        &[(1.0, [990.0, 1100.0, 1210.0]), (2.0, [1500.0, 1600.0, 1400.0]), (4.0, [1500.0; 3])],
    ));
    all
}
