//! The page of statistics: the counters of every loop in memory that other processes map, so that
//! they are read without asking the server. Works on numbers that the caller has mapped; makes no
//! system call and reads no clock.
//!
//! ```text
//! header    magic, version, sizes, process, times, two counts of moves     HEADER_WORDS numbers
//! text      lines: `program NAME VERSION`, `address URL`, `target NS`, `upstream SERVERS NAME`,
//!           `counter NAME MERGE HELP`, `call NAME`
//! slots     one for each loop or child process, each on cache lines of its own
//! ```
//!
//! A slot is a sequence number, [`HEAD_WORDS`] numbers in all about who writes it, the counters in
//! the order of the text, a count and a time for each call of the text, and the present state of
//! each upstream. All are 64 bits in the machine's byte order. A reader of another build finds the
//! counters by their names.
//!
//! **One writer per slot** (a seqlock). The writer makes the sequence odd, stores the numbers, and
//! makes it even again; it never waits. A reader that finds the sequence odd, or changed after it
//! has copied the numbers, copies them again: it sees the numbers of one publication, or none.
//!
//! **A slot that changes hands.** When a child process has ended, its master adds the child's
//! numbers to its own slot and frees the child's. The header counts such moves, once before and
//! once after: a reader accepts only a copy of the page during which no move was under way, so that
//! a sum over the slots neither misses a child nor has it twice.
//!
//! Readers load with `Relaxed` and use fences: on memory that is mapped read-only, no other loads
//! are guaranteed to work.

mod layout;
mod slot;
mod snapshot;
mod upstream;
mod words;

pub use layout::{Description, Layout, PageError, UPSTREAM_WORDS, VERSION};
pub use slot::{HEAD_WORDS, Owner, SlotWriter, State, Usage, thread_name};
pub use snapshot::{LoopSnapshot, Named, Snapshot};
pub use upstream::UpstreamState;
pub use words::Words;

#[cfg(test)]
mod tests;
