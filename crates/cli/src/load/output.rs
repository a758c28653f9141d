//! Destinations of results: files opened before the run, or standard output. A write error is
//! recorded and reported once; the other outputs continue.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// A device and an inode on it. Two outputs with the same identity would overwrite each other.
type Identity = (u64, u64);

/// A file of results, or standard output.
pub(crate) struct Output {
    name: String,
    out: BufWriter<Box<dyn Write>>,
    identity: Option<Identity>,
    is_stdout: bool,
    failed: Option<io::Error>,
}

/// Opens the JSON file of a report, and the outputs that are written line by line.
///
/// # Errors
/// A sentence: a file cannot be written, or two outputs are the same file.
pub(crate) fn open<const N: usize>(
    json: Option<&Path>,
    lines: [Option<&Path>; N],
) -> Result<(Report, [Option<Output>; N]), String> {
    let json = Output::open_if(json)?;
    let mut opened = [const { None }; N];
    for (output, path) in opened.iter_mut().zip(lines) {
        *output = Output::open_if(path)?;
    }
    let outputs: Vec<&Output> = json.iter().chain(opened.iter().flatten()).collect();
    for (at, output) in outputs.iter().enumerate() {
        output.check_alone(outputs.iter().skip(at + 1))?;
    }
    let lines_to_stdout = opened.iter().flatten().any(Output::is_stdout);
    Ok((Report { json, lines_to_stdout }, opened))
}

/// Output at the end of a run: text, and JSON if requested.
pub(crate) struct Report {
    json: Option<Output>,
    lines_to_stdout: bool,
}

impl Report {
    /// Prints `text` where it does not interfere with other output: not at all if the JSON goes to
    /// standard output, which has everything, and to standard error if lines go to standard output.
    /// Then calls `write` for the JSON. Returns a sentence for each output that failed.
    pub(crate) fn show(
        self,
        text: &str,
        write: impl FnOnce(&mut Output) -> io::Result<()>,
    ) -> Vec<String> {
        let shown = if self.json.as_ref().is_some_and(Output::is_stdout) {
            Ok(())
        } else if self.lines_to_stdout {
            io::stderr().write_all(text.as_bytes())
        } else {
            io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
        };
        let shown = shown.map_err(|error| format!("cannot print the result: {error}"));
        let written = self.json.map_or(Ok(()), |mut out| {
            let written = write(&mut out);
            out.note(written);
            out.finish()
        });
        [shown, written].into_iter().filter_map(Result::err).collect()
    }
}

impl Output {
    /// Opens and truncates a file; `-` is standard output.
    ///
    /// # Errors
    /// A sentence with the file's name.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let stdout = identity_of(&io::stdout());
        if path == Path::new("-") {
            return Ok(Self::to("standard output", Box::new(io::stdout()), stdout, true));
        }
        let name = path.display().to_string();
        let file = File::create(path).map_err(|error| format!("cannot write {name}: {error}"))?;
        let identity = identity_of(&file);
        let is_stdout = identity.is_some() && identity == stdout;
        Ok(Self::to(&name, Box::new(file), identity, is_stdout))
    }

    fn open_if(path: Option<&Path>) -> Result<Option<Self>, String> {
        path.map(Self::open).transpose()
    }

    fn to(name: &str, out: Box<dyn Write>, identity: Option<Identity>, is_stdout: bool) -> Self {
        Self { name: name.into(), out: BufWriter::new(out), identity, is_stdout, failed: None }
    }

    /// Returns whether the output goes to standard output, under whatever name.
    pub(crate) fn is_stdout(&self) -> bool {
        self.is_stdout
    }

    fn check_alone<'a>(
        &self,
        mut others: impl Iterator<Item = &'a &'a Output>,
    ) -> Result<(), String> {
        let same = |other: &&&Output| {
            let one_file = self.identity.is_some() && self.identity == other.identity;
            one_file || self.is_stdout && other.is_stdout
        };
        match others.find(same) {
            None => Ok(()),
            Some(_) if self.is_stdout => Err("standard output takes one output only".into()),
            Some(_) => Err(format!("{} takes one output only", self.name)),
        }
    }

    /// Records an error, if it is the first.
    pub(crate) fn note(&mut self, result: io::Result<()>) {
        if self.failed.is_none() {
            self.failed = result.err();
        }
    }

    /// Flushes and closes the output.
    ///
    /// # Errors
    /// A sentence with the file's name, if not everything could be written.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        // Never fails, as it says below.
        let _ = self.flush();
        let Self { name, out, failed, .. } = self;
        // What is left in the buffer of a file that takes no more is lost, and not tried again.
        drop(out.into_parts());
        failed.map_or(Ok(()), |error| Err(format!("cannot write {name}: {error}")))
    }
}

/// Never fails: the first error is recorded, and nothing is written after it.
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

/// Returns the identity of a file; `None` for a device such as `/dev/null`, which several outputs
/// may share.
fn identity_of(file: &(impl AsFd + IsTerminal)) -> Option<Identity> {
    let metadata = File::from(file.as_fd().try_clone_to_owned().ok()?).metadata().ok()?;
    let has_room = metadata.file_type().is_char_device() && !file.is_terminal();
    (!has_room).then(|| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushed_output_is_there_at_once() {
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
    fn a_file_takes_one_output() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let opened = |json: &Path, lines: &Path| open(Some(json), [None, Some(lines)]).map(drop);
        assert_eq!(opened(&one, &two), Ok(()));
        assert_eq!(opened(Path::new("/dev/null"), Path::new("/dev/null")), Ok(()));
        for other in [&one, &link] {
            let refused = opened(&one, other).unwrap_err();
            assert!(refused.ends_with("one takes one output only"), "{refused}");
        }
    }

    #[test]
    fn standard_output_is_for_one() {
        let (dash, file) = (Path::new("-"), Path::new("/dev/null"));
        let opened = |json, lines| open(Some(json), [Some(lines), None]);
        let (report, [lines, none]) = opened(file, dash).unwrap();
        assert!(report.lines_to_stdout && lines.unwrap().is_stdout() && none.is_none());
        assert!(!opened(dash, file).unwrap().0.lines_to_stdout);
        assert!(opened(dash, dash).map(drop).unwrap_err().contains("standard output"));
    }
}
