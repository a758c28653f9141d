//! Servers under test: how each is told to do the same work, started, looked at and stopped. One
//! worker for each processor of the server's side, no access log, connections kept open, nothing
//! read or written outside of a run's own directory. Nothing here makes load or measures.

mod apache;
mod h2o;
mod haproxy;
mod lighttpd;
mod nginx;
mod root;
mod upstream;
mod weir;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::allow_list::AllowList;
use crate::child::Group;
use crate::confine::Limits;
use crate::experiment::{Kind, ServerSpec};
use crate::ground::{Ground, Side};
use crate::programs;
use upstream::{SOCKET, Upstream};

pub use root::{file_of, path_of, write_root};

/// How long a server may take until it listens.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long a server that is told to stop may take.
const STOPPED_WITHIN: Duration = Duration::from_secs(5);

/// Connections open at once, as many as the papers' servers take.
const CONNS_MAX: u64 = 15_000;

/// Descriptors a server needs besides its connections: files, logs, standard streams.
const SPARE_FDS: u64 = 500;

/// What a shell says of a program that SIGTERM ended, 128 + 15; some say it themselves.
const TERMINATED_CODE: i32 = 143;

/// How a server is started.
pub struct Launch<'a> {
    /// Which server.
    pub spec: &'a ServerSpec,
    /// Where.
    pub ground: &'a dyn Ground,
    /// The binary of weir.
    pub weir: &'a Path,
    /// The document root. Apache, started as root, reads it as another user.
    pub root: &'a Path,
    /// An empty directory for its configuration, logs, pid file and statistics.
    pub dir: &'a Path,
    /// The port it listens on.
    pub port: u16,
    /// weir: whether system calls are counted and timed.
    pub calls: bool,
    /// weir, or the weir behind a proxy: whether `/.weir/burn/N` is there to burn processor time.
    pub bench_endpoints: bool,
    /// How many processors the server's side has.
    pub workers: usize,
    /// Control groups whose limits it is held to, it and what it is a proxy of.
    pub groups: &'a [PathBuf],
}

/// What a configuration is made from.
struct Site<'a> {
    spec: &'a ServerSpec,
    address: SocketAddr,
    root: &'a Path,
    dir: &'a Path,
    workers: usize,
    /// Descriptors a process may have.
    files_max: u64,
    /// Whether it is started as root, and so has to be told who to be.
    as_root: bool,
    /// The Unix socket of what it is a proxy of, as its working directory has it; none for a server
    /// that answers by itself.
    upstream: Option<&'static str>,
}

impl Site<'_> {
    /// Connections open at once, within the limit of descriptors.
    fn conns_max(&self) -> u64 {
        CONNS_MAX.min(self.files_max.saturating_sub(SPARE_FDS)).max(1)
    }
}

/// A program other than weir, by what distinguishes it from the others.
struct Peer {
    /// Its name, before its version.
    name: &'static str,
    /// What its binary may be called.
    binaries: &'static [&'static str],
    /// The flag that makes it say its version.
    version_flag: &'static str,
    /// Debian's package of it.
    package: &'static str,
    /// The text of its configuration.
    configuration: fn(&Site<'_>) -> Result<String, String>,
    /// Its arguments, given the path of its configuration.
    arguments: fn(&Site<'_>, &str) -> Vec<String>,
    /// The directives that an experiment may set.
    allowed: AllowList,
}

/// The options that an experiment may pass to a server.
pub(crate) fn allow_list(kind: Kind) -> &'static AllowList {
    peer(kind).map_or(&weir::ALLOWED, |peer| &peer.allowed)
}

/// Those of all servers.
pub(crate) fn allow_lists() -> impl Iterator<Item = AllowList> {
    Kind::ALL.into_iter().map(|kind| *allow_list(kind))
}

fn peer(kind: Kind) -> Option<&'static Peer> {
    match kind {
        Kind::Weir => None,
        Kind::Nginx => Some(&nginx::PEER),
        Kind::H2o => Some(&h2o::PEER),
        Kind::Lighttpd => Some(&lighttpd::PEER),
        Kind::Haproxy => Some(&haproxy::PEER),
        Kind::Apache => Some(&apache::PEER),
    }
}

impl Peer {
    fn find(&self) -> Result<PathBuf, String> {
        self.binaries.iter().find_map(|binary| programs::find(binary)).ok_or_else(|| {
            format!("{} is not installed: Debian's package {} has it", self.name, self.package)
        })
    }
}

/// Name and version of a program, such as `nginx 1.22.1`.
///
/// # Errors
/// A sentence: it is not installed, and the Debian package that has it.
pub fn version(kind: Kind, weir: &Path) -> Result<String, String> {
    let (name, program, flag) = match peer(kind) {
        None => ("weir", weir.to_owned(), "--version"),
        Some(peer) => (peer.name, peer.find()?, peer.version_flag),
    };
    let version = programs::version_of(&program, &[flag]);
    let version = version.ok_or_else(|| format!("{name} does not say its version"))?;
    Ok(format!("{name} {version}"))
}

/// Refuses what a server cannot be asked for.
///
/// # Errors
/// A sentence about what does not go together.
pub fn check(spec: &ServerSpec) -> Result<(), String> {
    let id = &spec.id;
    match spec.kind {
        Kind::Weir if spec.proxy_burn_us.is_some() => {
            Err(format!("server {id}: weir is no proxy, so no proxy-burn-us; it has burn-us"))
        }
        Kind::Weir if spec.gzip => Err(format!(
            "server {id}: weir does not compress on the fly; burn-us burns processor time instead"
        )),
        Kind::Weir => Ok(()),
        _ if spec.burn_us.is_some() => Err(format!(
            "server {id}: burn-us is for weir; gzip makes the other servers work instead"
        )),
        Kind::H2o if spec.backlog.is_some() => {
            Err(format!("server {id}: h2o has no setting for its backlog"))
        }
        Kind::Lighttpd | Kind::Apache if spec.proxy_burn_us.is_some() => {
            Err(format!("server {id}: proxy-burn-us is for nginx, h2o and haproxy"))
        }
        _ => Ok(()),
    }
}

/// Starts a server, and what it is a proxy of, and returns when its port listens. Nothing connects
/// to it.
///
/// # Errors
/// A sentence: what the specification asks for cannot be had, the program is not installed, the
/// port is taken, or the program ended or did not listen within 10 s, with its last words.
pub fn start(launch: &Launch<'_>) -> Result<Running, String> {
    check(launch.spec)?;
    // Programs go elsewhere, and take a path in a configuration from there.
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let (root, dir) = (absolute(launch.root)?, absolute(launch.dir)?);
    let launch = &Launch { root: &root, dir: &dir, ..*launch };
    let address = SocketAddr::new(launch.ground.server_address(), launch.port);
    if listens(launch.ground, address)? {
        return Err(format!("something listens on port {} already", launch.port));
    }
    let site = Site {
        spec: launch.spec,
        address,
        root: launch.root,
        dir: launch.dir,
        workers: launch.workers.max(1),
        files_max: weir_sys::process::raise_open_files(),
        as_root: rustix::process::geteuid().is_root(),
        upstream: upstream::is_wanted(launch.spec).then_some(SOCKET),
    };
    let recipe = recipe(launch, &site)?;
    let upstream = site.upstream.map(|_| Upstream::start(launch)).transpose()?;
    let program = recipe.program.as_os_str();
    let mut command = launch.ground.command_in(Side::Server, program, launch.groups);
    command.args(&recipe.arguments);
    if upstream.is_some() {
        command.current_dir(launch.dir);
    }
    let words = std::iter::once(recipe.name).chain(recipe.arguments.iter().map(String::as_str));
    let group = Group::start(launch.ground, command, launch.dir, "server")?;
    let config = recipe.config.map(|text| anonymous(&text, launch));
    let running = Running {
        group,
        kind: launch.spec.kind,
        command: anonymous(&words.collect::<Vec<_>>().join(" "), launch) + &held_to(launch.spec),
        config: config.map(|text| with_upstream(text, upstream.as_ref())),
        stats: launch.dir.join(weir::STATS),
        upstream,
    };
    running.wait_until_ready(launch.ground, address)?;
    Ok(running)
}

/// How a program is run; its configuration has been written.
struct Recipe {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    config: Option<String>,
}

fn recipe(launch: &Launch<'_>, site: &Site<'_>) -> Result<Recipe, String> {
    let Some(peer) = peer(launch.spec.kind) else {
        let arguments = weir::arguments(site, launch.calls, launch.bench_endpoints);
        let program = launch.weir.to_owned();
        return Ok(Recipe { name: "weir", program, arguments, config: None });
    };
    let program = peer.find()?;
    let text = (peer.configuration)(site)?;
    let path = launch.dir.join("server.conf");
    fs::write(&path, &text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let arguments = (peer.arguments)(site, &path.display().to_string());
    Ok(Recipe { name: peer.name, program, arguments, config: Some(text) })
}

/// The limits of a server, behind its command.
fn held_to(spec: &ServerSpec) -> String {
    Limits::of(spec).map_or_else(String::new, |limits| format!("  # {}", limits.words()))
}

/// A configuration, with the command of what stands behind it at its head.
fn with_upstream(config: String, upstream: Option<&Upstream>) -> String {
    match upstream {
        Some(upstream) => format!("# {SOCKET}: {}\n{config}", upstream.command),
        None => config,
    }
}

/// A text without the paths of this run. The longer path goes first: one may lie in the other.
fn anonymous(text: &str, launch: &Launch<'_>) -> String {
    let mut paths = [(launch.root, "ROOT"), (launch.dir, "DIR")]
        .map(|(path, name)| (path.display().to_string(), name));
    paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    paths.iter().fold(text.to_owned(), |text, (path, name)| text.replace(path, name))
}

/// Whether something listens at an address, as the kernel tells (proc_pid_net(5), `tcp`).
fn listens(ground: &dyn Ground, address: SocketAddr) -> Result<bool, String> {
    let table = if address.is_ipv4() { "tcp" } else { "tcp6" };
    let path = ground.proc_net(Side::Server).join(table);
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(has_listener(&text, address))
}

/// Whether the table has a socket in state LISTEN (0A) at the address, or at all of them.
fn has_listener(table: &str, address: SocketAddr) -> bool {
    let (own, any) = match address.ip() {
        // The kernel prints the four bytes as one number of the machine's order.
        IpAddr::V4(ip) => (format!("{:08X}", u32::from_ne_bytes(ip.octets())), "0".repeat(8)),
        IpAddr::V6(ip) => {
            let octets = ip.octets();
            let words = octets.chunks(4).map(|four| {
                let four = <[u8; 4]>::try_from(four).unwrap_or_default();
                format!("{:08X}", u32::from_ne_bytes(four))
            });
            (words.collect(), "0".repeat(32))
        }
    };
    let port = format!("{:04X}", address.port());
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().and_then(|local| local.split_once(':'));
        let listening = fields.nth(1) == Some("0A");
        listening && local.is_some_and(|(ip, at)| at == port && (ip == own || ip == any))
    })
}

/// A running server. Dropping it kills all its processes.
pub struct Running {
    group: Group,
    kind: Kind,
    command: String,
    config: Option<String>,
    stats: PathBuf,
    /// What it is a proxy of: stopped after it.
    upstream: Option<Upstream>,
}

/// How a server ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Whether it ended when it was told to, and well; else a sentence with its last words.
    pub how: Result<(), String>,
    /// weir: its statistics from its start to its end.
    pub stats: Option<Value>,
}

impl Running {
    fn wait_until_ready(&self, ground: &dyn Ground, address: SocketAddr) -> Result<(), String> {
        // A weir with several loops binds them one after the other; its ready line comes last.
        let said = || self.kind != Kind::Weir || self.group.said().contains(weir::READY);
        until_ready(&self.group, "the server", || Ok(listens(ground, address)? && said()))
    }

    /// The ids of the processes that the others come from: its first one, and that of what it is a
    /// proxy of.
    pub fn pids(&self) -> Vec<u32> {
        let upstream = self.upstream.iter().map(|upstream| upstream.group.pid());
        std::iter::once(self.group.pid()).chain(upstream).collect()
    }

    /// Its command, without the paths of this run.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Its configuration, without the paths of this run.
    pub fn config(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// Whether its first process runs, and that of what it is a proxy of.
    pub fn alive(&mut self) -> bool {
        !self.group.ended() && self.upstream.as_ref().is_none_or(|one| !one.group.ended())
    }

    /// weir: its statistics so far. None of the others has any.
    ///
    /// # Errors
    /// A sentence: it wrote none within two seconds.
    pub fn snapshot(&mut self) -> Result<Option<Value>, String> {
        if self.kind != Kind::Weir {
            return Ok(None);
        }
        weir::snapshot(&self.group, &self.stats).map(Some)
    }

    /// Tells it to stop (SIGTERM), kills it after five seconds, and says how it ended.
    pub fn stop(self) -> Ended {
        let Self { group, kind, stats, upstream, .. } = self;
        if !group.ended() && kind == Kind::Weir {
            // What a snapshot left is not the end's.
            let _ = fs::remove_file(&stats);
        }
        let how = stopped(group, kind, "the server");
        let behind = upstream.map_or(Ok(()), Upstream::stop);
        let stats = (kind == Kind::Weir).then(|| weir::read(&stats)).flatten();
        Ended { how: how.and(behind), stats }
    }
}

/// Waits until a program that was just started is ready.
///
/// # Errors
/// A sentence with its last words: it ended, or took more than 10 s.
fn until_ready(
    group: &Group,
    who: &str,
    is_ready: impl Fn() -> Result<bool, String>,
) -> Result<(), String> {
    let deadline = Instant::now() + READY_WITHIN;
    while !is_ready()? {
        if group.ended() {
            return Err(format!("{who} ended before it listened: {}", group.last_words()));
        }
        if Instant::now() >= deadline {
            return Err(format!("{who} did not listen within 10 s: {}", group.last_words()));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Tells a program to stop, ends what is left of it, and says how it went.
fn stopped(group: Group, kind: Kind, who: &str) -> Result<(), String> {
    let by_itself = group.ended();
    let in_time = by_itself || told_to_stop(&group, kind);
    let words = group.last_words();
    match group.end() {
        Err(why) => Err(format!("{who}: {why}")),
        Ok(status) if by_itself => Err(format!("{who} ended by itself, {status}: {words}")),
        Ok(_) if !in_time => {
            Err(format!("{who} was killed, 5 s after it was told to stop: {words}"))
        }
        Ok(status) if ended_well(status) => Ok(()),
        Ok(status) => Err(format!("{who} ended badly, {status}: {words}")),
    }
}

/// Signals until it ends; whether it did in time.
fn told_to_stop(group: &Group, kind: Kind) -> bool {
    let deadline = Instant::now() + STOPPED_WITHIN;
    group.signal(Signal::TERM);
    while !group.ended_within(weir::AGAIN_AFTER) {
        if Instant::now() >= deadline {
            return false;
        }
        if kind == Kind::Weir {
            group.signal(Signal::TERM);
        }
    }
    true
}

/// A program may leave SIGTERM to the kernel, or say what a shell would say of it.
fn ended_well(status: ExitStatus) -> bool {
    let terminated = status.signal() == Some(Signal::TERM.as_raw());
    status.success() || terminated || status.code() == Some(TERMINATED_CODE)
}

/// The options of a specification, a line each.
fn lines(options: &[String], end: &str) -> String {
    options.iter().map(|option| format!("{option}{end}\n")).collect()
}

#[cfg(test)]
mod tests;
