//! A probe of a few rounds, for every mechanism available here. No test asserts a time.

use std::io::{BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread;

use super::*;
use crate::readiness::TABLE;
use crate::readiness::settings::Settings;

/// Creates a pool whose far ends are held by a thread until the stream to it is dropped.
fn pool(kind: Kind, count: usize) -> (ConnectionPool, UnixStream) {
    let rendezvous = Rendezvous::open(kind).unwrap();
    let place = rendezvous.place();
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || hold(&place, BufReader::new(theirs.try_clone().unwrap()), theirs));
    let answers = BufReader::new(ours.try_clone().unwrap());
    (ConnectionPool::fill(rendezvous, count, ours.try_clone().unwrap(), answers).unwrap(), ours)
}

fn tiny() -> Plan {
    let mechanisms = TABLE.iter().map(|row| (row.name, Settings::default())).collect();
    Plan {
        mechanisms,
        idle: vec![0, 7],
        active: vec![1, 5],
        repetitions: 2,
        amount: Amount::Rounds(3),
    }
}

#[test]
fn every_mechanism_has_finite_figures_and_its_counts_add_up() {
    for kind in [Kind::Tcp, Kind::Unix] {
        let plan = tiny();
        let (mut pool, _line) = pool(kind, plan.connections());
        let outcomes = run(&plan, &mut pool);
        assert_eq!(outcomes.len(), TABLE.len() * 4);
        for CellResult { cell, found } in outcomes {
            let figures = match found {
                Ok(figures) => figures,
                Err(CellError::Impossible(why)) => {
                    eprintln!(
                        "SKIPPED: {} is not possible here: {why}",
                        cell.mechanism.row().spelling
                    );
                    continue;
                }
                Err(CellError::Failed(why)) => panic!("{cell:?}: {why}"),
            };
            assert!(figures.rounds >= 6 && figures.repetitions == 2, "{figures:?}");
            assert_eq!(figures.events, figures.rounds * cell.active as u64, "{cell:?}");
            assert!(figures.waits >= figures.rounds, "{cell:?}");
            let searches = ["select", "select-isset"].contains(&cell.mechanism.row().spelling);
            assert_eq!(figures.search_ns.is_some(), searches, "{cell:?}");
            assert!(figures.search_ns.is_none_or(|spread| spread.min > 0.0), "{figures:?}");
            let every = [figures.wait_ns, figures.event_ns, figures.member_ns];
            for Spread { min, median, max } in every.into_iter().chain(figures.search_ns) {
                assert!(min.is_finite() && max.is_finite() && min <= median && median <= max);
            }
        }
    }
}

#[test]
fn the_active_lie_in_the_middle_and_all_go_back_to_where_they_were() {
    let (mut pool, _line) = pool(Kind::Unix, sockets::connections(10, 3));
    for _ in 0..2 {
        let set = pool.set(10, 3).unwrap();
        assert_eq!(set.members().count(), 13);
        assert_eq!(set.first_active(), 5);
        let numbers = |of: Vec<&std::os::fd::OwnedFd>| -> Vec<i32> {
            of.into_iter().map(AsRawFd::as_raw_fd).collect()
        };
        let mut all = numbers(set.members().collect());
        let pairs = set.pairs.iter().chain(&set.unwatched);
        all.extend(numbers(pairs.clone().map(|pair| &pair.far).collect()));
        all.extend(numbers(set.unwatched.iter().map(|pair| &pair.near).collect()));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "none is two things at a time");
        let active = numbers(set.members().skip(5).take(3).collect());
        assert_eq!(active, numbers(set.pairs.iter().map(|pair| &pair.near).collect()));
    }
    assert!(pool.set(11, 3).is_err(), "it has not so many");
}

#[test]
fn who_is_asked_for_connections_and_goes_is_missed() {
    let rendezvous = Rendezvous::open(Kind::Unix).unwrap();
    let error = ConnectionPool::fill(rendezvous, 1, Vec::new(), &b""[..]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.write_all(b"many\n").unwrap();
    let held = hold("tcp:127.0.0.1:1", BufReader::new(theirs.try_clone().unwrap()), theirs);
    assert!(held.is_err());
    assert!(hold("nowhere", &b""[..], Vec::new()).is_err());
}

#[test]
fn open_descriptors_bound_the_idle_members() {
    assert_eq!(idle_max(0, 1), 0);
    let (one, more) = (idle_max(20_000, 1), idle_max(20_000, 100));
    assert!(more < one && (18_000..20_000).contains(&one), "{one} {more}");
}

#[test]
fn a_spread_is_of_the_values_in_order() {
    let spread = |values: &[f64]| Spread::of(values.iter().copied());
    assert_eq!(spread(&[]), None);
    assert_eq!(spread(&[3.0, -1.0, 2.0]), Some(Spread { min: -1.0, median: 2.0, max: 3.0 }));
    assert_eq!(spread(&[4.0, 2.0]).map(|spread| spread.median), Some(3.0));
}

#[test]
fn a_figure_is_of_its_own_repetition_before_it_is_one_of_several() {
    let one = Sample {
        rounds: 10,
        waits: 20,
        events: 40,
        spent_ns: 800.0,
        member_ns: 5.0,
        search_ns: Some(3.0),
    };
    let two = Sample { spent_ns: 1600.0, search_ns: Some(7.0), ..one };
    let figures = CellCosts::of(&[one, two]).unwrap();
    assert_eq!((figures.wait_ns.min, figures.wait_ns.max), (40.0, 80.0));
    assert_eq!((figures.event_ns.median, figures.member_ns.median), (30.0, 5.0));
    assert_eq!(figures.search_ns.map(|spread| spread.median), Some(5.0));
    assert_eq!((figures.rounds, figures.waits, figures.events), (20, 40, 80));
}
