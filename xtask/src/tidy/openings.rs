//! First words of doc comments: a comment leads with the noun or the verb. A few may open
//! otherwise, so the rule is a share of the whole tree and not of a file.

use std::fmt;

/// Words that a doc comment should not open with.
const EVASIVE: &[&str] = &["What", "Who", "Whom", "Whose", "How", "Whether", "One", "So", "Of"];

/// The largest share of doc comments that may open with one of them, percent.
const PERCENT_MAX: usize = 5;

/// Doc comments counted so far.
#[derive(Debug, Default)]
pub(super) struct Openings {
    comments: usize,
    evasive: usize,
}

impl Openings {
    /// Adds the doc comments of a Rust file.
    pub(super) fn add(&mut self, text: &str) {
        let mut follows = false;
        for line in text.lines().map(str::trim_start) {
            let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let Some(comment) =
                comment.map(str::trim).filter(|text| !follows && !text.is_empty())
            {
                let first = comment.split(|c: char| !c.is_alphanumeric()).next();
                self.comments += 1;
                self.evasive += usize::from(first.is_some_and(|word| EVASIVE.contains(&word)));
            }
            follows = comment.is_some();
        }
    }

    /// Tells whether the share is too large.
    pub(super) fn are_too_many(&self) -> bool {
        self.evasive * 100 > self.comments * PERCENT_MAX
    }
}

impl fmt::Display for Openings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { comments, evasive } = self;
        let words = EVASIVE.join(", ");
        write!(f, "{evasive} of {comments} doc comments open with one of {words}")?;
        write!(f, ", more than {PERCENT_MAX} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_of_comments_count_and_no_others() {
        let mut openings = Openings::default();
        openings
            .add("//! What it is.\n//! How it is.\n\n/// A noun.\n/// One more line.\nfn a() {}\n");
        openings
            .add("    /// Whether it is.\n    /// So.\n    x: u8,\n    // What\n    /// Often.\n");
        assert_eq!((openings.comments, openings.evasive), (4, 2));
        assert!(openings.are_too_many());
        (0..36).for_each(|_| openings.add("/// A noun.\n"));
        assert!(!openings.are_too_many());
        let said = openings.to_string();
        assert!(said.starts_with("2 of 40 doc comments open with one of What, Who"), "{said}");
    }
}
