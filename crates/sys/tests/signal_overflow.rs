//! Overflow of a signal queue. The limit on queued signals applies to the process, so this test has
//! one of its own.

#![allow(clippy::unwrap_used)] // lints take a helper of a test for no test

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_sys::rtsig::{Notice, SignalQueue};

const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(20));

const PENDING: usize = 4;

fn all(queue: &mut SignalQueue) -> Vec<Notice> {
    std::iter::from_fn(|| queue.take_one(NOW).unwrap()).collect()
}

#[test]
fn an_overflow_is_told_before_what_is_queued_and_later_signals_still_come() {
    let mut queue = SignalQueue::open(Some(PENDING as u64)).unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    assert!(queue.arm(near.as_fd()).unwrap());
    let is_event = |notice: &Notice| match notice {
        Notice::Event { fd, .. } => *fd == near.as_raw_fd(),
        Notice::Overflow => false,
    };
    for _ in 0..3 {
        for _ in 0..PENDING * 2 {
            far.write_all(b"x").unwrap();
        }
        let notices = all(&mut queue);
        assert_eq!(notices.first(), Some(&Notice::Overflow));
        // Other processes of the user may occupy some of the places.
        assert!(notices.len() <= PENDING + 1, "{notices:?}");
        assert!(notices.iter().skip(1).all(is_event), "{notices:?}");
    }
    for _ in 0..PENDING * 2 {
        far.write_all(b"x").unwrap();
    }
    let mut notices = Vec::new();
    queue.take_many(&mut notices, LONG).unwrap();
    assert_eq!(notices.first(), Some(&Notice::Overflow));
    let mut room = SignalQueue::open(Some(PENDING as u64 * 1000)).unwrap();
    assert!(room.arm(near.as_fd()).unwrap(), "the descriptor signals there from now on");
    far.write_all(b"x").unwrap();
    assert!(room.take_one(LONG).unwrap().is_some_and(|notice| is_event(&notice)));
}
