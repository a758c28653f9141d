//! Servers under test, as an experiment file describes them.

use serde::{Deserialize, Serialize};

/// The server program.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `weir serve` of this binary.
    Weir,
    /// nginx(8).
    Nginx,
    /// h2o(1).
    H2o,
    /// lighttpd(8).
    Lighttpd,
    /// haproxy(1): answers requests itself, or proxies a `weir serve` behind it.
    Haproxy,
    /// apache2(8), event MPM.
    Apache,
    /// The bare loop of this source tree: one fixed reply, no parser, no files.
    Bare,
}

impl Kind {
    /// All server programs.
    pub const ALL: [Self; 7] = [
        Self::Weir,
        Self::Nginx,
        Self::H2o,
        Self::Lighttpd,
        Self::Haproxy,
        Self::Apache,
        Self::Bare,
    ];

    /// Returns its name in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::Nginx => "nginx",
            Self::H2o => "h2o",
            Self::Lighttpd => "lighttpd",
            Self::Haproxy => "haproxy",
            Self::Apache => "apache",
            Self::Bare => "bare",
        }
    }
}

/// A server under test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerSpec {
    /// Name in sweeps, figures and claims.
    pub id: String,
    /// Name in legends.
    pub label: String,
    /// The program.
    pub kind: Kind,
    /// weir: options of `weir serve`, as on a command line. Others: directives inserted into the
    /// rendered configuration at the server-wide level.
    #[serde(default)]
    pub options: Vec<String>,
    /// weir: architecture, as named by `--arch`; defaults to the program's own.
    #[serde(default)]
    pub arch: Option<String>,
    /// weir: options of the architecture, such as `pool=1000`.
    #[serde(default)]
    pub arch_options: Vec<String>,
    /// Listen backlog; defaults to the program's own.
    #[serde(default)]
    pub backlog: Option<u32>,
    /// Processor time burnt per request, in microseconds: weir only; overrides the sweep's.
    #[serde(default)]
    pub burn_us: Option<u32>,
    /// True to compress replies on the fly: nginx, h2o, lighttpd, haproxy, apache only.
    #[serde(default)]
    pub gzip: bool,
    /// Makes the server a proxy of a `weir serve` on the same processors, which burns this many
    /// microseconds per request: nginx, h2o, haproxy only.
    #[serde(default)]
    pub proxy_burn_us: Option<u32>,
    /// Memory limit in MiB, including the page cache of its files; unlimited by default.
    #[serde(default)]
    pub memory_mib: Option<u32>,
    /// Limit on reads per second from the disk that holds its files; unlimited by default.
    #[serde(default)]
    pub disk_reads_per_s: Option<u32>,
    /// Its row in a matrix; defaults to a row of its own, named by its label.
    #[serde(default)]
    pub row: Option<String>,
    /// Its column within that row, which sets it apart from the row's other servers.
    #[serde(default)]
    pub column: String,
    /// weir: true if it runs the other build that the run is compared with.
    #[serde(skip)]
    pub against: bool,
}

#[cfg(test)]
impl ServerSpec {
    /// Creates a specification with default settings.
    pub(crate) fn plain(kind: Kind) -> Self {
        let text = format!("id = \"it\"\nlabel = \"it\"\nkind = \"{}\"", kind.name());
        toml::from_str(&text).unwrap()
    }
}
