//! The exchange on a connection: connect, send a group of requests, read the replies, continue or
//! close. Handles sockets and replies; the schedule is kept by `worker`.

use std::cmp::Reverse;
use std::io;
use std::os::fd::AsFd;

use weir_http1::response::{ReplyParser, State};
use weir_sys::epoll::{self, EventFlags};
use weir_sys::{client, is_exhaustion, socket};

use super::conn::{Stage, Watched, due_ns};
use super::worker::Worker;
use crate::measure::ErrorKind;
use crate::session::{RequestId, Step};

/// Reads per turn of a connection: a megabyte.
const READS_MAX: usize = 16;

/// Pieces of slow requests sent in a row, limited so that they do not delay a start.
const PIECES_MAX: usize = 32;

const GONE: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// Returns the end of the group that begins with step `from`: the next step that waits for replies.
pub(super) fn group_end(steps: &[Step], from: u32) -> u32 {
    let rest = steps.get(from as usize + 1..).unwrap_or_default();
    from + 1 + rest.iter().take_while(|step| step.piped).count() as u32
}

impl Worker<'_> {
    /// Begins the next requests of a session, up to the first one that must wait for their replies.
    pub(super) fn begin_group(&mut self, slot: u32, planned_ns: u64) {
        let now_ns = self.clock.now_ns();
        let conn = &mut self.conns[slot as usize];
        conn.group_start = conn.answered;
        conn.group_end = group_end(&conn.session.steps, conn.answered);
        conn.offset = 0;
        conn.allowed = self.pieces.first();
        conn.sent_ns.clear();
        conn.planned_ns = planned_ns;
        conn.started_ns = now_ns;
        conn.connected_ns = 0;
        conn.first_byte_ns = 0;
        conn.progress_ns = now_ns;
        let (requests, free_ns) = (u64::from(conn.under_way()), conn.free_ns);
        self.tally.started(planned_ns, free_ns, now_ns, requests);
        self.expect_reply(slot);
        let conn = &mut self.conns[slot as usize];
        if conn.fd.is_some() {
            if conn.stage != Stage::Connecting {
                conn.connected_ns = now_ns;
                conn.stage = Stage::Sending;
            }
            self.send(slot);
        } else {
            if conn.answered > 0 {
                self.tally.at(planned_ns).reconnects += 1;
            }
            match self.open(slot) {
                Ok(()) => self.send(slot),
                Err(kind) => self.fail(slot, kind),
            }
        }
        self.arm(slot);
    }

    /// Resets the parser for the reply to the oldest unanswered request.
    fn expect_reply(&mut self, slot: u32) {
        let conn = &mut self.conns[slot as usize];
        let step = conn.session.steps.get(conn.answered as usize);
        let request = step.and_then(|step| self.config.requests.get(step.request));
        conn.parser = ReplyParser::new(request.is_some_and(|request| request.head_only));
    }

    fn arm(&mut self, slot: u32) {
        let conn = &self.conns[slot as usize];
        let at_ns = conn.expires_ns(self.config.timeout_ns, self.config.deadline_ns);
        if at_ns < u64::MAX {
            self.timers.arm(slot, at_ns);
        }
    }

    /// Opens a socket and begins to connect it.
    fn open(&mut self, slot: u32) -> Result<(), ErrorKind> {
        let config = self.config;
        let planned_ns = self.conns[slot as usize].planned_ns;
        self.tally.at(planned_ns).connects += 1;
        self.turn = self.turn.wrapping_add(1);
        let (address, source) = config.pair(self.turn).ok_or(ErrorKind::Other)?;
        let opened_ns = self.clock.now_ns();
        let fd = client::stream(&address).map_err(|error| why_not_connected(&error))?;
        if let Some(source) = source {
            client::bind_source(fd.as_fd(), source).map_err(|error| why_not_connected(&error))?;
        }
        client::connect(fd.as_fd(), &address).map_err(|error| why_not_connected(&error))?;
        let conn = &mut self.conns[slot as usize];
        conn.fd = Some(fd);
        conn.stage = Stage::Connecting;
        conn.watched = Watched::No;
        conn.hung_up = false;
        conn.of_use = false;
        conn.opened_ns = opened_ns;
        self.note_open();
        Ok(())
    }

    /// Opens a shared connection before any request needs it.
    pub(super) fn open_shared(&mut self) {
        let Some(slot) = self.take_slot() else { return };
        if self.open(slot).is_ok() {
            self.watch(slot, Watched::Both);
        }
        self.free.push_back(slot);
    }

    /// Registers the socket for what the connection waits for, unless it is registered for that
    /// already.
    fn watch(&mut self, slot: u32, wanted: Watched) {
        let conn = &mut self.conns[slot as usize];
        // Once it is watched for both there is no way back: an edge too many costs less.
        if conn.watched != wanted && conn.watched != Watched::Both {
            self.ask(slot, wanted);
        }
    }

    /// Registers the socket, which also reports at once whatever is ready already.
    fn ask(&mut self, slot: u32, wanted: Watched) {
        let token_slot = slot + self.background.len();
        let conn = &mut self.conns[slot as usize];
        let Some(fd) = &conn.fd else { return };
        let read = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let flags = if wanted == Watched::Both { read | EventFlags::OUT } else { read };
        let data = u64::from(conn.generation) << 32 | u64::from(token_slot);
        let done = match conn.watched {
            Watched::No => epoll::add(self.epoll.as_fd(), fd.as_fd(), data, flags),
            _ => epoll::modify(self.epoll.as_fd(), fd.as_fd(), data, flags),
        };
        match done {
            Ok(()) => conn.watched = wanted,
            Err(_) if conn.session.steps.is_empty() => {
                conn.stage = Stage::Free;
                self.close(slot);
            }
            Err(_) => self.fail(slot, ErrorKind::Other),
        }
    }

    /// Sends the pieces that are due.
    pub(super) fn send_pieces(&mut self, now_ns: u64) {
        for _ in 0..PIECES_MAX {
            let Some((slot, generation)) = self.pieces.due(now_ns) else { return };
            if self.is_current(slot, generation) {
                let conn = &mut self.conns[slot as usize];
                conn.allowed = conn.allowed.saturating_add(self.pieces.more());
                self.send(slot);
            }
        }
    }

    /// Writes as much of the group as the kernel accepts. A successful write also shows that the
    /// connection is established: to a server on the same machine it is by the time connect(2)
    /// returns. An empty write, for a request that must not be sent, shows it too.
    fn send(&mut self, slot: u32) {
        let conn = &self.conns[slot as usize];
        if conn.stage == Stage::Sending && conn.offset >= conn.allowed {
            // The next piece is not due, and may never be.
            return;
        }
        let tried_ns = self.clock.now_ns();
        let written = self.write(slot);
        let now_ns = self.clock.now_ns();
        let conn = &mut self.conns[slot as usize];
        match written {
            Ok((bytes, whole)) => {
                let was_connecting = conn.stage == Stage::Connecting;
                conn.stage = if whole { Stage::Receiving } else { Stage::Sending };
                conn.progress_ns = now_ns;
                let planned_ns = conn.planned_ns;
                if !whole && conn.offset >= conn.allowed {
                    self.pieces.wait(now_ns, slot, conn.generation);
                }
                if was_connecting {
                    conn.connected_ns = tried_ns;
                    let took_ns = tried_ns.saturating_sub(conn.started_ns);
                    self.tally.connected(planned_ns, took_ns);
                }
                self.tally.at(planned_ns).bytes_out += bytes;
                self.watch(slot, if whole { Watched::Read } else { Watched::Both });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.watch(slot, Watched::Both);
            }
            Err(error) if conn.stage == Stage::Connecting => {
                self.fail(slot, why_not_connected(&error));
            }
            // The server may have answered before it stopped to listen.
            Err(_) => self.read(slot, true, ErrorKind::Reset),
        }
    }

    /// Writes the rest of the group; returns the number of bytes accepted, and whether that was
    /// all.
    fn write(&mut self, slot: u32) -> io::Result<(u64, bool)> {
        let requests = &self.config.requests;
        let conn = &mut self.conns[slot as usize];
        let Some(fd) = &conn.fd else { return Err(io::ErrorKind::NotConnected.into()) };
        let (start, end) = (conn.group_start as usize, conn.group_end as usize);
        let session = &conn.session;
        let bytes_of = |index: usize| -> &[u8] {
            let request = session.steps.get(index).and_then(|step| requests.get(step.request));
            let closes = session.last_closes && index + 1 == session.steps.len();
            request.map_or(b"", |request| if closes { &request.close } else { &request.keep })
        };
        let all: &[u8] = if end - start == 1 {
            bytes_of(start)
        } else {
            self.scratch.clear();
            (start..end).for_each(|index| self.scratch.extend_from_slice(bytes_of(index)));
            &self.scratch
        };
        let before = conn.offset;
        let piece = all.get(before..conn.allowed.min(all.len())).unwrap_or_default();
        let bytes = socket::write(fd.as_fd(), piece, false)?;
        let (planned_ns, sent_before) = (conn.planned_ns, conn.sent_ns.len());
        let whole = before + bytes >= all.len();
        conn.offset = before + bytes;
        // A request's first byte has gone when all that precede it have, and it.
        let now_ns = self.clock.now_ns();
        let mut first_byte = 0;
        for index in start..end {
            if conn.offset > first_byte && conn.sent_ns.len() == index - start {
                conn.sent_ns.push(now_ns);
            }
            first_byte += bytes_of(index).len();
        }
        self.tally.at(planned_ns).sent += (conn.sent_ns.len() - sent_before) as u64;
        Ok((bytes as u64, whole))
    }

    /// Handles a readiness event of a socket.
    pub(super) fn event(&mut self, slot: u32, flags: EventFlags) {
        let conn = &mut self.conns[slot as usize];
        conn.hung_up |= flags.intersects(GONE);
        let hung_up = conn.hung_up;
        match conn.stage {
            Stage::Connecting if conn.session.steps.is_empty() => self.is_there(slot),
            Stage::Connecting | Stage::Sending => {
                self.send(slot);
                let conn = &self.conns[slot as usize];
                if matches!(conn.stage, Stage::Receiving | Stage::Sending) && conn.fd.is_some() {
                    self.read(slot, hung_up, ErrorKind::ClosedEarly);
                }
            }
            Stage::Receiving => self.read(slot, hung_up, ErrorKind::ClosedEarly),
            Stage::Closing if hung_up => self.release(slot),
            Stage::Closing => {}
            // Nothing is owed: either the server closes, as it may, or it talks out of turn. Both
            // cost the connection and nobody a reply.
            Stage::Thinking | Stage::Free => {
                if flags.intersects(GONE | EventFlags::IN) {
                    self.close(slot);
                }
            }
        }
    }

    /// Handles the outcome of connecting a shared connection ahead of the run.
    fn is_there(&mut self, slot: u32) {
        let conn = &mut self.conns[slot as usize];
        conn.stage = Stage::Free;
        let error = conn.fd.as_ref().map(|fd| client::take_error(fd.as_fd()));
        let (there, opened_ns) = (matches!(error, Some(Ok(None))) && !conn.hung_up, conn.opened_ns);
        if there {
            self.tally.connected(u64::MAX, self.clock.now_ns().saturating_sub(opened_ns));
        } else {
            self.close(slot);
        }
    }

    /// Reads the available bytes; after a hang-up until the end, because no further event follows.
    /// `early` is the error of an end before a complete reply.
    fn read(&mut self, slot: u32, hung_up: bool, early: ErrorKind) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for left in (0..READS_MAX).rev() {
            let conn = &mut self.conns[slot as usize];
            let Some(fd) = &conn.fd else { break };
            match socket::read_slice(fd.as_fd(), &mut buffer) {
                Ok(0) => {
                    self.ended(slot, early);
                    break;
                }
                Ok(bytes) => {
                    let more = hung_up || bytes == buffer.len();
                    if !self.feed(slot, buffer.get(..bytes).unwrap_or_default()) || !more {
                        break;
                    }
                    if left == 0 {
                        // Others have their turn; what is there comes as an event again.
                        self.ask(slot, self.conns[slot as usize].watched);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.fail(slot, why_ended(&error));
                    break;
                }
            }
        }
        self.buffer = buffer;
    }

    /// Parses received bytes; returns whether the connection waits for more.
    fn feed(&mut self, slot: u32, mut bytes: &[u8]) -> bool {
        let now_ns = self.clock.now_ns();
        let conn = &mut self.conns[slot as usize];
        conn.progress_ns = now_ns;
        let planned_ns = conn.planned_ns;
        self.tally.at(planned_ns).bytes_in += bytes.len() as u64;
        while !bytes.is_empty() {
            let conn = &mut self.conns[slot as usize];
            if conn.is_unsent() {
                // It answers what was not asked yet.
                self.fail(slot, ErrorKind::BadReply);
                return false;
            }
            if conn.first_byte_ns == 0 {
                conn.first_byte_ns = now_ns;
            }
            match conn.parser.advance(bytes) {
                Ok(progress) if progress.state == State::Done => {
                    bytes = bytes.get(progress.taken..).unwrap_or_default();
                    if !self.replied(slot, now_ns, bytes.is_empty()) {
                        // More than was asked for: the connection is of no further use. One that
                        // the server is to close has none anyway.
                        if !bytes.is_empty() && self.conns[slot as usize].stage != Stage::Closing {
                            self.close(slot);
                        }
                        return false;
                    }
                }
                Ok(_) => return true,
                Err(_) => {
                    self.fail(slot, ErrorKind::BadReply);
                    return false;
                }
            }
        }
        self.conns[slot as usize].fd.is_some()
    }

    /// Handles the end of the server's bytes.
    fn ended(&mut self, slot: u32, early: ErrorKind) {
        let now_ns = self.clock.now_ns();
        let conn = &mut self.conns[slot as usize];
        conn.hung_up = true;
        match conn.parser.eof() {
            Ok(()) if conn.parser.started() => {
                self.replied(slot, now_ns, true);
            }
            _ => self.fail(slot, early),
        }
    }

    /// Handles a complete reply. `last`: no more bytes have been read. Returns whether further
    /// replies are expected on the connection.
    fn replied(&mut self, slot: u32, now_ns: u64, last: bool) -> bool {
        let conn = &mut self.conns[slot as usize];
        if due_ns(conn.planned_ns, self.config.deadline_ns) <= now_ns {
            self.fail(slot, ErrorKind::Deadline);
            return false;
        }
        conn.of_use = true;
        let clocks = conn.clocks(now_ns);
        let request = conn.session.steps.get(conn.answered as usize).map(|step| step.request);
        let (status, head_bytes) = (conn.parser.status(), conn.parser.head_bytes());
        let stays_open = conn.parser.keeps_open();
        conn.answered += 1;
        conn.first_byte_ns = if last { 0 } else { now_ns };
        let under_way = conn.under_way() > 0;
        self.note_end();
        self.tally.at(clocks.planned_ns).head_bytes_in += head_bytes;
        self.tally.replied(&clocks, request.unwrap_or(RequestId(0)), status);
        if under_way && stays_open {
            self.expect_reply(slot);
            return true;
        }
        if under_way {
            // It closes, and leaves the requests behind this one unanswered.
            self.fail(slot, ErrorKind::ClosedEarly);
        } else {
            // After a hang-up no event tells of the end, and a reply that came before its request
            // was out leaves the connection inside of that.
            let conn = &self.conns[slot as usize];
            let usable = stays_open && !conn.hung_up && conn.stage == Stage::Receiving;
            self.group_over(slot, now_ns, usable);
        }
        false
    }

    fn group_over(&mut self, slot: u32, now_ns: u64, stays_open: bool) {
        let conn = &mut self.conns[slot as usize];
        let Some(step) = conn.session.steps.get(conn.answered as usize) else {
            return self.session_over(slot, now_ns, stays_open);
        };
        let think_ns = step.think_ns;
        if !stays_open {
            self.close(slot);
        }
        if now_ns >= self.end_ns {
            return self.release(slot);
        }
        let conn = &mut self.conns[slot as usize];
        conn.stage = Stage::Thinking;
        // Also without a think time: a server that answers at once must not hold the thread.
        self.thinking.push(Reverse((now_ns.saturating_add(think_ns), slot, conn.tenant)));
    }

    /// Handles the end of the think time before a connection's next requests.
    pub(super) fn think_over(&mut self, slot: u32, due_ns: u64, now_ns: u64) {
        if self.conns[slot as usize].stage != Stage::Thinking {
            return;
        }
        if now_ns >= self.end_ns { self.release(slot) } else { self.begin_group(slot, due_ns) }
    }

    fn session_over(&mut self, slot: u32, now_ns: u64, stays_open: bool) {
        let conn = &mut self.conns[slot as usize];
        let (planned_ns, begun_ns) = (conn.planned_ns, conn.begun_ns);
        self.tally.at(planned_ns).sessions += 1;
        if self.tally.is_measured(planned_ns) {
            self.tally.sessions.record(now_ns.saturating_sub(begun_ns));
        }
        let keeps = self.keeps_slots() && self.config.keep_open;
        let conn = &mut self.conns[slot as usize];
        let sent = conn.stage == Stage::Receiving;
        let asked = conn.session.last_closes && sent && !self.config.reset;
        let waits = asked && !stays_open && !conn.hung_up;
        if keeps && stays_open {
            conn.stage = Stage::Free;
            self.set_free(slot);
        } else if waits {
            // The side that closes first keeps the port for a minute (TIME_WAIT): the server, who
            // was asked to, and has said that it will.
            conn.stage = Stage::Closing;
            conn.progress_ns = now_ns;
            self.arm(slot);
        } else {
            self.release(slot);
        }
    }

    /// Fails the requests in flight, each with the same error, and abandons the rest of the
    /// session.
    pub(super) fn fail(&mut self, slot: u32, kind: ErrorKind) {
        let conn = &mut self.conns[slot as usize];
        let (planned_ns, later) = (conn.planned_ns, conn.later());
        while conn.under_way() > 0 {
            let clocks = conn.clocks(0);
            let step = conn.session.steps.get(conn.answered as usize);
            let request = step.map_or(RequestId(0), |step| step.request);
            self.tally.failed(&clocks, request, kind);
            conn.answered += 1;
            conn.first_byte_ns = 0;
        }
        self.note_end();
        let counts = self.tally.at(planned_ns);
        counts.sessions_failed += 1;
        counts.abandoned += later;
        self.close(slot);
        self.release(slot);
    }

    /// Handles a wait that has expired.
    pub(super) fn overdue(&mut self, slot: u32, now_ns: u64) {
        let conn = &self.conns[slot as usize];
        if conn.stage == Stage::Closing {
            return self.release(slot);
        }
        let kind = conn.overdue(now_ns, self.config.deadline_ns);
        self.fail(slot, kind);
    }

    /// Ends the session of a slot: closes its socket, if any, and frees the slot.
    pub(super) fn release(&mut self, slot: u32) {
        self.close(slot);
        let conn = &mut self.conns[slot as usize];
        conn.stage = Stage::Free;
        self.set_free(slot);
    }

    /// Frees a slot: a shared or closed-loop slot for its next session, any other for reuse. The
    /// next session does not begin here, because a server that refuses at once would cause an
    /// endless loop.
    fn set_free(&mut self, slot: u32) {
        let conn = &mut self.conns[slot as usize];
        conn.session.steps.clear();
        conn.group_end = conn.answered;
        conn.tenant = conn.tenant.wrapping_add(1);
        if self.keeps_slots() {
            let conn = &mut self.conns[slot as usize];
            conn.free_ns = self.clock.now_ns();
            self.free.push_back(slot);
        } else {
            self.slots.free(slot);
        }
    }

    /// Closes a connection's socket, if it has one.
    pub(super) fn close(&mut self, slot: u32) {
        let now_ns = self.clock.now_ns();
        let conn = &mut self.conns[slot as usize];
        let Some(fd) = conn.fd.take() else { return };
        // What epoll still has to say of the old socket is not for the next.
        conn.generation = conn.generation.wrapping_add(1);
        conn.watched = Watched::No;
        conn.hung_up = false;
        let (planned_ns, opened_ns) = (conn.planned_ns, conn.opened_ns);
        if conn.of_use && self.tally.is_measured(planned_ns) {
            self.tally.lifetimes.record(now_ns.saturating_sub(opened_ns));
        }
        if self.config.reset {
            socket::reset_on_close(fd.as_fd());
        }
        socket::close(fd);
        self.open -= 1;
    }

    /// Closes the remaining connections at the end. Requests are still in flight only after an
    /// operator's stop, and count neither as replies nor as errors.
    pub(super) fn close_all(&mut self) {
        for slot in 0..self.conns.len() as u32 {
            let conn = &self.conns[slot as usize];
            let (planned_ns, requests) = (conn.planned_ns, u64::from(conn.under_way()));
            self.tally.at(planned_ns).abandoned += requests;
            self.close(slot);
        }
    }
}

/// Maps a read error to its kind.
fn why_ended(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ErrorKind::Reset,
        _ => ErrorKind::Other,
    }
}

/// Maps an error of socket, bind, connect or the first write to its kind.
fn why_not_connected(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ErrorKind::ConnectRefused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ErrorKind::ConnectReset,
        io::ErrorKind::TimedOut => ErrorKind::ConnectTimeout,
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse => ErrorKind::PortUnavail,
        _ if is_exhaustion(error) => ErrorKind::FdUnavail,
        _ => ErrorKind::Other,
    }
}
