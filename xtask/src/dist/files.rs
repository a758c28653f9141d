//! Files of a package, and those that the program makes itself: its manual pages, its completions.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What the packages of a release are made of.
pub(super) struct Release {
    pub(super) version: String,
    pub(super) target: String,
    /// Time of the commit, seconds since 1970: that of every file.
    pub(super) time_s: u64,
    /// The list of what is linked in, CycloneDX.
    pub(super) sbom: String,
    pub(super) program: Vec<u8>,
    /// Texts that the program makes: path in the tarball, and content.
    pub(super) pages: Vec<(String, String)>,
}

/// A file of a package.
#[derive(Clone)]
pub(super) struct PackedFile {
    /// Path within the package, without a slash in front.
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
}

impl PackedFile {
    pub(super) fn program(path: &str, bytes: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode: 0o755, bytes }
    }

    pub(super) fn text(path: &str, text: impl Into<Vec<u8>>) -> Self {
        Self { path: path.to_owned(), mode: 0o644, bytes: text.into() }
    }

    /// Reads the tree's file `from`.
    pub(super) fn read(root: &Path, from: &str, path: &str) -> Result<Self> {
        let bytes = fs::read(root.join(from)).with_context(|| from.to_owned())?;
        Ok(Self::text(path, bytes))
    }
}

/// Shells, with the names of their completions.
pub(super) const SHELLS: [(&str, &str); 3] =
    [("bash", "weir.bash"), ("zsh", "_weir"), ("fish", "weir.fish")];

/// Has the program print its manual pages and its completions.
pub(super) fn generated(program: &Path) -> Result<Vec<(String, String)>> {
    let print = |arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        output(command)
    };
    let mut pages = manual(&print)?;
    for (shell, name) in SHELLS {
        pages.push((format!("completions/{name}"), print(&["completions", shell])?));
    }
    Ok(pages)
}

/// Collects the page of the program, and those that a page names. `print`: what the program prints
/// for some arguments.
fn manual(print: &dyn Fn(&[&str]) -> Result<String>) -> Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    let mut subcommands: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(words) = subcommands.pop() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let text = print(&[&["man"][..], &words].concat())?;
        let name = [&["weir"][..], &words].concat().join("-");
        for below in named(&text, &name) {
            subcommands.push(words.iter().copied().chain([&*below]).map(str::to_owned).collect());
        }
        pages.push((format!("man/{name}.1"), text));
    }
    Ok(pages)
}

/// Returns the subcommands whose pages a page names, as `weir-load(1)` on a line of its own.
fn named(page: &str, name: &str) -> Vec<String> {
    // The sign is escaped: groff_char(7).
    let lines = page.lines().map(|line| line.replace("\\-", "-"));
    lines
        .filter_map(|line| {
            let below = line.strip_suffix("(1)")?.strip_prefix(name)?.strip_prefix('-')?;
            (!below.contains(' ')).then(|| below.to_owned())
        })
        .collect()
}

/// Runs a command and returns what it prints.
pub(super) fn output(mut command: Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Formats bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_that_a_page_names_is_made() {
        let print = |arguments: &[&str]| {
            let text = match arguments {
                ["man"] => ".TP\nweir\\-load(1)\nLoad it\n.TP\nweir\\-dry\\-run(1)\n",
                ["man", "load"] => ".TP\nweir\\-load\\-scan(1)\nsee socket(1)\n",
                ["man", "dry-run"] | ["man", "load", "scan"] => "weir\\-load(1) has it\n",
                others => bail!("{others:?}"),
            };
            Ok(text.to_owned())
        };
        let pages = manual(&print).unwrap();
        let mut names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let expected =
            ["man/weir-dry-run.1", "man/weir-load-scan.1", "man/weir-load.1", "man/weir.1"];
        assert_eq!(names, expected);
    }
}
