//! A completed run as one JSON document. Keys carry their unit: `_us` microseconds, `_s` seconds,
//! `_per_s`, `_bytes`; shares are 0 to 1. A time of which there were none is null. Keys may be
//! added, but never change their meaning.

use std::io;

use serde::Serializer;
use serde::ser::SerializeMap;
use serde_json::{Value, json};

use super::second::{SecondFields, us};
use super::{RunReport, per_s, schedule_ns, seconds};
use crate::measure::{RunOutcome, TimeHistogram};

/// Writes the document, indented and followed by a newline.
///
/// # Errors
/// Any error of `out`.
pub fn write(out: &mut impl io::Write, run: &RunReport<'_>) -> io::Result<()> {
    let seconds = run.outcome.seconds.iter();
    let seconds = seconds.map(|second| SecondFields::new(second, run.description.threads));
    let mut serializer = serde_json::Serializer::pretty(&mut *out);
    let mut document = serializer.serialize_map(None)?;
    sections(run).iter().try_for_each(|(key, part)| document.serialize_entry(key, part))?;
    document.serialize_entry("seconds", &seconds.collect::<Vec<_>>())?;
    document.end()?;
    out.write_all(b"\n")
}

/// Returns the parts of the document but the seconds, in reading order.
fn sections(run: &RunReport<'_>) -> [(&'static str, Value); 13] {
    let outcome = run.outcome;
    let errors = outcome.counts.errors.rows().map(|(name, n)| (name, json!(n)));
    let good = ("good_response", &outcome.good_response);
    let clocks = outcome.times.rows().into_iter().chain([good]);
    let clocks = clocks.map(|(name, times)| (name, summary(times)));
    [
        ("verdict", verdict(run)),
        ("description", description(run)),
        ("conditions", conditions(run)),
        ("rates", rates(outcome)),
        ("counts", counts(outcome)),
        ("whole_run", whole_run(outcome)),
        ("errors", object(errors)),
        ("clocks", object(clocks)),
        ("clocks_definition", definition()),
        ("connections", connections(outcome)),
        ("sessions", json!({ "lifetime": summary(&outcome.sessions) })),
        ("packets", packets(outcome)),
        ("threads", threads(outcome)),
    ]
}

fn verdict(run: &RunReport<'_>) -> Value {
    let verdict = run.verdict;
    let metrics = &verdict.metrics;
    let has_starts = run.outcome.times.lag.count() > 0;
    let lag_us = |lag_ns| has_starts.then(|| us(lag_ns));
    json!({
        "verdict": if verdict.valid { "valid" } else { "INVALID" },
        "valid": verdict.valid,
        "rates_valid": verdict.rates_valid,
        "reasons": verdict.reasons,
        "notes": verdict.notes,
        "interrupted": run.outcome.interrupted,
        "lag_p50_us": lag_us(metrics.lag_p50_ns),
        "lag_p99_us": lag_us(metrics.lag_p99_ns),
        "lag_p999_us": lag_us(metrics.lag_p999_ns),
        "lag_max_us": lag_us(metrics.lag_max_ns),
        "achieved_share": metrics.achieved,
        "cpu_share": metrics.cpu,
        "cpu_share_busiest_second": metrics.busiest,
        "descriptors_left": metrics.descriptors_left,
        "ports_left": metrics.ports_left,
    })
}

fn description(run: &RunReport<'_>) -> Value {
    let description = run.description;
    json!({
        "command": description.command,
        "version": description.version,
        "date": description.date().to_string(),
        "url": description.url,
        "loop": description.loop_name(),
        "arrivals": description.arrivals,
        "workload": description.workload,
        "tls": description.tls,
        "shapes": description.connections,
        "duration_s": seconds(description.duration_ns),
        "warmup_s": seconds(description.warmup_ns),
        "cooldown_s": seconds(description.cooldown_ns),
        "timeout_s": seconds(description.timeout_ns),
        "deadline_s": (description.deadline_ns > 0).then(|| seconds(description.deadline_ns)),
        "threads": description.threads,
        "seed": description.seed,
    })
}

fn conditions(run: &RunReport<'_>) -> Value {
    let each = run.conditions.iter().map(|result| {
        json!({
            "condition": result.condition.to_string(),
            "holds": result.evaluation.map(|evaluation| evaluation.holds),
            "measured": result.evaluation.map(|evaluation| evaluation.measured),
            "unit": result.condition.unit(),
            "sentence": result.to_string(),
        })
    });
    each.collect()
}

fn rates(outcome: &RunOutcome) -> Value {
    let counts = &outcome.counts;
    let whole = |count| per_s(count, outcome.elapsed_ns);
    let scheduled = |count| per_s(count, schedule_ns(outcome));
    json!({
        "scheduled_s": seconds(schedule_ns(outcome)),
        "elapsed_s": seconds(outcome.elapsed_ns),
        // What is planned and started is so until the schedule ends; replies come after it too.
        "planned_per_s": scheduled(counts.planned),
        "arrivals_per_s": scheduled(counts.arrivals),
        "started_per_s": scheduled(counts.started),
        "replies_per_s": whole(counts.replies),
        // Those that came while it went on, of whatever was planned before: the server's rate.
        "replies_in_schedule_per_s": scheduled(outcome.replies_in_schedule),
        // Without the refusals among them.
        "good_replies_in_schedule_per_s": scheduled(outcome.good_in_schedule),
        "errors_per_s": whole(counts.errors.total()),
        "connects_per_s": whole(counts.connects),
        "handshakes_per_s": whole(counts.handshakes),
        "sessions_per_s": whole(counts.sessions),
        "sent_bytes_per_s": whole(counts.bytes_out),
        "received_bytes_per_s": whole(counts.bytes_in),
    })
}

/// Counts of weir's own TCP, over the whole run; null with the kernel's.
fn packets(outcome: &RunOutcome) -> Value {
    outcome.packets.map_or(Value::Null, |packets| {
        let tcp = packets.tcp;
        json!({
            "sent": packets.sent,
            "frames_through_af_xdp": packets.by_xdp,
            "dropped_behind_interface": packets.dropped,
            "refused": packets.refused,
            "received": packets.received,
            "overflowed": packets.overflowed,
            "malformed": packets.malformed,
            "of_no_connection": packets.strays,
            "lost_on_paths": packets.lost,
            "retransmitted": tcp.retransmitted,
            "timeouts": tcp.timeouts,
            "duplicates": tcp.duplicates,
            "out_of_order": tcp.out_of_order,
            "violations": {
                "data_after_fin": tcp.data_after_fin,
                "wrong_acks": tcp.wrong_acks,
                "shrunk_windows": tcp.shrunk_windows,
                "beyond_window": tcp.beyond_window,
            },
        })
    })
}

fn counts(outcome: &RunOutcome) -> Value {
    let [s1, s2, s3, s4, s5] = outcome.counts.statuses;
    let mut object = json!(outcome.counts);
    object["statuses"] = json!({ "1xx": s1, "2xx": s2, "3xx": s3, "4xx": s4, "5xx": s5 });
    object
}

/// Counts to compare with the server's own, under the names they have in `counts`. They include the
/// warm-up, of which the server does not know.
fn whole_run(outcome: &RunOutcome) -> Value {
    let counts = &outcome.whole_run;
    json!({
        "started": counts.started,
        "connected": counts.connected,
        "handshakes": counts.handshakes,
        "handshakes_resumed": counts.handshakes_resumed,
        "replies": counts.replies,
        "errors": counts.errors.total(),
        "abandoned": counts.abandoned,
        "background_opened": counts.background_opened,
        "background_replies": counts.background_replies,
    })
}

fn connections(outcome: &RunOutcome) -> Value {
    json!({
        "open_max": outcome.open_max,
        "open_limit": outcome.open_limit,
        "lifetime": summary(&outcome.lifetimes),
    })
}

fn threads(outcome: &RunOutcome) -> Value {
    let each = outcome.threads.iter().map(|thread| {
        json!({
            "user_s": seconds(thread.user_ns),
            "system_s": seconds(thread.system_ns),
            "cpu_share_busiest_second": thread.busiest,
        })
    });
    each.collect()
}

fn summary(times: &TimeHistogram) -> Value {
    let known = |time_us: f64| (times.count() > 0).then_some(time_us);
    let at = |quantile| known(us(times.at(quantile)));
    json!({
        "count": times.count(),
        "min_us": known(us(times.min())),
        "mean_us": known(times.mean() / 1e3),
        "stdev_us": known(times.stdev() / 1e3),
        "p50_us": at(0.5),
        "p75_us": at(0.75),
        "p90_us": at(0.9),
        "p95_us": at(0.95),
        "p99_us": at(0.99),
        "p999_us": at(0.999),
        "p9999_us": at(0.9999),
        "max_us": known(us(times.max())),
    })
}

/// Defines the seven timestamps, and the two timestamps between which each distribution lies.
/// States in the output what `measure::Timestamps` and `measure::Distributions` document.
fn definition() -> Value {
    let between = |from: &str, to: &str, of: &str| json!({ "from": from, "to": to, "of": of });
    json!({
        "clocks": {
            "planned": "when the request should have started",
            "started": "when it did: just before the connect, or the send on an open connection",
            "connected": "when its connection was known to be there; the start, on an open one",
            "secured": "when its TLS handshake was done; the start, on an open connection",
            "sent": "when its first byte was with the kernel",
            "first_byte": "when the first byte of the reply was read",
            "last_byte": "when the last byte of the reply was read",
        },
        "distributions": {
            "lag": between("planned", "started", "every start"),
            "connect": between("started", "connected", "every connection made"),
            "handshake": between("connected", "secured", "every TLS handshake done"),
            "send": between("secured", "sent", "whole replies; without TLS, from connected"),
            "wait": between("sent", "first_byte", "whole replies"),
            "transfer": between("first_byte", "last_byte", "whole replies"),
            "service": between("started", "last_byte", "whole replies"),
            "response": between("planned", "last_byte", "whole replies"),
            "good_response": between("planned", "last_byte", "whole replies of 2xx and 3xx"),
        },
    })
}

fn object(rows: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    rows.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::measure::{ErrorKind, SecondSummary};

    fn document(closed: bool, outcome: &RunOutcome) -> Value {
        let mut out = Vec::new();
        let conditions = ["p99>5ms", "connect.p99>1s", "errors>1%"];
        fixtures::rendered(closed, outcome, &conditions, |run| write(&mut out, run)).unwrap();
        assert_eq!(out.last(), Some(&b'\n'));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn the_document_holds_the_whole_run() {
        let document = document(false, &fixtures::outcome());
        assert_eq!(document["description"]["loop"], "open");
        assert_eq!(document["description"]["deadline_s"], Value::Null);
        assert_eq!(document["verdict"]["verdict"], "valid");
        assert_eq!(document["verdict"]["achieved_share"], 1.0);
        assert_eq!(document["counts"]["replies"], 990);
        assert_eq!(document["counts"]["statuses"]["4xx"], 10);
        assert_eq!(document["rates"]["planned_per_s"], 100.0);
        assert_eq!(document["rates"]["replies_per_s"], 82.5);
        assert_eq!(document["threads"][0]["system_s"], 2.0);
        assert_eq!(document["seconds"].as_array().unwrap().len(), 12);
        assert_eq!(document["seconds"][5]["replies"], 80);
        assert_eq!(document["seconds"][5]["cpu_share"], 0.25);
        assert_eq!(document["seconds"][5]["response_p99_us"], 6_000.0);
    }

    #[test]
    fn the_whole_run_has_what_the_warm_up_left_out() {
        let document = document(false, &fixtures::outcome());
        let expected = json!({
            "started": 1_100,
            "connected": 1_098,
            "handshakes": 0,
            "handshakes_resumed": 0,
            "replies": 1_089,
            "errors": 11,
            "abandoned": 0,
            "background_opened": 100,
            "background_replies": 0,
        });
        assert_eq!(document["whole_run"], expected);
        assert_eq!(document["counts"]["errors"], 10);
    }

    #[test]
    fn every_kind_of_error_is_there_and_zero_when_it_did_not_happen() {
        let document = document(false, &fixtures::outcome());
        let errors = document["errors"].as_object().unwrap();
        assert_eq!(errors.len(), ErrorKind::ALL.len());
        assert_eq!(errors["reply-timeout"], 4);
        assert_eq!(errors["fd-unavail"], 0);
    }

    #[test]
    fn each_distribution_is_in_microseconds_and_defined() {
        let document = document(false, &fixtures::outcome());
        let clocks = document["clocks"].as_object().unwrap();
        assert_eq!(clocks.len(), 9);
        for (name, summary) in clocks {
            assert_eq!(summary.as_object().unwrap().len(), 12, "{name}");
            let defined = &document["clocks_definition"]["distributions"][name];
            for end in ["from", "to"] {
                let clock = defined[end].as_str().unwrap();
                assert!(document["clocks_definition"]["clocks"][clock].is_string(), "{name}");
            }
        }
        let mean_us = clocks["service"]["mean_us"].as_f64().unwrap();
        assert!((mean_us / 5_280.0 - 1.0).abs() < 0.001, "{mean_us}");
    }

    #[test]
    fn times_of_which_there_were_none_are_null() {
        let silent = SecondSummary { length_ns: 1_000_000_000, ..SecondSummary::default() };
        let outcome = RunOutcome { seconds: vec![silent], ..RunOutcome::default() };
        let document = document(false, &outcome);
        for clock in document["clocks"].as_object().unwrap().values() {
            let mut times = clock.as_object().unwrap().iter().filter(|(key, _)| *key != "count");
            assert!(times.all(|(_, time)| time.is_null()), "{clock}");
            assert_eq!(clock["count"], 0);
        }
        let second = document["seconds"][0].as_object().unwrap().iter();
        let null = second.filter(|(_, value)| value.is_null()).map(|(key, _)| key.as_str());
        let mut null: Vec<&str> = null.collect();
        null.sort_unstable();
        let times = ["lag_p99_us", "response_max_us", "response_p50_us", "response_p99_us"];
        assert_eq!(null, times);
        assert!(document["verdict"]["lag_p99_us"].is_null(), "{document}");
    }

    #[test]
    fn conditions_come_with_what_was_measured() {
        let document = document(false, &fixtures::outcome());
        let conditions = document["conditions"].as_array().unwrap();
        assert_eq!(conditions[0]["holds"], true);
        assert_eq!(conditions[0]["unit"], "ms");
        assert_eq!(conditions[1]["holds"], false);
        assert_eq!(conditions[2]["measured"], 1.0);
    }

    #[test]
    fn an_invalid_run_and_a_closed_loop_say_so() {
        let document = document(true, &fixtures::invalid_outcome());
        assert_eq!(document["verdict"]["verdict"], "INVALID");
        assert_eq!(document["verdict"]["valid"], false);
        assert_eq!(document["verdict"]["achieved_share"], Value::Null);
        assert_eq!(document["description"]["loop"], "closed");
        assert!(document["verdict"]["notes"][0].as_str().unwrap().starts_with("Closed loop"));
    }
}
