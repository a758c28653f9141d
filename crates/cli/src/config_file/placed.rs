//! Values of a configuration file with their place there, for errors that are found later.

use std::ops::Range;
use std::path::Path;

use weir_lab::document;

/// The file that is read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Source<'_> {
    /// Puts the file, line and column before a sentence about what is there.
    pub(super) fn wrong(&self, span: Range<usize>, says: &str) -> String {
        let says = document::located(self.text, Some(span), says.trim());
        format!("{}: {}", self.path.display(), says.replace('\n', " "))
    }

    /// Returns file, line and column, each followed by a colon or comma.
    pub(super) fn place(&self, span: Range<usize>) -> String {
        self.wrong(span, "")
    }

    pub(super) fn placed<T>(&self, value: T, span: Range<usize>) -> Placed<T> {
        Placed { value, place: self.place(span) }
    }
}

/// A value with its place.
#[derive(Debug)]
pub(crate) struct Placed<T> {
    pub value: T,
    /// File, line and column, each followed by a colon or comma.
    place: String,
}

impl<T> Placed<T> {
    /// Puts the place before a sentence about the value.
    pub(crate) fn wrong(&self, says: &str) -> String {
        format!("{}{says}", self.place)
    }
}
