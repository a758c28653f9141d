//! Server programs other than weir: what distinguishes each from the others, and what they are
//! configured for.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::identity::IdentityFiles;
use crate::allow_list::AllowList;
use crate::experiment::ServerSpec;
use crate::programs;

/// Maximum number of open connections, as many as the papers' servers take.
pub(super) const CONNS_MAX: u64 = 15_000;

/// Descriptors a server needs besides its connections: files, logs, standard streams.
pub(super) const SPARE_FDS: u64 = 500;

/// What the paths that an application answers begin with.
pub(super) const APPLICATION: &str = "/.weir";

/// The parameters of a configuration.
pub(super) struct Site<'a> {
    pub(super) spec: &'a ServerSpec,
    pub(super) address: SocketAddr,
    pub(super) root: &'a Path,
    pub(super) dir: &'a Path,
    pub(super) workers: usize,
    /// Maximum number of descriptors per process.
    pub(super) files_max: u64,
    /// True if it is started as root and so must be told its user.
    pub(super) as_root: bool,
    /// Unix sockets of its upstreams, relative to its working directory; none for a server that
    /// answers by itself.
    pub(super) upstreams: Vec<String>,
    /// True if it serves files beside the upstreams: only paths below [`APPLICATION`] are for them.
    pub(super) serves_files: bool,
    /// Its certificate; `None` if it speaks no TLS.
    pub(super) tls: Option<IdentityFiles>,
}

impl Site<'_> {
    /// Returns the maximum number of open connections, within the limit of descriptors.
    pub(super) fn conns_max(&self) -> u64 {
        CONNS_MAX.min(self.files_max.saturating_sub(SPARE_FDS)).max(1)
    }
}

/// A server program with a configuration file, described by what distinguishes it from the others.
pub(super) struct ServerProgram {
    /// Possible names of its binary.
    pub(super) binaries: &'static [&'static str],
    /// The package that has it, such as `Debian's package nginx`.
    pub(super) package: &'static str,
    /// The flag that prints its version.
    pub(super) version_flag: &'static str,
    /// Name of its configuration file.
    pub(super) config_file: &'static str,
    /// Returns the text of its configuration.
    pub(super) configuration: fn(&Site<'_>) -> Result<String, String>,
    /// Arguments; `{dir}` stands for its directory, `{config}` for the path of its configuration,
    /// `{workers}` for the number of processors.
    pub(super) arguments: &'static [&'static str],
    /// Directives that an experiment may set, and the name shown before its version.
    pub(super) allowed: AllowList,
}

impl ServerProgram {
    pub(super) fn find(&self) -> Result<PathBuf, String> {
        self.binaries.iter().find_map(|binary| programs::find(binary)).ok_or_else(|| {
            format!("{} is not installed: {} has it", self.allowed.program, self.package)
        })
    }
}

/// Returns a program that is an example of a crate of ours: that of weir's build, or one on the
/// search path.
pub(super) fn example(weir: &Path, package: &str, name: &str) -> Result<PathBuf, String> {
    let beside = weir.parent().map(|folder| folder.join("examples").join(name));
    let built = beside.filter(|file| file.is_file()).or_else(|| programs::find(name));
    built.ok_or_else(|| {
        format!(
            "{name} is not built: `cargo build --release -p {package} --example {name}` does it"
        )
    })
}

/// Formats a path as a quoted word of nginx, haproxy or Apache, in which a space does not end it.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

/// Formats the options of a specification, one per line.
pub(super) fn lines(options: &[String]) -> String {
    options.iter().map(|option| format!("{option}\n")).collect()
}
