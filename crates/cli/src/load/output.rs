//! Where results go: files that are opened before the run, or standard output. Writing that fails
//! is remembered and told once; the rest of the output goes on.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A file of results, or standard output.
pub(crate) struct Output {
    name: String,
    out: BufWriter<Box<dyn Write>>,
    failed: Option<io::Error>,
}

impl Output {
    /// Opens a file, emptying it; `-` is standard output.
    ///
    /// # Errors
    /// A sentence with the file's name.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        if path == Path::new("-") {
            return Ok(Self::to("standard output", Box::new(io::stdout())));
        }
        let name = path.display().to_string();
        let file = File::create(path).map_err(|error| format!("cannot write {name}: {error}"))?;
        Ok(Self::to(&name, Box::new(file)))
    }

    /// As [`Output::open`], if there is one to open.
    pub(crate) fn open_if(path: Option<&Path>) -> Result<Option<Self>, String> {
        path.map(Self::open).transpose()
    }

    fn to(name: &str, out: Box<dyn Write>) -> Self {
        Self { name: name.into(), out: BufWriter::new(out), failed: None }
    }

    /// Remembers what went wrong, if it is the first.
    pub(crate) fn note(&mut self, result: io::Result<()>) {
        if self.failed.is_none() {
            self.failed = result.err();
        }
    }

    /// Hands on the rest.
    ///
    /// # Errors
    /// A sentence with the file's name, if not everything could be written.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        // Never fails, as it says below.
        let _ = self.flush();
        let Self { name, out, failed } = self;
        // What is left in the buffer of a file that takes no more is lost, and not tried again.
        drop(out.into_parts());
        failed.map_or(Ok(()), |error| Err(format!("cannot write {name}: {error}")))
    }
}

/// Never fails: what went wrong is remembered, and nothing is written after that.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.is_none() {
            let written = self.out.write_all(bytes);
            self.note(written);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed.is_none() {
            let flushed = self.out.flush();
            self.note(flushed);
        }
        Ok(())
    }
}

/// Checks that standard output is wanted by one output at most.
///
/// # Errors
/// A sentence.
pub(crate) fn check_stdout(paths: &[Option<&Path>]) -> Result<(), String> {
    let stdout = paths.iter().flatten().filter(|path| **path == Path::new("-"));
    if stdout.count() > 1 { Err("standard output takes one output only".into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_flushed_is_there_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut output = Output::open(&path).unwrap();
        output.write_all(b"one\n").and_then(|()| output.flush()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\n");
        output.write_all(b"two\n").unwrap();
        output.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn a_full_disk_is_told_once_and_by_name() {
        let mut output = Output::open(Path::new("/dev/full")).unwrap();
        output.write_all(b"one\n").and_then(|()| output.flush()).unwrap();
        output.write_all(b"two\n").and_then(|()| output.flush()).unwrap();
        let told = output.finish().unwrap_err();
        assert!(told.starts_with("cannot write /dev/full: No space"), "{told}");
        let mut late = Output::open(Path::new("/dev/full")).unwrap();
        late.write_all(b"one\n").unwrap();
        assert!(late.finish().is_err());
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_told_before_the_run() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Output::open(dir.path()).is_err());
        assert!(Output::open_if(None).unwrap().is_none());
    }

    #[test]
    fn standard_output_is_for_one() {
        let (dash, file) = (Some(Path::new("-")), Some(Path::new("x")));
        assert!(check_stdout(&[dash, file, None]).is_ok());
        assert!(check_stdout(&[file, file]).is_ok());
        assert!(check_stdout(&[dash, None, dash]).is_err());
    }
}
