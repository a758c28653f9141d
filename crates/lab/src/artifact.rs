//! An artifact: one archive with the program, the experiments, and the results of a run of all
//! papers, which a stranger unpacks, runs and compares. Made of files that are there; measures
//! nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::catalogue;
use crate::journal;
use crate::plan;
use crate::report::{self, Part};
use crate::results;
use crate::run;

/// Folder of everything in the archive.
const TOP: &str = "weir-artifact";

/// Files of a paper's run that the archive keeps, apart from its figures and tables.
const KEPT: [&str; 5] = ["setup.json", "points.jsonl", "claims.csv", "summary.md", "report.html"];

/// Texts beside the results.
const TEXTS: [(&str, &str); 4] = [
    ("CITATION.cff", include_str!("../../../CITATION.cff")),
    ("Containerfile", include_str!("../../../contrib/artifact/Containerfile")),
    ("LICENSE-APACHE", include_str!("../../../LICENSE-APACHE")),
    ("LICENSE-MIT", include_str!("../../../LICENSE-MIT")),
];

/// A file of the archive.
enum Content {
    Text(String),
    File(PathBuf),
}

/// Writes the archive of the runs below `dir`, a folder for each paper, to `out`. `weir`: the
/// program that goes with it.
///
/// # Errors
/// Returns a sentence if no paper has a run there, or one that is not whole, or if a file cannot be
/// read or written.
pub fn write(dir: &Path, weir: &Path, version: &str, out: &Path) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    for key in catalogue::papers() {
        if dir.join(&key).exists() {
            parts.push(part(dir, key)?);
        }
    }
    if parts.is_empty() {
        let why = "there is no folder of a paper in it; `weir lab reproduce all` makes them";
        return Err(format!("{}: {why}", dir.display()));
    }
    let mut files = vec![
        ("README.md".to_owned(), Content::Text(report::artifact_readme(version, &parts))),
        ("weir".to_owned(), Content::File(weir.to_owned())),
    ];
    files.extend(TEXTS.map(|(name, text)| (name.to_owned(), Content::Text(text.to_owned()))));
    for (name, text) in catalogue::texts() {
        files.push((format!("experiments/{name}"), Content::Text(text.clone())));
    }
    for part in &parts {
        expected(&dir.join(&part.key), &format!("expected/{}", part.key), &mut files)?;
    }
    files.sort_by(|(a, _), (b, _)| a.cmp(b));
    archive(&files, out).map_err(|error| format!("{}: {error}", out.display()))?;
    Ok(parts)
}

fn part(dir: &Path, key: String) -> Result<Part, String> {
    let at = dir.join(&key);
    let (set_up, _) = journal::read(&at)?;
    if !set_up.complete {
        let why = "the run is not complete; the command that began it goes on with it";
        return Err(format!("{}: {why}", at.display()));
    }
    let request = &set_up.request;
    let experiments = run::experiments(request)?;
    let steps = plan::steps(&experiments, request.scale, request.seed);
    let minutes = experiments.iter().enumerate().map(|(nth, (id, _))| {
        let steps = steps.iter().filter(|step| step.experiment == nth);
        (id.clone(), steps.map(|step| step.estimate_s).sum::<f64>() / 60.0)
    });
    Ok(Part { minutes: minutes.collect(), findings: results::findings(&at)?, key })
}

/// Adds the files of a run.
fn expected(dir: &Path, to: &str, files: &mut Vec<(String, Content)>) -> Result<(), String> {
    for name in KEPT {
        let path = dir.join(name);
        if path.is_file() {
            files.push((format!("{to}/{name}"), Content::File(path)));
        }
    }
    for folder in ["figures", "tables"] {
        let Ok(entries) = fs::read_dir(dir.join(folder)) else { continue };
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", dir.display()))?.path();
            if let Some(name) = path.file_name().and_then(|name| name.to_str())
                && path.is_file()
            {
                files.push((format!("{to}/{folder}/{name}"), Content::File(path.clone())));
            }
        }
    }
    Ok(())
}

/// Writes the archive. The same files make the same bytes: owners and times are left out.
fn archive(files: &[(String, Content)], out: &Path) -> io::Result<()> {
    let packed = GzEncoder::new(File::create(out)?, Compression::default());
    let mut archive = tar::Builder::new(packed);
    for (name, content) in files {
        let bytes = match content {
            Content::Text(text) => text.clone().into_bytes(),
            Content::File(path) => fs::read(path)
                .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?,
        };
        let mut header = tar::Header::new_gnu();
        header.set_mode(if name == "weir" { 0o755 } else { 0o644 });
        header.set_size(bytes.len() as u64);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, format!("{TOP}/{name}"), &bytes[..])?;
    }
    let mut file = archive.into_inner()?.finish()?;
    file.flush()?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::journal::Request;

    /// Makes the folder of a run of an experiment of a paper, in which nothing was measured.
    fn run_folder(dir: &Path, key: &str, complete: bool) {
        let entry = catalogue::of_paper(key).unwrap().remove(0);
        let request = Request {
            paper: Some(key.to_owned()),
            paper_text: catalogue::paper_text(key).map(str::to_owned),
            ..Request::of(key, vec![(entry.id, entry.text)])
        };
        let set_up = serde_json::json!({
            "request": request, "stretches": [], "complete": complete,
        });
        fs::create_dir_all(dir.join(key)).unwrap();
        fs::write(dir.join(key).join(journal::SET_UP), set_up.to_string()).unwrap();
        fs::write(dir.join(key).join(journal::POINTS), "").unwrap();
        results::draw(&dir.join(key)).unwrap();
    }

    fn unpack(path: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(GzDecoder::new(File::open(path).unwrap()));
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (name, (entry.header().mode().unwrap(), bytes))
        });
        entries.collect()
    }

    #[test]
    fn a_stranger_finds_the_program_the_experiments_and_what_to_expect() {
        let dir = tempfile::tempdir().unwrap();
        run_folder(dir.path(), "gammo-epoll", true);
        let program = dir.path().join("program");
        fs::write(&program, b"\x7fELF").unwrap();
        let out = dir.path().join("a.tar.gz");
        let parts = write(dir.path(), &program, "1.2.3", &out).unwrap();
        assert_eq!(parts.len(), 1);
        let files = unpack(&out);
        let text = |name: &str| {
            String::from_utf8(files[&format!("weir-artifact/{name}")].1.clone()).unwrap()
        };
        assert_eq!(files["weir-artifact/weir"], (0o755, b"\x7fELF".to_vec()));
        assert!(text("README.md").contains("| E1 |") && text("README.md").contains("| C1 |"));
        let version = format!("\nversion: {}\n", env!("CARGO_PKG_VERSION"));
        assert!(text("CITATION.cff").contains(&version));
        assert!(text("experiments/papers/gammo-epoll.toml").contains("[[claim]]"));
        assert!(text("expected/gammo-epoll/setup.json").contains("\"complete\":true"));
        let again = dir.path().join("b.tar.gz");
        write(dir.path(), &program, "1.2.3", &again).unwrap();
        assert_eq!(fs::read(&out).unwrap(), fs::read(&again).unwrap());
    }

    #[test]
    fn what_is_not_whole_is_refused_in_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a.tar.gz");
        let weir = std::env::current_exe().unwrap();
        let error = write(dir.path(), &weir, "1", &out).unwrap_err();
        assert!(error.contains("no folder of a paper"), "{error}");
        run_folder(dir.path(), "brecht-select", false);
        let error = write(dir.path(), &weir, "1", &out).unwrap_err();
        assert!(error.contains("not complete"), "{error}");
        assert!(!out.exists());
    }
}
