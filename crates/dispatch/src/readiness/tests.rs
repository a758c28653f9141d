//! The behaviour suite for the readiness contract, run for every mechanism in the table.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::settings::Settings;
use super::*;

pub(super) const NOW: Option<Duration> = Some(Duration::ZERO);
pub(super) const LONG: Option<Duration> = Some(Duration::from_secs(20));

fn token(slot: u32) -> Token {
    Token { slot, generation: slot + 100 }
}

/// Opens a mechanism; `None`, with a message, where the kernel does not have it.
pub(super) fn open<M: Mechanism>() -> Option<M> {
    M::open(&Settings::default())
        .inspect_err(|error| eprintln!("SKIPPED: not possible here: {error}"))
        .ok()
}

/// Returns the defaults of a mechanism, and those with each of its switches turned, and with all;
/// prints a message for each that the kernel does not have.
pub(super) fn variants<M: Mechanism>() -> Vec<Settings> {
    let turned: Vec<_> = M::TUNABLES
        .iter()
        .filter(|tunable| tunable.range() == (0..=1))
        .map(|tunable| format!("{}={}", tunable.name, 1 - tunable.default))
        .collect();
    let mut choices = vec![Vec::new()];
    choices.extend(turned.iter().map(|one| vec![one.clone()]));
    if turned.len() > 1 {
        choices.push(turned);
    }
    let settings = choices.iter().map(|some| Settings::parse(M::TUNABLES, some).unwrap());
    settings.filter(is_possible_with::<M>).collect()
}

fn is_possible_with<M: Mechanism>(settings: &Settings) -> bool {
    let opened = M::open(settings);
    if let Err(error) = &opened {
        eprintln!("SKIPPED: {settings:?} is not possible here: {error}");
    }
    opened.is_ok()
}

/// Waits, and returns the members reported, by slot.
pub(super) fn ready<M: Mechanism>(mechanism: &mut M, timeout: Option<Duration>) -> Vec<Token> {
    let mut ready = Vec::new();
    mechanism.wait(timeout, &mut ready).unwrap();
    ready.sort_unstable_by_key(|token| token.slot);
    ready
}

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    (near, far)
}

fn read_is_reported_until_blocked<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let (mut near, mut far) = pair();
    m.add(near.as_fd(), token(7), Interest::Read).unwrap();
    assert_eq!(ready(&mut m, NOW), []);
    far.write_all(b"ab").unwrap();
    assert_eq!(ready(&mut m, LONG), [token(7)]);
    let mut byte = [0];
    near.read_exact(&mut byte).unwrap();
    assert_eq!(ready(&mut m, NOW), [token(7)], "half read, never blocked: still ready");
    near.read_exact(&mut byte).unwrap();
    assert!(near.read(&mut byte).is_err());
    m.blocked(token(7), Interest::Read);
    assert_eq!(ready(&mut m, NOW), []);
    far.write_all(b"c").unwrap();
    assert_eq!(ready(&mut m, LONG), [token(7)]);
}

fn a_wait_that_has_reported_all_leaves_nobody_out<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let mut pairs: Vec<_> = (0..40).map(|_| pair()).collect();
    for ((near, far), slot) in pairs.iter_mut().zip(1..) {
        m.add(near.as_fd(), token(slot), Interest::Read).unwrap();
        far.write_all(b"a").unwrap();
    }
    let reported = ready(&mut m, LONG).len();
    assert!(reported == pairs.len() || reported > 0 && !m.has_reported_all());
}

fn interest_moves_from_read_to_write_and_back<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let (near, mut far) = pair();
    m.add(near.as_fd(), token(1), Interest::Read).unwrap();
    assert_eq!(ready(&mut m, NOW), []);
    m.change(near.as_fd(), token(1), Interest::Write).unwrap();
    assert_eq!(ready(&mut m, LONG), [token(1)]);
    m.change(near.as_fd(), token(1), Interest::Read).unwrap();
    assert_eq!(ready(&mut m, NOW), []);
    m.change(near.as_fd(), token(1), Interest::Nothing).unwrap();
    far.write_all(b"x").unwrap();
    assert_eq!(ready(&mut m, NOW), [], "nothing was asked");
    m.change(near.as_fd(), token(1), Interest::Read).unwrap();
    assert_eq!(ready(&mut m, LONG), [token(1)], "what came meanwhile is not lost");
}

fn a_full_socket_is_writable_again_once_read<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let (mut near, mut far) = pair();
    m.add(near.as_fd(), token(2), Interest::Write).unwrap();
    assert_eq!(ready(&mut m, LONG), [token(2)]);
    let mut sent = 0;
    while let Ok(bytes) = near.write(&[0; 65536]) {
        sent += bytes;
    }
    m.blocked(token(2), Interest::Write);
    assert_eq!(ready(&mut m, NOW), []);
    far.read_exact(&mut vec![0; sent]).unwrap();
    assert_eq!(ready(&mut m, LONG), [token(2)]);
}

fn either_is_reported_while_the_other_is_blocked<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let (mut near, mut far) = pair();
    m.add(near.as_fd(), token(2), Interest::Either).unwrap();
    assert_eq!(ready(&mut m, LONG), [token(2)]);
    let mut sent = 0;
    while let Ok(bytes) = near.write(&[0; 65536]) {
        sent += bytes;
    }
    m.blocked(token(2), Interest::Write);
    assert!(near.read(&mut [0]).is_err());
    m.blocked(token(2), Interest::Read);
    assert_eq!(ready(&mut m, NOW), []);
    far.write_all(b"x").unwrap();
    assert_eq!(ready(&mut m, LONG), [token(2)], "there is something to read");
    assert_eq!(near.read(&mut [0; 2]).unwrap(), 1);
    m.blocked(token(2), Interest::Read);
    assert_eq!(ready(&mut m, NOW), []);
    far.read_exact(&mut vec![0; sent]).unwrap();
    assert_eq!(ready(&mut m, LONG), [token(2)], "there is room again");
    far.write_all(b"x").unwrap();
    assert_eq!(ready(&mut m, LONG), [token(2)], "once, though both are possible");
}

fn the_end_is_not_hidden_by_a_short_read<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let (mut near, mut far) = pair();
    m.add(near.as_fd(), token(3), Interest::Read).unwrap();
    far.write_all(b"last").unwrap();
    drop(far);
    assert_eq!(ready(&mut m, LONG), [token(3)]);
    assert_eq!(near.read(&mut [0; 64]).unwrap(), 4);
    m.blocked(token(3), Interest::Read); // a short read counts as blocked
    assert_eq!(ready(&mut m, LONG), [token(3)], "the end of the bytes is still to be seen");
    assert_eq!(near.read(&mut [0; 64]).unwrap(), 0);
}

fn a_hang_up_is_ready_for_writing_too<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let (mut near, far) = pair();
    m.add(near.as_fd(), token(4), Interest::Write).unwrap();
    assert_eq!(ready(&mut m, LONG), [token(4)]);
    while near.write(&[0; 65536]).is_ok() {}
    m.blocked(token(4), Interest::Write);
    assert_eq!(ready(&mut m, NOW), []);
    drop(far);
    assert_eq!(ready(&mut m, LONG), [token(4)]);
}

fn a_removed_member_is_silent_and_its_slot_is_free<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let (near, mut far) = pair();
    m.add(near.as_fd(), token(5), Interest::Read).unwrap();
    far.write_all(b"x").unwrap();
    assert_eq!(ready(&mut m, LONG), [token(5)]);
    m.remove(near.as_fd(), token(5)).unwrap();
    drop(near);
    assert_eq!(ready(&mut m, NOW), []);
    let (other, mut far) = pair();
    let tenant = Token { slot: 5, generation: 999 };
    m.add(other.as_fd(), tenant, Interest::Read).unwrap();
    assert_eq!(ready(&mut m, NOW), [], "the old tenant's readiness is not the new one's");
    far.write_all(b"y").unwrap();
    assert_eq!(ready(&mut m, LONG), [tenant]);
}

fn members_come_and_go_in_any_order<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let mut pairs: Vec<_> = (0..200).map(|_| Some(pair())).collect();
    for (slot, ends) in (0..).zip(&pairs) {
        m.add(ends.as_ref().unwrap().0.as_fd(), token(slot), Interest::Read).unwrap();
    }
    let mut expected = Vec::new();
    for slot in (0..200_u32).rev() {
        if slot % 3 == 0 {
            let (near, far) = pairs[slot as usize].take().unwrap();
            m.remove(near.as_fd(), token(slot)).unwrap();
            drop((near, far));
        } else if slot % 3 == 1 {
            pairs[slot as usize].as_mut().unwrap().1.write_all(b"x").unwrap();
            expected.push(token(slot));
        }
    }
    expected.reverse();
    // A wait may report some of them.
    let mut reported = Vec::new();
    while reported.len() < expected.len() {
        reported.extend(ready(&mut m, LONG));
        reported.sort_unstable_by_key(|token| token.slot);
        reported.dedup();
    }
    assert_eq!(reported, expected);
    assert_eq!(ready(&mut m, LONG), expected, "nobody read: still ready");
}

fn a_wait_with_nobody_ready_ends_at_its_timeout<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let (near, _far) = pair();
    m.add(near.as_fd(), token(0), Interest::Read).unwrap();
    assert_eq!(ready(&mut m, Some(Duration::from_millis(3))), []);
}

fn a_listener_is_reported_while_a_connection_waits<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let connect = || std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    m.add(listener.as_fd(), token(6), Interest::Accept).unwrap();
    assert_eq!(ready(&mut m, NOW), []);
    let _clients = [connect(), connect()];
    assert_eq!(ready(&mut m, LONG), [token(6)]);
    listener.accept().unwrap();
    assert_eq!(ready(&mut m, LONG), [token(6)], "one more waits");
    m.change(listener.as_fd(), token(6), Interest::Nothing).unwrap();
    assert_eq!(ready(&mut m, NOW), [], "nothing was asked");
    m.change(listener.as_fd(), token(6), Interest::Accept).unwrap();
    assert_eq!(ready(&mut m, LONG), [token(6)]);
    listener.accept().unwrap();
    assert!(listener.accept().is_err());
    m.blocked(token(6), Interest::Accept);
    assert_eq!(ready(&mut m, NOW), []);
    let _client = connect();
    assert_eq!(ready(&mut m, LONG), [token(6)]);
}

fn a_removed_listener_is_silent_though_others_hold_it<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other_descriptor = listener.try_clone().unwrap();
    m.add(listener.as_fd(), token(8), Interest::Accept).unwrap();
    m.remove(listener.as_fd(), token(8)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let _client = std::net::TcpStream::connect(address).unwrap();
    assert_eq!(ready(&mut m, NOW), []);
    assert_eq!(m.wait(NOW, &mut Vec::new()).unwrap(), 0, "nor does the kernel wake it");
    drop(other_descriptor);
}

fn an_accepting_member_is_not_reported_for_being_writable<M: Mechanism>(settings: &Settings) {
    let mut m = M::open(settings).unwrap();
    let (near, mut far) = pair();
    m.add(near.as_fd(), token(3), Interest::Accept).unwrap();
    assert_eq!(m.wait(NOW, &mut Vec::new()).unwrap(), 0, "or a calm loop would spin");
    far.write_all(b"x").unwrap();
    assert_eq!(ready(&mut m, LONG), [token(3)]);
}

macro_rules! suite {
    ($($test:ident,)+) => {
        mod each_mechanism {
            use super::super::{Mechanism, TABLE, Visitor};
            $(#[test]
            fn $test() {
                struct Run;
                impl Visitor for Run {
                    type Output = ();
                    fn visit<M: Mechanism>(self) {
                        for settings in super::variants::<M>() {
                            println!("  {settings:?}");
                            super::$test::<M>(&settings);
                        }
                    }
                }
                for row in TABLE.iter().filter(|row| super::is_possible(row)) {
                    println!("{}", row.spelling);
                    // The end of a ring interrupts the thread that created it, some time later.
                    std::thread::scope(|scope| {
                        scope.spawn(|| row.name.with(Run));
                    });
                }
            })+
        }
    };
}

/// Returns whether the kernel supports and allows a mechanism; prints a message if not.
fn is_possible(row: &Row) -> bool {
    let opened = row.name.try_open();
    if let Err(error) = &opened {
        eprintln!("SKIPPED: {} is not possible here: {error}", row.spelling);
    }
    opened.is_ok()
}

suite! {
    read_is_reported_until_blocked,
    a_wait_that_has_reported_all_leaves_nobody_out,
    interest_moves_from_read_to_write_and_back,
    a_full_socket_is_writable_again_once_read,
    either_is_reported_while_the_other_is_blocked,
    the_end_is_not_hidden_by_a_short_read,
    a_hang_up_is_ready_for_writing_too,
    a_removed_member_is_silent_and_its_slot_is_free,
    members_come_and_go_in_any_order,
    a_wait_with_nobody_ready_ends_at_its_timeout,
    a_listener_is_reported_while_a_connection_waits,
    an_accepting_member_is_not_reported_for_being_writable,
    a_removed_listener_is_silent_though_others_hold_it,
}
