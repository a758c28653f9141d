//! Accuracy of the idle counter: loads of known cost on one processor, with the busy time that the
//! idle counter and the kernel's ticks (/proc/stat) report beside the truth. Prints a Markdown
//! page.
//!
//! `cargo run --release -p weir-lab --example idle_counter -- CPU OTHER_CPU > FILE`
//!
//! A load by bursts works and sleeps in turn; one by packets waits for datagrams from the other
//! processor and works for each. The truth is the load's own processor time, which the kernel
//! accounts exactly (CLOCK_THREAD_CPUTIME_ID), and what each wait costs beyond that: interrupt and
//! switches, measured by the same counter with the same load without work, in the same round.

use std::fs;
use std::hint::black_box;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_lab::measure::idle_counter::IdleCounter;
use weir_lab::record::CoreTime;
use weir_sys::process::{pin_thread, set_timer_slack, thread_cpu_clock_ns, thread_usage};

/// Shortest window of a measurement; it is a whole number of bursts.
const WINDOW: Duration = Duration::from_millis(400);
/// Length of a calibration. There is one before and one after each window.
const CALIBRATION: Duration = Duration::from_millis(100);
/// Time for which a load runs before it is measured.
const SETTLING: Duration = Duration::from_millis(50);
/// Shares of the processor that the loads take, %.
const SHARES: [f64; 5] = [5.0, 20.0, 50.0, 80.0, 95.0];
/// Share above which a processor is full: the sleeps take what the bursts leave, %.
const REACHABLE: f64 = 98.0;
/// Number of rounds of a comparison.
const ROUNDS: usize = 16;
/// Shortest window of the kernel's ticks, which are 4 ms or 10 ms long.
const TICKS_WINDOW: Duration = Duration::from_secs(1);
/// Additions of a sample of the processor's speed.
const ADDITIONS: u64 = 1_000_000;
/// Lengths of the bursts, microseconds.
const BURSTS_US: [u64; 4] = [10, 100, 1000, 50_000];

type Failure = Box<dyn std::error::Error>;

/// Shares of a processor over a measurement, %.
struct Shares {
    counter: f64,
    /// The load's own processor time.
    own: f64,
    /// Number of times per second that it waited.
    waits_per_s: f64,
    /// True if the idle processor was 3 % more or less idle after than before, or the host took
    /// more than 3 %.
    is_doubted: bool,
}

fn main() -> Result<(), Failure> {
    let mut cpus = std::env::args().skip(1).map(|cpu| cpu.parse::<usize>());
    let cpu = cpus.next().unwrap_or(Ok(0))?;
    let other = cpus.next().unwrap_or(Ok(1))?;
    pin_thread(other)?;
    println!("# Accuracy of the idle counter\n");
    println!(
        "All figures are % of one processor, medians of {ROUNDS} rounds of {} ms or a little more, \
         each between two calibrations of {} ms. Rounds in which the idle processor was 3 % more \
         or less idle after than before, or the host took more than 3 %, are left out, as the \
         lab does.\n",
        WINDOW.as_millis(),
        CALIBRATION.as_millis()
    );
    let ticks = bursts_by_ticks(cpu)?;
    // On both: a sibling that is idle in one window and busy in the other changes the speed.
    let counter = IdleCounter::start(&[cpu, other])?;
    bursts(&counter, cpu, ticks)?;
    packets(&counter, [cpu, other])?;
    drop(counter);
    cost(cpu, other)?;
    Ok(())
}

/// Prints what the counter does to the loads that it measures: the same loads with and without it.
fn cost(cpu: usize, other: usize) -> Result<(), Failure> {
    println!("\n## Cost of the counter\n");
    println!(
        "Medians of {ROUNDS} alternating rounds. A request is a datagram that is answered; its \
         time is the server's processor time, its round trip the client's.\n"
    );
    println!("| load | without | with | ratio | least | greatest |");
    println!("|---|--:|--:|--:|--:|--:|");
    let mut rows = Rows::default();
    for round in 0..2 * ROUNDS {
        let is_counted = round % 2 == 1;
        let counter = is_counted.then(|| IdleCounter::start(&[cpu])).transpose()?;
        for rate in [1000, 10_000] {
            let (server_us, trip_us) = answered(cpu, other, rate)?;
            rows.put(format!("{rate} requests per s: server time, us"), is_counted, server_us);
            rows.put(format!("{rate} requests per s: round trip, us"), is_counted, trip_us);
        }
        let work_us = 1e3 / additions_per_us(cpu)?;
        rows.put("a thousand additions, us".to_owned(), is_counted, work_us);
        drop(counter);
    }
    rows.print();
    Ok(())
}

/// Length of a round of requests.
const ROUND: Duration = Duration::from_millis(600);

/// Values by name, without and with the counter.
#[derive(Default)]
struct Rows(std::collections::BTreeMap<String, [Vec<f64>; 2]>);

impl Rows {
    fn put(&mut self, name: String, is_counted: bool, value: f64) {
        self.0.entry(name).or_default()[usize::from(is_counted)].push(value);
    }

    fn print(&self) {
        for (name, [without, with]) in &self.0 {
            let ratios: Vec<f64> =
                with.iter().zip(without).map(|(with, without)| with / without).collect();
            let median = |values: &[f64]| weir_stats::median(values).unwrap_or(f64::NAN);
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = ratios.iter().copied().fold(0.0, f64::max);
            println!(
                "| {name} | {:.2} | {:.2} | {:.3} | {least:.3} | {greatest:.3} |",
                median(without),
                median(with),
                median(&ratios)
            );
        }
    }
}

/// Answers datagrams for a round; returns the server's processor time per answer and the median
/// round trip, microseconds.
fn answered(cpu: usize, other: usize, rate: u32) -> Result<(f64, f64), Failure> {
    let server = UdpSocket::bind("127.0.0.1:0")?;
    server.set_read_timeout(Some(Duration::from_millis(50)))?;
    let to = server.local_addr()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let serving = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || -> io::Result<u64> {
            pin_thread(cpu)?;
            let began_ns = thread_cpu_clock_ns();
            let mut bytes = [0; 64];
            while !is_over.load(Ordering::Relaxed) {
                if let Ok((_, from)) = server.recv_from(&mut bytes) {
                    server.send_to(&bytes[..16], from)?;
                }
            }
            Ok(thread_cpu_clock_ns() - began_ns)
        }
    });
    let asking = thread::spawn(move || -> io::Result<Vec<f64>> {
        pin_thread(other)?;
        let client = UdpSocket::bind("127.0.0.1:0")?;
        client.set_read_timeout(Some(Duration::from_millis(50)))?;
        let began = Instant::now();
        let mut trips = Vec::new();
        while began.elapsed() < ROUND {
            spin_until_due(began, trips.len() as f64, rate);
            let at = Instant::now();
            client.send_to(&[0; 16], to)?;
            let _ = client.recv(&mut [0; 64]);
            trips.push(at.elapsed().as_secs_f64() * 1e6);
        }
        Ok(trips)
    });
    let trips = asking.join().map_err(|_| "the client panicked")??;
    is_over.store(true, Ordering::Relaxed);
    let ran_ns = serving.join().map_err(|_| "the server panicked")??;
    let trip_us = weir_stats::median(&trips).ok_or("no answer")?;
    Ok((ran_ns as f64 / 1e3 / trips.len() as f64, trip_us))
}

/// Measures every load by bursts by the kernel's ticks, %.
fn bursts_by_ticks(cpu: usize) -> Result<Vec<f64>, Failure> {
    let loads = BURSTS_US.into_iter().flat_map(|burst_us| SHARES.map(|share| (burst_us, share)));
    let measured = loads.map(|(burst_us, share)| {
        let cycle_us = burst_us as f64 * 100.0 / share;
        let window = TICKS_WINDOW.max(whole_cycles(cycle_us));
        by_ticks(cpu, window, move |is_over| in_bursts(cpu, burst_us, cycle_us, is_over))
    });
    measured.collect()
}

fn bursts(counter: &IdleCounter, cpu: usize, ticks: Vec<f64>) -> Result<(), Failure> {
    let mut ticks = ticks.into_iter();
    println!("## Bursts\n");
    println!(
        "| burst, us | wanted | load's own time | waits | truth | off, median | off, middle half | \
         rounds | ticks, off |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for burst_us in BURSTS_US {
        for share in SHARES {
            let cycle_us = burst_us as f64 * 100.0 / share;
            let window = whole_cycles(cycle_us);
            let load =
                move |burst_us| move |over: &AtomicBool| in_bursts(cpu, burst_us, cycle_us, over);
            let mut rounds = Rounds::default();
            for _ in 0..ROUNDS {
                let idle = measure(counter, cpu, window, load(0))?;
                rounds.add(&idle, &measure(counter, cpu, window, load(burst_us))?);
            }
            let row = rounds.row();
            let ticks = ticks.next().ok_or("no ticks")?;
            println!("| {burst_us} | {share} | {row} {:+.2} |", ticks - rounds.truth());
        }
    }
    println!();
    Ok(())
}

/// Returns the shortest window that is long enough and a whole number of cycles.
fn whole_cycles(cycle_us: f64) -> Duration {
    let cycles = (WINDOW.as_secs_f64() * 1e6 / cycle_us).ceil();
    Duration::from_secs_f64(cycles * cycle_us / 1e6)
}

/// Rounds of one load: the load's own time, the truth, and the counter's distance from it, %.
#[derive(Default)]
struct Rounds {
    own: Vec<f64>,
    truths: Vec<f64>,
    off: Vec<f64>,
}

impl Rounds {
    /// Adds a round, unless it is in doubt. The truth is the
    /// load's own time and what its waits cost besides, which `idle` tells: the same load without
    /// work.
    fn add(&mut self, idle: &Shares, got: &Shares) {
        let each = (idle.counter - idle.own) / idle.waits_per_s.max(1.0);
        let truth = got.own + each * got.waits_per_s;
        self.own.push(got.own);
        self.truths.push(truth);
        if !(idle.is_doubted || got.is_doubted) {
            self.off.push(got.counter - truth);
        }
    }

    fn truth(&self) -> f64 {
        weir_stats::median(&self.truths).unwrap_or(f64::NAN)
    }

    /// Returns the last columns of a row.
    fn row(&self) -> String {
        let (truth, own) = (self.truth(), weir_stats::median(&self.own).unwrap_or(f64::NAN));
        let front = format!("{own:.2} | {:.2} | {truth:.2}", truth - own);
        if truth > REACHABLE {
            return format!("{front} | full | | |");
        }
        let at = |q| weir_stats::quantile(&self.off, q).unwrap_or(f64::NAN);
        let (low, median, high) = (at(0.25), at(0.5), at(0.75));
        format!("{front} | {median:+.2} | {low:+.2} to {high:+.2} | {} |", self.off.len())
    }
}

fn packets(counter: &IdleCounter, cpus: [usize; 2]) -> Result<(), Failure> {
    println!("## Packets\n");
    println!(
        "| packets per s | work, us | load's own time | waits | truth | off, median | \
         off, middle half | rounds |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|");
    let per_us = additions_per_us(cpus[0])?;
    for (rate, work_us) in [(1000, 50), (10_000, 20), (10_000, 50), (20_000, 20), (40_000, 10)] {
        let mut rounds = Rounds::default();
        for _ in 0..ROUNDS {
            let idle = by_packets(counter, cpus, rate, 0)?;
            let additions = (per_us * f64::from(work_us)) as u64;
            let got = by_packets(counter, cpus, rate, additions)?;
            rounds.add(&idle, &got);
        }
        println!("| {rate} | {work_us} | {}", rounds.row());
    }
    Ok(())
}

/// Measures a processor while a load runs on it.
fn measure(
    counter: &IdleCounter,
    cpu: usize,
    window: Duration,
    load: impl FnOnce(&AtomicBool) -> io::Result<()> + Send + 'static,
) -> Result<Shares, Failure> {
    let first = counter.read();
    let shares_before = counter.calibrate(CALIBRATION);
    let is_over = Arc::new(AtomicBool::new(false));
    let running = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || -> io::Result<(f64, f64)> {
            let (began, began_ns) = (Instant::now(), thread_cpu_clock_ns());
            let waits = thread_usage().switches_voluntary;
            load(&is_over)?;
            let own_ns = thread_cpu_clock_ns() - began_ns;
            let waits = thread_usage().switches_voluntary - waits;
            let seconds = began.elapsed().as_secs_f64();
            Ok((own_ns as f64 / 1e9 / seconds, waits as f64 / seconds))
        }
    });
    thread::sleep(SETTLING);
    let before = counter.read();
    thread::sleep(window);
    let after = counter.read();
    is_over.store(true, Ordering::Relaxed);
    let (own_share, waits_per_s) = running.join().map_err(|_| "the load panicked")??;
    let shares = [&shares_before, &counter.calibrate(CALIBRATION)];
    let time: CoreTime = after.core_time(&before, &first, shares, &[cpu]);
    Ok(Shares {
        counter: 100.0 * time.busy_s / time.total_s,
        own: 100.0 * own_share,
        waits_per_s,
        is_doubted: time.drift > 0.03 || time.stolen_share > 0.03,
    })
}

/// Measures a processor by the kernel's ticks while a load runs, without the counter, whose own
/// time they would include.
fn by_ticks(
    cpu: usize,
    window: Duration,
    load: impl FnOnce(&AtomicBool) -> io::Result<()> + Send + 'static,
) -> Result<f64, Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let running = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || load(&is_over)
    });
    thread::sleep(SETTLING);
    let (ticks, at) = (busy_ticks(cpu)?, Instant::now());
    thread::sleep(window);
    let (ticks, window_s) = (busy_ticks(cpu)? - ticks, at.elapsed().as_secs_f64());
    is_over.store(true, Ordering::Relaxed);
    running.join().map_err(|_| "the load panicked")??;
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    Ok(100.0 * ticks as f64 / ticks_per_s / window_s)
}

/// Works for `burst_us` at the start of each cycle.
fn in_bursts(cpu: usize, burst_us: u64, cycle_us: f64, is_over: &AtomicBool) -> io::Result<()> {
    pin_thread(cpu)?;
    set_timer_slack()?;
    let began = Instant::now();
    let mut cycles = 0.0;
    while !is_over.load(Ordering::Relaxed) {
        let at = Instant::now();
        while at.elapsed().as_micros() < u128::from(burst_us) {}
        cycles += 1.0;
        let next = began + Duration::from_nanos((cycles * cycle_us * 1000.0) as u64);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// Measures a processor that receives datagrams, with some work for each.
fn by_packets(
    counter: &IdleCounter,
    [cpu, other]: [usize; 2],
    rate: u32,
    additions: u64,
) -> Result<Shares, Failure> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    receiver.set_read_timeout(Some(Duration::from_millis(50)))?;
    let to = receiver.local_addr()?;
    measure(counter, cpu, WINDOW, move |is_over| {
        pin_thread(cpu)?;
        let is_sent = Arc::new(AtomicBool::new(false));
        // What was sent before would be received at once, and be a load of its own.
        let sender = thread::spawn({
            let is_sent = Arc::clone(&is_sent);
            move || send(to, other, rate, &is_sent)
        });
        let mut bytes = [0; 64];
        while !is_over.load(Ordering::Relaxed) {
            if receiver.recv(&mut bytes).is_ok() {
                work(additions);
            }
        }
        is_sent.store(true, Ordering::Relaxed);
        // One that sent less than it should has made another load than the one that is reported.
        sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender panicked")))
    })
}

fn send(to: SocketAddr, cpu: usize, rate: u32, is_over: &AtomicBool) -> io::Result<()> {
    pin_thread(cpu)?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let began = Instant::now();
    let mut sent = 0_u32;
    while !is_over.load(Ordering::Relaxed) {
        spin_until_due(began, f64::from(sent), rate);
        socket.send_to(&[0; 16], to)?;
        sent += 1;
    }
    Ok(())
}

/// Spins until the datagram after `sent` others is due, at `rate` per second.
fn spin_until_due(began: Instant, sent: f64, rate: u32) {
    let due = began + Duration::from_secs_f64(sent / f64::from(rate));
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

/// Returns the additions that take a microsecond on an idle processor.
fn additions_per_us(cpu: usize) -> Result<f64, Failure> {
    let measured = thread::spawn(move || -> io::Result<f64> {
        pin_thread(cpu)?;
        let rate = |_| {
            let at = Instant::now();
            work(ADDITIONS);
            ADDITIONS as f64 / (at.elapsed().as_secs_f64() * 1e6)
        };
        let mut rates: Vec<f64> = (0..200).map(rate).collect();
        rates.sort_by(f64::total_cmp);
        Ok(rates[rates.len() / 2])
    });
    Ok(measured.join().map_err(|_| "the calibration panicked")??)
}

fn work(additions: u64) {
    let mut sum = 0_u64;
    for addend in 0..additions {
        sum = black_box(sum.wrapping_add(addend));
    }
}

/// Returns the ticks of /proc/stat in which a processor was not idle.
fn busy_ticks(cpu: usize) -> Result<u64, Failure> {
    let stat = fs::read_to_string("/proc/stat")?;
    let name = format!("cpu{cpu} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name)).ok_or("no such processor")?;
    let columns: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
    // user nice system idle iowait irq softirq
    Ok([0, 1, 2, 5, 6].iter().filter_map(|&column| columns.get(column)).sum())
}
