//! The helpers of one loop: threads that wait for disks in its place (AMPED, as in Flash).
//!
//! A loop submits a task, goes on, and is woken when tasks are done. A finished task only means
//! that the caches are warm: the loop then repeats what it was about to do. Nothing here knows of
//! connections: a task is submitted under an id, and answered even if the owner of the id has gone.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use weir_content::Fetch;

/// Number of tasks submitted to the helpers of this process and not done: they read into one page
/// cache.
static PENDING_TASKS: AtomicUsize = AtomicUsize::new(0);

/// Returns whether any helper of this process may be reading a file.
pub(crate) fn are_busy() -> bool {
    PENDING_TASKS.load(Ordering::Relaxed) > 0
}

/// A task for a helper. Equal tasks are run once.
pub(crate) trait Task: Clone + Eq + Hash + Send + 'static {
    /// Runs the task, and blocks until it is done.
    fn run(&self);
}

impl Task for Fetch {
    fn run(&self) {
        Fetch::run(self);
    }
}

/// A pool of threads with the tasks submitted to it. It belongs to one loop.
///
/// Each id waits for one task at a time, so that the number of tasks is bounded by that of the ids.
#[derive(Debug)]
pub(crate) struct Helpers<T: Task = Fetch> {
    shared: Arc<Shared<T>>,
    threads: Vec<JoinHandle<()>>,
    /// Ids that wait for each task, until its answer is taken.
    waiters: HashMap<T, Vec<u64>>,
    /// Buffer for answers, kept for its capacity.
    ended: Vec<T>,
    waiting: usize,
    counts: HelperCounts,
}

/// Counters of the helpers of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HelperCounts {
    /// Number of tasks submitted.
    pub submitted: u64,
    /// Number of tasks equal to a pending one, and answered by the same run.
    pub shared: u64,
    /// Number of answers taken.
    pub done: u64,
    /// Maximum number of unanswered tasks at one time.
    pub waiting_max: u64,
    /// Total time that the helpers were at work, nanoseconds.
    pub busy_ns: u64,
}

impl<T: Task> Helpers<T> {
    /// Starts `count` threads called `name` and their number. `waker` is called, in one of them,
    /// when there are answers to take.
    ///
    /// # Errors
    /// Errors of starting a thread; `InvalidInput` if `count` is zero.
    pub(crate) fn start(
        count: usize,
        name: &str,
        waker: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a pool has a helper or more"));
        }
        // Dropped on an error, it ends the threads that were started.
        let mut helpers = Self {
            shared: Arc::new(Shared::new(Box::new(waker))),
            threads: Vec::with_capacity(count),
            waiters: HashMap::new(),
            ended: Vec::new(),
            waiting: 0,
            counts: HelperCounts::default(),
        };
        for number in 0..count {
            let shared = Arc::clone(&helpers.shared);
            let thread = std::thread::Builder::new().name(format!("{name}-{number}"));
            helpers.threads.push(thread.spawn(move || shared.run_tasks())?);
        }
        Ok(helpers)
    }

    /// Submits `task` to the helpers; [`Helpers::take_done`] returns `id` once it is done.
    pub(crate) fn submit(&mut self, id: u64, task: T) {
        self.waiting += 1;
        self.counts.submitted += 1;
        self.counts.waiting_max = self.counts.waiting_max.max(self.waiting as u64);
        if let Some(ids) = self.waiters.get_mut(&task) {
            self.counts.shared += 1;
            return ids.push(id);
        }
        self.waiters.insert(task.clone(), vec![id]);
        self.shared.submit(task);
    }

    /// Appends the ids whose task has ended since the last call.
    ///
    /// The waker must be cleared before this call, not after it: it is used for the first finished
    /// task that has not been taken, and not again until that is taken.
    pub(crate) fn take_done(&mut self, into: &mut Vec<u64>) {
        let before = into.len();
        self.shared.take_finished(&mut self.ended);
        for task in self.ended.drain(..) {
            into.extend(self.waiters.remove(&task).unwrap_or_default());
        }
        let answered = into.len() - before;
        self.waiting -= answered;
        self.counts.done += answered as u64;
    }

    /// Returns the number of tasks whose answer has not come, or has not been taken.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the counters so far.
    pub(crate) fn counts(&self) -> HelperCounts {
        let busy_ns = self.shared.busy_ns.load(Ordering::Relaxed);
        HelperCounts { busy_ns, ..self.counts }
    }
}

impl<T: Task> Drop for Helpers<T> {
    /// Ends the helpers: at once, except for any that wait for a disk, which nothing can interrupt.
    fn drop(&mut self) {
        self.shared.close();
        for thread in self.threads.drain(..) {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// State shared by a loop and its helpers. Each lock is held for a few instructions only.
struct Shared<T> {
    tasks: Mutex<TaskQueue<T>>,
    task_added: Condvar,
    finished: Mutex<Vec<T>>,
    waker: Box<dyn Fn() + Send + Sync>,
    busy_ns: AtomicU64,
}

struct TaskQueue<T> {
    queue: VecDeque<T>,
    /// True once the loop has ended and takes no more answers.
    closed: bool,
}

impl<T: Task> Shared<T> {
    fn new(waker: Box<dyn Fn() + Send + Sync>) -> Self {
        Self {
            tasks: Mutex::new(TaskQueue { queue: VecDeque::new(), closed: false }),
            task_added: Condvar::new(),
            finished: Mutex::new(Vec::new()),
            waker,
            busy_ns: AtomicU64::new(0),
        }
    }

    fn submit(&self, task: T) {
        PENDING_TASKS.fetch_add(1, Ordering::Relaxed);
        locked(&self.tasks).queue.push_back(task);
        self.task_added.notify_one();
    }

    fn close(&self) {
        let mut tasks = locked(&self.tasks);
        tasks.closed = true;
        PENDING_TASKS.fetch_sub(std::mem::take(&mut tasks.queue).len(), Ordering::Relaxed);
        drop(tasks);
        self.task_added.notify_all();
    }

    /// Runs tasks until the end; the body of a helper's thread.
    fn run_tasks(&self) {
        while let Some(task) = self.next() {
            let start = Instant::now();
            task.run();
            let spent_ns = start.elapsed().as_nanos() as u64;
            self.busy_ns.fetch_add(spent_ns, Ordering::Relaxed);
            PENDING_TASKS.fetch_sub(1, Ordering::Relaxed);
            self.finish(task);
        }
    }

    /// Waits for a task, and returns the one that has waited longest; `None` at the end.
    fn next(&self) -> Option<T> {
        let is_idle = |tasks: &mut TaskQueue<T>| tasks.queue.is_empty() && !tasks.closed;
        let tasks = self.task_added.wait_while(locked(&self.tasks), is_idle);
        let mut tasks = tasks.unwrap_or_else(PoisonError::into_inner);
        if tasks.closed { None } else { tasks.queue.pop_front() }
    }

    fn finish(&self, task: T) {
        let mut answers = locked(&self.finished);
        let is_first = answers.is_empty();
        answers.push(task);
        drop(answers);
        if is_first {
            (self.waker)();
        }
    }

    /// Swaps the answers for an empty list.
    fn take_finished(&self, empty: &mut Vec<T>) {
        std::mem::swap(&mut *locked(&self.finished), empty);
    }
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Takes a lock, even a poisoned one: the data is consistent between any two statements here.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hasher;
    use std::path::PathBuf;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use weir_content::{Found, Lookup, Now, Options, Store};

    /// A task that reports when it begins, and ends when its gate is open.
    #[derive(Clone, Debug)]
    struct Gated {
        name: u32,
        began: Sender<u32>,
        gate: Arc<(Mutex<bool>, Condvar)>,
        runs: Arc<AtomicU64>,
    }

    impl Gated {
        fn new(name: u32, began: &Sender<u32>) -> Gated {
            let gate = Arc::new((Mutex::new(false), Condvar::new()));
            Gated { name, began: began.clone(), gate, runs: Arc::default() }
        }

        fn open(&self) {
            *locked(&self.gate.0) = true;
            self.gate.1.notify_all();
        }

        fn opened(self) -> Gated {
            self.open();
            self
        }

        fn runs(&self) -> u64 {
            self.runs.load(Ordering::SeqCst)
        }
    }

    impl PartialEq for Gated {
        fn eq(&self, other: &Gated) -> bool {
            self.name == other.name
        }
    }

    impl Eq for Gated {}

    impl Hash for Gated {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.name.hash(state);
        }
    }

    impl Task for Gated {
        fn run(&self) {
            let _ = self.began.send(self.name);
            let is_shut = |open: &mut bool| !*open;
            drop(self.gate.1.wait_while(locked(&self.gate.0), is_shut).unwrap());
            self.runs.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn start<T: Task>(count: usize) -> (Helpers<T>, Receiver<()>) {
        let (wake, wakes) = channel();
        let waker = move || wake.send(()).unwrap_or(());
        (Helpers::start(count, "helper", waker).unwrap(), wakes)
    }

    /// Takes answers at each wake-up until there are `count`; returns them sorted.
    fn answers<T: Task>(helpers: &mut Helpers<T>, wakes: &Receiver<()>, count: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        while ids.len() < count {
            wakes.recv().unwrap();
            helpers.take_done(&mut ids);
        }
        ids.sort_unstable();
        ids
    }

    #[test]
    fn the_waker_is_used_when_a_task_is_done() {
        let (mut helpers, wakes) = start(1);
        let (began, _begun) = channel();
        let gated = Gated::new(1, &began);
        helpers.submit(7, gated.clone());
        let mut none = Vec::new();
        helpers.take_done(&mut none);
        assert!(none.is_empty() && wakes.try_recv().is_err());
        assert_eq!(helpers.waiting(), 1);
        gated.open();
        assert_eq!(answers(&mut helpers, &wakes, 1), [7]);
        assert_eq!((helpers.waiting(), gated.runs()), (0, 1));
    }

    #[test]
    fn equal_tasks_share_one_run() {
        let (mut helpers, wakes) = start(2);
        let (began, begun) = channel();
        let (gated, other) = (Gated::new(1, &began), Gated::new(2, &began).opened());
        helpers.submit(1, gated.clone());
        assert_eq!(begun.recv(), Ok(1));
        helpers.submit(2, gated.clone());
        helpers.submit(3, gated.clone());
        helpers.submit(4, other);
        assert_eq!(answers(&mut helpers, &wakes, 1), [4]);
        assert_eq!(helpers.waiting(), 3);
        gated.open();
        assert_eq!(answers(&mut helpers, &wakes, 3), [1, 2, 3]);
        assert_eq!(gated.runs(), 1);
        let counts = helpers.counts();
        assert_eq!(
            (counts.submitted, counts.shared, counts.done, counts.waiting_max),
            (4, 2, 4, 4)
        );
        assert_eq!(helpers.waiting(), 0);
    }

    #[test]
    fn a_task_submitted_after_its_answer_runs_again() {
        let (mut helpers, wakes) = start(1);
        let (began, _begun) = channel();
        let gated = Gated::new(1, &began).opened();
        for id in [5, 6] {
            helpers.submit(id, gated.clone());
            assert_eq!(answers(&mut helpers, &wakes, 1), [id]);
        }
        assert_eq!((gated.runs(), helpers.counts().shared), (2, 0));
    }

    #[test]
    fn the_waker_is_used_once_for_all_answers_not_taken() {
        let (mut helpers, wakes) = start(1);
        let (began, begun) = channel();
        for name in 1..=3 {
            helpers.submit(name.into(), Gated::new(name, &began).opened());
        }
        let last = Gated::new(4, &began);
        helpers.submit(4, last.clone());
        // One helper: when it begins with the last it has answered the others.
        while begun.recv() != Ok(4) {}
        assert_eq!(wakes.try_iter().count(), 1);
        let mut ids = Vec::new();
        helpers.take_done(&mut ids);
        assert_eq!(ids, [1, 2, 3]);
        last.open();
        assert_eq!(answers(&mut helpers, &wakes, 1), [4]);
    }

    #[test]
    fn as_many_tasks_run_at_a_time_as_there_are_helpers() {
        let (mut helpers, wakes) = start(3);
        let (began, begun) = channel();
        let tasks: Vec<Gated> = (0..4).map(|name| Gated::new(name, &began)).collect();
        for task in &tasks {
            helpers.submit(task.name.into(), task.clone());
        }
        let mut first: Vec<u32> = begun.iter().take(3).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2]);
        assert!(begun.try_recv().is_err());
        tasks.iter().for_each(Gated::open);
        assert_eq!(answers(&mut helpers, &wakes, 4), [0, 1, 2, 3]);
    }

    #[test]
    fn the_end_waits_for_running_tasks_and_drops_the_queued_ones() {
        let (mut helpers, _wakes) = start(1);
        let (began, begun) = channel();
        let gated = Gated::new(1, &began);
        helpers.submit(1, gated.clone());
        assert_eq!(begun.recv(), Ok(1));
        let never = Gated::new(2, &began);
        helpers.submit(2, never.clone());
        let shared = Arc::clone(&helpers.shared);
        let opener = gated.clone();
        let thread = std::thread::spawn(move || {
            let is_going_on = |tasks: &mut TaskQueue<_>| !tasks.closed;
            drop(shared.task_added.wait_while(locked(&shared.tasks), is_going_on).unwrap());
            opener.open();
        });
        drop(helpers);
        assert_eq!((gated.runs(), never.runs()), (1, 0));
        thread.join().unwrap();
    }

    #[test]
    fn a_pool_without_helpers_is_refused() {
        let error = Helpers::<Gated>::start(0, "helper", || ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_fetched_lookup_needs_no_disk() {
        let name = format!("weir-helpers-{}", std::process::id());
        let root: PathBuf = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&root).unwrap();
        let mut store = Store::open(&root, Options { waits: false, ..Options::default() }).unwrap();
        let find = |store: &mut Store| {
            store.find(&Lookup::of(b"/missing"), Now { monotonic_ns: 0, unix_ns: 0 })
        };
        let (mut helpers, wakes) = start(1);
        let mut found = find(&mut store);
        if !matches!(found, Found::Cold(_)) {
            eprintln!("SKIPPED: {} is in memory", root.display());
        }
        // The kernel may drop fetched data at any moment, but not each time.
        for id in 0..100 {
            let Found::Cold(fetch) = found else { break };
            helpers.submit(id, fetch);
            assert_eq!(answers(&mut helpers, &wakes, 1), [id]);
            found = find(&mut store);
        }
        assert!(matches!(found, Found::NotFound));
        let _ = std::fs::remove_dir_all(&root);
    }
}
