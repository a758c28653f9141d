//! Upstreams of a server that is a proxy, on Unix sockets in the run's directory and on the
//! server's processors. They are part of the server under test, but for one that its settings put
//! apart, on the client's processors.
//!
//! Where a server's settings ask for one, it is a `weir serve` with the same document root. Where a
//! sweep does, it is an application, of which there may be several.

mod application;

use std::fs;
use std::path::PathBuf;

use crate::cgroup::{ControlGroup, Limits};
use crate::environment::{Environment, Side};
use crate::experiment::{Kind, ServerSpec, UpstreamKind, UpstreamSpec};
use crate::process_group::ProcessGroup;
use crate::programs;

use super::launch::{Launch, stopped, until_ready, without_paths};
use super::weir;

/// Returns the paths of the upstreams' sockets, relative to the run's directory, in which they and
/// the proxy are started: the path of a Unix socket must be short (unix(7)), and that of the
/// directory may not be. There are none for a server that is no proxy: one is wanted if the sweep
/// has an application, if processor time is to be burnt behind it, or if it compresses only proxied
/// replies, as haproxy does; a `weir proxy` always has one.
pub(super) fn sockets(spec: &ServerSpec, application: Option<&UpstreamSpec>) -> Vec<String> {
    let is_wanted = spec.is_weir_proxy()
        || spec.proxy_burn_us().is_some()
        || (spec.kind() == Kind::Haproxy && spec.gzip());
    let count = application.map_or(u32::from(is_wanted), |application| *application.servers);
    (0..count).map(|number| format!("upstream-{number}.sock")).collect()
}

/// Returns the name and version of an application's program; `None` for weir, whose version is
/// known.
///
/// # Errors
/// Returns a sentence with the package if it is not installed.
pub fn application_version(kind: UpstreamKind) -> Result<Option<String>, String> {
    let name = kind.name();
    if kind == UpstreamKind::Weir {
        return Ok(None);
    }
    let program = programs::find(name)
        .ok_or_else(|| format!("{name} is not installed: Debian's package {name} has it"))?;
    let version = programs::version_of(&program, &["--version"]);
    Ok(Some(format!("{name} {}", version.unwrap_or_default())))
}

/// The running upstreams of a server. Dropping them kills their processes.
pub(crate) struct Upstreams {
    all: Vec<Upstream>,
    /// The group that limits each application, in the order of `all`; removed after them.
    limits: Vec<ControlGroup>,
}

/// An upstream.
struct Upstream {
    kind: UpstreamKind,
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    socket: String,
    workers: u32,
    dir: PathBuf,
    groups: Vec<PathBuf>,
    /// Side whose processors it runs on: on the client's it is no part of the server.
    side: Side,
    /// Its processes; `None` after its death.
    group: Option<ProcessGroup>,
    /// Its command, without the paths of this run.
    command: String,
}

impl Upstreams {
    /// Starts the upstreams of a server, and returns when all listen.
    ///
    /// # Errors
    /// Returns a sentence with its last output if one did not start, or if its limit cannot be had.
    pub(super) fn start(launch: &Launch<'_>, sockets: &[String]) -> Result<Self, String> {
        let mut started = Self { all: Vec::new(), limits: Vec::new() };
        for socket in sockets {
            let mut groups = launch.groups.to_vec();
            let cpu_percent = launch.upstream.and_then(|application| application.cpu_percent);
            if let Some(percent) = cpu_percent {
                let limits = Limits { cpu_percent: Some(f64::from(*percent)), ..Limits::default() };
                let group = ControlGroup::make(&limits, launch.dir)?;
                groups.extend_from_slice(group.folders());
                started.limits.push(group);
            }
            let mut upstream = Upstream::new(launch, socket, groups)?;
            upstream.start(launch.environment)?;
            started.all.push(upstream);
        }
        Ok(started)
    }

    /// Formats their commands as comments.
    pub(super) fn describe(&self) -> String {
        self.all.iter().map(|one| format!("# {}: {}\n", one.socket, one.command)).collect()
    }

    /// Returns the ids of the first processes of those that are part of the server.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        let own = self.all.iter().filter(|one| one.side == Side::Server);
        own.filter_map(|one| one.group.as_ref()).map(ProcessGroup::pid)
    }

    /// Returns whether all run.
    pub(super) fn alive(&self) -> bool {
        self.all.iter().all(|one| one.group.as_ref().is_some_and(|group| !group.ended()))
    }

    /// Changes the last one's limit on processor time.
    ///
    /// # Errors
    /// Returns a sentence if the kernel refuses it.
    pub(crate) fn set_cpu_percent(&self, percent: f64) -> Result<(), String> {
        self.limits.last().map_or(Ok(()), |group| group.set_cpu_percent(percent))
    }

    /// Kills the last one, without a chance to answer.
    ///
    /// # Errors
    /// Returns a sentence if some of its processes do not go.
    pub(crate) fn kill_last(&mut self) -> Result<(), String> {
        let group = self.all.last_mut().and_then(|last| last.group.take());
        group.map_or(Ok(()), |group| group.end().map(drop))
    }

    /// Sends the last one a signal, and waits until it has ended.
    #[cfg(test)]
    pub(super) fn signal_last(&self, signal: rustix::process::Signal) {
        let group = self.all.last().and_then(|last| last.group.as_ref()).unwrap();
        group.signal(signal);
        assert!(group.ended_within(super::launch::READY_WITHIN));
    }

    /// Starts the last one again after its death.
    ///
    /// # Errors
    /// Returns a sentence with its last output if it does not start.
    pub(crate) fn start_last(&mut self, environment: &dyn Environment) -> Result<(), String> {
        self.all.last_mut().map_or(Ok(()), |last| last.start(environment))
    }

    /// Stops them; returns a sentence if weir is among them and did not end well. The applications
    /// of others are killed: some wait for clients that have gone.
    pub(super) fn stop(self) -> Result<(), String> {
        let groups = self.all.into_iter().filter_map(|one| Some((one.kind, one.group?)));
        let mut outcome = Ok(());
        for (kind, group) in groups {
            let ended = match kind {
                UpstreamKind::Weir => stopped(group, Kind::Weir, "the upstream"),
                _ => group.end().map(drop),
            };
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl Upstream {
    fn new(launch: &Launch<'_>, socket: &str, groups: Vec<PathBuf>) -> Result<Self, String> {
        let kind = launch.upstream.map_or(UpstreamKind::Weir, |application| application.kind);
        let workers = launch.upstream.map_or(1, |application| *application.workers);
        let (program, arguments) = match launch.upstream {
            None => (launch.weir.to_owned(), weir_arguments(launch, socket)),
            Some(application) => application::command(application, launch, socket)?,
        };
        let command = without_paths(&format!("{} {}", kind.name(), arguments.join(" ")), launch);
        let side = side(launch);
        let groups = if side == Side::Server { groups } else { Vec::new() };
        Ok(Self {
            kind,
            name: socket.trim_end_matches(".sock").to_owned(),
            program,
            arguments,
            socket: socket.to_owned(),
            workers,
            dir: launch.dir.to_owned(),
            groups,
            side,
            group: None,
            command,
        })
    }

    /// Starts it, and returns when all its workers are ready.
    fn start(&mut self, environment: &dyn Environment) -> Result<(), String> {
        // One that was killed leaves its socket behind.
        let _ = fs::remove_file(self.dir.join(&self.socket));
        let program = self.program.as_os_str();
        let mut command = environment.command_in(self.side, program, &self.groups);
        command.args(&self.arguments).current_dir(&self.dir);
        let group = ProcessGroup::start(environment, command, &self.dir, &self.name)?;
        let socket = self.dir.join(&self.socket);
        until_ready(&group, "the upstream", || {
            let said = group.stdout();
            Ok(match self.kind {
                UpstreamKind::Weir => said.contains(weir::READY),
                _ => {
                    socket.exists()
                        && said.matches(application::READY).count() >= self.workers as usize
                }
            })
        })?;
        self.group = Some(group);
        Ok(())
    }
}

/// Returns the side whose processors the upstreams run on.
fn side(launch: &Launch<'_>) -> Side {
    let is_apart = launch.upstream.is_none() && launch.spec.is_upstream_apart();
    if is_apart { Side::Client } else { Side::Server }
}

/// Returns the arguments of an upstream that a server's settings ask for. The preset, one of the
/// papers', accepts all waiting connections and answers at once, so that only the proxy refuses or
/// drops any. The proxy may keep its connections open as long as it likes.
fn weir_arguments(launch: &Launch<'_>, socket: &str) -> Vec<String> {
    let mut arguments = vec!["serve".to_owned(), launch.root.display().to_string()];
    arguments.push(format!("--listen=unix:{socket}"));
    let workers = match side(launch) {
        Side::Server => launch.workers,
        Side::Client => launch.environment.cpus(Side::Client).len(),
    };
    arguments.push(format!("--workers={}", workers.max(1)));
    let fixed = ["--preset=eager", "--caching=on", "--idle-timeout=1h"];
    arguments.extend(fixed.map(str::to_owned));
    if launch.bench_endpoints {
        arguments.push("--bench-endpoints=on".to_owned());
    }
    arguments
}
