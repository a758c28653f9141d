//! Takes plotly.js out of the crate that bundles it, and compresses it, as pages carry it. Only its
//! text is wanted: as a dependency of the build script, the crate is neither optimised nor part of
//! the binary.

use std::io::Write as _;
use std::path::Path;

use flate2::{Compression, GzBuilder};
use plotly::Plot;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let sources = Plot::offline_js_sources();
    let plotly = sources
        .split("<script type=\"text/javascript\">")
        .find(|part| part.contains("* plotly.js v"))
        .and_then(|part| part.rsplit_once("</script>"))
        .ok_or("the plotly crate has no plotly.js where it was")?;
    let out = std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let mut packer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    packer.write_all(plotly.0.as_bytes())?;
    std::fs::write(Path::new(&out).join("plotly.min.js.gz"), packer.finish()?)?;
    Ok(())
}
