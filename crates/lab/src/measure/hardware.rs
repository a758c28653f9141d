//! Instructions and cycles of processors, by their own counters, without those of the idle counter.
//! Most virtual machines have no such counters; then there is nothing to read.

use weir_sys::perf_event::{Counter, Event};

/// What is counted, in the order of all pairs here.
const EVENTS: [Event; 2] = [Event::Instructions, Event::Cycles];

/// Instructions and cycles.
#[derive(Debug)]
pub struct HardwareCounters([Counter; 2]);

impl HardwareCounters {
    /// Begins to count on a processor; `None` if it cannot be done.
    pub fn on_processor(cpu: usize) -> Option<Self> {
        Self::open(|event| Counter::on_processor(event, cpu))
    }

    /// Begins to count what this thread does in user mode; `None` if it cannot be done.
    pub fn of_this_thread() -> Option<Self> {
        Self::open(Counter::of_this_thread)
    }

    fn open(open: impl Fn(Event) -> std::io::Result<Counter>) -> Option<Self> {
        let [instructions, cycles] = EVENTS.map(|event| open(event).ok());
        Some(Self([instructions?, cycles?]))
    }

    /// Returns the counts so far; `None` if they cannot be read.
    pub fn read(&self) -> Option<[u64; 2]> {
        let [instructions, cycles] = self.0.each_ref().map(|counter| counter.read().ok());
        Some([instructions?, cycles?])
    }
}

/// Returns whether this machine has the counters, as far as this process may use them.
pub fn available() -> bool {
    HardwareCounters::of_this_thread().is_some_and(|counters| counters.read().is_some())
}
