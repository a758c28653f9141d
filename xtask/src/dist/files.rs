//! Files of a package, and those that the program makes itself: its manual page, its completions.

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

/// Has the program print its manual page and its completions.
pub(super) fn generated(program: &Path) -> Result<Vec<(String, String)>> {
    let print = |arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments);
        output(command)
    };
    let mut pages = vec![("man/weir.1".to_owned(), print(&["man"])?)];
    for (shell, name) in SHELLS {
        pages.push((format!("completions/{name}"), print(&["completions", shell])?));
    }
    Ok(pages)
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
