//! The built-in experiments and papers, and experiments in files: finds them by name, reads and
//! validates them. Nothing here runs an experiment.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::OnceLock;

use brotli::Decompressor;

use crate::experiment::Experiment;
use crate::paper::Paper;

/// The files of the experiments and papers, compressed: their texts by their paths.
const BUILT_IN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/experiments.json.br"));

/// The folder of the papers' files within the experiments.
const PAPERS: &str = "papers/";

const EXTENSION: &str = ".toml";

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
    let files = texts().iter().filter(|(path, _)| !path.starts_with(PAPERS));
    let mut named: Vec<(&str, &String)> =
        files.filter_map(|(path, text)| Some((path.strip_suffix(EXTENSION)?, text))).collect();
    named.sort_unstable();
    named.into_iter().map(|(id, text)| entry(id.to_owned(), text)).collect()
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
    match texts().get(&format!("{name}{EXTENSION}")) {
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

/// Returns the texts of the files of all experiments and papers, by their paths among them.
pub fn texts() -> &'static BTreeMap<String, String> {
    static TEXTS: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    // What the build packed can be unpacked: a test looks.
    let unpack = || -> io::Result<BTreeMap<String, String>> {
        let mut bytes = Vec::new();
        Decompressor::new(BUILT_IN, 1 << 16).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    };
    TEXTS.get_or_init(|| unpack().unwrap_or_default())
}

/// Returns the keys of the papers, sorted.
pub fn papers() -> Vec<String> {
    let names = texts().keys().filter_map(|path| path.strip_prefix(PAPERS));
    names.filter_map(|name| name.strip_suffix(EXTENSION)).map(str::to_owned).collect()
}

/// Returns the text of a paper's file; `None` if there is no such paper.
pub fn paper_text(key: &str) -> Option<&'static str> {
    texts().get(&format!("{PAPERS}{key}{EXTENSION}")).map(String::as_str)
}

/// Parses a paper's numbers and claims.
///
/// # Errors
/// Returns a sentence if the text is not valid.
pub fn paper(key: &str, text: &str) -> Result<Paper, String> {
    Paper::parse(text).map_err(|why| format!("paper {key}: {why}"))
}
