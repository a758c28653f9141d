//! The source tree: where it is, which files belong to it, and how cargo is called in it. Knows no
//! rule about what the files hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// Every file of the tree, relative to `root` and sorted: the tracked ones and the new ones that
/// are not ignored. Outside a git repository, every file but what is built.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let mut files = match tracked(root) {
        Some(files) => files,
        None => walk(root)?,
    };
    files.retain(|file| root.join(file).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(list).current_dir(root).output().ok()?;
    let names = output.status.success().then_some(output.stdout)?;
    let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Some(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

fn walk(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                let skipped = matches!(&*name, ".git" | "target" | "artifacts");
                folders.extend((!skipped).then_some(path));
            } else if let Ok(relative) = path.strip_prefix(root) {
                files.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    Ok(files)
}

/// A call of the cargo that runs this program, in the tree.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Builds with `arguments` and returns the path of the executable named `name`.
pub(crate) fn build(mut cargo: Command, arguments: &[&str], name: &str) -> Result<PathBuf> {
    cargo.arg("build").args(arguments).arg("--message-format=json-render-diagnostics");
    let output = cargo.stderr(Stdio::inherit()).output().context("cargo does not start")?;
    ensure!(output.status.success(), "cargo build {} failed", arguments.join(" "));
    match String::from_utf8_lossy(&output.stdout).lines().find_map(|line| executable(line, name)) {
        Some(path) => Ok(path),
        None => bail!("cargo build {} made no executable {name}", arguments.join(" ")),
    }
}

fn executable(message: &str, name: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = message.get("executable")?.as_str()?;
    (message.get("target")?.get("name")? == name).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_holds_this_file() {
        let files = files(&root()).unwrap();
        assert!(files.iter().any(|file| file == "xtask/src/tree.rs"));
        assert!(!files.iter().any(|file| file.starts_with("target/")));
    }

    #[test]
    fn without_git_the_folder_is_walked() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("target/debug")).unwrap();
        fs::create_dir_all(folder.path().join("src")).unwrap();
        fs::write(folder.path().join("target/debug/x"), "").unwrap();
        fs::write(folder.path().join("src/lib.rs"), "").unwrap();
        assert_eq!(walk(folder.path()).unwrap(), ["src/lib.rs"]);
    }

    #[test]
    fn the_executable_is_found_by_its_target() {
        let line = r#"{"reason":"compiler-artifact","target":{"name":"weir"},"executable":"/t/w"}"#;
        assert_eq!(executable(line, "weir"), Some(PathBuf::from("/t/w")));
        assert_eq!(executable(line, "other"), None);
        assert_eq!(executable("not json", "weir"), None);
    }
}
