//! Counters of the processor: perf_event_open(2). Each counts one event from its creation on, on a
//! processor, whatever runs there, or of a thread alone.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Cycles in which the processor was not halted (PERF_COUNT_HW_CPU_CYCLES).
    Cycles,
    /// Instructions retired (PERF_COUNT_HW_INSTRUCTIONS).
    Instructions,
    /// Nanoseconds by the kernel's clock (PERF_COUNT_SW_CPU_CLOCK), which every machine has.
    Clock,
}

impl Event {
    /// Returns the type and the number of the event.
    const fn numbers(self) -> (u32, u64) {
        match self {
            Self::Cycles => (0, 0),
            Self::Instructions => (0, 1),
            Self::Clock => (1, 0),
        }
    }
}

/// The first version of `struct perf_event_attr`, which every kernel takes.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// Reads tell for how long the counter was there, and for how long it counted: it may share the
/// processor's registers with others (PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING).
const READ_FORMAT: u64 = 1 | 2;
/// Flags `exclude_kernel` and `exclude_hv`.
const USER_MODE_ONLY: u64 = 1 << 5 | 1 << 6;
const PERF_FLAG_FD_CLOEXEC: u64 = 1 << 3;

/// A counter; it ends when it is dropped.
#[derive(Debug)]
pub struct Counter(OwnedFd);

impl Counter {
    /// Begins to count on a processor, in every mode.
    ///
    /// # Errors
    /// ENOENT if the processor has no such counter, as most virtual machines' have none; EACCES
    /// without CAP_PERFMON; what else perf_event_open(2) says.
    pub fn on_processor(event: Event, cpu: usize) -> io::Result<Self> {
        let cpu = i32::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
        open(event, 0, -1, cpu)
    }

    /// Begins to count what the calling thread does in user mode.
    ///
    /// # Errors
    /// As [`Counter::on_processor`].
    pub fn of_this_thread(event: Event) -> io::Result<Self> {
        open(event, USER_MODE_ONLY, 0, -1)
    }

    /// Returns the count so far, extrapolated to the whole time if the counter was shared.
    ///
    /// # Errors
    /// EBUSY if other counters have had the processor's registers for all of the time; what else
    /// read(2) says.
    pub fn read(&self) -> io::Result<u64> {
        let mut bytes = [0; 24];
        let read = rustix::io::read(&self.0, &mut bytes)?;
        if read != bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let number = |at: usize| {
            let octets = bytes.get(at..at + 8).and_then(|part| part.try_into().ok());
            octets.map_or(0, u64::from_ne_bytes)
        };
        extrapolated([0, 8, 16].map(number))
    }
}

/// Returns the count of the whole time from a count, the time that the counter was there and the
/// time that it counted. One that was there and has never counted knows nothing.
fn extrapolated([count, enabled, ran]: [u64; 3]) -> io::Result<u64> {
    match ran {
        0 if enabled > 0 => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        _ if ran < enabled => Ok((count as f64 * enabled as f64 / ran as f64) as u64),
        _ => Ok(count),
    }
}

fn open(event: Event, flags: u64, thread: i32, cpu: i32) -> io::Result<Counter> {
    let (kind, config) = event.numbers();
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config,
        sample_period: 0,
        sample_type: 0,
        read_format: READ_FORMAT,
        flags,
        wakeup_events: 0,
        breakpoint_type: 0,
        breakpoint_address: 0,
    };
    let no_group = -1_i32;
    // SAFETY: the kernel reads the attributes, whose size they say, and keeps no pointer to them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    crate::check(fd)?;
    // SAFETY: the call has just returned this descriptor, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    debug_assert!(fd.as_raw_fd() >= 0);
    Ok(Counter(fd))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_is_counted_in_user_mode_alone_and_a_processor_in_all() {
        let cpu = crate::process::allowed_cpus().unwrap()[0];
        let opened = Counter::on_processor(Event::Clock, cpu)
            .and_then(|on| Ok((on, Counter::of_this_thread(Event::Clock)?)));
        let Ok((on_processor, of_thread)) = opened else {
            eprintln!("SKIPPED: perf_event_open is not allowed here");
            return;
        };
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {}
        let (all, own) = (on_processor.read().unwrap(), of_thread.read().unwrap());
        assert!(all >= 20_000_000, "the clock of the processor goes on: {all}");
        assert!(own > 0 && own <= all + 20_000_000, "{own} of {all}");
    }

    #[test]
    fn a_count_is_of_the_whole_time_and_none_without_a_register() {
        assert_eq!(extrapolated([700, 9, 9]).unwrap(), 700);
        assert_eq!(extrapolated([700, 9, 3]).unwrap(), 2100, "it had a register a third of it");
        assert_eq!(extrapolated([0, 9, 9]).unwrap(), 0, "nothing happened");
        assert_eq!(extrapolated([0, 0, 0]).unwrap(), 0, "no time has passed");
        let never = extrapolated([0, 9, 0]).unwrap_err();
        assert_eq!(never.raw_os_error(), Some(libc::EBUSY));
    }

    #[test]
    fn a_processor_that_is_not_there_has_no_counter() {
        assert!(Counter::on_processor(Event::Clock, 99_999).is_err());
    }
}
