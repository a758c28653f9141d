//! Files to serve: a root in a temporary directory with a secret beside it, deterministic bytes,
//! and a file set with every size and name that is likely to cause errors.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::mutate::Xorshift;
use crate::wait::until;

/// Content of every file outside the root. No reply may contain it.
pub const SECRET: &str = "this-is-outside-the-root";

/// `Last-Modified` of every file made by [`Root::write`]. Long ago, so that no rule about recently
/// changed files applies to it.
pub const LAST_MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
const LAST_MODIFIED_UNIX_S: u64 = 1_000_000_000;

const SIZES: [usize; 10] =
    [0, 1, 100, 1448, 4096, 65_535, 65_536, 65_537, 1 << 20, 3 * (1 << 20) + 1];

const NAMES: [&str; 11] = [
    "index.html",
    "name with spaces.txt",
    "naïve-文字.txt",
    "100%.txt",
    "a+b&c=d.txt",
    "dir/index.html",
    "dir/nested/deep.css",
    "app.js",
    "app.js.br",
    "app.js.gz",
    "app.js.zst",
];

/// A directory to serve, `www`, inside a temporary one that also has `secret.txt` and
/// `www-private/secret.txt`.
pub struct Root {
    dir: TempDir,
    www: PathBuf,
}

/// A served file as a client sees it.
pub struct Served {
    /// Request target.
    pub target: String,
    /// Content.
    pub body: Vec<u8>,
}

impl Root {
    /// Creates an empty root.
    pub fn new() -> Root {
        let dir = TempDir::new().unwrap();
        let www = dir.path().join("www");
        fs::create_dir(&www).unwrap();
        fs::create_dir(dir.path().join("www-private")).unwrap();
        fs::write(dir.path().join("secret.txt"), SECRET).unwrap();
        fs::write(dir.path().join("www-private/secret.txt"), SECRET).unwrap();
        Root { dir, www }
    }

    /// Creates a root with one file, `hello.txt`, that contains `hello`.
    pub fn with_hello() -> Root {
        let root = Root::new();
        root.write("hello.txt", "hello");
        root
    }

    /// Returns the directory to serve.
    pub fn path(&self) -> &Path {
        &self.www
    }

    /// Returns the directory around it, which must not be served.
    pub fn outside(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file, and creates its parent directories; its modification time is
    /// [`LAST_MODIFIED`].
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.write_fresh(name, bytes);
        make_old(&path);
        path
    }

    /// Writes a file, and creates its parent directories; its modification time is now.
    pub fn write_fresh(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        write_below(&self.www, name, bytes.as_ref())
    }

    /// Writes the file set.
    pub fn write_file_set(&self) -> Vec<Served> {
        file_set().map(|(name, size)| self.write_noise(&name, size)).collect()
    }

    /// Writes a file of noise.
    pub fn write_noise(&self, name: &str, size: usize) -> Served {
        let body = noise_for(name, size);
        self.write(name, &body);
        Served { target: target_of(name), body }
    }
}

impl AsRef<Path> for Root {
    fn as_ref(&self) -> &Path {
        &self.www
    }
}

impl Default for Root {
    fn default() -> Root {
        Root::new()
    }
}

/// Returns the file set in `dir`, which is kept from one run to the next: only missing files are
/// written. All of it has settled.
pub fn settled_file_set(dir: &Path) -> Vec<Served> {
    settled_files(dir, file_set())
}

/// Returns files of noise in `dir`, by names and sizes, kept and settled as the file set is.
pub fn settled_files(
    dir: &Path,
    names_and_sizes: impl Iterator<Item = (String, usize)>,
) -> Vec<Served> {
    let mut paths = Vec::new();
    let files = names_and_sizes.map(|(name, size)| {
        let (path, body) = (dir.join(&name), noise_for(&name, size));
        if fs::read(&path).ok().as_ref() != Some(&body) {
            make_old(&write_below(dir, &name, &body));
        }
        paths.push(path);
        Served { target: target_of(&name), body }
    });
    let files = files.collect();
    paths.iter().for_each(|path| settle(path));
    files
}

/// Waits until the last change of a file is more than three seconds past. A server may distrust
/// files that changed a moment ago, and the change time, unlike the modification time, cannot be
/// set.
pub fn settle(path: &Path) {
    until("a file had settled", || {
        let changed = Duration::from_secs(fs::metadata(path).unwrap().ctime() as u64);
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap().saturating_sub(changed);
        since > Duration::from_secs(4)
    });
}

/// Returns the names and sizes of the file set.
fn file_set() -> impl Iterator<Item = (String, usize)> {
    let sized = SIZES.iter().map(|&size| (format!("size-{size}.bin"), size));
    let named = NAMES.iter().zip(301..).map(|(&name, size)| (name.to_owned(), size));
    sized.chain(named)
}

fn write_below(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

/// Sets a file's modification time to [`LAST_MODIFIED`].
pub fn make_old(path: &Path) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(LAST_MODIFIED_UNIX_S);
    File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

fn noise_for(name: &str, size: usize) -> Vec<u8> {
    noise(name.len() as u64 + size as u64, size)
}

/// Returns `size` bytes that depend on `seed` only.
pub fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut random = Xorshift::new(seed);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Returns the request target of a file in the root: everything but unreserved characters (RFC 3986
/// section 2.3) and slashes is percent-encoded.
pub fn target_of(name: &str) -> String {
    let mut target = String::from("/");
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            target.push(char::from(byte));
        } else {
            target.push_str(&format!("%{byte:02X}"));
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_percent_encoded() {
        assert_eq!(target_of("a b/100%+é"), "/a%20b/100%25%2B%C3%A9");
    }

    #[test]
    fn noise_is_the_same_every_time() {
        assert_eq!(noise(7, 100), noise(7, 100));
        assert_ne!(noise(7, 100), noise(8, 100));
    }
}
