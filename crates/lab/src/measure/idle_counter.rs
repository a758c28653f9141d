//! Busy time of processors, measured by a program that counts while they have nothing else to do:
//! the method of chandra-dispatch (section 3.1.1), with a priority that lets everything else go
//! first.
//!
//! On each processor a thread of the policy SCHED_IDLE repeats a fixed piece of work and counts.
//! What the count says of the idle time depends on how fast the processor counts, and a processor
//! that others share changes its speed by tens of percent within seconds. So the thread times each
//! piece. One that takes about as long as most do was not disturbed, and its time is idle time; of
//! one that takes longer, as much as most take is, and the rest was busy: with programs, the kernel
//! or interrupts, whoever they are charged to. The kernel's own account (/proc/stat) samples at
//! ticks, and charges packets handled in interrupts to whatever they interrupt.
//!
//! An idle processor is disturbed too, by ticks and by the host, which takes time in pieces. Its
//! idle share is measured before and after the window, as the median of short windows, and is what
//! counts as wholly idle.
//!
//! Limits: a busy processor gives the spinner 0.3 %, so 100 % reads as 99.7 %; a
//! processor that would sleep deeply when idle never does so, and wakes faster. Time that the host
//! takes is seen only while the spinner runs, hardly any of it on a busy processor.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_sys::process::{pin_thread, run_when_idle, thread_cpu_clock_ns, thread_usage};

use super::hardware::HardwareCounters;
use crate::record::CoreTime;

/// Additions in a unit of the spinner's work: about a microsecond, much longer than the clock takes
/// to read.
const ADDITIONS: u64 = 2000;
/// Time of a unit, as a multiple of that of most, from which it was disturbed: a third of a
/// microsecond, less than any interrupt takes.
const DISTURBED: f64 = 1.5;
/// Part of itself by which the time of most units is moved towards the time of each: it is their
/// median, of those of a millisecond or so.
const MEDIAN_STEP: f64 = 1.0 / 512.0;
/// Time of a unit, as a multiple of that of most, from which it tells nothing of the processor's
/// speed: another thread ran. Where units are hardly ever left alone, these would be most.
const REPLACED: f64 = 4.0;
/// Units whose shortest time begins it.
const FIRST_UNITS: u32 = 64;
/// Gap in the spinner's work from which it counts as stolen if no other thread ran: an interrupt
/// and the packets handled after it take less.
const STOLEN_MIN: Duration = Duration::from_micros(500);
/// Length of the windows whose median is the idle share.
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
    /// Time in which the processor had nothing else to do, nanoseconds.
    idle_ns: AtomicU64,
    /// Processor time charged to the spinner, nanoseconds.
    cpu_ns: AtomicU64,
    /// Time in which it was neither running nor replaced by another thread, nanoseconds.
    stolen_ns: AtomicU64,
    /// What the processor does for the spinner, if it has counters.
    hardware: OnceLock<HardwareCounters>,
    /// True once it runs on its processor.
    is_ready: AtomicBool,
}

/// A spinner, as others see it.
#[derive(Debug)]
struct Spinner {
    cpu: usize,
    counts: Arc<Counts>,
    /// What the processor does, if it has counters.
    hardware: Option<HardwareCounters>,
}

/// A spinner on each of some processors. Dropping it ends them.
#[derive(Debug)]
pub struct IdleCounter {
    spinners: Vec<Spinner>,
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
    idle_ns: u64,
    cpu_ns: u64,
    stolen_ns: u64,
    /// Instructions and cycles of all but the spinner.
    hardware: Option<[u64; 2]>,
}

/// Idle shares of processors that have nothing to do, in the order of a [`Reading`].
#[derive(Clone, Debug)]
pub struct IdleShares(Vec<f64>);

impl IdleCounter {
    /// Starts a spinner on each of these processors, and waits until all of them run.
    ///
    /// # Errors
    /// Returns a sentence if a thread cannot be created, pinned or given its policy.
    pub fn start(cpus: &[usize]) -> Result<Self, String> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut counter = Self { spinners: Vec::new(), threads: Vec::new(), is_over };
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
                        if let Ok(hardware) = HardwareCounters::of_this_thread() {
                            let _ = own.hardware.set(hardware);
                        }
                        spin(&own, &is_over);
                    }
                })
                .map_err(|error| format!("no thread for an idle counter: {error}"))?;
            let hardware = HardwareCounters::on_processor(cpu).ok();
            counter.spinners.push(Spinner { cpu, counts, hardware });
            counter.threads.push(thread);
        }
        counter.await_ready()?;
        Ok(counter)
    }

    fn await_ready(&self) -> Result<(), String> {
        let is_ready = |spinner: &Spinner| spinner.counts.is_ready.load(Ordering::Acquire);
        let latest = Instant::now() + READY_MAX;
        while Instant::now() < latest {
            if self.spinners.iter().all(is_ready) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        let absent = self.spinners.iter().find(|spinner| !is_ready(spinner));
        let cpu = absent.map_or(0, |spinner| spinner.cpu);
        Err(format!("no idle counter runs on processor {cpu}"))
    }

    /// Returns the counts now.
    pub fn read(&self) -> Reading {
        let cpus = self.spinners.iter().map(Spinner::read).collect();
        Reading { at: Instant::now(), cpus }
    }

    /// Measures for a time the idle shares of processors that have nothing to do now.
    pub fn calibrate(&self, time: Duration) -> IdleShares {
        let mut shares = vec![Vec::new(); self.spinners.len()];
        let mut before = self.read();
        let until = before.at + time;
        while before.at < until {
            thread::sleep(CALIBRATION_WINDOW);
            let now = self.read();
            for (index, shares) in shares.iter_mut().enumerate() {
                shares.push(now.idle_share_since(&before, index));
            }
            before = now;
        }
        let median = |shares: &Vec<f64>| weir_stats::median(shares).unwrap_or(0.0);
        IdleShares(shares.iter().map(median).collect())
    }
}

impl Spinner {
    fn read(&self) -> CpuReading {
        let Self { cpu, counts, hardware } = self;
        CpuReading {
            cpu: *cpu,
            units: counts.units.load(Ordering::Relaxed),
            idle_ns: counts.idle_ns.load(Ordering::Relaxed),
            cpu_ns: counts.cpu_ns.load(Ordering::Relaxed),
            stolen_ns: counts.stolen_ns.load(Ordering::Relaxed),
            hardware: hardware.as_ref().zip(counts.hardware.get()).and_then(|(all, own)| {
                let (all, own) = (all.read().ok()?, own.read().ok()?);
                Some([0, 1].map(|event| all[event].saturating_sub(own[event])))
            }),
        }
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

    /// Returns the share of the time since `before` in which the processor at `index` was idle.
    fn idle_share_since(&self, before: &Self, index: usize) -> f64 {
        let idle_ns = self.cpus[index].idle_ns - before.cpus[index].idle_ns;
        idle_ns as f64 / 1e9 / self.seconds_since(before)
    }

    /// Returns the use of some of the processors since `before`, with the shares of idle ones
    /// measured before and after; the time stolen is that since `first`, as a share of all of the
    /// processors' time since then.
    pub fn core_time(
        &self,
        before: &Self,
        first: &Self,
        shares: [&IdleShares; 2],
        cpus: &[usize],
    ) -> CoreTime {
        let window_s = self.seconds_since(before);
        let mut time = CoreTime::default();
        let mut stolen_ns = 0;
        let mut counted = Vec::new();
        for (index, now) in self.cpus.iter().enumerate().filter(|(_, now)| cpus.contains(&now.cpu))
        {
            let was = &before.cpus[index];
            let [first_share, last_share] = shares.map(|shares| shares.0[index]);
            let whole = ((first_share + last_share) / 2.0).max(f64::MIN_POSITIVE);
            let idle = self.idle_share_since(before, index) / whole;
            time.total_s += window_s;
            time.busy_s += window_s * (1.0 - idle.min(1.0));
            time.spinner_s += (now.cpu_ns - was.cpu_ns) as f64 / 1e9;
            let idle_s = (now.idle_ns - was.idle_ns) as f64 / 1e9;
            time.idle_per_s +=
                (now.units - was.units) as f64 / idle_s.max(1e-9) / cpus.len() as f64;
            // A processor that others used up in a calibration has changed beyond measure.
            let drift = (last_share / first_share - 1.0).abs();
            time.drift = time.drift.max(if drift.is_finite() { drift } else { 1.0 });
            counted.push(now.hardware_since(was));
            stolen_ns += now.stolen_ns - first.cpus[index].stolen_ns;
        }
        let since_first_ns = 1e9 * self.seconds_since(first) * counted.len() as f64;
        time.stolen_share = stolen_ns as f64 / since_first_ns.max(1.0);
        (time.instructions, time.cycles) = hardware_sums(&counted).unzip();
        time
    }
}

impl CpuReading {
    /// Returns the instructions and cycles since `before`; `None` unless they were counted.
    fn hardware_since(&self, before: &Self) -> Option<[u64; 2]> {
        let (now, was) = self.hardware.zip(before.hardware)?;
        Some([0, 1].map(|event| now[event].saturating_sub(was[event])))
    }
}

/// Returns the instructions and the cycles of all processors; `None` if there is no processor, or
/// one that was not counted: the sum of the others would pass for that of all.
fn hardware_sums(counted: &[Option<[u64; 2]>]) -> Option<(f64, f64)> {
    let counted: Vec<[u64; 2]> = counted.iter().copied().collect::<Option<_>>()?;
    let sum = |event: usize| counted.iter().map(|counts| counts[event] as f64).sum();
    (!counted.is_empty()).then(|| (sum(0), sum(1)))
}

/// Counts until it is over.
fn spin(counts: &Counts, is_over: &AtomicBool) {
    let mut units = 0;
    let mut idle = IdleTime { ns: 0.0, most_ns: first_unit_ns() };
    let mut stolen = StolenTime { ns: 0, switches: thread_usage().switches_involuntary };
    let mut last = Instant::now();
    let mut published = last;
    counts.is_ready.store(true, Ordering::Release);
    while !is_over.load(Ordering::Relaxed) {
        work();
        units += 1;
        counts.units.store(units, Ordering::Relaxed);
        let now = Instant::now();
        let gap = now - last;
        let took_ns = gap.as_nanos() as f64;
        let is_disturbed = idle.is_disturbed(took_ns);
        idle.add(took_ns);
        last = now;
        // In a unit that nothing disturbed no other thread ran.
        if is_disturbed {
            stolen.add(gap, thread_usage().switches_involuntary);
            counts.stolen_ns.store(stolen.ns, Ordering::Relaxed);
            last = Instant::now();
            idle.add_question((last - now).as_nanos() as f64);
        }
        counts.idle_ns.store(idle.ns as u64, Ordering::Relaxed);
        if now - published >= Duration::from_millis(1) {
            counts.cpu_ns.store(thread_cpu_clock_ns(), Ordering::Relaxed);
            published = now;
        }
    }
}

/// Idle time, by the time that each unit took.
struct IdleTime {
    /// Idle time so far, nanoseconds.
    ns: f64,
    /// Time that most units take, nanoseconds.
    most_ns: f64,
}

impl IdleTime {
    /// Returns whether something else ran in a unit.
    fn is_disturbed(&self, took_ns: f64) -> bool {
        took_ns >= DISTURBED * self.most_ns
    }

    /// Adds a unit.
    fn add(&mut self, took_ns: f64) {
        self.ns += if self.is_disturbed(took_ns) { self.most_ns } else { took_ns };
        if took_ns < REPLACED * self.most_ns {
            let is_longer = took_ns > self.most_ns;
            self.most_ns *= 1.0 + if is_longer { MEDIAN_STEP } else { -MEDIAN_STEP };
        }
    }

    /// Adds a system call of the spinner between two units, which takes less than a unit unless
    /// something disturbs it.
    fn add_question(&mut self, took_ns: f64) {
        self.ns += took_ns.min(self.most_ns);
    }
}

/// Time in which the spinner was neither running nor replaced by another thread.
struct StolenTime {
    ns: u64,
    /// Number of times that the spinner had been replaced by the end of the last gap.
    switches: u64,
}

impl StolenTime {
    /// Adds a gap between two units, by whose end the spinner has been replaced `switches` times. A
    /// gap that is too short to be stolen is told too: what replaced the spinner then did not do so
    /// in the next.
    fn add(&mut self, gap: Duration, switches: u64) {
        if gap >= STOLEN_MIN && switches == self.switches {
            self.ns += gap.as_nanos() as u64;
        }
        self.switches = switches;
    }
}

/// Returns the time of a unit that is not disturbed, nanoseconds.
fn first_unit_ns() -> f64 {
    let time = |_| {
        let began = Instant::now();
        work();
        began.elapsed().as_nanos() as f64
    };
    (0..FIRST_UNITS).map(time).fold(f64::INFINITY, f64::min).max(1.0)
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

    /// Readings of two processors, 2 s apart, which do 1000 units in an idle second.
    fn readings(idle_ms: [u64; 2], cpu_ms: [u64; 2]) -> [Reading; 2] {
        let at = Instant::now();
        let of = |at, idle_ms: [u64; 2], cpu_ms: [u64; 2]| {
            let cpus = (0..2).map(|index| CpuReading {
                cpu: 4 + index,
                units: idle_ms[index],
                idle_ns: idle_ms[index] * 1_000_000,
                cpu_ns: cpu_ms[index] * 1_000_000,
                stolen_ns: cpu_ms[index] * 10_000,
                hardware: (index == 0).then_some([3 * idle_ms[0], idle_ms[0]]),
            });
            Reading { at, cpus: cpus.collect() }
        };
        [of(at, [0; 2], [0; 2]), of(at + Duration::from_secs(2), idle_ms, cpu_ms)]
    }

    /// Returns the idle share of time in which units take so long in turn, after some that take
    /// 600 ns each.
    fn idle_share(took_ns: &[f64], rounds: u32) -> f64 {
        let mut idle = IdleTime { ns: 0.0, most_ns: 600.0 };
        (0..2000).for_each(|_| idle.add(600.0));
        let before_ns = idle.ns;
        (0..rounds).for_each(|_| took_ns.iter().for_each(|took_ns| idle.add(*took_ns)));
        (idle.ns - before_ns) / (f64::from(rounds) * took_ns.iter().sum::<f64>())
    }

    fn assert_near(share: f64, expected: f64) {
        assert!((share - expected).abs() < 0.01, "{share} and not {expected}");
    }

    #[test]
    fn units_that_nothing_disturbs_are_idle_whatever_the_speed() {
        for took_ns in [300.0, 600.0, 1100.0, 1800.0] {
            assert_near(idle_share(&[took_ns], 500_000), 1.0);
        }
    }

    #[test]
    fn of_a_disturbed_unit_as_much_is_idle_as_most_take() {
        // An interrupt in every tenth unit; a thread that runs for 20 us between any two; one for
        // each unit, which is never left alone.
        let often = [[600.0; 9].as_slice(), &[3600.0]].concat();
        assert_near(idle_share(&often, 10_000), 6.0 / 9.0);
        assert_near(idle_share(&[600.0, 20_600.0], 10_000), 1.2 / 21.2);
        assert_near(idle_share(&[20_600.0], 10_000), 0.6 / 20.6);
    }

    #[test]
    fn time_that_is_not_idle_is_busy() {
        let [before, after] = readings([500, 2000], [500, 2000]);
        let shares = IdleShares(vec![1.0, 1.0]);
        let time = |cpus: &[usize]| after.core_time(&before, &before, [&shares, &shares], cpus);
        let one = time(&[4]);
        assert_eq!((one.total_s, one.busy_s, one.spinner_s), (2.0, 1.5, 0.5));
        assert!((one.stolen_share - 0.0025).abs() < 1e-9 && one.drift == 0.0);
        let both = time(&[4, 5]);
        assert_eq!((both.total_s, both.busy_s), (4.0, 1.5));
        assert_eq!(time(&[7]), CoreTime::default(), "no spinner is there");
        assert_eq!((one.instructions, one.cycles), (Some(1500.0), Some(500.0)));
        assert_eq!(time(&[5]).instructions, None, "that processor has no counters");
        assert_eq!((both.instructions, both.cycles), (None, None), "the sum would be of one");
    }

    #[test]
    fn the_time_stolen_is_a_share_of_the_processors_time_and_not_of_the_counters() {
        // The counter ran for the 0.4 s of a calibration, and then hardly at all.
        let at = Instant::now();
        let of = |at, cpu_ms: u64, stolen_ms: u64| {
            let (cpu_ns, stolen_ns) = (cpu_ms * 1_000_000, stolen_ms * 1_000_000);
            let one =
                CpuReading { cpu: 4, units: 0, idle_ns: cpu_ns, cpu_ns, stolen_ns, hardware: None };
            Reading { at, cpus: vec![one, CpuReading { cpu: 5, stolen_ns: 0, ..one }] }
        };
        let [first, after] = [of(at, 0, 0), of(at + Duration::from_secs(5), 400, 100)];
        let shares = IdleShares(vec![1.0, 1.0]);
        let stolen =
            |cpus: &[usize]| after.core_time(&first, &first, [&shares, &shares], cpus).stolen_share;
        assert!((stolen(&[4]) - 0.02).abs() < 1e-9, "{}", stolen(&[4]));
        assert!((stolen(&[4, 5]) - 0.01).abs() < 1e-9, "{}", stolen(&[4, 5]));
    }

    #[test]
    fn a_long_gap_is_stolen_unless_another_thread_ran_in_it() {
        let mut stolen = StolenTime { ns: 0, switches: 7 };
        let long = Duration::from_millis(5);
        stolen.add(long, 8);
        assert_eq!(stolen.ns, 0, "another thread ran");
        stolen.add(Duration::from_micros(20), 9);
        assert_eq!(stolen.ns, 0, "another thread ran for a moment");
        stolen.add(long, 9);
        assert_eq!(stolen.ns, 5_000_000, "none has run since");
        stolen.add(Duration::from_micros(20), 9);
        assert_eq!(stolen.ns, 5_000_000, "as long as an interrupt");
    }

    #[test]
    fn a_question_of_the_spinner_is_idle_time_as_far_as_nothing_disturbs_it() {
        let mut idle = IdleTime { ns: 0.0, most_ns: 600.0 };
        idle.add_question(250.0);
        assert_eq!((idle.ns, idle.most_ns), (250.0, 600.0));
        idle.add_question(20_000.0);
        assert_eq!((idle.ns, idle.most_ns), (850.0, 600.0));
        assert!(idle.is_disturbed(900.0) && !idle.is_disturbed(899.0));
    }

    #[test]
    fn counts_of_processors_are_added_up_if_there_are_all() {
        let [mut before, mut after] = readings([500, 2000], [500, 2000]);
        before.cpus[1].hardware = Some([70, 7]);
        after.cpus[1].hardware = Some([270, 107]);
        let shares = IdleShares(vec![1.0, 1.0]);
        let both = after.core_time(&before, &before, [&shares, &shares], &[4, 5]);
        assert_eq!((both.instructions, both.cycles), (Some(1700.0), Some(600.0)));
        before.cpus[1].hardware = None;
        let both = after.core_time(&before, &before, [&shares, &shares], &[4, 5]);
        assert_eq!((both.instructions, both.cycles), (None, None), "not counted from the start");
    }

    #[test]
    fn what_an_idle_processor_is_disturbed_by_is_not_busy_and_its_change_the_drift() {
        let [before, after] = readings([900, 1900], [1000, 2000]);
        let shares = [IdleShares(vec![0.8, 0.9]), IdleShares(vec![1.0, 0.9])];
        let shares = [&shares[0], &shares[1]];
        let time = after.core_time(&before, &before, shares, &[4]);
        assert!((time.busy_s - 1.0).abs() < 1e-9 && (time.drift - 0.25).abs() < 1e-9, "{time:?}");
        assert!((time.idle_per_s - 1000.0).abs() < 1e-9, "{time:?}");
        let time = after.core_time(&before, &before, shares, &[5]);
        assert_eq!(time.busy_s, 0.0, "more idle than idle is idle");
        let none = IdleShares(vec![0.0, 0.0]);
        for shares in [[&none, &none], [&none, shares[0]], [shares[0], &none]] {
            let time = after.core_time(&before, &before, shares, &[4]);
            assert!(time.drift >= 1.0 && time.drift.is_finite() && time.busy_s.is_finite());
        }
    }

    #[test]
    fn a_counter_counts_on_its_processor_and_ends() {
        let cpu = weir_sys::process::allowed_cpus().unwrap()[0];
        let counter = IdleCounter::start(&[cpu, cpu]).unwrap();
        let before = counter.read();
        let shares = counter.calibrate(Duration::from_millis(100));
        assert_eq!((before.cpus.len(), shares.0.len()), (1, 1), "one spinner per processor");
        // Others may keep the processor from it for a while.
        let latest = Instant::now() + READY_MAX;
        while counter.read().cpus[0].units == before.cpus[0].units {
            assert!(Instant::now() < latest, "it does not count");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(IdleCounter::start(&[9999]).is_err());
    }
}
