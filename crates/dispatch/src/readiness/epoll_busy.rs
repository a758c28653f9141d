//! `epoll-busy`: `epoll-et` that polls before it sleeps, because a sleep and a wake-up cost more
//! than the wait when the next event is microseconds away.
//!
//! It polls in two places. The kernel polls the network device of the sockets instead of waiting
//! for its interrupt (EPIOCSPARAMS, Linux 6.9; the device's driver must support NAPI). And the loop
//! repeats a non-blocking epoll wait for `spin-us`, which works for every descriptor, and costs a
//! processor.
//!
//! Without EPIOCSPARAMS only the loop polls; that is an error only if the operator set a kernel
//! parameter.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use weir_sys::epoll::{BusyPoll, lacks_busy};

use super::epoll_et::EpollEt;
use super::kernel::{EpollSet, Kernel, Linux};
use super::settings::{Settings, Tunable};
use super::{Counts, Interest, Mechanism, Token};

const BUSY_US: Tunable = Tunable {
    name: "busy-us",
    help: "how long the kernel polls the network device before it sleeps, microseconds",
    default: 50,
    min: 0,
    max: 1_000_000,
};

const BUDGET: Tunable = Tunable {
    name: "budget",
    help: "packets taken from the device at a time; more than 64 need CAP_NET_ADMIN",
    default: 8,
    min: 1,
    max: u16::MAX as u64,
};

const PREFER: Tunable = Tunable {
    name: "prefer",
    help: "1: interrupts of the device are deferred while the loop polls",
    default: 0,
    min: 0,
    max: 1,
};

const SPIN_US: Tunable = Tunable {
    name: "spin-us",
    help: "how long the loop polls before it sleeps, microseconds",
    default: 50,
    min: 0,
    max: 1_000_000,
};

/// The interest set of `epoll-et`, and the duration for which its waits spin.
pub struct EpollBusy<K: Kernel = Linux> {
    inner: EpollEt<K>,
    spin: Duration,
}

/// Returns the kernel's parameters, and whether the operator set any of them.
fn busy_poll(settings: &Settings) -> (BusyPoll, bool) {
    let [busy_us, budget, prefer] = [BUSY_US, BUDGET, PREFER].map(|tunable| settings.get(&tunable));
    let busy = BusyPoll {
        busy_us: u32::try_from(busy_us).unwrap_or(u32::MAX),
        budget: u16::try_from(budget).unwrap_or(u16::MAX),
        prefer: prefer != 0,
    };
    let asked =
        [BUSY_US, BUDGET, PREFER].iter().any(|tunable| settings.get(tunable) != tunable.default);
    (busy, asked)
}

/// Converts a failure into an error for the operator; ignores it where the kernel lacks a feature
/// that was not requested.
fn excuse(error: &io::Error, asked: bool) -> io::Result<()> {
    if !lacks_busy(error) {
        let why = format!("busy-us, budget or prefer is refused (EPIOCSPARAMS): {error}");
        return Err(io::Error::new(error.kind(), why));
    }
    if asked {
        let why = "this kernel does not poll devices for epoll (EPIOCSPARAMS, Linux 6.9): \
                   busy-us, budget and prefer cannot be set";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

impl<K: Kernel> EpollBusy<K> {
    /// Polls until a member is ready, or `spin` or the timeout has passed. Returns the number of
    /// descriptors that the kernel reported meanwhile, and the rest of the timeout.
    fn spin(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<Token>,
    ) -> io::Result<(usize, Option<Duration>)> {
        let before = ready.len();
        let mut reported = self.inner.wait(Some(Duration::ZERO), ready)?;
        let spin = timeout.map_or(self.spin, |timeout| timeout.min(self.spin));
        if ready.len() > before || spin.is_zero() {
            return Ok((reported, timeout));
        }
        let began = Instant::now();
        loop {
            std::hint::spin_loop();
            reported += self.inner.wait(Some(Duration::ZERO), ready)?;
            let spent = began.elapsed();
            if ready.len() > before || spent >= spin {
                return Ok((reported, timeout.map(|timeout| timeout.saturating_sub(spent))));
            }
        }
    }
}

impl<K: Kernel> Mechanism for EpollBusy<K> {
    const TUNABLES: &'static [Tunable] = &[BUSY_US, BUDGET, PREFER, SPIN_US];

    fn open(settings: &Settings) -> io::Result<Self> {
        let inner = EpollEt::<K>::open(settings)?;
        let (busy, asked) = busy_poll(settings);
        inner.epoll.set_busy(busy).or_else(|error| excuse(&error, asked))?;
        Ok(Self { inner, spin: Duration::from_micros(settings.get(&SPIN_US)) })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.inner.add(fd, token, interest)
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.inner.change(fd, token, interest)
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        self.inner.remove(fd, token)
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        self.inner.blocked(token, direction);
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let before = ready.len();
        let (reported, left) = self.spin(timeout, ready)?;
        if ready.len() > before || left == Some(Duration::ZERO) {
            return Ok(reported);
        }
        Ok(reported + self.inner.wait(left, ready)?)
    }

    fn has_reported_all(&self) -> bool {
        self.inner.has_reported_all()
    }

    fn counts(&self) -> Counts {
        self.inner.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(choices: &[&str]) -> io::Result<EpollBusy<Linux>> {
        let choices: Vec<_> = choices.iter().map(ToString::to_string).collect();
        EpollBusy::open(&Settings::parse(EpollBusy::<Linux>::TUNABLES, &choices).unwrap())
    }

    #[test]
    fn the_knobs_reach_the_kernel() {
        match open(&["busy-us=123", "budget=9", "prefer=1"]) {
            Ok(opened) => assert_eq!(
                weir_sys::epoll::busy(std::os::fd::AsFd::as_fd(&opened.inner.epoll)).unwrap(),
                BusyPoll { busy_us: 123, budget: 9, prefer: true }
            ),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}"),
        }
    }

    #[test]
    fn a_kernel_without_device_polling_is_an_error_only_to_one_who_asked() {
        let lacking = || io::Error::from(io::ErrorKind::Unsupported);
        assert!(excuse(&lacking(), false).is_ok());
        assert!(excuse(&lacking(), true).unwrap_err().to_string().contains("Linux 6.9"));
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(excuse(&refused, false).unwrap_err().to_string().contains("refused"));
        assert!(!busy_poll(&Settings::default()).1);
    }

    #[test]
    fn a_spin_ends_at_the_timeout_however_long_it_may_last() {
        let mut busy = open(&["spin-us=1000000"]).unwrap();
        let mut ready = Vec::new();
        let (_, left) = busy.spin(Some(Duration::from_millis(1)), &mut ready).unwrap();
        assert_eq!(left, Some(Duration::ZERO));
        assert_eq!(busy.spin(Some(Duration::ZERO), &mut ready).unwrap(), (0, Some(Duration::ZERO)));
    }

    #[test]
    fn a_spin_sees_what_another_thread_does() {
        use std::io::Write;
        use std::os::fd::AsFd;
        let mut busy = open(&["spin-us=1000000"]).unwrap();
        let (reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let token = Token { slot: 1, generation: 1 };
        busy.add(reader.as_fd(), token, Interest::Read).unwrap();
        let writing = std::thread::spawn(move || writer.write_all(b"x").map(|()| writer));
        let mut ready = Vec::new();
        while ready.is_empty() {
            busy.spin(None, &mut ready).unwrap();
        }
        assert_eq!(ready, [token]);
        writing.join().unwrap().unwrap();
    }
}
