//! The compressed forms that a loop keeps, in bounded memory, and the request for those missing.
//!
//! A form is kept under its root, the key of its path and its coding, and stands for the version of
//! the file that it was made from: when the file has changed, it is asked for anew.

use std::fmt;
use std::sync::Arc;

use quick_cache::unsync::Cache as Bounded;
use quick_cache::{DefaultHashBuilder, Weighter};

use super::compressor::Compressor;
use super::form::{Form, FormId};
use super::level::Level;
use crate::cache::GIVEN_BACK_PARTS_MAX;
use crate::entry::Entry;
use crate::time::Now;
use crate::variants::Coding;

/// Time after which a form may be replaced by a better one that has been made since, nanoseconds.
const BETTER_SOON_NS: u64 = 100_000_000;

/// Time after which a better form is made if there was no processor to spare before, nanoseconds.
const BETTER_LATER_NS: u64 = 10_000_000_000;

/// Size of a small form with its fields, for an initial estimate of the number of forms.
const TYPICAL_BYTES: u64 = 4096;

/// Approximate overhead of a table slot besides key and value, bytes.
const SLOT_BYTES: usize = 64;

/// Counts of the forms of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormCounts {
    /// Forms made, each counted by the loop that has it first.
    pub made: u64,
    /// Of these, those that were not smaller than their file.
    pub useless: u64,
    /// Processor time that they took, nanoseconds.
    pub spent_ns: u64,
    /// Requests for a file of which no form that the client takes was made yet.
    pub missed: u64,
    /// Size of those kept now, bytes.
    pub held_bytes: u64,
}

/// A form that is kept.
#[derive(Clone, Debug)]
struct Kept {
    id: FormId,
    form: Arc<Form>,
    /// The entry that is sent; `None` for a form that is not smaller than its file.
    entry: Option<Arc<Entry>>,
    /// Time from which on a better one is looked for, on the monotonic clock.
    better_from_ns: u64,
    /// True if that may be made for it.
    makes_better: bool,
}

/// A request for a form.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Key of the file's path.
    pub(crate) key: &'a [u8],
    pub(crate) plain: &'a Arc<Entry>,
    /// True if a form that is missing is to be made.
    pub(crate) makes: bool,
    pub(crate) now: Now,
}

/// A form that is not made yet.
#[derive(Debug)]
pub(crate) struct Missing;

/// The forms of a loop: of files below all of its roots, one of which is looked at at a time.
pub struct Forms {
    compressor: Arc<Compressor>,
    kept: Bounded<Box<[u8]>, Kept, Weigher>,
    /// Number of the root that is looked at.
    root: usize,
    /// Buffer for keys.
    key: Vec<u8>,
    counts: FormCounts,
}

impl Forms {
    /// Creates a place for up to `bytes_max` bytes of forms, made by whoever carries out the tasks
    /// of a compressor.
    pub fn new(compressor: Arc<Compressor>, bytes_max: u64) -> Forms {
        let items = usize::try_from(bytes_max / TYPICAL_BYTES).unwrap_or(usize::MAX);
        let kept = Bounded::with(
            items.clamp(64, 1 << 16),
            bytes_max,
            Weigher,
            DefaultHashBuilder::default(),
            Default::default(),
        );
        Forms { compressor, kept, root: 0, key: Vec::new(), counts: FormCounts::default() }
    }

    /// Looks at the files below another root from now on.
    pub(crate) fn set_root(&mut self, root: usize) {
        self.root = root;
    }

    /// Returns the form of a file in a coding, if it is smaller.
    ///
    /// # Errors
    /// It is not made yet.
    pub(crate) fn get(
        &mut self,
        wanted: Wanted<'_>,
        coding: Coding,
    ) -> Result<Option<Arc<Entry>>, Missing> {
        let id = FormId::of(wanted.plain.status(), coding);
        self.key.clear();
        self.key.extend_from_slice(&self.root.to_ne_bytes());
        self.key.extend_from_slice(wanted.key);
        // No path has a NUL.
        self.key.extend_from_slice(&[0, coding as u8]);
        let kept = self.kept.get(&self.key[..]);
        let found = kept.filter(|kept| kept.id == id && kept.is_for(wanted.plain));
        match found {
            Some(kept) if !kept.may_be_better(wanted) => Ok(kept.entry.clone()),
            found => {
                let old = found.cloned();
                self.ask(id, old, wanted)
            }
        }
    }

    /// Returns a form if there is one, without asking for it.
    pub(crate) fn peek(&self, key: &[u8], plain: &Entry, coding: Coding) -> Option<Arc<Entry>> {
        let key = [&self.root.to_ne_bytes()[..], key, &[0, coding as u8]].concat();
        let kept = self.kept.peek(&key[..])?;
        let is_current = kept.id == FormId::of(plain.status(), coding) && kept.is_for(plain);
        kept.entry.clone().filter(|_| is_current)
    }

    /// Counts a request that gets its file as it is, because no form is made yet.
    pub(crate) fn count_missed(&mut self) {
        self.counts.missed += 1;
    }

    /// Drops forms of at least `bytes`, the least useful first, or all.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        let (weight, capacity) = (self.kept.weight(), self.kept.capacity());
        let left = weight.saturating_sub(bytes);
        if left < capacity / GIVEN_BACK_PARTS_MAX {
            self.kept.clear();
        } else {
            self.kept.set_capacity(left);
            self.kept.set_capacity(capacity);
        }
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> FormCounts {
        FormCounts { held_bytes: self.kept.weight(), ..self.counts }
    }

    /// Asks for a form, or for one that is better than `old`, under the present key.
    fn ask(
        &mut self,
        id: FormId,
        old: Option<Kept>,
        wanted: Wanted<'_>,
    ) -> Result<Option<Arc<Entry>>, Missing> {
        let beyond = old.as_ref().map(|old| old.form.level);
        let makes = wanted.makes && old.as_ref().is_none_or(|old| old.makes_better);
        let now_ns = wanted.now.monotonic_ns;
        if let Some(form) = self.compressor.ask(id, beyond, wanted.plain, makes) {
            return Ok(self.keep(id, form, wanted));
        }
        let old = old.ok_or(Missing)?;
        let better_from_ns = now_ns + BETTER_LATER_NS;
        let entry = old.entry.clone();
        let kept = Kept { better_from_ns, makes_better: true, ..old };
        self.kept.insert(self.key[..].into(), kept);
        Ok(entry)
    }

    fn keep(&mut self, id: FormId, form: Arc<Form>, wanted: Wanted<'_>) -> Option<Arc<Entry>> {
        if form.is_first_count() {
            self.counts.made += 1;
            self.counts.useless += u64::from(form.body.is_none());
            self.counts.spent_ns += form.spent_ns;
        }
        let compressed = |body| Arc::new(Entry::compressed(wanted.plain, id.coding, body));
        let entry = form.body.clone().map(compressed);
        let kept = Kept {
            id,
            form,
            entry: entry.clone(),
            better_from_ns: wanted.now.monotonic_ns + BETTER_SOON_NS,
            makes_better: false,
        };
        self.kept.insert(self.key[..].into(), kept);
        entry
    }
}

impl Kept {
    /// Returns whether it has the type of a file's entry: two paths to one file may have two.
    fn is_for(&self, plain: &Entry) -> bool {
        self.entry.as_ref().is_none_or(|entry| entry.content_type() == plain.content_type())
    }

    /// Returns whether it is time to look for a better form.
    fn may_be_better(&self, wanted: Wanted<'_>) -> bool {
        wanted.makes
            && self.entry.is_some()
            && self.form.level < Level::Best
            && self.better_from_ns <= wanted.now.monotonic_ns
    }
}

impl fmt::Debug for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forms").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Measures forms in bytes.
#[derive(Clone)]
struct Weigher;

impl Weighter<Box<[u8]>, Kept> for Weigher {
    fn weight(&self, key: &Box<[u8]>, kept: &Kept) -> u64 {
        // The body is one for both.
        let fields =
            kept.entry.as_ref().map_or(0, |entry| entry.memory_bytes() as u64 - entry.len());
        let own = key.len() + size_of::<Kept>() + SLOT_BYTES + kept.form.memory_bytes();
        own as u64 + fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::entry_of;

    const SECOND_NS: u64 = 1_000_000_000;

    struct Bench {
        compressor: Arc<Compressor>,
        now: Now,
    }

    impl Bench {
        fn new() -> Bench {
            let now = Now { monotonic_ns: 0, unix_ns: 2_000_000_000 * SECOND_NS };
            Bench { compressor: Arc::new(Compressor::new(1 << 20, Box::new(|| true))), now }
        }

        fn forms(&self, bytes_max: u64) -> Forms {
            Forms::new(Arc::clone(&self.compressor), bytes_max)
        }

        fn get(&self, forms: &mut Forms, key: &[u8], plain: &Arc<Entry>) -> Option<Arc<Entry>> {
            let found = forms.get(Wanted { key, plain, makes: true, now: self.now }, Coding::Gzip);
            found.unwrap_or_else(|Missing| {
                forms.count_missed();
                None
            })
        }

        /// Makes what waits to be made; returns how many.
        fn work(&self, level: Level) -> usize {
            let mut made = 0;
            while self.compressor.has_tasks() {
                let task = self.compressor.next_task().unwrap();
                self.compressor.publish(&task, Form::new(task.compress(level), level, 7));
                self.compressor.finish(&task);
                made += 1;
            }
            made
        }
    }

    #[test]
    fn a_form_is_sent_once_it_is_there() {
        let (bench, plain) = (Bench::new(), entry_of(&[b'a'; 5000]));
        let mut forms = bench.forms(1 << 20);
        assert!(bench.get(&mut forms, b"a", &plain).is_none());
        assert!(forms.peek(b"a", &plain, Coding::Gzip).is_none());
        assert_eq!(bench.work(Level::Best), 1);
        let form = bench.get(&mut forms, b"a", &plain).unwrap();
        assert!(Arc::ptr_eq(&form, &bench.get(&mut forms, b"a", &plain).unwrap()));
        assert!(Arc::ptr_eq(&form, &forms.peek(b"a", &plain, Coding::Gzip).unwrap()));
        let text = String::from_utf8(form.fields_200().to_vec()).unwrap();
        assert!(text.contains("Content-Encoding: gzip\r\n") && text.contains("\r\nVary: Accept-E"));
        assert!(text.starts_with("ETag: W/\"1388-") && !text.contains("Accept-Ranges"));
        assert_eq!(form.saved_bytes(), Some(5000 - form.len()));
        let counts = forms.counts();
        assert_eq!((counts.made, counts.useless, counts.spent_ns, counts.missed), (1, 0, 7, 1));
        assert!(counts.held_bytes > form.len());
    }

    #[test]
    fn loops_share_what_is_made() {
        let (bench, plain) = (Bench::new(), entry_of(&[b'a'; 5000]));
        let (mut one, mut other) = (bench.forms(1 << 20), bench.forms(1 << 20));
        assert!(bench.get(&mut one, b"a", &plain).is_none());
        assert!(bench.get(&mut other, b"a", &plain).is_none());
        assert_eq!(bench.work(Level::Best), 1);
        assert!(bench.get(&mut one, b"a", &plain).is_some());
        assert!(bench.get(&mut other, b"b", &plain).is_some());
        assert_eq!((one.counts().made, other.counts().made), (1, 0));
    }

    #[test]
    fn a_changed_file_has_another_form() {
        let (bench, plain) = (Bench::new(), entry_of(&[b'a'; 5000]));
        let mut forms = bench.forms(1 << 20);
        bench.get(&mut forms, b"a", &plain);
        bench.work(Level::Best);
        assert!(bench.get(&mut forms, b"a", &plain).is_some());
        let changed = entry_of(&[b'b'; 5001]);
        assert!(bench.get(&mut forms, b"a", &changed).is_none());
        assert!(forms.peek(b"a", &changed, Coding::Gzip).is_none());
        assert_eq!(bench.work(Level::Best), 1);
        assert!(bench.get(&mut forms, b"a", &changed).is_some());
    }

    #[test]
    fn a_form_made_in_haste_is_made_again_later_while_it_is_sent() {
        let (mut bench, plain) = (Bench::new(), entry_of(&[b'a'; 5000]));
        let mut forms = bench.forms(1 << 20);
        bench.get(&mut forms, b"a", &plain);
        bench.work(Level::Fast);
        for (after_ns, made) in [(0, 0), (SECOND_NS, 0), (5 * SECOND_NS, 0), (11 * SECOND_NS, 1)] {
            bench.now.monotonic_ns += after_ns;
            assert!(bench.get(&mut forms, b"a", &plain).is_some());
            assert_eq!(bench.work(Level::Best), made, "after {after_ns} ns");
        }
        bench.now.monotonic_ns += 11 * SECOND_NS;
        bench.get(&mut forms, b"a", &plain);
        bench.now.monotonic_ns += 11 * SECOND_NS;
        assert!(bench.get(&mut forms, b"a", &plain).is_some());
        assert_eq!((bench.work(Level::Best), forms.counts().made), (0, 2));
    }

    #[test]
    fn under_overload_nothing_is_asked_for() {
        let (bench, plain) = (Bench::new(), entry_of(&[b'a'; 5000]));
        let mut forms = bench.forms(1 << 20);
        let wanted = Wanted { key: b"a", plain: &plain, makes: false, now: bench.now };
        assert!(forms.get(wanted, Coding::Gzip).is_err());
        assert_eq!(bench.work(Level::Fast), 0);
        bench.get(&mut forms, b"a", &plain);
        bench.work(Level::Fast);
        assert!(forms.get(wanted, Coding::Gzip).unwrap().is_some());
    }

    #[test]
    fn memory_is_bounded() {
        let bench = Bench::new();
        let mut forms = bench.forms(4000);
        for number in 0..40 {
            let plain = entry_of(&vec![b'a'; 5000 + number]);
            let key = number.to_string();
            bench.get(&mut forms, key.as_bytes(), &plain);
            bench.work(Level::Best);
            bench.get(&mut forms, key.as_bytes(), &plain);
            assert!(forms.counts().held_bytes <= 4000);
        }
        assert_eq!(forms.counts().made, 40);
    }

    #[test]
    fn what_is_not_smaller_is_asked_for_once() {
        let (bench, plain) = (Bench::new(), entry_of(b"short"));
        let mut forms = bench.forms(1 << 20);
        bench.get(&mut forms, b"a", &plain);
        bench.work(Level::Fast);
        for _ in 0..3 {
            assert!(bench.get(&mut forms, b"a", &plain).is_none());
            assert_eq!(bench.work(Level::Fast), 0);
        }
        assert_eq!((forms.counts().useless, forms.counts().missed), (1, 1));
    }
}
