//! Busy time of processors, measured by a program that counts while they have nothing else to do:
//! the method of chandra-dispatch (section 3.1.1), with a priority that lets everything else go
//! first.
//!
//! On each processor a thread of the policy SCHED_IDLE repeats a fixed piece of work and counts.
//! With the rate at which it counts on the idle processor, the count over a window tells the idle
//! time in it, and so the busy time: of programs, of the kernel and of interrupts, whoever they are
//! charged to. The kernel's own account (/proc/stat) samples at ticks, and charges packets handled
//! in interrupts to whatever they interrupt.
//!
//! The idle rate is the median of short windows, because the host takes time in pieces.
//!
//! Limits: a busy processor gives the spinner 0.3 %, so 100 % reads as 99.7 %; a
//! processor that would sleep deeply when idle never does so, and wakes faster.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_sys::process::{pin_thread, run_when_idle, thread_cpu_clock_ns, thread_usage};

use crate::record::CoreTime;

/// Additions in a unit of the spinner's work: about a microsecond, much longer than the clock takes
/// to read.
const ADDITIONS: u64 = 2000;
/// Gap in the spinner's work from which it counts as stolen if no other thread ran: an interrupt
/// and the packets handled after it take less.
const STOLEN_MIN: Duration = Duration::from_micros(500);
/// Length of the windows whose median is the idle rate.
const CALIBRATION_WINDOW: Duration = Duration::from_millis(20);

/// Time within which a spinner must run: one beside threads that never sleep gets its first time
/// slice within a second.
const READY_MAX: Duration = Duration::from_secs(5);

/// Counters of one spinner, written by it alone.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counts {
    /// Units of work done.
    units: AtomicU64,
    /// Processor time charged to the spinner, nanoseconds.
    cpu_ns: AtomicU64,
    /// Time in which it was neither running nor replaced by another thread, nanoseconds.
    stolen_ns: AtomicU64,
    /// True once it runs on its processor.
    is_ready: AtomicBool,
}

/// A spinner on each of some processors. Dropping it ends them.
#[derive(Debug)]
pub struct IdleCounter {
    /// The processors, each with the counts of its spinner.
    counts: Vec<(usize, Arc<Counts>)>,
    threads: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

/// The spinners' counts at an instant.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Instant,
    cpus: Vec<CpuReading>,
}

/// The counts of one spinner.
#[derive(Clone, Copy, Debug)]
struct CpuReading {
    cpu: usize,
    units: u64,
    cpu_ns: u64,
    stolen_ns: u64,
}

/// Rates of the spinners on idle processors, units per second, in the order of a [`Reading`].
#[derive(Clone, Debug)]
pub struct IdleRates(Vec<f64>);

impl IdleCounter {
    /// Starts a spinner on each of these processors, and waits until all of them run.
    ///
    /// # Errors
    /// Returns a sentence if a thread cannot be created, pinned or given its policy.
    pub fn start(cpus: &[usize]) -> Result<Self, String> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut counter = Self { counts: Vec::new(), threads: Vec::new(), is_over };
        let mut cpus = cpus.to_vec();
        cpus.sort_unstable();
        cpus.dedup();
        for cpu in cpus {
            let counts = Arc::new(Counts::default());
            let (own, is_over) = (Arc::clone(&counts), Arc::clone(&counter.is_over));
            let thread = thread::Builder::new()
                .name("idle-counter".to_owned())
                .spawn(move || {
                    // A spinner that is not where it should be would count something else.
                    if pin_thread(cpu).and_then(|()| run_when_idle()).is_ok() {
                        spin(&own, &is_over);
                    }
                })
                .map_err(|error| format!("no thread for an idle counter: {error}"))?;
            counter.counts.push((cpu, counts));
            counter.threads.push(thread);
        }
        counter.await_ready()?;
        Ok(counter)
    }

    fn await_ready(&self) -> Result<(), String> {
        let is_ready = |(_, counts): &(usize, Arc<Counts>)| counts.is_ready.load(Ordering::Acquire);
        let latest = Instant::now() + READY_MAX;
        while Instant::now() < latest {
            if self.counts.iter().all(is_ready) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let cpu = self.counts.iter().find(|counts| !is_ready(counts)).map_or(0, |(cpu, _)| *cpu);
        Err(format!("no idle counter runs on processor {cpu}"))
    }

    /// Returns the counts now.
    pub fn read(&self) -> Reading {
        let of = |(cpu, counts): &(usize, Arc<Counts>)| CpuReading {
            cpu: *cpu,
            units: counts.units.load(Ordering::Relaxed),
            cpu_ns: counts.cpu_ns.load(Ordering::Relaxed),
            stolen_ns: counts.stolen_ns.load(Ordering::Relaxed),
        };
        Reading { at: Instant::now(), cpus: self.counts.iter().map(of).collect() }
    }

    /// Measures for a time the rates on processors that are idle now.
    pub fn calibrate(&self, time: Duration) -> IdleRates {
        let mut rates = vec![Vec::new(); self.counts.len()];
        let mut before = self.read();
        let until = before.at + time;
        while before.at < until {
            thread::sleep(CALIBRATION_WINDOW);
            let now = self.read();
            for (index, rates) in rates.iter_mut().enumerate() {
                rates.push(now.rate_since(&before, index));
            }
            before = now;
        }
        IdleRates(rates.iter().map(|rates| weir_stats::median(rates).unwrap_or(0.0)).collect())
    }
}

impl Drop for IdleCounter {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Reading {
    fn seconds_since(&self, before: &Self) -> f64 {
        self.at.duration_since(before.at).as_secs_f64()
    }

    /// Returns the rate of the spinner at `index` since `before`, units per second.
    fn rate_since(&self, before: &Self, index: usize) -> f64 {
        let units = self.cpus[index].units - before.cpus[index].units;
        units as f64 / self.seconds_since(before)
    }

    /// Returns the use of some of the processors since `before`, with the idle rates measured
    /// before and after; the time stolen is that since `first`.
    pub fn core_time(
        &self,
        before: &Self,
        first: &Self,
        rates: [&IdleRates; 2],
        cpus: &[usize],
    ) -> CoreTime {
        let window_s = self.seconds_since(before);
        let mut time = CoreTime::default();
        let (mut ran_ns, mut stolen_ns) = (0, 0);
        for (index, now) in self.cpus.iter().enumerate().filter(|(_, now)| cpus.contains(&now.cpu))
        {
            let [first_rate, last_rate] = rates.map(|rates| rates.0[index]);
            let idle = self.rate_since(before, index) * 2.0 / (first_rate + last_rate).max(1.0);
            time.total_s += window_s;
            time.busy_s += window_s * (1.0 - idle.min(1.0));
            time.spinner_s += (now.cpu_ns - before.cpus[index].cpu_ns) as f64 / 1e9;
            // A processor that others used up in a calibration has changed beyond measure.
            let drift = (last_rate / first_rate - 1.0).abs();
            time.drift = time.drift.max(if drift.is_finite() { drift } else { 1.0 });
            time.idle_per_s += (first_rate + last_rate) / 2.0 / cpus.len() as f64;
            ran_ns += now.cpu_ns - first.cpus[index].cpu_ns;
            stolen_ns += now.stolen_ns - first.cpus[index].stolen_ns;
        }
        time.stolen_share = stolen_ns as f64 / (ran_ns as f64).max(1.0);
        time
    }
}

/// Counts until it is over.
fn spin(counts: &Counts, is_over: &AtomicBool) {
    let (mut units, mut stolen_ns) = (0, 0);
    let mut switches = thread_usage().switches_involuntary;
    let mut last = Instant::now();
    let mut published = last;
    counts.is_ready.store(true, Ordering::Release);
    while !is_over.load(Ordering::Relaxed) {
        work();
        units += 1;
        counts.units.store(units, Ordering::Relaxed);
        let now = Instant::now();
        let gap = now - last;
        if gap >= STOLEN_MIN {
            let switches_now = thread_usage().switches_involuntary;
            if switches_now == switches {
                stolen_ns += gap.as_nanos() as u64;
                counts.stolen_ns.store(stolen_ns, Ordering::Relaxed);
            }
            switches = switches_now;
        }
        if now - published >= Duration::from_millis(1) {
            counts.cpu_ns.store(thread_cpu_clock_ns(), Ordering::Relaxed);
            published = now;
        }
        last = now;
    }
}

/// The fixed piece of work.
fn work() {
    let mut sum = 0_u64;
    for addend in 0..ADDITIONS {
        sum = black_box(sum.wrapping_add(addend));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of two processors of 1000 units per second when idle, 2 s apart.
    fn readings(units: [u64; 2], cpu_ms: [u64; 2]) -> [Reading; 2] {
        let at = Instant::now();
        let of = |at, units: [u64; 2], cpu_ms: [u64; 2]| {
            let cpus = (0..2).map(|index| CpuReading {
                cpu: 4 + index,
                units: units[index],
                cpu_ns: cpu_ms[index] * 1_000_000,
                stolen_ns: cpu_ms[index] * 10_000,
            });
            Reading { at, cpus: cpus.collect() }
        };
        [of(at, [0; 2], [0; 2]), of(at + Duration::from_secs(2), units, cpu_ms)]
    }

    #[test]
    fn time_without_counts_is_busy() {
        let [before, after] = readings([500, 2000], [500, 2000]);
        let rates = IdleRates(vec![1000.0, 1000.0]);
        let time = |cpus: &[usize]| after.core_time(&before, &before, [&rates, &rates], cpus);
        let one = time(&[4]);
        assert_eq!((one.total_s, one.busy_s, one.spinner_s), (2.0, 1.5, 0.5));
        assert!((one.stolen_share - 0.01).abs() < 1e-9 && one.drift == 0.0);
        let both = time(&[4, 5]);
        assert_eq!((both.total_s, both.busy_s), (4.0, 1.5));
        assert_eq!(time(&[7]), CoreTime::default(), "no spinner is there");
    }

    #[test]
    fn the_idle_rate_is_the_mean_of_both_and_their_difference_the_drift() {
        let [before, after] = readings([1100, 3000], [1000, 2000]);
        let rates = [IdleRates(vec![1000.0, 1000.0]), IdleRates(vec![1200.0, 1000.0])];
        let rates = [&rates[0], &rates[1]];
        let time = after.core_time(&before, &before, rates, &[4]);
        assert!((time.busy_s - 1.0).abs() < 1e-9 && (time.drift - 0.2).abs() < 1e-9, "{time:?}");
        assert_eq!(time.idle_per_s, 1100.0);
        let time = after.core_time(&before, &before, rates, &[5]);
        assert_eq!(time.busy_s, 0.0, "faster than idle is idle");
        let none = IdleRates(vec![0.0, 0.0]);
        for rates in [[&none, &none], [&none, rates[0]], [rates[0], &none]] {
            let time = after.core_time(&before, &before, rates, &[4]);
            assert!(time.drift >= 1.0 && time.drift.is_finite() && time.busy_s.is_finite());
        }
    }

    #[test]
    fn a_counter_counts_on_its_processor_and_ends() {
        let cpu = weir_sys::process::allowed_cpus().unwrap()[0];
        let counter = IdleCounter::start(&[cpu, cpu]).unwrap();
        let before = counter.read();
        let rates = counter.calibrate(Duration::from_millis(100));
        assert_eq!((before.cpus.len(), rates.0.len()), (1, 1), "one spinner per processor");
        // Others may keep the processor from it for a while.
        let latest = Instant::now() + READY_MAX;
        while counter.read().cpus[0].units == before.cpus[0].units {
            assert!(Instant::now() < latest, "it does not count");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(IdleCounter::start(&[9999]).is_err());
    }
}
