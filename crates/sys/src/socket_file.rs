//! The file of a Unix socket that this process has bound, and its removal at the end.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A socket file of this process, distinguished from one that another process puts in its place.
#[derive(Clone, Debug)]
pub struct SocketFile {
    path: PathBuf,
    dev_ino: Option<(u64, u64)>,
}

impl SocketFile {
    /// Notes the file at a path that this process has just bound
    /// ([`bind_unix`](crate::socket::bind_unix)).
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), dev_ino: dev_ino(path) }
    }

    /// Removes the file, if it is still the one that was created.
    pub fn remove(&self) {
        if self.dev_ino.is_some() && dev_ino(&self.path) == self.dev_ino {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn dev_ino(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|status| (status.dev(), status.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::socket::bind_unix;

    #[test]
    fn a_file_is_removed_unless_another_has_taken_its_place() {
        let dir = std::env::temp_dir().join(format!("weir-socket-file-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("socket");
        let ours = bind_unix(&path).unwrap();
        let file = SocketFile::new(&path);
        fs::rename(&path, dir.join("moved")).unwrap();
        let theirs = bind_unix(&path).unwrap();
        file.remove();
        assert!(path.exists(), "it is another's");
        SocketFile::new(&path).remove();
        assert!(!path.exists());
        drop((ours, theirs));
        fs::remove_dir_all(dir).unwrap();
    }
}
