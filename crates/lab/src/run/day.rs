//! The log of a day, and the files that it asks for, written for a point by `weir load day` and
//! `weir load files`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::experiment::DaySpec;
use crate::generators::Replay;
use crate::process_group::last_lines;

/// Length of a day, in seconds.
const DAY_S: f64 = 86_400.0;

/// The load that replays a day.
pub(super) struct DayLoad<'a> {
    pub spec: DaySpec,
    /// The log to replay, if one was given.
    pub log: Option<&'a Path>,
    /// Mean rate, requests per second.
    pub rate: f64,
    /// Length in seconds.
    pub duration_s: f64,
    pub seed: u64,
}

impl DayLoad<'_> {
    /// Writes a log into the directory `work` with as many requests as the load makes, unless one
    /// was given, and its files below `root`. An object is of the same length in every made-up log.
    ///
    /// # Errors
    /// Returns a sentence if they cannot be written.
    pub(super) fn write(&self, weir: &Path, work: &Path, root: &Path) -> Result<Replay, String> {
        let log = match self.log {
            Some(given) => given.to_owned(),
            None => self.made_up(weir, work)?,
        };
        let words = [OsStr::new("files"), root.as_os_str(), OsStr::new("--log"), log.as_os_str()];
        run(weir, &words, &[])?;
        Ok(Replay { log, speed: DAY_S / self.duration_s })
    }

    fn made_up(&self, weir: &Path, work: &Path) -> Result<PathBuf, String> {
        let log = work.join("day.log");
        let requests = (self.rate * self.duration_s).round().max(1.0).to_string();
        let (objects, seed) = (self.spec.objects.to_string(), self.seed.to_string());
        let options = ["--requests", &requests, "--objects", &objects, "--seed", &seed];
        run(weir, &[OsStr::new("day"), log.as_os_str()], &options)?;
        Ok(log)
    }
}

/// Runs a task of `weir load` to its end.
fn run(weir: &Path, words: &[&OsStr], options: &[&str]) -> Result<(), String> {
    let mut command = Command::new(weir);
    command.arg("load").args(words).args(options).stdin(Stdio::null());
    let output = command.output();
    let output = output.map_err(|error| format!("weir load does not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = last_lines(&String::from_utf8_lossy(&output.stderr));
    Err(format!("the log of a day or its files are not written: {words}"))
}
