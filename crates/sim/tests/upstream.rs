//! Admission to upstreams: what `auto` gives, beside the best of several fixed limits.
//!
//! Each case runs over a few seeds, or over as many as `WEIR_STORMS` says.

use weir_accept::Limit;
use weir_accept::upstream::UpstreamConfig;
use weir_sim::backend::{Backend, Impairment, Retransmission, Second, Service, Sharing, run};

const LAWS: [Service; 3] = [Service::Fixed, Service::Exponential, Service::HeavyTailed];

const SECOND_NS: u64 = 1_000_000_000;

/// Second from which `auto` is to have found its limit.
const FOUND_S: usize = 3;

fn seeds(otherwise: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("WEIR_STORMS").ok().and_then(|seeds| seeds.parse().ok());
    0..asked.unwrap_or(otherwise)
}

fn backend(workers: usize, service: Service, overload: f64) -> Backend {
    Backend::new(workers, service, 20e6, overload)
}

fn answered(seconds: &[Second]) -> f64 {
    seconds.iter().map(|second| second.answered).sum::<u64>() as f64
}

/// Answers from a second on, as a share of what the best fixed limit gives.
fn share_of_best(backend: &Backend, from_s: usize) -> f64 {
    let fixed = [1.0, 1.25, 1.5, 2.0, 4.0].map(|times| {
        let limit = Limit::Count((backend.workers as f64 * times) as u64);
        let admission = UpstreamConfig { limit, ..backend.admission };
        answered(&run(&Backend { admission, ..backend.clone() })[from_s..])
    });
    answered(&run(backend)[from_s..]) / fixed.into_iter().fold(0.0, f64::max)
}

#[test]
fn auto_finds_what_the_best_fixed_limit_gives() {
    for workers in [2, 8, 64] {
        for service in LAWS {
            for overload in [2.0, 10.0] {
                let count = if workers * overload as usize > 100 { 1 } else { 20 };
                for seed in seeds(count) {
                    let backend = Backend { seed, ..backend(workers, service, overload) };
                    let share = share_of_best(&backend, FOUND_S);
                    assert!(share >= 0.97, "{workers} {service:?} {overload} {seed}: {share}");
                }
            }
        }
    }
}

#[test]
fn the_search_for_a_lower_limit_costs_a_hundredth_at_most() {
    for (workers, service) in LAWS.into_iter().flat_map(|law| [(4, law), (8, law)]) {
        let mut sums = [0.0; 2];
        for seed in seeds(40) {
            let backend = backend(workers, service, 2.0);
            let backend = Backend { seed, duration_ns: 8 * SECOND_NS, ..backend };
            let limit = Limit::Count(workers as u64);
            let admission = UpstreamConfig { limit, ..backend.admission };
            let best = Backend { admission, ..backend.clone() };
            for (sum, backend) in sums.iter_mut().zip([backend, best]) {
                *sum += answered(&run(&backend)[FOUND_S..]);
            }
        }
        let share = sums[0] / sums[1];
        assert!(share >= 0.99, "{workers} {service:?}: {share}");
    }
}

/// Returns how many of 60 searches, at two workers with four times what they can do, leave so many
/// requests waiting in the server that its clients wait for too long in the ten seconds from the
/// third on: the 99th percentile is beyond the queue's target and twice that of the service time.
fn searches_that_end_too_high(service: Service, p99: f64) -> usize {
    let is_too_high = |seed| {
        let backend = flooded(Backend::new(2, service, 8e6, 4.0), seed);
        let backend = Backend { duration_ns: 13 * SECOND_NS, ..backend };
        p99_ms(&run(&backend)[FOUND_S..]) > 100.0 + 2.0 * 8.0 * p99
    };
    (0..60).filter(|seed| is_too_high(*seed)).count()
}

#[test]
fn few_searches_end_above_what_two_workers_need() {
    let counts = [(Service::Exponential, 100_f64.ln()), (Service::HeavyTailed, 10.8)]
        .map(|(service, p99)| searches_that_end_too_high(service, p99));
    assert!(counts[0] <= 1 && counts[1] <= 5, "{counts:?}");
}

#[test]
fn auto_stays_where_it_is_for_ten_minutes() {
    for service in LAWS {
        let backend = Backend { duration_ns: 600 * SECOND_NS, ..backend(8, service, 2.0) };
        let seconds = run(&backend);
        let limit = Limit::Count(8);
        let admission = UpstreamConfig { limit, ..backend.admission };
        let best = run(&Backend { admission, ..backend });
        for (minute, best) in seconds[FOUND_S..].chunks(60).zip(best[FOUND_S..].chunks(60)) {
            let share = answered(minute) / answered(best);
            assert!(share >= 0.97, "{service:?}: {share}");
        }
    }
}

/// Returns a time of twenty seconds in which a backend can do less.
fn impaired(slowness: f64, workers_lost: usize) -> Option<Impairment> {
    Some(Impairment { during_ns: (20 * SECOND_NS, 40 * SECOND_NS), slowness, workers_lost })
}

#[test]
fn auto_finds_it_whatever_a_request_takes() {
    // The limit has to be doubled three times, and a doubling takes a few service times.
    for (workers, service_ns, found_s) in [(2, 0.5e6, 3), (64, 2e9, 40)] {
        for service in LAWS {
            for seed in seeds(2) {
                let backend = Backend::new(workers, service, service_ns, 2.0);
                let duration_ns = if workers == 2 { 20 } else { 180 } * SECOND_NS;
                let share = share_of_best(&Backend { seed, duration_ns, ..backend }, found_s);
                assert!(share >= 0.97, "{workers} {service:?} {seed}: {share}");
            }
        }
    }
}

/// Runs a backend of two workers that can do 40,000 requests a second; returns it and its seconds.
fn quick(sharing: Sharing, seed: u64) -> (Backend, Vec<Second>) {
    let backend = Backend::new(2, Service::Exponential, 50e3, 2.0);
    let backend = Backend { seed, sharing, duration_ns: 12 * SECOND_NS, ..backend };
    let seconds = run(&backend);
    (backend, seconds)
}

#[test]
fn auto_spares_no_place_that_costs_next_to_nothing() {
    // Two in flight would be enough, and a proxy would wake for each reply.
    for seed in seeds(3) {
        let (_, seconds) = quick(Sharing::OneEach, seed);
        let mut limits: Vec<usize> = seconds.iter().map(|second| second.limit).collect();
        limits.sort_unstable();
        assert!((6..=48).contains(&limits[limits.len() / 2]), "{seed}: {limits:?}");
    }
}

#[test]
fn auto_spares_a_quick_backend_that_thrashes() {
    for seed in seeds(3) {
        let (backend, seconds) = quick(Sharing::All { loss_each: 0.01 }, seed);
        let admission = UpstreamConfig { limit: Limit::Count(8), ..backend.admission };
        let eight = answered(&run(&Backend { admission, ..backend }));
        let share = answered(&seconds) / eight;
        assert!(share >= 0.98, "{seed}: {share}");
    }
}

#[test]
fn auto_finds_the_peak_of_a_backend_that_thrashes() {
    let sharing = Sharing::All { loss_each: 0.01 };
    for workers in [8, 64] {
        for service in [Service::Fixed, Service::Exponential] {
            for seed in seeds(3) {
                let backend = Backend { seed, sharing, ..backend(workers, service, 2.0) };
                let share = share_of_best(&backend, FOUND_S);
                assert!(share >= 0.97, "{workers} {service:?} {seed}: {share}");
            }
        }
    }
}

#[test]
fn auto_is_lowered_where_clients_leave_before_they_are_answered() {
    // Of eight in flight, the limit at the start, hardly any is answered in time. There are few
    // replies to learn from: five to ten a second.
    for (workers, service_ns) in [(1, 100e6), (1, 200e6), (2, 200e6)] {
        for (service, least) in [(Service::Fixed, 0.95), (Service::Exponential, 0.6)] {
            for overload in [2.0, 10.0] {
                for seed in seeds(5) {
                    let backend = Backend::new(workers, service, service_ns, overload);
                    let (patience_ns, duration_ns) = (SECOND_NS / 2, 240 * SECOND_NS);
                    let backend = Backend { patience_ns, duration_ns, seed, ..backend };
                    let share = share_of_best(&backend, 90);
                    assert!(share >= least, "{workers} {service:?} {overload} {seed}: {share}");
                }
            }
        }
    }
}

#[test]
fn a_part_that_hangs_does_not_take_the_rest_of_the_backend_along() {
    // Eight requests a second are never replied to, and their clients leave after one.
    for seed in seeds(3) {
        let backend = Backend { seed, ..backend(8, Service::Exponential, 2.0) };
        let whole = answered(&run(&backend)[FOUND_S..]);
        let (hung_share, patience_ns) = (0.01, SECOND_NS);
        let rest = answered(&run(&Backend { hung_share, patience_ns, ..backend })[FOUND_S..]);
        assert!(rest >= 0.6 * whole, "{seed}: {}", rest / whole);
    }
}

#[test]
fn a_backend_that_becomes_slower_keeps_its_limit() {
    for seed in seeds(5) {
        let impairment = impaired(3.0, 0);
        let backend = Backend { seed, impairment, ..backend(8, Service::Exponential, 2.0) };
        let share = share_of_best(&backend, FOUND_S);
        assert!(share >= 0.97, "{seed}: {share}");
    }
}

/// Runs a backend of eight workers at ten times its capacity under other policies.
fn run_under(policy: &'static str, queue_policy: &'static str, limit: Limit) -> Vec<Second> {
    let backend = backend(8, Service::Fixed, 10.0);
    let admission = UpstreamConfig { policy, queue_policy, limit, ..backend.admission };
    run(&Backend { admission, high_share: 0.05, ..backend })
}

fn p99_ms(seconds: &[Second]) -> f64 {
    let mut all: Vec<u32> = seconds.iter().flat_map(|each| each.responses_us.clone()).collect();
    all.sort_unstable();
    f64::from(all[all.len() * 99 / 100]) / 1000.0
}

#[test]
fn aimd_grows_to_its_maximum_where_nothing_is_late() {
    assert_eq!(run_under("aimd", "fresh", Limit::Auto)[59].limit, 200);
}

#[test]
fn vegas_keeps_a_few_queued_in_the_server() {
    let limit = run_under("vegas", "fresh", Limit::Auto)[59].limit;
    assert!((8..=24).contains(&limit), "{limit}");
}

#[test]
fn codel_serves_what_has_waited_for_five_milliseconds_at_most() {
    let seconds = run_under("auto", "codel", Limit::Count(8));
    assert!(p99_ms(&seconds[1..]) <= 26.0, "{}", p99_ms(&seconds[1..]));
}

#[test]
fn dagor_admits_as_many_users_as_wait_for_twenty_milliseconds() {
    let seconds = run_under("auto", "dagor", Limit::Count(8));
    // The first windows admit all, a twentieth less each.
    let late = &seconds[50..];
    let high: u64 = late.iter().map(|second| second.answered_high).sum();
    // A twentieth of ten times the capacity is half of what is answered.
    assert!(high as f64 > 0.4 * answered(late), "{high} of {}", answered(late));
}

#[test]
fn the_high_class_is_answered_and_the_other_does_not_starve() {
    for (high_share, least, most) in [(0.05, 0.45, 0.55), (0.5, 0.8, 0.89)] {
        let backend = Backend { high_share, ..backend(8, Service::Exponential, 10.0) };
        let seconds = run(&backend);
        let high: u64 = seconds.iter().map(|second| second.answered_high).sum();
        let share = high as f64 / answered(&seconds);
        assert!((least..=most).contains(&share), "{high_share}: {share}");
    }
}

#[test]
fn nothing_is_refused_below_the_peak() {
    for service in LAWS {
        let seconds = run(&backend(8, service, 0.5));
        let refused: u64 = seconds.iter().map(|second| second.refused).sum();
        assert!(refused as f64 * 1000.0 <= answered(&seconds), "{service:?}: {refused}");
    }
}

/// Returns a server and a proxy on one processor, of which a refusal takes a twentieth of a
/// request's time.
fn on_one_processor(overload: f64, sheds: bool) -> Backend {
    let backend = Backend::new(1, Service::Exponential, 2e6, overload);
    let (sharing, duration_ns) = (Sharing::All { loss_each: 0.0 }, 30 * SECOND_NS);
    Backend { sharing, refusal_ns: 100_000, sheds, duration_ns, ..backend }
}

fn sums(seconds: &[Second]) -> [u64; 3] {
    let sum = |of: fn(&Second) -> u64| seconds.iter().map(of).sum();
    [sum(|each| each.refused), sum(|each| each.dropped), sum(|each| each.dropped_idle)]
}

#[test]
fn a_flood_costs_the_backend_little_when_its_syns_are_dropped() {
    for seed in seeds(5) {
        let [peak, with, without] =
            [(2.0, 0, false), (10.0, 100_000, true), (10.0, 100_000, false)]
                .map(|(overload, refusal_ns, sheds)| {
                    run(&Backend { refusal_ns, seed, ..on_one_processor(overload, sheds) })
                })
                .map(|seconds| {
                    let [refused, dropped, idle] = sums(&seconds[FOUND_S..]);
                    assert_eq!(idle, 0, "dropped while a place was free");
                    (answered(&seconds[FOUND_S..]), refused as f64, dropped)
                });
        let shares = [with.0 / peak.0, without.0 / peak.0];
        assert!(shares[0] >= 0.97 && shares[1] <= 0.75, "{seed}: {shares:?}");
        assert!(with.1 <= with.0 * 0.4 && with.2 > 0, "{seed}: {with:?} of {}", peak.0);
    }
}

#[test]
fn no_syn_is_dropped_below_twice_what_can_be_served() {
    for overload in [0.5, 0.95, 1.2, 2.0] {
        for seed in seeds(5) {
            let backend = Backend { refusal_ns: 0, seed, ..on_one_processor(overload, true) };
            assert_eq!(sums(&run(&backend))[1], 0, "{overload} {seed}");
        }
    }
}

#[test]
fn every_syn_passes_once_a_flood_has_ended() {
    for seed in seeds(5) {
        let change = Some((10 * SECOND_NS, 0.05));
        let seconds = run(&Backend { change, seed, ..on_one_processor(10.0, true) });
        assert!(sums(&seconds[..10])[1] > 0, "{seed}");
        assert_eq!(sums(&seconds[11..]), [0; 3], "{seed}");
    }
}

/// Returns a flood whose clients wait for two seconds, and send a SYN that was dropped again.
fn with_retransmissions(overload: f64, retransmission: Retransmission, seed: u64) -> Backend {
    let (patience_ns, retransmission) = (2 * SECOND_NS, Some(retransmission));
    Backend { patience_ns, retransmission, seed, ..on_one_processor(overload, true) }
}

#[test]
fn a_client_whose_syn_was_dropped_delays_no_new_one() {
    // The queue's target, and twice the 99th percentile of an exponential law with a mean of 2 ms.
    let at_most_ms = 100.0 + 2.0 * 2.0 * 100_f64.ln();
    for overload in [4.0, 10.0] {
        for seed in seeds(5) {
            let [alike, behind] = [Retransmission::Alike, Retransmission::Behind].map(|rule| {
                let seconds = run(&with_retransmissions(overload, rule, seed));
                let late = &seconds[FOUND_S..];
                assert_eq!(sums(late)[2], 0, "dropped while a place was free");
                (answered(late), p99_ms(late))
            });
            assert!(behind.0 >= 0.99 * alike.0, "{overload} {seed}: {behind:?} of {alike:?}");
            assert!(alike.1 > 1000.0, "{overload} {seed}: {alike:?}");
            assert!(behind.1 <= at_most_ms, "{overload} {seed}: {behind:?}");
        }
    }
}

#[test]
fn clients_whose_syns_were_dropped_are_served_once_a_flood_has_ended() {
    for seed in seeds(5) {
        let change = Some((10 * SECOND_NS, 0.05));
        let flood = with_retransmissions(10.0, Retransmission::Behind, seed);
        let seconds = run(&Backend { change, patience_ns: 4 * SECOND_NS, ..flood });
        assert_eq!(sums(&seconds[14..]), [0; 3], "{seed}");
        // In a second come some 5,000, of which a tenth can be served.
        let late = seconds[10..14].iter().flat_map(|each| &each.responses_us);
        let waited = late.filter(|response_us| **response_us > 1_000_000).count();
        assert!(waited > 300, "{seed}: {waited}");
    }
}

/// Returns a server that can do 500 requests a second, in a flood of clients as above.
fn many_workers(workers: usize, service: Service, overload: f64, seed: u64) -> Backend {
    let backend = Backend::new(workers, service, workers as f64 * 2e6, overload);
    Backend { duration_ns: 30 * SECOND_NS, ..flooded(backend, seed) }
}

/// Returns a server in a flood of clients that wait for two seconds, and send a SYN that was
/// dropped again.
fn flooded(mut backend: Backend, seed: u64) -> Backend {
    backend.patience_ns = 2 * SECOND_NS;
    backend.retransmission = Some(Retransmission::Behind);
    (backend.sheds, backend.seed) = (true, seed);
    backend
}

#[test]
fn new_clients_have_the_many_places_that_become_free_at_once() {
    // With the 99th percentiles of the laws, in means.
    let laws = LAWS.into_iter().zip([1.0, 100_f64.ln(), 10.8]);
    let kinds = laws.flat_map(|law| [2, 8, 64].map(|workers| (workers, law)));
    let floods = || [3.0, 4.0, 10.0].into_iter().flat_map(|n| seeds(3).map(move |seed| (n, seed)));
    for (workers, (service, p99)) in kinds {
        let at_most_ms = 100.0 + 2.0 * 2.0 * workers as f64 * p99;
        for (overload, seed) in floods() {
            let backend = many_workers(workers, service, overload, seed);
            let [with, without] =
                [true, false].map(|sheds| run(&Backend { sheds, ..backend.clone() }));
            let case = format!("{workers} {service:?} {overload} {seed}");
            let share = answered(&with[FOUND_S..]) / answered(&without[FOUND_S..]);
            assert!(share >= 0.999, "{case}: {share}");
            let [response_ms, otherwise_ms] = [&with, &without].map(|all| p99_ms(&all[FOUND_S..]));
            // Nobody waits for as long as that bound where 64 workers have heavy-tailed times.
            let is_near = service != Service::HeavyTailed || response_ms <= 1.25 * otherwise_ms;
            assert!(is_near, "{case}: {response_ms} ms of {otherwise_ms}");
            assert!(response_ms <= at_most_ms, "{case}: {response_ms} ms, at most {at_most_ms}");
            assert_eq!(sums(&with)[2], 0, "{case}: a first SYN was dropped while a place was free");
        }
    }
}

#[test]
fn dagor_refuses_hardly_any_at_half_of_the_peak() {
    for seed in seeds(5) {
        let backend = Backend::new(8, Service::Exponential, 100e6, 0.5);
        let (queue_policy, limit) = ("dagor", Limit::Count(8));
        let admission = UpstreamConfig { queue_policy, limit, ..backend.admission };
        let seconds = run(&Backend { admission, seed, ..backend });
        let refused: u64 = seconds.iter().map(|second| second.refused).sum();
        // Few wait, and those that do for 25 ms on average.
        assert!((refused as f64) < 0.01 * answered(&seconds), "{seed}: {refused}");
    }
}
