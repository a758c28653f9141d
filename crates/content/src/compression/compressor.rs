//! The forms that are to be made for the stores of a process, and those just made.
//!
//! Each version of a file is compressed once in a coding, however many stores ask. What is made is
//! kept here until the stores have come for it, within a bound, and found again through any store
//! that still has it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use super::coder::compress;
use super::form::{Form, FormId};
use super::level::Level;
use crate::entry::{Content, Entry, OpenFile};

/// Maximum number of forms that wait to be made. A form that finds no room is asked for again by
/// the next request for it.
const WAITING_MAX: usize = 256;

/// Number of times that forms are asked for between two tries to start a thread for tasks for which
/// none could be started: each costs some system calls, and is made for a request.
const ASKED_AGAIN: u32 = 64;

/// Number of forms known at which those that no store has any more are forgotten.
const KNOWN_MIN: usize = 256;

/// A form to be made.
#[derive(Debug)]
pub struct CompressionTask {
    id: FormId,
    plain: Arc<Entry>,
}

impl CompressionTask {
    /// Compresses the file. Blocks on a disk for one that is not kept in memory. Returns `None` if
    /// the result is not smaller, or the file can no longer be read as it was.
    pub fn compress(&self, level: Level) -> Option<Vec<u8>> {
        let plain = read(&self.plain).ok()?;
        let coded = compress(&plain, self.id.coding, level).ok()?;
        (coded.len() < plain.len()).then_some(coded)
    }
}

/// Reads what an entry stands for.
fn read(entry: &Entry) -> io::Result<Cow<'_, [u8]>> {
    match entry.content() {
        Content::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
        Content::File(file) => read_file(file).map(Cow::Owned),
    }
}

fn read_file(file: &OpenFile) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, filled as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    if file.is_unchanged()? { Ok(bytes) } else { Err(io::ErrorKind::ResourceBusy.into()) }
}

/// Starts a thread that carries out tasks until there is none; returns false if it cannot.
pub type StartWorker = Box<dyn Fn() -> bool + Send + Sync>;

/// What the stores of a process ask to be compressed.
pub struct Compressor {
    state: Mutex<State>,
    start_worker: StartWorker,
    unclaimed_bytes_max: u64,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<CompressionTask>,
    /// Forms waiting to be made, or being made.
    pending: HashSet<FormId>,
    /// Forms made last, the oldest first.
    unclaimed: VecDeque<(FormId, Arc<Form>)>,
    unclaimed_bytes: u64,
    /// Every form that was made last of its kind and that somebody still has.
    known: HashMap<FormId, Weak<Form>>,
    /// Number of forms known at which to forget those that are gone.
    known_max: usize,
    /// True from the start of a thread until it finds no task.
    is_worked_on: bool,
    /// Number of times that a form was asked for while no thread worked, though there were tasks.
    asked_in_vain: u32,
    is_closed: bool,
}

impl Compressor {
    /// Creates a compressor that keeps up to `unclaimed_bytes_max` bytes of forms for stores that
    /// have not come for them. `start_worker` is called when there are tasks and no thread.
    pub fn new(unclaimed_bytes_max: u64, start_worker: StartWorker) -> Compressor {
        let state = Mutex::new(State { known_max: KNOWN_MIN, ..State::default() });
        Compressor { state, start_worker, unclaimed_bytes_max }
    }

    /// Returns a form at a higher level than `beyond`, or at any. If there is none and `makes` is
    /// true, it is made unless it is pending, or too many are.
    ///
    /// Never waits for the lock: the thread that compresses has the lowest priority, and may have
    /// been interrupted while it holds it. The caller asks again for the next request.
    pub(crate) fn ask(
        &self,
        id: FormId,
        beyond: Option<Level>,
        plain: &Arc<Entry>,
        makes: bool,
    ) -> Option<Arc<Form>> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let known = state.known.get(&id).and_then(Weak::upgrade);
        if let Some(form) = known.filter(|form| beyond.is_none_or(|level| form.level > level)) {
            return Some(form);
        }
        let has_room = state.waiting.len() < WAITING_MAX && !state.is_closed;
        let is_new = makes && has_room && state.pending.insert(id);
        if is_new {
            state.waiting.push_back(CompressionTask { id, plain: Arc::clone(plain) });
        }
        if makes && !state.waiting.is_empty() && !state.is_worked_on {
            state.asked_in_vain = state.asked_in_vain.wrapping_add(1);
            if is_new || state.asked_in_vain.is_multiple_of(ASKED_AGAIN) {
                state.is_worked_on = true;
                drop(state);
                if !(self.start_worker)() {
                    self.locked().is_worked_on = false;
                }
            }
        }
        None
    }

    /// Returns the task that has waited longest; `None` if there is none, or the compressor is
    /// closed: then the thread ends, and another is started for the next task.
    pub fn next_task(&self) -> Option<CompressionTask> {
        let mut state = self.locked();
        let task = state.waiting.pop_front();
        state.is_worked_on = task.is_some();
        task
    }

    /// Returns whether others wait for the thread that compresses.
    pub fn has_tasks(&self) -> bool {
        !self.locked().waiting.is_empty()
    }

    /// Hands in a form, to which a better one may follow.
    pub fn publish(&self, task: &CompressionTask, form: Form) {
        let (id, form) = (task.id, Arc::new(form));
        let mut state = self.locked();
        state.known.insert(id, Arc::downgrade(&form));
        state.forget_gone();
        state.keep(id, form, self.unclaimed_bytes_max);
    }

    /// Ends a task: its form may be asked for again.
    pub fn finish(&self, task: &CompressionTask) {
        self.locked().pending.remove(&task.id);
    }

    /// Ends the compressor: what waits is not made.
    pub fn close(&self) {
        let mut state = self.locked();
        state.is_closed = true;
        state.waiting.clear();
    }

    /// Takes the lock, even a poisoned one: the state is consistent between any two statements.
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Keeps a form for those who have not come for it, in place of another of its kind; the
    /// oldest make room.
    fn keep(&mut self, id: FormId, form: Arc<Form>, bytes_max: u64) {
        if let Some(index) = self.unclaimed.iter().position(|(other, _)| *other == id)
            && let Some((_, old)) = self.unclaimed.remove(index)
        {
            self.unclaimed_bytes -= old.memory_bytes() as u64;
        }
        self.unclaimed_bytes += form.memory_bytes() as u64;
        self.unclaimed.push_back((id, form));
        while self.unclaimed_bytes > bytes_max
            && let Some((_, oldest)) = self.unclaimed.pop_front()
        {
            self.unclaimed_bytes -= oldest.memory_bytes() as u64;
        }
    }

    fn forget_gone(&mut self) {
        if self.known.len() >= self.known_max {
            self.known.retain(|_, form| form.strong_count() > 0);
            self.known_max = KNOWN_MIN.max(self.known.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::fixtures::{FILE, entry_of};
    use crate::variants::Coding;
    use weir_sys::file::Status;

    fn id(ino: u64) -> FormId {
        FormId::of(&Status { ino, ..FILE }, Coding::Gzip)
    }

    fn compressor(unclaimed_bytes_max: u64) -> Compressor {
        Compressor::new(unclaimed_bytes_max, Box::new(|| true))
    }

    #[test]
    fn a_thread_is_started_when_there_is_a_task_and_none_works() {
        let started = Arc::new(AtomicU32::new(0));
        let (counter, plain) = (Arc::clone(&started), entry_of(&[b'a'; 5000]));
        let start = move || !(1..=2).contains(&counter.fetch_add(1, Ordering::Relaxed));
        let compressor = Compressor::new(1 << 20, Box::new(start));
        let ask = |ino| compressor.ask(id(ino), None, &plain, true);
        let starts = || started.load(Ordering::Relaxed);
        assert!(ask(1).is_none() && ask(2).is_none());
        assert_eq!(starts(), 1);
        assert_eq!((work(&compressor, Level::Fast), compressor.next_task().is_none()), (2, true));
        // Two cannot be started. Asking again is an occasion for another now and then, and another
        // task always is.
        assert!((0..ASKED_AGAIN).all(|_| ask(3).is_none()));
        assert_eq!(starts(), 3);
        assert!(ask(4).is_none() && ask(5).is_none());
        assert_eq!(starts(), 4);
    }

    /// Carries out all tasks at a level; returns their number.
    fn work(compressor: &Compressor, level: Level) -> usize {
        let mut made = 0;
        while compressor.has_tasks() {
            let task = compressor.next_task().unwrap();
            compressor.publish(&task, Form::new(task.compress(level), level, 1));
            compressor.finish(&task);
            made += 1;
        }
        made
    }

    #[test]
    fn a_form_is_made_once_however_many_ask() {
        let compressor = compressor(1 << 20);
        let plain = entry_of(&[b'a'; 5000]);
        for _ in 0..3 {
            assert!(compressor.ask(id(1), None, &plain, true).is_none());
        }
        assert!(compressor.ask(id(2), None, &plain, false).is_none());
        assert_eq!(work(&compressor, Level::Fast), 1);
        let form = compressor.ask(id(1), None, &plain, true).unwrap();
        assert!(form.body.as_ref().unwrap().len() < 100 && !compressor.has_tasks());
    }

    #[test]
    fn a_better_form_is_made_when_one_is_asked_for() {
        let compressor = compressor(1 << 20);
        let plain = entry_of(&[b'a'; 5000]);
        compressor.ask(id(1), None, &plain, true);
        work(&compressor, Level::Fast);
        assert!(compressor.ask(id(1), Some(Level::Fast), &plain, true).is_none());
        assert_eq!(work(&compressor, Level::Best), 1);
        let better = compressor.ask(id(1), Some(Level::Fast), &plain, true).unwrap();
        assert_eq!(better.level, Level::Best);
    }

    #[test]
    fn what_does_not_become_smaller_is_known_not_to() {
        let compressor = compressor(1 << 20);
        let plain = entry_of(b"short");
        compressor.ask(id(1), None, &plain, true);
        work(&compressor, Level::Best);
        assert!(compressor.ask(id(1), None, &plain, true).unwrap().body.is_none());
    }

    #[test]
    fn what_nobody_comes_for_is_bounded() {
        let compressor = compressor(1000);
        let plain = entry_of(&[b'a'; 5000]);
        let mut claimed = None;
        for ino in 1..2 * WAITING_MAX as u64 {
            compressor.ask(id(ino), None, &plain, true);
            work(&compressor, Level::Fast);
            if ino == 1 {
                claimed = compressor.ask(id(ino), None, &plain, true);
            }
        }
        let state = compressor.locked();
        assert!(state.unclaimed_bytes <= 1000 && state.unclaimed.len() < 10);
        assert!(state.known.len() <= KNOWN_MIN);
        drop(state);
        // What a store has is found through it.
        assert!(claimed.is_some() && compressor.ask(id(1), None, &plain, false).is_some());
    }

    #[test]
    fn the_number_that_waits_is_bounded_and_ends_with_the_compressor() {
        let compressor = compressor(1000);
        let plain = entry_of(&[b'a'; 5000]);
        for ino in 0..2 * WAITING_MAX as u64 {
            compressor.ask(id(ino), None, &plain, true);
        }
        assert_eq!(compressor.locked().waiting.len(), WAITING_MAX);
        assert_eq!(compressor.locked().pending.len(), WAITING_MAX);
        compressor.close();
        assert!(compressor.next_task().is_none());
        assert!(compressor.ask(id(1), None, &plain, true).is_none() && !compressor.has_tasks());
    }
}
