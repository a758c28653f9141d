//! Promises of the policies for the number in flight at an upstream. Uses the public interface
//! alone.

use weir_accept::Limit;
use weir_accept::upstream::{Completion, InFlightPolicy, Outcome, TABLE, UpstreamConfig};

const MS: u64 = 1_000_000;

fn complete(policy: &mut dyn InFlightPolicy, took_ms: u64, outcome: Outcome) {
    for _ in 0..200 {
        let (took_ns, in_flight) = (took_ms * MS, policy.limit());
        policy.completed(0, &Completion { took_ns, outcome, in_flight, is_contended: true });
    }
}

fn of(policy: &'static str) -> Box<dyn InFlightPolicy> {
    assert!(TABLE.iter().any(|row| row.spelling == policy), "{policy}");
    UpstreamConfig { policy, limit: Limit::Auto, ..UpstreamConfig::default() }.policy()
}

#[test]
fn a_reply_counts_by_its_time_though_its_client_has_gone() {
    for name in ["aimd", "gradient", "vegas"] {
        let limits = [Outcome::Departed, Outcome::Answered].map(|outcome| {
            let mut policy = of(name);
            complete(&mut *policy, 10, outcome);
            let quick = policy.limit();
            complete(&mut *policy, 6000, outcome);
            assert!(policy.limit() < quick, "{name}: {quick}, {}", policy.limit());
            (quick, policy.limit())
        });
        assert_eq!(limits[0], limits[1], "{name}");
    }
}

#[test]
fn a_request_that_was_given_up_teaches_nothing() {
    for row in TABLE {
        let mut policy = of(row.spelling);
        let before = policy.limit();
        complete(&mut *policy, 6000, Outcome::Abandoned);
        assert_eq!(policy.limit(), before, "{}", row.spelling);
    }
}
