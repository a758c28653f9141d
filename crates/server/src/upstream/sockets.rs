//! The connections of one loop to the servers of its upstreams: which are in use and by whom, which
//! are idle, and what the event mechanism is still to be told of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_dispatch::readiness::{Interest, Token};
use weir_dispatch::slots::{SlotSearch, Slots};
use weir_sys::descriptor::SharedFd;
use weir_sys::heap::{Charge, Charged, Part};
use weir_sys::socket;
use weir_tls::client::{ClientSession, Failure};

use super::health::Fault;
use super::ring_io::RingIo;
use super::transport::Kernel;

/// Maximum number of connections of one loop.
const SOCKETS_MAX: usize = 1 << 20;

/// Time for which an idle connection is known to be empty after it was found so, nanoseconds. What
/// is under way meanwhile is not found by a look either, and is as late on a network.
const KNOWN_NS: u64 = 1_000_000;

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct UpstreamSocket {
    fd: Arc<OwnedFd>,
    upstream: u16,
    server: u16,
    /// Connection of the client that uses it; `None` while it is idle.
    client: Option<Token>,
    /// Interest for which the mechanism was last told to watch it; `None` if it is not watched.
    pub registered: Option<Interest>,
    /// Interest for which it is to be watched.
    pub wanted: Interest,
    /// True if the last read left it empty, and if the last write left it full.
    pub blocked: [bool; 2],
    /// True if it was reported ready since.
    pub is_ready: bool,
    /// True if it has carried a request before.
    pub is_reused: bool,
    /// True until something was written.
    pub is_new: bool,
    /// True once a send has failed: then the connection is over, however it looks to a read.
    has_failed: bool,
    was_reset: bool,
    /// Fault of the server, should the connection fail.
    pub(super) fault: Fault,
    /// True while the mechanism is to be told something.
    is_changed: bool,
    idle_since_ns: u64,
    /// Time since which its last request has had it, nanoseconds.
    pub(super) taken_ns: u64,
    /// Time of the iteration in which a read of a reply last left it empty; `None` before.
    pub emptied_ns: Option<u64>,
    /// Bytes that a ring receives and sends for it; `None` where calls are made on the socket.
    pub ring: Option<Box<RingIo>>,
    /// TLS, which begins with the first byte; never on a ring.
    tls: Option<Box<Charged<ClientSession>>>,
}

impl UpstreamSocket {
    /// Returns the upstream, and the server.
    pub(super) fn server(&self) -> (usize, usize) {
        (self.upstream.into(), self.server.into())
    }

    /// Records an error of a read or a write. The kernel tells only once that a connect was refused
    /// (SO_ERROR, socket(7)).
    pub(crate) fn note_error(&mut self, error: &io::Error) {
        if Fault::of(error) == Fault::Absent {
            self.fault = Fault::Absent;
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Records that a send has failed. The server may have answered before it broke off.
    pub(crate) fn note_failed_send(&mut self, error: &io::Error) {
        (self.is_ready, self.has_failed) = (true, true);
        self.was_reset |= error.kind() == io::ErrorKind::ConnectionReset;
    }

    /// Returns whether a send has told of a reset, which the kernel tells once: what the server had
    /// still to send is lost, and a read finds an end.
    pub(crate) fn was_reset(&self) -> bool {
        self.was_reset || self.ring.as_ref().is_some_and(|ring| ring.was_reset())
    }

    /// Returns whether a send has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed || self.ring.as_ref().is_some_and(|ring| ring.has_failed())
    }

    /// Returns a share in the socket.
    pub(crate) fn shared_fd(&self) -> SharedFd {
        SharedFd::of(&self.fd)
    }

    /// Returns whether a request uses it.
    pub(crate) fn is_in_use(&self) -> bool {
        self.client.is_some()
    }

    /// Receives some of what the server has sent; 0 is the end.
    ///
    /// # Errors
    /// WouldBlock where there is nothing; errors of recv(2).
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            let mut kernel = Kernel(self.fd.as_fd());
            let read = tls.measure(|tls| tls.receive(&mut kernel, into));
            self.note_drained();
            return read;
        }
        let read = match &mut self.ring {
            Some(ring) => ring.read(into),
            None => socket::read_slice(self.fd.as_fd(), into),
        };
        let has_more = self.ring.as_ref().is_some_and(|ring| ring.has_more());
        let is_empty = match &read {
            Ok(bytes) => !has_more && (1..into.len()).contains(bytes),
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
        if is_empty {
            self.note_empty();
        }
        read
    }

    /// Returns whether a read that found nothing more found all that had come: TLS may have read an
    /// end besides, and without a receive under way a ring leaves bytes in the socket.
    fn shows_all(&self) -> bool {
        self.tls.is_none() && self.ring.as_ref().is_none_or(|ring| ring.receive.is_some())
    }

    /// Returns whether it is known to be empty: by its last reply in this iteration, or, where a
    /// mechanism reports all that are ready, by its last reply or the mechanism within
    /// [`KNOWN_NS`]. `asked_ns`: time at which it last reported them.
    fn is_known_empty(&self, now_ns: u64, asked_ns: Option<u64>) -> bool {
        let Some(emptied_ns) = self.emptied_ns.filter(|_| !self.is_ready) else { return false };
        let Some(asked_ns) = asked_ns else { return emptied_ns == now_ns };
        now_ns.saturating_sub(emptied_ns.max(asked_ns)) <= KNOWN_NS
    }

    /// Returns whether nothing has come from the server while no request was under way: neither a
    /// byte nor the end. Tickets and new keys of TLS are taken, and are nothing.
    pub(super) fn is_quiet(&mut self) -> bool {
        if let Some(tls) = &mut self.tls {
            let mut kernel = Kernel(self.fd.as_fd());
            let read = tls.measure(|tls| tls.receive(&mut kernel, &mut [0; 1]));
            let is_blocked = read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            return is_blocked && tls.is_drained();
        }
        let has_more = self.ring.as_ref().is_some_and(|ring| ring.has_more());
        !has_more && socket::is_quiet(self.fd.as_fd())
    }

    /// Records that the last read left it empty.
    pub(crate) fn note_empty(&mut self) {
        (self.is_ready, self.blocked[0]) = (false, true);
    }

    /// Records that nothing is left to be read, if TLS has found that.
    fn note_drained(&mut self) {
        if self.tls.as_ref().is_some_and(|tls| tls.is_drained()) {
            self.note_empty();
        }
    }

    /// Sends some of `bytes`.
    ///
    /// # Errors
    /// WouldBlock where there is no room, or no connection yet; errors of send(2).
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            // A handshake reads; afterwards nothing is known that was not known before.
            let reads = tls.is_handshaking();
            let mut kernel = Kernel(self.fd.as_fd());
            let sent = tls.measure(|tls| tls.send(&mut kernel, bytes));
            if reads {
                self.note_drained();
            }
            return sent;
        }
        match &mut self.ring {
            Some(ring) => ring.write(bytes),
            None => socket::write(self.fd.as_fd(), bytes, false),
        }
    }

    /// Sends what was taken by an earlier call and is not sent yet, where that is done by calls.
    ///
    /// # Errors
    /// WouldBlock where there is no room; errors of send(2).
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) if !tls.is_handshaking() => {
                let mut kernel = Kernel(self.fd.as_fd());
                tls.measure(|tls| tls.flush(&mut kernel))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether bytes written are still to be sent.
    pub(crate) fn is_sending(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.is_sending())
            || self.tls.as_ref().is_some_and(|tls| tls.is_sending())
    }

    /// Says that nothing follows, behind what was sent before, and shuts down the sending side.
    ///
    /// # Errors
    /// Errors of shutdown(2).
    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        self.end_tls();
        socket::shutdown_write(self.fd.as_fd())
    }

    /// Says that nothing follows, in TLS. Without room for it, that is lost.
    fn end_tls(&mut self) {
        if let Some(tls) = &mut self.tls {
            let mut kernel = Kernel(self.fd.as_fd());
            tls.measure(|tls| {
                tls.end();
                let _ = tls.flush(&mut kernel);
            });
        }
    }

    /// Returns whether its TLS handshake has resumed an earlier session; `None` without TLS.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        self.tls.as_ref()?.is_resumed()
    }

    /// Returns why TLS has failed, if it has.
    pub(crate) fn tls_failure(&self) -> Option<Failure> {
        self.tls.as_ref()?.failure()
    }

    /// Returns what it is to be watched for, where `interest` is what its request waits for: what
    /// TLS waits for comes first.
    fn interest(&self, interest: Interest) -> Interest {
        let Some(tls) = &self.tls else { return interest };
        match (tls.is_handshaking(), tls.is_sending()) {
            (true, true) => Interest::Write,
            (true, false) => Interest::Read,
            (false, true) if interest == Interest::Read => Interest::Either,
            (false, true) if interest == Interest::Nothing => Interest::Write,
            (false, _) => interest,
        }
    }
}

/// Something that the mechanism is to be told.
pub(crate) enum Change {
    /// A connection is over; it is closed when this is dropped.
    Closed(Token, UpstreamSocket),
    /// A connection is to be watched differently.
    Watch(Token),
}

/// The connections, by slot.
#[derive(Debug)]
pub(crate) struct Sockets {
    slots: Slots,
    entries: Vec<(u32, Option<UpstreamSocket>)>,
    charge: Charge,
    /// Idle connections by upstream and server, oldest first.
    idle: Vec<Vec<Vec<u32>>>,
    changed: Vec<u32>,
    closed: Vec<(Token, UpstreamSocket)>,
    /// True if a ring receives and sends for them.
    is_on_ring: bool,
    /// Time at which the mechanism last reported all that were ready; `None` before.
    asked_ns: Option<u64>,
}

impl Sockets {
    /// Creates the table for upstreams with so many servers.
    pub(crate) fn new(search: SlotSearch, servers: impl Iterator<Item = usize>) -> Self {
        Self {
            slots: Slots::new(search, SOCKETS_MAX),
            entries: Vec::new(),
            charge: Charge::of(Part::Upstreams, 0),
            idle: servers.map(|count| vec![Vec::new(); count]).collect(),
            changed: Vec::new(),
            closed: Vec::new(),
            is_on_ring: false,
            asked_ns: None,
        }
    }

    /// Has a ring receive and send for all connections to come.
    pub(crate) fn use_ring(&mut self) {
        self.is_on_ring = true;
    }

    /// Returns the connection that a token names, if it still has its slot.
    pub(crate) fn current(&mut self, token: Token) -> Option<&mut UpstreamSocket> {
        if self.token(token.slot) == token { self.get(token.slot) } else { None }
    }

    /// Returns a connection.
    pub(crate) fn get(&mut self, slot: u32) -> Option<&mut UpstreamSocket> {
        self.entries.get_mut(slot as usize)?.1.as_mut()
    }

    /// Returns whether a send on the connection in a slot has failed.
    pub(crate) fn has_failed(&self, slot: u32) -> bool {
        let socket = self.entries.get(slot as usize).and_then(|entry| entry.1.as_ref());
        socket.is_some_and(UpstreamSocket::has_failed)
    }

    /// Returns the token of the connection in a slot. Its slot counts from 0.
    pub(crate) fn token(&self, slot: u32) -> Token {
        let generation = self.entries.get(slot as usize).map_or(0, |entry| entry.0);
        Token { slot, generation }
    }

    /// Returns the upstream of a connection, and the server.
    pub(crate) fn server_of(&mut self, slot: u32) -> Option<(usize, usize)> {
        self.get(slot).map(|socket| socket.server())
    }

    /// Adds a connection that is being made, for a client.
    pub(crate) fn add(
        &mut self,
        fd: OwnedFd,
        upstream: usize,
        server: usize,
        client: Token,
        tls: Option<Charged<ClientSession>>,
    ) -> u32 {
        let socket = UpstreamSocket {
            fd: Arc::new(fd),
            upstream: upstream as u16,
            server: server as u16,
            client: Some(client),
            registered: None,
            wanted: Interest::Write,
            blocked: [false; 2],
            is_ready: false,
            is_reused: false,
            is_new: true,
            has_failed: false,
            was_reset: false,
            fault: Fault::Broken,
            is_changed: false,
            idle_since_ns: 0,
            taken_ns: 0,
            emptied_ns: None,
            ring: self.is_on_ring.then(Box::default),
            tls: tls.map(Box::new),
        };
        // Each belongs to a client, of whom there are fewer, or is idle, and those are few.
        let slot = self.slots.allocate().unwrap_or(SOCKETS_MAX as u32);
        if slot as usize >= self.entries.len() {
            self.entries.resize_with(slot as usize + 1, || (0, None));
            self.charge.set(self.entries.capacity() * size_of::<(u32, Option<UpstreamSocket>)>());
        }
        let entry = &mut self.entries[slot as usize];
        entry.0 = entry.0.wrapping_add(1);
        entry.1 = Some(socket);
        self.change(slot);
        slot
    }

    /// Takes the connection to a server that has been idle for the shortest time. Those that have
    /// ended since the mechanism was last asked are closed, and those on which the server has said
    /// something: the client would take that for the reply to its request. `unlooked_ns`: the time,
    /// if one that is known to be empty need not be looked at.
    pub(crate) fn take_idle(
        &mut self,
        upstream: usize,
        server: usize,
        client: Token,
        unlooked_ns: Option<u64>,
    ) -> Option<u32> {
        let asked_ns = self.asked_ns;
        let is_quiet = |socket: &mut UpstreamSocket| {
            let is_known =
                unlooked_ns.is_some_and(|now_ns| socket.is_known_empty(now_ns, asked_ns));
            is_known && socket.shows_all() || socket.is_quiet()
        };
        let mut slot = self.idle[upstream][server].pop()?;
        while !is_quiet(self.get(slot)?) {
            self.close(slot);
            slot = self.idle[upstream][server].pop()?;
        }
        let socket = self.get(slot)?;
        socket.client = Some(client);
        socket.is_reused = true;
        socket.is_ready = false;
        socket.emptied_ns = None;
        Some(slot)
    }

    /// Records that the mechanism has been asked, and has reported these members; `has_all`: all
    /// that were ready. Whoever takes an idle one before its own turn then looks at it.
    pub(crate) fn note_reported(
        &mut self,
        reported: impl Iterator<Item = Token>,
        has_all: bool,
        now_ns: u64,
    ) {
        for token in reported {
            if let Some(socket) = self.current(token).filter(|socket| !socket.is_in_use()) {
                socket.is_ready = true;
            }
        }
        if has_all {
            self.asked_ns = Some(now_ns);
        }
    }

    /// Has a connection serve another client.
    pub(crate) fn set_client(&mut self, slot: u32, client: Token) {
        if let Some(socket) = self.get(slot) {
            socket.client = Some(client);
        }
    }

    /// Number of idle connections to a server.
    pub(crate) fn idle(&self, upstream: usize, server: usize) -> usize {
        self.idle[upstream][server].len()
    }

    /// Returns whether there is an idle connection.
    pub(crate) fn has_idle(&self) -> bool {
        self.idle.iter().flatten().any(|idle| !idle.is_empty())
    }

    /// Keeps a connection for another request.
    pub(crate) fn keep(&mut self, slot: u32, now_ns: u64) {
        let Some(socket) = self.get(slot) else { return };
        if socket.ring.as_ref().is_some_and(|ring| ring.has_more() || ring.is_sending()) {
            // Received with the reply, it is not reported again. What is still being sent was not
            // waited for.
            return self.close(slot);
        }
        socket.client = None;
        socket.idle_since_ns = now_ns;
        if let Some(ring) = &mut socket.ring {
            ring.release();
        }
        let (upstream, server) = (socket.upstream, socket.server);
        // A server that closes it is noticed by this.
        self.want(slot, Interest::Read);
        self.idle[usize::from(upstream)][usize::from(server)].push(slot);
    }

    /// Closes a connection, once the mechanism has been told.
    pub(crate) fn close(&mut self, slot: u32) {
        let token = self.token(slot);
        let Some(entry) = self.entries.get_mut(slot as usize) else { return };
        if let Some(mut socket) = entry.1.take() {
            socket.end_tls();
            self.slots.free(slot);
            self.closed.push((token, socket));
        }
    }

    /// Closes all, once the mechanism has been told.
    pub(crate) fn close_all(&mut self) {
        self.idle.iter_mut().flatten().for_each(Vec::clear);
        (0..self.entries.len() as u32).for_each(|slot| self.close(slot));
    }

    /// Closes the idle connections of an upstream that have been so since before `since_ns`.
    pub(crate) fn close_older(&mut self, upstream: usize, since_ns: u64) {
        for server in 0..self.idle[upstream].len() {
            while let Some(&slot) = self.idle[upstream][server].first() {
                if self.get(slot).is_some_and(|socket| socket.idle_since_ns >= since_ns) {
                    break;
                }
                self.idle[upstream][server].remove(0);
                self.close(slot);
            }
        }
    }

    /// Has a connection watched for `interest`.
    pub(crate) fn want(&mut self, slot: u32, interest: Interest) {
        let Some(socket) = self.get(slot) else { return };
        let interest = socket.interest(interest);
        socket.wanted = interest;
        if socket.registered != Some(interest) || socket.blocked != [false; 2] {
            self.change(slot);
        }
    }

    /// Has the mechanism told of the calls on a connection that would have blocked. Told after a
    /// wait, it would forget what that wait has found since.
    pub(crate) fn tell_blocked(&mut self, slot: u32) {
        if self.get(slot).is_some_and(|socket| socket.blocked != [false; 2]) {
            self.change(slot);
        }
    }

    /// Has the mechanism told of a connection.
    pub(crate) fn change(&mut self, slot: u32) {
        if let Some(socket) = self.get(slot)
            && !std::mem::replace(&mut socket.is_changed, true)
        {
            self.changed.push(slot);
        }
    }

    /// Returns the upstream and the server of a connection to which nothing has been written: it
    /// may not be made yet.
    pub(crate) fn connecting(&self, slot: u32) -> Option<(usize, usize)> {
        let socket = self.entries.get(slot as usize)?.1.as_ref()?;
        socket.is_new.then(|| socket.server())
    }

    /// Records that the mechanism has reported a connection. Returns the client that uses it. An
    /// idle one has ended, or says what nobody asked for, and is closed, unless the report is of
    /// what its last reply has taken since.
    pub(crate) fn ready(&mut self, token: Token) -> Option<Token> {
        let socket = self.current(token)?;
        socket.is_ready = true;
        if socket.client.is_none() {
            if socket.ring.is_none() && socket.is_quiet() {
                socket.note_empty();
                self.change(token.slot);
                return None;
            }
            let (upstream, server) = (socket.upstream, socket.server);
            let idle = &mut self.idle[usize::from(upstream)][usize::from(server)];
            idle.retain(|&slot| slot != token.slot);
            self.close(token.slot);
            return None;
        }
        socket.client
    }

    /// Removes and returns something that the mechanism is to be told.
    pub(crate) fn next_change(&mut self) -> Option<Change> {
        if let Some((token, socket)) = self.closed.pop() {
            return Some(Change::Closed(token, socket));
        }
        while let Some(slot) = self.changed.pop() {
            let token = self.token(slot);
            if let Some(socket) = self.get(slot) {
                socket.is_changed = false;
                return Some(Change::Watch(token));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    const CLIENT: Token = Token { slot: 3, generation: 1 };

    #[test]
    fn an_idle_connection_is_closed_when_its_server_says_something_and_not_before() {
        let mut sockets = Sockets::new(SlotSearch::Tree, std::iter::once(1));
        let (here, mut there) = UnixStream::pair().unwrap();
        let slot = sockets.add(here.into(), 0, 0, CLIENT, None);
        let token = sockets.token(slot);
        assert_eq!(sockets.ready(token), Some(CLIENT));
        sockets.keep(slot, 1);
        // Found before the reply that ended with it was read.
        assert_eq!(sockets.ready(token), None);
        assert_eq!((sockets.idle(0, 0), sockets.has_idle()), (1, true));
        there.write_all(b"unasked").unwrap();
        assert_eq!(sockets.ready(token), None);
        assert_eq!((sockets.idle(0, 0), sockets.has_idle()), (0, false));
        assert!(sockets.get(slot).is_none());
    }

    #[test]
    fn an_idle_connection_is_not_used_again_once_its_server_has_said_something() {
        let mut sockets = Sockets::new(SlotSearch::Tree, std::iter::once(1));
        let pairs = [(); 4].map(|()| UnixStream::pair().unwrap());
        let (mut theirs, mut slots) = (Vec::new(), Vec::new());
        for (here, there) in pairs {
            slots.push(sockets.add(here.into(), 0, 0, CLIENT, None));
            theirs.push(there);
        }
        slots.iter().for_each(|&slot| sockets.keep(slot, 1));
        // The mechanism has not been asked since.
        theirs[3].write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").unwrap();
        drop(theirs.remove(2));
        theirs[0].write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
        assert_eq!(sockets.take_idle(0, 0, CLIENT, None), Some(slots[1]));
        assert_eq!(sockets.take_idle(0, 0, CLIENT, None), None);
        assert!([0, 2, 3].iter().all(|&nth| sockets.get(slots[nth]).is_none()));
        assert!(sockets.get(slots[1]).is_some_and(|socket| socket.is_reused));
    }

    /// Returns whether a connection on which its server has just said something is taken, at
    /// `now_ns`, after a reply that left it empty at `emptied_ns`. `asked`: times at which the
    /// mechanism was asked, and whether it reported all that were ready; each time it, or nothing.
    fn is_taken_unlooked(
        emptied_ns: Option<u64>,
        asked: &[(u64, bool)],
        reports_it: bool,
        now_ns: Option<u64>,
    ) -> bool {
        let mut sockets = Sockets::new(SlotSearch::Tree, std::iter::once(1));
        let (here, mut there) = UnixStream::pair().unwrap();
        let slot = sockets.add(here.into(), 0, 0, CLIENT, None);
        sockets.get(slot).unwrap().emptied_ns = emptied_ns;
        sockets.keep(slot, 7);
        for &(asked_ns, has_all) in asked {
            let token = sockets.token(slot);
            sockets.note_reported(reports_it.then_some(token).into_iter(), has_all, asked_ns);
        }
        // A look finds this.
        there.write_all(b"unasked").unwrap();
        sockets.take_idle(0, 0, CLIENT, now_ns).is_some()
    }

    #[test]
    fn a_connection_is_not_looked_at_in_the_iteration_that_left_it_empty_and_only_then() {
        for (emptied_ns, now_ns, is_taken) in [
            (Some(7), Some(7), true),
            (Some(7), Some(8), false),
            (Some(7), None, false),
            (None, None, false),
        ] {
            assert_eq!(is_taken_unlooked(emptied_ns, &[], false, now_ns), is_taken);
        }
    }

    #[test]
    fn a_connection_is_not_looked_at_soon_after_the_mechanism_has_shown_it_empty() {
        let asked_ns = 50;
        let (last_ns, late_ns) = (asked_ns + KNOWN_NS, asked_ns + KNOWN_NS + 1);
        for (asked, reports_it, now_ns, is_taken) in [
            (&[(asked_ns, true)][..], false, Some(last_ns), true),
            (&[(asked_ns, true)], false, Some(late_ns), false),
            (&[(asked_ns, true)], false, None, false),
            // It is ready: its own turn is to come.
            (&[(asked_ns, true)], true, Some(asked_ns), false),
            (&[(asked_ns, false)], true, Some(7), false),
            // Others were reported, and it may be ready too.
            (&[(asked_ns, false)], false, Some(asked_ns), false),
            (&[(asked_ns, true), (late_ns, false)], false, Some(late_ns), false),
        ] {
            assert_eq!(is_taken_unlooked(Some(7), asked, reports_it, now_ns), is_taken);
        }
        // A reply of this iteration shows it too, for as long.
        let emptied_ns = Some(late_ns);
        let asked = [(asked_ns, true)];
        assert!(is_taken_unlooked(emptied_ns, &asked, false, Some(late_ns + KNOWN_NS)));
        assert!(!is_taken_unlooked(emptied_ns, &asked, false, Some(late_ns + KNOWN_NS + 1)));
        assert!(!is_taken_unlooked(None, &asked, false, Some(asked_ns)));
    }

    #[test]
    fn a_connection_in_use_is_not_ready_before_its_turn() {
        let mut sockets = Sockets::new(SlotSearch::Tree, std::iter::once(1));
        let (here, _there) = UnixStream::pair().unwrap();
        let slot = sockets.add(here.into(), 0, 0, CLIENT, None);
        let token = sockets.token(slot);
        sockets.note_reported(std::iter::once(token), true, 7);
        assert!(!sockets.get(slot).unwrap().is_ready);
        assert_eq!(sockets.ready(token), Some(CLIENT));
    }

    #[test]
    fn a_connection_on_a_ring_is_looked_at_while_the_ring_receives_nothing() {
        let mut sockets = Sockets::new(SlotSearch::Tree, std::iter::once(1));
        sockets.use_ring();
        let (here, mut there) = UnixStream::pair().unwrap();
        let slot = sockets.add(here.into(), 0, 0, CLIENT, None);
        let socket = sockets.get(slot).unwrap();
        socket.emptied_ns = Some(7);
        socket.ring.as_mut().unwrap().connected(None);
        sockets.keep(slot, 7);
        there.write_all(b"unasked").unwrap();
        assert_eq!(sockets.take_idle(0, 0, CLIENT, Some(7)), None);
    }

    #[test]
    fn a_connection_on_a_ring_is_not_kept_with_something_unread() {
        for (unread, is_kept) in [(&b"more"[..], false), (b"", true)] {
            let mut sockets = Sockets::new(SlotSearch::Tree, std::iter::once(1));
            sockets.use_ring();
            let (here, _there) = UnixStream::pair().unwrap();
            let slot = sockets.add(here.into(), 0, 0, CLIENT, None);
            let ring = sockets.get(slot).and_then(|socket| socket.ring.as_mut()).unwrap();
            ring.connected(None);
            ring.push(unread);
            sockets.keep(slot, 1);
            assert_eq!(sockets.take_idle(0, 0, CLIENT, None).is_some(), is_kept);
        }
    }
}
