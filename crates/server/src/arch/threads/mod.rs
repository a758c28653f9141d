//! MT: kernel threads, one per connection on demand, or a pool of a fixed number (Pai, Druschel and
//! Zwaenepoel, Flash, section 3.2; pariag-accept ch. 3, for the pool's script). A thread runs what
//! looks like blocking code: it does what it can, waits for its connection's socket, and does what
//! it can again.
//!
//! The threads of one worker are a group, and share the state of a loop under one lock
//! ([`monitor`]). This module begins and ends a group; accepting is in [`acceptor`] and [`pool`].

mod acceptor;
mod crew;
pub(crate) mod doors;
pub(crate) mod group;
mod hands;
mod monitor;
mod pool;
mod turn;
pub(crate) mod wait;

use std::io;
use std::sync::Arc;

use weir_dispatch::readiness::Token;
use weir_dispatch::readiness::settings::Tunable;
use weir_sys::waker::Waker;

use super::Start;
use super::floor::Floor;
use super::listener::Socket;
use crate::control::Control;
use crate::service::Service;
use group::Group;
use hands::Hands;
use monitor::Monitor;
use wait::{News, Rest};

pub(super) const POOL: Tunable = Tunable {
    name: "pool",
    help: "threads of each worker, made at the start; 0 is one for each connection, on demand",
    default: 0,
    min: 0,
    max: 10_000,
};

const STACK_KIB: Tunable = Tunable {
    name: "stack-kib",
    help: "stack of each thread, KiB; memory is used as far as it is touched",
    default: 256,
    min: 64,
    max: 65_536,
};

/// Options of this architecture.
pub(super) const TUNABLES: &[Tunable] = &[POOL, STACK_KIB];

/// A group with its threads.
pub(crate) struct Threads {
    monitor: Arc<Monitor>,
    hands: Hands,
    pooled: bool,
}

impl Start for Threads {
    fn start(
        service: Service,
        sockets: Vec<Socket>,
        control: Arc<Control>,
        open_max: usize,
    ) -> io::Result<Self> {
        let settings = &service.config.arch_settings;
        let (pool, stack_kib) = (settings.get(&POOL), settings.get(&STACK_KIB));
        let knock = Arc::new(Waker::new()?);
        let floor = Floor::new(service, sockets, Arc::clone(&control), open_max);
        let group = Group::new(floor, pool > 0, Some(Arc::clone(&knock)));
        let monitor = Arc::new(Monitor::new(group, knock, control));
        let mut hands = Hands::new(&monitor, stack_kib as usize * 1024);
        for _ in 0..pool {
            if let Err(error) = hands.start(pool::serve) {
                hands.dismiss();
                return Err(io::Error::other(format!("{pool} threads cannot be had: {error}")));
            }
        }
        Ok(Self { monitor, hands, pooled: pool > 0 })
    }

    fn run(mut self) {
        if self.pooled {
            pool::preside(&self.monitor);
        }
        acceptor::preside(&self.monitor, &mut self.hands, !self.pooled);
        acceptor::end(&self.monitor, self.hands);
    }
}

/// Serves a connection to its end: turns with the lock, and between them, without it, the waits.
fn stay(monitor: &Monitor, token: Token, mut news: News) {
    loop {
        match monitor.serve(token, news) {
            Rest::Wait(wait) => news = wait.sleep(),
            Rest::Yield => {
                // Those who wait may wait for this thread's processor too.
                std::thread::yield_now();
                news = News::Resumed;
            }
            Rest::Fetch(fetch) => {
                fetch.run();
                news = News::Fetched;
            }
            Rest::Gone => return,
        }
    }
}
