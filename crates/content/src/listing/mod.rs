//! Listings of directories: those that are kept, and those in the making, which all who ask for
//! them share. Nothing here knows what a page looks like, or who asks.

mod build;
mod page;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use weir_sys::file::Status;

use crate::Now;
use crate::entry::Entry;
use crate::resource::is_settled;
use crate::tree::{Source, Tree};
use build::Build;

pub(crate) use page::Row;

/// The content type of a listing.
pub(crate) const CONTENT_TYPE: &str = "text/html; charset=utf-8";

/// A directory's page, and the version of the directory it was made from.
#[derive(Debug)]
pub(crate) struct Listing {
    entry: Arc<Entry>,
    status: Status,
    rows: usize,
    /// A later change of the directory is bound to show in its times.
    is_settled: bool,
    /// Time of its begin, on the monotonic clock.
    made_ns: u64,
    checked_ns: AtomicU64,
}

impl Listing {
    fn new(page: String, rows: usize, status: Status, begun: Now) -> Listing {
        Listing {
            entry: Arc::new(Entry::page(CONTENT_TYPE, page.into_bytes().into(), status)),
            status,
            rows,
            is_settled: is_settled(&status, begun),
            made_ns: begun.monotonic_ns,
            checked_ns: AtomicU64::new(begun.monotonic_ns),
        }
    }

    /// The page, to be sent.
    pub(crate) fn entry(&self) -> Arc<Entry> {
        Arc::clone(&self.entry)
    }

    /// Whether it was checked within the last `valid_ns`.
    pub(crate) fn is_fresh(&self, now: Now, valid_ns: u64) -> bool {
        now.monotonic_ns.saturating_sub(self.checked_ns.load(Ordering::Relaxed)) < valid_ns
    }

    /// Whether it may be kept, now that the directory's status is this.
    ///
    /// A directory's times tell of names that come and go, not of files that grow: so a page is
    /// made anew after some time in any case, the later the more it costs.
    pub(crate) fn holds(&self, status: &Status, now: Now, valid_ns: u64) -> bool {
        let age_max_ns = valid_ns.saturating_add(self.rows as u64 * ROW_AGE_NS);
        let age_ns = now.monotonic_ns.saturating_sub(self.made_ns);
        self.is_settled && self.status == *status && age_ns < age_max_ns
    }

    /// Notes that it was found to hold.
    pub(crate) fn mark_checked(&self, now: Now) {
        self.checked_ns.store(now.monotonic_ns, Ordering::Relaxed);
    }

    /// Memory that it takes, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Listing>() + self.entry.memory_bytes()
    }
}

/// Keeps a listing in the making for who waits for it. When all are dropped it is given up.
#[derive(Clone, Debug, Default)]
pub struct Waiter(#[expect(dead_code, reason = "counted, not read")] Arc<()>);

/// Counts of listings since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingCounts {
    /// Pages made.
    pub made: u64,
    /// Parts in which they were made.
    pub parts: u64,
    /// The most entries examined and rows written in one part.
    pub part_rows_max: u64,
}

/// The listings in the making.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    making: Vec<Making>,
    pub(crate) counts: ListingCounts,
}

#[derive(Debug)]
struct Making {
    key: Box<[u8]>,
    /// Dead when nobody waits any more.
    waiters: Weak<()>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Building(Box<Build>, Now),
    /// For those who waited for it: it may not have been kept.
    Made(Arc<Listing>),
}

/// State of a listing in the making.
pub(crate) enum Progress {
    /// It is made.
    Made(Arc<Listing>),
    /// It goes on, when asked again.
    Unfinished(Waiter),
}

impl Listings {
    /// Begins the listing of a directory that is not in the making, if there is room for another.
    /// Whoever asks for it waits in any case.
    pub(crate) fn begin(&mut self, key: &[u8], path: &[u8], directory: Source, now: Now) -> Waiter {
        let waiter = Arc::new(());
        if self.making.len() < MAKING_MAX {
            let build = Box::new(Build::new(path, directory));
            self.making.push(Making {
                key: key.into(),
                waiters: Arc::downgrade(&waiter),
                stage: Stage::Building(build, now),
            });
        }
        Waiter(waiter)
    }

    /// Makes the next part of a listing, if `advances`. `None`: it is not in the making.
    ///
    /// # Errors
    /// Those of reading a directory; the listing is then given up.
    pub(crate) fn go_on(
        &mut self,
        key: &[u8],
        tree: &Tree,
        advances: bool,
    ) -> io::Result<Option<Progress>> {
        self.making.retain(|each| each.waiters.strong_count() > 0);
        let Some(making) = self.making.iter_mut().find(|each| *each.key == *key) else {
            return Ok(None);
        };
        let Some(waiter) = making.waiters.upgrade() else { return Ok(None) };
        let unfinished = Progress::Unfinished(Waiter(waiter));
        let (build, begun) = match &mut making.stage {
            Stage::Made(listing) => return Ok(Some(Progress::Made(Arc::clone(listing)))),
            Stage::Building(..) if !advances => return Ok(Some(unfinished)),
            Stage::Building(build, begun) => (build, *begun),
        };
        let part = build.advance(tree).inspect_err(|_| making.waiters = Weak::new())?;
        self.counts.parts += 1;
        self.counts.part_rows_max = self.counts.part_rows_max.max(part.rows as u64);
        let Some((page, rows)) = part.made else { return Ok(Some(unfinished)) };
        self.counts.made += 1;
        let listing = Arc::new(Listing::new(page, rows, build.status(), begun));
        making.stage = Stage::Made(Arc::clone(&listing));
        Ok(Some(Progress::Made(listing)))
    }
}

/// Age beyond `valid_ns` that a page may reach for each of its rows: to make one takes some
/// microseconds a row, which is then less than a hundredth of the time.
const ROW_AGE_NS: u64 = 1_000_000;

/// Listings in the making at a time: each takes memory and a descriptor. Others come after them.
const MAKING_MAX: usize = 4;
