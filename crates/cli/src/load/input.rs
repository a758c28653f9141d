//! What is read for a run: regular files, whole, of a bounded size. Anything else (a FIFO, a
//! device) could keep the run waiting or have no end. Knows nothing of what is in them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// What may be read, bytes: it is all kept in memory.
const BYTES_MAX: u64 = 1 << 30;

/// The bytes of a regular file.
///
/// # Errors
/// What the system says; or that it is another kind of file, or too large.
pub(crate) fn file(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened, which for a FIFO would wait.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    all(File::open(path)?)
}

/// As [`file`], of text.
///
/// # Errors
/// Also that it is not UTF-8.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
    String::from_utf8(file(path)?).map_err(not_text)
}

/// All that comes from `from`.
///
/// # Errors
/// What the system says; or that it is too much.
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
    fn what_is_too_large_is_refused() {
        assert_eq!(bounded(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(bounded(io::repeat(0), 3).unwrap_err().to_string().contains("than 3 bytes"));
    }
}
