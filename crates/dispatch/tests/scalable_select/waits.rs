//! Waits that end by the actions of another thread, or by timeout; reported and unreported closes;
//! errors.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_dispatch::scalable_select::ScalableSelect;

use crate::maps::{Maps, NOW, Set};
use crate::world::{copy_above, tcp_pair};

const LONG: Option<Duration> = Some(Duration::from_secs(20));
const SHORT: Option<Duration> = Some(Duration::from_millis(3));

fn select() -> ScalableSelect {
    let mut select = ScalableSelect::new().unwrap();
    select.sweep_every(None);
    select
}

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    (near, far)
}

#[test]
fn a_wait_ends_by_an_event_from_another_thread() {
    let mut select = select();
    for timeout in [None, LONG] {
        let (near, mut far) = pair();
        let maps = Maps::one(Set::Read, &near);
        assert_eq!(maps.by(&mut select, NOW).unwrap().0, 0);
        let writing = std::thread::spawn(move || far.write_all(b"x").map(|()| far));
        let (count, found) = maps.by(&mut select, timeout).unwrap();
        assert!(count == 1 && found.has(Set::Read, &near));
        writing.join().unwrap().unwrap();
        select.closed(near.as_raw_fd());
    }
}

#[test]
fn a_wait_for_room_ends_when_another_thread_reads() {
    let mut select = select();
    let (mut near, mut far) = pair();
    let maps = Maps::one(Set::Write, &near);
    assert_eq!(maps.by(&mut select, LONG).unwrap().0, 1);
    let mut sent = 0;
    while let Ok(bytes) = near.write(&[0; 65536]) {
        sent += bytes;
    }
    assert_eq!(maps.by(&mut select, SHORT).unwrap().0, 0);
    let reading = std::thread::spawn(move || far.read_exact(&mut vec![0; sent]).map(|()| far));
    assert_eq!(maps.by(&mut select, None).unwrap().0, 1);
    reading.join().unwrap().unwrap();
}

#[test]
fn urgent_data_is_an_exceptional_condition() {
    let mut select = select();
    let (near, far) = tcp_pair();
    let maps = Maps::one(Set::Except, &near);
    assert_eq!(maps.by(&mut select, SHORT).unwrap().0, 0);
    rustix::net::send(&far, b"!", rustix::net::SendFlags::OOB).unwrap();
    let (count, found) = maps.by(&mut select, LONG).unwrap();
    assert!(count == 1 && found.has(Set::Except, &near));
}

#[test]
fn an_event_for_one_who_is_not_selected_is_kept_and_ends_no_wait() {
    let mut select = select();
    let ((near, _far), (other, mut other_far)) = (pair(), pair());
    let both = Maps::one(Set::Read, &near).and(Set::Read, &other);
    assert_eq!(both.by(&mut select, NOW).unwrap().0, 0);
    other_far.write_all(b"x").unwrap();
    assert_eq!(Maps::one(Set::Read, &near).by(&mut select, SHORT).unwrap().0, 0);
    assert_eq!(Maps::one(Set::Read, &near).by(&mut select, NOW).unwrap().0, 0);
    let (count, found) = both.by(&mut select, LONG).unwrap();
    assert!(count == 1 && found.has(Set::Read, &other));
}

#[test]
fn nobody_selected_is_a_sleep() {
    assert_eq!(Maps::default().by(&mut select(), SHORT).unwrap().0, 0);
}

#[test]
fn idle_descriptors_are_not_asked() {
    let mut select = select();
    let idle: Vec<_> = (0..500).map(|_| pair()).collect();
    let (near, mut far) = pair();
    let mut maps = Maps::one(Set::Read, &near);
    idle.iter().for_each(|(near, _)| maps.add(Set::Read, near.as_raw_fd()));
    assert_eq!(maps.by(&mut select, NOW).unwrap().0, 0);
    let before = select.checked();
    assert_eq!(before, 501, "everybody once");
    far.write_all(b"x").unwrap();
    for _ in 0..10 {
        assert_eq!(maps.by(&mut select, LONG).unwrap().0, 1);
    }
    assert_eq!(
        select.checked(),
        before + 9,
        "the one who was ready, but for the hint's own answer"
    );
}

#[test]
fn a_number_used_again_is_not_taken_for_its_predecessor() {
    let mut select = select();
    let (near, mut far) = pair();
    let old = copy_above(&near, 700);
    let maps = Maps::one(Set::Read, &old);
    assert_eq!(maps.by(&mut select, NOW).unwrap().0, 0);
    select.closed(old.as_raw_fd());
    let number = old.as_raw_fd();
    drop(old);
    let (other, mut other_far) = pair();
    let new = copy_above(&other, number);
    assert_eq!(new.as_raw_fd(), number);
    assert_eq!(maps.by(&mut select, NOW).unwrap().0, 0);
    // The old file lives on, still registered under the number.
    far.write_all(b"x").unwrap();
    assert_eq!(maps.by(&mut select, SHORT).unwrap().0, 0);
    other_far.write_all(b"x").unwrap();
    assert_eq!(maps.by(&mut select, LONG).unwrap().0, 1);
    // And the old file again, under its old number.
    select.closed(number);
    drop(new);
    let again = copy_above(&near, number);
    assert_eq!(maps.by(&mut select, LONG).unwrap().0, 1);
    drop(again);
}

#[test]
fn a_descriptor_taken_out_before_its_close_wakes_nobody() {
    let mut select = select();
    let (near, mut far) = pair();
    let copy = near.try_clone().unwrap();
    assert_eq!(Maps::one(Set::Read, &copy).by(&mut select, NOW).unwrap().0, 0);
    select.closing(std::os::fd::AsFd::as_fd(&copy)).unwrap();
    drop(copy);
    far.write_all(b"x").unwrap();
    assert_eq!(Maps::one(Set::Read, &near).by(&mut select, LONG).unwrap().0, 1);
}

#[test]
fn a_close_that_was_not_told_of_is_found_by_a_sweep() {
    let mut select = ScalableSelect::new().unwrap();
    select.sweep_every(Some(Duration::from_millis(5)));
    let (old, _old_far) = pair();
    let old = copy_above(&old, 750);
    let number = old.as_raw_fd();
    let maps = Maps::one(Set::Read, &old);
    assert_eq!(maps.by(&mut select, NOW).unwrap().0, 0);
    drop(old);
    let (near, mut far) = pair();
    let new = copy_above(&near, number);
    assert_eq!(new.as_raw_fd(), number);
    far.write_all(b"x").unwrap();
    assert_eq!(maps.by(&mut select, None).unwrap().0, 1, "no hint can come");
    assert_eq!(select.missed(), 1);
    (&near).read_exact(&mut [0]).unwrap();
    assert_eq!(maps.by(&mut select, NOW).unwrap().0, 0);
    select.sweep_every(None);
    far.write_all(b"x").unwrap();
    assert_eq!(maps.by(&mut select, LONG).unwrap().0, 1, "it has hints now");
    assert_eq!(select.missed(), 1);
}

#[test]
fn a_descriptor_that_is_not_open_is_an_error_and_the_maps_stay() {
    let mut select = select();
    let (near, _far) = pair();
    let gone = copy_above(&near, 800);
    let maps = Maps::one(Set::Read, &gone).and(Set::Write, &near);
    assert_eq!(maps.by(&mut select, NOW).unwrap().0, 1);
    select.closed(gone.as_raw_fd());
    drop(gone);
    for _ in 0..2 {
        let ours = maps.by(&mut select, NOW).unwrap_err();
        assert_eq!(ours.raw_os_error(), maps.by_kernel().unwrap_err().raw_os_error());
        let mut copy = maps.clone();
        let [read, write, except] = &mut copy.sets;
        assert!(select.select(maps.nfds, read, write, except, NOW).is_err());
        assert_eq!(copy, maps);
    }
    assert_eq!(Maps::one(Set::Write, &near).by(&mut select, NOW).unwrap().0, 1);
}

#[test]
fn a_ready_descriptor_closed_without_a_word_is_an_error_at_once() {
    let mut select = select();
    let (near, _far) = pair();
    let gone = copy_above(&near, 850);
    let maps = Maps::one(Set::Write, &gone);
    assert_eq!(maps.by(&mut select, NOW).unwrap().0, 1);
    drop(gone);
    let ours = maps.by(&mut select, NOW).unwrap_err();
    assert_eq!(ours.raw_os_error(), maps.by_kernel().unwrap_err().raw_os_error());
}

#[test]
fn a_map_that_is_too_short_is_refused_as_select_does() {
    let mut select = select();
    let (mut long, mut short) = ([0_u64; 2], [0_u64; 1]);
    let ours = select.select(65, &mut long, &mut short, &mut [0; 2], NOW).unwrap_err();
    let theirs =
        weir_sys::select::select_all(65, &mut long, &mut short, &mut [0; 2], NOW).unwrap_err();
    assert_eq!(ours.raw_os_error(), theirs.raw_os_error());
    assert_eq!(ours.kind(), io::ErrorKind::InvalidInput);
}
