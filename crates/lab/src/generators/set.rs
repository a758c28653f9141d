//! A load over a set of files: the list of paths that `weir load` requests, each file of the set
//! with equal probability.

use std::fs;

use rand::RngExt;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::request::LoadRequest;
use crate::file_set::FileSet;

const LIST: &str = "set.uris";

/// Length of the list before it repeats, in requests: more than a point makes of a large set, so
/// that no file recurs sooner than by chance.
const LENGTH: usize = 20_000;

/// Writes the list of an order whose workload is a set; does nothing for other workloads.
///
/// # Errors
/// Returns a sentence if the list cannot be written.
pub(super) fn write(request: &LoadRequest<'_>) -> Result<(), String> {
    let Some(set) = FileSet::named(&request.load.workload) else { return Ok(()) };
    let path = request.dir.join(LIST);
    fs::write(&path, list(set, request.prefix, request.seed))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Returns the options that make `weir load` use the list, if the order's workload is a set.
pub(super) fn arguments(request: &LoadRequest<'_>) -> Option<[String; 2]> {
    FileSet::named(&request.load.workload)?;
    Some(["--wlog".to_owned(), format!("y,{}", request.dir.join(LIST).display())])
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
