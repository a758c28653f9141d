//! Compresses what the lab carries: the files of the experiments, and ECharts, taken out of the
//! folder of the crate that bundles it. Only its text is wanted: as a dependency of the build
//! script, the crate is neither optimised nor part of the binary.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use brotli::enc::BrotliEncoderParams;
use serde_json::Value;

const EXPERIMENTS: &str = "../../experiments";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={EXPERIMENTS}");
    let out = std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let mut texts = BTreeMap::new();
    collect(Path::new(EXPERIMENTS), &mut texts)?;
    pack(&Path::new(&out).join("experiments.json.br"), &serde_json::to_vec(&texts)?)?;
    pack(&Path::new(&out).join("echarts.min.js.br"), &echarts()?)
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

/// Returns the text of ECharts.
fn echarts() -> Result<Vec<u8>, Box<dyn Error>> {
    let path = folder_of("charming")?.join("src/asset/echarts-5.5.1.min.js");
    fs::read(&path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Returns the folder of a dependency, which cargo alone knows.
fn folder_of(package: &str) -> Result<PathBuf, Box<dyn Error>> {
    let variable = |name| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    let output = Command::new(variable("CARGO")?)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", &variable("HOST")?])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages
        .filter(|one| one["name"] == package)
        .find_map(|one| one["manifest_path"].as_str())
        .ok_or_else(|| format!("cargo knows no {package}"))?;
    Ok(Path::new(manifest).parent().unwrap_or(Path::new("")).to_owned())
}
