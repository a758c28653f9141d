//! Instructions and cycles of processors, by their own counters, without those of the idle counter.
//! Most virtual machines have no such counters; then there is nothing to read.

use std::io;

use weir_sys::perf_event::{Counter, Event};
use weir_sys::process::allowed_cpus;

/// What is counted, in the order of all pairs here.
const EVENTS: [Event; 2] = [Event::Instructions, Event::Cycles];

/// Instructions and cycles.
#[derive(Debug)]
pub struct HardwareCounters([Counter; 2]);

impl HardwareCounters {
    /// Begins to count on a processor, whatever runs there.
    ///
    /// # Errors
    /// As [`Counter::on_processor`].
    pub fn on_processor(cpu: usize) -> io::Result<Self> {
        Self::open(|event| Counter::on_processor(event, cpu))
    }

    /// Begins to count what this thread does in user mode.
    ///
    /// # Errors
    /// As [`Counter::of_this_thread`].
    pub fn of_this_thread() -> io::Result<Self> {
        Self::open(Counter::of_this_thread)
    }

    fn open(open: impl Fn(Event) -> io::Result<Counter>) -> io::Result<Self> {
        let [instructions, cycles] = EVENTS.map(open);
        Ok(Self([instructions?, cycles?]))
    }

    /// Returns the counts so far.
    ///
    /// # Errors
    /// As [`Counter::read`].
    pub fn read(&self) -> io::Result<[u64; 2]> {
        let [instructions, cycles] = self.0.each_ref().map(Counter::read);
        Ok([instructions?, cycles?])
    }
}

/// Checks that this process may count what the measurement counts: on each of its processors
/// whatever runs there, and what a thread of its own does. The second alone says nothing about the
/// first, which kernel.perf_event_paranoid forbids from 1 on.
///
/// # Errors
/// The reason, as a clause without a capital or a full stop.
pub fn available() -> Result<(), String> {
    let cpus = allowed_cpus().map_err(|error| format!("the processors are not known: {error}"))?;
    let counted = cpus.into_iter().try_for_each(|cpu| {
        let (all, own) =
            (HardwareCounters::on_processor(cpu)?, HardwareCounters::of_this_thread()?);
        all.read().and(own.read()).map(|_| ())
    });
    counted.map_err(|error| reason(&error))
}

/// Returns why a counter cannot be had (perf_event_open(2)).
fn reason(error: &io::Error) -> String {
    match error.kind() {
        // ENOENT; ENOSYS and EOPNOTSUPP.
        io::ErrorKind::NotFound | io::ErrorKind::Unsupported => {
            "the processors count no instructions and cycles, as in most virtual machines".into()
        }
        // EACCES and EPERM.
        io::ErrorKind::PermissionDenied => {
            "this process may not count what processors do: run as root, give it CAP_PERFMON, or \
             set kernel.perf_event_paranoid to 0"
                .into()
        }
        io::ErrorKind::ResourceBusy => {
            "other programs, such as perf, have the processors' counters".into()
        }
        _ => format!("the processors' counters cannot be had: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_counter_that_cannot_be_had_says_why() {
        for (errno, says) in [
            (Errno::NOENT, "no instructions and cycles"),
            (Errno::NOSYS, "no instructions and cycles"),
            (Errno::OPNOTSUPP, "no instructions and cycles"),
            (Errno::ACCESS, "CAP_PERFMON"),
            (Errno::PERM, "kernel.perf_event_paranoid"),
            (Errno::BUSY, "perf, have"),
            (Errno::MFILE, "cannot be had: "),
        ] {
            let why = reason(&errno.into());
            assert!(why.contains(says), "{errno:?}: {why}");
        }
    }

    #[test]
    fn counters_are_not_there_where_a_processor_may_not_be_counted() {
        let cpu = allowed_cpus().unwrap()[0];
        // A thread may count itself where it may not count a processor.
        let Err(error) = HardwareCounters::on_processor(cpu) else {
            eprintln!("SKIPPED: the processor is counted here");
            return;
        };
        assert_eq!(available(), Err(reason(&error)));
    }
}
