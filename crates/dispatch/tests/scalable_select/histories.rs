//! Random histories: after each step scalable select is queried for random sets, and now and then
//! select(2) is queried too, and must agree.

use std::os::fd::AsRawFd;

use weir_dispatch::scalable_select::ScalableSelect;

use crate::maps::{Maps, NOW, Set};
use crate::world::{Event, World};

const STEPS: usize = 4000;

/// Maximum number of retries. Data in flight over the loopback interface may arrive between two
/// queries; a lost hint stays lost.
const TIMEOUT: usize = 2000;

fn random_maps(world: &mut World) -> Maps {
    let percent = [3, 20, 60, 100][world.rng.below(4)];
    let mut maps = Maps::default();
    for at in 0..world.fds.len() {
        for set in [Set::Read, Set::Write, Set::Except] {
            if world.rng.percent(percent) {
                maps.add(set, world.fds[at].as_raw_fd());
            }
        }
    }
    // Descriptors past the end are not queried, and are cleared.
    if maps.nfds > 0 && world.rng.percent(10) {
        maps.nfds -= world.rng.below(maps.nfds.min(8));
    }
    maps
}

/// Queries both until they agree, and returns the number of retries. Scalable select goes first,
/// because select(2) wakes the files that it queries (a full TCP socket announces its space to
/// whichever has polled it).
fn agree(select: &mut ScalableSelect, maps: &Maps, what: &str) -> usize {
    let mut tries = 0;
    loop {
        let (found, right) = (maps.by(select, NOW).unwrap(), maps.by_kernel().unwrap());
        if found == right {
            return tries;
        }
        tries += 1;
        assert!(tries < TIMEOUT, "{what}, asked {maps:?}: {found:?}, but select: {right:?}");
        std::thread::yield_now();
    }
}

/// Runs a history; returns the number of retries and the number of ready descriptors found.
fn history(seed: u64, open_max: usize) -> (usize, usize) {
    let mut world = World::new(seed, open_max);
    let mut select = ScalableSelect::new().unwrap();
    // A sweep would hide lost hints.
    select.sweep_every(None);
    let (mut again, mut found) = (0, 0);
    for step in 0..STEPS {
        for _ in 0..world.rng.below(4) {
            if let Event::Closed(fd) = world.happen() {
                select.closed(fd);
            }
        }
        let maps = random_maps(&mut world);
        if world.rng.percent(60) {
            // Alone, as in production.
            found += maps.by(&mut select, NOW).unwrap().0;
            continue;
        }
        again += agree(&mut select, &maps, &format!("seed {seed}, step {step}"));
    }
    println!("seed {seed}: {found} found ready, {again} asked again, {} checked", select.checked());
    (again, found)
}

#[test]
fn a_few_descriptors_are_answered_for_as_select_does() {
    for seed in 1..=8 {
        assert!(history(seed, 12).1 > STEPS / 2, "a history in which little happens");
    }
}

#[test]
fn a_hundred_descriptors_are_answered_for_as_select_does() {
    for seed in 101..=104 {
        assert!(history(seed, 100).1 > STEPS, "a history in which little happens");
    }
}
