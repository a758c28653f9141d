//! A connection of a server that misbehaves: reads requests, and answers them when they are due.
//! Independent of the loop that drives it: time is an argument, and it returns when to be woken.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use weir_http1::{Body, Framing, HeadParser, Limits, Method, Parse};

use super::script::{End, Script};

/// A non-blocking connection, driven by [`Connection::step`].
pub(super) struct Connection {
    stream: TcpStream,
    script: Script,
    stage: Stage,
    inbox: Vec<u8>,
    head: HeadParser,
    /// The rest of the content of `asked`.
    content: Body,
    asked: Option<Asked>,
    /// Requests not yet answered, in order, with the time of the answer.
    due: VecDeque<(Instant, Asked)>,
    out: Vec<u8>,
    sent: usize,
    /// Time at which `out` was begun, if it is sent at a pace.
    paced_since: Option<Instant>,
    /// The last value of [`Next::Wake`].
    woken_at: Option<Instant>,
}

/// Next action after a step.
pub(super) enum Next {
    /// Wait for an event, or for this time if there is one.
    Wake(Option<Instant>),
    /// Drop the connection.
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    /// Ending, once all is sent.
    Ending(End),
    /// The FIN is sent; the client's is awaited.
    Closing,
}

/// The relevant properties of a request.
#[derive(Clone, Copy)]
struct Asked {
    head_only: bool,
    keep: bool,
}

impl Connection {
    /// Creates a connection from an accepted, non-blocking socket.
    pub(super) fn new(stream: TcpStream, script: Script) -> Connection {
        Connection {
            stream,
            script,
            stage: script.at_accept.map_or(Stage::Serving, Stage::Ending),
            inbox: Vec::new(),
            head: HeadParser::default(),
            content: Body::new(Framing::None),
            asked: None,
            due: VecDeque::new(),
            out: Vec::new(),
            sent: 0,
            paced_since: None,
            woken_at: None,
        }
    }

    /// Returns the socket.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Does everything that can be done at `now`, on a server running since `start`. Counts the
    /// requests that became complete before it answers them. Any error of the client's ends the
    /// connection.
    pub(super) fn step(&mut self, start: Instant, now: Instant, requests: &AtomicU64) -> Next {
        let open = !self.script.reads || self.read();
        requests.fetch_add(self.take_requests(start, now), Ordering::Relaxed);
        self.answer(now);
        if !open || !self.send(now) || !self.end() {
            return Next::Gone;
        }
        let wake = self.wake_at(now);
        let news = wake.filter(|_| wake != self.woken_at);
        self.woken_at = wake;
        Next::Wake(news)
    }

    /// Reads all available bytes. Returns false once the client has gone.
    fn read(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return false,
                Ok(count) => self.inbox.extend_from_slice(&piece[..count]),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Parses requests from the bytes read. Returns how many became complete.
    fn take_requests(&mut self, start: Instant, now: Instant) -> u64 {
        let mut whole = 0;
        while self.stage == Stage::Serving && self.take_head() && self.take_content() {
            whole += 1;
            let asked = self.asked.take();
            self.due.extend(self.script.answer_at(start, now).zip(asked));
        }
        whole
    }

    /// Parses a request's head; returns whether it is complete. An invalid request ends the
    /// connection.
    fn take_head(&mut self) -> bool {
        if self.asked.is_some() {
            return true;
        }
        match self.head.parse(&self.inbox, &Limits::default()) {
            Parse::Partial => return false,
            Parse::Refused(_) => {
                self.stage = Stage::Ending(End::Close);
                return false;
            }
            Parse::Complete(request) => {
                let head_only = request.method == Method::Head;
                self.asked = Some(Asked { head_only, keep: request.keep_alive });
                self.content = Body::new(request.framing);
                let len = request.head_len;
                self.inbox.drain(..len);
            }
        }
        true
    }

    /// Reads content; returns whether all of it has arrived.
    fn take_content(&mut self) -> bool {
        match self.content.advance(&self.inbox) {
            Ok(advance) => {
                self.inbox.drain(..advance.consumed);
                advance.done
            }
            Err(_) => {
                self.stage = Stage::Ending(End::Close);
                false
            }
        }
    }

    /// Appends the answers that are due to the output.
    fn answer(&mut self, now: Instant) {
        while self.stage == Stage::Serving
            && let Some((_, asked)) = self.due.pop_front_if(|(at, _)| *at <= now)
        {
            self.out.extend(self.script.answer(asked.head_only, asked.keep));
            self.paced_since.get_or_insert(now);
            if let Some(end) = self.script.end(asked.keep) {
                self.stage = Stage::Ending(end);
            }
        }
    }

    /// Sends what may be sent. Returns false once the client has gone.
    fn send(&mut self, now: Instant) -> bool {
        let limit = self.limit(now);
        while self.sent < limit {
            match self.stream.write(&self.out[self.sent..limit]) {
                Ok(count) => self.sent += count,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
            self.paced_since = None;
        }
        true
    }

    /// Returns how much of `out` may have been sent by `now`.
    fn limit(&self, now: Instant) -> usize {
        let (Some((piece, pause)), Some(since)) = (self.pace(), self.paced_since) else {
            return self.out.len();
        };
        let pieces = (now - since).as_nanos() / pause.as_nanos();
        self.out.len().min(pieces as usize * piece)
    }

    /// Returns the bytes per piece, and the pause before each.
    fn pace(&self) -> Option<(usize, Duration)> {
        let bytes_per_s = self.script.bytes_per_s?;
        let piece = (bytes_per_s / 1000).max(1);
        Some((piece as usize, Duration::from_nanos(piece * 1_000_000_000 / bytes_per_s)))
    }

    /// Ends the connection if it is time to. Returns false once there is nothing left to wait for.
    fn end(&mut self) -> bool {
        match self.stage {
            Stage::Ending(End::Reset) if self.out.is_empty() => {
                // The client may have reset it first: then there is nothing to do.
                let _ = sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
                false
            }
            Stage::Ending(End::Close) if self.out.is_empty() => {
                self.stage = Stage::Closing;
                self.stream.shutdown(Shutdown::Write).is_ok()
            }
            Stage::Closing => {
                self.inbox.clear();
                true
            }
            Stage::Serving | Stage::Ending(_) => true,
        }
    }

    /// Returns when there is something to do that no event reports.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        let paced = self.pace().zip(self.paced_since).map(|((piece, pause), since)| {
            let pieces = (self.limit(now) / piece) as u32;
            since + pause * (pieces + 1)
        });
        let due = self.due.front().map(|(at, _)| *at).filter(|_| self.stage == Stage::Serving);
        paced.into_iter().chain(due).min()
    }
}
