//! Input files of a run: regular files, read whole, of a bounded size. Anything else (a FIFO, a
//! device) could block the run or have no end.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Maximum size of a file, bytes: the whole file is kept in memory.
const BYTES_MAX: u64 = 1 << 30;

/// Reads a regular file.
///
/// # Errors
/// Errors of the system; the file is not a regular one, or too large.
pub(crate) fn file(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened, which for a FIFO would wait.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    all(File::open(path)?)
}

/// Reads a regular file as text.
///
/// # Errors
/// As for [`file`], and also if the file is not UTF-8.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
    String::from_utf8(file(path)?).map_err(not_text)
}

/// Reads all of `from`.
///
/// # Errors
/// Errors of the system; the input is too large.
pub(crate) fn all(from: impl Read) -> io::Result<Vec<u8>> {
    bounded(from, BYTES_MAX)
}

fn bounded(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is larger than {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path(), Path::new("/dev/zero")] {
            assert!(file(path).unwrap_err().to_string().contains("not a regular file"));
        }
        let path = dir.path().join("x");
        fs::write(&path, b"a\xff").unwrap();
        assert_eq!(file(&path).unwrap(), b"a\xff");
        assert!(text(&path).unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn an_input_that_is_too_large_is_refused() {
        assert_eq!(bounded(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(bounded(io::repeat(0), 3).unwrap_err().to_string().contains("than 3 bytes"));
    }
}
