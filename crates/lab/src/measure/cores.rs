//! Use of the processors of both sides while a point is measured, and the reasons to doubt it.
//!
//! The idle counter is calibrated right before and after the load, in the same testbed, while the
//! server is there and has nothing to do. A result is doubted if the two calibrations differ, if
//! the processes had more time than was busy, or if their time and the idle counter's do not add up
//! to the window: then others ran, or the kernel's account is wrong. The server's is doubted too if
//! its processes are in another scheduling group than the counter.
//!
//! Time that the host took is told by the kernel too, if the host tells it: the counter sees hardly
//! any of it while others run.

use std::time::Duration;

use weir_sys::proc;

use super::idle_counter::{IdleCounter, IdleShares, Reading};
use crate::environment::{Environment, Side};
use crate::record::{CoreTime, Cores};

/// Maximum relative difference between the idle shares of an idle processor before and after.
const DRIFT_MAX: f64 = 0.03;
/// Maximum share of the window by which the sum of all times may miss it.
const TOTAL_TOLERANCE: f64 = 0.05;

/// Reason to doubt the time of a server beside which the counter's low priority does not count.
const APART: &str = "the server is in another scheduling group than the idle counter";

/// An idle counter on the processors of both sides, calibrated once.
pub struct CoreMeter {
    counter: IdleCounter,
    sides: [Processors; 2],
    first: Reading,
    shares: IdleShares,
    calibration: Duration,
}

/// The processors of a side.
struct Processors {
    cpus: Vec<usize>,
    /// The kernel's threads that handle packets there (`ksoftirqd/N`).
    packet_threads: Vec<u32>,
}

/// The use of the processors at one end of the window.
#[derive(Clone, Debug)]
pub struct CoreReading {
    counts: Reading,
    /// Time of the packet threads of each side, seconds since boot.
    packets_s: [f64; 2],
    /// Time that the host took from each side, seconds since boot.
    steal_s: [Option<f64>; 2],
    /// True if the server is in another scheduling group than the counter.
    is_apart: bool,
}

impl CoreMeter {
    /// Starts the counter and calibrates it for a window of `window_s`: takes a fifth of that, 0.1
    /// to 0.4 s, in which the processors must be idle.
    ///
    /// # Errors
    /// Returns a sentence if the counter cannot run.
    pub fn start(environment: &dyn Environment, window_s: f64) -> Result<Self, String> {
        let sides = [Side::Server, Side::Client].map(|side| {
            let cpus = environment.cpus(side).to_vec();
            let packet_threads = packet_threads(&cpus);
            Processors { cpus, packet_threads }
        });
        let counter = IdleCounter::start(&[&*sides[0].cpus, &sides[1].cpus].concat())?;
        let first = counter.read();
        let calibration = Duration::from_secs_f64((window_s / 5.0).clamp(0.1, 0.4));
        let shares = counter.calibrate(calibration);
        Ok(Self { counter, sides, first, shares, calibration })
    }

    /// Reads one end of the window; `pids` are the root processes of the server.
    pub fn read(&self, pids: &[u32]) -> CoreReading {
        let spent_s = |pid: &u32| proc::of(*pid).map_or(0.0, |stat| spent_s(&stat));
        let packets_s =
            self.sides.each_ref().map(|side| side.packet_threads.iter().map(spent_s).sum());
        let counts = self.counter.read();
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let steal_s = self.sides.each_ref().map(|side| steal_s(&stat, &side.cpus));
        CoreReading { counts, packets_s, steal_s, is_apart: are_in_other_group(pids) }
    }

    /// Calibrates the counter again, and returns the use of the processors in a window. `own_s` is
    /// the time of the processes of each side, seconds, if all that ran there are known.
    pub fn end(self, [from, to]: [&CoreReading; 2], own_s: [Option<f64>; 2]) -> Cores {
        let shares = self.counter.calibrate(self.calibration);
        let shares = [&self.shares, &shares];
        let is_apart = [from.is_apart || to.is_apart, false];
        let [server, client] = [0, 1].map(|side| {
            let cpus = &self.sides[side].cpus;
            let mut time = to.counts.core_time(&from.counts, &self.first, shares, cpus);
            let packets_s = to.packets_s[side] - from.packets_s[side];
            let own_s = own_s[side].map(|own_s| own_s + packets_s);
            time.doubt = if is_apart[side] { Some(APART.into()) } else { doubt(&time, own_s) };
            let steal_s = to.steal_s[side].zip(from.steal_s[side]).map(|(to, from)| to - from);
            time.steal_share = steal_s.map(|steal_s| steal_s.max(0.0) / time.total_s.max(1e-9));
            time
        });
        Cores { server, client }
    }
}

/// Returns why the use of a side's processors is not to be trusted; `None` if nothing speaks
/// against it. `own_s` is the time of all processes that are known to have run there, in seconds;
/// `None` if some are not known.
fn doubt(time: &CoreTime, own_s: Option<f64>) -> Option<String> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    if time.total_s <= 0.0 {
        return None;
    }
    if time.drift > DRIFT_MAX {
        let drift = percent(time.drift);
        return Some(format!("doing nothing, it was {drift} more or less idle after the load"));
    }
    let own_s = own_s?;
    if own_s > time.busy_s + TOTAL_TOLERANCE * time.total_s {
        let (own, busy) = (percent(own_s / time.total_s), percent(time.busy_s / time.total_s));
        return Some(format!("its processes ran for {own} of a time that was busy for {busy}"));
    }
    let off = (own_s + time.spinner_s) / time.total_s - 1.0;
    (off.abs() > TOTAL_TOLERANCE).then(|| {
        let (off, side) = (percent(off.abs()), if off < 0.0 { "less" } else { "more" });
        format!("its processes and the idle counter ran {off} {side} than the whole window")
    })
}

/// Returns the kernel's threads that handle packets on these processors.
fn packet_threads(cpus: &[usize]) -> Vec<u32> {
    let names: Vec<_> = cpus.iter().map(|cpu| format!("(ksoftirqd/{cpu})")).collect();
    let is_wanted =
        |pid: &u32| proc::of(*pid).is_some_and(|stat| names.iter().any(|name| stat.contains(name)));
    proc::processes().filter(is_wanted).collect()
}

/// Returns the processor time of a process by its `stat` line, seconds.
fn spent_s(stat: &str) -> f64 {
    proc::times(stat).map_or(0.0, |(user, system)| proc::seconds(user + system))
}

/// Returns the time that the host took from some processors, by the text of /proc/stat
/// (proc_stat(5)), seconds since boot; `None` unless it tells that of all of them.
fn steal_s(stat: &str, cpus: &[usize]) -> Option<f64> {
    let ticks = |cpu: &usize| {
        let name = format!("cpu{cpu} ");
        let columns = stat.lines().find_map(|line| line.strip_prefix(name.as_str()))?;
        // user nice system idle iowait irq softirq steal
        columns.split_whitespace().nth(7)?.parse::<u64>().ok()
    };
    cpus.iter().map(ticks).sum::<Option<u64>>().map(proc::seconds)
}

/// Returns whether one of the processes is in another scheduling group than the lab, so that the
/// idle counter's low priority does not count against it (sched(7), "The autogroup feature").
fn are_in_other_group(pids: &[u32]) -> bool {
    let group = |pid: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?;
        Some(text.split_whitespace().next()?.to_owned())
    };
    let is_on = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled")
        .is_ok_and(|text| text.trim() == "1");
    let Some(own) = group("self").filter(|_| is_on) else { return false };
    pids.iter().any(|pid| group(&pid.to_string()).is_some_and(|it| it != own))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of a processor, of which 40 % were busy.
    fn time() -> CoreTime {
        CoreTime { total_s: 1.0, busy_s: 0.4, spinner_s: 0.6, ..CoreTime::default() }
    }

    #[test]
    fn times_that_add_up_are_not_doubted() {
        assert_eq!(doubt(&time(), Some(0.4)), None);
        assert_eq!(doubt(&time(), None), None);
        assert_eq!(doubt(&CoreTime::default(), Some(1.0)), None, "nothing was measured");
    }

    #[test]
    fn a_change_of_what_is_idle_is_a_reason_to_doubt() {
        let why = doubt(&CoreTime { drift: 0.031, ..time() }, None).unwrap();
        assert!(why.contains("3.1 % more or less idle"), "{why}");
    }

    #[test]
    fn processes_with_more_time_than_was_busy_are_a_reason_to_doubt() {
        let why = doubt(&time(), Some(0.46)).unwrap();
        assert_eq!(why, "its processes ran for 46.0 % of a time that was busy for 40.0 %");
    }

    #[test]
    fn times_that_miss_the_window_are_a_reason_to_doubt() {
        let why = doubt(&time(), Some(0.3)).unwrap();
        assert!(why.contains("ran 10.0 % less than the whole window"), "{why}");
        let why = doubt(&CoreTime { spinner_s: 0.7, ..time() }, Some(0.4)).unwrap();
        assert!(why.contains("10.0 % more"), "{why}");
    }

    #[test]
    fn the_kernels_account_of_the_host_is_of_the_processors_of_a_side() {
        let stat = "cpu  9 9 9 9 9 9 9 9999 0 0\ncpu1 1 2 3 4 5 6 7 80 0 0\n\
                    cpu10 1 2 3 4 5 6 7 800 0 0\ncpu2 1 2 3 4\nintr 5 6\n";
        assert_eq!(steal_s(stat, &[1]), Some(proc::seconds(80)));
        assert_eq!(steal_s(stat, &[1, 10]), Some(proc::seconds(880)));
        assert_eq!(steal_s(stat, &[1, 2]), None, "that of an old kernel is not told");
        assert_eq!(steal_s(stat, &[3]), None, "there is no such processor");
    }
}
