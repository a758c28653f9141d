//! The one connection machine: reads, has requests parsed and answered, writes, and says what it
//! waits for. It makes the socket's calls and nothing else; it does not know which mechanism
//! watches it, who accepted it, or how content is found.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weir_http1::{Body, Framing, HeadParser, Limits, Parse, Request, Status, reply};
use weir_sys::socket;

use crate::output::{Output, Sent};
use crate::respond;
use crate::service::Service;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Bytes from the client.
    Read,
    /// Room to write.
    Write,
    /// Nothing: it is over.
    Close,
}

/// Bytes read and thrown away after the last reply, at most.
const LINGER_BYTES_MAX: u64 = 4 << 20;

/// Reads of thrown-away bytes in a row before others have their turn.
const LINGER_READS: usize = 16;

/// Reads in a row, under full-read, before others have their turn.
const READS_MAX: usize = 64;

/// Of a request that is still coming, a connection keeps a buffer no larger than needed up to here.
const KEPT_INPUT_BYTES: usize = 2048;

/// A deadline that never comes.
const NEVER: u64 = u64::MAX;

/// A connection. While it is idle it holds no buffer.
#[derive(Debug)]
pub(crate) struct Conn {
    fd: OwnedFd,
    peer: SocketAddr,
    stage: Stage,
    /// Bytes read; those before `taken` are done with.
    input: Vec<u8>,
    taken: usize,
    parser: HeadParser,
    output: Option<Box<Output>>,
    /// When the reply now going out was begun.
    since_ns: u64,
    /// Bytes of replies finished since the accept.
    sent_before: u64,
    /// How many bytes the client had acknowledged when the reply now going out was begun.
    acknowledged_before: Option<u64>,
    /// When the request now in hand began.
    began_ns: u64,
    deadline_ns: u64,
    read_blocked: bool,
    write_blocked: bool,
    heard: bool,
}

#[derive(Debug)]
enum Stage {
    /// Between requests.
    Idle,
    /// Some of a head is there.
    Head,
    /// The reply is ready; the request's body is in its way.
    Drain { body: Box<Body>, payload: u64 },
    /// The reply is going out.
    Reply,
    /// The reply is out, our side is shut, the client's last bytes are thrown away.
    Linger { thrown: u64 },
}

/// Whether a stage leads on at once.
enum Step {
    Again,
    Rest(Next),
}

impl Conn {
    pub(crate) fn new(fd: OwnedFd, peer: SocketAddr, service: &Service) -> Self {
        let now_ns = service.now_ns();
        Self {
            fd,
            peer,
            stage: Stage::Idle,
            input: Vec::new(),
            taken: 0,
            parser: HeadParser::default(),
            output: None,
            since_ns: now_ns,
            sent_before: 0,
            acknowledged_before: None,
            began_ns: now_ns,
            deadline_ns: now_ns + service.config.timeouts.header_ns,
            read_blocked: false,
            write_blocked: false,
            heard: false,
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// When [`Conn::expire`] is due, nanoseconds on the loop's clock.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Between requests, with nothing owed to the client.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// Between requests, and not before the first: kept open for the next.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_idle() && self.heard
    }

    /// Whether the client has ever sent anything.
    pub(crate) fn was_heard(&self) -> bool {
        self.heard
    }

    /// Whether the next word is the client's: between requests, or in the middle of one.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Idle | Stage::Head)
    }

    /// When the request in hand began, or would have, on a connection just accepted.
    pub(crate) fn waits_since_ns(&self) -> u64 {
        self.began_ns
    }

    /// Refuses the connection with a 503, whatever it asks for.
    pub(crate) fn turn_away(&mut self, service: &mut Service) -> Next {
        match self.fill(service) {
            Ok(0) => return Next::Close,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Next::Close,
        }
        service.counters.turned_away.one();
        let next = self.give_up(Status::SERVICE_UNAVAILABLE, service);
        if self.taken == self.input.len() {
            self.release_input(service);
        }
        next
    }

    /// Moves the deadline of whatever the connection does now forward.
    pub(crate) fn hurry(&mut self, deadline_ns: u64) {
        self.deadline_ns = self.deadline_ns.min(deadline_ns);
    }

    /// Whether the last read and the last write of this turn left the socket empty and full.
    pub(crate) fn blocked(&mut self) -> (bool, bool) {
        (std::mem::take(&mut self.read_blocked), std::mem::take(&mut self.write_blocked))
    }

    /// Makes what progress it can after the mechanism said it can make some, or right after the
    /// accept when reads are eager.
    pub(crate) fn proceed(&mut self, service: &mut Service) -> Next {
        let next = match self.stage {
            Stage::Reply => self.run(service, true),
            Stage::Linger { .. } => self.linger(service),
            Stage::Idle | Stage::Head | Stage::Drain { .. } => self.read(service),
        };
        if self.taken == self.input.len() {
            self.release_input(service);
        } else if next == Next::Read {
            self.shrink_input(service);
        }
        next
    }

    /// Ends or prolongs the stage whose deadline has come.
    pub(crate) fn expire(&mut self, service: &mut Service) -> Next {
        let late = self.request_deadline_ns(service) <= service.now_ns();
        let counters = &mut service.counters;
        match self.stage {
            Stage::Idle if self.heard => counters.timeout_idle.one(),
            Stage::Idle => counters.timeout_header.one(),
            Stage::Head | Stage::Drain { .. } if late => counters.timeout_request.one(),
            Stage::Head => counters.timeout_header.one(),
            Stage::Drain { .. } => counters.timeout_body.one(),
            Stage::Reply | Stage::Linger { .. } => {}
        }
        match self.stage {
            Stage::Head | Stage::Drain { .. } => self.give_up(Status::REQUEST_TIMEOUT, service),
            Stage::Reply => self.expire_reply(service),
            Stage::Idle | Stage::Linger { .. } => Next::Close,
        }
    }

    /// Lets go of everything. A reply cut short ends in a reset, so that nobody takes it for whole.
    pub(crate) fn close(mut self, service: &mut Service) {
        service.counters.closed.one();
        self.release_input(service);
        if let Some(mut output) = self.output.take() {
            if output.sent_bytes > 0 {
                service.counters.replies_cut.add(output.replies());
                socket::reset_on_close(self.fd.as_fd());
            }
            self.log(&mut output, service);
            service.give_output(output);
        }
        socket::close(self.fd);
    }

    fn read(&mut self, service: &mut Service) -> Next {
        for _ in 0..READS_MAX {
            match self.fill(service) {
                Ok(0) => return self.ended(service),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Read,
                Err(_) => {
                    self.count_gone(service);
                    return Next::Close;
                }
            }
            let next = self.run(service, service.config.strategy.eager_write);
            if next != Next::Read || !service.config.strategy.full_read {
                return next;
            }
        }
        Next::Read
    }

    fn fill(&mut self, service: &mut Service) -> io::Result<usize> {
        if self.input.capacity() <= KEPT_INPUT_BYTES {
            let mut input = service.take_input();
            input.extend_from_slice(&self.input[self.taken..]);
            self.input = input;
        } else {
            self.input.drain(..self.taken);
        }
        self.taken = 0;
        if self.input.len() == self.input.capacity() {
            self.input.reserve(self.input.len());
        }
        let room = self.input.capacity() - self.input.len();
        service.counters.reads.one();
        let result = socket::read(self.fd.as_fd(), &mut self.input);
        match &result {
            Ok(bytes) => {
                self.read_blocked = *bytes < room;
                self.heard |= *bytes > 0;
                service.counters.bytes_in.add(*bytes as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.read_blocked = true;
                service.counters.read_would_block.one();
            }
            Err(_) => {}
        }
        result
    }

    fn count_gone(&self, service: &mut Service) {
        if self.heard {
            service.counters.gone.one();
        } else {
            service.counters.gone_before_read.one();
        }
    }

    /// The client has shut its side down, with no whole request left to answer.
    fn ended(&mut self, service: &mut Service) -> Next {
        if !self.heard {
            service.counters.gone_before_read.one();
        }
        Next::Close
    }

    /// Goes from stage to stage until one must wait. `writes`: a reply may be written now; those
    /// that follow it may when writes are eager.
    fn run(&mut self, service: &mut Service, mut writes: bool) -> Next {
        loop {
            let step = match self.stage {
                Stage::Idle | Stage::Head => self.take_request(service),
                Stage::Drain { .. } => self.drain(service),
                Stage::Reply if writes => {
                    writes = service.config.strategy.eager_write;
                    self.write(service)
                }
                Stage::Reply => Step::Rest(Next::Write),
                Stage::Linger { .. } => Step::Rest(Next::Read),
            };
            if let Step::Rest(next) = step {
                return next;
            }
        }
    }

    fn take_request(&mut self, service: &mut Service) -> Step {
        let now_ns = service.now_ns();
        if self.taken == self.input.len() {
            return self.wait_for_request(service);
        }
        if matches!(self.stage, Stage::Idle) {
            self.stage = Stage::Head;
            self.began_ns = now_ns;
            let header_ns = now_ns + service.config.timeouts.header_ns;
            self.deadline_ns = header_ns.min(self.request_deadline_ns(service));
        }
        let input = std::mem::take(&mut self.input);
        let step = match self.parser.parse(&input[self.taken..], &Limits::default()) {
            Parse::Partial => self.wait_for_request(service),
            Parse::Complete(request) if self.must_reply_first(&request) => {
                self.wait_for_request(service)
            }
            Parse::Complete(request) => self.answer(&request, service),
            Parse::Refused(refusal) => {
                service.counters.refused_requests.one();
                self.refuse(refusal.status, service)
            }
        };
        self.input = input;
        step
    }

    /// Replies held back to share a write must not wait for the body of a later request.
    fn must_reply_first(&self, request: &Request<'_>) -> bool {
        self.output.is_some() && request.framing != Framing::None
    }

    /// No whole request is there. Replies to earlier ones, held to share a write, go out first.
    fn wait_for_request(&mut self, service: &Service) -> Step {
        if self.output.is_some() {
            self.begin_reply(service);
            return Step::Again;
        }
        if matches!(self.stage, Stage::Idle) && self.heard {
            self.deadline_ns = service.now_ns() + service.config.timeouts.idle_ns;
        }
        Step::Rest(Next::Read)
    }

    fn answer(&mut self, request: &Request<'_>, service: &mut Service) -> Step {
        self.taken += request.head_len;
        service.counters.requests.one();
        let mut output = self.output.take().unwrap_or_else(|| service.take_output());
        let caller = respond::Caller { peer: self.peer, began_ns: self.began_ns };
        respond::answer(request, caller, service, &mut output);
        let drains = request.framing != Framing::None && !output.close;
        let waits = request.expect_continue && drains;
        let told = !waits || self.tell_to_continue();
        let more = output.takes_more() && service.config.strategy.eager_write;
        self.output = Some(output);
        if !told {
            return Step::Rest(Next::Close);
        }
        if drains {
            let body = Box::new(Body::new(request.framing));
            self.stage = Stage::Drain { body, payload: 0 };
            let body_ns = service.now_ns() + service.config.timeouts.body_ns;
            self.deadline_ns = body_ns.min(self.request_deadline_ns(service));
        } else if more {
            self.stage = Stage::Idle;
        } else {
            self.begin_reply(service);
        }
        Step::Again
    }

    /// Sends `100 Continue`. Nothing is in its way: earlier replies have gone out.
    fn tell_to_continue(&self) -> bool {
        let written = socket::write(self.fd.as_fd(), reply::CONTINUE, false);
        written.is_ok_and(|bytes| bytes == reply::CONTINUE.len())
    }

    /// Answers what cannot be read as a request. Nothing after it can be trusted to be one.
    fn refuse(&mut self, status: Status, service: &mut Service) -> Step {
        let mut output = self.output.take().unwrap_or_else(|| service.take_output());
        let caller = respond::Caller { peer: self.peer, began_ns: self.began_ns };
        respond::refuse(status, caller, service, &mut output);
        self.output = Some(output);
        self.begin_reply(service);
        Step::Again
    }

    fn drain(&mut self, service: &mut Service) -> Step {
        let Stage::Drain { body, payload } = &mut self.stage else { return Step::Again };
        match body.advance(&self.input[self.taken..]) {
            Ok(advance) => {
                self.taken += advance.consumed;
                *payload += advance.payload as u64;
                if *payload > service.config.body_bytes_max {
                    service.counters.refused_requests.one();
                    return self.replace_reply(Status::CONTENT_TOO_LARGE, service);
                }
                if !advance.done {
                    return Step::Rest(Next::Read);
                }
                self.begin_reply(service);
                Step::Again
            }
            Err(refusal) => {
                service.counters.refused_requests.one();
                self.replace_reply(refusal.status, service)
            }
        }
    }

    /// The reply that was ready no longer holds: the body that came with the request is at fault.
    fn replace_reply(&mut self, status: Status, service: &mut Service) -> Step {
        if let Some(output) = self.output.take() {
            service.give_output(output);
        }
        self.refuse(status, service)
    }

    fn begin_reply(&mut self, service: &Service) {
        self.stage = Stage::Reply;
        self.since_ns = service.now_ns();
        self.acknowledged_before = None;
        self.deadline_ns = self.reply_deadline_ns(0, service);
    }

    fn write(&mut self, service: &mut Service) -> Step {
        let Some(output) = &mut self.output else { return Step::Rest(Next::Close) };
        match output.send(self.fd.as_fd(), service) {
            Sent::All => self.finish_reply(service),
            Sent::Turn => Step::Rest(Next::Write),
            Sent::Blocked => {
                self.write_blocked = true;
                self.note_acknowledged();
                Step::Rest(Next::Write)
            }
            Sent::Gone => {
                service.counters.gone.one();
                Step::Rest(Next::Close)
            }
            Sent::Changed => {
                service.counters.replies_changed.one();
                Step::Rest(Next::Close)
            }
        }
    }

    fn finish_reply(&mut self, service: &mut Service) -> Step {
        let Some(mut output) = self.output.take() else { return Step::Rest(Next::Close) };
        service.counters.replies.add(output.replies());
        service.counters.statuses(output.statuses);
        self.sent_before += output.sent_bytes;
        self.log(&mut output, service);
        let close = output.close || service.is_closing();
        let linger = output.linger || self.taken < self.input.len();
        service.give_output(output);
        if !close {
            self.stage = Stage::Idle;
            return Step::Again;
        }
        if !linger || socket::shutdown_write(self.fd.as_fd()).is_err() {
            return Step::Rest(Next::Close);
        }
        self.stage = Stage::Linger { thrown: 0 };
        self.taken = self.input.len();
        self.deadline_ns = service.now_ns() + service.config.timeouts.linger_ns;
        Step::Rest(Next::Read)
    }

    /// Reads on after the last reply: closing with bytes unread would reset the connection, and the
    /// client could lose the reply (RFC 9112 §9.6).
    fn linger(&mut self, service: &mut Service) -> Next {
        let Stage::Linger { thrown } = &mut self.stage else { return Next::Close };
        for _ in 0..LINGER_READS {
            match socket::read_slice(self.fd.as_fd(), &mut service.scratch) {
                Ok(0) => return Next::Close,
                Ok(bytes) => *thrown += bytes as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.read_blocked = true;
                    return Next::Read;
                }
                Err(_) => return Next::Close,
            }
            if *thrown > LINGER_BYTES_MAX {
                return Next::Close;
            }
        }
        Next::Read
    }

    /// Says why, if the client still listens, and closes.
    fn give_up(&mut self, status: Status, service: &mut Service) -> Next {
        self.taken = self.input.len();
        match self.replace_reply(status, service) {
            Step::Again => self.run(service, true),
            Step::Rest(next) => next,
        }
    }

    /// When the whole of a request and its reply is late.
    fn request_deadline_ns(&self, service: &Service) -> u64 {
        match service.config.timeouts.request_ns {
            0 => NEVER,
            request_ns => self.began_ns.saturating_add(request_ns),
        }
    }

    /// When a reply of which `taken_bytes` have arrived is too slow. A client that takes `rate_min`
    /// bytes a second is never cut: its bytes buy the time they are allowed.
    fn reply_deadline_ns(&self, taken_bytes: u64, service: &Service) -> u64 {
        let request_ns = self.request_deadline_ns(service);
        if service.config.rate_min == 0 {
            return request_ns;
        }
        let bought = u128::from(taken_bytes) * 1_000_000_000 / u128::from(service.config.rate_min);
        let bought_ns = u64::try_from(bought).unwrap_or(NEVER);
        let grace_ns = service.config.timeouts.rate_grace_ns;
        request_ns.min(self.since_ns.saturating_add(grace_ns).saturating_add(bought_ns))
    }

    fn expire_reply(&mut self, service: &mut Service) -> Next {
        let before = self.acknowledged_before.unwrap_or(self.sent_before);
        let taken_bytes = self.acknowledged().saturating_sub(before);
        self.deadline_ns = self.reply_deadline_ns(taken_bytes, service);
        if self.deadline_ns > service.now_ns() {
            return Next::Write;
        }
        if self.request_deadline_ns(service) <= service.now_ns() {
            service.counters.timeout_request.one();
        } else {
            service.counters.timeout_rate.one();
        }
        Next::Close
    }

    /// Bytes written to the client since the accept that have reached its side. For a Unix socket,
    /// whose queue the kernel measures in memory and not in bytes, all that were written.
    fn acknowledged(&self) -> u64 {
        let written = self.sent_before + self.output.as_ref().map_or(0, |output| output.sent_bytes);
        let is_tcp = self.peer != socket::UNKNOWN_PEER;
        let waiting = if is_tcp { socket::unacknowledged(self.fd.as_fd()).unwrap_or(0) } else { 0 };
        written.saturating_sub(waiting)
    }

    /// At the first full socket of a reply, when its first bytes are hardly on their way: how much
    /// of what came before it had arrived by then.
    fn note_acknowledged(&mut self) {
        if self.acknowledged_before.is_none() {
            self.acknowledged_before = Some(self.acknowledged().min(self.sent_before));
        }
    }

    fn log(&self, output: &mut Output, service: &mut Service) {
        if service.log.is_none() {
            return;
        }
        // The phase's time is the same for all of it; how long a reply took is not.
        let (unix_ns, now_ns) = (service.unix_ns(), service.read_clock_ns());
        if let Some(log) = &mut service.log {
            log.write(&mut output.records, output.sent_bytes, unix_ns, now_ns);
        }
    }

    /// Keeps the beginning of a request in a buffer of its own size: many clients may be slow.
    fn shrink_input(&mut self, service: &mut Service) {
        let rest = &self.input[self.taken..];
        if rest.len() <= KEPT_INPUT_BYTES && self.input.capacity() > KEPT_INPUT_BYTES {
            let rest = rest.to_vec();
            self.release_input(service);
            self.input = rest;
        }
    }

    fn release_input(&mut self, service: &mut Service) {
        self.taken = 0;
        service.give_input(std::mem::take(&mut self.input));
    }
}
