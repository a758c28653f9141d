//! The header of a page: sizes, and the text that names the numbers. Everything read from a page
//! is checked: it may come from another build, or be no page at all.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::slot::{HEAD_WORDS, SlotWriter};
use super::words::Words;
use crate::{Merge, TABLE};

/// Version of the layout. A reader refuses any other.
pub const VERSION: u64 = 1;

/// First number of a page: `WEIRSTAT` in the machine's byte order.
const MAGIC: u64 = u64::from_ne_bytes(*b"WEIRSTAT");

/// Size of a number, bytes.
const WORD_BYTES: usize = 8;

/// Numbers of the header.
const HEADER_WORDS: usize = 16;

/// Numbers of an upstream in a slot: [`UpstreamState`](super::UpstreamState) without its name.
pub const UPSTREAM_WORDS: usize = 4;

/// Numbers per pair of cache lines: processors fetch two lines at a time.
const ALIGN_WORDS: usize = 16;

// Bounds on what a page may say about itself.
const SLOTS_MAX: usize = 1 << 20;
const TEXT_BYTES_MAX: usize = 1 << 20;
const NAMES_MAX: usize = 4096;

/// Indices of the numbers of the header.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const TEXT_BYTES: usize = 2;
    pub(super) const COUNTERS: usize = 3;
    pub(super) const CALLS: usize = 4;
    pub(super) const SLOTS: usize = 5;
    pub(super) const STRIDE: usize = 6;
    pub(super) const WORDS: usize = 7;
    pub(super) const PID: usize = 8;
    pub(super) const STARTED_UNIX_NS: usize = 9;
    pub(super) const STARTED_NS: usize = 10;
    pub(super) const MOVES_BEGUN: usize = 11;
    pub(super) const MOVES_ENDED: usize = 12;
}

/// Reason for which a page cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageError {
    /// It does not begin as a page of statistics does.
    Foreign,
    /// Its layout has another version.
    Version(u64),
    /// Its description of itself is impossible.
    Damaged,
    /// Each copy of it was changed while it was made, or its writer stands still in the middle of
    /// a publication.
    Busy,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("it is no page of statistics"),
            Self::Version(version) => {
                write!(f, "its layout has version {version}, and this program reads {VERSION}")
            }
            Self::Damaged => f.write_str("its header is damaged"),
            Self::Busy => f.write_str("the server stands still in the middle of a publication"),
        }
    }
}

impl std::error::Error for PageError {}

/// Contents of a page's header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Process id of the server, as in /proc.
    pub pid: u64,
    /// Process id of the server that was started first, of those that have taken each other's
    /// place; its own if it has taken none, 0 if an earlier build does not say.
    pub first_pid: u64,
    /// Start of the server, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Start of the server, nanoseconds of CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// Number of slots.
    pub slots: usize,
    /// Addresses that the server listens on.
    pub addresses: Vec<String>,
    /// Names of the calls that are profiled; empty if none are.
    pub calls: Vec<String>,
    /// Program that writes the page, with its version.
    pub program: String,
    /// Delay target of overload control, nanoseconds; 0 if it is not known.
    pub target_ns: u64,
    /// Upstreams: name, and number of servers.
    pub upstreams: Vec<(String, u64)>,
    /// Counters in the order of the values: name, kind, and meaning.
    pub counters: Vec<(String, Merge, String)>,
}

impl Description {
    /// Returns the description of a page written by this build, with the counters of [`TABLE`].
    pub fn of_this_build() -> Self {
        let counters = TABLE.iter().map(|row| (row.name.into(), row.merge, row.help.into()));
        Self {
            program: concat!("weir ", env!("CARGO_PKG_VERSION")).into(),
            counters: counters.collect(),
            ..Self::default()
        }
    }

    fn text(&self) -> String {
        let mut text = format!("program {}\nfirst {}\n", self.program, self.first_pid);
        for address in &self.addresses {
            text.push_str(&format!("address {}\n", address.replace('\n', "?")));
        }
        text.push_str(&format!("target {}\n", self.target_ns));
        for (name, servers) in &self.upstreams {
            text.push_str(&format!("upstream {servers} {}\n", name.replace('\n', "?")));
        }
        for (name, merge, help) in &self.counters {
            text.push_str(&format!("counter {name} {} {help}\n", merge.name()));
        }
        for call in &self.calls {
            text.push_str(&format!("call {call}\n"));
        }
        text
    }

    fn read_text(&mut self, text: &str) -> Option<()> {
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ')?;
            match kind {
                "program" => rest.clone_into(&mut self.program),
                "first" => self.first_pid = rest.parse().ok()?,
                "address" => self.addresses.push(rest.into()),
                "call" => self.calls.push(rest.into()),
                "counter" => {
                    let mut words = rest.splitn(3, ' ');
                    let (name, rule, help) = (words.next()?, words.next()?, words.next()?);
                    self.counters.push((name.into(), Merge::named(rule), help.into()));
                }
                "target" => self.target_ns = rest.parse().ok()?,
                "upstream" => {
                    let (servers, name) = rest.split_once(' ')?;
                    self.upstreams.push((name.into(), servers.parse().ok()?));
                }
                // A later build may say more.
                _ => {}
            }
        }
        Some(())
    }
}

/// Places of everything in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Contents of the header.
    pub description: Description,
    slots_at: usize,
    stride: usize,
}

impl Layout {
    /// Lays out a page.
    pub fn new(description: Description) -> Self {
        let text_words = description.text().len().div_ceil(WORD_BYTES);
        let slots_at = (HEADER_WORDS + text_words).next_multiple_of(ALIGN_WORDS);
        let stride = values_of(&description) + HEAD_WORDS;
        Self { description, slots_at, stride: stride.next_multiple_of(ALIGN_WORDS) }
    }

    /// Returns the size of the page, in numbers.
    pub fn words(&self) -> usize {
        self.slots_at + self.description.slots * self.stride
    }

    /// Writes the header. The page is of no use to readers before: its first number comes last.
    pub fn write_header(&self, words: &[AtomicU64]) {
        let store = |index: usize, value: u64| {
            if let Some(word) = words.get(index) {
                word.store(value, Ordering::Relaxed);
            }
        };
        let text = self.description.text();
        for (index, chunk) in text.as_bytes().chunks(WORD_BYTES).enumerate() {
            let mut bytes = [0; WORD_BYTES];
            bytes[..chunk.len()].copy_from_slice(chunk);
            store(HEADER_WORDS + index, u64::from_ne_bytes(bytes));
        }
        let description = &self.description;
        store(at::VERSION, VERSION);
        store(at::TEXT_BYTES, text.len() as u64);
        store(at::COUNTERS, description.counters.len() as u64);
        store(at::CALLS, description.calls.len() as u64);
        store(at::SLOTS, description.slots as u64);
        store(at::STRIDE, self.stride as u64);
        store(at::WORDS, self.words() as u64);
        store(at::PID, description.pid);
        store(at::STARTED_UNIX_NS, description.started_unix_ns);
        store(at::STARTED_NS, description.started_ns);
        fence(Ordering::Release);
        store(at::MAGIC, MAGIC);
    }

    /// Reads the header of a page of `len` numbers.
    ///
    /// # Errors
    /// It is no page, has another version, or cannot be what it says.
    pub fn read(words: &(impl Words + ?Sized), len: usize) -> Result<Self, PageError> {
        let number = |index| words.load(index).ok_or(PageError::Foreign);
        if number(at::MAGIC)? != MAGIC {
            return Err(PageError::Foreign);
        }
        fence(Ordering::Acquire);
        let version = number(at::VERSION)?;
        if version != VERSION {
            return Err(PageError::Version(version));
        }
        let bounded = |index: usize, max: usize| {
            let value = words.load(index).and_then(|value| usize::try_from(value).ok());
            value.filter(|value| *value <= max).ok_or(PageError::Damaged)
        };
        let slots = bounded(at::SLOTS, SLOTS_MAX)?;
        let text = read_text(words, bounded(at::TEXT_BYTES, TEXT_BYTES_MAX)?)?;
        let mut description = Description {
            pid: number(at::PID)?,
            started_unix_ns: number(at::STARTED_UNIX_NS)?,
            started_ns: number(at::STARTED_NS)?,
            slots,
            ..Description::default()
        };
        description.read_text(&text).ok_or(PageError::Damaged)?;
        let (counters, calls) = (bounded(at::COUNTERS, NAMES_MAX)?, bounded(at::CALLS, NAMES_MAX)?);
        let layout =
            Self::new_as_written(description, text.len(), bounded(at::STRIDE, NAMES_MAX * 4)?);
        let is_whole = layout.description.counters.len() == counters
            && layout.description.calls.len() == calls
            && layout.description.upstreams.len() <= NAMES_MAX
            && layout.stride >= HEAD_WORDS + values_of(&layout.description)
            && layout.words() as u64 == number(at::WORDS)?
            && layout.words() <= len;
        if is_whole { Ok(layout) } else { Err(PageError::Damaged) }
    }

    fn new_as_written(description: Description, text_bytes: usize, stride: usize) -> Self {
        let text_words = text_bytes.div_ceil(WORD_BYTES);
        let slots_at = (HEADER_WORDS + text_words).next_multiple_of(ALIGN_WORDS);
        Self { description, slots_at, stride }
    }

    /// Returns the writer of a slot; `None` if the page has no such slot.
    pub fn slot<'a>(&self, words: &'a [AtomicU64], slot: usize) -> Option<SlotWriter<'a>> {
        let at = self.slot_at(slot)?;
        words.get(at..at + self.stride).map(SlotWriter::new)
    }

    /// Returns the index of the first number of a slot.
    pub(super) fn slot_at(&self, slot: usize) -> Option<usize> {
        (slot < self.description.slots).then(|| self.slots_at + slot * self.stride)
    }

    /// Moves numbers between slots, so that no reader sees them in both or in neither. Slots of
    /// other owners may be moved at the same time.
    pub fn move_between(&self, words: &[AtomicU64], change: impl FnOnce()) {
        let count = |index: usize, order| {
            if let Some(word) = words.get(index) {
                word.fetch_add(1, order);
            }
        };
        count(at::MOVES_BEGUN, Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        count(at::MOVES_ENDED, Ordering::Release);
    }

    /// Returns the numbers of moves ended and begun, in the order in which they were loaded.
    pub(super) fn moves_ended(words: &(impl Words + ?Sized)) -> Option<u64> {
        let ended = words.load(at::MOVES_ENDED);
        fence(Ordering::Acquire);
        ended
    }

    /// Returns the number of moves begun before all loads of the caller have been made.
    pub(super) fn moves_begun(words: &(impl Words + ?Sized)) -> Option<u64> {
        fence(Ordering::Acquire);
        words.load(at::MOVES_BEGUN)
    }
}

/// Returns the numbers of a slot behind its head.
pub(super) fn values_of(description: &Description) -> usize {
    upstreams_at(description) + UPSTREAM_WORDS * description.upstreams.len()
}

/// Returns the index, among these, of the first number of the first upstream.
pub(super) fn upstreams_at(description: &Description) -> usize {
    description.counters.len() + 2 * description.calls.len()
}

fn read_text(words: &(impl Words + ?Sized), bytes: usize) -> Result<String, PageError> {
    let mut text = Vec::with_capacity(bytes + WORD_BYTES);
    for index in 0..bytes.div_ceil(WORD_BYTES) {
        let word = words.load(HEADER_WORDS + index).ok_or(PageError::Damaged)?;
        text.extend_from_slice(&word.to_ne_bytes());
    }
    text.truncate(bytes);
    String::from_utf8(text).map_err(|_| PageError::Damaged)
}
