//! A discrete-event model of clients, the kernel's SYN and accept queues, and the server's loop. It
//! runs the accept policies themselves, in simulated time, and the same seed gives the same run.
//!
//! The kernel and the loop are modelled by their rules and by the cost of each step. The policies
//! are not modelled: they are `weir-accept`'s own code. Nothing here makes a system call, reads a
//! clock or prints.

pub mod backend;
mod clients;
mod connections;
mod costs;
mod events;
mod filter;
mod kernel;
mod neighbour;
mod packets;
mod rng;
mod rules;
mod scenario;
mod server;
mod simulation;
mod softirq;
mod statistics;
pub mod storm;
mod time;
mod work_conservation;

pub use costs::Costs;
pub use kernel::{Listener, Reason, Syn};
pub use neighbour::Neighbour;
pub use rules::Rules;
pub use scenario::{
    ArrivalPattern, Class, ClientKind, Distribution, Group, Scenario, Sessions, Step, Tls,
};
pub use statistics::{Drops, Loops, Overload, Share, Statistics, Window};
pub use time::{MILLI_NS, SECOND_NS};

use simulation::Simulation;
use weir_accept::Policy;

/// Runs a scenario to its end. All random numbers derive from the seed.
pub fn run(scenario: &Scenario, seed: u64) -> Statistics {
    run_with(scenario, seed, || scenario.policy_config().policy())
}

/// Runs a scenario with policies made by the caller, one per core, instead of its own.
pub fn run_with(
    scenario: &Scenario,
    seed: u64,
    policy: impl FnMut() -> Box<dyn Policy>,
) -> Statistics {
    let mut simulation = Simulation::new(scenario, seed, policy);
    simulation.run();
    simulation.into_statistics()
}
