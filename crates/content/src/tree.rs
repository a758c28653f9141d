//! The file tree below the root: which files a path stands for, opened and examined but not read.
//!
//! Every name is resolved by the kernel, below the root and under the operator's rule for links.
//! Nothing here reads a file or keeps one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use weir_sys::file::{self, File, Kind, Status};

use crate::listing::Row;
use crate::path::{Decoded, is_reachable};
use crate::stop::Stop;
use crate::store::Options;
use crate::variants::{Coding, is_owned_by_same, stands_for};

/// The tree and the rules for walking it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: File,
    symlinks: bool,
    dotfiles: bool,
    index: Vec<String>,
    codings: Vec<Coding>,
}

/// What a path stands for.
pub(crate) enum Place {
    /// A regular file, perhaps with variants.
    File(Located),
    /// A directory asked for without its slash.
    NeedsSlash,
    /// A directory without an index file, or nothing: whoever lists it will see.
    NoIndex,
    /// Nothing that is ours to serve.
    Absent,
}

/// The files behind a path.
pub(crate) struct Located {
    /// The plain file's path below the root.
    pub(crate) path: Vec<u8>,
    pub(crate) plain: Source,
    /// Variants that stand for the plain file: [`stands_for`].
    pub(crate) variants: Vec<(Coding, Source)>,
}

/// Why a path was not located: names that are cold, or trouble.
pub(crate) type Unlocated = Stop<Vec<Vec<u8>>>;

/// A file or directory, opened and examined.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    pub(crate) status: Status,
}

impl Source {
    fn new(file: File) -> io::Result<Source> {
        let status = file::status(file.as_fd())?;
        Ok(Source { file, status })
    }
}

/// The directory below which everything is.
impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

impl Tree {
    pub(crate) fn open(root: &Path, options: &Options) -> io::Result<Tree> {
        let is_name = |name: &String| is_reachable(name.as_bytes());
        if let Some(name) = options.index.iter().find(|name| !is_name(name)) {
            let message = format!("{name:?} is not the name of an index file");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Tree {
            root: file::open_root(root)?,
            symlinks: options.follow_symlinks,
            dotfiles: options.dotfiles,
            index: options.index.clone(),
            codings: options.codings.clone(),
        })
    }

    /// Whether nothing below the root takes a disk, if no other file system is mounted there.
    pub(crate) fn is_in_memory(&self) -> bool {
        file::is_in_memory(self.root.as_fd())
    }

    /// Whether links are followed.
    pub(crate) fn follows_symlinks(&self) -> bool {
        self.symlinks
    }

    /// Finds what `path` stands for.
    ///
    /// # Errors
    /// The names that would have to be waited for, unless it `waits`. Else trouble of ours only
    /// (descriptors, memory, the disk): a name that leads nowhere, out of the root, or to something
    /// we may not read is [`Place::Absent`], all alike to the client.
    pub(crate) fn locate(&self, path: &Decoded<'_>, waits: bool) -> Result<Place, Unlocated> {
        let place = if path.is_directory() {
            self.locate_index(path.path(), waits)
        } else {
            self.locate_file(path.path().to_vec(), waits)
        };
        match place {
            Err(Stop::Failed(error)) if file::is_absent(&error) => Ok(Place::Absent),
            place => place,
        }
    }

    /// The directory at `path`, open to be listed; `None` if there is none. It waits for the disk.
    ///
    /// # Errors
    /// Trouble of ours, as for [`Tree::locate`].
    pub(crate) fn directory(&self, path: &[u8]) -> io::Result<Option<Source>> {
        match self.examine(path) {
            Ok(source) => Ok(Some(source).filter(|found| found.status.kind == Kind::Directory)),
            Err(error) if file::is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a name in a directory is one to list.
    pub(crate) fn shows(&self, name: &[u8]) -> bool {
        is_reachable(name) && (self.dotfiles || !name.starts_with(b"."))
    }

    /// The row for a name in an open directory, at `path`; `None` for what could not be fetched. It
    /// waits for the disk.
    pub(crate) fn row(&self, directory: &File, path: &[u8], name: Vec<u8>) -> Option<Row> {
        let mut status = file::status_at(directory.as_fd(), &name).ok()?;
        if status.kind == Kind::Symlink && self.symlinks {
            status = self.examine(&joined(path, &name)).ok()?.status;
        }
        let is_file = match status.kind {
            Kind::Directory => false,
            Kind::File => true,
            Kind::Symlink | Kind::Other => return None,
        };
        Some(Row { is_file, name, len: status.len, modified_s: seconds(status.mtime_ns) })
    }

    fn locate_file(&self, path: Vec<u8>, waits: bool) -> Result<Place, Unlocated> {
        let plain = self.open_source(&path, waits)?;
        match plain.status.kind {
            Kind::File => self.with_variants(path, plain, waits),
            Kind::Directory => Ok(Place::NeedsSlash),
            Kind::Symlink | Kind::Other => Ok(Place::Absent),
        }
    }

    /// The first index file that exists. One that exists and cannot be served hides the directory,
    /// rather than let the next name or a listing show in its place.
    fn locate_index(&self, directory: &[u8], waits: bool) -> Result<Place, Unlocated> {
        for name in &self.index {
            let path = joined(directory, name.as_bytes());
            match self.open_source(&path, waits) {
                Err(Stop::Failed(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(stop) => return Err(stop),
                Ok(plain) if plain.status.kind == Kind::File => {
                    return self.with_variants(path, plain, waits);
                }
                Ok(_) => return Ok(Place::Absent),
            }
        }
        Ok(Place::NoIndex)
    }

    /// Names that would have to be waited for are gathered, so that they can be all at once.
    fn with_variants(&self, path: Vec<u8>, plain: Source, waits: bool) -> Result<Place, Unlocated> {
        let (mut variants, mut cold) = (Vec::new(), Vec::new());
        for &coding in &self.codings {
            let name = [&path, coding.suffix().as_bytes()].concat();
            match self.open_source(&name, waits) {
                Err(Stop::Cold(names)) => cold.extend(names),
                Err(Stop::Failed(error)) if file::is_absent(&error) => {}
                Err(stop) => return Err(stop),
                Ok(variant) => {
                    if stands_for(&variant.status, &plain.status) && self.is_named_by(&name, &plain)
                    {
                        variants.push((coding, variant));
                    }
                }
            }
        }
        if !cold.is_empty() {
            return Err(Stop::Cold(cold));
        }
        Ok(Place::File(Located { path, plain, variants }))
    }

    /// Whether a name is the doing of a file's owner, or of root. Of a file it is its owner's; a
    /// link, which is followed only where that was asked for, has an owner of its own. The kernel
    /// remembers it: it was followed just now.
    fn is_named_by(&self, name: &[u8], plain: &Source) -> bool {
        !self.symlinks
            || file::status_at(self.root.as_fd(), name)
                .is_ok_and(|status| is_owned_by_same(&status, &plain.status))
    }

    fn open_source(&self, path: &[u8], waits: bool) -> Result<Source, Unlocated> {
        if waits {
            return Ok(self.examine(path)?);
        }
        let path = name_of(path);
        match file::open_beneath_cached(self.root.as_fd(), path, self.symlinks) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(Stop::Cold(vec![path.to_vec()]))
            }
            file => Ok(Source::new(file?)?),
        }
    }

    fn examine(&self, path: &[u8]) -> io::Result<Source> {
        Source::new(file::open_beneath(self.root.as_fd(), name_of(path), self.symlinks)?)
    }
}

/// What a path below the root is to be opened by.
fn name_of(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

fn seconds(time_ns: i128) -> i64 {
    i64::try_from(time_ns.div_euclid(1_000_000_000)).unwrap_or(i64::MAX)
}
