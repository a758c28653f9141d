//! Progress on standard error, or figures on standard output: a frame redrawn in place on a
//! terminal, otherwise one line after the other.

use std::io::{self, IsTerminal, Write};

use terminal_size::{Height, Width, terminal_size_of};

/// Minimum width of a frame, columns. A frame may exceed a narrower terminal.
const WIDTH_MIN: usize = 40;

/// Stream that is drawn on.
#[derive(Clone, Copy, Debug)]
enum Stream {
    Error,
    Output,
}

/// Display of progress.
#[derive(Debug)]
pub(crate) struct Screen {
    live: bool,
    stream: Stream,
    /// Width of each line of the last frame, columns.
    frame: Vec<usize>,
}

impl Screen {
    /// Creates the display, redrawn in place if standard error is a terminal.
    pub(crate) fn new() -> Self {
        Self { live: io::stderr().is_terminal(), stream: Stream::Error, frame: Vec::new() }
    }

    /// Creates the display on standard output, redrawn in place if that is a terminal.
    pub(crate) fn on_stdout() -> Self {
        Self { live: io::stdout().is_terminal(), stream: Stream::Output, frame: Vec::new() }
    }

    /// Returns whether frames are redrawn in place.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Returns the width for which a frame is laid out, columns.
    pub(crate) fn width(&self) -> usize {
        self.stream.size().0.max(WIDTH_MIN)
    }

    /// Draws a frame over the last one, cutting off what does not fit.
    pub(crate) fn draw(&mut self, lines: &[String]) {
        let size = self.stream.size();
        let frame = fit(lines, size);
        self.stream.write(&self.redrawn(&frame, size.0));
        self.frame = frame.iter().map(|line| line.chars().count()).collect();
    }

    /// Prints a line in place of the frame, if there is one.
    pub(crate) fn say(&mut self, line: &str) {
        self.stream.write(&self.redrawn(&[line.into()], self.stream.size().0));
        self.frame.clear();
    }

    /// Returns the output that draws `lines` over the frame. Each row is cleared as it is written:
    /// clearing a terminal from its top would leave the old contents in its history.
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

/// Returns as many of the lines as fit on a terminal of this many columns and rows, above the row
/// of the cursor, each cut to the width.
fn fit(lines: &[String], (columns, rows): (usize, usize)) -> Vec<String> {
    let cut = |line: &String| line.chars().take(columns).collect();
    lines.iter().take(rows.saturating_sub(1)).map(cut).collect()
}

/// Returns the rows that a line takes after a terminal that became narrower has wrapped it.
fn rows_of(width: usize, columns: usize) -> usize {
    width.div_ceil(columns).max(1)
}

impl Stream {
    /// Returns the columns and rows of the terminal, or the usual ones if there is none.
    fn size(self) -> (usize, usize) {
        let size = match self {
            Self::Error => terminal_size_of(io::stderr()),
            Self::Output => terminal_size_of(io::stdout()),
        };
        match size {
            Some((Width(columns), Height(rows))) if columns > 0 && rows > 0 => {
                (columns.into(), rows.into())
            }
            _ => (80, 24),
        }
    }

    /// Writes in one piece, so that a frame does not flicker. Errors are ignored: there is nowhere
    /// to report them.
    fn write(self, text: &str) {
        let _ = match self {
            Self::Error => io::stderr().write_all(text.as_bytes()),
            Self::Output => {
                io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
            }
        };
    }
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
        let mut screen = Screen { live: true, stream: Stream::Error, frame: Vec::new() };
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
