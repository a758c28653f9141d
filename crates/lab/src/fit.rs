//! Fits texts to a width: wraps them at spaces, and cuts what is too long. A width is a number of
//! characters, each of which is taken to be one column wide.

/// Mark at the end of a text that was cut.
const CUT: char = '…';

/// Returns a text, cut to `width` characters, the mark of the cut among them.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain([CUT]).collect()
}

/// Wraps a text to `width` characters, at most `lines_max` lines; the rest is cut.
pub(crate) fn wrapped(text: &str, width: usize, lines_max: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    if lines.len() > lines_max {
        lines.truncate(lines_max);
        if let Some(line) = lines.last_mut() {
            line.push(CUT);
        }
    }
    lines.retain(|line| !line.is_empty());
    lines.iter().map(|line| cut(line, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped_and_the_rest_is_cut() {
        let lines = wrapped(&"word ".repeat(60), 76, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with(CUT) && lines.iter().all(|line| line.chars().count() <= 76));
        assert_eq!(wrapped("  two\nwords ", 76, 2), ["two words"]);
        assert_eq!(wrapped("", 76, 2), [""; 0]);
        assert_eq!(wrapped("one longerword", 6, 2), ["one", "longe…"]);
    }

    #[test]
    fn a_text_that_is_too_long_ends_with_the_mark_of_a_cut() {
        assert_eq!((cut("αβγ", 3).as_str(), cut("αβγδ", 3).as_str()), ("αβγ", "αβ…"));
    }
}
