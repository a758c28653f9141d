//! Servers under test, as an experiment file describes them: settings that all servers have, and
//! those of each program.

use serde::{Deserialize, Serialize};

use super::units::{Bounded, BurnUs, Count, ProxyBurnUs, filled, id};

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
    /// Envoy: a proxy, and nothing without an upstream.
    Envoy,
    /// The bare loop of this source tree: one fixed reply, no parser, no files.
    Bare,
    /// The sink of this source tree: it answers handshakes, by a TCP of its own, and keeps nothing
    /// of its connections.
    Sink,
}

impl Kind {
    /// All server programs.
    pub const ALL: [Self; 9] = [
        Self::Weir,
        Self::Nginx,
        Self::H2o,
        Self::Lighttpd,
        Self::Haproxy,
        Self::Apache,
        Self::Envoy,
        Self::Bare,
        Self::Sink,
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
            Self::Envoy => "envoy",
            Self::Bare => "bare",
            Self::Sink => "sink",
        }
    }
}

/// A server under test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerSpec {
    /// Name in sweeps, figures and claims.
    #[serde(deserialize_with = "id")]
    pub id: String,
    /// Name in legends.
    #[serde(deserialize_with = "filled")]
    pub label: String,
    /// The program, with the settings that not every program has. In a file these stand beside the
    /// others, and `kind` is the program's name.
    #[serde(rename = "kind")]
    pub program: Program,
    /// weir: options of `weir serve`, as on a command line. Others: directives inserted into the
    /// rendered configuration at the server-wide level.
    #[serde(default)]
    pub options: Vec<String>,
    /// Memory limit in MiB, including the page cache of its files; unlimited by default. With less
    /// than 16 MiB no server starts.
    pub memory_mib: Option<Bounded<16, { u32::MAX }>>,
    /// Limit on reads per second from the disk that holds its files; unlimited by default.
    pub disk_reads_per_s: Option<Count>,
    /// Its row in a matrix; defaults to a row of its own, named by its label.
    pub row: Option<String>,
    /// Its column within that row, which sets it apart from the row's other servers.
    #[serde(default)]
    pub column: String,
    /// weir: true if it runs the other build that the run is compared with.
    #[serde(skip)]
    pub against: bool,
}

/// A server program with its own settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// [`Kind::Weir`].
    Weir(WeirSettings),
    /// [`Kind::Nginx`].
    Nginx(ProxySettings),
    /// [`Kind::H2o`].
    H2o(H2oSettings),
    /// [`Kind::Lighttpd`].
    Lighttpd(FileServerSettings),
    /// [`Kind::Haproxy`].
    Haproxy(HaproxySettings),
    /// [`Kind::Apache`].
    Apache(FileServerSettings),
    /// [`Kind::Envoy`].
    Envoy(EnvoySettings),
    /// [`Kind::Bare`].
    Bare(BareSettings),
    /// [`Kind::Sink`].
    Sink(SinkSettings),
}

/// Kind of a server's key, whose signature is most of what a full handshake costs it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum TlsKey {
    /// ECDSA on the curve P-256, which most sites have.
    #[serde(rename = "ecdsa-p256")]
    EcdsaP256,
    /// RSA of 2048 bits, which costs a server ten times as much, and a client nothing more.
    #[serde(rename = "rsa-2048")]
    Rsa2048,
}

/// Settings of `weir serve`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WeirSettings {
    /// Architecture, as named by `--arch`; defaults to the program's own.
    pub arch: Option<String>,
    /// Options of the architecture, such as `pool=1000`.
    pub arch_options: Vec<String>,
    /// Listen backlog; defaults to the program's own.
    pub backlog: Option<Count>,
    /// True if its clients take gzip, by which it compresses on the fly.
    pub gzip: bool,
    /// Processor time burnt per request, in microseconds; overrides the sweep's.
    pub burn_us: Option<BurnUs>,
    /// True to run `weir proxy` in front of a `weir serve` on the same processors, which burns it.
    pub proxy: bool,
    /// proxy: true to run that server on the client's processors, as on a machine of its own: its
    /// time is then not the proxy's.
    pub upstream_apart: bool,
    /// Key of a certificate made for the run, with which it speaks TLS; without, it speaks none.
    pub tls: Option<TlsKey>,
    /// True to write an access log.
    pub access_log: bool,
    /// True to have an address for its operator, with metrics and the live page, and limits of each
    /// client that none reaches.
    pub operated: bool,
}

impl WeirSettings {
    /// Returns whether they choose or adjust an architecture.
    pub fn has_arch(&self) -> bool {
        self.arch.is_some() || !self.arch_options.is_empty()
    }
}

/// Settings of a server that can be a proxy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ProxySettings {
    /// Listen backlog; defaults to the program's own.
    pub backlog: Option<Count>,
    /// True to compress replies on the fly.
    pub gzip: bool,
    /// Makes it a proxy of a `weir serve` on the same processors, which burns this many
    /// microseconds per request.
    pub proxy_burn_us: Option<ProxyBurnUs>,
    /// proxy-burn-us: true to run that server on the client's processors, as on a machine of its
    /// own.
    pub upstream_apart: bool,
    /// Key of a certificate made for the run, with which it speaks TLS; without, it speaks none.
    pub tls: Option<TlsKey>,
    /// True to write an access log, in batches as weir does.
    pub access_log: bool,
}

/// Settings of haproxy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct HaproxySettings {
    /// Listen backlog; defaults to the program's own.
    pub backlog: Option<Count>,
    /// True to compress replies on the fly.
    pub gzip: bool,
    /// Makes it a proxy of a `weir serve` on the same processors, which burns this many
    /// microseconds per request.
    pub proxy_burn_us: Option<ProxyBurnUs>,
    /// proxy-burn-us: true to run that server on the client's processors, as on a machine of its
    /// own.
    pub upstream_apart: bool,
    /// Maximum number of requests in flight behind it (`maxconn` of the server); unlimited without.
    pub in_flight: Option<Count>,
    /// Maximum time for which a request waits for its turn, milliseconds (`timeout queue`).
    pub queue_ms: Option<Count>,
    /// Key of a certificate made for the run, with which it speaks TLS; without, it speaks none.
    pub tls: Option<TlsKey>,
}

/// Settings of h2o, whose backlog cannot be set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct H2oSettings {
    /// True to compress replies on the fly.
    pub gzip: bool,
    /// Makes it a proxy of a `weir serve` on the same processors, which burns this many
    /// microseconds per request.
    pub proxy_burn_us: Option<ProxyBurnUs>,
    /// Key of a certificate made for the run, with which it speaks TLS; without, it speaks none.
    pub tls: Option<TlsKey>,
}

/// Settings of a server that is no proxy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FileServerSettings {
    /// Listen backlog; defaults to the program's own.
    pub backlog: Option<Count>,
    /// True to compress replies on the fly.
    pub gzip: bool,
}

/// Settings of Envoy: none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvoySettings {}

/// Settings of the bare loop: none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BareSettings {}

/// Settings of the sink: none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkSettings {}

impl ServerSpec {
    /// Returns the program.
    pub fn kind(&self) -> Kind {
        match self.program {
            Program::Weir(_) => Kind::Weir,
            Program::Nginx(_) => Kind::Nginx,
            Program::H2o(_) => Kind::H2o,
            Program::Lighttpd(_) => Kind::Lighttpd,
            Program::Haproxy(_) => Kind::Haproxy,
            Program::Apache(_) => Kind::Apache,
            Program::Envoy(_) => Kind::Envoy,
            Program::Bare(_) => Kind::Bare,
            Program::Sink(_) => Kind::Sink,
        }
    }

    /// Returns its settings if it is a `weir serve`.
    pub fn weir(&self) -> Option<&WeirSettings> {
        match &self.program {
            Program::Weir(settings) => Some(settings),
            _ => None,
        }
    }

    /// Returns whether it is a proxy whose upstream runs on the client's processors.
    pub fn is_upstream_apart(&self) -> bool {
        match &self.program {
            Program::Weir(weir) => weir.proxy && weir.upstream_apart,
            Program::Nginx(proxy) => proxy.proxy_burn_us.is_some() && proxy.upstream_apart,
            Program::Haproxy(proxy) => proxy.proxy_burn_us.is_some() && proxy.upstream_apart,
            _ => false,
        }
    }

    /// Returns whether it is a `weir proxy`.
    pub fn is_weir_proxy(&self) -> bool {
        self.weir().is_some_and(|weir| weir.proxy)
    }

    /// Returns its settings if it is haproxy.
    pub fn haproxy(&self) -> Option<&HaproxySettings> {
        match &self.program {
            Program::Haproxy(settings) => Some(settings),
            _ => None,
        }
    }

    /// Returns its listen backlog; `None` for the program's own.
    pub fn backlog(&self) -> Option<u32> {
        let backlog = match &self.program {
            Program::Weir(weir) => weir.backlog,
            Program::Nginx(proxy) => proxy.backlog,
            Program::Haproxy(haproxy) => haproxy.backlog,
            Program::Lighttpd(server) | Program::Apache(server) => server.backlog,
            Program::H2o(_) | Program::Envoy(_) | Program::Bare(_) | Program::Sink(_) => None,
        };
        backlog.map(|backlog| *backlog)
    }

    /// Returns whether it compresses replies on the fly, for clients that take them so.
    pub fn gzip(&self) -> bool {
        match &self.program {
            Program::Nginx(proxy) => proxy.gzip,
            Program::Haproxy(haproxy) => haproxy.gzip,
            Program::H2o(h2o) => h2o.gzip,
            Program::Lighttpd(server) | Program::Apache(server) => server.gzip,
            Program::Weir(weir) => weir.gzip,
            Program::Envoy(_) | Program::Bare(_) | Program::Sink(_) => false,
        }
    }

    /// Returns whether it writes an access log.
    pub fn access_log(&self) -> bool {
        match &self.program {
            Program::Weir(weir) => weir.access_log,
            Program::Nginx(nginx) => nginx.access_log,
            _ => false,
        }
    }

    /// Returns the kind of its key, if it speaks TLS.
    pub fn tls(&self) -> Option<TlsKey> {
        match &self.program {
            Program::Weir(weir) => weir.tls,
            Program::Nginx(proxy) => proxy.tls,
            Program::Haproxy(haproxy) => haproxy.tls,
            Program::H2o(h2o) => h2o.tls,
            Program::Lighttpd(_) | Program::Apache(_) => None,
            Program::Envoy(_) | Program::Bare(_) | Program::Sink(_) => None,
        }
    }

    /// Returns the time in microseconds that a `weir serve` behind it burns per request; `None` if
    /// it is no proxy.
    pub fn proxy_burn_us(&self) -> Option<u32> {
        let burn_us = match &self.program {
            Program::Nginx(proxy) => proxy.proxy_burn_us,
            Program::Haproxy(haproxy) => haproxy.proxy_burn_us,
            Program::H2o(h2o) => h2o.proxy_burn_us,
            _ => None,
        };
        burn_us.map(|burn_us| *burn_us)
    }
}

#[cfg(test)]
impl ServerSpec {
    /// Creates a specification with these lines of settings, the others at their defaults.
    pub(crate) fn with(kind: Kind, settings: &str) -> Self {
        #[derive(Deserialize)]
        struct Servers {
            server: Vec<ServerSpec>,
        }
        let common = format!("id = \"it\"\nlabel = \"it\"\nkind = \"{}\"", kind.name());
        let text = format!("[[server]]\n{common}\n{settings}");
        super::file::read::<Servers>(&text).unwrap().server.remove(0)
    }

    /// Creates a specification with default settings.
    pub(crate) fn plain(kind: Kind) -> Self {
        Self::with(kind, "")
    }
}
