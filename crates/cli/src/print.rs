//! Output to the terminal, and exit codes.

use std::io::{self, Write};
use std::process::ExitCode;

/// Exit code for errors of the operator.
pub(crate) const USAGE: u8 = 2;

/// Prints what `write` appends to standard output.
pub(crate) fn print(
    write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> Result<ExitCode, String> {
    let mut out = Vec::new();
    write(&mut out)
        .and_then(|()| io::stdout().write_all(&out))
        .map_err(|error| format!("cannot print: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a text to standard output.
pub(crate) fn print_text(text: &str) -> Result<ExitCode, String> {
    print(|out| out.write_all(text.as_bytes()))
}

/// Prints a sentence for the operator to standard error.
pub(crate) fn say(sentence: &str) {
    // There is no other place to report that standard error is gone.
    let _ = writeln!(io::stderr(), "weir: {sentence}");
}
