//! A listing in the making: the names in a directory, then what each is, then the page. It is made
//! part by part, each of which takes a fraction of a millisecond and the last, which copies a large
//! page, about one, so that its maker can serve others in between. Nothing here knows who waits for
//! it, or keeps it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;

use weir_sys::file::{self, Status};

use super::page::{LeftOut, Page, Row};
use crate::tree::{Source, Tree};

/// The page of a directory, as far as it is made.
#[derive(Debug)]
pub(super) struct Build {
    /// The directory's path below the root.
    path: Vec<u8>,
    directory: Source,
    stage: Stage,
    /// Names that have not been examined.
    names: Vec<Vec<u8>>,
    rows: BTreeSet<Row>,
    left_out: LeftOut,
}

#[derive(Debug)]
enum Stage {
    Names,
    Rows,
    Page(Page),
}

/// A part of a build.
#[derive(Debug)]
pub(super) struct Part {
    /// Entries examined and rows written.
    pub(super) rows: usize,
    /// The page, when this was the last part, and how many rows it has.
    pub(super) made: Option<(String, usize)>,
}

impl Build {
    /// Begins the page of the directory at `path`, which is open.
    pub(super) fn new(path: &[u8], directory: Source) -> Build {
        Build {
            path: path.to_vec(),
            directory,
            stage: Stage::Names,
            names: Vec::new(),
            rows: BTreeSet::new(),
            left_out: LeftOut::default(),
        }
    }

    /// The directory's status before it was read.
    pub(super) fn status(&self) -> Status {
        self.directory.status
    }

    /// Makes the next part. It waits for the disk.
    ///
    /// # Errors
    /// Those of reading a directory. An entry that cannot be examined is left out.
    pub(super) fn advance(&mut self, tree: &Tree) -> io::Result<Part> {
        let (mut effort, mut rows) = (0, 0);
        while effort < PART_EFFORT {
            match &mut self.stage {
                Stage::Names => {
                    effort += 1 + self.read_names(tree)?;
                }
                Stage::Rows => {
                    effort += EXAMINE_EFFORT;
                    rows += 1;
                    self.examine_one(tree);
                }
                Stage::Page(page) => match self.rows.pop_first() {
                    Some(row) => {
                        rows += 1;
                        effort += 1 + row.name.len() / NAME_BYTES_PER_EFFORT;
                        if !page.push(&row) {
                            self.left_out.count += 1 + self.rows.len();
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

    /// Reads the next names, and says how many they were.
    fn read_names(&mut self, tree: &Tree) -> io::Result<usize> {
        let Build { directory, names, left_out, .. } = self;
        let mut read = 0;
        let more = file::read_names(directory.file.as_fd(), |name| {
            read += 1;
            if !tree.shows(name) {
            } else if names.len() < ROWS_MAX {
                names.push(name.to_vec());
            } else {
                left_out.count += 1;
            }
        })?;
        left_out.more = more && left_out.count >= COUNTED_MAX;
        if !more || left_out.more {
            self.stage = Stage::Rows;
        }
        Ok(read)
    }

    fn examine_one(&mut self, tree: &Tree) {
        match self.names.pop() {
            Some(name) => self.rows.extend(tree.row(&self.directory.file, &self.path, name)),
            None => self.stage = Stage::Page(Page::begin(&self.path, self.rows.len())),
        }
    }

    fn end(&mut self) -> (String, usize) {
        let full = std::mem::replace(&mut self.stage, Stage::Rows);
        let Stage::Page(page) = full else { return (String::new(), 0) };
        let rows = page.rows();
        (page.end(self.left_out), rows)
    }
}

/// The most rows a page has: of a directory with more, those the kernel names first.
pub(crate) const ROWS_MAX: usize = 10_000;

/// Names counted beyond those, at most.
const COUNTED_MAX: usize = 100_000;

/// Length of a part, in units of the time it takes to read a name or to write a short row: half a
/// microsecond.
const PART_EFFORT: usize = 400;

/// Units that it takes to examine an entry: a system call.
const EXAMINE_EFFORT: usize = 3;

/// A page up to this size is copied to where it stays as soon as it is written.
const PAGE_BYTES_AT_ONCE: usize = 64 << 10;

/// Bytes of a name that take as long to write as a row without them.
const NAME_BYTES_PER_EFFORT: usize = 64;
