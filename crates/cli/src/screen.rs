//! Standard error as the place where progress is shown: lines that are drawn again in place on a
//! terminal, or lines one after the other. Knows nothing of what they say.

use std::io::{self, IsTerminal, Write};

use terminal_size::{Height, Width, terminal_size_of};

/// Columns that a frame has at least; of a narrower terminal it goes over the edge.
const WIDTH_MIN: usize = 40;

/// Where progress is shown.
#[derive(Debug)]
pub(crate) struct Screen {
    live: bool,
    /// The columns of each line of the last frame.
    frame: Vec<usize>,
}

impl Screen {
    /// Standard error, as it is.
    pub(crate) fn new() -> Self {
        Self { live: io::stderr().is_terminal(), frame: Vec::new() }
    }

    /// Whether frames are drawn in place.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Columns that a frame is made for.
    pub(crate) fn width(&self) -> usize {
        size().0.max(WIDTH_MIN)
    }

    /// Draws a frame where the last one is; what there is no room for is cut off.
    pub(crate) fn draw(&mut self, lines: &[String]) {
        let size = size();
        let frame = fit(lines, size);
        write(&self.redrawn(&frame, size.0));
        self.frame = frame.iter().map(|line| line.chars().count()).collect();
    }

    /// Says a line, in the place of the frame if there is one.
    pub(crate) fn say(&mut self, line: &str) {
        write(&self.redrawn(&[line.into()], size().0));
        self.frame.clear();
    }

    /// What draws `lines` over the frame. Each row is cleared as it is written: a terminal that is
    /// cleared from its top keeps what was there in its history.
    fn redrawn(&self, lines: &[String], columns: usize) -> String {
        if !self.live {
            return lines.iter().map(|line| format!("{line}\n")).collect();
        }
        let rows: usize = self.frame.iter().map(|width| rows_of(*width, columns)).sum();
        let up = if rows == 0 { String::new() } else { format!("\x1b[{rows}A") };
        let rows: String = lines.iter().map(|line| format!("\x1b[K{line}\n")).collect();
        format!("\r{up}{rows}\x1b[J")
    }
}

/// As many of the lines as a terminal of so many columns and rows has room for, above the row in
/// which the cursor stands, and as much of each.
fn fit(lines: &[String], (columns, rows): (usize, usize)) -> Vec<String> {
    let cut = |line: &String| line.chars().take(columns).collect();
    lines.iter().take(rows.saturating_sub(1)).map(cut).collect()
}

/// Rows that a line takes once a terminal that was made narrower has wrapped it.
fn rows_of(width: usize, columns: usize) -> usize {
    width.div_ceil(columns).max(1)
}

/// Columns and rows of the terminal; the usual ones of none.
fn size() -> (usize, usize) {
    match terminal_size_of(io::stderr()) {
        Some((Width(columns), Height(rows))) if columns > 0 && rows > 0 => {
            (columns.into(), rows.into())
        }
        _ => (80, 24),
    }
}

/// In one piece, so that a frame does not flicker. Nobody is left to hear that it is gone.
fn write(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_as_many_rows_as_it_is_wrapped_into() {
        assert_eq!([0, 1, 80, 81, 160, 161].map(|width| rows_of(width, 80)), [1, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn a_frame_is_drawn_over_the_last_one() {
        let mut screen = Screen { live: true, frame: Vec::new() };
        let lines = ["ab".to_string(), String::new()];
        assert_eq!(screen.redrawn(&lines, 80), "\r\x1b[Kab\n\x1b[K\n\x1b[J");
        screen.frame = vec![1, 0, 100];
        assert_eq!(screen.redrawn(&lines[..1], 80), "\r\x1b[4A\x1b[Kab\n\x1b[J");
        screen.live = false;
        assert_eq!(screen.redrawn(&lines, 80), "ab\n\n");
    }

    #[test]
    fn a_frame_never_scrolls() {
        let lines: Vec<String> = ["äbcdef", "g", "h"].map(Into::into).into();
        assert_eq!(fit(&lines, (4, 3)), ["äbcd", "g"]);
        assert_eq!(fit(&lines, (80, 24)), lines);
        assert!(fit(&lines, (80, 1)).is_empty());
    }
}
