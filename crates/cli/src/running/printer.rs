//! Printing to standard error without a wait for its reader, who may have stopped: what hears the
//! operator's signals must not stop with him.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Maximum number of texts that wait for the reader; more are left out.
const WAITING_MAX: usize = 64;

/// Maximum wait for the reader at the end.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// A printer, whose thread runs only while there is something to print.
#[derive(Debug, Default)]
pub(super) struct Printer(Arc<Shared>);

/// Texts that are to be printed, shared with the thread.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    is_done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<String>,
    /// True while there is a thread.
    is_printing: bool,
}

impl Printer {
    /// Prints a text after those that wait.
    pub(super) fn print(&self, text: String) {
        let mut state = self.0.lock();
        if state.waiting.len() == WAITING_MAX {
            return;
        }
        state.waiting.push_back(text);
        self.start(&mut state);
    }

    /// Starts the thread, unless there is one.
    fn start(&self, state: &mut State) {
        if !state.is_printing {
            let shared = Arc::clone(&self.0);
            let run = move || {
                weir_server::settle_at_end();
                shared.print_all(io::stderr());
            };
            let thread = thread::Builder::new().name("weir-print".into()).spawn(run);
            // Without a thread, what waits does so until the next text or the end.
            state.is_printing = thread.is_ok();
        }
    }

    /// Waits until everything is printed, for a limited time; for as long as it takes if no thread
    /// can be started for what is left.
    pub(super) fn finish(&self) {
        let mut state = self.0.lock();
        if !state.waiting.is_empty() {
            self.start(&mut state);
            if !state.is_printing {
                drop(state);
                return self.0.print_all(io::stderr());
            }
        }
        drop(self.0.is_done.wait_timeout_while(state, STOP_WAIT, |state| state.is_printing));
    }
}

impl Shared {
    /// Prints until nothing waits. Errors are ignored: serving does not depend on a reader.
    fn print_all(&self, mut out: impl Write) {
        while let Some(text) = self.next() {
            let _ = out.write_all(text.as_bytes());
        }
    }

    fn next(&self) -> Option<String> {
        let mut state = self.lock();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.is_printing = false;
            self.is_done.notify_all();
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_printed_in_their_order_and_those_behind_a_reader_who_has_stopped_are_bounded() {
        let printer = Printer::default();
        // As while the thread waits for the reader.
        printer.0.lock().is_printing = true;
        (0..=WAITING_MAX).for_each(|number| printer.print(format!("{number} ")));
        let mut printed = Vec::new();
        printer.0.print_all(&mut printed);
        let expected: String = (0..WAITING_MAX).map(|number| format!("{number} ")).collect();
        assert_eq!(String::from_utf8(printed).unwrap(), expected);
        printer.finish();
        assert!(!printer.0.lock().is_printing);
    }

    #[test]
    fn what_waits_for_want_of_a_thread_is_printed_at_the_end() {
        let printer = Printer::default();
        // As after a thread that could not be started; empty, for it goes to standard error.
        printer.0.lock().waiting.push_back(String::new());
        printer.finish();
        assert!(printer.0.lock().waiting.is_empty());
    }
}
