//! Feasibility of a run: checks ports, descriptors and processors against the run's demand. Takes
//! facts; does not query the kernel.
//!
//! A port is occupied while its connection is open, and in TIME_WAIT after that if this side closed
//! first. The same port can serve another source address or another destination, so that there are
//! sources x ports x destinations of them. Only an impossible run is refused. A shortage that
//! occurs only if the server stalls is reported as a figure ([`Capacity::open_if_stalled`]).

mod source_addresses;

pub use source_addresses::{SOURCES_MAX, parse_sources};

/// Assumed shortest lifetime of a connection, seconds: connect, request and reply.
const LIFETIME_S_MIN: f64 = 0.001;

/// The resources of this machine and the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Resources {
    /// Ephemeral ports: the width of `net.ipv4.ip_local_port_range`, without the reserved ones
    /// (ip(7)).
    pub ports: u32,
    /// Time for which TIME_WAIT holds a port, seconds; 60 on Linux.
    pub time_wait_s: f64,
    /// Time after which the kernel reuses a port in TIME_WAIT, if that is sooner, seconds: 1 with
    /// `net.ipv4.tcp_tw_reuse`, which is usual on loopback.
    pub tw_reuse_s: Option<f64>,
    /// Limit on open files (RLIMIT_NOFILE), as far as it could be raised.
    pub open_files: u64,
    /// Descriptors that are in use, or will be, for purposes other than connections.
    pub other_fds: u64,
    /// Number of source addresses; 1 if the kernel chooses.
    pub sources: u32,
    /// Number of addresses and ports of the server.
    pub destinations: u32,
    /// Number of processors available to threads.
    pub cores: usize,
}

/// The demand of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Connections opened per second, on average over the run; 0 if all are shared. The average
    /// counts because a peak may end before it has exhausted anything.
    pub conns_per_s: f64,
    /// Connections opened in the whole run, as far as is known; `u64::MAX`: without an end.
    pub conns_total: u64,
    /// Duration of the run, seconds.
    pub duration_s: f64,
    /// True if this side closes first, and so holds the TIME_WAIT. A reset leaves none.
    pub client_closes: bool,
    /// The longest lifetime of a connection if the server stalls, seconds.
    pub timeout_s: f64,
    /// Number of idle and slow connections.
    pub background: u64,
    /// Number of persistent connections shared by requests.
    pub shared: u64,
    /// Operator's limit on open connections; 0: none.
    pub conns_max: u64,
    /// Number of driving threads.
    pub threads: usize,
}

/// The supply of a feasible run.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// Connections for which there are ports at the same time.
    pub ports_total: u64,
    /// Connections per second for which there are ports, if each is as short as possible.
    pub ports_per_s_max: f64,
    /// Maximum number of open connections: by ports, by descriptors and by the operator's limit.
    pub open_max: u64,
    /// Open connections if the server stalls and each lasts until the timeout. If this exceeds
    /// `open_max`, such a run ends in errors of this side.
    pub open_if_stalled: u64,
}

/// Checks whether `demand` can be met.
///
/// # Errors
///
/// A sentence with the figure that is too large, the one it exceeds, and the option to change.
pub fn check(resources: &Resources, demand: &Demand) -> Result<Capacity, String> {
    check_threads(resources, demand)?;
    let limits = limits(resources, demand);
    let held_open = held_open(demand);
    check_open(
        &limits,
        held_open,
        &format!("{held_open} idle, slow and shared connections"),
        "ask for fewer (--idle, --slow-senders, --slow-readers, --conns)",
    )?;
    let rate = demand.conns_per_s;
    let least = held_open.saturating_add(opened_within(demand, LIFETIME_S_MIN));
    check_open(
        &limits,
        least,
        &format!("at {rate} connections a second, {least} open at once, a millisecond each,"),
        "lower the rate (--rate)",
    )?;
    check_open(
        &limits,
        demand.threads as u64,
        &format!("the connections of --threads {}, one each,", demand.threads),
        "use fewer threads",
    )?;
    let ports_total = ports_total(resources);
    let capacity = Capacity {
        ports_total,
        ports_per_s_max: ports_total.saturating_sub(held_open) as f64
            / port_use_s(resources, demand),
        open_max: limits.iter().map(|limit| limit.open_max).min().unwrap_or(0),
        open_if_stalled: held_open.saturating_add(opened_within(demand, demand.timeout_s)),
    };
    check_time_wait(resources, demand, &capacity)?;
    Ok(capacity)
}

fn check_threads(resources: &Resources, demand: &Demand) -> Result<(), String> {
    let (threads, cores, shared) = (demand.threads, resources.cores, demand.shared);
    if shared > 0 && threads as u64 > shared {
        return Err(format!(
            "--threads {threads} is more than there are connections, {shared}: each thread drives \
             its own; use --threads {shared} or fewer"
        ));
    }
    if threads <= cores {
        return Ok(());
    }
    Err(format!(
        "--threads {threads} is more than there are processors, {cores}: two driving threads on \
         one spoil each other's times; use --threads {cores} or fewer"
    ))
}

/// A limit on the connections open at once.
struct Limit {
    open_max: u64,
    what: String,
    change: String,
}

fn limits(resources: &Resources, demand: &Demand) -> [Limit; 3] {
    let files = resources.open_files.saturating_sub(resources.other_fds);
    let (ports, conns_max) = (ports_total(resources), demand.conns_max);
    [
        Limit {
            open_max: files,
            what: format!("{files} descriptors (of {} open files)", resources.open_files),
            change: "raise the limit (ulimit -n)".into(),
        },
        Limit {
            open_max: if conns_max == 0 { u64::MAX } else { conns_max },
            what: format!("--max-conns {conns_max}"),
            change: "raise --max-conns".into(),
        },
        Limit {
            open_max: ports,
            what: format!("{ports} ports ({})", ports_factors(resources)),
            change: "give more source addresses (--source), or widen \
                     net.ipv4.ip_local_port_range"
                .into(),
        },
    ]
}

fn check_open(limits: &[Limit], needed: u64, subject: &str, lower: &str) -> Result<(), String> {
    let Some(limit) = limits.iter().find(|limit| needed > limit.open_max) else {
        return Ok(());
    };
    Err(format!("{subject} are more than {} allow: {lower}, or {}", limit.what, limit.change))
}

fn check_time_wait(
    resources: &Resources,
    demand: &Demand,
    capacity: &Capacity,
) -> Result<(), String> {
    let (rate, rate_max) = (demand.conns_per_s, capacity.ports_per_s_max);
    let opened = opened_within(demand, port_use_s(resources, demand));
    let taken = held_open(demand).saturating_add(opened);
    if !demand.client_closes || rate <= rate_max || taken <= capacity.ports_total {
        return Ok(());
    }
    let ports_per_source =
        f64::from(resources.ports.max(1)) * f64::from(resources.destinations.max(1));
    let sources = (taken as f64 / ports_per_source).ceil();
    Err(format!(
        "{rate} connections a second that this side closes stay in TIME_WAIT for {} s each, and \
         {} ports ({}) are enough for {} a second: let the server close (--close server), reset \
         (--close reset), lower the rate (--rate), or give {sources} source addresses (--source)",
        time_wait_s(resources),
        capacity.ports_total,
        ports_factors(resources),
        rate_max.floor(),
    ))
}

/// Returns the largest number of connections opened within a time.
fn opened_within(demand: &Demand, time_s: f64) -> u64 {
    ((demand.conns_per_s * time_s).ceil() as u64).min(demand.conns_total)
}

/// Returns the number of connections that stay open throughout.
fn held_open(demand: &Demand) -> u64 {
    demand.background.saturating_add(demand.shared)
}

fn ports_total(resources: &Resources) -> u64 {
    let addresses = u64::from(resources.sources.max(1)).saturating_mul(u64::from(resources.ports));
    addresses.saturating_mul(u64::from(resources.destinations.max(1)))
}

fn ports_factors(resources: &Resources) -> String {
    let Resources { ports, sources, destinations, .. } = resources;
    let (sources, destinations) = (sources.max(&1), destinations.max(&1));
    format!("sources {sources} x ports {ports} x destinations {destinations}")
}

fn time_wait_s(resources: &Resources) -> f64 {
    resources.tw_reuse_s.map_or(resources.time_wait_s, |reuse_s| reuse_s.min(resources.time_wait_s))
}

/// Returns the shortest time for which a connection occupies its port, seconds. A run shorter than
/// TIME_WAIT never needs a port twice.
fn port_use_s(resources: &Resources, demand: &Demand) -> f64 {
    let after_s =
        if demand.client_closes { time_wait_s(resources).min(demand.duration_s) } else { 0.0 };
    LIFETIME_S_MIN + after_s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources() -> Resources {
        Resources {
            ports: 28_232,
            time_wait_s: 60.0,
            tw_reuse_s: None,
            open_files: 20_000,
            other_fds: 10,
            sources: 1,
            destinations: 1,
            cores: 2,
        }
    }

    fn demand() -> Demand {
        Demand {
            conns_per_s: 400.0,
            conns_total: u64::MAX,
            duration_s: 600.0,
            client_closes: true,
            timeout_s: 5.0,
            background: 100,
            shared: 10,
            conns_max: 0,
            threads: 1,
        }
    }

    #[test]
    fn the_available_resources_are_reported() {
        let capacity = check(&resources(), &demand()).unwrap();
        assert_eq!(
            (capacity.ports_total, capacity.open_max, capacity.open_if_stalled),
            (28_232, 19_990, 2110)
        );
        assert!((capacity.ports_per_s_max - 28_122.0 / 60.001).abs() < 1e-9);
        let resources =
            Resources { sources: 10, destinations: 2, open_files: 1 << 20, ..resources() };
        let capacity = check(&resources, &Demand { conns_max: 5000, ..demand() }).unwrap();
        assert_eq!((capacity.ports_total, capacity.open_max), (564_640, 5000));
    }

    #[test]
    fn a_refusal_has_the_figures_and_the_option_to_change() {
        type Change = fn(&mut Resources, &mut Demand);
        let table: [(Change, &[&str]); 11] = [
            (|_, demand| demand.threads = 3, &["--threads 3", "processors, 2", "--threads 2"]),
            (
                |_, demand| (demand.threads, demand.shared) = (2, 1),
                &["--threads 2", "connections, 1", "--threads 1"],
            ),
            (
                |_, demand| {
                    (demand.background, demand.shared) = (0, 0);
                    (demand.threads, demand.conns_max) = (2, 1);
                },
                &["--threads 2, one each", "--max-conns 1 allow", "fewer threads"],
            ),
            (
                |_, demand| demand.background = 19_981,
                &["19991 idle", "19990 descriptors (of 20000", "--idle", "--conns", "ulimit -n"],
            ),
            (
                |_, demand| (demand.shared, demand.conns_max) = (401, 500),
                &["501 idle", "--max-conns 500", "--conns", "raise --max-conns"],
            ),
            (
                |resources, demand| (resources.open_files, demand.background) = (100_000, 28_223),
                &["28233 idle", "28232 ports (sources 1 x ports 28232 x", "--source", "widen"],
            ),
            (
                |_, demand| demand.conns_per_s = 1e9,
                &["at 1000000000 connections a second, 1000110 open", "19990 desc", "--rate"],
            ),
            (
                |_, demand| (demand.conns_per_s, demand.conns_max) = (90_001.0, 200),
                &["at 90001 connections a second, 201 open", "--max-conns 200 allow", "--rate"],
            ),
            (
                |_, demand| demand.conns_per_s = 1000.0,
                &[
                    "1000 connections a second that this side closes",
                    "for 60 s each",
                    "enough for 468 a second",
                    "--close server",
                    "--close reset",
                    "--rate",
                    "3 source addresses (--source)",
                ],
            ),
            (
                |resources, demand| {
                    (resources.tw_reuse_s, demand.conns_per_s) = (Some(1.0), 29_000.0);
                },
                &["for 1 s each", "enough for 28093 a second", "2 source addresses"],
            ),
            (
                |resources, demand| (resources.ports, demand.background, demand.shared) = (0, 0, 0),
                &["1 open at once", "0 ports", "--source", "ip_local_port_range"],
            ),
        ];
        for (change, parts) in table {
            let (mut resources, mut demand) = (resources(), demand());
            change(&mut resources, &mut demand);
            let refused = check(&resources, &demand).unwrap_err();
            assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
        }
    }

    #[test]
    fn a_run_takes_no_more_than_it_opens_in_all() {
        // At this rate a millisecond would be too many already.
        let few = Demand { conns_per_s: 1e9, conns_total: 1000, ..demand() };
        assert_eq!(check(&resources(), &few).unwrap().open_if_stalled, 1110);
        let most = Demand { conns_total: 28_232 - 110, conns_per_s: 1000.0, ..demand() };
        assert!(check(&resources(), &most).is_ok());
        let more = Demand { conns_total: most.conns_total + 1, ..most };
        let refused = check(&resources(), &more).unwrap_err();
        assert!(refused.contains("give 2 source addresses"), "{refused}");
    }

    #[test]
    fn the_last_that_fits_is_not_refused() {
        let table = [
            Demand { threads: 2, ..demand() },
            Demand { background: 19_979, client_closes: false, ..demand() },
            Demand { conns_max: 111, ..demand() },
            Demand { conns_per_s: 468.0, ..demand() },
            Demand { conns_per_s: 1e6, client_closes: false, ..demand() },
            Demand { conns_per_s: 2800.0, duration_s: 10.0, ..demand() },
        ];
        for demand in table {
            assert!(check(&resources(), &demand).is_ok(), "{demand:?}");
        }
        let more = Resources { sources: 3, ..resources() };
        assert!(check(&more, &Demand { conns_per_s: 1000.0, ..demand() }).is_ok());
        let reused = Resources { tw_reuse_s: Some(1.0), ..resources() };
        assert!(check(&reused, &Demand { conns_per_s: 28_000.0, ..demand() }).is_ok());
    }
}
