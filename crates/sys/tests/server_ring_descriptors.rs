//! A dropped ring leaves no descriptor behind. Runs as a process of its own, whose descriptors can
//! be counted.

#![allow(clippy::unwrap_used, reason = "a broken expectation is a failed test")]

use std::ffi::CString;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_sys::descriptor::SharedFd;
use weir_sys::ring::server::{AcceptTarget, AcceptWait, RingConfig, ServerRing, SqPoll, Then};

const SETTING: RingConfig = RingConfig {
    entries: 64,
    completions: 128,
    files: 16,
    buffers: 4,
    buffer_bytes: 512,
    sqpoll: None,
};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Drops a ring with descriptors taken, reported, not yet reported, and in progress.
fn use_and_drop(setting: &RingConfig) -> Option<()> {
    let mut ring = ServerRing::open(setting)
        .inspect_err(|error| eprintln!("SKIPPED: no ring here: {error}"))
        .ok()?;
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    let _peers: Vec<_> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    let root = Arc::new(weir_sys::file::open_root(Path::new("/")).unwrap());
    let accept = |ring: &mut ServerRing, into, data| {
        let (listener, wait) = (SharedFd::of(&listener), AcceptWait::AfterAttempt);
        ring.accept(listener, into, wait, Then::Nothing, data);
    };
    for data in 0..2 {
        accept(&mut ring, AcceptTarget::Fd, data);
        accept(&mut ring, AcceptTarget::Slot(data as u32), data);
        ring.open_beneath(SharedFd::of(&root), CString::from(c"etc"), false, Then::Nothing, data);
    }
    ring.wait(Some(Duration::from_secs(20))).unwrap();
    let mut taken = Vec::new();
    ring.take(&mut taken);
    ring.install(0, Then::Nothing, 9);
    ring.submit().unwrap();
    ring.install(1, Then::Nothing, 9);
    ring.open_beneath(SharedFd::of(&root), CString::from(c"etc"), false, Then::Nothing, 9);
    accept(&mut ring, AcceptTarget::Fd, 9);
    drop(ring);
    Some(())
}

#[test]
fn a_ring_that_is_dropped_leaves_no_descriptor_behind() {
    let before = open_descriptors();
    let polled = Some(SqPoll { idle_ms: 100, cpu: None });
    for setting in [SETTING, RingConfig { sqpoll: polled, ..SETTING }] {
        for _ in 0..50 {
            if use_and_drop(&setting).is_none() {
                return;
            }
            assert_eq!(open_descriptors(), before);
        }
    }
}
