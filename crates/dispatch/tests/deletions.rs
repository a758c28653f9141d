//! Tests of the calls that the ways to use epoll make for a connection (gammo-epoll §3): how many
//! epoll_ctls, and that one of them takes it out of the set where that is asked for.
//!
//! The profile belongs to the process, and its table to the thread.

#![allow(clippy::unwrap_used)] // lints take a helper of a test for no test

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_dispatch::readiness::settings::Settings;
use weir_dispatch::readiness::{Epoll2, EpollCtlv, EpollEt, EpollLt, Interest, Mechanism, Token};
use weir_sys::profile::{self, Call};

const NOW: Option<Duration> = Some(Duration::ZERO);
const TOKEN: Token = Token { slot: 3, generation: 1 };

/// Opens a mechanism; `None`, with a message, where the kernel does not have it.
fn open<M: Mechanism>(choices: &[&str]) -> Option<M> {
    let choices: Vec<_> = choices.iter().map(ToString::to_string).collect();
    M::open(&Settings::parse(M::TUNABLES, &choices).unwrap())
        .inspect_err(|error| eprintln!("SKIPPED: not possible here: {error}"))
        .ok()
}

/// Number of events that the kernel reports at once.
fn reported<M: Mechanism>(mechanism: &mut M) -> usize {
    mechanism.wait(NOW, &mut Vec::new()).unwrap()
}

/// Number of epoll_ctls that the calling thread has made.
fn epoll_ctls() -> u64 {
    profile::table().unwrap()[Call::EpollCtl as usize].count
}

/// Returns the epoll_ctls of a connection that waits to read, then to write, and is closed; and
/// the deletions that the mechanism counts.
fn calls_of_a_connection<M: Mechanism>(choices: &[&str]) -> Option<(u64, u64)> {
    profile::enable();
    let mut m = open::<M>(choices)?;
    let (near, _far) = UnixStream::pair().unwrap();
    let before = epoll_ctls();
    m.add(near.as_fd(), TOKEN, Interest::Read).unwrap();
    reported(&mut m);
    m.change(near.as_fd(), TOKEN, Interest::Write).unwrap();
    reported(&mut m);
    m.remove(near.as_fd(), TOKEN).unwrap();
    Some((epoll_ctls() - before, m.counts().deleted))
}

/// Returns what the kernel reports of a connection that is closed while another descriptor keeps
/// its file open: nothing once a call has taken it out of the set.
fn reported_after_the_close<M: Mechanism>(choices: &[&str]) -> Option<usize> {
    let mut m = open::<M>(choices)?;
    let (near, mut far) = UnixStream::pair().unwrap();
    let other = near.try_clone().unwrap();
    m.add(near.as_fd(), TOKEN, Interest::Read).unwrap();
    reported(&mut m);
    m.remove(near.as_fd(), TOKEN).unwrap();
    drop(near);
    far.write_all(b"x").unwrap();
    let reported = reported(&mut m);
    drop(other);
    Some(reported)
}

#[test]
fn a_connection_under_epoll_lt_has_three_epoll_ctls_with_delete_and_two_without() {
    assert_eq!(calls_of_a_connection::<EpollLt>(&["delete=1"]), Some((3, 1)));
    assert_eq!(calls_of_a_connection::<EpollLt>(&["delete=0"]), Some((2, 0)));
    assert_eq!(calls_of_a_connection::<EpollLt>(&[]), Some((2, 0)), "the default");
}

#[test]
fn a_connection_under_epoll_et_has_two_epoll_ctls_with_delete_and_one_without() {
    assert_eq!(calls_of_a_connection::<EpollEt>(&["delete=1"]), Some((2, 1)));
    assert_eq!(calls_of_a_connection::<EpollEt>(&["delete=0"]), Some((1, 0)));
    assert_eq!(calls_of_a_connection::<EpollEt>(&[]), Some((1, 0)), "the default");
}

#[test]
fn a_connection_under_epoll2_has_two_epoll_ctls() {
    assert_eq!(calls_of_a_connection::<Epoll2>(&[]), Some((2, 1)));
}

#[test]
fn a_connection_under_epoll_ctlv_has_one_epoll_ctl_with_delete_and_none_without() {
    let Some(deleted) = calls_of_a_connection::<EpollCtlv>(&["delete=1"]) else { return };
    assert_eq!(deleted, (1, 1));
    assert_eq!(calls_of_a_connection::<EpollCtlv>(&["delete=0"]), Some((0, 0)));
    assert_eq!(calls_of_a_connection::<EpollCtlv>(&[]), Some((1, 1)), "the default");
}

#[test]
fn a_connection_is_out_of_the_set_before_its_close_where_a_call_takes_it_out() {
    for (delete, wanted) in [("delete=1", 0), ("delete=0", 1)] {
        assert_eq!(reported_after_the_close::<EpollLt>(&[delete]), Some(wanted), "{delete}");
        assert_eq!(reported_after_the_close::<EpollEt>(&[delete]), Some(wanted), "{delete}");
        let batched = reported_after_the_close::<EpollCtlv>(&[delete]);
        assert_eq!(batched.unwrap_or(wanted), wanted, "{delete}");
    }
    assert_eq!(reported_after_the_close::<Epoll2>(&[]), Some(0));
}

fn deletions_of_a_listener<M: Mechanism>(choices: &[&str]) -> Option<u64> {
    let mut m = open::<M>(choices)?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    m.add(listener.as_fd(), TOKEN, Interest::Accept).unwrap();
    reported(&mut m);
    m.remove(listener.as_fd(), TOKEN).unwrap();
    Some(m.counts().deleted)
}

#[test]
fn a_listening_socket_is_taken_out_by_a_call_whatever_was_chosen() {
    for delete in ["delete=1", "delete=0"] {
        assert_eq!(deletions_of_a_listener::<EpollLt>(&[delete]), Some(1), "{delete}");
        assert_eq!(deletions_of_a_listener::<EpollEt>(&[delete]), Some(1), "{delete}");
        assert_eq!(deletions_of_a_listener::<EpollCtlv>(&[delete]).unwrap_or(1), 1, "{delete}");
    }
}
