//! Accuracy of the idle counter: loads of known cost on one processor, with the busy time that the
//! idle counter and the kernel's ticks (/proc/stat) report beside the truth. Prints a Markdown
//! page.
//!
//! `cargo run --release -p weir-lab --example idle_counter -- CPU OTHER_CPU > FILE`
//!
//! A load by bursts works and sleeps in turn. Its truth is its own processor time, which the kernel
//! accounts exactly (CLOCK_THREAD_CPUTIME_ID), and, apart, what each sleep costs beyond that: timer
//! interrupt and switches, measured by the same counter with bursts of no work. A load by packets
//! answers datagrams from the other processor with some work for each. What a packet itself costs
//! is not known: its truth is a difference, between the same packets with and without work.

use std::fs;
use std::hint::black_box;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_lab::measure::idle_counter::IdleCounter;
use weir_lab::record::CoreTime;
use weir_sys::process::{pin_thread, set_timer_slack, thread_cpu_clock_ns};

/// Length of a measurement.
const WINDOW: Duration = Duration::from_secs(3);
/// Length of a calibration.
const CALIBRATION: Duration = Duration::from_millis(400);
/// Time for which a load runs before it is measured.
const SETTLING: Duration = Duration::from_millis(100);
/// Shares of the processor that the loads take, %.
const SHARES: [f64; 5] = [5.0, 20.0, 50.0, 80.0, 95.0];
/// Share above which a processor is full: the sleeps take what the bursts leave, %.
const REACHABLE: f64 = 98.0;
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
    doubt: String,
}

fn main() -> Result<(), Failure> {
    let mut cpus = std::env::args().skip(1).map(|cpu| cpu.parse::<usize>());
    let cpu = cpus.next().unwrap_or(Ok(0))?;
    let other = cpus.next().unwrap_or(Ok(1))?;
    pin_thread(other)?;
    println!("# Accuracy of the idle counter\n");
    println!("All figures are % of one processor, over {} s.\n", WINDOW.as_secs());
    bursts(cpu)?;
    packets(cpu, other)?;
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

/// Rounds of a comparison, each with and without.
const ROUNDS: usize = 8;
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
        move || -> std::io::Result<u64> {
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
    let asking = thread::spawn(move || -> std::io::Result<Vec<f64>> {
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

fn bursts(cpu: usize) -> Result<(), Failure> {
    println!("## Bursts\n");
    println!(
        "| burst, us | wanted | load's own time | sleeps | truth | counter | off | ticks | off |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for burst_us in BURSTS_US {
        for share in SHARES {
            let cycle_us = burst_us as f64 * 100.0 / share;
            // The sleep's own end: bursts of no work at the same rate.
            let idle = measure(cpu, move |is_over| in_bursts(cpu, 0, cycle_us, is_over))?;
            let sleeps = idle.counter - idle.own;
            let got = measure(cpu, move |is_over| in_bursts(cpu, burst_us, cycle_us, is_over))?;
            let ticks = by_ticks(cpu, move |is_over| in_bursts(cpu, burst_us, cycle_us, is_over))?;
            let truth = got.own + sleeps;
            if truth > REACHABLE {
                println!("| {burst_us} | {share} | {:.2} | {sleeps:.2} | full | | | | |", got.own);
                continue;
            }
            println!(
                "| {burst_us} | {share} | {:.2} | {sleeps:.2} | {truth:.2} | {:.2} | {:+.2} | \
                 {ticks:.2} | {:+.2} |{}",
                got.own,
                got.counter,
                got.counter - truth,
                ticks - truth,
                got.doubt
            );
        }
    }
    println!();
    Ok(())
}

fn packets(cpu: usize, other: usize) -> Result<(), Failure> {
    println!("## Packets\n");
    println!("| packets per s | work, us | counter without | with | difference | truth | off |");
    println!("|--:|--:|--:|--:|--:|--:|--:|");
    let per_us = additions_per_us(cpu)?;
    for (rate, work_us) in [(1000, 50), (10_000, 20), (10_000, 50), (20_000, 20), (40_000, 10)] {
        let without = by_packets(cpu, other, rate, 0)?;
        let with = by_packets(cpu, other, rate, (per_us * f64::from(work_us)) as u64)?;
        let (less, more) = (without.0.counter, with.0.counter);
        let truth = with.1 as f64 * f64::from(work_us) / 1e6 / WINDOW.as_secs_f64() * 100.0;
        let found = more - less;
        println!(
            "| {rate} | {work_us} | {less:.2} | {more:.2} | {found:.2} | {truth:.2} | {:+.2} |{}",
            found - truth,
            with.0.doubt
        );
    }
    Ok(())
}

/// Measures a processor while a load runs, which returns its own time in nanoseconds.
fn measure(
    cpu: usize,
    load: impl FnOnce(&AtomicBool) -> u64 + Send + 'static,
) -> Result<Shares, Failure> {
    let counter = IdleCounter::start(&[cpu])?;
    let first = counter.read();
    let before_rates = counter.calibrate(CALIBRATION);
    let is_over = Arc::new(AtomicBool::new(false));
    let running = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let began = Instant::now();
            load(&is_over) as f64 / began.elapsed().as_nanos() as f64
        }
    });
    thread::sleep(SETTLING);
    let before = counter.read();
    thread::sleep(WINDOW);
    let after = counter.read();
    is_over.store(true, Ordering::Relaxed);
    let own_share = running.join().map_err(|_| "the load panicked")?;
    let rates = [&before_rates, &counter.calibrate(CALIBRATION)];
    let time: CoreTime = after.core_time(&before, &first, rates, &[cpu]);
    Ok(Shares {
        counter: 100.0 * time.busy_s / time.total_s,
        own: 100.0 * own_share,
        doubt: if time.drift > 0.03 || time.stolen_share > 0.03 {
            format!(" drift {:.1} %, stolen {:.1} %", 100.0 * time.drift, 100.0 * time.stolen_share)
        } else {
            String::new()
        },
    })
}

/// Measures a processor by the kernel's ticks while a load runs, without the counter, whose own
/// time they would include.
fn by_ticks(
    cpu: usize,
    load: impl FnOnce(&AtomicBool) -> u64 + Send + 'static,
) -> Result<f64, Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let running = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || load(&is_over)
    });
    thread::sleep(SETTLING);
    let (ticks, at) = (busy_ticks(cpu)?, Instant::now());
    thread::sleep(WINDOW);
    let (ticks, window_s) = (busy_ticks(cpu)? - ticks, at.elapsed().as_secs_f64());
    is_over.store(true, Ordering::Relaxed);
    running.join().map_err(|_| "the load panicked")?;
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    Ok(100.0 * ticks as f64 / ticks_per_s / window_s)
}

/// Works for `burst_us` at the start of each cycle.
fn in_bursts(cpu: usize, burst_us: u64, cycle_us: f64, is_over: &AtomicBool) -> u64 {
    if pin_thread(cpu).is_err() || set_timer_slack().is_err() {
        return 0;
    }
    let (began, began_ns) = (Instant::now(), thread_cpu_clock_ns());
    let mut cycles = 0.0;
    while !is_over.load(Ordering::Relaxed) {
        let at = Instant::now();
        while at.elapsed().as_micros() < u128::from(burst_us) {}
        cycles += 1.0;
        let next = began + Duration::from_nanos((cycles * cycle_us * 1000.0) as u64);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    thread_cpu_clock_ns() - began_ns
}

/// Measures a processor that answers datagrams with some work for each; returns their number in the
/// window too.
fn by_packets(
    cpu: usize,
    other: usize,
    rate: u32,
    additions: u64,
) -> Result<(Shares, u64), Failure> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    receiver.set_read_timeout(Some(Duration::from_millis(50)))?;
    let to = receiver.local_addr()?;
    let answered = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let sender = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || send(to, other, rate, &is_over)
    });
    let shares = measure(cpu, {
        let answered = Arc::clone(&answered);
        move |is_over| {
            let began_ns = thread_cpu_clock_ns();
            let mut bytes = [0; 64];
            let _ = pin_thread(cpu);
            while !is_over.load(Ordering::Relaxed) {
                if receiver.recv(&mut bytes).is_ok() {
                    work(additions);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
            thread_cpu_clock_ns() - began_ns
        }
    })?;
    is_over.store(true, Ordering::Relaxed);
    sender.join().map_err(|_| "the sender panicked")??;
    let whole_s = WINDOW.as_secs_f64() + 0.1;
    let in_window = answered.load(Ordering::Relaxed) as f64 * WINDOW.as_secs_f64() / whole_s;
    Ok((shares, in_window as u64))
}

fn send(
    to: std::net::SocketAddr,
    cpu: usize,
    rate: u32,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
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
    let measured = thread::spawn(move || -> std::io::Result<f64> {
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
