//! The seconds of a thread: when each ends, and the CPU time and connections in it.

use weir_sys::process::{Usage, thread_run_delay_ns, thread_usage};

use crate::measure::{Interval, ThreadCpu};

const SECOND_NS: u64 = 1_000_000_000;

/// The seconds of a thread. Times are nanoseconds on the run's clock.
#[derive(Default)]
pub(super) struct SecondMeter {
    /// End of the warm-up; `None` once it is over.
    measure_from_ns: Option<u64>,
    /// End of the current second.
    pub(super) ends_ns: u64,
    /// Number of seconds that have ended.
    pub(super) seconds: u64,
    /// CPU time at the start of the measured time, and of this second.
    cpu_before: Usage,
    cpu_before_second: Usage,
    busiest: f64,
    /// Start of the measured time, and the CPU share from then until nothing more was begun.
    measured_from_ns: u64,
    while_planned: Option<f64>,
    /// Time waited for a core by the start of the measured time, and its share of the same time;
    /// `None` where the kernel does not tell.
    run_delay_before_ns: Option<u64>,
    run_delay: Option<f64>,
    /// CPU time at the end of the measured time, if the load goes on after it.
    cpu_after: Option<Usage>,
    /// Largest number of connections open at once.
    pub(super) open_max: u64,
}

impl SecondMeter {
    /// Begins the first second at `measure_from_ns`, the end of the warm-up.
    pub(super) fn begin(&mut self, measure_from_ns: u64) {
        self.measure_from_ns = Some(measure_from_ns);
        self.ends_ns = measure_from_ns.saturating_add(SECOND_NS);
    }

    /// Begins to count the thread's CPU time, once the warm-up is over.
    pub(super) fn skip_warm_up(&mut self, now_ns: u64) {
        if self.measure_from_ns.is_some_and(|from_ns| from_ns <= now_ns) {
            self.measure_from_ns = None;
            self.measured_from_ns = now_ns;
            self.cpu_before = thread_usage();
            self.cpu_before_second = self.cpu_before;
            self.run_delay_before_ns = thread_run_delay_ns();
        }
    }

    /// Notes that nothing more is begun that is measured, the first time that it is called.
    /// `goes_on`: a cool-down follows.
    pub(super) fn end_plan(&mut self, now_ns: u64, goes_on: bool) {
        if self.while_planned.is_none() && self.measure_from_ns.is_none() {
            let usage = thread_usage();
            self.cpu_after = goes_on.then_some(usage);
            let passed_ns = now_ns.saturating_sub(self.measured_from_ns).max(1);
            // Of a shorter time the share says little.
            let is_long = passed_ns >= SECOND_NS / 2;
            let share = |ns: u64| if is_long { ns as f64 / passed_ns as f64 } else { 0.0 };
            self.while_planned = Some(share(self.used_ns(usage)));
            let waited_ns = thread_run_delay_ns().zip(self.run_delay_before_ns);
            self.run_delay = waited_ns.map(|(after, before)| share(after.saturating_sub(before)));
        }
    }

    /// Returns the CPU time since the warm-up.
    fn used_ns(&self, usage: Usage) -> u64 {
        total_ns(usage).saturating_sub(total_ns(self.cpu_before))
    }

    /// Returns the CPU share since the warm-up, or until nothing more was begun if that is more.
    fn cpu_share_so_far(&self, now_ns: u64, usage: Usage) -> f64 {
        let used_ns = self.used_ns(self.cpu_after.unwrap_or(usage));
        let passed_ns = now_ns.saturating_sub(self.measured_from_ns).max(1);
        (used_ns as f64 / passed_ns as f64).max(self.while_planned.unwrap_or(0.0))
    }

    /// Returns whether any time of the current second has passed.
    pub(super) fn has_begun(&self, now_ns: u64) -> bool {
        now_ns > self.ends_ns - SECOND_NS
    }

    /// Notes the number of open connections.
    pub(super) fn note_open(&mut self, open: u64) {
        self.open_max = self.open_max.max(open);
    }

    /// Ends a second: adds its number, length and CPU time to its measurements.
    pub(super) fn end_second(&mut self, now_ns: u64, second: &mut Interval) {
        let passed_ns = now_ns.saturating_sub(self.ends_ns - SECOND_NS).max(1);
        second.second = self.seconds;
        second.length_ns = passed_ns.min(SECOND_NS);
        let cpu = thread_usage();
        let cpu_ns = total_ns(cpu).saturating_sub(total_ns(self.cpu_before_second));
        self.cpu_before_second = cpu;
        let busy = cpu_ns as f64 / passed_ns as f64;
        second.cpu_ns = (busy * second.length_ns as f64) as u64;
        second.cpu_share_so_far = self.cpu_share_so_far(now_ns, cpu);
        if passed_ns >= SECOND_NS / 2 {
            self.busiest = self.busiest.max(busy);
        }
        self.note_open(second.open);
        self.seconds += 1;
        self.ends_ns += SECOND_NS;
    }

    /// Returns the CPU time since the warm-up, without that of the cool-down.
    pub(super) fn thread_cpu(&self) -> ThreadCpu {
        let cpu = self.cpu_after.unwrap_or_else(thread_usage);
        ThreadCpu {
            user_ns: cpu.user_ns.saturating_sub(self.cpu_before.user_ns),
            system_ns: cpu.system_ns.saturating_sub(self.cpu_before.system_ns),
            busiest: self.busiest,
            while_planned: self.while_planned.unwrap_or(0.0),
            run_delay: self.run_delay,
        }
    }
}

fn total_ns(usage: Usage) -> u64 {
    usage.user_ns + usage.system_ns
}
