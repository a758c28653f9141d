//! Fake epoll_ctl(2) batches: each change succeeds or fails by itself.

use std::io;

use weir_sys::ring::Ctl;

use super::super::kernel::CtlBatch;
use super::epoll::FakeEpoll;
use super::world::world;

/// A batch, which keeps no state.
#[derive(Debug)]
pub(in crate::readiness) struct FakeBatch;

impl CtlBatch<FakeEpoll> for FakeBatch {
    fn open(_: u32) -> io::Result<Self> {
        Ok(Self)
    }

    fn apply(
        &mut self,
        epoll: &FakeEpoll,
        changes: &[Ctl],
        results: &mut Vec<i32>,
    ) -> io::Result<()> {
        let apply =
            |ctl: &Ctl| world(|w| -w.epoll_ctl(epoll.0, ctl.change, ctl.fd, (ctl.data, ctl.flags)));
        results.extend(changes.iter().map(apply));
        Ok(())
    }
}
