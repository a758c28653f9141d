//! Tests of what is derived from readings: rates, the history, the sentence and the log's messages.

use super::*;
use crate::page::UpstreamState;
use crate::{Counters, TABLE};

/// Nanoseconds of a second.
const NS: u64 = 1_000_000_000;

fn counters(named: &[(&str, u64)]) -> Counters {
    let mut values = [0; TABLE.len()];
    for (name, value) in named {
        values[TABLE.iter().position(|row| row.name == *name).unwrap()] = *value;
    }
    Counters::from_values(&values)
}

fn reading(second: u64, named: &[(&str, u64)]) -> Reading {
    let total = reading::Part { counters: counters(named), cpu_ns: Some(second * NS / 2) };
    Reading {
        taken_ns: second * NS,
        elapsed_s: second as f64,
        target_ns: 20_000_000,
        workers: vec![(0, total.clone())],
        total,
        ..Reading::default()
    }
}

/// Returns the sentence about a second in which these were counted.
fn sentence(named: &[(&str, u64)], upstreams: &[UpstreamState]) -> Sentence {
    let mut history = History::default();
    history.add(reading(1, &[]));
    history.add(Reading { upstreams: upstreams.into(), ..reading(2, named) });
    history.sentence()
}

#[test]
fn rates_are_per_second_between_readings() {
    let before = reading(2, &[("status_2xx", 100), ("accepted", 7)]);
    let named = [("status_2xx", 300), ("status_5xx", 10), ("turned_away", 4), ("accepted", 7)];
    let more = [("refused_stale", 4), ("syn_dropped", 20), ("accept_queue", 3)];
    let timed = [("accept_queue_timed", 4), ("accept_queue_ns", 8_000_000)];
    let now = reading(4, &[&named[..], &more, &timed].concat());
    let sample = Sample::between(&before, &now);
    assert_eq!((sample.answered, sample.failed, sample.accepted), (100.0, 3.0, 0.0));
    assert_eq!(sample.refused, [10.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!((sample.offered(), sample.refused(Refused::Connection)), (115.0, 12.0));
    assert_eq!((sample.queue, sample.cpus, sample.queued_s), (3, Some(0.5), Some(0.002)));
    assert_eq!(Sample::of_workers(&before, &now), [(0, sample)]);
}

#[test]
fn what_is_dropped_at_random_is_estimated_from_its_share() {
    let named = [("accepted", 300), ("syn_random_ppm", 250_000)];
    let sample = Sample::between(&reading(1, &[]), &reading(2, &named));
    assert_eq!(sample.refused[0], 100.0);
    // The share of one loop is not that of what came to another.
    let worker = |named: &[(&str, u64)]| reading(2, named).total;
    let one = worker(&[("accepted", 100), ("syn_random_ppm", 500_000)]);
    let workers = vec![(0, one), (1, worker(&[("accepted", 900)]))];
    let total = reading(2, &[("accepted", 1000), ("syn_random_ppm", 500_000)]);
    let now = Reading { workers, ..total };
    assert_eq!(Sample::between(&reading(1, &[]), &now).refused[0], 100.0);
    assert_eq!(Sample::between(&reading(1, &[]), &now).accepted, 1000.0);
}

#[test]
fn a_history_has_the_last_samples_and_the_number_of_the_first() {
    let mut history = History::default();
    assert_eq!(history.sentence().condition, Condition::Unknown);
    assert!(!history.add(reading(0, &[])) && history.last().is_none());
    assert_eq!(history.sentence().condition, Condition::Unknown);
    for second in 1..=SAMPLES_MAX as u64 + 5 {
        assert!(history.add(reading(second, &[("status_2xx", second * second)])));
    }
    assert_eq!(history.samples().len(), SAMPLES_MAX);
    let json = history.to_json(0);
    let answered = json["history"]["answered"].as_array().unwrap();
    assert_eq!((answered.len(), &answered[0]), (SAMPLES_MAX, &11.into()));
    assert_eq!(json["history"]["first"], 5);
    let next = json["history"]["next"].as_u64().unwrap();
    for (since, count) in [(next - 2, 2), (next, 0), (u64::MAX, 0), (7, SAMPLES_MAX - 2)] {
        let columns = &history.to_json(since)["history"];
        assert_eq!(columns["refused"]["syn_filter"].as_array().unwrap().len(), count, "{since}");
        assert_eq!(columns["next"], next);
    }
    assert!(!history.add(reading(0, &[])), "a reading that is no later is no second");
}

#[test]
fn the_sentence_says_why_the_server_refuses() {
    let Sentence { condition, text } =
        sentence(&[("accepted", 1470), ("syn_dropped", 342), ("refused_stale", 1000)], &[]);
    let expected = "Refusing 74 % of new connections: 1,812/s arrive, 470/s can be served within \
                    20 ms.";
    assert_eq!((condition, &*text), (Condition::Refusing, expected));
    let upstream = UpstreamState {
        name: "app".into(),
        limit: Some(8),
        waiting: 12,
        servers: 2,
        servers_down: 1,
        ..UpstreamState::default()
    };
    let named = [("upstream_requests", 100), ("upstream_stale", 40), ("upstream_failed", 2)];
    let Sentence { condition, text } = sentence(&named, &[upstream]);
    let expected = "Refusing 40 % of requests for upstreams: 100/s arrive, 60/s find a place in \
                    time; 12 wait for the 8 places at upstream app. Upstream app has 1 of 2 \
                    servers down. Requests failed at upstreams: 2 in 1 s.";
    assert_eq!((condition, &*text), (Condition::Refusing, expected));
}

#[test]
fn what_is_told_as_refused_is_no_0_percent() {
    for (accepted, begins) in [(200, "Refusing 1 % of "), (10, "Refusing 10 % of ")] {
        let Sentence { text, .. } = sentence(&[("accepted", accepted), ("refused_stale", 1)], &[]);
        assert!(text.starts_with(begins), "{text}");
    }
    let Sentence { condition, .. } = sentence(&[("accepted", 201), ("refused_stale", 1)], &[]);
    assert_eq!(condition, Condition::Calm);
}

#[test]
fn the_sentence_counts_the_connections_refused_for_an_upstream() {
    let named = [("upstream_requests", 100), ("upstream_stale", 20), ("upstream_syn_dropped", 300)];
    let Sentence { condition, text } = sentence(&named, &[]);
    let expected = "Refusing 80 % of requests for upstreams: 400/s arrive, 80/s find a place in \
                    time; of those refused, 300/s had no connection yet.";
    assert_eq!((condition, &*text), (Condition::Refusing, expected));
}

#[test]
fn a_server_that_is_short_of_memory_says_so_first() {
    let named = [
        ("accepted", 100),
        ("status_2xx", 60),
        ("refused_memory", 30),
        ("refused_memory_requests", 10),
        ("refused_stale", 100),
        ("memory_used_bytes", 1_000 << 20),
        ("memory_limit_bytes", 1_024 << 20),
    ];
    let Sentence { condition, text } = sentence(&named, &[]);
    let expected = "Refusing 20 % of what comes for lack of memory: 1,000 MiB of 1,024 MiB are in \
                    use.";
    assert_eq!((condition, &*text), (Condition::Refusing, expected));
}

#[test]
fn a_lack_of_memory_is_no_overload_and_an_overload_beside_it_is_told_as_one() {
    let (mut history, mut announcer) = (History::default(), Announcer::default());
    let (mut told, mut stale) = (Vec::new(), 0);
    for second in 0..80 {
        stale += if (20..40).contains(&second) { 50 } else { 0 };
        let named = [
            ("accepted", 100 * second),
            ("status_2xx", 60 * second),
            ("refused_memory", 30 * second),
            ("refused_memory_requests", 10 * second),
            ("refused_stale", stale),
            ("memory_limit_bytes", 1 << 30),
        ];
        if history.add(reading(second, &named)) {
            told.extend(announcer.note(&history).map(|text| (second, text)));
            let text = history.sentence().text;
            assert!(text.contains("for lack of memory"), "{text}");
        }
    }
    let [(20, begins), (_, ends)] = &told[..] else { panic!("{told:?}") };
    assert!(begins.starts_with("an overload begins. Refusing "), "{begins}");
    assert!(begins.contains("of new connections") && !begins.contains("memory"), "{begins}");
    assert!(ends.contains(": 1,000 of ") || ends.contains(": 1000 of "), "{ends}");
}

#[test]
fn clients_beyond_their_limits_are_refused_and_not_answered() {
    // A 429 is one of the replies of 4xx, and a connection beyond the limit was accepted.
    let named = [
        ("status_2xx", 50),
        ("status_4xx", 950),
        ("refused_client_requests", 940),
        ("accepted", 100),
        ("refused_client_connections", 25),
        ("upstream_failed", 1),
    ];
    let Sentence { condition, text } = sentence(&named, &[]);
    let expected = "Refusing 94 % of requests by --client-requests: 940/s come from clients that \
                    have made as many as they may. Refusing 25 % of new connections by \
                    --client-connections: 25/s come from clients that have as many open as they \
                    may. Requests failed at upstreams: 1 in 1 s.";
    assert_eq!((condition, &*text), (Condition::Limiting, expected));
    let mut history = History::default();
    assert!(!history.add(reading(1, &[])) && history.add(reading(2, &named)));
    assert_eq!(history.overload(), None, "it is not on account of load");
    let sample = history.last().unwrap();
    assert_eq!((sample.answered, sample.limited(), sample.offered()), (60.0, 965.0, 1025.0));
    let json = sample.to_json();
    assert_eq!((&json["limited"], &json["answered"]), (&965.into(), &60.into()));
    let few = [("status_2xx", 999), ("status_4xx", 1), ("refused_client_requests", 1)];
    let text = sentence(&few, &[]).text;
    assert_eq!(text, "Calm: 999 requests/s are answered, and hardly anything is refused.");
    // What is refused because of load comes first.
    let both = [&named[..], &[("refused_stale", 50)]].concat();
    let Sentence { condition, text } = sentence(&both, &[]);
    assert_eq!(condition, Condition::Refusing);
    assert!(text.starts_with("Refusing 50 % of new") && text.contains("94 % of requests by"));
}

#[test]
fn a_server_that_refuses_nothing_is_calm_unless_something_has_failed() {
    for (named, condition, text) in [
        (&[][..], Condition::Calm, "Calm: no requests."),
        (
            &[("status_2xx", 4700), ("accepted", 50)],
            Condition::Calm,
            "Calm: 4,700 requests/s are answered, and nothing is refused.",
        ),
        (
            &[("status_2xx", 4), ("accepted", 4000), ("syn_dropped", 1)],
            Condition::Calm,
            "Calm: 4.0 requests/s are answered, and hardly anything is refused.",
        ),
        (
            &[("accepted", 470), ("overloaded_ns", NS)],
            Condition::Overloaded,
            "Overloaded: 470 connections/s are accepted, as many as can be served within 20 ms.",
        ),
        (
            &[("log_lines_lost", 12_345), ("accept_failed", 1)],
            Condition::Failing,
            "Accepts failed for lack of descriptors or memory: 1 in 1 s. Lines of the access log \
             were lost: 12,345 in 1 s.",
        ),
    ] {
        assert_eq!(sentence(named, &[]), Sentence { condition, text: text.into() });
    }
}

#[test]
fn an_overload_is_told_once_when_it_begins_and_once_when_it_has_ended() {
    let (mut history, mut announcer) = (History::default(), Announcer::default());
    let (mut accepted, mut dropped, mut told) = (0, 0, Vec::new());
    for second in 0..120 {
        // Two bursts, with a short pause in the first, and a blip right after.
        let is_refusing = matches!(second, 10..=19 | 24..=29 | 31 | 60 | 61);
        accepted += 100;
        dropped += if is_refusing { 300 } else { 0 };
        let named = [("accepted", accepted), ("status_2xx", accepted), ("syn_dropped", dropped)];
        if history.add(reading(second, &named)) {
            told.extend(announcer.note(&history).map(|text| (second, text)));
        }
    }
    let seconds: Vec<u64> = told.iter().map(|(second, _)| *second).collect();
    assert_eq!(seconds, [10, 41, 60, 71]);
    assert!(told[0].1.starts_with("an overload begins. Refusing 5"), "{}", told[0].1);
    // From its first second to the last in which something was refused, with the pauses between.
    assert!(told[1].1.contains(" after 22 s: 5,100 of 7,300 were "), "{}", told[1].1);
    assert!(told[3].1.contains(" after 2.0 s: 600 of 800 were "), "{}", told[3].1);
    assert!(told[1].1.ends_with("nothing is refused."), "{}", told[1].1);
    assert!(seconds.windows(2).all(|pair| pair[1] - pair[0] >= 10));
}
