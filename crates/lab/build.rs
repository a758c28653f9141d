//! Takes plotly.js out of the crate that bundles it. Only its text is wanted: as a dependency of
//! the build script, the crate is neither optimised nor part of the binary.

use std::path::Path;

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
    std::fs::write(Path::new(&out).join("plotly.min.js"), plotly.0)?;
    Ok(())
}
