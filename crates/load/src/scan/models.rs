//! Scans of simulated servers, whose knee is known. A model computes the result of a point from its
//! rate and a seed, and runs nothing.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::{
    Estimate, MeasuredPoint, Point, PointPurpose, PointResult, Scan, ScanPlan, ScanSummary,
    SearchResult,
};
use crate::measure::ErrorKind;

/// Bound on the points of any scan: 64 of the search and 6 rates repeated three times.
const POINTS_MAX: usize = 64 + 18;

fn scan(plan: ScanPlan, mut model: impl FnMut(Point) -> PointResult) -> Scan {
    let mut scan = Scan::new(plan).unwrap();
    while let Some(point) = scan.next() {
        assert!(scan.measured().len() < POINTS_MAX, "the scan does not end");
        scan.report(point, model(point));
    }
    scan
}

/// A server that replies to at most `goodput_per_s` requests; the others are lost without a trace.
fn replies(point: Point, goodput_per_s: f64) -> PointResult {
    PointResult {
        planned_per_s: point.rate,
        due_per_s: point.rate,
        started_per_s: point.rate,
        goodput_per_s: goodput_per_s.min(point.rate),
        requests: (point.rate * point.duration_ns as f64 / 1e9) as u64,
        response_p50_ns: Some(1_000_000),
        response_p99_ns: Some(if goodput_per_s < point.rate { 900_000_000 } else { 5_000_000 }),
        response_max_ns: Some(1_000_000_000),
        ..PointResult::default()
    }
}

fn ideal(capacity: f64) -> impl FnMut(Point) -> PointResult {
    move |point| replies(point, capacity)
}

fn collapsing(capacity: f64) -> impl FnMut(Point) -> PointResult {
    move |point| replies(point, if point.rate > capacity { 0.15 * capacity } else { capacity })
}

fn noisy(capacity: f64, seed: u64) -> impl FnMut(Point) -> PointResult {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    move |point| replies(point, capacity * chance.random_range(0.95..1.05))
}

fn refusing(capacity: f64) -> impl FnMut(Point) -> PointResult {
    move |point| {
        let mut result = replies(point, capacity);
        let share = 1.0 - result.goodput_per_s / point.rate;
        let refused = (share * result.requests as f64) as u64;
        (0..refused).for_each(|_| result.errors.count(ErrorKind::ConnectRefused));
        result
    }
}

/// A client that begins at most `limit` requests per second, and reports so.
fn limited(
    limit: f64,
    mut server: impl FnMut(Point) -> PointResult,
) -> impl FnMut(Point) -> PointResult {
    move |point| {
        let mut result = server(Point { rate: point.rate.min(limit), ..point });
        (result.planned_per_s, result.due_per_s) = (point.rate, point.rate);
        result.invalid = (point.rate > limit).then(|| "starts were late".into());
        result
    }
}

/// Asserts that the knee is within `share` of the capacity.
fn assert_knee(summary: &ScanSummary, capacity: f64, share: f64) {
    let knee = summary.knee().unwrap_or_else(|| panic!("no knee: {:?}", summary.search_result));
    assert!((knee / capacity - 1.0).abs() <= share, "{knee} is not near {capacity}");
}

fn kept(summary: &ScanSummary) -> Vec<f64> {
    summary.kept.iter().map(|kept| kept.of_peak.value).collect()
}

#[test]
fn the_knee_of_an_ideal_server_is_its_capacity_and_nothing_is_lost_past_it() {
    for capacity in [3.0, 47.0, 100.0, 5_000.0, 123_456.0] {
        let summary = scan(ScanPlan::default(), ideal(capacity)).summary();
        assert_knee(&summary, capacity, 0.05);
        assert_eq!(kept(&summary), [1.0, 1.0]);
        let SearchResult::Knee { held, failed } = summary.search_result else { unreachable!() };
        assert!(failed > held && failed <= 1.05 * held, "{held} {failed}");
    }
}

#[test]
fn goodput_kept_by_a_collapsing_server_is_a_share_of_its_peak() {
    let summary = scan(ScanPlan::default(), collapsing(5_000.0)).summary();
    assert_knee(&summary, 5_000.0, 0.05);
    let peak = summary.peak.unwrap();
    assert_eq!(Some(peak.rate), summary.knee());
    let expected = 750.0 / peak.goodput.value;
    assert_eq!(kept(&summary), [expected, expected]);
    assert!((0.15..0.16).contains(&expected), "{expected}");
    let multiples: Vec<f64> = summary.kept.iter().map(|kept| kept.multiple).collect();
    assert_eq!(multiples, [2.0, 4.0]);
}

#[test]
fn noise_of_5_percent_moves_the_knee_by_less_than_10() {
    for seed in 0..40 {
        let summary =
            scan(ScanPlan { seed, ..ScanPlan::default() }, noisy(5_000.0, seed)).summary();
        assert_knee(&summary, 5_000.0, 0.10);
        for kept in &summary.kept {
            let Estimate { value, interval: Some(interval) } = kept.of_peak else { unreachable!() };
            assert!(interval.low >= 0.95 / 1.05 && interval.high <= 1.05 / 0.95, "{interval:?}");
            assert!((interval.low..=interval.high).contains(&value), "{value} {interval:?}");
        }
    }
}

#[test]
fn a_machine_that_stalls_now_and_then_does_not_hide_the_knee() {
    for seed in 0..40 {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let model = |point| {
            let share = if chance.random_bool(0.04) { 0.7 } else { 1.0 };
            let answer = replies(point, 5_000.0);
            PointResult { goodput_per_s: share * answer.goodput_per_s, ..answer }
        };
        assert_knee(&scan(ScanPlan::default(), model).summary(), 5_000.0, 0.10);
    }
}

#[test]
fn sessions_that_are_shorter_than_on_average_are_no_knee() {
    for seed in 0..40 {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        // About seven requests for each arrival, and all are answered.
        let model = |point: Point| {
            let due_per_s = point.rate * chance.random_range(6.5..8.0);
            PointResult { due_per_s, goodput_per_s: due_per_s, ..replies(point, f64::INFINITY) }
        };
        let summary = scan(ScanPlan::default(), model).summary();
        assert_eq!(summary.search_result, SearchResult::RateMax { held: 10_000_000.0 });
    }
}

#[test]
fn errors_past_the_knee_are_shown_by_kind_and_from_where_on() {
    let scan = scan(ScanPlan::default(), refusing(5_000.0));
    let summary = scan.summary();
    assert_knee(&summary, 5_000.0, 0.05);
    assert_eq!(summary.peak.unwrap().goodput.value, 5_000.0);
    let last = summary.rows.last().unwrap();
    assert!((0.74..0.76).contains(&last.error_share()), "{}", last.error_share());
    assert!(summary.errors_from.unwrap() > 5_000.0);
    let text = summary.to_text(80);
    assert!(text.contains("connect-refused"), "{text}");
    assert_eq!(summary.to_json()["rows"][0]["errors"]["connect-refused"], 0);
}

#[test]
fn errors_alone_are_a_knee() {
    let model = |point: Point| {
        let mut result = replies(point, f64::INFINITY);
        let failed = if point.rate > 2_000.0 { result.requests / 50 } else { 0 };
        (0..failed).for_each(|_| result.errors.count(ErrorKind::Reset));
        result
    };
    assert_knee(&scan(ScanPlan::default(), model).summary(), 2_000.0, 0.05);
}

#[test]
fn a_limit_of_the_response_time_is_a_knee() {
    let model = |point: Point| PointResult {
        response_p99_ns: Some((point.rate * 1_000.0) as u64),
        ..replies(point, f64::INFINITY)
    };
    let plan = ScanPlan { p99_ns_max: 3_000_000, ..ScanPlan::default() };
    assert_knee(&scan(plan, model).summary(), 3_000.0, 0.05);
}

#[test]
fn a_client_that_is_the_limit_finds_no_knee() {
    let scan = scan(ScanPlan::default(), limited(8_000.0, ideal(1e9)));
    let summary = scan.summary();
    assert_eq!((summary.knee(), summary.kept.len()), (None, 0));
    let SearchResult::ClientLimit { held: Some(held), invalid, .. } = summary.search_result else {
        panic!("{:?}", summary.search_result)
    };
    assert!(held <= 8_000.0 && invalid > 8_000.0 && invalid <= 1.05 * held, "{held} {invalid}");
    let sentence = summary.search_result.sentence();
    let start = format!("the server was not saturated: the client's limit is {held:.0}/s");
    assert!(sentence.starts_with(&start), "{sentence}");
    assert!(scan.measured().iter().all(|each| each.point.purpose == PointPurpose::Search));
}

#[test]
fn a_client_that_gives_out_past_the_knee_leaves_the_knee_and_spoils_what_is_beyond() {
    let summary = scan(ScanPlan::default(), limited(12_000.0, ideal(5_000.0))).summary();
    assert_knee(&summary, 5_000.0, 0.05);
    assert_eq!(kept(&summary), [1.0]);
    let last = summary.rows.last().unwrap();
    assert_eq!((last.valid, last.points, last.of_peak), (0, 3, None));
    let text = summary.to_text(80);
    assert!(text.contains("0 of 3, 3 INVALID: starts were late"), "{text}");
}

#[test]
fn a_dead_server_ends_the_scan_soon() {
    let scan = scan(ScanPlan::default(), ideal(0.0));
    let summary = scan.summary();
    assert_eq!(summary.search_result, SearchResult::NothingHeld { lowest: 2.0 });
    assert_eq!(scan.measured().len(), 4);
    assert_eq!(summary.peak, None);
    assert!(summary.to_text(80).contains("not even 2.0/s"));
}

#[test]
fn a_client_that_is_never_valid_says_nothing_of_the_server() {
    let summary = scan(ScanPlan::default(), limited(0.0, ideal(1e9))).summary();
    let SearchResult::ClientLimit { held: None, .. } = summary.search_result else {
        panic!("{:?}", summary.search_result)
    };
    assert_eq!(summary.peak, None);
}

#[test]
fn a_server_and_a_client_without_limit_end_at_the_highest_rate() {
    let summary = scan(ScanPlan::default(), ideal(1e9)).summary();
    assert_eq!(summary.search_result, SearchResult::RateMax { held: 10_000_000.0 });
}

#[test]
fn every_answer_ends_a_scan() {
    for seed in 0..300 {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let model = |point: Point| {
            let mut result = replies(point, chance.random_range(0.0..2.0) * point.rate);
            result.goodput_per_s *= if chance.random_bool(0.05) { f64::NAN } else { 1.0 };
            result.invalid = chance.random_bool(0.2).then(|| "chance".into());
            result
        };
        let summary = scan(ScanPlan::default(), model).summary();
        assert!(!summary.to_text(40).is_empty());
    }
}

#[test]
fn a_drifting_machine_makes_no_slope() {
    let mut speed = 1.0;
    let model = |point| {
        speed *=
            if matches!(point, Point { purpose: PointPurpose::Repeat, .. }) { 0.98 } else { 1.0 };
        replies(point, 5_000.0 * speed)
    };
    let summary = scan(ScanPlan { repetitions: 9, ..ScanPlan::default() }, model).summary();
    let past: Vec<f64> = summary
        .rows
        .iter()
        .filter(|row| row.purpose == PointPurpose::Repeat)
        .filter_map(|row| row.of_peak.map(|share| share.value))
        .collect();
    assert!(past.iter().all(|share| (0.9..=1.1).contains(share)), "{past:?}");
}

#[test]
fn an_interrupted_scan_is_unfinished() {
    let mut scan = Scan::new(ScanPlan::default()).unwrap();
    let point = scan.next().unwrap();
    assert_eq!(scan.next(), Some(point));
    let measured = scan.report(point, replies(point, 1e9));
    assert!(measured.held && measured.valid());
    assert_eq!(scan.summary().search_result, SearchResult::Unfinished);
}

#[test]
fn a_rate_without_replies_has_no_response_times() {
    let dead = |point: Point| {
        let mut result = replies(point, if point.rate > 1_000.0 { 0.0 } else { point.rate });
        if result.goodput_per_s == 0.0 {
            (result.response_p50_ns, result.response_p99_ns) = (None, None);
            result.response_max_ns = None;
        }
        result
    };
    let scan = scan(ScanPlan::default(), dead);
    let summary = scan.summary();
    let last = summary.rows.last().unwrap();
    assert_eq!(
        (last.response_p50_ns, last.response_p99_ns, last.response_max_ns),
        (None, None, None)
    );
    assert!(
        summary.to_json()["rows"].as_array().unwrap().last().unwrap()["response_p99_ns"].is_null()
    );
    let line = scan.measured().iter().find(|each| each.result.goodput_per_s == 0.0).unwrap();
    assert!(line.to_text().contains("p99 -, errors"), "{}", line.to_text());
    assert!(!summary.to_text(80).contains(" 0.00 "), "{}", summary.to_text(80));
}

#[test]
fn a_point_is_a_line_of_json_and_a_line_of_text() {
    let scan = scan(ScanPlan::default(), limited(8_000.0, ideal(1e9)));
    let of =
        |line: &MeasuredPoint| serde_json::from_str::<serde_json::Value>(&line.to_line()).unwrap();
    let lines: Vec<_> = scan.measured().iter().map(of).collect();
    assert_eq!((&lines[0]["rate"], &lines[0]["held"]), (&100.0.into(), &true.into()));
    assert!(lines[0]["invalid"].is_null());
    assert_eq!((&lines[0]["goodput_per_s"], lines[0].get("replies_per_s")), (&100.0.into(), None));
    assert!(lines.iter().any(|line| line["invalid"] == "starts were late"));
    assert!(scan.measured().iter().all(|each| each.to_line().ends_with("}\n")));
    let texts: Vec<String> = scan.measured().iter().map(MeasuredPoint::to_text).collect();
    assert!(texts[0].starts_with("search       100/s: goodput       100/s, p99"), "{}", texts[0]);
    assert!(texts[0].ends_with(": held"));
    assert!(texts.iter().any(|text| text.ends_with("INVALID: starts were late")));
}

#[test]
fn the_table_and_the_bars_mark_the_knee_and_fit_the_width() {
    let summary = scan(ScanPlan::default(), collapsing(5_000.0)).summary();
    let text = summary.to_text(60);
    let marked: Vec<&str> = text.lines().filter(|line| line.starts_with('*')).collect();
    let knee = format!("{:.0}", summary.knee().unwrap());
    assert_eq!(marked.len(), 2);
    assert!(marked.iter().all(|line| line.contains(&knee)));
    let bars: Vec<&str> = text.lines().filter(|line| line.contains('|')).collect();
    assert_eq!(bars.len(), summary.rows.len());
    assert!(bars.iter().all(|bar| bar.len() <= 60));
    assert_eq!(marked[1].matches('#').count(), 60 - 25);
    assert_eq!(text.matches("goodput/s").count(), 2, "{text}");
    assert!(text.contains("(3 values cannot make one worth more than 75 %)"), "{text}");
}

#[test]
fn the_json_has_the_knee_and_what_is_kept() {
    let json = scan(ScanPlan::default(), collapsing(5_000.0)).summary().to_json();
    let knee = json["finding"]["held"].as_f64().unwrap();
    assert_eq!(json["finding"]["kind"], "knee");
    assert_eq!(json["kept"][1]["rate"].as_f64(), Some(4.0 * knee));
    assert_eq!(json["kept"][1]["of_peak"]["interval"][0], json["kept"][1]["of_peak"]["median"]);
    assert_eq!(json["plan"]["repetitions"], 3);
    assert!(json["peak"]["goodput_per_s"]["median"].as_f64() > Some(0.0), "{json}");
    assert!(json["rows"][0]["goodput_per_s"]["median"].is_number(), "{json}");
    assert!(!json.to_string().contains("replies_per_s"), "{json}");
}
