//! Builds a run from the options: the driver's configuration, the audit's input, and the
//! description in the report. Everything that can be refused is refused here, before the first
//! packet.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_load::audit;
use weir_load::capacity_check::{self, Demand, Resources};
use weir_load::condition::Condition;
use weir_load::config::{Config, LoadModel, Network, PacketConfig, StackKind};
use weir_load::packet_setup::{self, PacketRequest};
use weir_load::report::RunDescription;
use weir_load::schedule::ArrivalLaw;
use weir_load::workload::BuiltWorkload;

use super::connections::{self, ConnectionSettings};
use super::input;
use super::options::{ConnOptions, RunOptions, ScanOptions, Stack, StackOptions};
use super::resources;
use super::target::{Target, truncated};
use super::time;
use super::workload::{self, PlannedWorkload};

/// Duration of a run that ends with its sessions, nanoseconds: effectively infinite, but small
/// enough not to overflow in additions.
const WITHOUT_END_NS: u64 = u64::MAX / 4;

/// Default duration of arrivals, if nothing else ends the run.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// A run that is ready to start.
pub(crate) struct RunPlan {
    /// Configuration of the driver.
    pub config: Config,
    /// Description in words.
    pub description: RunDescription,
    /// Input of the audit.
    pub audit: audit::AuditInput,
    /// Resource that may run out, though not necessarily.
    pub warning: Option<String>,
}

/// The runs of a scan, without the rate and the duration of each.
pub(crate) struct ScanRuns {
    /// True if the criteria for holding a rate include a limit on response times.
    times_judged: bool,
    draft: UncheckedPlan,
    law: ArrivalLaw,
}

/// Builds the run that `options` ask for.
///
/// # Errors
/// A sentence: the resource that is missing or the option that is wrong, and what to change.
pub(crate) fn run(options: &RunOptions) -> Result<RunPlan, String> {
    let arrivals = &options.arrivals;
    let conns = connections::conns(&options.conns, arrivals.closed.is_some())?;
    let target = target(options.url.as_deref().unwrap_or_default(), &options.conns)?;
    let work = workload::work(&options.workload, &options.conns, conns.shape, &target)?;
    let model = match (arrivals.closed, &work.arrivals) {
        (Some(conns), _) => LoadModel::Closed(conns as usize),
        (None, Some(logged)) => LoadModel::Open(logged.clone()),
        (None, None) => LoadModel::Open(law(&arrivals.arrivals, arrivals.rate)?),
    };
    let end_conditions = EndConditions {
        duration_ns: arrivals.duration.map(time::ns),
        arrivals_max: arrivals.num,
        sessions: work.sessions,
    };
    let duration_ns = end_conditions.duration_ns(&model)?;
    let warmup_ns = time::ns(arrivals.warmup);
    let cooldown_ns = time::ns(arrivals.cooldown);
    if cooldown_ns > 0 && duration_ns >= WITHOUT_END_NS {
        return Err("--cooldown is the end of a --duration: give that too".into());
    }
    if warmup_ns.saturating_add(cooldown_ns) >= duration_ns {
        let what =
            if cooldown_ns > 0 { "--warmup and --cooldown leave" } else { "--warmup leaves" };
        return Err(format!("{what} nothing of the run to measure: give a longer --duration"));
    }
    let seed = arrivals.seed;
    let schedule = ScheduleSettings { model, duration_ns, warmup_ns, cooldown_ns, seed };
    let mut draft = UncheckedPlan::new(&options.conns, conns, &target, work, schedule)?;
    draft.config.arrivals_max = arrivals.num.unwrap_or(0);
    draft.config.each = options.output.each.is_some();
    draft.description.duration_ns = end_conditions.expected_ns(&draft.config);
    draft.ports_for_s = draft.description.duration_ns as f64 / 1e9;
    draft.arrivals = end_conditions.expected_arrivals(&draft.config);
    let mut plan = draft.checked()?;
    plan.audit.latency_limits |= options.output.fail_if.iter().any(Condition::is_about_time);
    Ok(plan)
}

/// Builds the runs of a scan.
///
/// # Errors
/// As for [`run`].
pub(crate) fn scan(options: &ScanOptions) -> Result<ScanRuns, String> {
    let search = &options.search;
    let conns = connections::conns(&options.conns, false)?;
    let target = target(&options.url, &options.conns)?;
    let work = workload::work(&options.workload, &options.conns, conns.shape, &target)?;
    if work.sessions.is_some() {
        let why = "a scan needs a workload without an end: not --wsess, --wsesslog, --wlog n or \
                   --replay";
        return Err(why.into());
    }
    let seed = search.seed;
    let law = law(&search.arrivals, Some(search.from))
        .map_err(|why| why.replacen("--rate", "--from", 1))?;
    let (warmup_ns, duration_ns) = (time::ns(search.warmup), time::ns(search.duration));
    let duration_ns = duration_ns.saturating_add(warmup_ns);
    let model = LoadModel::Open(law.clone());
    let schedule = ScheduleSettings { model, duration_ns, warmup_ns, cooldown_ns: 0, seed };
    let draft = UncheckedPlan::new(&options.conns, conns, &target, work, schedule)?;
    // What earlier points left in TIME_WAIT is there at the later ones: there is no end.
    draft.checked()?;
    let times_judged = search.p99_max.is_some();
    Ok(ScanRuns { times_judged, draft, law })
}

impl ScanRuns {
    /// Builds the run at `rate` arrivals per second, measured for `duration_ns`. Each run has its
    /// own random seed, derived from its `number`.
    ///
    /// # Errors
    /// A sentence: this machine lacks the resources.
    pub(crate) fn at(&self, rate: f64, duration_ns: u64, number: u64) -> Result<RunPlan, String> {
        let law = self.law.scaled(rate / self.law.mean_rate(WITHOUT_END_NS));
        let mut draft = self.draft.clone();
        draft.description.arrivals = law.to_string();
        draft.description.duration_ns = duration_ns.saturating_add(draft.config.warmup_ns);
        draft.config.duration_ns = draft.description.duration_ns;
        draft.config.model = LoadModel::Open(law);
        draft.config.seed = draft.config.seed.wrapping_add(number);
        draft.description.seed = draft.config.seed;
        let mut plan = draft.checked()?;
        plan.audit.rates_only = !self.times_judged;
        Ok(plan)
    }
}

fn target(url: &str, options: &ConnOptions) -> Result<Target, String> {
    let mut target = Target::parse(url)?;
    options.connect_to.as_deref().map_or(Ok(()), |to| target.connect_to(to))?;
    Ok(target)
}

fn law(name: &str, rate: Option<f64>) -> Result<ArrivalLaw, String> {
    ArrivalLaw::parse(name, rate, &mut |file| input::text(Path::new(file)))
}

/// Conditions that end a run.
struct EndConditions {
    duration_ns: Option<u64>,
    arrivals_max: Option<u64>,
    sessions: Option<u64>,
}

impl EndConditions {
    /// Returns the maximum duration of arrivals.
    fn duration_ns(&self, model: &LoadModel) -> Result<u64, String> {
        let counted = self.arrivals_max.is_some() || self.sessions.is_some();
        match (self.duration_ns, model) {
            (Some(given_ns), _) => Ok(given_ns),
            (None, LoadModel::Open(ArrivalLaw::Trace(starts_ns))) => {
                Ok(starts_ns.last().map_or(1, |last_ns| last_ns.saturating_add(1)))
            }
            (None, LoadModel::Open(ArrivalLaw::Ramp { .. })) if counted => {
                Err("a ramp goes from the beginning to the end: give it a --duration".into())
            }
            (None, _) if counted => Ok(WITHOUT_END_NS),
            (None, _) => Ok(time::ns(DURATION_DEFAULT)),
        }
    }

    /// Returns the expected duration, as far as it can be predicted; 0 for a closed loop that ends
    /// with its sessions or arrivals.
    fn expected_ns(&self, config: &Config) -> u64 {
        if config.duration_ns < WITHOUT_END_NS {
            return config.duration_ns;
        }
        let LoadModel::Open(arrivals) = &config.model else { return 0 };
        let count = self.counted().unwrap_or(0) as f64;
        (1e9 * count / arrivals.mean_rate(WITHOUT_END_NS)).round() as u64
    }

    /// Returns the expected number of arrivals, as far as it can be predicted; `u64::MAX` for a
    /// closed loop that ends by the clock.
    fn expected_arrivals(&self, config: &Config) -> u64 {
        let counted = self.counted().unwrap_or(u64::MAX);
        match &config.model {
            LoadModel::Open(arrivals) if config.duration_ns < WITHOUT_END_NS => {
                let duration_s = config.duration_ns as f64 / 1e9;
                let planned = arrivals.mean_rate(config.duration_ns) * duration_s;
                counted.min(planned.round().max(1.0) as u64)
            }
            _ => counted,
        }
    }

    /// Returns the number of arrivals or sessions that ends the run, if one does.
    fn counted(&self) -> Option<u64> {
        self.arrivals_max.into_iter().chain(self.sessions).min()
    }
}

/// Schedule of a run's arrivals.
struct ScheduleSettings {
    model: LoadModel,
    duration_ns: u64,
    warmup_ns: u64,
    cooldown_ns: u64,
    seed: u64,
}

/// A run that has not been checked yet.
#[derive(Clone)]
struct UncheckedPlan {
    config: Config,
    description: RunDescription,
    resources: Resources,
    client_closes: bool,
    /// Expected number of arrivals, including those of other runs before and after this one.
    arrivals: u64,
    /// Time for which ports are needed, likewise, seconds.
    ports_for_s: f64,
}

impl UncheckedPlan {
    fn new(
        options: &ConnOptions,
        conns: ConnectionSettings,
        target: &Target,
        work: PlannedWorkload,
        schedule: ScheduleSettings,
    ) -> Result<Self, String> {
        let tls = options.tls.settings(target)?;
        let cpus = options.cpus.as_ref().map(|list| list.0.clone()).unwrap_or_default();
        resources::check_cpus(&cpus)?;
        let Clients { sources, addresses, stack, resources } = clients(options, target, &cpus)?;
        let ScheduleSettings { model, duration_ns, warmup_ns, cooldown_ns, seed } = schedule;
        let BuiltWorkload { workload, requests } = work.built;
        let config = Config {
            addresses,
            unix_socket: options.unix_socket.clone(),
            tls,
            model,
            duration_ns,
            arrivals_max: 0,
            warmup_ns,
            cooldown_ns,
            workload,
            requests: Arc::new(requests),
            shared_conns: conns.shared,
            keep_open: conns.keep_open,
            idle: options.idle as usize,
            slow_senders: options.slow_senders as usize,
            slow_readers: options.slow_readers as usize,
            slow_rate: options.slow_rate,
            send_rate: options.send_rate,
            background_rate: options.background_rate,
            timeout_ns: time::ns(options.timeout),
            deadline_ns: options.deadline.map_or(0, time::ns),
            sources,
            stack,
            reset: conns.reset,
            conns_max: options.max_conns.unwrap_or(0) as usize,
            threads: options.threads.into(),
            cpus,
            seed,
            each: false,
        };
        let description = RunDescription {
            tls: config.tls.is_some().then(|| options.tls.description()),
            ..description(&config, conns, target, work.name)
        };
        Ok(Self {
            config,
            description,
            resources,
            client_closes: conns.client_closes,
            arrivals: u64::MAX,
            ports_for_s: f64::INFINITY,
        })
    }

    /// Checks the run against the resources of this machine.
    fn checked(&self) -> Result<RunPlan, String> {
        let capacity = capacity_check::check(&self.resources, &self.demand())?;
        let warning = (capacity.open_if_stalled > capacity.open_max).then(|| {
            format!(
                "should the server stall, {} connections will be open at once before --timeout \
                 ends them, and there is room for {}",
                capacity.open_if_stalled, capacity.open_max
            )
        });
        Ok(RunPlan {
            config: self.config.clone(),
            description: self.description.clone(),
            audit: self.audit_input(capacity.ports_total),
            warning,
        })
    }

    fn demand(&self) -> Demand {
        let config = &self.config;
        let (conns_per_s, closed) = match &config.model {
            LoadModel::Open(_) if config.shared_conns > 0 => (0.0, 0),
            LoadModel::Open(arrivals) => (arrivals.mean_rate(config.duration_ns), 0),
            // How many it opens one after the other is up to the server.
            LoadModel::Closed(conns) => (0.0, *conns),
        };
        Demand {
            conns_per_s,
            conns_total: self.arrivals,
            duration_s: self.ports_for_s,
            client_closes: self.client_closes,
            timeout_s: config.timeout_ns as f64 / 1e9,
            background: (config.idle + config.slow_senders + config.slow_readers) as u64,
            shared: (config.shared_conns + closed) as u64,
            conns_max: config.conns_max as u64,
            threads: config.threads,
        }
    }

    fn audit_input(&self, ports: u64) -> audit::AuditInput {
        let time_wait_s = self.resources.tw_reuse_s.unwrap_or(self.resources.time_wait_s);
        let free = self.resources.open_files.saturating_sub(self.resources.other_fds);
        let allowed = Some(self.config.conns_max as u64).filter(|most| *most > 0);
        audit::AuditInput {
            closed: matches!(self.config.model, LoadModel::Closed(_)),
            threads: self.config.threads,
            // A Unix socket's connections have none.
            ports: if self.config.unix_socket.is_some() { 0 } else { ports },
            port_hold_ns: if self.client_closes { (time_wait_s * 1e9) as u64 } else { 0 },
            warmup_ns: self.config.warmup_ns,
            cooldown_ns: self.config.cooldown_ns,
            descriptors: allowed.map_or(free, |most| most.min(free)),
            rates_only: false,
            latency_limits: self.config.deadline_ns > 0,
        }
    }
}

/// The clients' side: where they come from, and by which TCP.
struct Clients {
    sources: Vec<IpAddr>,
    addresses: Vec<SocketAddr>,
    stack: StackKind,
    resources: Resources,
}

/// Decides about the clients' side.
fn clients(options: &ConnOptions, target: &Target, cpus: &[usize]) -> Result<Clients, String> {
    let StackOptions { stack, interface, path, ack_with_request, coalesce, vanish } =
        &options.stack;
    if *stack == Stack::Kernel {
        let only = [
            (interface.is_some(), "--interface"),
            (path.is_some(), "--path"),
            (*ack_with_request, "--ack-with-request"),
            (!coalesce.is_zero(), "--coalesce"),
            (*vanish, "--vanish"),
        ];
        if let Some((_, option)) = only.into_iter().find(|(is_given, _)| *is_given) {
            return Err(format!("{option} is for --stack packet"));
        }
        if options.unix_socket.is_some() {
            let resources = resources::unix_resources(&resources::resources(&[], &[], cpus));
            let (sources, addresses) = (Vec::new(), Vec::new());
            return Ok(Clients { sources, addresses, stack: StackKind::Kernel, resources });
        }
        let sources =
            options.source.as_deref().map_or(Ok(Vec::new()), capacity_check::parse_sources)?;
        let addresses = target.resolve(sources.first().copied())?;
        one_family(&sources)?;
        sources.iter().try_for_each(check_local)?;
        let resources = resources::resources(&sources, &addresses, cpus);
        return Ok(Clients { sources, addresses, stack: StackKind::Kernel, resources });
    }
    if options.unix_socket.is_some() {
        return Err("--unix-socket is for --stack kernel".into());
    }
    let addresses = target.resolve(None)?;
    let packet = packet_setup::prepare(PacketRequest {
        interface: interface.clone().unwrap_or_default(),
        sources: options.source.clone().unwrap_or_default(),
        servers: addresses.clone(),
        tcp: resources::tcp_settings(*ack_with_request),
        path: path.clone(),
        vanish: *vanish,
        coalesce: *coalesce,
    })?;
    let hosts = packet.hosts(options.threads.into());
    if hosts == 0 {
        return Err("--source: there are fewer addresses than threads".into());
    }
    let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
    let stack = StackKind::Packet(Arc::new(packet));
    let kernel = resources::resources(&[], &addresses, cpus);
    let resources = resources::packet_resources(&stack, hosts, &kernel);
    Ok(Clients { sources: Vec::new(), addresses, stack, resources })
}

fn one_family(sources: &[IpAddr]) -> Result<(), String> {
    let Some(first) = sources.first() else { return Ok(()) };
    let other = sources.iter().find(|source| source.is_ipv4() != first.is_ipv4());
    other.map_or(Ok(()), |other| {
        Err(format!("--source: {first} and {other} are of two families, and a run is of one"))
    })
}

/// Checks that an address belongs to this machine, as a socket cannot be bound to it otherwise.
fn check_local(source: &IpAddr) -> Result<(), String> {
    let bound = UdpSocket::bind((*source, 0)).map(drop);
    bound.map_err(|error| {
        format!("--source {source}: {error}; give addresses that this machine has (`ip address`)")
    })
}

fn description(
    config: &Config,
    conns: ConnectionSettings,
    target: &Target,
    workload: String,
) -> RunDescription {
    RunDescription {
        url: truncated(&target.url),
        arrivals: match &config.model {
            LoadModel::Open(arrivals) => arrivals.to_string(),
            LoadModel::Closed(conns) => format!("{conns} connections"),
        },
        closed: matches!(config.model, LoadModel::Closed(_)),
        duration_ns: config.duration_ns,
        warmup_ns: config.warmup_ns,
        cooldown_ns: config.cooldown_ns,
        workload,
        timeout_ns: config.timeout_ns,
        deadline_ns: config.deadline_ns,
        threads: config.threads,
        seed: config.seed,
        tls: None,
        connections: connections(config, conns, target),
        command: time::command_line(std::env::args_os()),
        version: env!("CARGO_PKG_VERSION").into(),
        began: SystemTime::now(),
    }
}

/// Describes in words how the connections differ from the defaults.
fn connections(config: &Config, conns: ConnectionSettings, target: &Target) -> Vec<String> {
    let counted = [
        (config.shared_conns, "shared connections"),
        (config.idle, "idle connections"),
        (config.slow_senders, "slow senders"),
        (config.slow_readers, "slow readers"),
        (config.sources.len(), "source addresses"),
    ];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0);
    let features = [
        (config.keep_open && config.shared_conns == 0, "connections that stay"),
        (conns.client_closes, "closed by the client"),
        (conns.reset, "reset by the client"),
    ];
    let features = features.into_iter().filter(|(is_so, _)| *is_so);
    let mut connections: Vec<String> =
        counted.map(|(count, kind)| format!("{count} {kind}")).collect();
    connections.extend(config.send_rate.map(|rate| match rate {
        0 => "requests never sent".to_owned(),
        rate => format!("requests sent at {rate} bytes/s"),
    }));
    connections.extend(features.map(|(_, feature)| feature.into()));
    connections.extend(config.unix_socket.as_ref().map(|path| format!("at {}", path.display())));
    if let StackKind::Packet(packet) = &config.stack {
        connections.extend(packet_features(packet));
    }
    if target.is_named() && !config.addresses.is_empty() {
        let addresses: Vec<_> = config.addresses.iter().map(ToString::to_string).collect();
        connections.push(format!("at {}", addresses.join(", ")));
    }
    connections
}

/// Describes in words what is particular to weir's own TCP.
fn packet_features(packet: &PacketConfig) -> Vec<String> {
    let Network { first, prefix } = packet.sources;
    let mut features = vec![format!("weir's own TCP from {first}/{prefix}")];
    features.extend(packet.path.as_ref().map(|path| format!("path {path}")));
    features.extend(packet.tcp.acks_with_request.then(|| "ACK with the request".into()));
    if packet.coalesce_ns > 0 {
        features.push(format!("packets coalesced for {} us", packet.coalesce_ns / 1000));
    }
    features.extend(packet.vanish.then(|| "clients vanish".into()));
    features
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::load::tests::{run_options, scan_options};

    fn planned(line: &str) -> Result<RunPlan, String> {
        run(&run_options(line))
    }

    fn refused(line: &str) -> String {
        planned(line).map(|plan| plan.description.arrivals).unwrap_err()
    }

    fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_run_is_a_hundred_a_second_for_ten_seconds() {
        let RunPlan { config, description, audit, warning } = planned("").unwrap();
        assert_eq!(config.model, LoadModel::Open(ArrivalLaw::Constant { rate: 100.0 }));
        assert_eq!((config.duration_ns, config.warmup_ns), (10_000_000_000, 0));
        assert_eq!(config.addresses, ["127.0.0.1:8080".parse().unwrap()]);
        assert_eq!((config.timeout_ns, config.deadline_ns), (5_000_000_000, 0));
        assert_eq!((config.arrivals_max, config.conns_max, config.threads), (0, 0, 1));
        assert_eq!(description.workload, "GET /, 1 request a connection");
        assert_eq!((description.arrivals.as_str(), description.closed), ("constant 100/s", false));
        assert!(description.connections.is_empty() && warning.is_none());
        assert!(audit.ports > 0 && !audit.latency_limits);
    }

    #[test]
    fn requests_that_are_sent_slowly_or_never_are_called_so() {
        for (line, rate, shape) in [
            ("--send-rate 0", 0, "requests never sent"),
            ("--send-rate 20", 20, "requests sent at 20 bytes/s"),
        ] {
            let plan = planned(line).unwrap();
            assert_eq!(
                (plan.config.send_rate, plan.description.connections),
                (Some(rate), vec![shape.into()])
            );
        }
        assert_eq!(planned("").unwrap().config.send_rate, None);
    }

    #[test]
    fn a_closed_loop_is_called_one() {
        let plan = planned("--closed 3 --requests-per-conn inf --duration 1s").unwrap();
        assert_eq!(plan.config.model, LoadModel::Closed(3));
        assert!(plan.config.keep_open && plan.audit.closed && plan.description.closed);
        assert_eq!(plan.description.arrivals, "3 connections");
        assert_eq!(plan.description.connections, ["connections that stay"]);
        assert!(!planned("--closed 3").unwrap().config.keep_open);
    }

    #[test]
    fn a_workload_with_an_end_runs_until_then() {
        for (line, expected_ns) in [
            ("--num 50", 500_000_000),
            ("--num 50 --duration 3", 3_000_000_000),
            ("--wsess 20,2,0 --rate 10", 2_000_000_000),
            ("--wsess 20,2,0 --rate 10 --num 5", 500_000_000),
            ("--closed 2 --num 5", 0),
        ] {
            let plan = planned(line).unwrap();
            assert_eq!(plan.description.duration_ns, expected_ns, "{line}");
            let open_end = !line.contains("--duration");
            assert_eq!(plan.config.duration_ns == WITHOUT_END_NS, open_end, "{line}");
        }
        assert_eq!(planned("--num 50").unwrap().config.arrivals_max, 50);
    }

    #[test]
    fn a_trace_and_a_log_say_when() {
        let dir = tempfile::tempdir().unwrap();
        let starts = file(&dir, "starts", "0\n0.5\n2\n");
        let plan = planned(&format!("--arrivals trace:{}", starts.display())).unwrap();
        assert_eq!(plan.config.duration_ns, 2_000_000_001);
        let line = |second| {
            format!("::1 - - [10/Oct/2000:13:55:{second} -0700] \"GET /x HTTP/1.0\" 200 1\n")
        };
        let log = file(&dir, "log", &(line(36) + &line(40)));
        let replay = format!("--replay {} --speed 2", log.display());
        let plan = planned(&replay).unwrap();
        assert_eq!(plan.config.duration_ns, 2_000_000_001);
        assert!(
            plan.description.workload.contains("2 lines (0 skipped"),
            "{}",
            plan.description.workload
        );
        let short = planned(&format!("{replay} --duration 1")).unwrap();
        assert_eq!(short.config.duration_ns, 1_000_000_000);
    }

    #[test]
    fn sources_are_of_the_server_s_family() {
        let plan = planned("--source 127.0.0.2-127.0.0.5").unwrap();
        assert_eq!(plan.config.sources.len(), 4);
        assert_eq!(plan.description.connections, ["4 source addresses"]);
        assert!(refused("--source ::1").contains("IPv6"));
        assert!(refused("--source 127.0.0.2,::1").contains("two families"));
        assert!(refused("--source here").contains("not an address"));
    }

    #[test]
    fn impossible_loads_are_refused_before_the_first_packet() {
        let table = [
            ("--warmup 10s", "--warmup leaves nothing"),
            ("--duration 3s --warmup 1s --cooldown 2s", "--warmup and --cooldown leave nothing"),
            ("--num 5 --cooldown 1s", "give that too"),
            ("--num 5 --arrivals ramp:1-9", "--duration"),
            ("--arrivals ramp:1-9 --rate 5", "leave out --rate"),
            ("--arrivals trace:/nowhere/x", "/nowhere/x"),
            ("--rate 0", "--rate 0"),
            ("--rate 1e9", "connections a second"),
            ("--rate 100000 --close client", "--close server"),
            ("--threads 1024", "--threads 1024"),
            ("--cpus 4000", "4000"),
            ("--idle 100000000", "--idle"),
            ("--closed 200000", "shared connections"),
            ("--body /nowhere/x", "/nowhere/x"),
            ("--body /dev/zero", "not a regular file"),
            ("--wlog y,/dev/zero", "not a regular file"),
            ("--arrivals trace:/dev/zero", "not a regular file"),
            ("--conns 2 --header Connection:close", "Connection: close"),
            ("--requests-per-conn 2 --header connection:x,Close", "Connection: close"),
            ("--wsess 1,2,3 --header Connection:close", "Connection: close"),
            ("--replay /nowhere/x", "/nowhere/x"),
            ("--wlog y,/nowhere/x", "/nowhere/x"),
            ("--wsesslog 1,1,/nowhere/x", "/nowhere/x"),
            ("--workload specweb99 --mb 1000000", "too large"),
            ("--workload specweb99 --pipeline 2 --requests-per-conn 2", "--pipeline"),
            ("--wsess 1,2,3 --requests-per-conn 2", "leave out --requests-per-conn"),
        ];
        for (line, sentence) in table {
            let refused = refused(line);
            assert!(refused.contains(sentence), "{line}: {refused}");
            assert!(!refused.contains('\n'), "{line}: {refused}");
        }
    }

    #[test]
    fn a_run_that_ends_needs_ports_until_then() {
        // As endless ones they would be too many for TIME_WAIT, even where it lasts a second.
        for line in [
            "--num 1000 --rate 100000 --close client",
            "--wsess 1000,1,0 --rate 100000 --close client",
            "--num 1000 --rate 100000 --duration 60 --close client",
        ] {
            assert!(planned(line).is_ok(), "{line}: {}", refused(line));
        }
    }

    #[test]
    fn starts_at_one_time_are_no_rate_without_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let starts = file(&dir, "starts", &"0\n".repeat(50));
        let plan = planned(&format!("--arrivals trace:{}", starts.display())).unwrap();
        assert!(plan.warning.is_none(), "{:?}", plan.warning);
        let line = "::1 - - [10/Oct/2000:13:55:36 -0700] \"GET /x HTTP/1.0\" 200 1\n";
        let log = file(&dir, "log", line);
        assert!(planned(&format!("--replay {} --close client", log.display())).is_ok());
    }

    #[test]
    fn a_server_that_stalls_holds_no_more_connections_than_the_run_opens() {
        let options = "--rate 1000 --max-conns 90 --timeout 100s";
        for (end, open) in [("--num 91", " 91 conn"), ("--duration 95ms", " 95 conn")] {
            let warning = planned(&format!("{options} {end}")).unwrap().warning.unwrap();
            assert!(warning.contains(open), "{warning}");
        }
        for end in ["--num 90", "--duration 90ms", "--wsess 90,2,0"] {
            assert_eq!(planned(&format!("{options} {end}")).unwrap().warning, None, "{end}");
        }
    }

    #[test]
    fn a_file_of_paths_and_a_path_do_not_go_together() {
        let dir = tempfile::tempdir().unwrap();
        let list = file(&dir, "list", "/a\n/b\n\n/c\n");
        let mut options = run_options(&format!("--wlog n,{}", list.display()));
        let plan = run(&options).unwrap();
        assert_eq!(plan.description.duration_ns, 30_000_000);
        options.url = Some("http://127.0.0.1/a".into());
        assert!(run(&options).map(|_| ()).unwrap_err().contains("leave the path out"));
        let mut options = run_options("--workload 2k");
        options.url = Some("http://127.0.0.1/?a".into());
        assert!(run(&options).map(|_| ()).unwrap_err().contains("leave out its query"));
    }

    #[test]
    fn a_time_that_is_judged_is_told_to_the_audit() {
        assert!(planned("--deadline 1s").unwrap().audit.latency_limits);
        assert!(planned("--fail-if p99>1ms").unwrap().audit.latency_limits);
        assert!(!planned("--fail-if errors>0").unwrap().audit.latency_limits);
    }

    #[test]
    fn a_header_may_end_a_connection_of_one_request() {
        assert!(planned("--header Connection:close").is_ok());
        assert!(planned("--conns 2 --header Connection:keep-alive").is_ok());
    }

    #[test]
    fn a_long_url_is_shown_by_its_beginning() {
        let mut options = run_options("");
        options.url = Some(format!("http://127.0.0.1/{}", "x".repeat(1000)));
        let description = run(&options).unwrap().description;
        assert!(
            description.url.len() < 210 && description.url.ends_with('…'),
            "{}",
            description.url
        );
        assert!(description.workload.len() < 250, "{}", description.workload);
    }

    #[test]
    fn tls_is_described_and_a_unix_socket_has_no_ports() {
        let mut options = run_options("--insecure --unix-socket /run/x");
        options.url = Some("https://example.org/".into());
        let RunPlan { config, description, audit, .. } = run(&options).unwrap();
        assert!(config.tls.is_some() && config.addresses.is_empty());
        assert_eq!(config.unix_socket, Some("/run/x".into()));
        let words = "TLS 1.3 or 1.2, full handshakes, certificates not checked";
        assert_eq!(description.tls.as_deref(), Some(words));
        assert_eq!((description.connections, audit.ports), (vec!["at /run/x".to_owned()], 0));
        options.url = Some("http://example.org/".into());
        assert!(run(&options).map(|_| ()).unwrap_err().contains("--insecure is for https://"));
    }

    #[test]
    fn a_name_s_addresses_are_told() {
        let mut options = run_options("");
        options.url = Some("localhost:8080".into());
        let connections = run(&options).unwrap().description.connections;
        assert!(
            connections[0].starts_with("at ") && connections[0].contains(":8080"),
            "{connections:?}"
        );
    }

    #[test]
    fn a_scan_s_points_differ_in_rate_and_chance() {
        let points = scan(&scan_options("--arrivals poisson --from 50 --warmup 2s")).unwrap();
        let plan = points.at(400.0, 3_000_000_000, 7).unwrap();
        assert_eq!((plan.config.duration_ns, plan.config.seed), (5_000_000_000, 8));
        let LoadModel::Open(ArrivalLaw::Poisson { rate }) = plan.config.model else { panic!() };
        assert!((rate - 400.0).abs() < 1e-6, "{rate}");
    }

    #[test]
    fn a_scan_refuses_what_it_cannot_repeat() {
        let table = [
            ("--wsess 1,2,3", "without an end"),
            ("--from 0", "--from 0: it is above 0"),
            ("--from 1e9", "connections a second"),
        ];
        for (line, sentence) in table {
            let refused = scan(&scan_options(line)).map(|_| ()).unwrap_err();
            assert!(refused.contains(sentence), "{line}: {refused}");
        }
        // What ports there are must last for all points, not only for one.
        let points = scan(&scan_options("--close client --from 10")).unwrap();
        assert!(points.at(50_000.0, 1_000_000_000, 1).is_err());
    }
}
