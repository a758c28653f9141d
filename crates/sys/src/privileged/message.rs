//! The form of questions to the process that keeps the privileges, and of its answers: a head of 16
//! bytes, and behind it nothing but the path of a file. The numbers are in this machine's byte
//! order. An upgraded server may ask the process of an earlier one: another form, or another layout
//! of a filter's numbers, takes another [`VERSION`]. A part or a number behind the others does not:
//! a filter without it is one that cannot do what it is for.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::poll::{self, POLLHUP, POLLRDHUP, PollFd};

/// Version of the form.
const VERSION: u8 = 1;

/// Length of a head, bytes.
const HEAD: usize = 16;

/// Maximum length of a message, bytes: a head and the longest path (PATH_MAX, limits.h).
const BYTES_MAX: usize = HEAD + 4096;

/// Maximum number of descriptors with a message; the first of a question is the way of its answer.
pub(super) const FDS_MAX: usize = 5;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Request<'a> {
    /// Whether the process is there.
    Hello,
    /// A filter that takes tokens; the answer has its maps and its program.
    Tokens,
    /// To attach a program to a socket, both of which come with it.
    Attach,
    /// To drop this share of the SYNs of a socket that comes with it, above 0 and at most 1.
    Random(f64),
    /// A file, open for reading.
    Open(&'a [u8]),
    /// A log, open for writing behind its end.
    Append(&'a [u8]),
}

impl<'a> Request<'a> {
    fn code(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Tokens => 2,
            Self::Attach => 3,
            Self::Random(_) => 4,
            Self::Open(_) => 5,
            Self::Append(_) => 6,
        }
    }

    /// Returns the message.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let (number, path) = match self {
            Self::Hello | Self::Tokens | Self::Attach => (0, &[][..]),
            Self::Random(share) => (share.to_bits(), &[][..]),
            Self::Open(path) | Self::Append(path) => (0, path),
        };
        let head = [VERSION, self.code(), 0, 0, 0, 0, 0, 0];
        [&head[..], &number.to_ne_bytes(), path].concat()
    }

    /// Returns the question of a message; `None` if it is not exactly one.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (head, path) = bytes.split_at_checked(HEAD)?;
        let number = u64::from_ne_bytes(head.get(8..)?.try_into().ok()?);
        let share = f64::from_bits(number);
        let request = match head.get(1)? {
            1 => Self::Hello,
            2 => Self::Tokens,
            3 => Self::Attach,
            4 if share > 0.0 && share <= 1.0 => Self::Random(share),
            5 if !path.is_empty() => Self::Open(path),
            6 if !path.is_empty() => Self::Append(path),
            _ => return None,
        };
        // Whatever says more, or otherwise, is of another version, or forged.
        (request.to_bytes() == bytes).then_some(request)
    }
}

/// Returns the message of an answer.
pub(super) fn answer(errno: i32) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    bytes[0] = VERSION;
    bytes[8..12].copy_from_slice(&errno.to_ne_bytes());
    bytes
}

/// Returns the number of the error of an answer, 0 for success; `None` if it is no answer.
pub(super) fn errno(bytes: &[u8]) -> Option<i32> {
    let errno = i32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
    (answer(errno) == bytes).then_some(errno)
}

/// A message that has come.
#[derive(Debug)]
pub(super) struct Message {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

/// Sends a message. `waits`: for room, as long as the socket's own limit says.
///
/// # Errors
/// EPIPE, ECONNRESET: the other end is closed; EAGAIN: there is no room; others of sendmsg(2).
pub(super) fn send(
    to: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    waits: bool,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let wait = if waits { SendFlags::empty() } else { SendFlags::DONTWAIT };
    rustix::io::retry_on_intr(|| {
        sendmsg(to, &[IoSlice::new(bytes)], &mut control, wait | SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Waits for a message, with its descriptors, which are close-on-exec; `None` once there is no
/// other: the other end is closed, or sends nothing any more (shutdown(2)).
///
/// # Errors
/// InvalidData: it is empty, or has more bytes or descriptors than any, and they are lost; others
/// of recvmsg(2).
pub(super) fn receive(from: BorrowedFd<'_>) -> io::Result<Option<Message>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; BYTES_MAX];
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        recvmsg(from, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    let received = match received {
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        received => received?,
    };
    let fds: Vec<OwnedFd> = control
        .drain()
        .flat_map(|each| match each {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
            _ => Vec::new(),
        })
        .collect();
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if received.bytes == 0 {
        return if is_over(from) { Ok(None) } else { Err(io::ErrorKind::InvalidData.into()) };
    }
    bytes.truncate(received.bytes);
    Ok(Some(Message { bytes, fds }))
}

/// Returns whether no message can come any more. The end is received like an empty message, which
/// anybody may send; what is still queued behind one at the end is of nobody who waits.
fn is_over(from: BorrowedFd<'_>) -> bool {
    let mut entry = [PollFd { fd: from.as_raw_fd(), events: POLLRDHUP, revents: 0 }];
    // After the end, a caller that went on would never wait again.
    poll::poll(&mut entry, Some(Duration::ZERO)).is_err()
        || entry[0].revents & (POLLRDHUP | POLLHUP) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::channel;
    use std::os::fd::AsFd;

    #[test]
    fn a_question_is_understood_as_it_was_asked_and_nothing_else_is() {
        let all = [
            Request::Hello,
            Request::Tokens,
            Request::Attach,
            Request::Random(1.0),
            Request::Random(f64::MIN_POSITIVE),
            Request::Open(b"/etc/key"),
            Request::Append(b"/var/log/\xff"),
        ];
        for request in all {
            let bytes = request.to_bytes();
            assert_eq!(Request::of(&bytes), Some(request));
            assert_eq!(Request::of(&bytes[..bytes.len() - 1]).filter(|it| *it == request), None);
            for at in 0..HEAD {
                // Each bit but those of the share says something else, or nothing.
                let mut forged = bytes.clone();
                forged[at] ^= 1;
                assert_ne!(Request::of(&forged), Some(request), "{request:?} {at}");
            }
        }
        for share in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
            assert_eq!(Request::of(&Request::Random(share).to_bytes()), None, "{share}");
        }
        assert_eq!(Request::of(&[Request::Hello.to_bytes(), vec![0]].concat()), None);
        assert_eq!(Request::of(&Request::Open(b"").to_bytes()), None);
        assert_eq!(errno(&answer(13)), Some(13));
        assert_eq!(errno(&answer(13)[1..]), None);
    }

    #[test]
    fn a_message_with_too_much_is_lost_and_the_next_one_is_not() {
        let (one, other) = channel().unwrap();
        let long = vec![0; BYTES_MAX + 1];
        send(one.as_fd(), &long, &[], true).unwrap();
        send(one.as_fd(), b"next", &[other.as_fd()], true).unwrap();
        assert!(receive(other.as_fd()).is_err());
        let Message { bytes, fds } = receive(other.as_fd()).unwrap().unwrap();
        assert_eq!((&bytes[..], fds.len()), (&b"next"[..], 1));
        drop(one);
        assert!(receive(other.as_fd()).unwrap().is_none());
    }

    #[test]
    fn an_empty_message_is_not_the_end_and_a_shut_down_channel_is() {
        let (one, other) = channel().unwrap();
        send(one.as_fd(), b"", &[], true).unwrap();
        send(one.as_fd(), b"", &[other.as_fd()], true).unwrap();
        send(one.as_fd(), b"next", &[], true).unwrap();
        for _ in 0..2 {
            let error = receive(other.as_fd()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(receive(other.as_fd()).unwrap().unwrap().bytes, b"next");
        // By a copy, for all who have one.
        let copy = one.try_clone().unwrap();
        rustix::net::shutdown(&copy, rustix::net::Shutdown::Write).unwrap();
        assert!(send(one.as_fd(), b"more", &[], true).is_err());
        assert!(receive(other.as_fd()).unwrap().is_none());
    }
}
