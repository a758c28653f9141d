//! The threads of a group: the parked ones and the jobs they are woken for, the ended ones, and the
//! usage of all. Starts no thread and serves no connection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Condvar;
use weir_dispatch::readiness::Token;
use weir_stats::page;
use weir_sys::process::{self, ThreadId, Usage};

/// Identifier of a thread of a worker, never used twice.
pub(super) type Id = u64;

/// Usage of a thread: CPU time, nanoseconds, and context switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadUsage {
    cpu_ns: u64,
    voluntary: u64,
    involuntary: u64,
}

impl ThreadUsage {
    /// Returns the usage of the calling thread.
    fn own() -> Self {
        let usage = process::thread_usage();
        Self {
            cpu_ns: process::thread_cpu_clock_ns(),
            voluntary: usage.switches_voluntary,
            involuntary: usage.switches_involuntary,
        }
    }

    /// Returns the usage of another thread, zero if it has ended.
    pub(super) fn of(thread: ThreadId) -> Self {
        let (voluntary, involuntary) = process::context_switches_of(thread).unwrap_or_default();
        let cpu_ns = process::cpu_clock_of_ns(thread).unwrap_or(0);
        Self { cpu_ns, voluntary, involuntary }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
        }
    }
}

/// A thread with nothing to do.
struct Parked {
    id: Id,
    wake: Arc<Condvar>,
}

/// The threads of a group besides the first.
#[derive(Default)]
pub(super) struct ThreadPool {
    /// Parked threads. The last one parked wakes first: its stack is warm, and the others may end.
    parked: Vec<Parked>,
    jobs: HashMap<Id, Token>,
    /// Connections handed out while no thread was available.
    pub(super) waiting: VecDeque<Token>,
    /// Threads that serve or are parked, with their ids in the kernel.
    pub(super) live: HashMap<Id, ThreadId>,
    /// Usage of each live thread when last measured.
    pub(super) usage_by_id: HashMap<Id, ThreadUsage>,
    /// Threads that have ended, to be joined.
    pub(super) ended: Vec<Id>,
    usage_of_ended: ThreadUsage,
    /// The same, divided by the kernel into user and system time.
    pub(super) usage_of_ended_divided: page::Usage,
    live_max: usize,
    /// Threads to be woken once the lock is free.
    pub(super) wakes: Vec<Arc<Condvar>>,
    /// True once threads neither park nor serve any more.
    pub(super) is_over: bool,
}

impl ThreadPool {
    /// Adds the calling thread.
    pub(super) fn join(&mut self, id: Id) {
        self.live.insert(id, process::this_thread());
        self.live_max = self.live_max.max(self.live.len());
    }

    /// Removes the calling thread, which ends.
    pub(super) fn leave(&mut self, id: Id) {
        self.live.remove(&id);
        self.usage_by_id.remove(&id);
        self.usage_of_ended = self.usage_of_ended.plus(ThreadUsage::own());
        let Usage { user_ns, system_ns, switches_voluntary, switches_involuntary } =
            process::thread_usage();
        self.usage_of_ended_divided = self.usage_of_ended_divided.plus(page::Usage {
            user_ns,
            system_ns,
            voluntary: switches_voluntary,
            involuntary: switches_involuntary,
        });
        self.ended.push(id);
    }

    /// Parks a thread, to be woken by `wake`.
    pub(super) fn park(&mut self, id: Id, wake: &Arc<Condvar>) {
        self.parked.push(Parked { id, wake: Arc::clone(wake) });
    }

    /// Removes a thread from those parked, if it was given no connection.
    pub(super) fn unpark(&mut self, id: Id) {
        self.parked.retain(|parked| parked.id != id);
    }

    /// Takes the connection given to a parked thread.
    pub(super) fn job(&mut self, id: Id) -> Option<Token> {
        self.jobs.remove(&id)
    }

    /// Gives a connection to a parked thread, if there is one.
    pub(super) fn give(&mut self, token: Token) -> bool {
        let Some(Parked { id, wake }) = self.parked.pop() else { return false };
        self.jobs.insert(id, token);
        self.wakes.push(wake);
        true
    }

    /// Ends all threads that have nothing to do.
    pub(super) fn end(&mut self) {
        self.is_over = true;
        self.waiting.clear();
        self.wakes.extend(self.parked.drain(..).map(|parked| parked.wake));
    }

    /// Maximum number of threads at one time, including the first.
    pub(super) fn threads_max(&self) -> u64 {
        self.live_max as u64 + 1
    }

    /// Returns the total usage, including that of ended threads. The kernel tells the CPU time of
    /// each thread, but not how much of it was in user mode: it is divided as that of the process.
    pub(super) fn usage(&self) -> Usage {
        let total =
            self.usage_by_id.values().fold(self.usage_of_ended, |sum, usage| sum.plus(*usage));
        let process = process::process_usage();
        let (user, system) = (process.user_ns as f64, process.system_ns as f64);
        let user_ns = (total.cpu_ns as f64 * user / (user + system).max(1.0)) as u64;
        Usage {
            user_ns,
            system_ns: total.cpu_ns - user_ns.min(total.cpu_ns),
            switches_voluntary: total.voluntary,
            switches_involuntary: total.involuntary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token { slot: 7, generation: 1 };

    #[test]
    fn the_thread_that_was_parked_last_wakes_first_and_has_its_job() {
        let mut threads = ThreadPool::default();
        assert!(!threads.give(TOKEN));
        threads.park(1, &Arc::new(Condvar::new()));
        threads.park(2, &Arc::new(Condvar::new()));
        assert!(threads.give(TOKEN));
        assert_eq!((threads.job(1), threads.job(2), threads.job(2)), (None, Some(TOKEN), None));
        threads.unpark(1);
        assert!(!threads.give(TOKEN));
    }

    #[test]
    fn usage_includes_live_and_ended_threads() {
        let mut threads = ThreadPool::default();
        let burn = |threads: &mut ThreadPool, id| {
            threads.join(id);
            while process::thread_cpu_clock_ns() < 3_000_000 {}
        };
        std::thread::scope(|scope| {
            scope.spawn(|| (burn(&mut threads, 1), threads.leave(1)));
        });
        burn(&mut threads, 2);
        let ended = threads.usage();
        assert!(ended.user_ns + ended.system_ns >= 3_000_000, "{ended:?}");
        threads.usage_by_id =
            threads.live.iter().map(|(&id, &thread)| (id, ThreadUsage::of(thread))).collect();
        let all = threads.usage();
        assert!(all.user_ns + all.system_ns >= 6_000_000, "{all:?}");
        assert_eq!((threads.threads_max(), &threads.ended[..]), (2, &[1][..]));
    }

    #[test]
    fn at_the_end_all_parked_threads_wake() {
        let mut threads = ThreadPool::default();
        threads.park(1, &Arc::new(Condvar::new()));
        threads.waiting.push_back(TOKEN);
        threads.end();
        assert_eq!(
            (threads.wakes.len(), threads.waiting.len(), threads.give(TOKEN)),
            (1, 0, false)
        );
    }
}
