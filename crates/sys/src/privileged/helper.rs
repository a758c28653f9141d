//! The process that keeps the privileges. It is forked from a server before the user changes, faces
//! no client, has no descriptor but its channel, and gives up itself what it does not need:
//! capabilities, groups, and by Landlock and seccomp (Task::Privileged) files and calls.
//!
//! It takes one message at a time, in which all is that it needs, and sends one answer, for which
//! it does not wait: no message ends it, nor takes from it what another one would get. It ends when
//! nobody can ask it any more, and by no signal that a terminal or a service manager sends to all
//! processes.
//!
//! Questions end once the other end of its channel is closed, or shut down (shutdown(2)): all who
//! ask share one socket, so that one of them can shut it for all. An intruder can do that, since a
//! filter of calls does not tell this socket from a client's. Who asks then gets an error.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::message::{self, Message, Request};
use super::places::{Log, Readable};
use crate::bpf::program_id;
use crate::sandbox::{Needs, Reach, Sandbox, Support, Task};
use crate::signal::{self, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use crate::syn_filter::random;
use crate::syn_filter::tokens::{Rules, TokenFilter, attach_program};
use crate::{process, user};

/// Exit status of the process, by which it is told from a server.
pub const EXIT_STATUS: u8 = 99;

/// Name of the process.
const NAME: &str = "weir-privileged";

/// Signals that are for servers.
const SIGNALS: [i32; 5] = [SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2];

/// Maximum number of descriptors open at once, besides the directories of logs.
const FILES_MAX: u64 = 64;

/// Filters that may be made in a row, each of which takes a megabyte of the kernel's memory, and
/// the time after which there may be one more.
const FILTERS_MAX: u32 = 512;
const FILTER_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of programs that are known to be of filters.
const PROGRAMS_MAX: usize = 4096;

/// What the process is for, besides the files that were read by then.
#[derive(Clone, Debug)]
pub struct Duties {
    /// Logs that it may open, each by its present path.
    pub logs: Vec<PathBuf>,
    /// Rules of the filters that it may make.
    pub rules: Rules,
    /// Parts of its confinement; without any, it gives up its other capabilities all the same.
    pub support: Support,
}

/// What the process is started with.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub duties: Duties,
    pub files: Vec<PathBuf>,
    pub programs: Vec<u32>,
}

/// Runs the process; returns its exit status.
pub(super) fn run(channel: OwnedFd, work: Work) -> i32 {
    match Helper::new(work) {
        Ok(mut helper) => helper.answer_all(&channel),
        Err(error) => {
            // Who has started it waits for an answer.
            if let Ok(Some(Message { fds, .. })) = message::receive(channel.as_fd())
                && let Some(to) = fds.first()
            {
                reply(to, Err(error));
            }
        }
    }
    EXIT_STATUS.into()
}

struct Helper {
    files: Vec<Readable>,
    logs: Vec<Log>,
    rules: Rules,
    programs: VecDeque<u32>,
    allowance: Allowance,
}

impl Helper {
    /// Creates it, and confines the process.
    fn new(Work { duties, files, programs }: Work) -> io::Result<Self> {
        let files: Vec<_> = files.into_iter().map(Readable::new).collect();
        let logs: Vec<_> = duties.logs.iter().filter_map(|path| Log::new(path)).collect();
        let mut read: Vec<_> = files.iter().flat_map(|file| file.within.clone()).collect();
        read.sort_unstable();
        read.dedup();
        let reach = Reach {
            read,
            write: logs.iter().map(|log| log.dir_path.clone()).collect(),
            ..Reach::default()
        };
        let sandbox = Sandbox::new(Task::Privileged, Needs::default(), &reach, duties.support)?;
        let mut kept = CapabilitySet::NET_ADMIN | CapabilitySet::BPF;
        kept.set(CapabilitySet::DAC_READ_SEARCH, !files.is_empty());
        kept.set(CapabilitySet::DAC_OVERRIDE, !logs.is_empty());
        let files_max = FILES_MAX + logs.len() as u64;
        confine(kept, files_max, &sandbox)?;
        let allowance = Allowance { left: FILTERS_MAX, since: Instant::now() };
        Ok(Self { files, logs, rules: duties.rules, programs: programs.into(), allowance })
    }

    /// Answers until nobody can ask any more.
    fn answer_all(&mut self, channel: &OwnedFd) {
        loop {
            match message::receive(channel.as_fd()) {
                Ok(Some(Message { bytes, fds })) => self.hear(&bytes, &fds),
                Ok(None) => return,
                // No question: it may have been sent on purpose.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(_) => return,
            }
        }
    }

    /// Answers one message, if it says where to.
    fn hear(&mut self, bytes: &[u8], fds: &[OwnedFd]) {
        let Some((to, rest)) = fds.split_first() else { return };
        // A root process speaks to nobody but who asks.
        if is_way_of_an_answer(to.as_fd()) {
            let request = Request::of(bytes).ok_or_else(invalid);
            reply(to, request.and_then(|request| self.answer(request, rest)));
        }
    }

    fn answer(&mut self, request: Request<'_>, fds: &[OwnedFd]) -> io::Result<Vec<OwnedFd>> {
        match (request, fds) {
            (Request::Hello, []) => Ok(Vec::new()),
            (Request::Tokens, []) => self.make_filter(),
            (Request::Attach, [program, listener]) => {
                self.attach(program.as_fd(), listener.as_fd()).map(|()| Vec::new())
            }
            (Request::Random(share), [listener]) => {
                check_tcp(listener.as_fd())?;
                random::attach(listener.as_fd(), share).map(|()| Vec::new())
            }
            (Request::Open(path), []) => {
                let file = self.files.iter().find(|file| file.is_at(path)).ok_or_else(refused)?;
                file.open().map(|file| vec![file])
            }
            (Request::Append(path), []) => {
                let log = self.logs.iter().find(|log| log.is_at(path)).ok_or_else(refused)?;
                log.open().map(|file| vec![file])
            }
            _ => Err(invalid()),
        }
    }

    fn make_filter(&mut self) -> io::Result<Vec<OwnedFd>> {
        if !self.allowance.take(Instant::now()) {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let filter = TokenFilter::new(self.rules)?;
        if self.programs.len() >= PROGRAMS_MAX {
            self.programs.pop_front();
        }
        self.programs.push_back(program_id(filter.program())?);
        filter.parts().iter().map(BorrowedFd::try_clone_to_owned).collect()
    }

    /// Attaches a program of a filter, and no other, to a TCP socket.
    fn attach(&self, program: BorrowedFd<'_>, listener: BorrowedFd<'_>) -> io::Result<()> {
        check_tcp(listener)?;
        if !self.programs.contains(&program_id(program)?) {
            return Err(refused());
        }
        attach_program(listener, program)
    }
}

/// Sends an answer, without waiting.
fn reply(to: &OwnedFd, outcome: io::Result<Vec<OwnedFd>>) {
    let (errno, fds) = match outcome {
        Ok(fds) => (0, fds),
        Err(error) => (error.raw_os_error().unwrap_or(libc::EIO), Vec::new()),
    };
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    // Who does not listen gets no answer.
    let _ = message::send(to.as_fd(), &message::answer(errno), &fds, false);
}

/// Gives up what the process does not need.
fn confine(kept: CapabilitySet, files_max: u64, sandbox: &Sandbox) -> io::Result<()> {
    let _ = process::name_thread(NAME);
    // They stay blocked when the descriptor is closed.
    drop(signal::block(&signal::set_of(&SIGNALS), 0)?);
    // Without CAP_SETGID there are none that were not given on purpose.
    let _ = rustix::thread::set_thread_groups(&[]);
    let most = |value| Rlimit { current: Some(value), maximum: Some(value) };
    setrlimit(Resource::Core, most(0))?;
    setrlimit(Resource::Nofile, most(files_max))?;
    let kept = kept & rustix::thread::capabilities(None)?.permitted;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    user::lock_down()?;
    sandbox.enter()
}

fn is_way_of_an_answer(fd: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(fd) == Ok(SocketType::SEQPACKET)
}

/// Checks that a descriptor is a TCP socket.
fn check_tcp(fd: BorrowedFd<'_>) -> io::Result<()> {
    let domain = sockopt::socket_domain(fd)?;
    let is_internet = [AddressFamily::INET, AddressFamily::INET6].contains(&domain);
    let is_tcp = is_internet && sockopt::socket_protocol(fd)? == Some(ipproto::TCP);
    if is_tcp { Ok(()) } else { Err(refused()) }
}

fn refused() -> io::Error {
    io::Error::from_raw_os_error(libc::EPERM)
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// Filters that may still be made.
#[derive(Debug)]
struct Allowance {
    left: u32,
    /// Time up to which it has grown.
    since: Instant,
}

impl Allowance {
    /// Takes one; returns false if there is none.
    fn take(&mut self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.since).as_secs() / FILTER_EVERY.as_secs();
        if elapsed > 0 {
            let more = u32::try_from(elapsed).unwrap_or(u32::MAX);
            (self.left, self.since) = (self.left.saturating_add(more).min(FILTERS_MAX), now);
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fork, socket};
    use std::fs::File;

    #[test]
    fn filters_are_made_in_bounds() {
        let start = Instant::now();
        let mut allowance = Allowance { left: 2, since: start };
        let taken =
            [0, 0, 0, 1500, 1500, 2900].map(|ms| allowance.take(start + Duration::from_millis(ms)));
        assert_eq!(taken, [true, true, false, true, false, true]);
        assert!(allowance.take(start + Duration::from_secs(1 << 40)));
        assert_eq!(allowance.left, FILTERS_MAX - 1);
    }

    #[test]
    fn only_what_the_questions_are_about_is_taken_for_it() {
        let (one, other) = fork::channel().unwrap();
        let file = File::open("/proc/self/status").unwrap();
        let tcp = socket::bind_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        assert!(is_way_of_an_answer(one.as_fd()) && check_tcp(tcp.as_fd()).is_ok());
        assert!(!is_way_of_an_answer(tcp.as_fd()) && !is_way_of_an_answer(file.as_fd()));
        assert!(check_tcp(other.as_fd()).is_err() && check_tcp(file.as_fd()).is_err());
    }

    const RULES: Rules =
        Rules { burst: 1, addresses_counted_max: 1, epoch_bits: 30, dropped_max: 16 };

    /// Returns one that may make no filter and read one file, and is not confined.
    fn helper() -> Helper {
        Helper {
            files: vec![Readable::new("/proc/self/status".into())],
            logs: Vec::new(),
            rules: RULES,
            programs: VecDeque::new(),
            allowance: Allowance { left: 0, since: Instant::now() },
        }
    }

    #[test]
    fn an_empty_message_ends_nothing_and_a_channel_that_is_shut_down_does() {
        let (ours, theirs) = fork::channel().unwrap();
        let answering = std::thread::spawn(move || helper().answer_all(&theirs));
        for _ in 0..3 {
            fork::send(ours.as_fd(), b"", true).unwrap();
            let answer = super::super::ask(&ours, &Request::Hello, &[]);
            assert!(answer.unwrap().is_empty());
        }
        rustix::net::shutdown(&ours, rustix::net::Shutdown::Write).unwrap();
        answering.join().unwrap();
        assert!(super::super::ask(&ours, &Request::Hello, &[]).is_err());
    }

    #[test]
    fn what_was_not_named_before_is_refused() {
        let mut helper = helper();
        let mut errno = |request, fds: &[OwnedFd]| {
            helper.answer(request, fds).err().and_then(|error| error.raw_os_error())
        };
        let tcp = || socket::bind_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        assert_eq!(errno(Request::Hello, &[]), None);
        assert_eq!(errno(Request::Hello, &[tcp()]), Some(libc::EINVAL));
        assert_eq!(errno(Request::Open(b"/etc/passwd"), &[]), Some(libc::EPERM));
        assert_eq!(errno(Request::Append(b"/proc/self/status"), &[]), Some(libc::EPERM));
        assert_eq!(errno(Request::Tokens, &[]), Some(libc::EAGAIN));
        assert_eq!(errno(Request::Random(0.5), &[]), Some(libc::EINVAL));
        // Not a program at all, and not one of a filter's.
        assert!(errno(Request::Attach, &[tcp(), tcp()]).is_some());
        if let Ok(filter) = TokenFilter::new(RULES) {
            let program = filter.program().try_clone_to_owned().unwrap();
            assert_eq!(errno(Request::Attach, &[program, tcp()]), Some(libc::EPERM));
        }
    }
}
