//! The bytes of a connection to a server for which a ring receives and sends. To a request it looks
//! like a socket: what has not arrived, or cannot be taken yet, would block.

use std::io;

use weir_sys::ring::server::Op;

/// Number of received bytes from which no more are asked for until some have been read.
const RECEIVED_BYTES_MAX: usize = 64 << 10;

/// Maximum size of the first bytes of a request that an idle socket takes at once, bytes: their
/// send is over before anything received after it is told.
const AT_ONCE_BYTES_MAX: usize = 8 << 10;

/// Number of times in a row that a receive may leave bytes in the socket before the end behind them
/// may be lost to it: about half of what the kernel receives at a time (MULTISHOT_MAX_RETRY, 32, of
/// Linux 6.18).
const LEFT_MAX: u32 = 16;

/// The course of a receive that serves for all that comes. Having received 33 times, the kernel
/// waits to be woken, and looks once whether that has happened. If that look finds the rest, and
/// the peer is gone already, nothing wakes it any more: a reset, or the close of a Unix socket, is
/// no FIN to tcp_inq_hint (io_recv_finish and io_poll_check_events of Linux 6.18). A receive that
/// is begun on an empty socket finds its end at once.
#[derive(Debug, Default)]
pub(crate) struct ReceiveRun {
    /// Number of times in a row that bytes were left in the socket.
    left: u32,
}

impl ReceiveRun {
    /// Records that bytes were received, and whether others were left in the socket; returns
    /// whether the receive is to be cancelled and begun again.
    pub(crate) fn note(&mut self, left: bool) -> bool {
        if left {
            self.left = self.left.saturating_add(1);
            return false;
        }
        std::mem::take(&mut self.left) >= LEFT_MAX
    }
}

/// The bytes of a connection, and the operations under way for it.
#[derive(Debug, Default)]
pub(crate) struct RingIo {
    /// Bytes received; those before `read` have been read.
    received: Vec<u8>,
    read: usize,
    /// Bytes written that no operation sends yet.
    unsent: Vec<u8>,
    /// True once it is connected.
    is_connected: bool,
    /// True from the end of a reply until the next request is on its way: what is received then was
    /// not asked for.
    is_unasked: bool,
    /// Result that ended the input: 0, or a negative errno.
    ended: Option<i32>,
    /// Errno with which sending failed.
    failed: Option<i32>,
    /// The poll for the end of the connect.
    pub connect: Option<Op>,
    pub receive: Option<Op>,
    run: ReceiveRun,
    /// True if the receive is to be begun again, or the end could be lost to it.
    is_stale: bool,
    /// True if the receive was cancelled.
    pub is_cancelled: bool,
    pub send: Option<Op>,
}

impl RingIo {
    /// Reads some of what was received; 0 is the end.
    ///
    /// # Errors
    /// WouldBlock if there is nothing; what ended the input.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let unread = self.received.get(self.read..).unwrap_or_default();
        if unread.is_empty() {
            return end_of_input(self.ended);
        }
        let bytes = unread.len().min(into.len());
        into[..bytes].copy_from_slice(&unread[..bytes]);
        self.read += bytes;
        if self.read == self.received.len() {
            self.received.clear();
            self.read = 0;
        }
        Ok(bytes)
    }

    /// Takes bytes to be sent: all of them, if none are on their way.
    ///
    /// # Errors
    /// WouldBlock; what made sending fail.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(errno) = self.failed {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if !self.is_connected || self.is_sending() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.unsent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Returns whether a read would not block.
    pub(super) fn has_more(&self) -> bool {
        self.ended.is_some() || self.read < self.received.len()
    }

    /// Returns whether bytes written are still to be sent.
    pub(super) fn is_sending(&self) -> bool {
        self.send.is_some() || !self.unsent.is_empty()
    }

    /// Ends a request, and gives its buffers back. Everything received must have been read.
    pub(super) fn release(&mut self) {
        self.is_unasked = true;
        self.received = Vec::new();
        self.read = 0;
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
    }

    /// Returns whether its connect has still to be waited for.
    pub(crate) fn awaits_connect(&self) -> bool {
        !self.is_connected && self.failed.is_none()
    }

    /// Returns whether more bytes are to be received.
    pub(crate) fn wants_input(&self) -> bool {
        self.is_connected && self.ended.is_none() && !self.holds_much()
    }

    /// Returns whether as much as is held at a time is unread.
    fn holds_much(&self) -> bool {
        self.received.len() - self.read >= RECEIVED_BYTES_MAX
    }

    /// Begins a receive; returns whether it may serve for all that comes. Once a send has failed it
    /// may not: on kernels that look once for bytes and the reset behind them, it waits for ever.
    pub(crate) fn begin_receive(&mut self) -> bool {
        (self.is_cancelled, self.is_stale) = (false, false);
        self.run = ReceiveRun::default();
        self.failed.is_none()
    }

    /// Records that a receive under way goes on, and whether it has left bytes in the socket.
    pub(crate) fn note_more(&mut self, left: bool) {
        self.is_stale |= self.run.note(left);
    }

    /// Returns whether a receive under way is to be cancelled.
    pub(crate) fn wants_cancelled(&self) -> bool {
        self.holds_much() || self.is_stale
    }

    /// Takes out the bytes to be sent next; `None` if there are none, or others are on their way.
    pub(crate) fn take_unsent(&mut self) -> Option<Vec<u8>> {
        self.take_unsent_while(self.receive.is_some())
    }

    fn take_unsent_while(&mut self, receives: bool) -> Option<Vec<u8>> {
        let is_due = self.send.is_none() && !self.unsent.is_empty();
        // With no receive under way, what comes first is found by a look at the socket.
        let is_told_later = receives && self.unsent.len() <= AT_ONCE_BYTES_MAX;
        self.is_unasked &= !is_due || is_told_later;
        is_due.then(|| std::mem::take(&mut self.unsent))
    }

    /// Records the end of the connect. `errno`: that of its failure.
    pub(crate) fn connected(&mut self, errno: Option<i32>) {
        self.connect = None;
        self.is_connected = errno.is_none();
        self.failed = errno;
        self.ended = errno.map(|errno| -errno);
    }

    /// Adds received bytes. Those that were not asked for end the input: the server takes no
    /// request, or what it says would be taken for the reply to the next one.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.is_unasked {
            return self.end(0);
        }
        if self.read > 0 {
            self.received.drain(..self.read);
            self.read = 0;
        }
        self.received.extend_from_slice(bytes);
    }

    /// Records the end of the input: 0, or a negative errno.
    pub(crate) fn end(&mut self, result: i32) {
        self.ended = Some(result);
    }

    /// Records the end of a send, whose buffer serves again. `errno`: that of its failure, which a
    /// read reports, behind what the server had sent before.
    pub(crate) fn sent(&mut self, errno: Option<i32>, mut buffer: Vec<u8>, is_in_use: bool) {
        self.send = None;
        self.is_unasked = false;
        self.failed = self.failed.or(errno);
        self.is_stale |= errno.is_some();
        if is_in_use && self.unsent.capacity() == 0 {
            buffer.clear();
            self.unsent = buffer;
        }
    }

    /// Returns whether a send has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Returns whether a send has failed because the server reset the connection.
    pub(super) fn was_reset(&self) -> bool {
        let error = self.failed.map(io::Error::from_raw_os_error);
        error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
    }

    /// Returns the operations under way.
    pub(crate) fn ops(&self) -> impl Iterator<Item = Op> {
        [self.connect, self.receive, self.send].into_iter().flatten()
    }
}

/// Returns what a read finds where nothing is left of what a ring received. `ended`: the result
/// that ended the input, 0 or a negative errno.
///
/// # Errors
/// WouldBlock before the end; what ended the input.
pub(crate) fn end_of_input(ended: Option<i32>) -> io::Result<usize> {
    match ended {
        None => Err(io::ErrorKind::WouldBlock.into()),
        Some(0) => Ok(0),
        Some(result) => Err(io::Error::from_raw_os_error(-result)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected() -> RingIo {
        let mut ring = RingIo::default();
        assert!(ring.awaits_connect());
        ring.connected(None);
        ring
    }

    fn kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn what_was_received_is_read_before_the_end() {
        let (mut ring, mut into) = (connected(), [0; 4]);
        assert_eq!(kind(ring.read(&mut into)), Some(io::ErrorKind::WouldBlock));
        ring.push(b"abc");
        ring.push(b"de");
        ring.end(0);
        assert_eq!(ring.read(&mut into).unwrap(), 4);
        assert!(ring.has_more());
        assert_eq!((ring.read(&mut into).unwrap(), into[0]), (1, b'e'));
        assert_eq!(ring.read(&mut into).unwrap(), 0);
        ring.end(-104);
        assert_eq!(kind(ring.read(&mut into)), Some(io::ErrorKind::ConnectionReset));
    }

    #[test]
    fn nothing_is_written_before_the_connect_or_behind_what_is_on_its_way() {
        let mut ring = RingIo::default();
        assert_eq!(kind(ring.write(b"a")), Some(io::ErrorKind::WouldBlock));
        ring.connected(None);
        assert_eq!(ring.write(b"abc").unwrap(), 3);
        assert_eq!(kind(ring.write(b"d")), Some(io::ErrorKind::WouldBlock));
        assert_eq!(ring.take_unsent().unwrap(), b"abc");
        ring.sent(Some(32), Vec::new(), true);
        assert_eq!(kind(ring.write(b"d")), Some(io::ErrorKind::BrokenPipe));
        assert!(!ring.is_sending());
    }

    #[test]
    fn a_receive_for_all_that_comes_is_given_up_once_a_send_has_failed() {
        let mut ring = connected();
        assert!(ring.begin_receive() && !ring.wants_cancelled());
        ring.sent(Some(104), Vec::new(), true);
        assert!(ring.wants_cancelled() && ring.wants_input());
        assert!(!ring.begin_receive() && !ring.wants_cancelled());
    }

    #[test]
    fn a_receive_that_has_emptied_a_full_socket_is_begun_again() {
        let mut ring = connected();
        ring.begin_receive();
        for left in [LEFT_MAX - 1, LEFT_MAX] {
            (0..left).for_each(|_| ring.note_more(true));
            assert!(!ring.wants_cancelled());
            ring.note_more(false);
            assert_eq!(ring.wants_cancelled(), left == LEFT_MAX);
        }
        assert!(ring.begin_receive() && !ring.wants_cancelled());
        ring.note_more(false);
        assert!(!ring.wants_cancelled());
    }

    #[test]
    fn a_failed_connect_fails_reads_and_writes() {
        let mut ring = RingIo::default();
        ring.connected(Some(111));
        assert_eq!(kind(ring.write(b"a")), Some(io::ErrorKind::ConnectionRefused));
        assert_eq!(kind(ring.read(&mut [0])), Some(io::ErrorKind::ConnectionRefused));
        assert!(!ring.awaits_connect() && !ring.wants_input());
    }

    /// A connection that has carried a request and its reply, and receives.
    fn kept() -> RingIo {
        let mut ring = connected();
        ring.write(b"one").unwrap();
        ring.take_unsent_while(true).unwrap();
        ring.sent(None, Vec::new(), true);
        ring.push(b"reply");
        ring.read(&mut [0; 9]).unwrap();
        ring.release();
        ring
    }

    #[test]
    fn what_arrives_before_the_next_request_is_on_its_way_is_the_end() {
        let unasked = |ring: &mut RingIo| {
            ring.push(b"unasked");
            assert_eq!(ring.read(&mut [0; 9]).unwrap(), 0);
        };
        unasked(&mut kept());
        let mut ring = kept();
        ring.write(b"two").unwrap();
        unasked(&mut ring);
        // The send is told of before what comes in reply to it.
        let mut ring = kept();
        ring.write(b"two").unwrap();
        ring.take_unsent_while(true).unwrap();
        unasked(&mut ring);
    }

    #[test]
    fn what_arrives_once_a_request_is_on_its_way_is_its_reply() {
        let asked = |ring: &mut RingIo| {
            ring.push(b"reply");
            assert_eq!(ring.read(&mut [0; 9]).unwrap(), 5);
        };
        asked(&mut connected());
        let mut ring = kept();
        ring.write(b"two").unwrap();
        ring.take_unsent_while(true).unwrap();
        ring.sent(None, Vec::new(), true);
        asked(&mut ring);
        // A server may answer before it has all of a long request.
        let mut ring = kept();
        ring.write(&[0; AT_ONCE_BYTES_MAX + 1]).unwrap();
        ring.take_unsent_while(true).unwrap();
        asked(&mut ring);
        let mut ring = kept();
        ring.write(b"two").unwrap();
        ring.take_unsent_while(false).unwrap();
        asked(&mut ring);
    }

    #[test]
    fn no_more_is_asked_for_than_is_held() {
        let mut ring = connected();
        ring.push(&vec![0; RECEIVED_BYTES_MAX]);
        assert!(!ring.wants_input());
        ring.read(&mut [0; 100]).unwrap();
        assert!(ring.wants_input());
    }
}
