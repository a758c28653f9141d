//! MP: preforked processes, each of which serves one connection at a time (Pai, Druschel and
//! Zwaenepoel, Flash, section 3.1; Apache's prefork).
//!
//! The main process forks a keeper for each worker, and each keeper its children, before there is
//! any thread. This is the main process's side: it forks the keepers and holds the line to each. A
//! worker's children share its listening sockets, so that none of them may bound the accept queue
//! or put a SYN filter before it: they know only how long the connections they accept have waited.

mod child;
mod keeper;
mod porch;
mod wire;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use weir_dispatch::readiness::settings::Tunable;
use weir_stats::LoopReport;
use weir_sys::poll::{POLLIN, PollFd};
use weir_sys::{fork, namespace};

use super::listener::Socket;
use super::threads::wait::sleep;
use crate::config::{Config, Error};
use crate::control::{Control, LAST_WORD};
use wire::{BYTES_MAX, Order, Word};

const POOL: Tunable = Tunable {
    name: "pool",
    help: "child processes of each worker, made at the start",
    default: 16,
    min: 1,
    max: 4096,
};

/// Options of this architecture.
pub(super) const TUNABLES: &[Tunable] = &[POOL];

/// Returns the number of children per worker: no more than may have a connection each.
pub(crate) fn children(config: &Config) -> usize {
    let pool = config.arch_settings.get(&POOL) as usize;
    pool.min(config.conns_max.div_ceil(config.workers.max(1))).max(1)
}

/// Returns the maximum number of open connections per child.
fn open_max(config: &Config) -> usize {
    config.conns_max.div_ceil(config.workers.max(1) * children(config)).max(1)
}

/// A worker's keeper as known to the main process.
#[derive(Debug)]
pub(crate) struct Crew {
    id: u32,
    line: OwnedFd,
}

/// Forks a keeper for each worker, with its listening sockets. Must be called while this process
/// has one thread.
///
/// # Errors
/// A message: a process, or something a child needs, is unavailable.
pub(crate) fn hire(config: &Arc<Config>, per_worker: Vec<Vec<Socket>>) -> Result<Vec<Crew>, Error> {
    let mut crews: Vec<Crew> = Vec::new();
    let mut left = per_worker.into_iter();
    while let Some(sockets) = left.next() {
        let failed = |error| Error(format!("cannot start a process: {error}"));
        let (here, there) = fork::channel().map_err(failed)?;
        let main = std::process::id();
        match fork::fork().map_err(failed)? {
            0 => {
                // Copies of what is others', which these would hold open.
                let index = crews.len();
                drop((here, left, crews));
                let is_ours = namespace::die_with(main).unwrap_or(false);
                let keep = || keeper::keep(index, config, sockets, there);
                let status = if is_ours { catch_unwind(AssertUnwindSafe(keep)) } else { Ok(1) };
                std::process::exit(status.unwrap_or(101))
            }
            id => crews.push(Crew { id, line: here }),
        }
    }
    crews.iter().try_for_each(Crew::await_ready)?;
    Ok(crews)
}

impl Crew {
    fn await_ready(&self) -> Result<(), Error> {
        match self.hear() {
            Some(Word::Ready) => Ok(()),
            Some(Word::Failed(why)) => Err(Error(why)),
            _ => Err(Error("a process has ended before it served".into())),
        }
    }

    /// Relays the main thread's orders to the keeper, and its reports back, until the keeper has
    /// ended.
    pub(crate) fn relay(self, control: &Control, tell: fn(&str)) {
        let (mut sent, mut last) = (Order::FIRST, LoopReport::default());
        loop {
            let watch = |fd: i32| PollFd { fd, events: POLLIN, revents: 0 };
            let mut fds = [watch(control.bell.as_fd().as_raw_fd()), watch(self.line.as_raw_fd())];
            sleep(&mut fds, None);
            control.bell.clear();
            self.pass_on(&mut sent, control);
            if fds[1].revents == 0 {
                continue;
            }
            match self.hear() {
                Some(Word::Told(LAST_WORD, report)) => {
                    last = *report;
                    break;
                }
                Some(Word::Told(question, report)) => {
                    last = (*report).clone();
                    control.answer(question, *report);
                }
                Some(_) => {}
                None => {
                    tell("the keeper of a worker's children has died, and they with it");
                    break;
                }
            }
        }
        control.answer(LAST_WORD, last);
        let _ = fork::wait_child(self.id);
    }

    fn pass_on(&self, sent: &mut Order, control: &Control) {
        let order = Order {
            phase: control.phase(),
            question: control.question(),
            reopens: control.reopens(),
        };
        // A keeper always listens. That it has gone is heard from the line.
        if order != *sent && fork::send(self.line.as_fd(), &order.to_bytes(), true).is_ok() {
            *sent = order;
        }
    }

    /// Waits for the next message; `None` if the keeper has gone.
    fn hear(&self) -> Option<Word> {
        let mut message = [0; BYTES_MAX];
        loop {
            match fork::receive(self.line.as_fd(), &mut message) {
                Ok(Some(0)) | Err(_) => return None,
                Ok(Some(bytes)) => return Word::from_bytes(message.get(..bytes)?),
                Ok(None) => {
                    let fd = self.line.as_raw_fd();
                    sleep(&mut [PollFd { fd, events: POLLIN, revents: 0 }], None);
                }
            }
        }
    }
}
