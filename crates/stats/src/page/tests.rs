//! Tests of the page: torn copies, moves, and pages that are none.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::TABLE;

fn description(slots: usize) -> Description {
    Description {
        pid: 7,
        first_pid: 5,
        started_unix_ns: 1_600_000_000_000_000_000,
        started_ns: 1_000_000_000,
        slots,
        addresses: vec!["http://127.0.0.1:80".into()],
        calls: vec!["read".into(), "close".into()],
        ..Description::of_this_build()
    }
}

fn page(slots: usize) -> (Layout, Vec<AtomicU64>) {
    let layout = Layout::new(description(slots));
    let words: Vec<AtomicU64> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    layout.write_header(&words);
    (layout, words)
}

fn owner(state: State, worker: u64) -> Owner {
    Owner { state, worker, ..Owner::default() }
}

/// Returns the values of the counters, which are merged by their sum.
fn sums(snapshot: &Snapshot) -> Vec<u64> {
    let total = snapshot.total();
    let rows = total.iter().zip(TABLE).filter(|(_, row)| row.merge.is_counter());
    rows.filter_map(|(named, _)| named.value).collect()
}

#[test]
fn a_header_is_read_as_it_was_written() {
    let (layout, words) = page(3);
    assert_eq!(Layout::read(&words[..], words.len()), Ok(layout.clone()));
    assert!(layout.slot(&words, 2).is_some() && layout.slot(&words, 3).is_none());
    assert_eq!((layout.words() % 16, layout.slot_at(1).unwrap() % 16), (0, 0));
}

#[test]
fn a_snapshot_has_the_loops_in_use_and_the_keys_of_a_report() {
    let (layout, words) = page(3);
    let mut values = [0; TABLE.len()];
    values[TABLE.iter().position(|row| row.name == "accepted").unwrap()] = 3;
    values[TABLE.iter().position(|row| row.name == "open_max").unwrap()] = 4;
    for slot in [0, 2] {
        let writer = layout.slot(&words, slot).unwrap();
        writer.set_owner(&Owner { pid: 7, tid: 8, ..owner(State::Live, slot as u64) });
        writer.publish(9, &values, &[1, 10, 0, 0]);
    }
    // The clock was set, or the machine suspended, since the start.
    let unix_ns = 1_700_000_000_500_000_000;
    let mut snapshot = layout.snapshot(&words[..], 3_000_000_000, unix_ns).unwrap();
    let json = snapshot.to_json();
    assert_eq!((&json["total"]["accepted"], &json["total"]["open_max"]), (&6.into(), &4.into()));
    assert_eq!(json["total"]["calls"]["read"]["time_ns"], 20);
    assert_eq!(
        (json["elapsed_s"].as_f64(), json["loops"].as_array().unwrap().len()),
        (Some(2.0), 2)
    );
    let times = ["started_unix_s", "time_unix_s"].map(|key| json[key].as_f64());
    assert_eq!(times, [Some(1_600_000_000.0), Some(1_700_000_000.5)]);
    assert!(json["total"].get("cpu_user_ns").is_none() && json["total"]["accept_rate"] == 3.0);
    snapshot.add_usage(|_| Some(Usage { user_ns: 5, ..Usage::default() }));
    assert_eq!(snapshot.to_json()["total"]["cpu_user_ns"], 10);
}

#[test]
fn what_loops_share_is_as_the_last_publication_says() {
    let upstreams = vec![("a".into(), 2), ("http://b".into(), 1)];
    let layout = Layout::new(Description { upstreams, calls: Vec::new(), ..description(3) });
    let words: Vec<AtomicU64> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    layout.write_header(&words);
    let publish = |slot: usize, at_ns, value: u64| {
        let writer = layout.slot(&words, slot).unwrap();
        writer.set_owner(&owner(State::Live, slot as u64));
        let state = |limit, waiting| UpstreamState { limit, waiting, ..UpstreamState::default() };
        let states = [state(Some(value), 0), state(None, value)].map(|state| state.words());
        writer.publish(at_ns, &[value; TABLE.len()], states.as_flattened());
    };
    publish(0, 7, 40);
    publish(1, 9, 3);
    publish(2, 8, 50);
    let layout = Layout::read(&words[..], words.len()).unwrap();
    let snapshot = layout.snapshot(&words[..], 0, 0).unwrap();
    let total = snapshot.total();
    let value = |name: &str| total.iter().find(|row| row.name == name).unwrap().value;
    let names = ["upstream_in_flight", "open_max", "accept_queue", "accepted"];
    assert_eq!(names.map(value), [Some(3), Some(50), Some(93), Some(93)]);
    let expected = [("a", 2, Some(3), 0), ("http://b", 1, None, 3)];
    let states = snapshot.upstreams();
    let states = states.iter().map(|each| (&*each.name, each.servers, each.limit, each.waiting));
    assert_eq!(states.collect::<Vec<_>>(), expected);
    let workers = snapshot.workers().into_iter().map(|(worker, _)| worker);
    assert_eq!(workers.collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn no_reader_sees_numbers_of_two_publications() {
    let (layout, words) = page(2);
    let over = AtomicBool::new(false);
    for slot in [0, 1] {
        layout.slot(&words, slot).unwrap().set_owner(&owner(State::Live, 0));
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            let writer = layout.slot(&words, 0).unwrap();
            let mut round = 0;
            while !over.load(Ordering::Relaxed) {
                round += 1;
                writer.publish(round, &[round; TABLE.len()], &[round; 4]);
            }
        });
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let (mut seen, mut last) = (0, 0);
                    while seen < 2_000 {
                        // On one processor the writer may be stopped in the middle.
                        let Ok(snapshot) = layout.snapshot(&words[..], 0, 0) else {
                            thread::yield_now();
                            continue;
                        };
                        let mut each = sums(&snapshot);
                        each.sort_unstable();
                        each.dedup();
                        let published_ns = snapshot.loops[0].published_ns;
                        assert_eq!(each, [published_ns]);
                        assert!(published_ns >= last);
                        (seen, last) = (seen + 1, published_ns);
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_moved_slot_is_counted_once_and_the_sum_never_falls() {
    let (layout, words) = page(2);
    layout.slot(&words, 0).unwrap().set_owner(&owner(State::Live, 0));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let [master, child] = [0, 1].map(|slot| layout.slot(&words, slot).unwrap());
            let mut sum = 0;
            while !over.load(Ordering::Relaxed) {
                child.set_owner(&owner(State::Live, 0));
                // Readers need a while without a move.
                (0..1000).for_each(|_| child.publish(0, &[5; TABLE.len()], &[5; 4]));
                sum += 5;
                layout.move_between(&words, || {
                    master.publish(0, &[sum; TABLE.len()], &[sum; 4]);
                    child.free();
                });
            }
        });
        let (mut seen, mut last) = (0, 0);
        while seen < 300 {
            let Ok(snapshot) = layout.snapshot(&words[..], 0, 0) else {
                thread::yield_now();
                continue;
            };
            let each = sums(&snapshot);
            assert!(each.iter().all(|value| *value == each[0]) && each[0] >= last, "{last}");
            (seen, last) = (seen + 1, each[0]);
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_slot_whose_writer_was_killed_is_busy_until_it_is_freed() {
    let (layout, words) = page(1);
    let writer = layout.slot(&words, 0).unwrap();
    writer.set_owner(&owner(State::Live, 0));
    let first = layout.slot_at(0).unwrap();
    words[first].fetch_add(1, Ordering::Relaxed);
    assert_eq!(layout.snapshot(&words[..], 0, 0), Err(PageError::Busy));
    writer.free();
    assert_eq!(layout.snapshot(&words[..], 0, 0).unwrap().loops, []);
}

#[test]
fn what_is_no_page_is_an_error_and_never_a_panic() {
    let (layout, words) = page(2);
    let read = |words: &[AtomicU64]| {
        Layout::read(words, words.len()).and_then(|layout| layout.snapshot(words, 0, 0))
    };
    assert_eq!(read(&[]), Err(PageError::Foreign));
    assert_eq!(read(&words[1..]), Err(PageError::Foreign));
    for len in 1..layout.words() {
        assert!(
            matches!(read(&words[..len]), Err(PageError::Damaged | PageError::Foreign)),
            "{len}"
        );
    }
    let whole: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    let values = [0, 1, 2, 63, 4096, u64::from(u32::MAX), 1 << 40, u64::MAX / 2, u64::MAX];
    for index in 0..whole.len() {
        for value in values.into_iter().chain([whole[index] ^ 1, whole[index] << 8]) {
            let changed: Vec<AtomicU64> = whole.iter().map(|word| AtomicU64::new(*word)).collect();
            changed[index].store(value, Ordering::Relaxed);
            if let Ok(snapshot) = read(&changed) {
                snapshot.to_json();
            }
        }
    }
    words[1].store(2, Ordering::Relaxed);
    assert_eq!(read(&words), Err(PageError::Version(2)));
    assert!(PageError::Version(2).to_string().contains("version 2"));
}
