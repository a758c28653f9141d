//! Tests every mechanism against an adversarial kernel: no event is lost, no removed member is
//! reported, and reports cease once nothing is ready. A history is determined by its seed.
//!
//! `WEIR_FAULTS_SEED=7` runs and prints one history of each; `WEIR_FAULTS_HISTORIES=100` sets the
//! number of histories.

mod model;
mod reference;

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fake::{Fake, World};
use super::settings::Settings;
use super::tests::variants;
use super::{Mechanism, TABLE, Visitor};
use model::{Model, Promise};
use reference::batch::{self, BatchReference};
use reference::edges::{self, EdgeReference};
use reference::ring::{self, RingReference};
use reference::signals::{self, SignalReference};

const STEPS: usize = 60;
const HISTORIES: u64 = 2500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

fn history<M: Mechanism>(settings: &Settings, seed: u64, told: bool) -> Promise {
    let live = AssertUnwindSafe(|| Model::<M>::new(settings, seed, told).live(STEPS));
    catch_unwind(live).unwrap_or_else(|_| Err("it panicked".to_owned()))
}

/// Finds the first history of a mechanism in which a guarantee is broken; returns its seed and the
/// complaint.
fn broken<M: Mechanism>(settings: &Settings, histories: u64) -> Option<(u64, String)> {
    (0..histories).find_map(|seed| Some((seed, history::<M>(settings, seed, false).err()?)))
}

/// Returns true if no history fails with any settings; otherwise prints the first that does.
fn holds<M: Mechanism>(name: &str) -> bool {
    World::begin(0);
    variants::<M>().iter().all(|settings| holds_with::<M>(name, settings))
}

fn holds_with<M: Mechanism>(name: &str, settings: &Settings) -> bool {
    let found = match number("WEIR_FAULTS_SEED") {
        Some(seed) => Some(seed),
        None => {
            let histories = number("WEIR_FAULTS_HISTORIES").unwrap_or(HISTORIES);
            broken::<M>(settings, histories).map(|(seed, _)| seed)
        }
    };
    let Some(seed) = found else { return true };
    println!("{name}, {settings:?}: history WEIR_FAULTS_SEED={seed}");
    let Err(error) = history::<M>(settings, seed, true) else { return true };
    println!("  BROKEN: {error}");
    false
}

#[test]
fn every_mechanism_keeps_its_promises_on_a_kernel_that_does_its_worst() {
    struct Run(&'static str);
    impl Visitor for Run {
        type Output = bool;
        fn visit<M: Mechanism>(self) -> bool {
            holds::<M>(self.0)
        }
    }
    let failed: Vec<_> = TABLE
        .iter()
        .filter(|row| !row.name.visit::<Fake, _>(Run(row.spelling)))
        .map(|row| row.spelling)
        .collect();
    assert_eq!(failed, [""; 0]);
}

#[test]
fn a_plain_mechanism_of_each_family_keeps_them_too() {
    assert!(holds::<EdgeReference<{ edges::NONE }>>("edges"));
    assert!(holds::<SignalReference<{ signals::NONE }>>("signals"));
    assert!(holds::<RingReference<{ ring::NONE }, true>>("ring, many"));
    assert!(holds::<RingReference<{ ring::NONE }, false>>("ring, once"));
    assert!(holds::<BatchReference<{ batch::NONE }>>("batch"));
}

/// Asserts that the model finds a fault with one of these complaints.
fn finds<M: Mechanism>(complaints: &[&str]) {
    let (seed, complaint) =
        broken::<M>(&Settings::default(), HISTORIES).expect("the fault is found");
    println!("history {seed}: {complaint}");
    assert!(complaints.iter().any(|part| complaint.contains(part)), "{complaint}");
}

const LOST: &[&str] = &["LOST EVENT", "NEVER REPORTED"];

#[test]
fn an_end_hidden_by_a_short_read_is_found() {
    finds::<EdgeReference<{ edges::FORGETS_THE_END }>>(LOST);
    finds::<SignalReference<{ signals::TRUSTS_A_SHORT_READ }>>(LOST);
}

#[test]
fn a_wait_that_sleeps_on_what_is_known_is_found() {
    finds::<EdgeReference<{ edges::SLEEPS_ON_WHAT_IS_KNOWN }>>(LOST);
}

#[test]
fn readiness_left_to_the_next_tenant_is_found() {
    finds::<EdgeReference<{ edges::FORGETS_THE_GENERATION }>>(&["has gone"]);
    finds::<RingReference<{ ring::FORGETS_THE_GENERATION }, false>>(&["LOST", "NEVER", "has gone"]);
}

#[test]
fn an_endless_report_is_found() {
    finds::<EdgeReference<{ edges::NEVER_BLOCKED }>>(&["yet reported"]);
    // A hang-up of the previous owner of the number.
    finds::<SignalReference<{ signals::TRUSTS_THE_NUMBER }>>(&["yet reported"]);
}

#[test]
fn an_overflow_that_is_ignored_is_found() {
    finds::<SignalReference<{ signals::IGNORES_OVERFLOW }>>(LOST);
}

#[test]
fn old_state_that_is_not_asked_for_is_found() {
    finds::<SignalReference<{ signals::ASKS_NOT_AFTER_ARMING }>>(LOST);
}

#[test]
fn room_that_no_signal_will_tell_of_is_found() {
    finds::<SignalReference<{ signals::PRESUMES_NO_ROOM }>>(LOST);
}

#[test]
fn a_poll_that_ended_and_is_not_armed_again_is_found() {
    finds::<RingReference<{ ring::TRUSTS_THE_POLL_TO_GO_ON }, true>>(LOST);
}

#[test]
fn a_change_that_failed_in_a_batch_is_found() {
    finds::<BatchReference<{ batch::IGNORES_A_FAILURE }>>(LOST);
}
