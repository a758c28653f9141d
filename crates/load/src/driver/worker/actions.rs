//! Actions: what the worker does on a socket because an exchange wants it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use weir_sys::epoll::{self, EventFlags};
use weir_sys::{client, socket};

use super::super::action::{Action, Interest, SocketUse, connect_error_kind};
use super::super::client_socket;
use super::super::send_pacer::SocketId;
use super::{Connection, Worker};
use crate::measure::ErrorKind;

/// Reads in a row on one connection: a megabyte.
const READS_MAX: usize = 16;

impl Worker<'_> {
    /// Carries out an action, and those that follow from its results.
    pub(super) fn carry_out(&mut self, slot: u32, mut action: Action) {
        loop {
            action = match action {
                Action::Connect => self.connect(slot),
                Action::CheckConnect => self.check_connect(slot),
                Action::Send => self.send(slot),
                Action::Watch(interest) => self.watch(slot, interest),
                Action::WatchUntilNextPart => {
                    let generation = self.connections[slot as usize].generation;
                    self.pacer.sends.wait(self.clock.now_ns(), SocketId { slot, generation });
                    self.watch(slot, Interest::ReadWrite)
                }
                Action::Read => self.read(slot),
                Action::Wait => return,
                Action::AwaitClose => return self.arm_deadline(slot),
                Action::Close => return self.close(slot),
                Action::Think { until_ns, socket } => {
                    if socket == SocketUse::Close {
                        self.close(slot);
                    }
                    return self.pacer.think(until_ns, slot);
                }
                Action::End(socket) => return self.end(slot, socket),
            }
        }
    }

    pub(super) fn arm_deadline(&mut self, slot: u32) {
        if let Some(at_ns) = self.connections[slot as usize].exchange.expires_ns(self.config) {
            self.pacer.deadlines.arm(slot, at_ns);
        }
    }

    fn connect(&mut self, slot: u32) -> Action {
        let opened_ns = self.clock.now_ns();
        let opened = self.open_socket();
        let connection = &mut self.connections[slot as usize];
        match opened {
            Ok(fd) => {
                connection.fd = Some(fd);
                self.open += 1;
                self.meter.note_open(self.open + self.background.open);
                connection.exchange.opened(opened_ns)
            }
            Err(kind) => {
                connection.exchange.open_failed(kind, self.clock.now_ns(), &mut self.context)
            }
        }
    }

    /// Opens a socket and begins to connect it.
    fn open_socket(&mut self) -> Result<OwnedFd, ErrorKind> {
        self.next_pair = self.next_pair.wrapping_add(1);
        let pair = self.config.pair(self.next_pair).ok_or(ErrorKind::Other)?;
        client_socket::connect(pair, |_| Ok(())).map_err(|error| connect_error_kind(&error))
    }

    fn check_connect(&mut self, slot: u32) -> Action {
        let Connection { exchange, fd, .. } = &mut self.connections[slot as usize];
        let error = fd.as_ref().map(|fd| client::take_error(fd.as_fd()));
        let is_connected = matches!(error, Some(Ok(None)));
        exchange.connect_checked(is_connected, self.clock.now_ns(), &mut self.context)
    }

    fn send(&mut self, slot: u32) -> Action {
        let Connection { exchange, fd, .. } = &mut self.connections[slot as usize];
        let Some(fd) = fd else { return Action::Wait };
        let bytes = exchange.unsent(&self.config.requests, &mut self.scratch);
        let tried_ns = self.clock.now_ns();
        let result = socket::write(fd.as_fd(), bytes, false);
        exchange.written(&result, tried_ns, self.clock.now_ns(), &mut self.context)
    }

    /// Registers the socket, unless it is registered for that already.
    fn watch(&mut self, slot: u32, wanted: Interest) -> Action {
        let connection = &mut self.connections[slot as usize];
        match connection.watched {
            // Once it is watched for both there is no way back: an edge too many costs less.
            Some(watched) if watched == wanted || watched == Interest::ReadWrite => {
                connection.exchange.watched()
            }
            _ => self.register(slot, wanted),
        }
    }

    /// Registers the socket, which also reports at once whatever is ready already.
    fn register(&mut self, slot: u32, wanted: Interest) -> Action {
        let token_slot = slot + self.background.len();
        let connection = &mut self.connections[slot as usize];
        let Some(fd) = &connection.fd else { return Action::Wait };
        let read = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let flags = if wanted == Interest::ReadWrite { read | EventFlags::OUT } else { read };
        let data = u64::from(connection.generation) << 32 | u64::from(token_slot);
        let result = match connection.watched {
            None => epoll::add(self.epoll.as_fd(), fd.as_fd(), data, flags),
            Some(_) => epoll::modify(self.epoll.as_fd(), fd.as_fd(), data, flags),
        };
        if result.is_err() {
            return connection.exchange.watch_failed(self.clock.now_ns(), &mut self.context);
        }
        connection.watched = Some(wanted);
        connection.exchange.watched()
    }

    /// Reads the available bytes: until a read comes up short, or to the end after a hang-up.
    fn read(&mut self, slot: u32) -> Action {
        let Connection { exchange, fd, watched, .. } = &mut self.connections[slot as usize];
        let Some(fd) = fd else { return Action::Wait };
        for _ in 0..READS_MAX {
            let result = socket::read_slice(fd.as_fd(), &mut self.buffer);
            let bytes = match result {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Action::Wait,
                Err(error) => {
                    let now_ns = self.clock.now_ns();
                    return exchange.read_failed(&error, now_ns, &mut self.context);
                }
            };
            let received = self.buffer.get(..bytes).unwrap_or_default();
            let action = exchange.received(received, self.clock.now_ns(), &mut self.context);
            if action != Action::Read {
                return action;
            }
            if bytes < self.buffer.len() && !exchange.reads_to_end() {
                return Action::Wait;
            }
        }
        // Other connections come first; bytes that are left are reported again.
        let watched = watched.unwrap_or(Interest::Read);
        self.register(slot, watched)
    }

    /// Releases the slot of a session: a shared or closed-loop slot for its next session, any other
    /// for reuse. The next session does not begin here, because a server that refuses at once would
    /// cause an endless loop.
    fn end(&mut self, slot: u32, socket: SocketUse) {
        if socket == SocketUse::Close {
            self.close(slot);
        }
        if self.config.keeps_slots() {
            self.connections[slot as usize].exchange.freed(self.clock.now_ns());
            self.pacer.add_free(slot);
        } else {
            self.slots.free(slot);
        }
    }

    /// Closes a connection's socket, if it has one.
    pub(super) fn close(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let Some(fd) = connection.fd.take() else { return };
        // What epoll still has to say of the old socket is not for the next.
        connection.generation = connection.generation.wrapping_add(1);
        connection.watched = None;
        connection.exchange.closed(self.clock.now_ns(), &mut self.context);
        if self.config.reset {
            socket::reset_on_close(fd.as_fd());
        }
        socket::close(fd);
        self.open -= 1;
    }
}
