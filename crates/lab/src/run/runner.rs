//! Performs a step: a fresh server, a load against it, samples at both ends of the measured window,
//! and a complete shutdown. The order of steps and their recording are decided elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::against::AGAINST;
use super::day::DayLoad;
use super::prepare;
use super::resolved_point::ResolvedPoint;
use super::sources::sources;
use crate::cgroup::{ControlGroup, Limits};
use crate::environment::{Environment, Side};
use crate::experiment::{BackgroundLoadKind, Experiment, LoadSpec, RateUnit, ServerSpec};
use crate::file_set::{self, FileSet};
use crate::generators::LoadRequest;
use crate::journal::Request;
use crate::plan::{self, Step, Task};
use crate::record::{Key, Line, capacity_of};
use crate::servers::{self, Launch, RunningServer};

/// Context of the steps: the weir executable, a working directory, the document roots created so
/// far.
pub(super) struct Runner {
    weir: PathBuf,
    /// The build of weir that the run is compared with.
    against: Option<PathBuf>,
    /// The log that days replay; by default a made-up one.
    log: Option<PathBuf>,
    work: PathBuf,
    seed: u64,
    roots: BTreeMap<String, PathBuf>,
    /// Number of servers started: each has its own directory.
    started: u32,
    /// Names of programs with their versions.
    programs: Vec<(String, String)>,
}

impl Runner {
    pub(super) fn new(
        weir: &Path,
        request: &Request,
        work: PathBuf,
        programs: &[(String, String)],
    ) -> Self {
        Self {
            weir: weir.to_owned(),
            against: request.against.clone(),
            log: request.log.clone(),
            work,
            seed: request.seed,
            roots: BTreeMap::new(),
            started: 0,
            programs: programs.to_vec(),
        }
    }

    /// Returns the weir executable of a server.
    pub(super) fn weir(&self, server: &ServerSpec) -> &Path {
        self.against.as_deref().filter(|_| server.against).unwrap_or(&self.weir)
    }

    /// Returns the working directory of the steps.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// Returns the version of a server's program.
    pub(super) fn version(&self, server: &ServerSpec) -> String {
        let wanted = if server.against { AGAINST } else { server.kind().name() };
        let found = self.programs.iter().find(|(name, _)| name == wanted);
        found.map_or_else(String::new, |(_, version)| version.clone())
    }

    /// Performs a step.
    ///
    /// # Errors
    /// Returns a message if it could not be measured.
    pub(super) fn measure(
        &mut self,
        environment: &dyn Environment,
        experiment: &Experiment,
        step: &Step,
        lines: &[Line],
        stop: &AtomicBool,
    ) -> Result<Line, String> {
        if let Some(spec) = &experiment.sweep[step.sweep].probe {
            return self.probe(environment, experiment, step, spec, stop);
        }
        let resolved = self.resolved((environment, stop), experiment, step, lines)?;
        steer(&resolved)?;
        // Declared before the server, and so removed after it.
        let confined = Self::confine(&resolved)?;
        let groups = confined.as_ref().map_or(&[][..], ControlGroup::folders);
        let server = self.start(&resolved, groups)?;
        let line = match step.task {
            Task::Capacity => self.capacity(&resolved),
            Task::Point => return self.point(&resolved, server),
            Task::Calls => self.calls(&resolved, &server),
        };
        let ended = server.stop();
        line.and_then(|line| ended.how.map(|()| line))
    }

    fn resolved<'a>(
        &mut self,
        (environment, stop): (&'a dyn Environment, &'a AtomicBool),
        experiment: &'a Experiment,
        step: &'a Step,
        lines: &[Line],
    ) -> Result<ResolvedPoint<'a>, String> {
        let sweep = &experiment.sweep[step.sweep];
        let server = &experiment.server[step.server];
        let capacity = match (step.task, sweep.rate_unit) {
            (Task::Capacity, _) | (_, RateUnit::PerSecond) => None,
            (_, RateUnit::Own) => Some(known(lines, &step.key)?),
            (_, RateUnit::Reference) => {
                let reference = sweep.reference.clone().unwrap_or_default();
                Some(known(lines, &Key { server: reference, ..step.key.clone() })?)
            }
        };
        let capacity = capacity.unwrap_or(1.0);
        let root = self.root(&sweep.load)?;
        let (idle, conns) = plan::connections(sweep, step.key.x);
        let (duration_s, seed) = (step.duration_s, plan::load_seed(self.seed, &step.key));
        let day = |spec| {
            let log = self.log.as_deref();
            let day = DayLoad { spec, log, rate: step.key.x, duration_s, seed };
            day.write(&self.weir, &self.work, &root)
        };
        let replay = sweep.day.map(day).transpose()?;
        Ok(ResolvedPoint {
            environment,
            stop,
            step,
            sweep,
            server,
            root,
            address: SocketAddr::new(
                servers::address(environment, server.kind())?,
                port(environment)?,
            ),
            rate: plan::rate(sweep, step.key.x, capacity),
            spike: plan::spike(sweep, step.key.x, capacity, step.duration_s),
            idle,
            conns,
            disturbance: plan::disturbance(sweep, step.duration_s),
            prefix: plan::prefix(server, sweep, plan::service_seed(self.seed, &step.key)),
            seed,
            replay,
            counts_syns: experiment.wants_syns(),
        })
    }

    /// Returns the document root of a workload, written on first use; for a set of files, the
    /// permanent one, which is already written.
    fn root(&mut self, load: &LoadSpec) -> Result<PathBuf, String> {
        if FileSet::named(&load.workload).is_some() {
            return file_set::kept();
        }
        let mb = load.mb();
        let name = mb.map_or(load.workload.clone(), |mb| format!("{}-{mb}", load.workload));
        if let Some(root) = self.roots.get(&name) {
            return Ok(root.clone());
        }
        let root = self.work.join("root").join(&name);
        fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
        servers::write_root(&self.weir, &load.workload, mb, &root)?;
        self.roots.insert(name, root.clone());
        Ok(root)
    }

    /// Creates the group for the server of a place, if the server has limits.
    fn confine(resolved: &ResolvedPoint<'_>) -> Result<Option<ControlGroup>, String> {
        let limits = Limits::of(resolved.server);
        limits.map(|limits| ControlGroup::make(&limits, &resolved.root)).transpose()
    }

    fn start(
        &mut self,
        resolved: &ResolvedPoint<'_>,
        groups: &[PathBuf],
    ) -> Result<RunningServer, String> {
        // Files that one server has read must not be in memory for the next.
        prepare::sets(resolved.sweep).try_for_each(|set| set.forget(&resolved.root))?;
        self.started += 1;
        let dir = self.work.join(format!("server-{}", self.started));
        let said = |error| format!("{}: {error}", dir.display());
        fs::create_dir_all(&dir).map_err(said)?;
        servers::start(&Launch {
            spec: resolved.server,
            environment: resolved.environment,
            weir: self.weir(resolved.server),
            root: &resolved.root,
            dir: &dir,
            port: resolved.address.port(),
            calls: resolved.sweep.calls,
            upstream: resolved.sweep.upstream.as_ref(),
            serves_files: (resolved.sweep.background_load.as_ref())
                .is_some_and(|beside| beside.kind == BackgroundLoadKind::Files),
            bench_endpoints: !resolved.prefix.is_empty() || !resolved.sweep.load.mix.is_empty(),
            workers: resolved.environment.cpus(Side::Server).len(),
            groups,
        })
    }

    /// Returns the order for a load of this place, open or closed as the sweep specifies.
    pub(super) fn load_request<'a>(&'a self, resolved: &'a ResolvedPoint<'a>) -> LoadRequest<'a> {
        LoadRequest {
            load: &resolved.sweep.load,
            duration_s: resolved.step.duration_s,
            warmup_s: *resolved.sweep.load.warmup_s,
            cooldown_s: *resolved.sweep.load.cooldown_s,
            rate: resolved.rate,
            closed: if resolved.rate.is_none() { resolved.sweep.load.pace.closed() } else { None },
            idle: resolved.idle,
            conns: resolved.conns,
            spike: resolved.spike,
            steps_s: resolved.disturbance.map(|one| (one.from_s, one.to_s)),
            replay: resolved.replay.as_ref(),
            twice_s: None,
            timeline_ms: None,
            sources: sources(resolved.environment, resolved.sweep).0,
            prefix: &resolved.prefix,
            gzip: resolved.server.gzip(),
            tls: resolved.server.tls().is_some(),
            environment: resolved.environment,
            weir: &self.weir,
            server: resolved.address,
            dir: &self.work,
            seed: resolved.seed,
        }
    }
}

/// Has the client's packets handled where the load wants them. Clients beside it have the same link
/// and no say in it.
fn steer(resolved: &ResolvedPoint<'_>) -> Result<(), String> {
    let to_the_client = resolved.sweep.load.coalesce_us.is_none();
    resolved
        .environment
        .steer_client_packets(to_the_client)
        .map_err(|error| format!("receive packet steering of the client: {error}"))
}

/// Returns a previously measured capacity.
fn known(lines: &[Line], key: &Key) -> Result<f64, String> {
    capacity_of(lines, key)
        .filter(|&capacity| capacity > 0.0)
        .ok_or_else(|| format!("the capacity of {} could not be measured", key.server))
}

/// Returns a port for the server: a fixed one in its own namespace, a free one on a shared
/// loopback.
fn port(environment: &dyn Environment) -> Result<u16, String> {
    if !environment.shared() {
        return Ok(8080);
    }
    TcpListener::bind((environment.server_address(), 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| format!("no port is free: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::one_weir;
    use crate::loopback::NotingLoopback;

    const TEXT: &str = one_weir!(
        r#"
[[sweep]]
id = "steered"
x = "rate"
values = [5]
load.workload = "file-1k"
[[sweep]]
id = "left"
x = "rate"
values = [5]
load = { workload = "file-1k", generator = "packet", coalesce-us = 150 }
"#
    );

    #[test]
    fn the_client_s_packets_go_where_the_load_of_a_step_wants_them() {
        let dir = tempfile::tempdir().unwrap();
        let named = [("e".to_owned(), Experiment::parse(TEXT).unwrap())];
        let request = Request::of("e", Vec::new());
        let weir = Path::new("no-such-weir");
        let mut runner = Runner::new(weir, &request, dir.path().to_owned(), &[]);
        let (environment, stop) = (NotingLoopback::default(), AtomicBool::new(false));
        let steps = plan::steps(&named, 1.0, 1);
        for sweep in [0, 1] {
            let step = steps.iter().find(|step| step.sweep == sweep).unwrap();
            let why = runner.measure(&environment, &named[0].1, step, &[], &stop).unwrap_err();
            assert!(why.contains("server does not start"), "{why}");
        }
        assert_eq!(*environment.steered.borrow(), [true, false]);
    }
}
