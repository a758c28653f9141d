//! Simulates one corner of the grid and prints the outcome. Asserts nothing: the bounds are in the
//! tests.

use clap::Parser;
use weir_accept::{Controls, Limit, PolicyConfig, PolicyName, Refusal, SynFilter};
use weir_sim::{
    ArrivalPattern, Class, ClientKind, Costs, Distribution, Group, MILLI_NS, Neighbour, SECOND_NS,
    Scenario,
};
use weir_sim::{Sessions, Statistics, Step, run};

/// Simulates an overloaded server.
#[derive(Parser)]
struct Options {
    /// Loads, as multiples of the capacity.
    #[arg(long, value_delimiter = ',', default_value = "0.5,1,2,4,10,20")]
    load: Vec<f64>,
    /// A request's work, µs.
    #[arg(long, default_value_t = 600.0)]
    service: f64,
    /// One request in ten takes this many times the work of the others.
    #[arg(long, default_value_t = 1.0)]
    dear: f64,
    /// Work is exponentially distributed.
    #[arg(long)]
    exponential: bool,
    /// Client timeout, ms.
    #[arg(long, default_value_t = 500)]
    timeout: u64,
    /// Round trip time, ms.
    #[arg(long, default_value_t = 0.0)]
    rtt: f64,
    /// Cores.
    #[arg(long, default_value_t = 1)]
    cores: u32,
    /// Requests a connection.
    #[arg(long, default_value_t = 1)]
    requests: u32,
    /// Between two of them, ms.
    #[arg(long, default_value_t = 0)]
    think: u64,
    /// Sessions that begin at once; 1 is Poisson, 0 is at equal distances.
    #[arg(long, default_value_t = 1)]
    burst: u32,
    /// The policy: adaptive, limit, match-close, timed, codel.
    #[arg(long, default_value = "adaptive")]
    policy: PolicyName,
    /// Its accept-limit: a number, inf or auto.
    #[arg(long, default_value = "auto")]
    limit: Limit,
    /// Controls that are off: gate,stale,… or all.
    #[arg(long)]
    controls_off: Option<String>,
    /// kernel, rst, fin or 503.
    #[arg(long, default_value = "kernel")]
    refusal: Refusal,
    /// The listen backlog.
    #[arg(long, default_value_t = 4096)]
    backlog: u32,
    /// The delay target, ms.
    #[arg(long, default_value_t = 20)]
    target: u64,
    /// Reads and replies in later phases.
    #[arg(long)]
    lazy: bool,
    /// The most connections open on one core.
    #[arg(long, default_value_t = 100_000)]
    max_conns: usize,
    /// Mute clients for each honest one.
    #[arg(long, default_value_t = 0.0)]
    mute: f64,
    /// Slow clients for each honest one.
    #[arg(long, default_value_t = 0.0)]
    slow: f64,
    /// Clients that come again at once for each honest one.
    #[arg(long, default_value_t = 0.0)]
    reconnecting: f64,
    /// Connection requests from nowhere for each honest one.
    #[arg(long, default_value_t = 0.0)]
    spoofed: f64,
    /// Clients for each honest one that keep their connection, and ask again and again.
    #[arg(long, default_value_t = 0.0)]
    keeping: f64,
    /// Between two of their requests, ms.
    #[arg(long, default_value_t = 1_500)]
    hold: u64,
    /// Addresses of the honest clients.
    #[arg(long, default_value_t = 1)]
    addresses: u32,
    /// Number of sessions of which one closes its connection; 0: none does.
    #[arg(long, default_value_t = 1)]
    closes_one_in: u32,
    /// The SYN filter: tokens, random, none.
    #[arg(long, default_value = "tokens")]
    syn_filter: SynFilter,
    /// Share of the core that a neighbour takes, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    neighbour: f64,
    /// Length of its bursts, ms.
    #[arg(long, default_value_t = 50)]
    neighbour_burst: u64,
    /// Length of its slices, ms.
    #[arg(long, default_value_t = 3)]
    neighbour_slice: u64,
    /// A measured call: name:count:time_ns, as in the statistics of weir serve --profile-calls.
    #[arg(long)]
    call: Vec<String>,
    /// Full SYN queues drop.
    #[arg(long)]
    no_syncookies: bool,
    /// The load holds from 1 s to 3 s only, of 10 s; before and after it is a half.
    #[arg(long)]
    spike: bool,
    /// Duration, s.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seed of the random draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print every window of this length, ms.
    #[arg(long)]
    windows: Option<u64>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    println!(
        "{:>5} {:>9} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7} {:>6} {:>6}",
        "load",
        "good/s",
        "%cap",
        "%can",
        "p50 ms",
        "p99 ms",
        "soj99",
        "refused",
        "timeout",
        "dropped",
        "accepted",
        "c_avg",
        "waste%",
        "oscil"
    );
    for load in &options.load {
        let scenario = scenario(&options, *load)?;
        let statistics = run(&scenario, options.seed);
        print_row(*load, &scenario, &statistics);
        if options.windows.is_some() {
            print_windows(&statistics);
        }
    }
    Ok(())
}

fn scenario(options: &Options, load: f64) -> Result<Scenario, Box<dyn std::error::Error>> {
    let off = options.controls_off.as_deref();
    let duration_ns = (options.seconds * 1e9) as u64;
    let policy = PolicyConfig {
        name: options.policy,
        limit: options.limit,
        target_ns: options.target * MILLI_NS,
        controls: off.map_or(Ok(Controls::ALL), |list| Controls::ALL.without_list(list))?,
        refusal: options.refusal,
        backlog: options.backlog,
        syn_filter: options.syn_filter,
        eager: !options.lazy,
    };
    let sessions = Sessions {
        requests: (options.requests, options.requests),
        think: Distribution::Exponential(options.think * MILLI_NS),
        closes_one_in: options.closes_one_in,
    };
    let burst_ns = options.neighbour_burst * MILLI_NS;
    let neighbour = (options.neighbour > 0.0).then_some(Neighbour {
        share: options.neighbour,
        burst_ns,
        slice_ns: options.neighbour_slice * MILLI_NS,
    });
    let calls: Vec<_> = options.call.iter().map(|row| call(row)).collect::<Result<_, _>>()?;
    let mut scenario = Scenario {
        policy,
        cores: options.cores,
        eager: !options.lazy,
        open_max: options.max_conns,
        neighbour,
        classes: classes(options),
        sessions,
        groups: groups(options),
        pattern: match options.burst {
            0 => ArrivalPattern::Constant,
            1 => ArrivalPattern::Poisson,
            size => ArrivalPattern::Bursts(size),
        },
        timeout_ns: options.timeout * MILLI_NS,
        rtt: Distribution::Fixed((options.rtt * 1e6) as u64),
        costs: Costs::calibrated(calls),
        duration_ns,
        measured_from_ns: duration_ns / 5,
        window_ns: options.windows.unwrap_or(100) * MILLI_NS,
        ..Scenario::default()
    };
    scenario.rules.syncookies = !options.no_syncookies;
    scenario = scenario.loaded(load);
    if options.spike {
        let rate = scenario.load[0].rate;
        let at = |from_ns, rate| Step { from_ns, rate };
        let half = rate / load / 2.0;
        scenario.load = vec![at(0, half), at(SECOND_NS, rate), at(3 * SECOND_NS, half)];
        scenario.duration_ns = 10 * SECOND_NS;
        scenario.measured_from_ns = 0;
    }
    Ok(scenario)
}

fn classes(options: &Options) -> Vec<Class> {
    let law = |us: f64| {
        let ns = (us * 1e3) as u64;
        if options.exponential { Distribution::Exponential(ns) } else { Distribution::Fixed(ns) }
    };
    let cheap = Class { weight: 0.9, service: law(options.service) };
    let dear = Class { weight: 0.1, service: law(options.service * options.dear) };
    vec![cheap, dear]
}

fn groups(options: &Options) -> Vec<Group> {
    let honest = Group {
        addresses: (0x0a00_0001, options.addresses),
        ..Group::new(ClientKind::Honest, 1.0)
    };
    let hostile = |kind, ratio| Group { addresses: (0x0b00_0001, 9), ..Group::new(kind, ratio) };
    let think = Distribution::Fixed(options.hold * MILLI_NS);
    let keeping = Sessions { requests: (1_000, 1_000), think, closes_one_in: 1 };
    vec![
        honest,
        hostile(ClientKind::Mute, options.mute),
        hostile(ClientKind::Slow, options.slow),
        hostile(ClientKind::Reconnecting, options.reconnecting),
        Group { addresses: (0, u32::MAX), ..hostile(ClientKind::Spoofed, options.spoofed) },
        Group { sessions: Some(keeping), ..hostile(ClientKind::Reconnecting, options.keeping) },
    ]
}

/// Parses a row of a profile: the call's name, its count and its time.
fn call(row: &str) -> Result<(&str, u64, u64), Box<dyn std::error::Error>> {
    let fields: Vec<&str> = row.split(':').collect();
    let [name, count, time_ns] = fields[..] else { return Err("name:count:time_ns".into()) };
    Ok((name, count.parse()?, time_ns.parse()?))
}

fn print_row(load: f64, scenario: &Scenario, statistics: &Statistics) {
    let requests = scenario.load[0].rate * scenario.sessions.requests_mean();
    let loops = &statistics.loops;
    let dropped = statistics.drops.listen_drops + statistics.drops.filtered;
    let good: u64 = statistics.windows.iter().map(|window| window.share.good).sum();
    println!(
        "{load:>5} {:>9.0} {:>6.1} {:>6.1} {:>8.2} {:>8.2} {:>8.2} {:>8} {:>8} {dropped:>8} {:>9} \
         {:>7.2} {:>6.1} {:>6.2}",
        statistics.goodput(),
        100.0 * statistics.goodput() / scenario.capacity(),
        100.0 * statistics.goodput() / scenario.attainable(requests),
        statistics.response.value_at_quantile(0.5) as f64 / 1e6,
        statistics.response.value_at_quantile(0.99) as f64 / 1e6,
        statistics.sojourn.value_at_quantile(0.99) as f64 / 1e6,
        statistics.total.refused,
        statistics.total.timed_out,
        loops.accepted,
        statistics.c_avg(),
        100.0 * (1.0 - good as f64 / loops.replies.max(1) as f64),
        statistics.oscillation(scenario.measured_from_ns, scenario.duration_ns),
    );
    for (index, class) in statistics.classes.iter().enumerate() {
        print!("      class {index}: {:.1} % good", 100.0 * class.good_share());
    }
    for (kind, share) in ClientKind::ALL.iter().zip(&statistics.kinds) {
        if share.offered > 0 {
            print!("      {kind:?}: {share:?}");
        }
    }
    println!("\n      {loops:?}\n      {:?}", statistics.drops);
}

fn print_windows(statistics: &Statistics) {
    for (number, window) in statistics.windows.iter().enumerate() {
        let mean_ns = window.response_sum_ns / window.share.good.max(1);
        let max_ns = window.response_max_ns;
        println!("      {number:>5} {:?} mean {mean_ns} ns, max {max_ns} ns", window.share);
    }
}
