//! Everything that can be configured about a server. Parses nothing.

mod error_log;
mod log;
mod upstream;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use weir_accept::client_limits::{ClientLimit, ClientPrefix};
use weir_accept::upstream::Class;
use weir_accept::{Control, PolicyConfig, PolicyName, Refusal, SynFilter};
use weir_cache::CacheConfig;
use weir_content as content;
use weir_dispatch::readiness;
use weir_dispatch::slots::SlotSearch;
use weir_sys::socket::UNKNOWN_PEER;
use weir_tls::Acceptor;

use crate::architecture;
use crate::sites::client::Client;
use crate::sites::hosts::HostPattern;
use crate::sites::paths::{PathPattern, plain};
use crate::sites::ruling::{RuleLines, Ruling};
use crate::sites::{ErrorPage, Rule, RuleIndex, Sites};
use crate::strategy::Strategy;

pub use error_log::{ErrorLog, ErrorLogOptions, LogLevel};
pub(crate) use error_log::{LogEntry, ToWriter};
pub use log::{
    AccessLog, LOG_FIELDS, LogField, LogFieldRow, LogFormat, LogPattern, LogTarget, PatternPart,
};
pub use upstream::{
    HealthCheck, KeepIdle, Upstream, UpstreamAddress, UpstreamServer, UpstreamTimeouts,
};

/// Address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4 or IPv6; port 0 is replaced by a free one.
    Tcp(SocketAddr),
    /// The same, with TLS.
    Tls(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Tls(address) => write!(f, "https://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Time limits of a connection, nanoseconds. Each is absolute: no single byte extends it.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the first byte of a request, or the accept, to the end of its head.
    pub header_ns: u64,
    /// From the end of the head to the end of the body.
    pub body_ns: u64,
    /// Between two requests.
    pub idle_ns: u64,
    /// From the first byte of a request to the last of its reply; 0 is no limit.
    pub request_ns: u64,
    /// From the last reply of a connection with bytes still coming until the client closes.
    pub linger_ns: u64,
    /// For connections that are open when the server is asked to stop.
    pub drain_ns: u64,
    /// Time that a client may be below the minimum rate.
    pub rate_grace_ns: u64,
    /// Time that a client may take nothing of a reply; 0 is no limit.
    pub stall_ns: u64,
    /// Time that a client may acknowledge nothing of what was sent, in whatever state its
    /// connection is (TCP_USER_TIMEOUT, tcp(7)); 0 leaves it to the kernel.
    pub user_ns: u64,
}

/// Where SYNs are filtered that are admitted by tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynFilterPlace {
    /// At the link too, where that is possible.
    Auto,
    /// At the listening socket alone.
    Socket,
    /// At the link too, or the server does not start.
    Link,
}

/// A directory that a site or a route serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRoot {
    /// The directory.
    pub path: PathBuf,
    /// Names of index files; the first that exists wins.
    pub index: Vec<String>,
    /// True if directories without an index file are listed.
    pub listing: bool,
}

/// A cache of what upstreams reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyCache {
    /// Its bounds.
    pub bounds: CacheConfig,
    /// Networks of clients that may remove what is stored, by PURGE.
    pub purgers: Vec<IpNet>,
}

/// A part of the site whose requests are of the high class at their upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HighPriority {
    /// Host; `None` for any.
    pub host: Option<HostPattern>,
    /// Path, with all below it.
    pub path: PathPattern,
}

impl HighPriority {
    /// Returns whether a request for `path`, in its plain form, on `host` is for this part of the
    /// site.
    fn has(&self, host: Option<&[u8]>, path: &[u8]) -> bool {
        let is_host =
            self.host.as_ref().is_none_or(|own| host.is_some_and(|host| own.matches(host)));
        is_host && self.path.matches(path)
    }
}

/// Limits of each client.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// What each may have, and do.
    pub each: ClientLimit,
    /// Bits of an address that tell clients apart.
    pub prefix: ClientPrefix,
    /// Clients that can be known at a time.
    pub entries: usize,
}

/// Confinement of the threads and processes that serve (docs/sandbox.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxMode {
    /// As far as the kernel can.
    Auto,
    /// Wholly, or the server does not start.
    On,
    /// Not at all.
    Off,
}

/// The user that a server becomes once it has bound its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName {
    /// Name or number.
    pub user: String,
    /// Name or number of a group; `None` for the user's own.
    pub group: Option<String>,
}

/// The memory budget of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Three quarters of what its control groups and the machine allow.
    Auto,
    /// None.
    None,
    /// This many bytes.
    Bytes(u64),
}

/// Complete description of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory served; `None` for a proxy, which serves no file.
    pub root: Option<PathBuf>,
    /// Addresses to listen on; ignored when sockets were inherited.
    pub listen: Vec<Address>,
    /// Certificates, for the addresses with TLS; `None` without one.
    pub tls: Option<Arc<Acceptor>>,
    /// True if requests without TLS are sent on to the first address with TLS.
    pub redirects_to_tls: bool,
    /// Port of that address, once it is known.
    pub tls_port: u16,
    /// Number of listening sockets passed by a service manager (LISTEN_FDS).
    pub inherited: usize,
    /// True if the loops share one socket per TCP address; otherwise each has its own.
    pub share_listener: bool,
    /// Architecture.
    pub arch: architecture::ArchitectureName,
    /// Settings of the architecture.
    pub arch_settings: readiness::settings::Settings,
    /// Event mechanism, where the architecture takes one.
    pub mechanism: readiness::MechanismName,
    /// Settings of the mechanism.
    pub mechanism_settings: readiness::settings::Settings,
    /// Search for the lowest free slot of a connection.
    pub slots: SlotSearch,
    /// Accept strategy.
    pub strategy: Strategy,
    /// Accept policy, with the strategy's name and limit. Its SYN filter and its eagerness are
    /// determined at the start.
    pub policy: PolicyConfig,
    /// SYN filter to use; `None` selects the best available.
    pub syn_filter: Option<SynFilter>,
    /// Where SYNs are filtered.
    pub syn_filter_at: SynFilterPlace,
    /// Maximum number of open connections, all loops together (max-conns).
    pub conns_max: usize,
    /// Memory budget of the whole server; a number once the server has started.
    pub memory: MemoryLimit,
    /// Limits of each client, all loops together; `None` without any.
    pub client_limits: Option<ClientLimits>,
    /// Listen backlog (listenq).
    pub listenq: i32,
    /// Content to serve and its caching; the budgets are divided among the loops.
    pub content: content::Options,
    /// Field lines added to every reply, each ended by CRLF.
    pub fields: Vec<u8>,
    /// Field lines added to every reply over TLS in their place.
    pub tls_fields: Vec<u8>,
    /// Bodies for error statuses.
    pub error_pages: Vec<ErrorPage>,
    /// Number of loops.
    pub workers: usize,
    /// Processor of each loop, repeated if there are fewer; no loop is pinned if empty.
    pub cpus: Vec<usize>,
    /// Other servers that requests are forwarded to.
    pub upstreams: Vec<Upstream>,
    /// Sites and routes; `None` if every request is for a file of the root.
    pub sites: Option<Sites>,
    /// Roots of sites and routes besides that of the server, whose options they have but for these.
    pub site_roots: Vec<SiteRoot>,
    /// Cache of what upstreams reply; `None` without one.
    pub cache: Option<ReplyCache>,
    /// Memory in which replies of upstreams wait for slow clients, and content until it is whole,
    /// all loops together, bytes.
    pub buffers_bytes_max: usize,
    /// Parts of the site whose requests go first at their upstream.
    pub high_priority: Vec<HighPriority>,
    /// Networks of proxies whose word on where a request comes from is passed on.
    pub trusted: Vec<IpNet>,
    /// True if connections from those networks, and on Unix sockets, begin with a header of the
    /// PROXY protocol.
    pub proxy_protocol_in: bool,
    /// Time limits of connections.
    pub timeouts: Timeouts,
    /// Minimum rate at which a client must read a reply, bytes per second; 0 is no limit.
    pub rate_min: u64,
    /// Requests that may be made on a connection; the largest number is any.
    pub requests_max: u32,
    /// Maximum size of a request's body that is read and discarded, bytes; with a larger one the
    /// connection is given up.
    pub body_bytes_max: u64,
    /// The access log; `None` without one.
    pub access_log: Option<AccessLog>,
    /// True if each request has an identifier.
    pub request_ids: bool,
    /// True to publish the counters in a file of the run directory.
    pub stat_page: bool,
    /// True to ask the kernel how long each accepted connection was in the accept queue.
    pub accept_queue_times: bool,
    /// True to measure the processor time of each phase, where the architecture has phases.
    pub phase_times: bool,
    /// True to count and time every system call.
    pub profile_calls: bool,
    /// True to answer `/.weir/burn`, which costs processor time of the client's choice: for
    /// measurements.
    pub bench_endpoints: bool,
    /// Confinement of what serves.
    pub sandbox: SandboxMode,
    /// User that it becomes; `None` to stay as it is.
    pub user: Option<UserName>,
    /// File of the operator's Unix socket, if there is one, which becomes that user's.
    pub admin_socket: Option<PathBuf>,
    /// Messages to the operator.
    pub errors: ErrorLog,
}

impl Config {
    /// Returns the memory budget, bytes, once the server has started; `None` without one.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        match self.memory {
            MemoryLimit::Bytes(bytes) => Some(bytes),
            MemoryLimit::Auto | MemoryLimit::None => None,
        }
    }

    /// Returns the maximum number of files that the loops keep open together, once the limits are
    /// divided among them.
    pub(crate) fn open_files_max(&self) -> u64 {
        let stores = self.workers.max(1) * (self.site_roots.len() + 1);
        self.content.open_files_max.saturating_mul(stores as u64)
    }

    /// Returns the upstream without which no request can be served; `None` if there is anything
    /// else to be had: a file, another upstream, a stored reply, a higher priority, or a proxy that
    /// would rather have a 503 and ask another server. What is refused for another reason than
    /// load, such as an address that may not ask, does not count.
    pub(crate) fn sole_upstream(&self) -> Option<usize> {
        let leaves_to_kernel = self.policy.name == PolicyName::Adaptive
            && self.policy.refusal == Refusal::Kernel
            && self.policy.controls.has(Control::SynFilter);
        let has_more = self.cache.is_some()
            || !self.high_priority.is_empty()
            || !self.trusted.is_empty()
            || self.bench_endpoints;
        if !leaves_to_kernel || has_more { None } else { self.sites.as_ref()?.sole_upstream() }
    }

    /// Returns a rule of the sites.
    pub(crate) fn rule(&self, index: RuleIndex) -> Option<&Rule> {
        self.sites.as_ref()?.rule(index)
    }

    /// Returns what replies to a request with this ruling have, with or without TLS.
    pub(crate) fn lines(&self, is_tls: bool, ruling: Option<Ruling>) -> RuleLines<'_> {
        let own = if is_tls { &self.tls_fields } else { &self.fields };
        RuleLines::of(own, is_tls, self.sites.as_ref(), ruling)
    }

    /// Returns whether what an address says of where requests come from is believed.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|each| each.contains(&address.to_canonical()))
    }

    /// Returns whether the client of a connection is a proxy whose word on where requests come from
    /// counts; not if it has no address.
    pub(crate) fn trusts_peer(&self, peer: SocketAddr) -> bool {
        peer != UNKNOWN_PEER && self.trusts(peer.ip())
    }

    /// Returns the client of a request with this head, by what trusted proxies say.
    pub(crate) fn client(&self, peer: SocketAddr, head: &[u8]) -> Client {
        match () {
            () if peer == UNKNOWN_PEER => Client::Local,
            () if self.trusted.is_empty() => Client::Address(peer.ip()),
            () => Client::of(peer.ip(), head, |address| self.trusts(address)),
        }
    }

    /// Returns whether the client of a request with this head may remove what is stored. One that a
    /// trusted proxy says nothing of may not: it may be anybody, and the proxy's own address would
    /// stand for all of its clients.
    pub(crate) fn may_purge(&self, peer: SocketAddr, head: &[u8]) -> bool {
        let Client::Address(client) = self.client(peer, head) else { return false };
        let is_unsaid = self.trusts_peer(peer) && !Client::is_said(head);
        let mut networks = self.cache.iter().flat_map(|cache| &cache.purgers);
        !is_unsaid && networks.any(|network| network.contains(&client.to_canonical()))
    }

    /// Returns whether a connection from `peer`, [`UNKNOWN_PEER`] on a Unix socket, begins with a
    /// header of the PROXY protocol. The address decides this and not the bytes: a client that
    /// could choose would say who it is.
    pub(crate) fn expects_proxy_header(&self, peer: SocketAddr) -> bool {
        self.proxy_protocol_in && (peer == UNKNOWN_PEER || self.trusts(peer.ip()))
    }

    /// Returns whether an upstream is told of clients' connections by the PROXY protocol.
    pub(crate) fn sends_proxy_headers(&self) -> bool {
        self.upstreams.iter().any(|upstream| upstream.proxy_protocol.is_some())
    }

    /// Returns the class of a request at its upstream.
    #[must_use]
    pub fn class_of(&self, host: Option<&[u8]>, path: &[u8]) -> Class {
        class_of(&self.high_priority, host, path)
    }
}

/// Returns the class of a request where these parts of the site are of the high one. As for routes,
/// the way in which a path is written makes no difference; one with `.`, `..` or backslashes may
/// lead anywhere, and is of the normal class.
fn class_of(high: &[HighPriority], host: Option<&[u8]>, path: &[u8]) -> Class {
    if high.is_empty() {
        return Class::Normal;
    }
    let mut room = Vec::new();
    let plain = plain(path, &mut room);
    let is_clear = !(plain.has_dots || plain.has_backslashes);
    let is_high = is_clear && high.iter().any(|part| part.has(host, plain.path));
    if is_high { Class::High } else { Class::Normal }
}

/// An operator's error: a message that says what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_site_is_a_host_and_a_path_with_all_below_it() {
        for (host, path, asked, wanted) in [
            (None, "/api", (None, "/api/b"), true),
            (None, "/api", (None, "/apis"), false),
            (Some("a.b"), "/", (Some("A.b:80"), "/"), true),
            (Some("a.b"), "/", (Some("a.bc"), "/"), false),
            (Some("a.b"), "/", (None, "/"), false),
            (Some("[::1]"), "/", (Some("[::1]:80"), "/"), true),
            (Some("a.b."), "/", (Some("a.b"), "/"), true),
            (Some("*.b"), "/", (Some("A.b.:80"), "/"), true),
            (Some("*.b"), "/", (Some("b"), "/"), false),
        ] {
            let host = host.map(|host| HostPattern::parse(host).unwrap());
            let part = HighPriority { host, path: pattern(path) };
            let (asked_host, asked_path) = asked;
            let found = part.has(asked_host.map(str::as_bytes), asked_path.as_bytes());
            assert_eq!(found, wanted, "{part:?} {asked:?}");
        }
    }

    fn pattern(path: &str) -> PathPattern {
        PathPattern::parse(path, false).unwrap()
    }

    #[test]
    fn the_way_in_which_a_path_is_written_makes_no_difference_to_its_class() {
        let of = |high: &str, raw: &str| {
            let high = [HighPriority { host: None, path: pattern(high) }];
            class_of(&high, None, raw.as_bytes())
        };
        for raw in ["/admin/x", "//admin/x", "/%61dmin/x", "/admin%2fx", "/admin//x", "/%2Fadmin/x"]
        {
            assert_eq!(of("/admin", raw), Class::High, "{raw}");
        }
        for raw in ["/a/../b", "/a/%2e%2e/b", "/a%2f..%2fb", "/a/.%2E", "/a/..;x/b", "/a/./b"] {
            assert_eq!(of("/a", raw), Class::Normal, "{raw}");
        }
        for raw in ["/adm", "/adminx", "/%2e/admin", "/x/../admin", "/admi%6e%78"] {
            assert_eq!(of("/admin", raw), Class::Normal, "{raw}");
        }
        for raw in ["/admin\\x", "/admin/x\\..\\..\\b", "/admin/%5c..%5c..%5cb"] {
            assert_eq!(of("/admin", raw), Class::Normal, "{raw}");
        }
        for (high, raw) in
            [("/café", "/caf%C3%A9/x"), ("/caf%C3%A9", "/café"), ("/", "/.well-known")]
        {
            assert_eq!(of(high, raw), Class::High, "{high} {raw}");
        }
        assert_eq!(class_of(&[], None, b"/"), Class::Normal);
    }
}
