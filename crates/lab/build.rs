//! Compresses what the lab carries: the files of the experiments, and plotly.js, taken out of the
//! crate that bundles it and packed as pages carry it. Only its text is wanted: as a dependency of
//! the build script, the crate is neither optimised nor part of the binary.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::{Compression, GzBuilder};
use plotly::Plot;

const EXPERIMENTS: &str = "../../experiments";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={EXPERIMENTS}");
    let out = std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let mut texts = BTreeMap::new();
    collect(Path::new(EXPERIMENTS), &mut texts)?;
    pack(&Path::new(&out).join("experiments.json.gz"), &serde_json::to_vec(&texts)?)?;
    pack(&Path::new(&out).join("plotly.min.js.gz"), plotly_js()?.as_bytes())
}

/// Adds the texts of the files in `dir` and the folders within, by their paths in the experiments.
fn collect(dir: &Path, texts: &mut BTreeMap<String, String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, texts)?;
        } else {
            let name = path.strip_prefix(EXPERIMENTS)?.to_str().ok_or("a name is not UTF-8")?;
            texts.insert(name.to_owned(), fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

fn pack(path: &Path, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut packer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    packer.write_all(bytes)?;
    Ok(fs::write(path, packer.finish()?)?)
}

fn plotly_js() -> Result<String, Box<dyn Error>> {
    let sources = Plot::offline_js_sources();
    let plotly = sources
        .split("<script type=\"text/javascript\">")
        .find(|part| part.contains("* plotly.js v"))
        .and_then(|part| part.rsplit_once("</script>"))
        .ok_or("the plotly crate has no plotly.js where it was")?;
    Ok(plotly.0.to_owned())
}
