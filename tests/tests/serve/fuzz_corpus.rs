//! The fuzz checks without a fuzzer: over the seed corpora, and over many thousand mutations of
//! them that are the same in every run. The fuzzer itself goes further: see `fuzz/`.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use weir_tests::checks;
use weir_tests::mutate::{Xorshift, mutate};

const CORPORA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus");

const MUTATIONS: usize = 20_000;

/// Number of connection scripts; each has many steps.
const SCRIPTS: usize = 3000;

/// Returns the seeds of a target, in an order independent of the file system.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let files = fs::read_dir(format!("{CORPORA}/{target}")).expect("a corpus");
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

fn run(target: &str, check: fn(&[u8])) {
    run_some(target, check, MUTATIONS);
}

fn run_some(target: &str, check: fn(&[u8]), mutations: usize) {
    let seeds = seeds(target);
    assert!(seeds.len() >= 5, "{target} has {} seeds", seeds.len());
    let mut random = Xorshift::new(1);
    let mutations = (0..mutations).map(|i| mutate(&seeds[i % seeds.len()], &mut random));
    for input in seeds.iter().cloned().chain(mutations.collect::<Vec<_>>()) {
        hold(target, check, &input);
    }
}

fn hold(target: &str, check: fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        eprintln!("{target} fails on \"{}\"", input.escape_ascii());
        resume_unwind(panic);
    }
}

#[test]
fn request() {
    run("request", checks::request);
}

#[test]
fn packet() {
    run("packet", checks::packet);
}

#[test]
fn proxy_protocol() {
    run("proxy_protocol", checks::proxy_protocol);
}

#[test]
fn reply() {
    run("reply", checks::reply);
}

#[test]
fn sites() {
    run("sites", checks::sites);
}

#[test]
fn forward() {
    run("forward", checks::forward);
}

/// Number of inputs of TLS; each has handshakes of a server, with a signature.
const HANDSHAKES: usize = 1500;

#[test]
fn tls() {
    run_some("tls", checks::tls, HANDSHAKES);
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

#[test]
fn connection() {
    run_some("connection", checks::connection, SCRIPTS);
    let mut random = Xorshift::new(7);
    for _ in 0..SCRIPTS {
        hold("connection", checks::connection, &script(&mut random));
    }
}

/// Returns a script that mostly makes two clients send requests and be served, so that all other
/// events happen to them.
fn script(random: &mut Xorshift) -> Vec<u8> {
    const LIVELY: [u8; 12] = [0, 1, 7, 9, 13, 21, 25, 27, 30, 34, 41, 45];
    let lively = |random: &mut Xorshift| {
        let code = LIVELY[random.below(LIVELY.len())];
        (random.below(2) as u8) << 6 | code
    };
    let bytes = random.below(200);
    (0..bytes)
        .map(|_| if random.below(3) > 0 { lively(random) } else { random.next() as u8 })
        .collect()
}
