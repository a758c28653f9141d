//! What a core and a server spent, from `/proc/stat` and `/proc/PID/stat` (proc_stat(5),
//! proc_pid_stat(5)). Times are clock ticks as the kernel gives them, seconds where named so.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

/// The times of one core since boot, or between two readings, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct CoreTicks {
    user: u64,
    nice: u64,
    system: u64,
    idle: u64,
    iowait: u64,
    irq: u64,
    softirq: u64,
    steal: u64,
}

impl CoreTicks {
    /// Reads the times of core `core`.
    pub(super) fn read(core: usize) -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        Self::parse(&stat, core).with_context(|| format!("no core {core} in /proc/stat"))
    }

    /// The times of core `core` in `stat`, the text of `/proc/stat`.
    pub(super) fn parse(stat: &str, core: usize) -> Option<Self> {
        let name = format!("cpu{core}");
        let mut fields = stat.lines().map(str::split_whitespace).find_map(|mut fields| {
            let this = fields.next() == Some(name.as_str());
            this.then_some(fields)
        })?;
        let mut next = || fields.next()?.parse::<u64>().ok();
        Some(Self {
            user: next()?,
            nice: next()?,
            system: next()?,
            idle: next()?,
            iowait: next()?,
            irq: next()?,
            softirq: next()?,
            steal: next()?,
        })
    }

    /// What was spent since `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            nice: self.nice.saturating_sub(earlier.nice),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// The time in which the core did something, or was kept from it by the hypervisor.
    pub(super) fn busy_s(self) -> f64 {
        let busy = self.user + self.nice + self.system + self.irq + self.softirq + self.steal;
        ticks_to_s(busy)
    }

    /// The time in which the core had nothing to do. A kernel that stops the tick of an idle core
    /// measures this; what a busy core does it may only sample, at every tick.
    pub(super) fn idle_s(self) -> f64 {
        ticks_to_s(self.idle + self.iowait)
    }

    /// The time charged to processes, whichever they are.
    pub(super) fn processes_s(self) -> f64 {
        ticks_to_s(self.user + self.nice + self.system)
    }

    /// The time the hypervisor gave to others.
    pub(super) fn steal_s(self) -> f64 {
        ticks_to_s(self.steal)
    }
}

/// The processor time that the processes of group `group` used so far, in seconds: user and
/// system, without what interrupts did meanwhile.
pub(super) fn group_s(group: u32) -> Result<f64> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc")? {
        // A process may end between the listing and the reading.
        let Ok(stat) = fs::read_to_string(entry?.path().join("stat")) else { continue };
        ticks += parse_process(&stat).filter(|(of, _)| *of == group).map_or(0, |(_, spent)| spent);
    }
    Ok(ticks_to_s(ticks))
}

/// The process group of a process, and the ticks it used.
fn parse_process(stat: &str) -> Option<(u32, u64)> {
    // The name, in brackets, may hold anything, brackets and spaces too.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((u32::try_from(number(2)?).ok()?, number(11)? + number(12)?))
}

/// The resident set of process `pid`, in bytes.
pub(super) fn resident_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    parse_resident(&status).context("no VmRSS")
}

fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn ticks_to_s(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 20 300 5 2 7 4 0 0\n\
                        cpu10 1 1 1 1 1 1 1 1 0 0\nintr 5\n";

    #[test]
    fn one_core_is_read() {
        let ticks = CoreTicks::parse(STAT, 0).unwrap();
        let expected = CoreTicks {
            user: 10,
            nice: 1,
            system: 20,
            idle: 300,
            iowait: 5,
            irq: 2,
            softirq: 7,
            steal: 4,
        };
        assert_eq!(ticks, expected);
        assert_eq!(CoreTicks::parse(STAT, 1), None);
    }

    #[test]
    fn waiting_is_not_busy() {
        let ticks = CoreTicks::parse(STAT, 0).unwrap();
        assert!((ticks.busy_s() - ticks_to_s(44)).abs() < 1e-9);
        assert!((ticks.idle_s() - ticks_to_s(305)).abs() < 1e-9);
        assert!((ticks.processes_s() - ticks_to_s(31)).abs() < 1e-9);
        assert!((ticks.steal_s() - ticks_to_s(4)).abs() < 1e-9);
        assert_eq!(ticks.since(ticks), CoreTicks::default());
    }

    #[test]
    fn a_process_is_known_by_its_group() {
        let stat = "812 (a b) c)) S 1 800 800 0 -1 0 0 0 0 0 30 12 0 0 20 0 1";
        assert_eq!(parse_process(stat), Some((800, 42)));
        assert_eq!(parse_process("812 (a) S 1"), None);
    }

    #[test]
    fn the_resident_set_is_in_bytes() {
        assert_eq!(parse_resident("VmSize: 9 kB\nVmRSS:\t    12 kB\n"), Some(12_288));
        assert_eq!(parse_resident("VmSize: 9 kB\n"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        assert!(CoreTicks::read(0).is_ok());
        assert!(resident_bytes(std::process::id()).unwrap() > 0);
        assert!(group_s(std::process::id()).is_ok());
    }
}
