//! The built-in experiments and papers, and experiments in files: finds them by name, reads and
//! validates them. Nothing here runs an experiment.

use std::path::Path;

use include_dir::{Dir, include_dir};

use crate::experiment::Experiment;
use crate::paper::Paper;

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

/// The folder of the papers' files within the experiments.
const PAPERS: &str = "papers";

/// An experiment that can be run.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Name: the path of its file without the extension, such as `pariag-accept/one-packet`.
    pub id: String,
    /// The text of its file.
    pub text: String,
    /// The experiment that the text describes.
    pub experiment: Experiment,
}

/// Returns all built-in experiments, sorted by name.
///
/// # Errors
/// Returns a sentence if an experiment is not valid.
pub fn all() -> Result<Vec<Entry>, String> {
    let mut files = Vec::new();
    collect(&BUILT_IN, &mut files);
    files.sort_unstable();
    files.into_iter().map(|(id, text)| entry(id, text)).collect()
}

fn collect(dir: &Dir<'static>, files: &mut Vec<(String, &'static str)>) {
    for file in dir.files() {
        let path = file.path();
        if path.extension().is_some_and(|ending| ending == "toml")
            && let Some(text) = file.contents_utf8()
        {
            files.push((path.with_extension("").to_string_lossy().into_owned(), text));
        }
    }
    for inner in dir.dirs().filter(|inner| inner.path() != Path::new(PAPERS)) {
        collect(inner, files);
    }
}

fn entry(id: String, text: impl Into<String>) -> Result<Entry, String> {
    let text = text.into();
    let experiment = Experiment::parse(&text).map_err(|why| format!("experiment {id}: {why}"))?;
    Ok(Entry { id, text, experiment })
}

/// Returns an experiment: a built-in one by its name, or one from a file that ends in `.toml`.
///
/// # Errors
/// Returns a sentence if there is no such experiment, or if it is not valid.
pub fn one(name: &str) -> Result<Entry, String> {
    let path = Path::new(name);
    if path.extension().is_some_and(|ending| ending == "toml") {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        return entry(id, text);
    }
    let file = BUILT_IN.get_file(format!("{name}.toml"));
    match file.and_then(include_dir::File::contents_utf8) {
        Some(text) if !name.starts_with(PAPERS) => entry(name.to_owned(), text),
        _ => Err(format!("there is no experiment {name}; `weir lab list` names them")),
    }
}

/// Returns the experiments of a paper, sorted by name.
///
/// # Errors
/// Returns a sentence if the paper has no experiments, or if an experiment is not valid.
pub fn of_paper(key: &str) -> Result<Vec<Entry>, String> {
    let entries: Vec<Entry> =
        all()?.into_iter().filter(|entry| entry.experiment.paper.as_deref() == Some(key)).collect();
    if entries.is_empty() {
        let keys = papers().join(", ");
        return Err(format!("no experiment is from a paper {key}; the papers are {keys}"));
    }
    Ok(entries)
}

/// Returns the files of all experiments and papers: their paths, relative, and their texts.
pub fn texts() -> Vec<(String, &'static str)> {
    let mut files = Vec::new();
    collect_texts(&BUILT_IN, &mut files);
    files
}

fn collect_texts(dir: &Dir<'static>, files: &mut Vec<(String, &'static str)>) {
    for file in dir.files() {
        if let Some(text) = file.contents_utf8() {
            files.push((file.path().to_string_lossy().into_owned(), text));
        }
    }
    dir.dirs().for_each(|inner| collect_texts(inner, files));
}

/// Returns the keys of the papers, sorted.
pub fn papers() -> Vec<String> {
    let files = BUILT_IN.get_dir(PAPERS).map(Dir::files).into_iter().flatten();
    let mut keys: Vec<String> = files
        .filter_map(|file| file.path().file_stem())
        .map(|stem| stem.to_string_lossy().into_owned())
        .collect();
    keys.sort_unstable();
    keys
}

/// Returns the text of a paper's file; `None` if there is no such paper.
pub fn paper_text(key: &str) -> Option<&'static str> {
    BUILT_IN.get_file(format!("{PAPERS}/{key}.toml"))?.contents_utf8()
}

/// Parses a paper's numbers and claims.
///
/// # Errors
/// Returns a sentence if the text is not valid.
pub fn paper(key: &str, text: &str) -> Result<Paper, String> {
    Paper::parse(text).map_err(|why| format!("paper {key}: {why}"))
}
