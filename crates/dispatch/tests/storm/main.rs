//! A storm on the real kernel, for every mechanism: connections that come, send a part, are reset
//! or closed and have their descriptor numbers reused by the next ones, all between two waits.
//! Every client that sent a whole message and stayed is answered, and none hangs.
//!
//! Independent of the mechanism. No time is asserted: patience only turns a hang into a failure.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken expectation is a failed test"
)]

mod clients;
mod deadline;
mod rng;
mod server;

use std::time::Duration;

use weir_dispatch::readiness::{Mechanism, TABLE, Visitor};

use clients::Crowd;
use deadline::Deadline;
use server::Server;

const WAVES: usize = 25;

fn storm<M: Mechanism>() {
    let mut server = Server::<M>::open();
    let mut crowd = Crowd::new(&server);
    for wave in 0..WAVES {
        crowd.come(wave % 3 == 2);
        for _ in 0..1 + wave % 4 {
            server.turn(Some(Duration::ZERO), |server| crowd.stir(server));
        }
    }
    crowd.finish_sending();
    let deadline = Deadline::new();
    while !crowd.all_answered(&server) {
        server.turn(Some(deadline.left()), |_| ());
    }
    crowd.read_answers();
    drop(crowd);
    let deadline = Deadline::new();
    while server.has_connections() {
        server.turn(Some(deadline.left()), |_| ());
    }
}

#[test]
fn whoever_stays_through_a_storm_is_answered() {
    struct Run;
    impl Visitor for Run {
        type Output = ();
        fn visit<M: Mechanism>(self) {
            storm::<M>();
        }
    }
    for row in TABLE {
        println!("{}", row.spelling);
        match row.name.try_open() {
            Ok(()) => row.name.with(Run),
            Err(error) => eprintln!("SKIPPED: {} is not possible here: {error}", row.spelling),
        }
    }
}
