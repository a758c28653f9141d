//! epoll(7): an interest set kept by the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll as raw;
pub use rustix::event::epoll::{Event, EventData, EventFlags};
use rustix::fs::Timespec;

use crate::check;
use crate::profile::{Call, timed};

/// Creates an epoll instance, close-on-exec.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM: epoll_create1(2).
pub fn create() -> io::Result<OwnedFd> {
    Ok(raw::create(raw::CreateFlags::CLOEXEC)?)
}

/// EPOLL_CTL_ADD: `data` comes back with every event of `fd`.
///
/// # Errors
/// EEXIST, ENOMEM, ENOSPC, EPERM: epoll_ctl(2).
pub fn add(
    epoll: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    data: u64,
    flags: EventFlags,
) -> io::Result<()> {
    timed(Call::EpollCtl, || raw::add(epoll, fd, raw::EventData::new_u64(data), flags))?;
    Ok(())
}

/// EPOLL_CTL_MOD: replaces the events and data of `fd`, and rechecks its readiness.
///
/// # Errors
/// ENOENT when `fd` was never added: epoll_ctl(2).
pub fn modify(
    epoll: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    data: u64,
    flags: EventFlags,
) -> io::Result<()> {
    timed(Call::EpollCtl, || raw::modify(epoll, fd, raw::EventData::new_u64(data), flags))?;
    Ok(())
}

/// EPOLL_CTL_DEL. Closing the last descriptor of a file does the same without a call.
///
/// # Errors
/// ENOENT when `fd` was never added: epoll_ctl(2).
pub fn delete(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    timed(Call::EpollCtl, || raw::delete(epoll, fd))?;
    Ok(())
}

/// [`add`] by descriptor number, for callers that only have numbers, as those of select(2) do. Acts
/// on the current owner of the number.
///
/// # Errors
/// EBADF when the number is not open; EEXIST, ENOMEM, ENOSPC, EPERM: epoll_ctl(2).
pub fn add_raw(epoll: BorrowedFd<'_>, fd: RawFd, data: u64, flags: EventFlags) -> io::Result<()> {
    control_raw(epoll, libc::EPOLL_CTL_ADD, fd, data, flags)
}

/// [`modify`] by number.
///
/// # Errors
/// EBADF when the number is not open; ENOENT when it was never added: epoll_ctl(2).
pub fn modify_raw(
    epoll: BorrowedFd<'_>,
    fd: RawFd,
    data: u64,
    flags: EventFlags,
) -> io::Result<()> {
    control_raw(epoll, libc::EPOLL_CTL_MOD, fd, data, flags)
}

/// [`delete`] by number.
///
/// # Errors
/// EBADF when the number is not open; ENOENT when it was never added: epoll_ctl(2).
pub fn delete_raw(epoll: BorrowedFd<'_>, fd: RawFd) -> io::Result<()> {
    control_raw(epoll, libc::EPOLL_CTL_DEL, fd, 0, EventFlags::empty())
}

fn control_raw(
    epoll: BorrowedFd<'_>,
    operation: i32,
    fd: RawFd,
    data: u64,
    flags: EventFlags,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events: flags.bits(), u64: data };
    // SAFETY: the event outlives the call, which copies it; a number that nobody has is refused.
    check(timed(Call::EpollCtl, || unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &raw mut event)
    }))
}

/// Busy polling of an epoll instance: it polls the network devices of its sockets before it sleeps,
/// instead of waiting for their interrupts (Linux 6.9; Documentation/networking/napi.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyPoll {
    /// Duration of a busy poll, microseconds; 0 disables it.
    pub busy_us: u32,
    /// Packets per poll; 0 selects the kernel's default (8). More than 64 needs CAP_NET_ADMIN.
    pub budget: u16,
    /// Defers the device's interrupts while polls keep coming.
    pub prefer: bool,
}

/// Sets the busy polling of an instance: EPIOCSPARAMS, ioctl_eventpoll(2).
///
/// # Errors
/// ENOTTY before Linux 6.9; EOPNOTSUPP without CONFIG_NET_RX_BUSY_POLL; EPERM for a budget over 64
/// without CAP_NET_ADMIN; EINVAL for more than 2^31 microseconds.
pub fn set_busy(epoll: BorrowedFd<'_>, busy: BusyPoll) -> io::Result<()> {
    // SAFETY: every field is a number, for which zero is a value; one is padding that must be zero.
    let mut params: libc::epoll_params = unsafe { std::mem::zeroed() };
    params.busy_poll_usecs = busy.busy_us;
    params.busy_poll_budget = busy.budget;
    params.prefer_busy_poll = busy.prefer.into();
    // SAFETY: EPIOCSPARAMS reads one epoll_params, which outlives the call.
    check(timed(Call::Ioctl, || unsafe {
        libc::ioctl(epoll.as_raw_fd(), libc::EPIOCSPARAMS, &raw const params)
    }))
}

/// Returns the parameters set by [`set_busy`]: EPIOCGPARAMS, ioctl_eventpoll(2).
///
/// # Errors
/// As [`set_busy`].
pub fn busy(epoll: BorrowedFd<'_>) -> io::Result<BusyPoll> {
    // SAFETY: every field is a number, for which zero is a value.
    let mut params: libc::epoll_params = unsafe { std::mem::zeroed() };
    // SAFETY: EPIOCGPARAMS writes one epoll_params, which outlives the call.
    check(timed(Call::Ioctl, || unsafe {
        libc::ioctl(epoll.as_raw_fd(), libc::EPIOCGPARAMS, &raw mut params)
    }))?;
    Ok(BusyPoll {
        busy_us: params.busy_poll_usecs,
        budget: params.busy_poll_budget,
        prefer: params.prefer_busy_poll != 0,
    })
}

/// Returns whether an error of [`set_busy`] means that this kernel lacks busy polling.
pub fn lacks_busy(error: &io::Error) -> bool {
    let lacking = [libc::ENOTTY, libc::EOPNOTSUPP];
    error.kind() == io::ErrorKind::Unsupported
        || error.raw_os_error().is_some_and(|errno| lacking.contains(&errno))
}

/// Waits up to `timeout` (forever when `None`) and replaces the contents of `events` with the ready
/// events, at most its capacity.
///
/// A signal counts as an empty result.
///
/// # Errors
/// EBADF, EINVAL: epoll_pwait2(2).
pub fn wait(
    epoll: BorrowedFd<'_>,
    events: &mut Vec<Event>,
    timeout: Option<Duration>,
) -> io::Result<()> {
    events.clear();
    let timeout = timeout.map(timespec);
    match timed(Call::EpollWait, || raw::wait(epoll, spare_capacity(events), timeout.as_ref())) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Converts a timeout to the kernel's type, saturating at the longest it can hold.
pub(crate) fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_number_is_added_changed_and_deleted_as_its_descriptor_is() {
        let epoll = create().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let number = writer.as_raw_fd();
        add_raw(epoll.as_fd(), number, 7, EventFlags::OUT).unwrap();
        let again = add(epoll.as_fd(), writer.as_fd(), 7, EventFlags::OUT).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        modify_raw(epoll.as_fd(), number, 8, EventFlags::OUT).unwrap();
        let mut events = Vec::with_capacity(4);
        wait(epoll.as_fd(), &mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!((events.len(), events[0].data.u64()), (1, 8));
        delete_raw(epoll.as_fd(), number).unwrap();
        assert_eq!(delete_raw(epoll.as_fd(), number).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(add_raw(epoll.as_fd(), -1, 7, EventFlags::OUT).is_err());
        drop(reader);
    }

    #[test]
    fn busy_poll_parameters_are_read_back() {
        let epoll = create().unwrap();
        let wanted = BusyPoll { busy_us: 70, budget: 16, prefer: true };
        match set_busy(epoll.as_fd(), wanted) {
            Err(error) if lacks_busy(&error) => eprintln!("SKIPPED: no busy polling: {error}"),
            set => {
                set.unwrap();
                assert_eq!(busy(epoll.as_fd()).unwrap(), wanted);
                let endless = BusyPoll { busy_us: u32::MAX, ..wanted };
                assert!(set_busy(epoll.as_fd(), endless).is_err());
            }
        }
    }
}
