//! Confinement of each thread and process of a server to the files and ports that its
//! configuration names, and to the calls of its task ([`weir_sys::sandbox`]).
//!
//! The main thread is not confined: it reads configurations and certificates anew, and starts
//! successors. It faces no client.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use weir_dispatch::readiness::MechanismName;
use weir_sys::privileged;
use weir_sys::sandbox::{Needs, Reach, Sandbox, Support};

use crate::architecture::ArchitectureName;
use crate::config::{Config, Error, LogTarget, SandboxMode, UpstreamAddress};

pub(crate) use weir_sys::sandbox::Task;

/// Directory of the threads of a process, which are counted and asked for their switches there
/// (proc_pid_task(5)).
const OWN_THREADS: &str = "/proc/self/task";

/// Version of Landlock that confines connections by their port (Linux 6.7).
const HAS_PORTS: u32 = 4;

/// Mechanisms that use a ring of io_uring.
const OF_RINGS: [MechanismName; 3] =
    [MechanismName::UringPoll, MechanismName::DevPoll, MechanismName::EpollCtlv];

/// The confinement of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confinement(Option<Arc<Parts>>);

#[derive(Debug)]
struct Parts {
    serve: Sandbox,
    log: Sandbox,
    check: Sandbox,
    observe: Sandbox,
}

impl Confinement {
    /// Prepares what the configuration asks for, as far as this kernel has it. Must be called in
    /// the process that the confined threads are of.
    ///
    /// # Errors
    /// A message: a part is missing and must not be, or it cannot be prepared.
    pub(crate) fn prepare(config: &Config) -> Result<Self, Error> {
        if config.sandbox == SandboxMode::Off {
            return Ok(Self(None));
        }
        let support = Support::find();
        if config.sandbox == SandboxMode::On
            && let Some(lack) = lack(support)
        {
            return Err(Error(format!("--sandbox on: {lack}")));
        }
        let (serving, needs) = (serving(config), needs(config));
        let logging = logging(config);
        let ports = Reach { ports: serving.ports.clone(), ..Reach::default() };
        let observing = Reach { read: vec!["/proc".into()], ..Reach::default() };
        let of = |task, needs, reach: &Reach| {
            Sandbox::new(task, needs, reach, support).map_err(|error| unprepared(&error))
        };
        let none = Needs::default();
        let of_log = Needs { asks: needs.asks, tells_loggers: tells_loggers(config), ..none };
        let of_check = Needs { forwards_to_unix: needs.forwards_to_unix, ..none };
        // Landlock would hide the children, which are confined by other rules, from who counts
        // their descriptors.
        let landlock = if needs.forks { 0 } else { support.landlock };
        let watching = Support { landlock, ..support };
        let observe = Sandbox::new(Task::Observe, none, &observing, watching)
            .map_err(|error| unprepared(&error))?;
        Ok(Self(Some(Arc::new(Parts {
            serve: of(Task::Serve, needs, &serving)?,
            log: of(Task::Log, of_log, &logging)?,
            check: of(Task::Check, of_check, &ports)?,
            observe,
        }))))
    }

    /// Confines the calling thread to its task, and all that it starts from now on.
    ///
    /// # Errors
    /// A message: the kernel refuses.
    pub(crate) fn enter(&self, task: Task) -> Result<(), Error> {
        let Some(parts) = &self.0 else { return Ok(()) };
        let sandbox = match task {
            Task::Serve => &parts.serve,
            Task::Log => &parts.log,
            Task::Check => &parts.check,
            // None of a server's threads has privileges.
            Task::Observe | Task::Privileged => &parts.observe,
        };
        sandbox.enter().map_err(|error| failed(&error))
    }

    /// Starts a thread, and returns once it is confined to its task; the inner result is that of
    /// starting it.
    ///
    /// # Errors
    /// As of [`Confinement::enter`]; then nothing runs.
    pub(crate) fn spawn(
        &self,
        task: Task,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<io::Result<()>, Error> {
        let confinement = self.clone();
        let (started, outcome) = channel();
        let spawned = thread::Builder::new().name(name.into()).spawn(move || {
            let entered = confinement.enter(task);
            let is_confined = entered.is_ok();
            // The receiver waits for the result.
            let _ = started.send(entered);
            if is_confined {
                run();
            }
        });
        match spawned {
            Ok(_) => outcome.recv().unwrap_or(Ok(())).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Takes from the calling thread, which serves, what it needed at its start: opening rings, and
    /// forking.
    ///
    /// # Errors
    /// A message: the kernel refuses.
    pub(crate) fn seal(&self) -> Result<(), Error> {
        match &self.0 {
            Some(parts) => parts.serve.seal().map_err(|error| failed(&error)),
            None => Ok(()),
        }
    }
}

fn unprepared(error: &io::Error) -> Error {
    Error(format!("cannot prepare the sandbox: {error} (--sandbox off does without)"))
}

fn failed(error: &io::Error) -> Error {
    Error(format!("cannot enter the sandbox: {error} (--sandbox off does without)"))
}

/// Returns what this kernel lacks of the confinement, as a sentence; `None` if it lacks nothing
/// that matters.
pub(crate) fn lack(support: Support) -> Option<&'static str> {
    match (support.landlock > 0, support.seccomp) {
        (true, true) => None,
        (false, true) => Some("files are not confined: this kernel has no Landlock, or forbids it"),
        (true, false) => {
            Some("system calls are not confined: this kernel has no seccomp, or forbids it")
        }
        (false, false) => Some("nothing is confined: this kernel has neither Landlock nor seccomp"),
    }
}

/// Returns a sentence on what is not confined though it should be; `None` if everything is.
pub fn gap(config: &Config) -> Option<String> {
    if config.sandbox == SandboxMode::Off {
        return None;
    }
    let support = Support::find();
    let has_upstreams = !ports(config).is_empty();
    let of_ports = "upstreams are not confined to their ports: this takes Linux 6.7";
    let lacks_ports = has_upstreams && (1..HAS_PORTS).contains(&support.landlock);
    lack(support).or(lacks_ports.then_some(of_ports)).map(|lack| format!("--sandbox auto: {lack}"))
}

/// Returns what those who serve reach.
fn serving(config: &Config) -> Reach {
    let roots = config.root.iter().chain(config.site_roots.iter().map(|it| &it.path));
    let mut reach = Reach {
        read: roots.cloned().chain([OWN_THREADS.into()]).collect(),
        write: Vec::new(),
        ports: ports(config),
    };
    if config.arch == ArchitectureName::Processes {
        // Children write the log, and read certificates that have changed.
        reach.write = logging(config).write;
        let certificates = config.tls.iter().flat_map(|tls| tls.paths());
        reach.read.extend(certificates.flat_map(folders));
    }
    reach
}

/// Returns where the logs are written.
fn log_targets(config: &Config) -> impl Iterator<Item = &LogTarget> {
    let access = config.access_log.as_ref().map(|log| &log.target);
    access.into_iter().chain([&config.errors.options().target])
}

/// Returns whether a log is written to one of the system's loggers.
fn tells_loggers(config: &Config) -> bool {
    log_targets(config).any(|target| matches!(target, LogTarget::Syslog(_) | LogTarget::Journal(_)))
}

/// Returns what the writers of the logs reach.
fn logging(config: &Config) -> Reach {
    let write = log_targets(config).flat_map(|target| match target {
        LogTarget::File(path) if is_special(path) => vec![path.clone()],
        LogTarget::File(path) => folders(path),
        _ => Vec::new(),
    });
    Reach { write: write.collect(), ..Reach::default() }
}

/// Returns whether a path leads to a terminal, a pipe or the like, which is opened as it is.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir())
}

/// Returns the directory in which a file is replaced by another, and that of the file that a link
/// leads to.
fn folders(path: &Path) -> Vec<PathBuf> {
    let real = path.canonicalize().ok();
    let folder = |path: &Path| {
        let folder = path.parent()?;
        Some(if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.to_owned())
    };
    [Some(path), real.as_deref()].into_iter().flatten().filter_map(folder).collect()
}

/// Returns the TCP ports of the upstreams.
fn ports(config: &Config) -> Vec<u16> {
    let servers = config.upstreams.iter().flat_map(|upstream| &upstream.servers);
    servers
        .filter_map(|server| match server.address {
            UpstreamAddress::Tcp(address) => Some(address.port()),
            UpstreamAddress::Unix(_) => None,
        })
        .collect()
}

fn needs(config: &Config) -> Needs {
    let has_rings = config.arch.row().takes_mechanism && OF_RINGS.contains(&config.mechanism);
    let rings = has_rings || config.arch == ArchitectureName::Ring;
    let forks = config.arch == ArchitectureName::Processes;
    let mut servers = config.upstreams.iter().flat_map(|upstream| &upstream.servers);
    let is_unix = |address: &UpstreamAddress| matches!(address, UpstreamAddress::Unix(_));
    Needs {
        forwards: !config.upstreams.is_empty(),
        forwards_to_unix: servers.any(|server| is_unix(&server.address)),
        rings,
        logs: forks,
        tells_loggers: forks && tells_loggers(config),
        asks: privileged::is_there(),
        opens_rings: rings,
        forks,
    }
}
