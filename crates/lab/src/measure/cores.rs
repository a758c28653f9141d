//! Time of chosen processors by kind, from /proc/stat (proc_stat(5)), whatever ran on them.
//!
//! The source has two limits. Time is counted in ticks (usually 100 per second), on most kernels by
//! what is running when the tick comes: short bursts are seen only on average, and a difference
//! over one second is accurate to about one per cent. Without CONFIG_IRQ_TIME_ACCOUNTING, the tick
//! also decides between softirq and the rest: packets handled on the way out of a system call or by
//! ksoftirqd count as system time. Softirq is then a lower bound; busy against idle is not
//! affected.

use crate::record::CoreTime;

/// Time of chosen processors since boot, ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTimes {
    /// user and nice, which already include guests.
    pub user: u64,
    /// system.
    pub system: u64,
    /// softirq.
    pub softirq: u64,
    /// irq.
    pub irq: u64,
    /// steal.
    pub steal: u64,
    /// idle and iowait.
    pub idle: u64,
}

impl CoreTimes {
    /// Parses the text of /proc/stat and sums the processors `cpus`.
    ///
    /// # Errors
    /// A processor has no line, or a line without its eight columns.
    pub fn parse(stat: &str, cpus: &[usize]) -> Result<Self, String> {
        let mut sum = Self::default();
        for cpu in cpus {
            let name = format!("cpu{cpu}");
            let columns = stat
                .lines()
                .take_while(|line| line.starts_with("cpu"))
                .find_map(|line| line.split_once(' ').filter(|(first, _)| *first == name))
                .ok_or_else(|| format!("/proc/stat has no processor {cpu}"))?;
            sum.add(columns.1).ok_or_else(|| format!("/proc/stat: {name} is not understood"))?;
        }
        Ok(sum)
    }

    fn add(&mut self, columns: &str) -> Option<()> {
        let mut columns = columns.split_whitespace().map(str::parse::<u64>);
        let mut next = || columns.next()?.ok();
        self.user += next()? + next()?;
        self.system += next()?;
        self.idle += next()? + next()?;
        self.irq += next()?;
        self.softirq += next()?;
        self.steal += next()?;
        Some(())
    }

    /// Returns the time spent since `before`, at `ticks_per_s`. A counter that fell (idle and
    /// iowait may, see proc_stat(5)) counts as unchanged.
    pub fn since(&self, before: &Self, ticks_per_s: f64) -> CoreTime {
        let spent = |now: u64, then: u64| now.saturating_sub(then) as f64 / ticks_per_s;
        CoreTime {
            user_s: spent(self.user, before.user),
            system_s: spent(self.system, before.system),
            softirq_s: spent(self.softirq, before.softirq),
            irq_s: spent(self.irq, before.irq),
            steal_s: spent(self.steal, before.steal),
            idle_s: spent(self.idle, before.idle),
        }
    }
}

impl CoreTime {
    /// Total time, seconds: the length of the window times the number of processors.
    pub fn total_s(&self) -> f64 {
        self.busy_s() + self.steal_s + self.idle_s
    }

    /// Busy time of the processors, seconds: neither idle nor taken by the host.
    pub fn busy_s(&self) -> f64 {
        self.user_s + self.system_s + self.softirq_s + self.irq_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "\
cpu  28703 5 9227 228738 1318 0 221 1123 0 0
cpu0 12982 2 3731 117297 121 7 42 532 60 1
cpu1 15721 3 5495 111440 1196 9 178 590 70 1
cpu11 1 1 1 1 1 1 1 1 0 0
intr 388829 0 0 0
ctxt 1
";

    #[test]
    fn the_processors_asked_for_are_added_up() {
        let one = CoreTimes::parse(STAT, &[1]).unwrap();
        let wanted = CoreTimes {
            user: 15724,
            system: 5495,
            softirq: 178,
            irq: 9,
            steal: 590,
            idle: 112_636,
        };
        assert_eq!(one, wanted);
        let both = CoreTimes::parse(STAT, &[0, 1]).unwrap();
        assert_eq!((both.user, both.irq), (15724 + 12984, 16));
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error() {
        assert!(CoreTimes::parse(STAT, &[2]).unwrap_err().contains("no processor 2"));
        assert!(CoreTimes::parse("cpu0 1 2 3\n", &[0]).unwrap_err().contains("not understood"));
    }

    #[test]
    fn a_difference_is_in_seconds_and_never_below_nothing() {
        let before = CoreTimes { user: 100, idle: 900, ..CoreTimes::default() };
        let after = CoreTimes { user: 150, softirq: 25, idle: 899, ..CoreTimes::default() };
        let spent = after.since(&before, 100.0);
        assert_eq!((spent.user_s, spent.softirq_s, spent.idle_s), (0.5, 0.25, 0.0));
        assert_eq!((spent.busy_s(), spent.total_s()), (0.75, 0.75));
    }
}
