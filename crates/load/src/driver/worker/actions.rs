//! Actions: what the worker does on a socket because an exchange wants it.

use std::io;

use super::super::action::{Action, Interest, SocketUse, connect_error_kind};
use super::super::exchange::{Context, Exchange};
use super::super::send_pacer::SocketId;
use super::super::stack::{Client, Purpose, Stack};
use super::super::stream::{Delivery, HandshakeFailure, Stream};
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
                Action::Handshake => self.handshake(slot),
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
        let opened = self.open_socket(self.connections[slot as usize].client);
        let connection = &mut self.connections[slot as usize];
        connection.client.opened += 1;
        match opened {
            Ok(socket) => {
                connection.stream = Some(Stream::new(socket));
                self.open += 1;
                self.meter.note_open(self.open + self.background.open);
                connection.exchange.opened(opened_ns, self.connector.is_some())
            }
            Err(kind) => {
                connection.exchange.open_failed(kind, self.clock.now_ns(), &mut self.context)
            }
        }
    }

    /// Opens a socket of a client, and begins to connect it.
    fn open_socket(&mut self, client: Client) -> Result<S::Socket, ErrorKind> {
        self.next_pair = self.next_pair.wrapping_add(1);
        let pair = self.config.pair(self.next_pair).ok_or(ErrorKind::Other)?;
        self.stack.open(pair, client, Purpose::Load).map_err(|error| connect_error_kind(&error))
    }

    fn check_connect(&mut self, slot: u32) -> Action {
        let Connection { exchange, stream, .. } = &mut self.connections[slot as usize];
        let is_connected =
            stream.as_ref().is_some_and(|it| self.stack.take_error(it.socket()).is_none());
        exchange.connect_checked(is_connected, self.clock.now_ns(), &mut self.context)
    }

    /// Continues the TLS handshake, or begins it.
    fn handshake(&mut self, slot: u32) -> Action {
        let tried_ns = self.clock.now_ns();
        let Connection { exchange, stream, .. } = &mut self.connections[slot as usize];
        let Some((stream, connector)) = stream.as_mut().zip(self.connector.as_ref()) else {
            return Action::Wait;
        };
        let (reads, to_end) = (exchange.reads_handshake(), exchange.reads_to_end());
        let begun = if stream.is_secure() {
            Ok(())
        } else {
            // Only now: the connect is on its way while the keys are made.
            let tls = connector.connect();
            tls.and_then(|tls| stream.secure(tls)).map_err(HandshakeFailure::Tls)
        };
        let stack = &mut self.stack;
        let mut result =
            begun.and_then(|()| stream.handshake(stack, &mut self.buffer, reads, to_end));
        let is_done = result.as_ref().is_ok_and(|progress| progress.resumed.is_some());
        if is_done && !exchange.has_session() {
            // There is nothing yet that the last message could go with.
            if let Err(error) = stream.flush(stack) {
                result = Err(HandshakeFailure::Socket(error));
            }
        }
        exchange.handshaken(result, tried_ns, self.clock.now_ns(), &mut self.context)
    }

    /// Sends what TLS has to send of its own accord.
    pub(super) fn flush(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let Some(stream) = connection.stream.as_mut().filter(|stream| stream.wants_flush()) else {
            return;
        };
        // An error is told by the next read.
        if matches!(stream.flush(&mut self.stack), Ok(false)) {
            let action = self.watch(slot, Interest::ReadWrite);
            self.carry_out(slot, action);
        }
    }

    fn send(&mut self, slot: u32) -> Action {
        let Connection { exchange, stream, .. } = &mut self.connections[slot as usize];
        let Some(stream) = stream else { return Action::Wait };
        let bytes = exchange.unsent(&self.config.requests, &mut self.scratch);
        let tried_ns = self.clock.now_ns();
        let result = stream.write(&mut self.stack, bytes);
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
        let Some(stream) = &connection.stream else { return Action::Wait };
        let token = u64::from(connection.generation) << 32 | u64::from(token_slot);
        let result = self.stack.watch(stream.socket(), token, wanted, connection.watched);
        if let Err(error) = result {
            let now_ns = self.clock.now_ns();
            return connection.exchange.watch_failed(&error, now_ns, &mut self.context);
        }
        connection.watched = Some(wanted);
        connection.exchange.watched()
    }

    /// Reads the available bytes: until a read comes up short, or to the end after a hang-up.
    fn read(&mut self, slot: u32) -> Action {
        let Connection { exchange, stream, watched, .. } = &mut self.connections[slot as usize];
        let Some(stream) = stream else { return Action::Wait };
        for _ in 0..READS_MAX {
            let result = stream.read(&mut self.stack, &mut self.buffer);
            let bytes = match result {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Action::Wait,
                Err(error) => {
                    let now_ns = self.clock.now_ns();
                    return exchange.read_failed(&error, now_ns, &mut self.context);
                }
            };
            let received = self.buffer.get_mut(..bytes).unwrap_or_default();
            let read_ns = self.clock.now_ns();
            let received_ns = self.stack.received_ns(stream.socket());
            let received_ns = received_ns.unwrap_or(read_ns).min(read_ns);
            let action = deliver(exchange, stream, received, received_ns, &mut self.context);
            if action != Action::Read {
                return action;
            }
            if bytes < self.buffer.len() {
                match exchange.drained() {
                    Action::Wait if exchange.reads_to_end() => {}
                    action => return action,
                }
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
        self.note_session(slot);
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
        let Some(stream) = connection.stream.take() else { return };
        let is_silent = connection.exchange.has_hung_up() || self.config.vanishes();
        // What is still to be said of the old socket is not for the next.
        connection.generation = connection.generation.wrapping_add(1);
        connection.watched = None;
        connection.exchange.closed(self.clock.now_ns(), &mut self.context);
        stream.close(&mut self.stack, &mut self.buffer, self.config.reset, is_silent);
        self.open -= 1;
    }
}

/// Delivers to an exchange what was read at `received_ns`.
fn deliver<K>(
    exchange: &mut Exchange,
    stream: &mut Stream<K>,
    bytes: &mut [u8],
    received_ns: u64,
    context: &mut Context<'_>,
) -> Action {
    let is_cut_off = bytes.is_empty() && stream.is_cut_off();
    if !bytes.is_empty() {
        exchange.progressed(received_ns);
    }
    let delivered = stream.deliver(bytes, |delivery| match delivery {
        Delivery::CloseNotify => exchange.close_notified(received_ns, context),
        Delivery::Bytes(b"") if is_cut_off => exchange.cut_off(received_ns, context),
        Delivery::Bytes(bytes) => exchange.received(bytes, received_ns, context),
    });
    delivered.unwrap_or_else(|error| exchange.tls_failed(&error, received_ns, context))
}
