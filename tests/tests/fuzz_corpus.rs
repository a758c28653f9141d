//! The fuzz checks without a fuzzer: over the seed corpora, and over many thousand mutations of
//! them that are the same in every run. The fuzzer itself goes further: see `fuzz/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken expectation is a failed test"
)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use weir_tests::checks;
use weir_tests::mutate::{Xorshift, mutate};

const CORPORA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus");

const MUTATIONS: usize = 20_000;

/// The seeds of a target, in an order that does not depend on the file system.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let files = fs::read_dir(format!("{CORPORA}/{target}")).expect("a corpus");
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

fn run(target: &str, check: fn(&[u8])) {
    let seeds = seeds(target);
    assert!(seeds.len() >= 5, "{target} has {} seeds", seeds.len());
    let mut random = Xorshift::new(1);
    let mutations = (0..MUTATIONS).map(|i| mutate(&seeds[i % seeds.len()], &mut random));
    for input in seeds.iter().cloned().chain(mutations.collect::<Vec<_>>()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&input))) {
            eprintln!("{target} fails on \"{}\"", input.escape_ascii());
            resume_unwind(panic);
        }
    }
}

#[test]
fn request() {
    run("request", checks::request);
}

#[test]
fn reply() {
    run("reply", checks::reply);
}

#[test]
fn body() {
    run("body", checks::body);
}

#[test]
fn range() {
    run("range", checks::range);
}

#[test]
fn path() {
    run("path", checks::path);
}

#[test]
fn accept_encoding() {
    run("accept_encoding", checks::accept_encoding);
}

#[test]
fn conditions() {
    run("conditions", checks::conditions);
}
