//! A connection with its client, and its invariants under any events.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use weir_server::content::Fetch;
use weir_server::test_support::{Action, BufferSizes, Connection, Shared};
use weir_sys::socket::UNKNOWN_PEER;

use super::fake_socket::{End, FakeSocket, Kernel};
use super::replies::{Exceptions, Replies};
use super::requests;
use super::script::{Event, Script};
use super::site::Site;

/// Maximum number of bytes a client has to send, so that no script takes long.
const PENDING_BYTES_MAX: usize = 256 << 10;

/// Maximum number of calls for any progress, and for each further byte that arrived: a request has
/// sixteen.
const CALLS_MAX: usize = 200;

/// Maximum size of the input buffer of an incomplete request: the longest head.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Maximum size of the buffer kept for the beginning of a request.
const KEPT_INPUT_BYTES: usize = 2048;

/// Maximum size of the output buffer: replies that share a write, the last of which may be a
/// redirect to a long path, in a buffer that has grown by doubling.
const OUTPUT_BYTES_MAX: usize = 2 * ((32 << 10) + (64 << 10));

/// A connection with its client.
pub(super) struct SimulatedClient {
    pub connection: Connection<FakeSocket>,
    pub kernel: Rc<Kernel>,
    /// Bytes the client has to send.
    pending: Vec<u8>,
    /// Event the connection waits for.
    pub next: Action,
    pub fetch: Option<Fetch>,
    /// True if it has yielded, and continues in a later iteration whatever it is ready for.
    pub has_yielded: bool,
    /// True if the last read, or the last write, left the socket empty, or full.
    pub blocked: (bool, bool),
    replies: Replies,
    pub so: Exceptions,
}

impl SimulatedClient {
    /// Creates the connection with this number.
    pub(super) fn new(number: u64, closing: bool, shared: &Shared) -> Self {
        let kernel = Rc::new(Kernel::default());
        kernel.room.set(usize::MAX);
        kernel.write_max.set(usize::MAX);
        // Nothing is known of what has reached a Unix socket's client.
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let peer = if number.is_multiple_of(4) { UNKNOWN_PEER } else { local };
        SimulatedClient {
            connection: Connection::new(FakeSocket(Rc::clone(&kernel)), peer, shared),
            kernel,
            pending: Vec::new(),
            next: Action::Read,
            fetch: None,
            has_yielded: false,
            blocked: (false, false),
            replies: Replies::default(),
            so: Exceptions { closing, ..Exceptions::default() },
        }
    }

    /// Applies an event at the client's side, or in the kernel.
    pub(super) fn happen(&mut self, event: Event, script: &mut Script<'_>) {
        match event {
            Event::Ask { kind, variant } => self.send(&requests::request(kind, variant)),
            Event::Raw { bytes } => self.send(script.bytes(bytes.into())),
            Event::Fill { byte, times } => self.send(&vec![byte; usize::from(times) * 64]),
            Event::Room { bytes } => {
                self.kernel.room.set(self.kernel.room.get().saturating_add(bytes));
            }
            Event::NoRoom => self.kernel.room.set(0),
            Event::WriteMax { bytes } => self.kernel.write_max.set(bytes.max(1)),
            Event::TakeNone => self.kernel.takes_none.set(!self.kernel.takes_none.get()),
            Event::Unacknowledged { bytes } => self.kernel.unacknowledged.set(bytes),
            Event::Shut => self.kernel.end.set(self.kernel.end.get().or(Some(End::Shut))),
            Event::Reset => {
                self.so.lost = true;
                self.kernel.reset();
            }
            _ => {}
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let room = PENDING_BYTES_MAX.saturating_sub(self.pending.len());
        self.pending.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Delivers up to `bytes` of the client's bytes.
    pub(super) fn arrive(&mut self, bytes: usize) {
        if self.kernel.end.get().is_none() {
            let bytes = bytes.min(self.pending.len());
            self.kernel.inbox.borrow_mut().extend(self.pending.drain(..bytes));
        }
    }

    /// Delivers everything, and makes room for any write.
    pub(super) fn unbind(&mut self) {
        self.arrive(usize::MAX);
        self.kernel.room.set(usize::MAX);
        self.kernel.write_max.set(usize::MAX);
        self.kernel.takes_none.set(false);
    }

    /// Returns whether a readiness mechanism would report the connection, and a loop would serve
    /// it.
    pub(super) fn is_ready(&self) -> bool {
        match self.next {
            _ if self.has_yielded => false,
            Action::Read => self.kernel.is_readable(),
            Action::Write => self.kernel.is_writable(),
            _ => false,
        }
    }

    /// Returns whether the connection can make progress without its client.
    pub(super) fn is_busy(&self) -> bool {
        self.has_yielded || self.fetch.is_some() || self.is_ready()
    }

    /// Returns whether no reply is partly sent.
    pub(super) fn is_between_replies(&self) -> bool {
        self.replies.is_between(&self.kernel.outbox.borrow())
    }

    /// Makes the connection act, in a bounded number of calls.
    pub(super) fn act(
        &mut self,
        shared: &mut Shared,
        act: impl FnOnce(&mut Connection<FakeSocket>, &mut Shared) -> Action,
    ) -> Action {
        let bytes = self.kernel.inbox.borrow().len() + self.connection.unread();
        self.kernel.calls_left.set(CALLS_MAX + bytes / 2);
        let next = act(&mut self.connection, shared);
        self.blocked = self.connection.blocked();
        next
    }

    /// Checks the invariants that hold at any time.
    pub(super) fn check(&mut self, site: &Site) {
        self.read_replies(site);
        let BufferSizes { input_bytes, output_bytes } = self.connection.buffer_sizes();
        assert!(input_bytes <= INPUT_BYTES_MAX, "{input_bytes} bytes for input");
        assert!(output_bytes <= OUTPUT_BYTES_MAX, "{output_bytes} bytes for output");
        let kernel = &self.kernel;
        let (read, written) = self.blocked;
        assert!(!read || kernel.inbox.borrow().is_empty(), "not all was read");
        let is_full = kernel.room.get() == 0 || kernel.write_max.get() < usize::MAX;
        assert!(!written || is_full, "there was room");
    }

    /// Checks the invariants of a connection that was served and waits.
    pub(super) fn check_rest(&mut self) {
        let BufferSizes { input_bytes, output_bytes } = self.connection.buffer_sizes();
        let waits = matches!(self.next, Action::Read | Action::Write);
        assert!(!waits || self.connection.deadline_ns() < u64::MAX, "it would wait for ever");
        let is_idle = self.connection.is_idle();
        assert!(!is_idle || (input_bytes, output_bytes) == (0, 0), "it is idle, and holds memory");
        let unread = self.connection.unread();
        if self.next == Action::Read && unread <= KEPT_INPUT_BYTES {
            assert!(input_bytes <= KEPT_INPUT_BYTES, "{input_bytes} bytes for {unread}");
        }
    }

    /// Checks the invariants once nothing more happens by itself.
    pub(super) fn check_silence(&self, site: &Site) {
        assert_eq!(self.next, Action::Read, "it waits, and not for its client");
        let owes = self.replies.owes(&self.kernel.taken.borrow(), site);
        assert!(!owes || self.so.excuse(), "a request has no reply");
    }

    /// Releases the connection; returns the number of complete replies it sent.
    pub(super) fn close(mut self, shared: &mut Shared, site: &Site) -> u64 {
        self.read_replies(site);
        let SimulatedClient { connection, kernel, replies, so, .. } = self;
        connection.close(shared);
        let (end, sent) = (kernel.end.get(), kernel.outbox.borrow());
        let gone = end == Some(End::Reset);
        assert!(gone || kernel.resets.get() || replies.is_between(&sent), "cut, and not reset");
        if !so.excuse() {
            assert!(end.is_some() || replies.closed, "closed for nothing");
            assert!(!replies.owes(&kernel.taken.borrow(), site), "a request has no reply");
        }
        replies.count
    }

    fn read_replies(&mut self, site: &Site) {
        let (sent, requests) = (self.kernel.outbox.borrow(), self.kernel.taken.borrow());
        self.replies.read(&sent, &requests, site, self.so);
    }
}
