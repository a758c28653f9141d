//! Admission to upstreams: what `auto` gives, beside the best of several fixed limits.
//!
//! Each case runs over a few seeds, or over as many as `WEIR_STORMS` says.

use weir_accept::Limit;
use weir_accept::upstream::UpstreamConfig;
use weir_sim::backend::{Backend, Impairment, Second, Service, run};

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

/// Answers as a share of what the workers can do.
fn share_of_capacity(seconds: &[Second], backend: &Backend) -> f64 {
    let each = backend.workers as f64 * 1e9 / backend.service_ns;
    answered(seconds) / (each * seconds.len() as f64)
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

#[test]
fn a_backend_that_becomes_slower_keeps_its_limit() {
    let impairment = Some(Impairment {
        during_ns: (20 * SECOND_NS, 30 * SECOND_NS),
        slowness: 3.0,
        workers_lost: 0,
    });
    let backend = Backend { impairment, ..backend(8, Service::Exponential, 2.0) };
    let seconds = run(&backend);
    let during = share_of_capacity(&seconds[21..29], &backend);
    let after = share_of_capacity(&seconds[32..], &backend);
    assert!(during > 0.3 && after > 0.95, "{during} {after}");
}

#[test]
fn nothing_is_refused_below_the_peak() {
    for service in LAWS {
        let seconds = run(&backend(8, service, 0.5));
        let refused: u64 = seconds.iter().map(|second| second.refused).sum();
        assert!(refused as f64 * 1000.0 <= answered(&seconds), "{service:?}: {refused}");
    }
}
