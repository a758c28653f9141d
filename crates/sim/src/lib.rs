//! A discrete-event model of clients, the kernel's SYN and accept queues, and the server's loop. It
//! runs the accept policies themselves, in simulated time, and the same seed gives the same run.
//!
//! The kernel and the loop are modelled by their rules and by the cost of each step. The policies
//! are not modelled: they are `weir-accept`'s own code. Nothing here makes a system call, reads a
//! clock or prints.

mod chance;
mod clients;
mod conns;
mod costs;
mod events;
mod filter;
mod harm;
mod kernel;
mod neighbour;
mod packets;
mod scenario;
mod server;
mod softirq;
mod statistics;
pub mod storm;
mod world;

pub use costs::Costs;
pub use kernel::{Listener, Reason, Rules, Syn};
pub use neighbour::Neighbour;
pub use scenario::{Class, Group, Kind, Law, Pattern, Scenario, Sessions, Step};
pub use statistics::{Drops, Loops, Overload, Share, Statistics, Window};

use weir_accept::Policy;
use world::World;

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Nanoseconds in a millisecond.
pub const MILLI_NS: u64 = 1_000_000;

/// Runs a scenario to its end. All random numbers derive from the seed.
pub fn run(scenario: &Scenario, seed: u64) -> Statistics {
    run_with(scenario, seed, || scenario.setting().policy())
}

/// Runs a scenario with policies made by the caller, one per core, instead of those of its setting.
pub fn run_with(
    scenario: &Scenario,
    seed: u64,
    policy: impl FnMut() -> Box<dyn Policy>,
) -> Statistics {
    let mut world = World::new(scenario, seed, policy);
    world.run();
    world.into_statistics()
}
