//! Actions: what the worker does on a socket because an exchange wants it.

use std::io;

use super::super::action::{Action, Interest, SocketUse, connect_error_kind};
use super::super::send_pacer::SocketId;
use super::super::stack::{Purpose, Stack};
use super::{Connection, Worker};
use crate::measure::ErrorKind;

/// Reads in a row on one connection: a megabyte.
const READS_MAX: usize = 16;

impl<S: Stack> Worker<'_, S> {
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
            Ok(socket) => {
                connection.socket = Some(socket);
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
    fn open_socket(&mut self) -> Result<S::Socket, ErrorKind> {
        self.next_pair = self.next_pair.wrapping_add(1);
        let pair = self.config.pair(self.next_pair).ok_or(ErrorKind::Other)?;
        self.stack.open(pair, Purpose::Load).map_err(|error| connect_error_kind(&error))
    }

    fn check_connect(&mut self, slot: u32) -> Action {
        let Connection { exchange, socket, .. } = &mut self.connections[slot as usize];
        let is_connected =
            socket.as_ref().is_some_and(|socket| self.stack.take_error(socket).is_none());
        exchange.connect_checked(is_connected, self.clock.now_ns(), &mut self.context)
    }

    fn send(&mut self, slot: u32) -> Action {
        let Connection { exchange, socket, .. } = &mut self.connections[slot as usize];
        let Some(socket) = socket else { return Action::Wait };
        let bytes = exchange.unsent(&self.config.requests, &mut self.scratch);
        let tried_ns = self.clock.now_ns();
        let result = self.stack.write(socket, bytes);
        exchange.written(&result, tried_ns, self.clock.now_ns(), &mut self.context)
    }

    /// Watches the socket, unless it is watched for that already.
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

    /// Watches the socket, which also reports at once whatever is ready already.
    fn register(&mut self, slot: u32, wanted: Interest) -> Action {
        let token_slot = slot + self.background.len();
        let connection = &mut self.connections[slot as usize];
        let Some(socket) = &connection.socket else { return Action::Wait };
        let token = u64::from(connection.generation) << 32 | u64::from(token_slot);
        let result = self.stack.watch(socket, token, wanted, connection.watched);
        if result.is_err() {
            return connection.exchange.watch_failed(self.clock.now_ns(), &mut self.context);
        }
        connection.watched = Some(wanted);
        connection.exchange.watched()
    }

    /// Reads the available bytes: until a read comes up short, or to the end after a hang-up.
    fn read(&mut self, slot: u32) -> Action {
        let Connection { exchange, socket, watched, .. } = &mut self.connections[slot as usize];
        let Some(socket) = socket else { return Action::Wait };
        for _ in 0..READS_MAX {
            let result = self.stack.read(socket, &mut self.buffer);
            let bytes = match result {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Action::Wait,
                Err(error) => {
                    let now_ns = self.clock.now_ns();
                    return exchange.read_failed(&error, now_ns, &mut self.context);
                }
            };
            let received = self.buffer.get(..bytes).unwrap_or_default();
            let read_ns = self.clock.now_ns();
            let received_ns = self.stack.received_ns(socket).unwrap_or(read_ns).min(read_ns);
            let action = exchange.received(received, received_ns, &mut self.context);
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
        let Some(socket) = connection.socket.take() else { return };
        // What is still to be said of the old socket is not for the next.
        connection.generation = connection.generation.wrapping_add(1);
        connection.watched = None;
        connection.exchange.closed(self.clock.now_ns(), &mut self.context);
        self.stack.close(socket, self.config.reset);
        self.open -= 1;
    }
}
