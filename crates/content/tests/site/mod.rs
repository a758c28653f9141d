//! A real tree in a temporary directory, removed at the end, for the tests of the store.

// Each test binary uses some of it, and lints take none of it for a test.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_content::{Content, Entry, Found, Lookup, Now, Options, Store};

/// A directory with `root` in it, which is served, and files outside `root` that must not be.
pub struct Site(PathBuf);

impl Site {
    /// Creates a site of its own for the test of this name.
    pub fn new(name: &str) -> Site {
        let path = std::env::temp_dir().join(format!("weir-content-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let site = Site(path);
        site.write("../secret.txt", "secret");
        site.write("../outside/index.html", "secret");
        site.write("../root-sibling/file.txt", "secret");
        site
    }

    /// Returns a path below the root; `..` leads out of it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join("root").join(name)
    }

    /// Writes a file in place and creates its parent directories. An existing file is rewritten
    /// after a tick of the clock that file times use.
    pub fn write(&self, name: &str, body: &str) {
        fs::create_dir_all(self.path("")).unwrap();
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.exists() {
            thread::sleep(TICK);
        }
        fs::write(path, body).unwrap();
    }

    /// Waits for the next tick of the clock that file times use.
    pub fn tick(&self) {
        thread::sleep(TICK);
    }

    /// Creates a symbolic link from `name` to `target`.
    pub fn link(&self, name: &str, target: impl AsRef<Path>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        symlink(target, self.path(name)).unwrap();
    }

    /// Sets the modification time of `name` to that of `other`, plus an offset.
    pub fn set_modified(&self, name: &str, other: &str, offset_ns: i64) {
        let at = fs::metadata(self.path(other)).unwrap().modified().unwrap();
        let offset = Duration::from_nanos(offset_ns.unsigned_abs());
        let at = if offset_ns < 0 { at - offset } else { at + offset };
        let file = fs::File::options().append(true).open(self.path(name)).unwrap();
        file.set_modified(at).unwrap();
    }

    /// Opens a store of the root.
    pub fn store(&self, options: Options) -> Store {
        Store::open(&self.path(""), options).unwrap()
    }

    /// Number of descriptors of this process that refer to the site's files.
    pub fn descriptors(&self) -> usize {
        let root = self.path("");
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten().map(|fd| fd.path());
        let targets = links.filter_map(|link| fs::read_link(link).ok());
        targets.filter(|target| target.starts_with(&root) && *target != *self.root()).count()
    }

    fn root(&self) -> PathBuf {
        self.0.join("root")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A time `ms` milliseconds into the test, late enough that every file was written long ago.
pub fn at(ms: u64) -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Now { monotonic_ns: (1000 + ms) * 1_000_000, unix_ns: unix.as_nanos() as u64 + 10_000_000_000 }
}

/// Looks up a path, without query or codings.
pub fn find(store: &mut Store, path: &str, now: Now) -> Found {
    store.find(&Lookup::of(path.as_bytes()), now)
}

/// Returns the entry at a path.
pub fn entry(store: &mut Store, path: &str, now: Now) -> Arc<Entry> {
    encoded(store, path, "", now)
}

/// Returns the entry at a path for a client with this `Accept-Encoding`.
pub fn encoded(store: &mut Store, path: &str, accepted: &str, now: Now) -> Arc<Entry> {
    let accept_encoding = &[accepted.as_bytes()];
    match store.find(&Lookup { accept_encoding, ..Lookup::of(path.as_bytes()) }, now) {
        Found::Entry(entry) => entry,
        other => panic!("{path}: {other:?}"),
    }
}

/// Returns the bytes of an entry as text.
pub fn body(entry: &Entry) -> String {
    let bytes = match entry.content() {
        Content::Memory(bytes) => bytes.to_vec(),
        Content::File(file) => {
            let mut bytes = vec![0; entry.len() as usize];
            let count = file.read_at(&mut bytes, 0).unwrap();
            bytes.truncate(count);
            bytes
        }
    };
    assert_eq!(bytes.len() as u64, entry.len());
    String::from_utf8(bytes).unwrap()
}

/// Asserts the bytes of an entry. The message shows their lengths and the first difference: a whole
/// body would bury it.
#[track_caller]
pub fn assert_body(entry: &Entry, wanted: &str) {
    let got = body(entry);
    let same = got.bytes().zip(wanted.bytes()).take_while(|(got, wanted)| got == wanted).count();
    let excerpt = |text: &str| {
        let end = text.len().min(same + 40);
        text.as_bytes()[same..end].escape_ascii().to_string()
    };
    assert!(
        got == wanted,
        "{} bytes, not {}; at {same} they have {:?}, not {:?}",
        got.len(),
        wanted.len(),
        excerpt(&got),
        excerpt(wanted)
    );
}

/// Returns whether a header block contains this line.
pub fn has_line(fields: &[u8], line: &str) -> bool {
    std::str::from_utf8(fields).unwrap().split_terminator("\r\n").any(|found| found == line)
}

/// A duration longer than a tick on any kernel (`CONFIG_HZ=100`).
const TICK: Duration = Duration::from_millis(20);
