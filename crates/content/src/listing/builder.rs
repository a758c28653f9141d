//! Incremental construction of a listing: read the names in a directory, examine each, write the
//! page. A listing is built in parts, each of which takes a fraction of a millisecond (the last,
//! which copies a large page, about one), so that the event loop can serve other requests in
//! between.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;

use weir_sys::file::{self, Status};

use super::page::{Omitted, Page, Row};
use crate::tree::{OpenedFile, Tree};

/// The page of a directory under construction.
#[derive(Debug)]
pub(super) struct ListingBuilder {
    /// Path of the directory below the root.
    path: Vec<u8>,
    directory: OpenedFile,
    stage: BuildStage,
    /// Names that have not been examined yet.
    names: Vec<Vec<u8>>,
    rows: BTreeSet<Row>,
    omitted: Omitted,
}

#[derive(Debug)]
enum BuildStage {
    Names,
    Rows,
    Page(Page),
}

/// Result of one part of a build.
#[derive(Debug)]
pub(super) struct Part {
    /// Number of entries examined and rows written.
    pub(super) rows: usize,
    /// The finished page and its number of rows, if this was the last part.
    pub(super) made: Option<(String, usize)>,
}

impl ListingBuilder {
    /// Starts the page of the open directory at `path`.
    pub(super) fn new(path: &[u8], directory: OpenedFile) -> ListingBuilder {
        ListingBuilder {
            path: path.to_vec(),
            directory,
            stage: BuildStage::Names,
            names: Vec::new(),
            rows: BTreeSet::new(),
            omitted: Omitted::default(),
        }
    }

    /// Returns the directory's status from before it was read.
    pub(super) fn status(&self) -> Status {
        self.directory.status
    }

    /// Builds the next part. Blocks on the disk.
    ///
    /// # Errors
    /// Errors of reading a directory. An entry that cannot be examined is left out.
    pub(super) fn advance(&mut self, tree: &Tree) -> io::Result<Part> {
        let (mut effort, mut rows) = (0, 0);
        while effort < PART_EFFORT {
            match &mut self.stage {
                BuildStage::Names => {
                    effort += 1 + self.read_names(tree)?;
                }
                BuildStage::Rows => {
                    effort += EXAMINE_EFFORT;
                    rows += 1;
                    self.examine_one(tree);
                }
                BuildStage::Page(page) => match self.rows.pop_first() {
                    Some(row) => {
                        rows += 1;
                        effort += 1 + row.name.len() / NAME_BYTES_PER_EFFORT;
                        if !page.push(&row) {
                            self.omitted.count += 1 + self.rows.len();
                            self.rows.clear();
                        }
                    }
                    // To copy a large page is a part by itself.
                    None if effort > 0 && page.len() > PAGE_BYTES_AT_ONCE => break,
                    None => return Ok(Part { rows, made: Some(self.end()) }),
                },
            }
        }
        Ok(Part { rows, made: None })
    }

    /// Reads the next names and returns their number.
    fn read_names(&mut self, tree: &Tree) -> io::Result<usize> {
        let ListingBuilder { directory, names, omitted, .. } = self;
        let mut read = 0;
        let more = file::read_names(directory.file.as_fd(), |name| {
            read += 1;
            if !tree.shows(name) {
            } else if names.len() < ROWS_MAX {
                names.push(name.to_vec());
            } else {
                omitted.count += 1;
            }
        })?;
        omitted.more = more && omitted.count >= COUNTED_MAX;
        if !more || omitted.more {
            self.stage = BuildStage::Rows;
        }
        Ok(read)
    }

    fn examine_one(&mut self, tree: &Tree) {
        match self.names.pop() {
            Some(name) => self.rows.extend(tree.row(&self.directory.file, &self.path, name)),
            None => self.stage = BuildStage::Page(Page::begin(&self.path, self.rows.len())),
        }
    }

    fn end(&mut self) -> (String, usize) {
        let full = std::mem::replace(&mut self.stage, BuildStage::Rows);
        let BuildStage::Page(page) = full else { return (String::new(), 0) };
        let rows = page.rows();
        (page.end(self.omitted), rows)
    }
}

/// Maximum number of rows of a page. A larger directory shows the names that the kernel returns
/// first.
pub(crate) const ROWS_MAX: usize = 10_000;

/// Maximum number of further names that are counted but not shown.
const COUNTED_MAX: usize = 100_000;

/// Length of a part, in units of the time it takes to read a name or write a short row: half a
/// microsecond.
const PART_EFFORT: usize = 400;

/// Cost of examining an entry, which takes a system call, in the same units.
const EXAMINE_EFFORT: usize = 3;

/// Maximum size at which a page is copied to its final place in the same part in which it is
/// finished.
const PAGE_BYTES_AT_ONCE: usize = 64 << 10;

/// Length of a name that takes as long to write as the rest of its row.
const NAME_BYTES_PER_EFFORT: usize = 64;
