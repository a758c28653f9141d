//! Connections to upstreams on the ring: their connects, receives and sends, and what follows from
//! the completion of each. Knows neither requests nor places.

use weir_dispatch::readiness::Token;
use weir_sys::poll::POLLOUT;
use weir_sys::ring::server::{
    Completion, ECANCELED, ECONNRESET, Handle, ReceivedBuffer, Returned, SendBuffer, SendOptions,
    ServerRing, Then,
};
use weir_sys::{client, is_exhaustion};

use super::model::{Ring, RingWorker};
use super::user_data::{Data, Kind};
use crate::http::background;
use crate::http::connection::Action;
use crate::models::upstream_events::Forwarding;
use crate::upstream::sockets::{Change, UpstreamSocket};
use crate::worker::Worker;

impl Forwarding for Ring {
    /// All changes become operations before the next wait.
    fn settle_upstreams(_worker: &mut Worker<Self>) {}
}

impl RingWorker {
    /// Queues the operations that connections to upstreams need since the last iteration.
    pub(super) fn begin_upstream_ops(&mut self) {
        let Some(upstreams) = &mut self.core.context.upstreams else { return };
        let Ring { ring, certain, .. } = &mut self.model;
        while let Some(change) = upstreams.sockets.next_change() {
            match change {
                Change::Closed(_, socket) => {
                    let ops = socket.ring.iter().flat_map(|ring| ring.ops());
                    ops.for_each(|op| ring.cancel(op, Then::Nothing));
                }
                Change::Watch(token) => {
                    if let Some(socket) = upstreams.sockets.get(token.slot) {
                        *certain += u32::from(begin_ops(ring, socket, token));
                    }
                }
            }
        }
    }

    /// Handles a completion at a connection to an upstream.
    pub(super) fn handle_upstream(
        &mut self,
        kind: Kind,
        token: Token,
        completion: Completion,
        filled: Option<&ReceivedBuffer>,
    ) {
        let Some(upstreams) = &mut self.core.context.upstreams else { return };
        let Some(socket) = upstreams.sockets.current(token) else { return };
        let bytes = filled.map(|filled| self.model.ring.buffer(filled)).unwrap_or_default();
        match kind {
            Kind::UpstreamConnect => connected(socket),
            Kind::UpstreamReceive => match received(socket, &completion, bytes) {
                Received::Something => {
                    if socket.ring.as_ref().is_some_and(|ring| ring.wants_cancelled()) {
                        upstreams.sockets.change(token.slot);
                    }
                }
                Received::Nothing => {
                    upstreams.sockets.change(token.slot);
                    return;
                }
                Received::Starved => {
                    upstreams.sockets.change(token.slot);
                    self.core.context.counters.ring_starved.one();
                    return;
                }
            },
            _ => {
                let is_awaited = sent(socket, completion);
                if socket.has_failed() {
                    upstreams.sockets.change(token.slot);
                }
                if !is_awaited {
                    return;
                }
            }
        }
        self.upstream_ready(token);
    }

    /// Lets the request that uses a connection to an upstream go on.
    fn upstream_ready(&mut self, token: Token) {
        let Some(upstreams) = &mut self.core.context.upstreams else { return };
        let Some(client) = upstreams.sockets.ready(token) else { return };
        if background::owns(client) {
            background::proceed(client, &mut self.core.context);
        } else if self.core.table.is_current(client) {
            self.follow(client.slot, Action::Forward);
        }
    }

    /// Serves the requests whose wait is over, for a place at an upstream or for the reply to
    /// another. Returns their number.
    pub(super) fn serve_granted(&mut self) -> u64 {
        let mut items = 0;
        while let Some(token) = self.next_granted() {
            self.follow(token.slot, Action::Forward);
            items += 1;
        }
        while let Some(token) = self.next_landed() {
            items += u64::from(self.resume(token));
        }
        items
    }

    /// Closes all connections to upstreams, and gives up what goes on without a client.
    pub(super) fn close_upstreams(&mut self) {
        background::give_up_all(&mut self.core.context);
        if let Some(upstreams) = &mut self.core.context.upstreams {
            upstreams.sockets.close_all();
        }
        self.begin_upstream_ops();
    }
}

/// Queues the operations that a connection needs; returns whether a send is among them.
fn begin_ops(ring: &mut ServerRing, socket: &mut UpstreamSocket, token: Token) -> bool {
    let fd = socket.shared_fd();
    let Some(io) = &mut socket.ring else { return false };
    if io.awaits_connect() {
        if io.connect.is_none() {
            let data = Data::of(Kind::UpstreamConnect, token);
            io.connect = Some(ring.poll(fd, POLLOUT as u32, data));
        }
        return false;
    }
    let handle = Handle::Fd(&fd);
    let unsent = io.take_unsent();
    let sends = unsent.is_some();
    if let Some(bytes) = unsent {
        let (range, data) = (0..bytes.len(), Data::of(Kind::UpstreamSend, token));
        let how = SendOptions { whole: true, ..SendOptions::default() };
        let buffer = SendBuffer::Bytes(bytes);
        io.send = Some(ring.send(handle, buffer, range, how, Then::Nothing, data));
    }
    match io.receive {
        None if io.wants_input() => {
            let (many, data) = (io.begin_receive(), Data::of(Kind::UpstreamReceive, token));
            io.receive = Some(ring.receive(handle, many, data));
        }
        Some(op) if io.wants_cancelled() && !io.is_cancelled => {
            io.is_cancelled = true;
            ring.cancel(op, Then::Nothing);
        }
        _ => {}
    }
    sends
}

/// Records the end of a connect.
fn connected(socket: &mut UpstreamSocket) {
    let error = client::take_error(socket.fd()).unwrap_or_else(Some);
    if let Some(ring) = &mut socket.ring {
        ring.connected(error.map(|error| error.raw_os_error().unwrap_or_default()));
    }
}

/// Result of a receive.
enum Received {
    /// Bytes, or the end.
    Something,
    /// It was cancelled.
    Nothing,
    /// There was no buffer.
    Starved,
}

fn received(socket: &mut UpstreamSocket, completion: &Completion, bytes: &[u8]) -> Received {
    let Some(ring) = &mut socket.ring else { return Received::Nothing };
    if !completion.more {
        ring.receive = None;
    }
    match completion.result {
        1.. => {
            ring.push(bytes);
            if completion.more {
                ring.note_more(completion.nonempty);
            }
        }
        result if result == -ECANCELED => return Received::Nothing,
        result if is_exhaustion(&std::io::Error::from_raw_os_error(-result)) => {
            return Received::Starved;
        }
        result => ring.end(result),
    }
    Received::Something
}

/// Records the end of a send; returns whether more is to be written. If a reset came behind a part
/// of it, the kernel tells of the part alone, which is taken for one.
fn sent(socket: &mut UpstreamSocket, completion: Completion) -> bool {
    let is_in_use = socket.is_in_use();
    let Some(ring) = &mut socket.ring else { return false };
    let buffer = match completion.returned {
        Returned::Buffer(SendBuffer::Bytes(bytes)) => bytes,
        _ => Vec::new(),
    };
    let errno = match usize::try_from(completion.result) {
        Ok(bytes) => (bytes < buffer.len()).then_some(ECONNRESET),
        Err(_) => Some(-completion.result),
    };
    ring.sent(errno, buffer, is_in_use);
    std::mem::take(&mut socket.blocked[1]) && is_in_use
}
