//! The files the matrix serves: sizes on both sides of every limit a reply's way depends on, each
//! size once, so that a body's length says which file it should be.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// In bytes: none, a packet's worth, what is copied behind its head and a byte more, what is kept
/// in memory and a byte more, what takes many writes.
const SIZES: [usize; 11] =
    [0, 1, 100, 1448, 4096, 4097, 49_152, 49_153, 65_537, 262_144, (1 << 20) + 3];

/// The size of the index file, in bytes.
const INDEX_SIZE: usize = 321;

/// A file and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// The target of the request.
    pub(super) target: String,
    /// Where the bytes are that the reply must have.
    pub(super) path: PathBuf,
    pub(super) bytes: usize,
}

/// Writes the files to `folder`: noise, the same each time.
pub(super) fn write(folder: &Path) -> Result<Vec<Asked>> {
    fs::create_dir(folder.join("sub"))?;
    let plain = SIZES.map(|bytes| (format!("/{bytes}.bin"), format!("{bytes}.bin"), bytes));
    let index = ("/sub/".to_owned(), "sub/index.html".to_owned(), INDEX_SIZE);
    let mut noise = Noise(1);
    let mut set = Vec::new();
    for (target, name, bytes) in plain.into_iter().chain([index]) {
        let path = folder.join(name);
        let content: Vec<u8> = (0..bytes).map(|_| noise.byte()).collect();
        fs::write(&path, content)?;
        set.push(Asked { target, path, bytes });
    }
    Ok(set)
}

/// A linear congruential generator (Knuth's MMIX constants).
struct Noise(u64);

impl Noise {
    fn byte(&mut self) -> u8 {
        const STEP: u64 = 1_442_695_040_888_963_407;
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(STEP);
        // The low bits of such a generator have short periods.
        (self.0 >> 56) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_size_stands_once_and_holds_noise() {
        let folder = tempfile::tempdir().unwrap();
        let set = write(folder.path()).unwrap();
        let sizes: BTreeSet<_> = set.iter().map(|asked| asked.bytes).collect();
        assert_eq!(sizes.len(), set.len());
        for asked in &set {
            let content = fs::read(&asked.path).unwrap();
            assert_eq!(content.len(), asked.bytes);
            let kinds: BTreeSet<_> = content.iter().collect();
            assert!(kinds.len() > 200 || content.len() < 1000, "{}", asked.target);
        }
    }

    #[test]
    fn the_files_are_the_same_each_time() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (a, b) in write(one.path()).unwrap().iter().zip(&write(other.path()).unwrap()) {
            assert_eq!(fs::read(&a.path).unwrap(), fs::read(&b.path).unwrap());
        }
    }
}
