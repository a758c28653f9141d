//! Compresses what the lab carries: the files of the experiments, and plotly.js, taken out of the
//! crate that bundles it. Only its text is wanted: as a dependency of the build script, the crate
//! is neither optimised nor part of the binary.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use brotli::enc::BrotliEncoderParams;
use plotly::Plot;

const EXPERIMENTS: &str = "../../experiments";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={EXPERIMENTS}");
    let out = std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let mut texts = BTreeMap::new();
    collect(Path::new(EXPERIMENTS), &mut texts)?;
    pack(&Path::new(&out).join("experiments.json.br"), &serde_json::to_vec(&texts)?)?;
    pack(&Path::new(&out).join("plotly.min.js.br"), plotly_js()?.as_bytes())
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

/// Writes bytes compressed: best where the program is built for size, which takes a minute,
/// and fast where it is built often.
fn pack(path: &Path, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let for_size = matches!(std::env::var("OPT_LEVEL").as_deref(), Ok("s" | "z"));
    let params = BrotliEncoderParams {
        quality: if for_size { 11 } else { 2 },
        lgwin: 24,
        size_hint: bytes.len(),
        ..Default::default()
    };
    let mut packed = Vec::new();
    brotli::BrotliCompress(&mut &*bytes, &mut packed, &params)?;
    Ok(fs::write(path, packed)?)
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
