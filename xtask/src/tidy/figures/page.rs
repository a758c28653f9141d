//! A page of Markdown as passages: the prose of each paragraph and item, the numbers of each row of
//! a table, and beside each what it may lean on: its links and the commands it names. Code blocks,
//! headings, headers of tables and generated tables are left out.

use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Stands for a code span in a passage, unless that is a number: what an option is set to is a
/// setting, but back-quotes alone make no figure one.
pub(super) const CODE: char = '\u{fffc}';

/// Links and commands, each with its place in the text of the passage that has them.
#[derive(Clone, Default)]
pub(super) struct Sources {
    /// Targets of links, as written.
    pub(super) links: Vec<String>,
    /// Text of code spans, and where in the text each of them stands.
    pub(super) code: Vec<(usize, String)>,
}

/// A paragraph, an item of a list, or a cell of a table.
pub(super) struct Passage {
    pub(super) text: String,
    pub(super) is_cell: bool,
    /// Its own sources; those of the whole row, for a cell.
    pub(super) own: Sources,
    /// Sources of the paragraph before its list or table.
    pub(super) caption: Sources,
    /// The text of that paragraph, for a cell.
    pub(super) caption_text: String,
    /// Sources of the first paragraph below the nearest heading.
    pub(super) lead: Sources,
    places: Vec<(usize, usize)>,
}

impl Passage {
    /// The place in the page of the byte `at` of the text.
    pub(super) fn place(&self, at: usize) -> usize {
        let next = self.places.partition_point(|&(start, _)| start <= at);
        let piece = next.checked_sub(1).and_then(|last| self.places.get(last));
        piece.map_or(0, |&(start, place)| place + (at - start))
    }
}

/// Returns the passages of `page`, in order.
pub(super) fn passages(page: &str) -> Vec<Passage> {
    let mut reader = Reader::default();
    let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
    for (event, range) in Parser::new_ext(page, options).into_offset_iter() {
        reader.read(event, &range);
    }
    reader.done
}

#[derive(Default)]
struct Reader {
    done: Vec<Passage>,
    text: String,
    places: Vec<(usize, usize)>,
    sources: Sources,
    lead: Option<Sources>,
    caption: Sources,
    caption_text: String,
    row_start: usize,
    column: usize,
    list_depth: usize,
    skipped: usize,
    generated: bool,
}

impl Reader {
    fn read(&mut self, event: Event<'_>, range: &Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.push(&text, range.start),
            Event::Code(code) => {
                let is_number = code.starts_with(|first: char| first.is_ascii_digit());
                let shown = if is_number { code.to_string() } else { CODE.to_string() };
                self.sources.code.push((self.text.len(), code.into_string()));
                self.push(&shown, range.start);
            }
            Event::SoftBreak | Event::HardBreak => self.push(" ", range.start),
            Event::Html(html) => self.comment(&html),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { .. } | Tag::CodeBlock(_) | Tag::TableHead => {
                self.flush();
                self.skipped += 1;
            }
            Tag::Image { .. } => self.skipped += 1,
            Tag::Link { dest_url, .. } => self.sources.links.push(dest_url.into_string()),
            Tag::List(_) => {
                self.flush();
                self.list_depth += 1;
            }
            Tag::Item | Tag::Paragraph => self.flush(),
            Tag::TableRow => {
                self.flush();
                self.row_start = self.done.len();
                self.column = 0;
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.leave_skipped();
                self.lead = None;
                self.caption = Sources::default();
                self.caption_text.clear();
            }
            TagEnd::CodeBlock | TagEnd::TableHead | TagEnd::Image => self.leave_skipped(),
            TagEnd::List(_) => {
                self.flush();
                self.list_depth = self.list_depth.saturating_sub(1);
            }
            TagEnd::Item => self.flush(),
            TagEnd::Paragraph => self.end_paragraph(),
            TagEnd::TableCell => self.end_cell(),
            TagEnd::TableRow => self.end_row(),
            _ => {}
        }
    }

    fn leave_skipped(&mut self) {
        self.skipped = self.skipped.saturating_sub(1);
        if self.skipped == 0 && self.text.is_empty() {
            self.sources = Sources::default();
        }
    }

    fn end_paragraph(&mut self) {
        if self.list_depth == 0 {
            self.lead.get_or_insert_with(|| self.sources.clone());
            self.caption = self.sources.clone();
            self.caption_text.clone_from(&self.text);
        }
        self.flush();
    }

    /// Ends a cell. The first of a row says what the row is about.
    fn end_cell(&mut self) {
        self.column += 1;
        if self.column > 1 && self.skipped == 0 && !self.generated {
            let passage = self.take_text(true);
            self.done.push(passage);
        }
        self.text.clear();
        self.places.clear();
    }

    fn end_row(&mut self) {
        let row = std::mem::take(&mut self.sources);
        for cell in self.done.iter_mut().skip(self.row_start) {
            cell.own = row.clone();
        }
    }

    fn push(&mut self, text: &str, place: usize) {
        if self.skipped == 0 && !self.generated {
            self.places.push((self.text.len(), place));
            self.text.push_str(text);
        }
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            let mut passage = self.take_text(false);
            passage.own = std::mem::take(&mut self.sources);
            self.done.push(passage);
        }
        self.sources = Sources::default();
    }

    fn take_text(&mut self, is_cell: bool) -> Passage {
        let under_caption = is_cell || self.list_depth > 0;
        Passage {
            text: std::mem::take(&mut self.text),
            is_cell,
            own: Sources::default(),
            caption: if under_caption { self.caption.clone() } else { Sources::default() },
            caption_text: if is_cell { self.caption_text.clone() } else { String::new() },
            lead: self.lead.clone().unwrap_or_default(),
            places: std::mem::take(&mut self.places),
        }
    }

    /// Leaves out what `cargo xtask docs` places: it comes from the binary or from a record.
    fn comment(&mut self, html: &str) {
        if html.trim_start().starts_with("<!-- generated:") {
            self.generated = true;
        } else if html.trim_start().starts_with("<!-- /generated") {
            self.generated = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(page: &str) -> Vec<String> {
        passages(page).into_iter().map(|passage| passage.text).collect()
    }

    #[test]
    fn paragraphs_items_and_cells_are_passages() {
        let page = "# 1 ms\n\nTwo\nlines.\n\n- one `--a 5ms` `7 s`\n- two\n\n  more\n\n\
                    | a | 2 ms |\n|---|---|\n| 3 ms | 4 |\n\n```\n6 ms\n```\n";
        let expected = ["Two lines.", "one \u{fffc} 7 s", "two", "more", "4"];
        assert_eq!(texts(page), expected);
    }

    #[test]
    fn generated_tables_and_images_are_left_out() {
        let page = "![1 ms](a.svg)\n\n<!-- generated: x -->\n| a |b|\n|---|---|\n| 1 | 2 |\n\
                    <!-- /generated -->\n\nafter\n";
        assert_eq!(texts(page), ["after"]);
    }

    #[test]
    fn a_passage_leans_on_its_links_its_caption_and_its_lead() {
        let page = "# A\n\n[lead](l.md)\n\n[own](o.md)\n\n[caption](c.md):\n\n\
                    | a | b |\n|---|---|\n| [row](r.md) | 2 |\n\n## B\n\ntext\n";
        let found = passages(page);
        let of = |at: usize| {
            let passage = &found[at];
            [&passage.own, &passage.caption, &passage.lead].map(|from| from.links.join(" "))
        };
        assert_eq!(of(1), ["o.md", "", "l.md"]);
        assert_eq!(of(3), ["r.md", "c.md", "l.md"]);
        assert_eq!(of(4), ["", "", ""]);
    }

    #[test]
    fn a_place_is_that_in_the_page() {
        let page = "# A\n\none `x` two\nthree\n";
        let passage = &passages(page)[0];
        let at = passage.text.find("three").unwrap();
        assert_eq!(&page[passage.place(at)..], "three\n");
    }
}
