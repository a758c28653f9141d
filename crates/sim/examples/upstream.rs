//! Prints what the policies of admission to an upstream give on several backends: answers from the
//! third second to the sixtieth, of those that the workers can give, and the 99th percentile of
//! the response time. Each figure is the mean over as many seeds as the argument says.

use weir_accept::Limit;
use weir_accept::upstream::UpstreamConfig;
use weir_sim::backend::{Backend, Impairment, Service, Sharing, run};

/// Second from which answers count.
const FROM_S: usize = 3;

/// Names of policies: for the number in flight, or a fixed number per worker; for the queue.
const POLICIES: [(&str, Option<f64>, &str); 9] = [
    ("auto", None, "fresh"),
    ("fixed, 1 per worker", Some(1.0), "fresh"),
    ("fixed, 2 per worker", Some(2.0), "fresh"),
    ("fixed, 1 per worker", Some(1.0), "codel"),
    ("aimd", None, "fresh"),
    ("gradient", None, "fresh"),
    ("vegas", None, "fresh"),
    ("auto", None, "codel"),
    ("auto", None, "dagor"),
];

fn backends() -> Vec<(String, Backend)> {
    let mut backends = Vec::new();
    for workers in [2, 8, 64] {
        for (name, service) in [
            ("fixed", Service::Fixed),
            ("exponential", Service::Exponential),
            ("heavy-tailed", Service::HeavyTailed),
        ] {
            let backend = Backend::new(workers, service, 20e6, 10.0);
            backends.push((format!("{workers} workers, {name}"), backend));
        }
    }
    let plain = Backend::new(8, Service::Exponential, 20e6, 10.0);
    let sharing = Sharing::All { loss_each: 0.01 };
    backends
        .push(("8 processors, 1 % lost per excess".into(), Backend { sharing, ..plain.clone() }));
    backends
        .push(("8 workers, own limit 10".into(), Backend { refuses_beyond: 10, ..plain.clone() }));
    let impairment = |slowness, workers_lost| {
        let during_ns = (20_000_000_000, 30_000_000_000);
        Some(Impairment { during_ns, slowness, workers_lost })
    };
    backends.push((
        "8 workers, 10 s three times slower".into(),
        Backend { impairment: impairment(3.0, 0), ..plain.clone() },
    ));
    backends.push((
        "8 workers, 10 s without 4".into(),
        Backend { impairment: impairment(1.0, 4), ..plain },
    ));
    backends
}

/// Returns the share of the capacity, percent, and the 99th percentile, milliseconds.
fn measure(backend: &Backend, seeds: u64) -> (f64, f64) {
    let (mut answered, mut responses_us) = (0, Vec::new());
    for seed in 0..seeds {
        for second in run(&Backend { seed, ..backend.clone() }).into_iter().skip(FROM_S) {
            answered += second.answered;
            responses_us.extend(second.responses_us);
        }
    }
    responses_us.sort_unstable();
    let seconds = seeds as f64 * (backend.duration_ns as f64 / 1e9 - FROM_S as f64);
    let capacity = backend.workers as f64 * 1e9 / backend.service_ns * seconds;
    let p99_us = responses_us.get(responses_us.len() * 99 / 100).copied().unwrap_or(0);
    (100.0 * answered as f64 / capacity, f64::from(p99_us) / 1000.0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seeds = std::env::args().nth(1).map_or(Ok(3), |seeds| seeds.parse())?;
    print!("| backend, offered 10 × |");
    POLICIES.iter().for_each(|(name, _, queue)| print!(" {name}; {queue} |"));
    println!("\n|{}", "---|".repeat(POLICIES.len() + 1));
    for (name, backend) in backends() {
        print!("| {name} |");
        for (policy, each, queue_policy) in POLICIES {
            let limit = each
                .map_or(Limit::Auto, |each| Limit::Count((backend.workers as f64 * each) as u64));
            let policy = if each.is_some() { "auto" } else { policy };
            let admission = UpstreamConfig { policy, limit, queue_policy, ..backend.admission };
            let (share, p99_ms) = measure(&Backend { admission, ..backend.clone() }, seeds);
            print!(" {share:.1} %, {p99_ms:.0} ms |");
        }
        println!();
    }
    Ok(())
}
