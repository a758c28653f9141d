//! The file tree below the root: resolves a path to its files, opened and examined but not read.
//!
//! Every name is resolved by the kernel, below the root and under the operator's rule for links.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use weir_sys::file::{self, File, Kind, Status};

use crate::cold_error::ColdError;
use crate::listing::Row;
use crate::options::Options;
use crate::path::{Decoded, is_reachable};
use crate::variants::{Coding, is_owned_by_same, stands_for};

/// The tree and the rules for resolving paths in it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: File,
    symlinks: bool,
    dotfiles: bool,
    index: Vec<String>,
    codings: Vec<Coding>,
}

/// Result of resolving a path.
pub(crate) enum ResolvedPath {
    /// A regular file, perhaps with variants.
    File(ResolvedFiles),
    /// A directory asked for without its slash.
    NeedsSlash,
    /// A directory without an index file, or nothing: listing it will tell.
    NoIndex,
    /// Nothing that may be served.
    Absent,
}

/// The files of a path.
pub(crate) struct ResolvedFiles {
    /// The plain file's path below the root.
    pub(crate) path: Vec<u8>,
    pub(crate) plain: OpenedFile,
    /// Variants that may be sent in place of the plain file: [`stands_for`].
    pub(crate) variants: Vec<(Coding, OpenedFile)>,
}

/// Reason why a path was not resolved: cold names, or an error.
pub(crate) type ResolveError = ColdError<Vec<Vec<u8>>>;

/// A file or directory, opened and examined.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    pub(crate) status: Status,
}

impl OpenedFile {
    fn new(file: File) -> io::Result<OpenedFile> {
        let status = file::status(file.as_fd())?;
        Ok(OpenedFile { file, status })
    }
}

/// The root directory.
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

    /// Returns whether the root is on an in-memory file system. Then no lookup blocks on a disk,
    /// unless another file system is mounted below the root.
    pub(crate) fn is_in_memory(&self) -> bool {
        file::is_in_memory(self.root.as_fd())
    }

    /// Returns whether symbolic links are followed.
    pub(crate) fn follows_symlinks(&self) -> bool {
        self.symlinks
    }

    /// Resolves `path`.
    ///
    /// # Errors
    /// The cold names, if it must not block (`waits` is false). Otherwise only server-side errors
    /// (descriptors, memory, the disk): a name that does not exist, leads out of the root, or may
    /// not be read is [`ResolvedPath::Absent`], so that the client cannot tell these apart.
    pub(crate) fn resolve(
        &self,
        path: &Decoded<'_>,
        waits: bool,
    ) -> Result<ResolvedPath, ResolveError> {
        let place = if path.is_directory() {
            self.resolve_index(path.path(), waits)
        } else {
            self.resolve_file(path.path().to_vec(), waits)
        };
        match place {
            Err(ColdError::Failed(error)) if file::is_absent(&error) => Ok(ResolvedPath::Absent),
            place => place,
        }
    }

    /// Opens the directory at `path` for listing; returns `None` if there is none. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// Server-side errors, as for [`Tree::resolve`].
    pub(crate) fn directory(&self, path: &[u8]) -> io::Result<Option<OpenedFile>> {
        match self.examine(path) {
            Ok(source) => Ok(Some(source).filter(|found| found.status.kind == Kind::Directory)),
            Err(error) if file::is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a name in a directory is to be listed.
    pub(crate) fn shows(&self, name: &[u8]) -> bool {
        is_reachable(name) && (self.dotfiles || !name.starts_with(b"."))
    }

    /// Returns the row for a name in an open directory at `path`; `None` for a name that cannot be
    /// requested. Blocks on the disk.
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

    fn resolve_file(&self, path: Vec<u8>, waits: bool) -> Result<ResolvedPath, ResolveError> {
        let plain = self.open_file(&path, waits)?;
        match plain.status.kind {
            Kind::File => self.with_variants(path, plain, waits),
            Kind::Directory => Ok(ResolvedPath::NeedsSlash),
            Kind::Symlink | Kind::Other => Ok(ResolvedPath::Absent),
        }
    }

    /// Finds the first index file that exists. One that exists but cannot be served hides the
    /// directory: neither the next name nor a listing is used in its place.
    fn resolve_index(&self, directory: &[u8], waits: bool) -> Result<ResolvedPath, ResolveError> {
        for name in &self.index {
            let path = joined(directory, name.as_bytes());
            match self.open_file(&path, waits) {
                Err(ColdError::Failed(error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(stop) => return Err(stop),
                Ok(plain) if plain.status.kind == Kind::File => {
                    return self.with_variants(path, plain, waits);
                }
                Ok(_) => return Ok(ResolvedPath::Absent),
            }
        }
        Ok(ResolvedPath::NoIndex)
    }

    /// Adds the variants of a file. Cold names are collected, so that all of them can be fetched at
    /// once.
    fn with_variants(
        &self,
        path: Vec<u8>,
        plain: OpenedFile,
        waits: bool,
    ) -> Result<ResolvedPath, ResolveError> {
        let (mut variants, mut cold) = (Vec::new(), Vec::new());
        for &coding in &self.codings {
            let name = [&path, coding.suffix().as_bytes()].concat();
            match self.open_file(&name, waits) {
                Err(ColdError::Cold(names)) => cold.extend(names),
                Err(ColdError::Failed(error)) if file::is_absent(&error) => {}
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
            return Err(ColdError::Cold(cold));
        }
        Ok(ResolvedPath::File(ResolvedFiles { path, plain, variants }))
    }

    /// Returns whether a name was created by the file's owner or by root. Without symbolic links
    /// this always holds: a link, followed only if the operator allows it, has an owner of its own.
    /// The kernel has the name cached, since it was resolved just before.
    fn is_named_by(&self, name: &[u8], plain: &OpenedFile) -> bool {
        !self.symlinks
            || file::status_at(self.root.as_fd(), name)
                .is_ok_and(|status| is_owned_by_same(&status, &plain.status))
    }

    fn open_file(&self, path: &[u8], waits: bool) -> Result<OpenedFile, ResolveError> {
        if waits {
            return Ok(self.examine(path)?);
        }
        let path = name_of(path);
        match file::open_beneath_cached(self.root.as_fd(), path, self.symlinks) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(ColdError::Cold(vec![path.to_vec()]))
            }
            file => Ok(OpenedFile::new(file?)?),
        }
    }

    fn examine(&self, path: &[u8]) -> io::Result<OpenedFile> {
        OpenedFile::new(file::open_beneath(self.root.as_fd(), name_of(path), self.symlinks)?)
    }
}

/// Returns the name to pass to the kernel for a path below the root.
fn name_of(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

fn seconds(time_ns: i128) -> i64 {
    i64::try_from(time_ns.div_euclid(1_000_000_000)).unwrap_or(i64::MAX)
}
