//! Active checks: one thread asks every server for a page from time to time, and tells the loops
//! which do not answer. It waits for none: a server that is silent delays no check of another.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_http1::proxy_protocol::{self, Version};
use weir_http1::reply_parser::ReplyParser;
use weir_sys::heap::Charged;
use weir_sys::poll::{self, POLLIN, POLLOUT, PollFd};
use weir_sys::waker::Waker;
use weir_sys::{client, socket};
use weir_tls::client::ClientSession;

use super::health::CheckVerdict;
use super::shared::SharedUpstreams;
use super::transport::Kernel;
use super::{TELL_NS, open, session};
use crate::config::{Config, Error, ErrorLog, HealthCheck, LogLevel, UpstreamServer};
use crate::sandbox::{Confinement, Task};

/// Number of bytes read at a time.
const READ_BYTES: usize = 4096;

/// The thread; stopped when dropped.
#[derive(Debug)]
pub(crate) struct HealthChecker {
    stops: Arc<(AtomicBool, Waker)>,
    thread: Option<JoinHandle<()>>,
}

impl HealthChecker {
    /// Starts the checks of a configuration; `None` if it has none.
    ///
    /// # Errors
    /// EAGAIN, EMFILE, ENOMEM: no thread, or no waker.
    pub(crate) fn start(
        config: &Arc<Config>,
        shared: Option<&Arc<SharedUpstreams>>,
        confinement: &Confinement,
    ) -> io::Result<Option<Self>> {
        let has_checks = config.upstreams.iter().any(|upstream| upstream.health.is_some());
        let Some(shared) = shared.filter(|_| has_checks) else { return Ok(None) };
        let stops = Arc::new((AtomicBool::new(false), Waker::new()?));
        let (config, shared) = (Arc::clone(config), Arc::clone(shared));
        let stop = Arc::clone(&stops);
        let confinement = confinement.clone();
        let run = move || match confinement.enter(Task::Check) {
            Ok(()) => Checks::new(&config, &shared).run(&stop),
            Err(Error(why)) => config.errors.error(&format!("upstreams are not checked: {why}")),
        };
        let thread = std::thread::Builder::new().name("weir-health".into()).spawn(run)?;
        Ok(Some(Self { stops, thread: Some(thread) }))
    }
}

impl Drop for HealthChecker {
    fn drop(&mut self) {
        self.stops.0.store(true, Ordering::Relaxed);
        self.stops.1.wake();
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// The checks of all servers.
struct Checks<'a> {
    shared: &'a SharedUpstreams,
    errors: ErrorLog,
    servers: Vec<CheckedServer<'a>>,
    /// Time at which the operator was last told of a lack, nanoseconds.
    lack_told_ns: Option<u64>,
}

/// A server with the check of it that is under way, or comes next.
struct CheckedServer<'a> {
    upstream: usize,
    index: usize,
    name: &'a str,
    server: &'a UpstreamServer,
    check: &'a HealthCheck,
    proxy_protocol: Option<Version>,
    verdict: CheckVerdict,
    due_ns: u64,
    attempt: Option<Attempt>,
    /// True once a connect has begun: if another cannot, not an address is lacking but a port.
    has_address: bool,
}

/// A check that is under way.
struct Attempt {
    fd: OwnedFd,
    tls: Option<Charged<ClientSession>>,
    deadline_ns: u64,
    request: Vec<u8>,
    sent: usize,
    reply: ReplyParser,
}

impl<'a> Checks<'a> {
    fn new(config: &'a Config, shared: &'a SharedUpstreams) -> Self {
        let mut servers = Vec::new();
        for (upstream, target) in config.upstreams.iter().enumerate() {
            let Some(check) = &target.health else { continue };
            servers.extend(target.servers.iter().enumerate().map(|(index, server)| {
                let verdict = CheckVerdict::new(check.fall);
                let (name, due_ns, attempt) = (target.name.as_str(), 0, None);
                let has_address = false;
                let proxy_protocol = target.proxy_protocol;
                CheckedServer {
                    upstream,
                    index,
                    name,
                    server,
                    check,
                    proxy_protocol,
                    verdict,
                    due_ns,
                    attempt,
                    has_address,
                }
            }));
        }
        Self { shared, errors: config.errors.clone(), servers, lack_told_ns: None }
    }

    fn run(&mut self, stop: &(AtomicBool, Waker)) {
        while !stop.0.load(Ordering::Relaxed) {
            let now_ns = self.shared.now_ns();
            (0..self.servers.len()).for_each(|index| self.begin_or_expire(index, now_ns));
            let ready = self.wait(now_ns, &stop.1);
            ready.into_iter().for_each(|index| self.proceed(index));
        }
    }

    /// Waits until a check can go on, or the next is due. Returns the servers whose check can.
    fn wait(&mut self, now_ns: u64, waker: &Waker) -> Vec<usize> {
        let watch = |fd, events| PollFd { fd, events, revents: 0 };
        let mut fds = vec![watch(waker.as_fd().as_raw_fd(), POLLIN)];
        let mut checked = Vec::new();
        for (index, server) in self.servers.iter().enumerate() {
            if let Some(attempt) = &server.attempt {
                let events = if attempt.awaits_room() { POLLOUT } else { POLLIN };
                fds.push(watch(attempt.fd.as_raw_fd(), events));
                checked.push(index);
            }
        }
        let wake_ns = self.servers.iter().map(CheckedServer::wake_ns).min().unwrap_or(now_ns);
        let timeout = Duration::from_nanos(wake_ns.saturating_sub(now_ns));
        if let Err(error) = poll::poll(&mut fds, Some(timeout)) {
            // Lack of memory, which passes.
            self.tell_lack(now_ns, || format!("waiting for health checks: {error}"));
            std::thread::sleep(Duration::from_millis(10));
        }
        let ready = fds.iter().skip(1).zip(checked).filter(|(fd, _)| fd.revents != 0);
        ready.map(|(_, index)| index).collect()
    }

    /// Begins a check that is due, or ends one that takes too long.
    fn begin_or_expire(&mut self, index: usize, now_ns: u64) {
        let server = &mut self.servers[index];
        if let Some(attempt) = &server.attempt {
            if attempt.deadline_ns <= now_ns {
                self.end(index, false);
            }
        } else if server.due_ns <= now_ns {
            server.due_ns = now_ns + server.check.interval_ns;
            match server.begin(now_ns) {
                Ok(attempt) => {
                    server.attempt = Some(attempt);
                    server.has_address = true;
                }
                // What is lacking here says nothing of the server. That there was no address yet to
                // connect from does: it may stay so for this server, and another is reached.
                Err(error)
                    if client::is_own_lack(&error)
                        || server.has_address && client::has_no_address(&error) =>
                {
                    let (name, address) = (server.name, server.server);
                    let text = || format!("upstream {name}: {address} is not checked: {error}");
                    self.tell_lack(now_ns, text);
                }
                Err(_) => self.end(index, false),
            }
        }
    }

    /// Tells the operator what is lacking here, at most once per [`TELL_NS`].
    fn tell_lack(&mut self, now_ns: u64, text: impl FnOnce() -> String) {
        if self.lack_told_ns.is_none_or(|told_ns| told_ns + TELL_NS <= now_ns) {
            self.lack_told_ns = Some(now_ns);
            self.errors.warn(&text());
        }
    }

    fn proceed(&mut self, index: usize) {
        let server = &mut self.servers[index];
        if let Some(passed) = server.attempt.as_mut().and_then(Attempt::proceed) {
            self.end(index, passed);
        }
    }

    /// Ends a check, and tells everybody if it changes the verdict.
    fn end(&mut self, index: usize, passed: bool) {
        let server = &mut self.servers[index];
        server.attempt = None;
        self.shared.count_check(passed);
        let HealthCheck { rise, fall, .. } = *server.check;
        if let Some(is_down) = server.verdict.note(passed, rise, fall) {
            self.shared.set_down(server.upstream, server.index, is_down);
            let (level, state) = match is_down {
                true => (LogLevel::Error, "down"),
                false => (LogLevel::Notice, "up again"),
            };
            let (name, address) = (server.name, server.server);
            self.errors.tell(level, &format!("upstream {name}: {address} is {state}"));
        }
    }
}

impl CheckedServer<'_> {
    /// Returns when it is to be looked at next.
    fn wake_ns(&self) -> u64 {
        self.attempt.as_ref().map_or(self.due_ns, |attempt| attempt.deadline_ns)
    }

    fn begin(&self, now_ns: u64) -> io::Result<Attempt> {
        let (path, host) = (&self.check.path, &self.server.authority);
        let mut request = Vec::new();
        if let Some(version) = self.proxy_protocol {
            proxy_protocol::write_own(&mut request, version);
        }
        // Writing into a Vec cannot fail.
        let _ = write!(
            request,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: weir-health-check\r\n\
             Connection: close\r\n\r\n"
        );
        Ok(Attempt {
            fd: open(&self.server.address)?,
            tls: session(self.server)?,
            deadline_ns: now_ns + self.check.timeout_ns,
            request,
            sent: 0,
            reply: ReplyParser::default(),
        })
    }
}

impl Attempt {
    /// Returns whether it waits for room in the socket, and not for bytes.
    fn awaits_room(&self) -> bool {
        match &self.tls {
            Some(tls) if tls.is_handshaking() => tls.is_sending(),
            Some(tls) => tls.is_sending() || self.sent < self.request.len(),
            None => self.sent < self.request.len(),
        }
    }

    fn write(&mut self) -> io::Result<usize> {
        let unsent = self.request.get(self.sent..).unwrap_or_default();
        match &mut self.tls {
            Some(tls) => tls.measure(|tls| tls.send(&mut Kernel(self.fd.as_fd()), unsent)),
            None => socket::write(self.fd.as_fd(), unsent, false),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.measure(|tls| tls.receive(&mut Kernel(self.fd.as_fd()), into)),
            None => socket::read_slice(self.fd.as_fd(), into),
        }
    }

    /// Sends and receives what it can. Returns whether the server is well, once that is known.
    fn proceed(&mut self) -> Option<bool> {
        if self.sent < self.request.len() {
            return match self.write() {
                Ok(bytes) => {
                    self.sent += bytes;
                    None
                }
                Err(error) => unless_blocked(&error),
            };
        }
        let mut buffer = [0; READ_BYTES];
        match self.read(&mut buffer) {
            Ok(0) => Some(false),
            Ok(bytes) => {
                let received = buffer.get(..bytes).unwrap_or_default();
                if self.reply.advance(received).is_err() {
                    return Some(false);
                }
                // The head is enough.
                let status = self.reply.status();
                (status > 0).then_some((200..400).contains(&status))
            }
            Err(error) => unless_blocked(&error),
        }
    }
}

fn unless_blocked(error: &io::Error) -> Option<bool> {
    (error.kind() != io::ErrorKind::WouldBlock).then_some(false)
}
