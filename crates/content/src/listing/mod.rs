//! Directory listings: finished ones to be cached, and those under construction, which all requests
//! for the same directory share. Nothing here knows the layout of a page.

mod builder;
mod page;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use weir_sys::file::Status;
use weir_sys::heap::{Charged, Part};

use crate::entry::Entry;
use crate::resource::is_settled;
use crate::time::Now;
use crate::tree::{OpenedFile, Tree};
use builder::ListingBuilder;

pub(crate) use page::Row;

/// Content type of a listing.
pub(crate) const CONTENT_TYPE: &str = "text/html; charset=utf-8";

/// The page of a directory, and the version of the directory it was made from.
#[derive(Debug)]
pub(crate) struct Listing {
    entry: Arc<Entry>,
    status: Status,
    rows: usize,
    /// True if a later change of the directory is guaranteed to change its times.
    is_settled: bool,
    /// Time at which construction started, on the monotonic clock.
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

    /// Returns the page, ready to send.
    pub(crate) fn entry(&self) -> Arc<Entry> {
        Arc::clone(&self.entry)
    }

    /// Returns whether the listing was checked within the last `valid_ns`.
    pub(crate) fn is_fresh(&self, now: Now, valid_ns: u64) -> bool {
        now.monotonic_ns.saturating_sub(self.checked_ns.load(Ordering::Relaxed)) < valid_ns
    }

    /// Returns whether the listing is still usable, given the current `status` of the directory.
    ///
    /// A directory's times reflect names that are added and removed, not files that grow. A page is
    /// therefore rebuilt after some time in any case; the more rows it has, the longer it is kept.
    pub(crate) fn is_current(&self, status: &Status, now: Now, valid_ns: u64) -> bool {
        let age_max_ns = valid_ns.saturating_add(self.rows as u64 * ROW_AGE_NS);
        let age_ns = now.monotonic_ns.saturating_sub(self.made_ns);
        self.is_settled && self.status == *status && age_ns < age_max_ns
    }

    /// Records that the listing was checked and found valid.
    pub(crate) fn mark_checked(&self, now: Now) {
        self.checked_ns.store(now.monotonic_ns, Ordering::Relaxed);
    }

    /// Memory use, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Listing>() + self.entry.memory_bytes()
    }
}

/// Keeps a listing under construction alive. When all its waiters are dropped, it is abandoned.
#[derive(Clone, Debug, Default)]
pub struct Waiter(#[expect(dead_code, reason = "counted, not read")] Arc<()>);

/// Counts of listings since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingCounts {
    /// Pages finished.
    pub made: u64,
    /// Parts in which pages were built.
    pub parts: u64,
    /// Maximum number of entries examined and rows written in one part.
    pub part_rows_max: u64,
}

/// The listings under construction.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    pending: Vec<PendingListing>,
    pub(crate) counts: ListingCounts,
}

#[derive(Debug)]
struct PendingListing {
    key: Box<[u8]>,
    /// Dead once all waiters have been dropped.
    waiters: Weak<()>,
    state: ListingState,
}

#[derive(Debug)]
enum ListingState {
    Building(Charged<Box<ListingBuilder>>, Now),
    /// Kept for requests that are still waiting: the listing may not have been cached.
    Made(Arc<Listing>),
}

/// State of a listing under construction.
pub(crate) enum Progress {
    /// The listing is finished.
    Made(Arc<Listing>),
    /// Construction continues on the next call.
    Unfinished(Waiter),
}

impl Listings {
    /// Starts the listing of a directory that is not under construction, if there is room for
    /// another. Returns a waiter in any case.
    pub(crate) fn begin(
        &mut self,
        key: &[u8],
        path: &[u8],
        directory: OpenedFile,
        now: Now,
    ) -> Waiter {
        let waiter = Arc::new(());
        if self.pending.len() < PENDING_MAX {
            let build =
                Charged::of(Part::Listings, || Box::new(ListingBuilder::new(path, directory)));
            self.pending.push(PendingListing {
                key: key.into(),
                waiters: Arc::downgrade(&waiter),
                state: ListingState::Building(build, now),
            });
        }
        Waiter(waiter)
    }

    /// Builds the next part of a listing, if `advances`. Returns `None` if it is not under
    /// construction.
    ///
    /// # Errors
    /// Errors of reading a directory; the listing is then abandoned.
    pub(crate) fn advance(
        &mut self,
        key: &[u8],
        tree: &Tree,
        advances: bool,
    ) -> io::Result<Option<Progress>> {
        self.pending.retain(|each| each.waiters.strong_count() > 0);
        let Some(pending) = self.pending.iter_mut().find(|each| *each.key == *key) else {
            return Ok(None);
        };
        let Some(waiter) = pending.waiters.upgrade() else { return Ok(None) };
        let unfinished = Progress::Unfinished(Waiter(waiter));
        let (build, begun) = match &mut pending.state {
            ListingState::Made(listing) => return Ok(Some(Progress::Made(Arc::clone(listing)))),
            ListingState::Building(..) if !advances => return Ok(Some(unfinished)),
            ListingState::Building(build, begun) => (build, *begun),
        };
        let part = build
            .measure(|build| build.advance(tree))
            .inspect_err(|_| pending.waiters = Weak::new())?;
        self.counts.parts += 1;
        self.counts.part_rows_max = self.counts.part_rows_max.max(part.rows as u64);
        let Some((page, rows)) = part.made else { return Ok(Some(unfinished)) };
        self.counts.made += 1;
        let listing = Arc::new(Listing::new(page, rows, build.status(), begun));
        pending.state = ListingState::Made(Arc::clone(&listing));
        Ok(Some(Progress::Made(listing)))
    }
}

/// Age beyond `valid_ns` that a page may reach for each of its rows. Building a row takes some
/// microseconds, which is then less than a hundredth of the time.
const ROW_AGE_NS: u64 = 1_000_000;

/// Maximum number of listings under construction: each takes memory and a descriptor. Further ones
/// wait their turn.
const PENDING_MAX: usize = 4;
