//! Separates code from comments and strings in Rust source, line by line, so that a rule about code
//! is not triggered by text about code. Implements the lexical grammar only.

/// A line of source, split into code and comment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The code; only the quotes remain of a string or character literal.
    pub(crate) code: String,
    /// The text of its comments, including the comment markers.
    pub(crate) comment: String,
}

/// Splits source into its lines.
pub(crate) fn lines(source: &str) -> Vec<Line> {
    let mut scan = Scan { rest: source, lines: Vec::new(), line: Line::default() };
    while let Some(c) = scan.rest.chars().next() {
        scan.step(c);
    }
    if scan.line != Line::default() {
        scan.end_line();
    }
    scan.lines
}

struct Scan<'a> {
    rest: &'a str,
    lines: Vec<Line>,
    line: Line,
}

impl<'a> Scan<'a> {
    fn step(&mut self, c: char) {
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.comment(end);
        } else if self.rest.starts_with("/*") {
            self.comment(block_comment_len(self.rest));
        } else if let Some(len) = self.literal_len(c) {
            self.literal(len);
        } else {
            self.code(c);
        }
    }

    fn code(&mut self, c: char) {
        self.take(c.len_utf8());
        match c {
            '\n' => self.end_line(),
            _ => self.line.code.push(c),
        }
    }

    fn comment(&mut self, len: usize) {
        let mut parts = self.take(len).split('\n');
        self.line.comment.push_str(parts.next().unwrap_or_default());
        for part in parts {
            self.end_line();
            self.line.comment.push_str(part);
        }
    }

    fn literal(&mut self, len: usize) {
        let breaks = self.take(len).matches('\n').count();
        self.line.code.push('"');
        for _ in 0..breaks {
            self.end_line();
        }
        self.line.code.push('"');
    }

    /// Returns the length of the literal that starts here, if there is one.
    fn literal_len(&self, c: char) -> Option<usize> {
        let after_word = self.line.code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        match c {
            '"' => Some(string_len(self.rest)),
            '\'' => char_len(self.rest),
            'r' if !after_word => raw_string_len(self.rest),
            'b' | 'c' if !after_word && self.rest.get(1..2) == Some("r") => {
                raw_string_len(self.rest.get(1..)?).map(|len| len + 1)
            }
            _ => None,
        }
    }

    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn end_line(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
    }
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

fn string_len(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return at + 1,
            '\\' => drop(chars.next()),
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal; `None` if the quote starts a lifetime or a label.
fn char_len(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1);
    }
    chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

fn raw_string_len(text: &str) -> Option<usize> {
    let hashes = text.get(1..)?.bytes().take_while(|byte| *byte == b'#').count();
    let inside = text.get(1 + hashes..)?.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let len = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(2 + hashes + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> Vec<String> {
        lines(source).into_iter().map(|line| line.code).collect()
    }

    fn comments(source: &str) -> Vec<String> {
        lines(source).into_iter().map(|line| line.comment).collect()
    }

    #[test]
    fn strings_are_emptied() {
        assert_eq!(code("a(\"b // c\\\" d\", 1);\n"), ["a(\"\", 1);"]);
        assert_eq!(code("x = \"one\ntwo\n\"; y\n"), ["x = \"", "", "\"; y"]);
        assert_eq!(
            code("b\"x\" + r\"\\\" + br#\"a\"b\"# + c\"n\""),
            ["b\"\" + \"\" + \"\" + c\"\""]
        );
    }

    #[test]
    fn characters_are_not_lifetimes() {
        assert_eq!(code("f('\"', '\\'', '\\u{1F600}', 'é')"), ["f(\"\", \"\", \"\", \"\")"]);
        assert_eq!(code("fn f<'a>(x: &'a str, 'b': loop)"), ["fn f<'a>(x: &'a str, \"\": loop)"]);
        assert_eq!(code("'outer: loop { break 'outer; }"), ["'outer: loop { break 'outer; }"]);
        assert_eq!(code("b'\"' \"x\""), ["b\"\" \"\""]);
    }

    #[test]
    fn comments_are_kept_apart() {
        assert_eq!(code("a; // b \"c\nd;\n"), ["a; ", "d;"]);
        assert_eq!(comments("a; // b \"c\nd;\n"), ["// b \"c", ""]);
        assert_eq!(code("a /* b /* c */ d\n e */ f"), ["a ", " f"]);
        assert_eq!(comments("a /* b /* c */ d\n e */ f"), ["/* b /* c */ d", " e */"]);
    }

    #[test]
    fn raw_names_are_code() {
        assert_eq!(code("r#type = for_r\"x\""), ["r#type = for_r\"\""]);
    }

    #[test]
    fn an_unclosed_literal_ends_with_the_file() {
        assert_eq!(code("a \"b"), ["a \"\""]);
        assert_eq!(code("a /* b"), ["a "]);
        assert_eq!(code("a r#\"b"), ["a \"\""]);
        assert_eq!(code("'"), ["'"]);
        assert_eq!(lines(""), []);
    }
}
