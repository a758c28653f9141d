//! The folder of a run: the request, the set-up, and a line for each finished step, which is on
//! disk before the next step begins. Nothing here measures; a resumed run skips the steps that are
//! read back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::atomic_file::replace;
use crate::experiment::Precision;
use crate::machine::Machine;
use crate::record::{Key, Line, Wanted};
use crate::testbed::Description;

/// The file with a line per step.
pub const POINTS: &str = "points.jsonl";

/// The file with the request and the set-up of the run.
pub const SET_UP: &str = "setup.json";

/// The folder for files needed only while a run is in progress; removed at its end.
pub const WORK: &str = "work";

/// A request for a run. A run resumes from the points of an equal request.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Request {
    /// Name of the run: of an experiment or of a paper.
    pub name: String,
    /// Key of the paper, if one is reproduced.
    pub paper: Option<String>,
    /// Text of the paper's file when the run was requested.
    pub paper_text: Option<String>,
    /// Names and texts of the experiments.
    pub experiments: Vec<(String, String)>,
    /// Factor applied to the repetitions given in the files.
    pub scale: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Ids of the servers that the run is restricted to; empty means all.
    pub only: Vec<String>,
    /// Another build of weir, run beside this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<PathBuf>,
    /// An access log of a day, replayed by sweeps with a day in the place of a made-up one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// The precision asked for; replaces that of the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
}

impl Request {
    /// Returns whether a run of `other` has points that this request can go on from: everything is
    /// equal but the precision, which only adds rounds.
    pub fn continues(&self, other: &Self) -> bool {
        *self == Self { precision: self.precision, ..other.clone() }
    }

    /// Creates a request for a run of experiments, names and texts, with nothing else asked for.
    #[cfg(test)]
    pub(crate) fn of(name: &str, experiments: Vec<(String, String)>) -> Self {
        Self {
            name: name.to_owned(),
            paper: None,
            paper_text: None,
            experiments,
            scale: 1.0,
            seed: 1,
            only: Vec::new(),
            against: None,
            log: None,
            precision: None,
        }
    }
}

/// A part of a run without interruption: from its start or resumption to its end or interruption.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Session {
    /// Start time, UTC, RFC 3339.
    pub began: String,
    /// End time, UTC, RFC 3339; `None` while in progress, or if the process was killed.
    pub ended: Option<String>,
    /// Command line.
    pub command: String,
    /// Version of this program.
    pub version: String,
    /// Checksum and length of its executable: builds of one version differ. `None` in older runs,
    /// and if it could not be read.
    #[serde(default)]
    pub build: Option<String>,
    /// Checksums of the build that `--against` names, and of the access log; `None` in older runs.
    #[serde(default)]
    pub inputs: Option<Vec<(String, String)>>,
    /// The machine.
    pub machine: Machine,
    /// The testbed.
    pub testbed: Description,
    /// Programs and their versions.
    pub programs: Vec<(String, String)>,
    /// Missing programs, a sentence each; their servers are left out.
    pub missing: Vec<String>,
}

/// Content of [`SET_UP`].
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunSetup {
    /// The request.
    pub request: Request,
    /// The sessions of the run so far.
    #[serde(rename = "stretches")]
    pub sessions: Vec<Session>,
    /// True once every step is done.
    pub complete: bool,
}

/// The folder of a run in progress. It is locked: no other lab can work in it until this is
/// dropped.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    // Locked: the lock is released with the file, however the process ends.
    points: File,
    /// Lines recorded so far.
    pub lines: Vec<Line>,
    /// Content of [`SET_UP`].
    pub set_up: RunSetup,
}

/// Number of attempts to lock a folder, and the pause after each: a process that is being forked
/// holds a copy of a lock that was released, until it executes its program.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

impl Journal {
    /// Opens a folder to work in: creates it, or resumes where a run with an equal request stopped.
    ///
    /// # Errors
    /// Returns a sentence if another lab is working in the folder, if the folder holds a run with
    /// another request, or on an I/O error.
    pub fn open(dir: &Path, request: &Request) -> Result<Self, String> {
        let said = |error: io::Error| format!("{}: {error}", dir.display());
        fs::create_dir_all(dir).map_err(said)?;
        let points = open_points(dir)?;
        let set_up = match read_set_up(dir)? {
            Some(found) if request.continues(&found.request) => {
                RunSetup { request: request.clone(), ..found }
            }
            Some(found) => {
                return Err(format!(
                    "{} holds another run ({}, scale {}, seed {}); choose another folder (--out)",
                    dir.display(),
                    found.request.name,
                    found.request.scale,
                    found.request.seed
                ));
            }
            None => RunSetup { request: request.clone(), sessions: Vec::new(), complete: false },
        };
        let lines = read_points(&points, &dir.join(POINTS))?;
        // Leftovers of a killed run.
        remove_work(dir).map_err(said)?;
        Ok(Self { dir: dir.to_owned(), points, lines, set_up })
    }

    /// Returns the path of the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns a folder for files needed only while the run is in progress; creates it if
    /// necessary.
    ///
    /// # Errors
    /// Returns a sentence with the I/O error.
    pub fn work(&self) -> Result<PathBuf, String> {
        let path = self.dir.join(WORK);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Removes the folder that [`Self::work`] returns.
    ///
    /// # Errors
    /// Returns a sentence with the I/O error.
    pub fn tidy(&self) -> Result<(), String> {
        remove_work(&self.dir).map_err(|error| format!("{}: {error}", self.dir.display()))
    }

    /// Appends a line, which is on disk when this returns.
    ///
    /// # Errors
    /// Returns a sentence with the I/O error.
    pub fn keep(&mut self, line: Line) -> Result<(), String> {
        let mut text = serde_json::to_string(&line).map_err(|error| error.to_string())?;
        text.push('\n');
        let written = self.points.write_all(text.as_bytes()).and_then(|()| self.points.sync_data());
        written.map_err(|error| format!("{}: {error}", self.dir.join(POINTS).display()))?;
        self.lines.push(line);
        Ok(())
    }

    /// Rewrites [`SET_UP`].
    ///
    /// # Errors
    /// Returns a sentence with the I/O error.
    pub fn keep_set_up(&self) -> Result<(), String> {
        let text = serde_json::to_string_pretty(&self.set_up).map_err(|error| error.to_string())?;
        replace(&self.dir.join(SET_UP), text.as_bytes())
    }
}

/// Returns whether a point is done: it is undisturbed, with all that is wanted of it, or was
/// measured `attempts_max` times.
pub fn has_point(lines: &[Line], key: &Key, wanted: Wanted, attempts_max: usize) -> bool {
    let mut attempts = 0;
    lines.iter().any(|line| match line {
        Line::Point(point) if point.key == *key => {
            attempts += 1;
            point.is_undisturbed(wanted) || attempts >= attempts_max
        }
        _ => false,
    })
}

/// Returns whether a capacity has been measured.
pub fn has_capacity(lines: &[Line], key: &Key) -> bool {
    lines.iter().any(|line| matches!(line, Line::Capacity(found) if found.key == *key))
}

/// Returns whether system calls have been counted.
pub fn has_calls(lines: &[Line], key: &Key) -> bool {
    lines.iter().any(|line| matches!(line, Line::Calls(found) if found.key == *key))
}

/// Reads the set-up and the lines of a run without locking or changing it.
///
/// # Errors
/// Returns a sentence if the folder holds no run, or if the run cannot be read.
pub fn read(dir: &Path) -> Result<(RunSetup, Vec<Line>), String> {
    let set_up = read_set_up(dir)?
        .ok_or_else(|| format!("{}: there is no run in it (no {SET_UP})", dir.display()))?;
    let path = dir.join(POINTS);
    let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (lines, _) = read_lines(&file, &path)?;
    Ok((set_up, lines))
}

fn read_set_up(dir: &Path) -> Result<Option<RunSetup>, String> {
    let path = dir.join(SET_UP);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| format!("{}: {error}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn open_points(dir: &Path) -> Result<File, String> {
    let path = dir.join(POINTS);
    let said = |error: io::Error| format!("{}: {error}", path.display());
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let file = file.map_err(said)?;
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(fs::TryLockError::Error(error)) => return Err(said(error)),
        }
    }
    Err(format!("another lab is working in {}", dir.display()))
}

fn read_points(mut file: &File, path: &Path) -> Result<Vec<Line>, String> {
    let (lines, whole_bytes) = read_lines(file, path)?;
    // Drop a line cut short by a crash; its step is repeated.
    let cut = file.set_len(whole_bytes).and_then(|()| file.seek(SeekFrom::End(0)));
    cut.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(lines)
}

/// Reads the complete lines of a file; returns them and their total length in bytes. Anything after
/// that is a line cut short.
fn read_lines(file: &File, path: &Path) -> Result<(Vec<Line>, u64), String> {
    let mut reader = BufReader::new(file);
    let (mut lines, mut whole_bytes) = (Vec::new(), 0);
    loop {
        let mut text = Vec::new();
        let read = reader.read_until(b'\n', &mut text);
        let read = read.map_err(|error| format!("{}: {error}", path.display()))?;
        if text.pop() != Some(b'\n') {
            return Ok((lines, whole_bytes));
        }
        let line = serde_json::from_slice(&text).map_err(|error| {
            format!("{}: line {} cannot be read: {error}", path.display(), lines.len() + 1)
        })?;
        lines.push(line);
        whole_bytes += read as u64;
    }
}

fn remove_work(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir.join(WORK)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Capacity, CoreTime, Point};

    fn request(scale: f64) -> Request {
        let experiments = vec![("quick".to_owned(), "title = 'q'".to_owned())];
        Request { scale, ..Request::of("quick", experiments) }
    }

    fn capacity(x: f64) -> Line {
        let key = Key {
            experiment: "quick".to_owned(),
            sweep: "load".to_owned(),
            server: "weir".to_owned(),
            x,
            round: 0,
        };
        Line::Capacity(Capacity {
            key,
            sessions_per_s: 1234.5,
            began: None,
            limited_by: Vec::new(),
        })
    }

    fn key_of(line: &Line) -> Key {
        let Line::Capacity(capacity) = line else { unreachable!() };
        capacity.key.clone()
    }

    #[test]
    fn a_point_with_doubted_core_time_is_done_where_that_is_not_wanted_or_after_all_attempts() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), &request(1.0)).unwrap();
        let mut point = Point { key: key_of(&capacity(1.0)), ..Point::default() };
        point.load.valid = true;
        point.cores.server.doubt = Some("it drifted".to_owned());
        let server = Wanted { server_cores: true, ..Wanted::default() };
        let client = Wanted { client_cores: true, ..Wanted::default() };
        journal.keep(Line::Point(Box::new(point.clone()))).unwrap();
        for wanted in [Wanted::default(), client] {
            assert!(has_point(&journal.lines, &point.key, wanted, 2), "{wanted:?}");
        }
        assert!(!has_point(&journal.lines, &point.key, server, 2));
        journal.keep(Line::Point(Box::new(point.clone()))).unwrap();
        assert!(has_point(&journal.lines, &point.key, server, 2));
        let mut stolen = Point { key: key_of(&capacity(2.0)), ..point };
        stolen.cores.server = CoreTime { stolen_share: 0.04, ..CoreTime::default() };
        journal.keep(Line::Point(Box::new(stolen.clone()))).unwrap();
        assert!(!has_point(&journal.lines, &stolen.key, Wanted::default(), 2));
        let mut of_client = Point { key: key_of(&capacity(3.0)), ..stolen };
        of_client.cores.server = CoreTime::default();
        of_client.cores.client.doubt = Some("it drifted".to_owned());
        journal.keep(Line::Point(Box::new(of_client.clone()))).unwrap();
        assert!(has_point(&journal.lines, &of_client.key, server, 2));
        assert!(!has_point(&journal.lines, &of_client.key, client, 2));
    }

    #[test]
    fn a_late_point_is_done_where_times_are_not_wanted_or_after_all_attempts() {
        let mut late = Point { key: key_of(&capacity(1.0)), ..Point::default() };
        late.load.late_only = true;
        let key = late.key.clone();
        let mut lines = vec![Line::Point(Box::new(late))];
        let times = Wanted { times: true, ..Wanted::default() };
        assert!(has_point(&lines, &key, Wanted::default(), 2));
        assert!(!has_point(&lines, &key, times, 2));
        lines.push(lines[0].clone());
        assert!(has_point(&lines, &key, times, 2));
    }

    #[test]
    fn lines_are_found_again_and_a_torn_line_is_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), &request(1.0)).unwrap();
        journal.keep_set_up().unwrap();
        journal.keep(capacity(1.0)).unwrap();
        journal.keep(capacity(2.0)).unwrap();
        drop(journal);
        let path = dir.path().join(POINTS);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 5]).unwrap();

        let mut journal = Journal::open(dir.path(), &request(1.0)).unwrap();
        assert!(has_capacity(&journal.lines, &key_of(&capacity(1.0))));
        assert!(!has_capacity(&journal.lines, &key_of(&capacity(2.0))));
        journal.keep(capacity(3.0)).unwrap();
        drop(journal);
        let (_, lines) = read(dir.path()).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(key_of(&lines[1]), key_of(&capacity(3.0)));
    }

    #[test]
    fn another_request_does_not_mix_with_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        Journal::open(dir.path(), &request(1.0)).unwrap().keep_set_up().unwrap();
        let refused = Journal::open(dir.path(), &request(0.5)).unwrap_err();
        assert!(refused.contains("another run"), "{refused}");
    }

    #[test]
    fn a_run_goes_on_with_another_precision_and_says_which() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), &request(1.0)).unwrap();
        journal.keep_set_up().unwrap();
        journal.keep(capacity(1.0)).unwrap();
        drop(journal);
        let precision = toml::from_str("percent = 2").unwrap();
        let precise = Request { precision: Some(precision), ..request(1.0) };
        let journal = Journal::open(dir.path(), &precise).unwrap();
        assert!(has_capacity(&journal.lines, &key_of(&capacity(1.0))));
        assert_eq!(*journal.set_up.request.precision.unwrap().max_rounds, 20);
        journal.keep_set_up().unwrap();
        assert_eq!(read(dir.path()).unwrap().0.request, precise);
    }

    #[test]
    fn two_labs_do_not_work_in_one_folder() {
        let dir = tempfile::tempdir().unwrap();
        let first = Journal::open(dir.path(), &request(1.0)).unwrap();
        let refused = Journal::open(dir.path(), &request(1.0)).unwrap_err();
        assert!(refused.contains("another lab"), "{refused}");
        drop(first);
        Journal::open(dir.path(), &request(1.0)).unwrap();
    }

    #[test]
    fn a_line_that_is_not_ours_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(POINTS), "{\"record\":\"else\"}\n").unwrap();
        let refused = Journal::open(dir.path(), &request(1.0)).unwrap_err();
        assert!(refused.contains("line 1"), "{refused}");
    }

    #[test]
    fn leftovers_of_a_killed_run_go() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(WORK).join("deep")).unwrap();
        let journal = Journal::open(dir.path(), &request(1.0)).unwrap();
        assert!(!dir.path().join(WORK).exists());
        assert!(journal.work().unwrap().exists());
        journal.tidy().unwrap();
        assert!(!dir.path().join(WORK).exists());
    }
}
