//! A connection on a socket watched for readiness: makes the calls that the connection machine asks
//! for, until one would block.

use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weir_content::Fetch;
use weir_dispatch::readiness::Interest;
use weir_sys::heap::{Charged, Part};
use weir_sys::listener::{self, Arrival};
use weir_sys::pipe::Pipe;
use weir_sys::socket;
use weir_tls::{Acceptor, Handshake, Session};

use super::connection::{Action, Connection};
use super::connection_io::ConnectionIo;
use super::forward_io::{self, ClientIo};
use super::send::SendOutcome;
use super::socket::{ClientSocket, Socket};
use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;

/// Maximum number of reads of discarded bytes in a row before other connections are served.
const DISCARDS_MAX: usize = 16;

/// Maximum number of reads in a row, under full-read, before other connections are served.
const READS_MAX: usize = 64;

/// A connection with its socket.
#[derive(Debug)]
pub(crate) struct SocketConnection<S = ClientSocket> {
    conn: Connection,
    socket: S,
    is_tcp: bool,
    /// Interest for which the mechanism was last told to watch it; `None` if it is not watched.
    pub registered: Option<Interest>,
    /// True if it has yielded: it is then served after others, whether it is ready or not.
    pub has_yielded: bool,
    read_blocked: bool,
    write_blocked: bool,
}

impl<S> Deref for SocketConnection<S> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.conn
    }
}

impl<S> DerefMut for SocketConnection<S> {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.conn
    }
}

impl ConnectionIo for SocketConnection {
    fn new(fd: OwnedFd, peer: SocketAddr, is_tls: bool, context: &WorkerContext) -> Self {
        let destination = match context.config.sends_proxy_headers() {
            true => socket::local_address(fd.as_fd()).ok().flatten(),
            false => None,
        };
        let acceptor = context.config.tls.as_deref().filter(|_| is_tls);
        let session = acceptor.and_then(session);
        if is_tls && session.is_none() {
            // Nothing can be read or sent any more: never without TLS where it is promised.
            socket::shutdown_both(fd.as_fd());
        }
        let mut connection = Self::on(ClientSocket::new(fd, session), peer, context);
        if let Some(destination) = destination {
            connection.conn.set_destination(destination);
        }
        connection
    }

    fn arrival(&self) -> Option<Arrival> {
        listener::arrival(self.socket.as_fd()).ok()
    }

    fn has_answered_handshake(&self) -> bool {
        self.conn.is_handshaking() && !self.awaits_handshake()
    }

    fn reset_on_close(&self) {
        self.socket.reset_on_close();
    }

    fn discard_unread(&self, scratch: &mut [u8]) {
        // An error is one that the close would meet too.
        let _ = socket::read_slice(self.fd(), scratch);
    }

    fn close(self, reason: CloseReason, context: &mut WorkerContext) {
        socket::close(self.into_fd(reason, context));
    }
}

/// Begins a session, and charges the memory that it takes.
fn session(acceptor: &Acceptor) -> Option<Charged<Session>> {
    Charged::of(Part::Tls, || acceptor.session()).transpose().ok()
}

impl SocketConnection {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Releases everything but the descriptor: see [`SocketConnection::into_socket`].
    pub(crate) fn into_fd(self, reason: CloseReason, context: &mut WorkerContext) -> OwnedFd {
        self.into_socket(reason, context).into_fd()
    }
}

impl<S: Socket> SocketConnection<S> {
    /// Creates a connection on a socket that was just accepted.
    pub(crate) fn on(socket: S, peer: SocketAddr, context: &WorkerContext) -> Self {
        Self {
            conn: Connection::new(peer, socket.handshake().is_some(), context),
            socket,
            is_tcp: peer != socket::UNKNOWN_PEER,
            registered: None,
            has_yielded: false,
            read_blocked: false,
            write_blocked: false,
        }
    }

    /// Releases everything but the socket, whose close ends the connection. `reason`: why it is
    /// closed, if no other reason was recorded before.
    pub(crate) fn into_socket(mut self, reason: CloseReason, context: &mut WorkerContext) -> S {
        if self.conn.is_handshaking() {
            context.tls_work.in_vain.add(self.socket.add_handshake_ns(0));
        }
        if self.conn.end(reason, context) {
            self.socket.reset_on_close();
        } else {
            self.socket.end();
            // Without room for it, the end is lost.
            let _ = self.socket.flush();
        }
        self.socket
    }

    /// Returns whether the work of its TLS handshake is still to come.
    pub(crate) fn awaits_handshake(&self) -> bool {
        self.conn.is_handshaking() && self.socket.handshake() == Some(Handshake::Pending)
    }

    /// Returns whether the last read left the socket empty, and whether the last write left it
    /// full; clears both.
    pub(crate) fn blocked(&mut self) -> (bool, bool) {
        (std::mem::take(&mut self.read_blocked), std::mem::take(&mut self.write_blocked))
    }

    /// Makes as much progress as it can, after the mechanism reported it ready, or right after the
    /// accept if reads are eager. Returns the action it waits for: `Read`, `Write`, `Fetch` or
    /// `Yield`; or `Close`.
    pub(crate) fn proceed(&mut self, context: &mut WorkerContext) -> Action {
        if let Some(waits) = self.flush_before_read() {
            return waits;
        }
        let mut action = match self.conn.action() {
            Action::Read => self.read(context),
            Action::Discard => self.discard(context),
            Action::Fetch => {
                let action = self.conn.fetched(context);
                self.follow(action, context, true)
            }
            Action::Yield => {
                let action = self.conn.resume(context);
                self.follow(action, context, context.config.strategy.eager_write)
            }
            action => self.follow(action, context, true),
        };
        while action == Action::Read && self.socket.has_unreported() {
            // Each turn reads, whatever the last read has found.
            self.read_blocked = false;
            action = match self.conn.action() {
                // What the end means to the request is known there.
                Action::Forward => self.follow(Action::Forward, context, true),
                _ => self.read(context),
            };
        }
        self.conn.release_idle_buffers(context);
        self.conn.set_session_bytes(self.socket.session_bytes());
        if action != Action::Read {
            return action;
        }
        self.flush_before_read().unwrap_or(action)
    }

    /// Sends what the socket has taken and not sent, if the connection reads next. Returns what it
    /// waits for first, or that it is over.
    fn flush_before_read(&mut self) -> Option<Action> {
        if self.socket.unsent_bytes() == 0 || self.conn.action() != Action::Read {
            return None;
        }
        match self.socket.flush() {
            Ok(()) => None,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.write_blocked = true;
                Some(Action::Write)
            }
            Err(_) => Some(self.conn.close_for(CloseReason::ClientReset)),
        }
    }

    /// Returns whether it waits for room in the socket, and not for bytes.
    pub(crate) fn awaits_room(&self) -> bool {
        match self.conn.action() {
            Action::Write => true,
            Action::Read => self.socket.unsent_bytes() > 0,
            _ => false,
        }
    }

    /// Returns whether more of a forwarded request's content is taken, whatever of the reply waits.
    pub(crate) fn takes_content(&self) -> bool {
        self.conn.takes_content()
    }

    /// Returns the fetch it waits for, after [`Action::Fetch`]; once that is done, it may proceed.
    pub(crate) fn fetch(&mut self) -> Option<Fetch> {
        self.conn.fetch().cloned().or_else(|| self.conn.output()?.take_fetch())
    }

    /// Reads what has arrived, and refuses the connection with a 503.
    ///
    /// Before the end of a TLS handshake it can be told nothing, and the handshake would be the
    /// work that there is no time for: it is reset.
    pub(crate) fn refuse_with_503(&mut self, context: &mut WorkerContext) -> Action {
        if self.conn.is_handshaking() {
            self.socket.reset_on_close();
            return self.conn.close_for(CloseReason::TurnedAway);
        }
        match self.fill(context) {
            Ok(0) => return self.conn.close_for(CloseReason::ClientClosed),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return self.conn.close_for(CloseReason::ClientReset),
        }
        let action = self.conn.refuse_with_503(context);
        let action = self.follow(action, context, true);
        self.conn.release_idle_buffers(context);
        action
    }

    /// Handles its deadline: ends or prolongs what the connection does.
    pub(crate) fn expire(&mut self, context: &mut WorkerContext) -> Action {
        let is_awaited = matches!(self.conn.action(), Action::Write | Action::Forward);
        let unacknowledged = if is_awaited { self.unacknowledged() } else { None };
        match self.conn.expire(unacknowledged, context) {
            Some(action) => self.follow(action, context, true),
            None => Action::Write,
        }
    }

    fn read(&mut self, context: &mut WorkerContext) -> Action {
        for _ in 0..READS_MAX {
            if context.tls_budget.is_spent() && self.awaits_handshake() {
                context.tls_work.steps += 1;
                return Action::Yield;
            }
            let result = match self.fill(context) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Action::Read,
                // Between two requests there is nothing that the end could have cut.
                Err(error)
                    if error.kind() == io::ErrorKind::UnexpectedEof && self.conn.is_between() =>
                {
                    Ok(0)
                }
                result => result,
            };
            let action = match self.socket.handshake() {
                Some(Handshake::Failed) => self.conn.end_handshake(context),
                Some(Handshake::Plain) => self.conn.refuse_plain(context),
                _ => self.conn.received(&result, context),
            };
            let action = self.follow(action, context, context.config.strategy.eager_write);
            let reads_on = action == Action::Read && self.conn.action() == Action::Read;
            if !reads_on || !context.config.strategy.full_read {
                return action;
            }
        }
        Action::Read
    }

    /// Carries out actions until the connection must wait. `writes`: a reply may be written now;
    /// further replies may be if writes are eager.
    fn follow(
        &mut self,
        mut action: Action,
        context: &mut WorkerContext,
        mut writes: bool,
    ) -> Action {
        loop {
            action = match action {
                Action::Discard => return Action::Read,
                Action::Read | Action::Fetch | Action::Yield | Action::Pause | Action::Close(_) => {
                    return action;
                }
                Action::Forward => {
                    let next = forward_io::forward(self, context);
                    if self.conn.action() == Action::Forward {
                        return next;
                    }
                    writes = true;
                    next
                }
                Action::Write if !writes => return action,
                Action::Write => {
                    writes = context.config.strategy.eager_write;
                    match self.write(context) {
                        SendOutcome::BudgetSpent => return Action::Yield,
                        SendOutcome::Blocked => return Action::Write,
                        SendOutcome::NeedsDisk => return Action::Fetch,
                        SendOutcome::Paused => return Action::Pause,
                        sent => self.conn.sent(sent, context),
                    }
                }
                Action::Shutdown => {
                    let shut = self.socket.shutdown_write().is_ok();
                    self.conn.write_side_shut(shut, context)
                }
            };
        }
    }

    /// Records the time of a read that was for the handshake, and its end if it has ended.
    fn note_handshake(&mut self, began_ns: u64, context: &mut WorkerContext) {
        let spent_ns = context.read_clock_ns().saturating_sub(began_ns);
        context.tls_budget.spend(spent_ns);
        let handshake_ns = self.socket.add_handshake_ns(spent_ns);
        let WorkerContext { counters, tls_work: work, .. } = context;
        work.spent_ns += spent_ns;
        let ended = match self.socket.handshake() {
            None | Some(Handshake::Pending | Handshake::Answered) => {
                work.steps += 1;
                return;
            }
            Some(Handshake::Full) => {
                counters.tls_full.one();
                counters.tls_full_ns.add(handshake_ns);
                &mut work.full
            }
            Some(Handshake::Resumed) => {
                counters.tls_resumed.one();
                counters.tls_resumed_ns.add(handshake_ns);
                &mut work.resumed
            }
            Some(Handshake::Failed) => {
                counters.tls_failed.one();
                &mut work.in_vain
            }
            Some(Handshake::Plain) => {
                counters.tls_plain.one();
                &mut work.in_vain
            }
        };
        ended.add(handshake_ns);
        self.conn.handshake_done();
    }

    fn discard(&mut self, context: &mut WorkerContext) -> Action {
        for _ in 0..DISCARDS_MAX {
            match self.socket.read_slice(&mut context.scratch) {
                Ok(bytes) => {
                    let action = self.conn.discarded(bytes);
                    if action != Action::Discard {
                        return action;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.read_blocked = true;
                    return Action::Read;
                }
                Err(_) => return self.conn.discarded(0),
            }
        }
        Action::Read
    }
}

impl<S: Socket> ClientIo for SocketConnection<S> {
    fn splices(&self) -> bool {
        self.socket.is_of_kernel()
    }

    fn is_read_blocked(&self) -> bool {
        self.read_blocked
    }

    fn fill(&mut self, context: &mut WorkerContext) -> io::Result<usize> {
        let began_ns = self.conn.is_handshaking().then(|| context.read_clock_ns());
        context.counters.reads.one();
        let input = self.conn.read_buffer(context);
        let room = input.capacity() - input.len();
        let result = self.socket.read(input);
        match &result {
            Ok(bytes) => self.read_blocked = self.socket.is_drained(*bytes < room),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.read_blocked = self.socket.is_drained(true);
                context.counters.read_would_block.one();
            }
            Err(_) => {}
        }
        if let Some(began_ns) = began_ns {
            self.note_handshake(began_ns, context);
        }
        result
    }

    fn write(&mut self, context: &mut WorkerContext) -> SendOutcome {
        if !self.conn.may_send(0, context) {
            return SendOutcome::Paused;
        }
        let Some(output) = self.conn.output() else { return SendOutcome::ClientGone };
        let sent = output.send(&mut self.socket, context);
        output.full_since_ns = (sent == SendOutcome::Blocked).then(|| context.now_ns());
        self.write_blocked |= sent == SendOutcome::Blocked;
        if matches!(sent, SendOutcome::Blocked | SendOutcome::BudgetSpent)
            && self.conn.wants_acknowledged()
        {
            let unacknowledged = self.unacknowledged();
            self.conn.note_acknowledged(unacknowledged.unwrap_or(0));
        }
        sent
    }

    fn in_flight_bytes(&self) -> usize {
        self.socket.unsent_bytes()
    }

    fn fill_pipe(
        &mut self,
        pipe: &mut Pipe,
        count: usize,
        context: &mut WorkerContext,
    ) -> io::Result<usize> {
        context.counters.reads.one();
        let filled = self.socket.fill_pipe(pipe, count);
        let is_blocked =
            filled.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        self.read_blocked = is_blocked;
        context.counters.read_would_block.add(is_blocked.into());
        filled
    }

    fn drain_pipe(&mut self, pipe: &mut Pipe, context: &mut WorkerContext) -> io::Result<usize> {
        // What is in a pipe is not counted out: it goes together.
        if !self.conn.may_send(pipe.held() as u64, context) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = self.socket.drain_pipe(pipe);
        self.write_blocked |= sent.is_err();
        if let (Ok(bytes), Some(output)) = (&sent, self.conn.output()) {
            output.note_sent(*bytes as u64, context);
        }
        sent
    }

    /// Unknown for a Unix socket, whose queue the kernel measures in memory and not in bytes.
    fn unacknowledged(&self) -> Option<u64> {
        self.is_tcp.then(|| self.socket.unacknowledged().ok()).flatten()
    }
}
