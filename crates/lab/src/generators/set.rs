//! A load over a set of files: the list of paths that `weir load` requests, each file of the set
//! with equal probability.

use rand::RngExt;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::request::LoadRequest;
use crate::file_set::FileSet;

/// Length of the list before it repeats, in requests: more than a point makes of a large set, so
/// that no file recurs sooner than by chance.
const LENGTH: usize = 20_000;

/// Returns the name and the text of the list of an order whose workload is a set.
pub(super) fn listed(request: &LoadRequest<'_>) -> Option<(&'static str, String)> {
    let set = FileSet::named(&request.load.workload)?;
    Some(("set.uris", list(set, request.prefix, request.seed)))
}

/// Generates the list: random paths, one per line.
fn list(set: FileSet, prefix: &str, seed: u64) -> String {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    let prefix = prefix.trim_end_matches('/');
    let lines = (0..LENGTH).map(|_| {
        let index = chance.random_range(0..set.count.max(1));
        format!("{prefix}{}\n", set.path(index))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_set_is_asked_for_as_often_as_any_other() {
        let set = FileSet { count: 4, kib: 8 };
        let list = list(set, "/.weir/burn/5/", 1);
        assert_eq!(list.lines().count(), LENGTH);
        for index in 0..4 {
            let line = format!("/.weir/burn/5{}", set.path(index));
            let share = list.lines().filter(|one| **one == line).count() as f64 / LENGTH as f64;
            assert!((share - 0.25).abs() < 0.02, "{index}: {share}");
        }
        assert_eq!(list, super::list(set, "/.weir/burn/5", 1));
        assert_ne!(list, super::list(set, "/.weir/burn/5", 2));
    }
}
