//! Servers under test: configuring each for the same work, starting, observing and stopping it. One
//! worker per processor of the server's side, no access log, connections kept open, nothing read or
//! written outside of a run's own directory.

mod apache;
mod bare;
mod envoy;
mod h2o;
mod haproxy;
mod identity;
mod launch;
mod lighttpd;
mod nginx;
mod program;
mod root;
mod sink;
mod upstream;
mod weir;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::allow_list::AllowList;
use crate::cgroup::Limits;
use crate::environment::{Environment, Side};
use crate::experiment::{Kind, ServerSpec};
use crate::process_group::ProcessGroup;
use crate::programs;
use identity::IdentityFiles;
use launch::{stopped, until_ready, without_paths};
use program::{ServerProgram, Site};
use upstream::Upstreams;

pub use launch::Launch;
pub use root::write_root;
pub use upstream::application_version;

/// Returns the options that an experiment may pass to a server.
pub(crate) fn allow_list(kind: Kind) -> &'static AllowList {
    match server_program(kind) {
        Some(server_program) => &server_program.allowed,
        None if kind == Kind::Bare => &bare::ALLOWED,
        None if kind == Kind::Sink => &sink::ALLOWED,
        None => &weir::ALLOWED,
    }
}

/// Returns the allow lists of all servers.
pub(crate) fn allow_lists() -> impl Iterator<Item = AllowList> {
    Kind::ALL.into_iter().map(|kind| *allow_list(kind))
}

fn server_program(kind: Kind) -> Option<&'static ServerProgram> {
    match kind {
        Kind::Weir | Kind::Bare | Kind::Sink => None,
        Kind::Nginx => Some(&nginx::PROGRAM),
        Kind::H2o => Some(&h2o::PROGRAM),
        Kind::Lighttpd => Some(&lighttpd::PROGRAM),
        Kind::Haproxy => Some(&haproxy::PROGRAM),
        Kind::Apache => Some(&apache::PROGRAM),
        Kind::Envoy => Some(&envoy::PROGRAM),
    }
}

/// Returns the name and version of a program, such as `nginx 1.22.1`.
///
/// # Errors
/// Returns a sentence if the program reports no version or is not installed, with the Debian
/// package that provides it.
pub fn version(kind: Kind, weir: &Path) -> Result<String, String> {
    let name = allow_list(kind).program;
    let (program, flag) = match server_program(kind) {
        None if [Kind::Bare, Kind::Sink].contains(&kind) => {
            let found = if kind == Kind::Bare { bare::find(weir) } else { sink::find(weir) };
            return found.map(|_| format!("{name} of this source tree"));
        }
        None => (weir.to_owned(), "--version"),
        Some(server_program) => (server_program.find()?, server_program.version_flag),
    };
    let version = programs::version_of(&program, &[flag]);
    let version = version.ok_or_else(|| format!("{name} does not say its version"))?;
    Ok(format!("{name} {version}"))
}

/// Returns why a server cannot do what an experiment asks of it with what is installed here, as a
/// sentence with the Debian package that is missing; `None` if nothing speaks against it.
pub fn cannot(spec: &ServerSpec) -> Option<String> {
    (spec.kind() == Kind::Lighttpd).then(|| lighttpd::cannot(spec)).flatten()
}

/// Returns whether lighttpd's compression module is installed, which is a package of its own.
pub(crate) fn lighttpd_can_compress() -> bool {
    lighttpd::can_compress()
}

/// Returns the command line by which a weir is told its settings and options in an experiment, from
/// its subcommand on, without what differs from run to run; `None` for the other programs.
pub fn command_line(spec: &ServerSpec) -> Option<Vec<String>> {
    spec.weir()?;
    let task = if spec.is_weir_proxy() { ["proxy", "unix:upstream.sock"] } else { ["serve", "."] };
    let task = task.map(str::to_owned).into_iter();
    Some(task.chain(weir::settings(spec)).chain(spec.options.iter().cloned()).collect())
}

/// Returns the address on which a server listens.
///
/// # Errors
/// Returns a sentence if it has a TCP of its own, and the testbed no link.
pub(crate) fn address(environment: &dyn Environment, kind: Kind) -> Result<IpAddr, String> {
    match kind {
        Kind::Sink => Ok(sink::link(environment)?.server_address),
        _ => Ok(environment.server_address()),
    }
}

/// Starts a server, and its upstreams if it is a proxy, and returns when its port listens. Nothing
/// connects to it.
///
/// # Errors
/// Returns a sentence if the program is not
/// installed, the port is taken, or the program ended or did not listen within 10 s, with its last
/// output.
pub fn start(launch: &Launch<'_>) -> Result<RunningServer, String> {
    // Programs change their directory, and resolve the paths of a configuration from there.
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let (root, dir) = (absolute(launch.root)?, absolute(launch.dir)?);
    let launch = &Launch { root: &root, dir: &dir, ..*launch };
    let ip = address(launch.environment, launch.spec.kind())?;
    let address = SocketAddr::new(ip, launch.port);
    if listens(launch.environment, address)? {
        return Err(format!("something listens on port {} already", launch.port));
    }
    let tls = launch.spec.tls().map(|key| IdentityFiles::make(key, address, launch.dir));
    let tls = tls.transpose()?;
    let site = Site {
        spec: launch.spec,
        address,
        root: launch.root,
        dir: launch.dir,
        workers: launch.workers.max(1),
        files_max: weir_sys::process::raise_open_files(),
        as_root: rustix::process::geteuid().is_root(),
        upstreams: upstream::sockets(launch.spec, launch.upstream),
        serves_files: launch.upstream.is_some() && launch.serves_files,
        tls,
    };
    let invocation = invocation(launch, &site)?;
    let upstreams = Upstreams::start(launch, &site.upstreams)?;
    let program = invocation.program.as_os_str();
    let mut command = launch.environment.command_in(Side::Server, program, launch.groups);
    command.args(&invocation.arguments);
    if !site.upstreams.is_empty() {
        command.current_dir(launch.dir);
    }
    let name = allow_list(launch.spec.kind()).program;
    let words = std::iter::once(name).chain(invocation.arguments.iter().map(String::as_str));
    let group = ProcessGroup::start(launch.environment, command, launch.dir, "server")?;
    let config = invocation.config.map(|text| without_paths(&text, launch));
    let running = RunningServer {
        group,
        kind: launch.spec.kind(),
        command: without_paths(&words.collect::<Vec<_>>().join(" "), launch)
            + &limits_comment(launch.spec),
        config: config.map(|text| upstreams.describe() + &text),
        stats: launch.dir.join(weir::STATS),
        upstreams,
    };
    running.wait_until_ready(launch.environment, address)?;
    Ok(running)
}

/// The invocation of a program whose configuration has been written.
struct Invocation {
    program: PathBuf,
    arguments: Vec<String>,
    config: Option<String>,
}

fn invocation(launch: &Launch<'_>, site: &Site<'_>) -> Result<Invocation, String> {
    if launch.spec.kind() == Kind::Bare {
        let (program, arguments) = (bare::find(launch.weir)?, bare::arguments(site));
        return Ok(Invocation { program, arguments, config: None });
    }
    if launch.spec.kind() == Kind::Sink {
        let arguments = sink::arguments(launch.environment)?;
        return Ok(Invocation { program: sink::find(launch.weir)?, arguments, config: None });
    }
    let Some(server_program) = server_program(launch.spec.kind()) else {
        let arguments = weir::arguments(site, launch.calls, launch.bench_endpoints);
        return Ok(Invocation { program: launch.weir.to_owned(), arguments, config: None });
    };
    let program = server_program.find()?;
    let text = (server_program.configuration)(site)?;
    let path = launch.dir.join(server_program.config_file);
    fs::write(&path, &text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let (dir, config) = (site.dir.display().to_string(), path.display().to_string());
    let workers = site.workers.to_string();
    let values = [("{dir}", &dir), ("{config}", &config), ("{workers}", &workers)];
    let filled = |word: &&str| {
        values.iter().fold((*word).to_owned(), |word, (name, value)| word.replace(name, value))
    };
    let arguments = server_program.arguments.iter().map(filled).collect();
    Ok(Invocation { program, arguments, config: Some(text) })
}

/// Formats the limits of a server as a comment, to follow its command.
fn limits_comment(spec: &ServerSpec) -> String {
    Limits::of(spec).map_or_else(String::new, |limits| format!("  # {}", limits.describe()))
}

/// Returns whether a socket listens at an address, according to the kernel (proc_pid_net(5),
/// `tcp`).
fn listens(environment: &dyn Environment, address: SocketAddr) -> Result<bool, String> {
    let table = if address.is_ipv4() { "tcp" } else { "tcp6" };
    let path = environment.proc_net(Side::Server).join(table);
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(has_listener(&text, address))
}

/// Returns whether the table has a socket in state LISTEN (0A) at the address or the wildcard
/// address.
fn has_listener(table: &str, address: SocketAddr) -> bool {
    let (own, any) = match address.ip() {
        // The kernel prints the four bytes as one number in the machine's byte order.
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
pub struct RunningServer {
    group: ProcessGroup,
    kind: Kind,
    command: String,
    config: Option<String>,
    stats: PathBuf,
    /// Its upstreams, if it is a proxy; stopped after it.
    upstreams: Upstreams,
}

/// The outcome of stopping a server.
#[derive(Clone, Debug)]
pub struct StopResult {
    /// `Ok` if the server ended when told to, and well; else a sentence with its last output.
    pub how: Result<(), String>,
    /// weir: statistics from its start to its end.
    pub stats: Option<Value>,
}

impl RunningServer {
    fn wait_until_ready(
        &self,
        environment: &dyn Environment,
        address: SocketAddr,
    ) -> Result<(), String> {
        // A weir with several loops binds them one after the other; it prints its ready line last.
        let says = |ready: &str| self.group.stdout().contains(ready);
        until_ready(&self.group, "the server", || match self.kind {
            // The kernel knows of no socket that listens.
            Kind::Sink => Ok(says(sink::READY)),
            Kind::Weir => Ok(listens(environment, address)? && says(weir::READY)),
            _ => listens(environment, address),
        })
    }

    /// Returns the ids of the processes that all others descend from: the server's first process
    /// and those of its upstreams, unless they are apart.
    pub fn pids(&self) -> Vec<u32> {
        std::iter::once(self.group.pid()).chain(self.upstreams.pids()).collect()
    }

    /// Returns its command, without the paths of this run.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Returns its configuration, without the paths of this run.
    pub fn config(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// Returns its upstreams.
    pub(crate) fn upstreams(&mut self) -> &mut Upstreams {
        &mut self.upstreams
    }

    /// Returns whether its first process runs, and those of its upstreams.
    pub fn alive(&mut self) -> bool {
        !self.group.ended() && self.upstreams.alive()
    }

    /// Returns the statistics of weir so far; `None` for the other servers.
    ///
    /// # Errors
    /// Returns a sentence if weir has ended or wrote no statistics within 2.5 s.
    pub fn snapshot(&mut self) -> Result<Option<Value>, String> {
        if self.kind != Kind::Weir {
            return Ok(None);
        }
        match weir::published(self.group.pid()) {
            Some(published) => Ok(Some(published)),
            None => weir::snapshot(&self.group, &self.stats).map(Some),
        }
    }

    /// Sends SIGTERM, kills the server after five seconds, and returns the outcome.
    pub fn stop(self) -> StopResult {
        let Self { group, kind, stats, upstreams, .. } = self;
        if !group.ended() && kind == Kind::Weir {
            // The file of a snapshot must not be taken for that of the end.
            let _ = fs::remove_file(&stats);
        }
        let how = stopped(group, kind, "the server");
        let behind = upstreams.stop();
        let stats = (kind == Kind::Weir).then(|| weir::read(&stats)).flatten();
        StopResult { how: how.and(behind), stats }
    }
}

#[cfg(test)]
mod tests;
