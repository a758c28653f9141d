//! MP: preforked processes, each of which serves one connection at a time (Pai, Druschel and
//! Zwaenepoel, Flash, section 3.1; Apache's prefork).
//!
//! The main process forks a master for each worker, and each master its children, before there is
//! any thread. This is the main process's side: it forks the masters and holds the channel to each.
//! A worker's children share its listening sockets, so that none of them may bound the accept queue
//! or put a SYN filter before it: a child knows only how long the connections that it accepts have
//! waited.

mod account;
mod child;
mod listener_poll;
mod master;
mod messages;
pub(crate) mod pool_size;
mod shared;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use weir_stats::LoopReport;
use weir_sys::poll::{POLLIN, PollFd};
use weir_sys::{fork, namespace};

use super::thread_per_connection::park::poll;
use crate::config::{Config, Error, ErrorLog};
use crate::context::memory::MemoryBudget;
use crate::control::{Control, FINAL_REPORT, StartLatch};
use crate::stat_page::StatPage;
use crate::worker::listener::Socket;
use messages::{BYTES_MAX, Command, Message};
use shared::Shared;

/// A worker's master as known to the main process.
#[derive(Debug)]
pub(crate) struct MasterHandle {
    id: u32,
    /// Index of the worker.
    index: usize,
    /// The channel to it, of which its children have nothing: they face clients, and one that is
    /// taken over must not speak for it.
    channel: OwnedFd,
    /// A pipe whose other end it and its children have, so that it hangs up once the last of them
    /// has ended.
    life: OwnedFd,
    shared: Shared,
}

/// Forks a master for each worker, with its listening sockets. Must be called while this process
/// has one thread. The children serve once `latch` is open. `release`: closes, in a master, sockets
/// that only this process is to have.
///
/// # Errors
/// A message: a process, or something a child needs, is unavailable.
pub(crate) fn fork_masters(
    config: &Arc<Config>,
    per_worker: Vec<Vec<Socket>>,
    page: Option<&StatPage>,
    latch: &Arc<StartLatch>,
    mut release: impl FnMut(),
) -> Result<Vec<MasterHandle>, Error> {
    let shared = Shared::of(config, page, latch)?;
    let mut masters: Vec<MasterHandle> = Vec::new();
    let mut left = per_worker.into_iter();
    while let Some(sockets) = left.next() {
        let failed = |error| Error(format!("cannot start a process: {error}"));
        let (here, there) = fork::channel().map_err(failed)?;
        // Open in a master and in what it forks, as long as they run.
        let (life, _held) = fork::lifeline().map_err(failed)?;
        let (main, index) = (std::process::id(), masters.len());
        let shared = shared.clone();
        match fork::fork().map_err(failed)? {
            0 => {
                // Copies of other masters' sockets and channels, which this one would hold open.
                drop((here, life, left, masters));
                release();
                let is_ours = namespace::die_with(main).unwrap_or(false);
                let run = || master::run(index, config, sockets, there, shared);
                let status = if is_ours { catch_unwind(AssertUnwindSafe(run)) } else { Ok(1) };
                std::process::exit(status.unwrap_or(101))
            }
            id => masters.push(MasterHandle { id, index, channel: here, life, shared }),
        }
    }
    masters.iter().try_for_each(MasterHandle::await_ready)?;
    Ok(masters)
}

impl MasterHandle {
    fn await_ready(&self) -> Result<(), Error> {
        loop {
            match self.receive() {
                Ok(Some(Message::Ready)) => return Ok(()),
                Ok(Some(Message::Failed(why))) => return Err(Error(why)),
                Ok(_) => {
                    let fd = self.channel.as_raw_fd();
                    poll(&mut [PollFd { fd, events: POLLIN, revents: 0 }], None);
                }
                Err(_) => return Err(Error("a process has ended before it served".into())),
            }
        }
    }

    /// Returns the master's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.id
    }

    /// Relays the main thread's commands to the master, and its reports back, until the master has
    /// ended. Returns whether it has died.
    pub(crate) fn relay(self, control: &Control, memory: &MemoryBudget, errors: &ErrorLog) -> bool {
        let (mut sent, mut last) = (Command::FIRST, LoopReport::default());
        let has_died = loop {
            let watch = |fd: i32| PollFd { fd, events: POLLIN, revents: 0 };
            let mut fds =
                [watch(control.waker.as_fd().as_raw_fd()), watch(self.channel.as_raw_fd())];
            poll(&mut fds, None);
            control.waker.clear();
            self.pass_on(&mut sent, control, memory);
            if fds[1].revents == 0 {
                continue;
            }
            match self.receive() {
                Ok(Some(Message::Report(FINAL_REPORT, report))) => {
                    last = *report;
                    break false;
                }
                Ok(Some(Message::Report(report_request, report))) => {
                    last = (*report).clone();
                    control.send_report(report_request, *report);
                }
                Ok(Some(Message::MemoryShort)) => memory.call_processes(),
                Ok(Some(Message::Ready | Message::Failed(_)) | None) => {}
                Err(_) => {
                    self.await_last();
                    self.shared.leave_all(self.index);
                    errors.error("the master of a worker's children has died, and they with it");
                    break true;
                }
            }
        };
        control.send_report(FINAL_REPORT, last);
        let _ = fork::wait_child(self.id);
        has_died
    }

    fn pass_on(&self, sent: &mut Command, control: &Control, memory: &MemoryBudget) {
        let command = Command {
            phase: control.phase(),
            report_request: control.report_request(),
            reopens: control.reopens(),
            memory_calls: memory.calls(),
            is_relieved: sent.is_relieved || control.take_relief(),
        };
        // A master always receives. Its death is noticed by a closed channel.
        if command != *sent && fork::send(self.channel.as_fd(), &command.to_bytes(), true).is_ok() {
            *sent = command;
        }
    }

    /// Returns the next message that has come, if there is one that is understood.
    ///
    /// # Errors
    /// The master has gone.
    fn receive(&self) -> io::Result<Option<Message>> {
        let mut message = [0; BYTES_MAX];
        match fork::receive(self.channel.as_fd(), &mut message)? {
            None => Ok(None),
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(bytes) => Ok(message.get(..bytes).and_then(Message::from_bytes)),
        }
    }

    /// Waits for the end of the last child of a master that has gone: the kernel kills them, but
    /// until it has they serve, and count in what is shared.
    fn await_last(&self) {
        let mut entry = [PollFd { fd: self.life.as_raw_fd(), events: 0, revents: 0 }];
        while entry[0].revents == 0 {
            poll(&mut entry, None);
        }
    }
}
