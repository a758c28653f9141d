//! Rules for Rust source. Each looks at one file's text, split by [`crate::scan`]; none parses the
//! language: rustfmt's layout determines where a function ends.

use super::violation::Violation;
use crate::scan::{self, Line};

const COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 900;
const FUNCTION_LINES_MAX: usize = 70;
const CRATE_DOC_LINES_MIN: usize = 3;

/// Macros and attributes that mark unfinished code.
const UNFINISHED: &[&str] = &[
    concat!("to", "do!"),
    concat!("un", "implemented!"),
    concat!("d", "bg!"),
    concat!("#[", "ignore"),
];

/// Markers of unfinished work in comments.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// The only place where `unsafe` is allowed.
const UNSAFE_HOME: &str = "crates/sys/";

/// Returns every violation of a rule in the file `path` with the content `text`.
pub(super) fn check(path: &str, text: &str) -> Vec<Violation> {
    let lines = scan::lines(text);
    let mut found = whole_file(path, text);
    found.extend(layout(text));
    for (at, line) in lines.iter().enumerate() {
        found.extend(one_line(path, line).into_iter().map(|what| (at + 1, what)));
    }
    found.extend(long_functions(&lines));
    found.into_iter().map(|(line, what)| Violation::new(path, line, what)).collect()
}

fn whole_file(path: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let count = text.lines().count();
    if !text.starts_with("//!") {
        found.push((1, "the file does not start with `//!`".to_owned()));
    }
    if !text.ends_with('\n') {
        found.push((count, "no newline at the end".to_owned()));
    }
    if count > FILE_LINES_MAX {
        found.push((count, format!("{count} lines, more than {FILE_LINES_MAX}")));
    }
    let head = text.lines().take_while(|line| line.starts_with("//!")).count();
    if is_lib(path) && (1..CRATE_DOC_LINES_MIN).contains(&head) {
        let what = format!("a crate is introduced in at least {CRATE_DOC_LINES_MIN} lines");
        found.push((1, what));
    }
    found
}

fn is_lib(path: &str) -> bool {
    path.starts_with("crates/") && path.ends_with("/src/lib.rs")
}

fn layout(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in text.split('\n').enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !line.contains("://") {
            found.push((at + 1, format!("{columns} columns, more than {COLUMNS_MAX}")));
        }
        if line.contains('\t') {
            found.push((at + 1, "a tab".to_owned()));
        }
        if line.ends_with(char::is_whitespace) {
            found.push((at + 1, "white space at the end".to_owned()));
        }
    }
    found
}

fn one_line(path: &str, line: &Line) -> Vec<String> {
    let unfinished = UNFINISHED.iter().filter(|word| line.code.contains(**word));
    let marks = MARKS.iter().filter(|word| holds_word(&line.comment, word));
    let mut found: Vec<String> =
        unfinished.chain(marks).map(|word| format!("unfinished: {word}")).collect();
    if !path.starts_with(UNSAFE_HOME) && holds_word(&line.code, "unsafe") {
        found.push(format!("unsafe outside {UNSAFE_HOME}"));
    }
    found
}

fn holds_word(text: &str, word: &str) -> bool {
    let of_a_word = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !of_a_word(c)).any(|part| part == word)
}

/// Returns the functions with too many lines, from the line with `fn` to its closing brace.
fn long_functions(lines: &[Line]) -> Vec<(usize, String)> {
    let starts = lines.iter().enumerate().filter_map(|(at, line)| Some((at, function(line)?)));
    let lengths = starts.map(|(at, name)| (at, name, length(lines.get(at..).unwrap_or_default())));
    lengths
        .filter(|(_, _, length)| *length > FUNCTION_LINES_MAX)
        .map(|(at, name, length)| {
            (at + 1, format!("fn {name}: {length} lines, more than {FUNCTION_LINES_MAX}"))
        })
        .collect()
}

/// Returns the name of the function that starts on this line.
fn function(line: &Line) -> Option<&str> {
    let (before, after) = line.code.trim_start().split_once("fn ")?;
    let qualifier = |word: &str| {
        matches!(word, "const" | "async" | "unsafe" | "extern" | "\"\"" | "default" | "in")
            || word.starts_with("pub")
            || word.ends_with(')')
    };
    let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (before.split_whitespace().all(qualifier) && !name.is_empty()).then_some(name)
}

/// Returns the number of lines of the function at the start of `lines`. Its last line is the first
/// with the indentation of the first line that ends the body, or the declaration if there is no
/// body.
fn length(lines: &[Line]) -> usize {
    let indentation = |line: &Line| line.code.len() - line.code.trim_start().len();
    let own = lines.first().map_or(0, indentation);
    let closes = |line: &Line| {
        let code = line.code.trim();
        // A line that starts with a quote is the end of a string that began further up.
        let of_string = code.starts_with('"');
        indentation(line) == own && !of_string && (code.ends_with('}') || code.ends_with(';'))
    };
    lines.iter().position(closes).map_or(lines.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(path, text).iter().map(ToString::to_string).collect()
    }

    fn body(text: &str) -> Vec<String> {
        found("a.rs", &format!("//! Head.\n{text}"))
    }

    #[test]
    fn a_clean_file_passes() {
        let [unfinished, _, debug, _] = UNFINISHED else { panic!("there are others") };
        let doc = format!("/// Doc of `unsafe` and {unfinished}.");
        let text = format!("\n{doc}\nfn a() -> &'static str {{\n    \"{debug}\"\n}}\n");
        assert_eq!(body(&text), Vec::<String>::new());
    }

    #[test]
    fn the_head_and_the_end_are_needed() {
        assert_eq!(found("a.rs", "fn a() {}\n"), ["a.rs:1: the file does not start with `//!`"]);
        assert_eq!(found("a.rs", "//! Head."), ["a.rs:1: no newline at the end"]);
    }

    #[test]
    fn a_crate_is_introduced_at_length() {
        let short = "//! Head.\n//! More.\n";
        let expected = "crates/x/src/lib.rs:1: a crate is introduced in at least 3 lines";
        assert_eq!(found("crates/x/src/lib.rs", short), [expected]);
        assert_eq!(found("crates/x/src/other.rs", short), Vec::<String>::new());
        assert_eq!(found("crates/x/src/lib.rs", "//! A\n//!\n//! B\n"), Vec::<String>::new());
    }

    #[test]
    fn lines_are_narrow_and_clean() {
        let exact = "é".repeat(97);
        assert_eq!(body(&format!("// {exact}\n")), Vec::<String>::new());
        assert_eq!(body(&format!("// {exact}é\n")), ["a.rs:2: 101 columns, more than 100"]);
        assert_eq!(body(&format!("// https://{exact}\n")), Vec::<String>::new());
        assert_eq!(body("//\ta\n// b \n"), ["a.rs:2: a tab", "a.rs:3: white space at the end"]);
        assert_eq!(body("// a\r\n"), ["a.rs:2: white space at the end"]);
    }

    #[test]
    fn a_file_is_not_endless() {
        assert_eq!(body(&"\n".repeat(899)), Vec::<String>::new());
        assert_eq!(body(&"\n".repeat(900)), ["a.rs:901: 901 lines, more than 900"]);
    }

    #[test]
    fn nothing_is_left_unfinished() {
        for word in UNFINISHED {
            assert_eq!(body(&format!("{word}\n")), [format!("a.rs:2: unfinished: {word}")]);
            assert_eq!(body(&format!("// {word}\n")), Vec::<String>::new());
        }
        for mark in MARKS {
            assert_eq!(
                body(&format!("a; // {mark}: b\n")),
                [format!("a.rs:2: unfinished: {mark}")]
            );
            assert_eq!(
                body(&format!("let {mark} = \"{mark}\"; // {mark}S\n")),
                Vec::<String>::new()
            );
        }
    }

    #[test]
    fn unsafe_has_one_home() {
        assert_eq!(body(concat!("un", "safe { f() }\n")), ["a.rs:2: unsafe outside crates/sys/"]);
        assert_eq!(body("#![forbid(unsafe_code)]\n"), Vec::<String>::new());
        let at_home = concat!("//! Head.\nun", "safe {}\n");
        assert_eq!(found("crates/sys/src/a.rs", at_home), Vec::<String>::new());
    }

    #[test]
    fn functions_are_short() {
        let function = |lines: usize| {
            let body = "        if x {\n        }\n".repeat((lines - 2) / 2);
            format!("    pub(crate) const fn a(\n    ) {{\n{body}    }}\n\nfn b() {{\n}}\n")
        };
        assert_eq!(body(&function(68)), Vec::<String>::new());
        assert_eq!(body(&function(70)), ["a.rs:2: fn a: 71 lines, more than 70"]);
    }

    #[test]
    fn declarations_and_one_liners_end_at_once() {
        let rest = "// filler\n".repeat(80);
        let text = format!("fn a();\nfn b() {{}}\nfn c(\n    x: u8,\n) -> u8;\n{rest}");
        assert_eq!(body(&text), Vec::<String>::new());
        let text = format!("fn a<T>() -> T\nwhere\n    T: X,\n{{\n{rest}}}\n");
        assert_eq!(body(&text), ["a.rs:2: fn a: 85 lines, more than 70"]);
        let text = format!("fn a() {{\n    let x = r\"\n\";\n{rest}}}\n");
        assert_eq!(body(&text), ["a.rs:2: fn a: 84 lines, more than 70"]);
    }

    #[test]
    fn a_function_is_known_by_its_keyword() {
        let name = |code: &str| {
            let lines = scan::lines(code);
            lines.first().and_then(function).map(str::to_owned)
        };
        assert_eq!(name("    pub(in crate::a) unsafe extern \"C\" fn a() {"), Some("a".to_owned()));
        assert_eq!(name("async fn b<T>() {"), Some("b".to_owned()));
        assert_eq!(name("let f: fn (u8) = g;"), None);
        assert_eq!(name("type_fn b"), None);
        assert_eq!(name("    // fn a() {"), None);
    }
}
