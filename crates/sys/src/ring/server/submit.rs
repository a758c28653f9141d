//! Operations of a server's ring, each a method that queues it.

use std::ffi::CString;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, DestinationSlot, Fd, Fixed, OpenHow};
use io_uring::{opcode, types};
use rustix::fs::{OFlags, ResolveFlags};

use super::ServerRing;
use super::buffers::GROUP;
use super::chain::Then;
use super::entry;
use super::operations::Op;
use super::resources::{Pair, Peer, Pinned, Resources};
use super::send_buffer::{PART_BYTES_MAX, SendBuffer};
use crate::descriptor::SharedFd;
use crate::ring::NO_OPERATION;

/// A socket.
#[derive(Clone, Copy, Debug)]
pub enum Handle<'a> {
    /// A slot of the ring.
    Slot(u32),
    /// An ordinary descriptor, of which the operation takes a share.
    Fd(&'a SharedFd),
}

impl Handle<'_> {
    fn number(self) -> Fd {
        match self {
            Self::Slot(slot) => Fd(slot as i32),
            Self::Fd(fd) => number(fd),
        }
    }

    /// Share of the descriptor that must stay open, if there is one.
    fn shared(self) -> Option<SharedFd> {
        match self {
            Self::Slot(_) => None,
            Self::Fd(fd) => Some(fd.clone()),
        }
    }

    fn flags(self) -> Flags {
        match self {
            Self::Slot(_) => Flags::FIXED_FILE,
            Self::Fd(_) => Flags::empty(),
        }
    }
}

/// Destination of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptTarget {
    /// A slot of the ring. A socket already in it is replaced, and so closed.
    Slot(u32),
    /// A descriptor, returned with the completion.
    Fd,
}

/// Waiting behaviour of an accept when no connection is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptWait {
    /// Does not wait: fails with EAGAIN if no connection is queued.
    Never,
    /// Tries to accept first, and waits if no connection is queued.
    AfterAttempt,
    /// Polls the listener first, and accepts when the poll completes, which is at once if a
    /// connection is queued. If none is, this saves a futile attempt, for which the kernel
    /// allocates a socket and discards it.
    PollFirst,
}

impl AcceptWait {
    /// Value of `ioprio` in struct io_uring_sqe for an accept.
    fn bits(self) -> u16 {
        match self {
            Self::Never => ACCEPT_DONTWAIT,
            Self::AfterAttempt => 0,
            Self::PollFirst => ACCEPT_POLL_FIRST,
        }
    }
}

/// Executor of a file read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadThread {
    /// The calling thread, at once, from the page cache: a short read if the rest is not cached,
    /// EAGAIN if the first byte is not, EOPNOTSUPP where the file system does not support it
    /// (RWF_NOWAIT, preadv2(2)).
    Caller,
    /// A kernel worker thread, of which there are four per processor, so that the calling thread
    /// waits neither for the disk nor for free memory (IOSQE_ASYNC).
    Worker,
}

/// Options of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// More bytes follow at once, so that a partial segment is held back (MSG_MORE).
    pub more: bool,
    /// Sends all bytes before completing; a short send counts as a failure in a chain
    /// (MSG_WAITALL).
    pub whole: bool,
    /// Sends without copying, where the kernel can (IORING_OP_SEND_ZC): the memory is returned by a
    /// separate [`notice`](super::Completion::notice), when the peer has acknowledged all bytes.
    /// Refused with EOPNOTSUPP on a socket that always copies, such as a Unix socket, and with
    /// ENOMEM or ENOBUFS when no more memory may be pinned (RLIMIT_MEMLOCK, getrlimit(2)).
    pub zero_copy: bool,
}

impl SendOptions {
    fn flags(self) -> i32 {
        let more = if self.more { libc::MSG_MORE } else { 0 };
        let whole = if self.whole { libc::MSG_WAITALL } else { 0 };
        libc::MSG_NOSIGNAL | more | whole
    }
}

impl ServerRing {
    /// Accepts one connection, which is made non-blocking. Whether it waits depends on `patience`
    /// alone, even if the listener is non-blocking. Returns [`Peer`](super::Returned::Peer) or
    /// [`Connection`](super::Returned::Connection); `nonempty` means that more connections are
    /// queued.
    ///
    /// Cancel a waiting accept before closing its listener: until then, connects continue to
    /// succeed. The kernel wakes one of the accepts, and of those that wait with EPOLLEXCLUSIVE,
    /// that wait for a connection. If that is an accept which is cancelled before it has run, the
    /// connection stays in the queue and the others sleep on: they must wait anew to find it.
    ///
    /// Errors of the completion: EAGAIN, ECONNABORTED, EMFILE, ENFILE, ENOBUFS, ENOMEM: accept4(2).
    /// EINVAL, ENXIO when the slot does not exist.
    pub fn accept(
        &mut self,
        listener: SharedFd,
        into: AcceptTarget,
        patience: AcceptWait,
        then: Then,
        data: u64,
    ) -> Op {
        let (is_descriptor, slot, flags) = match into {
            AcceptTarget::Fd => (true, None, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC),
            AcceptTarget::Slot(slot) => match DestinationSlot::try_from_slot_target(slot) {
                Ok(slot) => (false, Some(slot), libc::SOCK_NONBLOCK),
                Err(_) => return self.refuse(libc::EINVAL, Resources::Nothing, then, data),
            },
        };
        let peer = self.operations.spare.peer();
        let (address, bytes) = Peer::places(&peer);
        let accept = opcode::Accept::new(number(&listener), address, bytes);
        let accept = accept.flags(flags).file_index(slot).build();
        let accept = entry::with_ioprio(accept, patience.bits());
        self.begin(accept, Resources::Peer(peer, is_descriptor), Some(listener), then, data)
    }

    /// Accepts connections as they arrive into slots chosen by the kernel: the whole backlog and
    /// all later ones, regardless of any accept-limit. The result is the slot. Ends when the
    /// completion queue is full, for lack of slots (ENFILE), which is found when a connection has
    /// been accepted and closes it, or with an error of accept4(2).
    pub fn accept_many(&mut self, listener: SharedFd, data: u64) -> Op {
        let accept = opcode::AcceptMulti::new(number(&listener));
        let accept = accept.allocate_file_index(true).flags(libc::SOCK_NONBLOCK).build();
        self.begin(accept, Resources::Nothing, Some(listener), Then::Nothing, data)
    }

    /// Receives into a ring buffer, once or, with `many`, repeatedly. 0 bytes mean that the peer
    /// has closed its side; `nonempty` means that more bytes are available.
    ///
    /// Ends with ENOBUFS, which is not the peer's fault, when no buffer is left, even before there
    /// is anything to receive. A repeated receive also ends when the completion queue is full, with
    /// a completion whose `more` is false.
    ///
    /// Errors of the completion: ENOBUFS, ECONNRESET, ETIMEDOUT: recv(2).
    pub fn receive(&mut self, from: Handle<'_>, many: bool, data: u64) -> Op {
        let receive = if many {
            opcode::RecvMulti::new(from.number(), GROUP).build()
        } else {
            let receive = opcode::Recv::new(from.number(), std::ptr::null_mut(), 0);
            receive.buf_group(GROUP).build().flags(Flags::BUFFER_SELECT)
        };
        let receive = receive.flags(from.flags());
        self.begin(receive, Resources::Nothing, from.shared(), Then::Nothing, data)
    }

    /// Sends a range of a piece. The piece is returned as [`Buffer`](super::Returned::Buffer), even
    /// if the send fails.
    ///
    /// Errors of the completion: EPIPE, ECONNRESET: send(2). EINVAL when the range is out of bounds
    /// or longer than 2 GiB. Those of [`SendOptions::zero_copy`].
    pub fn send(
        &mut self,
        to: Handle<'_>,
        piece: SendBuffer,
        range: Range<usize>,
        how: SendOptions,
        then: Then,
        data: u64,
    ) -> Op {
        let Some((at, len)) = piece.part(&range).map(|part| (part.as_ptr(), part.len() as u32))
        else {
            return self.refuse(libc::EINVAL, Resources::Buffer(piece), then, data);
        };
        let (fd, flags) = (to.number(), how.flags());
        let send = if how.zero_copy {
            opcode::SendZc::new(fd, at, len).flags(flags).zc_flags(ZERO_COPY).build()
        } else {
            opcode::Send::new(fd, at, len).flags(flags).build()
        };
        self.begin(send.flags(to.flags()), Resources::Buffer(piece), to.shared(), then, data)
    }

    /// Sends ranges of two pieces as one. Both are returned as [`Pair`](super::Returned::Pair).
    ///
    /// Errors of the completion: as [`send`](Self::send).
    pub fn send_two(
        &mut self,
        to: Handle<'_>,
        [first, second]: [(SendBuffer, Range<usize>); 2],
        how: SendOptions,
        then: Then,
        data: u64,
    ) -> Op {
        let mut pair = self.operations.spare.pair();
        if !Pair::fill(&mut pair, [first.0, second.0], [first.1, second.1]) {
            return self.refuse(libc::EINVAL, Resources::Pair(pair), then, data);
        }
        let (fd, flags, message) = (to.number(), how.flags() as u32, Pair::message(&pair));
        let send = if how.zero_copy {
            opcode::SendMsgZc::new(fd, message).flags(flags).ioprio(ZERO_COPY).build()
        } else {
            opcode::SendMsg::new(fd, message).flags(flags).build()
        };
        self.begin(send.flags(to.flags()), Resources::Pair(pair), to.shared(), then, data)
    }

    /// Appends a range of a file to `into`, growing it if necessary, up to the end of the file.
    /// Returned as [`Read`](super::Returned::Read); 0 bytes mean end of file.
    ///
    /// Errors of the completion: EIO, EISDIR: pread(2); and those of the [`ReadThread`].
    pub fn read(
        &mut self,
        file: SharedFd,
        mut into: Vec<u8>,
        range: Range<u64>,
        by: ReadThread,
        then: Then,
        data: u64,
    ) -> Op {
        let want = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let want = want.min(PART_BYTES_MAX);
        into.reserve(want);
        let at = into.spare_capacity_mut().as_mut_ptr().cast();
        let (how, flags) = match by {
            ReadThread::Caller => (libc::RWF_NOWAIT, Flags::empty()),
            ReadThread::Worker => (0, Flags::ASYNC),
        };
        let read = opcode::Read::new(number(&file), at, want as u32);
        let read = read.offset(range.start).rw_flags(how as _).build().flags(flags);
        self.begin(read, Resources::Read(into), Some(file), then, data)
    }

    /// Opens `path`, relative to `root`, as [`open_beneath`](crate::file::open_beneath) does, in a
    /// kernel worker thread. Returned as [`Fd`](super::Returned::Fd).
    ///
    /// Errors of the completion: as there, and EAGAIN when a rename elsewhere raced with a `..` in
    /// a link: try again.
    pub fn open_beneath(
        &mut self,
        root: SharedFd,
        path: CString,
        symlinks: bool,
        then: Then,
        data: u64,
    ) -> Op {
        let how = if symlinks { &BENEATH } else { &BENEATH_WITHOUT_LINKS };
        let open = opcode::OpenAt2::new(number(&root), path.as_ptr(), how).build();
        let open = open.flags(Flags::ASYNC);
        self.begin(open, Resources::Path(path), Some(root), then, data)
    }

    /// Waits for the poll(2) bits `events`, once. The result is the bits seen.
    pub fn poll(&mut self, fd: SharedFd, events: u32, data: u64) -> Op {
        let poll = opcode::PollAdd::new(number(&fd), events).build();
        self.begin(poll, Resources::Nothing, Some(fd), Then::Nothing, data)
    }

    /// Shuts down one direction of a connection, or both.
    ///
    /// Errors of the completion: ENOTCONN: shutdown(2).
    pub fn shutdown(&mut self, of: Handle<'_>, how: Shutdown, then: Then, data: u64) -> Op {
        let how = match how {
            Shutdown::Read => libc::SHUT_RD,
            Shutdown::Write => libc::SHUT_WR,
            Shutdown::Both => libc::SHUT_RDWR,
        };
        let shutdown = opcode::Shutdown::new(of.number(), how).build().flags(of.flags());
        self.begin(shutdown, Resources::Nothing, of.shared(), then, data)
    }

    /// Empties a slot, which closes its socket once no operation uses it.
    ///
    /// Errors of the completion: EBADF when the slot was empty, EINVAL, ENXIO when it does not
    /// exist.
    pub fn close(&mut self, slot: u32, then: Then, data: u64) -> Op {
        let Some(slot) = Some(slot).filter(|slot| *slot < SLOTS_MAX) else {
            return self.refuse(libc::EINVAL, Resources::Nothing, then, data);
        };
        let close = opcode::Close::new(Fixed(slot)).build();
        self.begin(close, Resources::Nothing, None, then, data)
    }

    /// Makes the subsequent close a reset (SO_LINGER of 0, socket(7)).
    ///
    /// Errors of the completion: EBADF, ENOTSOCK.
    pub fn reset_on_close(&mut self, of: Handle<'_>, then: Then, data: u64) -> Op {
        static AT_ONCE: libc::linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let set = opcode::SetSockOpt::new(
            of.number(),
            libc::SOL_SOCKET as u32,
            libc::SO_LINGER as u32,
            (&raw const AT_ONCE).cast(),
            size_of_val(&AT_ONCE) as u32,
        );
        self.begin(set.build().flags(of.flags()), Resources::Nothing, of.shared(), then, data)
    }

    /// Returns as the result the number of sent bytes that the peer has not acknowledged (SIOCOUTQ,
    /// tcp(7)).
    ///
    /// Errors of the completion: EOPNOTSUPP on a Unix socket, EBADF.
    pub fn unacknowledged(&mut self, of: Handle<'_>, then: Then, data: u64) -> Op {
        let ask = opcode::UringCmd16::new(of.number(), SOCKET_URING_OP_SIOCOUTQ).build();
        self.begin(ask.flags(of.flags()), Resources::Nothing, of.shared(), then, data)
    }

    /// Installs the socket of a slot as a descriptor too, close-on-exec. Returned as
    /// [`Fd`](super::Returned::Fd).
    ///
    /// Errors of the completion: EBADF, EMFILE.
    pub fn install(&mut self, slot: u32, then: Then, data: u64) -> Op {
        let install = opcode::FixedFdInstall::new(Fixed(slot), 0).build();
        self.begin(install, Resources::Descriptor, None, then, data)
    }

    /// Puts the socket of a descriptor into a slot as well, closing the slot's previous socket. The
    /// descriptor is returned as [`Fd`](super::Returned::Fd), and may then be closed.
    ///
    /// Errors of the completion: EBADF, ENOMEM; EINVAL, ENXIO when the slot does not exist.
    pub fn adopt(&mut self, fd: OwnedFd, slot: u32, then: Then, data: u64) -> Op {
        let Ok(offset) = i32::try_from(slot) else {
            return self.refuse(libc::EINVAL, Resources::Nothing, then, data);
        };
        let number = Pinned::new(fd.as_raw_fd());
        let update = opcode::FilesUpdate::new(number.as_ptr(), 1).offset(offset).build();
        self.begin(update, Resources::Number(number, fd), None, then, data)
    }

    /// Requests cancellation of an operation. It ends with one last completion, whose result is
    /// ECANCELED unless another result came first. Has no effect on an operation that has ended;
    /// one behind others in a chain is not found before it starts. The request itself has no
    /// completion.
    pub fn cancel(&mut self, op: Op, then: Then) {
        self.order(CancelBuilder::user_data(op.0), then);
    }

    /// Requests cancellation of all operations in progress on the socket of a slot, as
    /// [`cancel`](Self::cancel) does.
    pub fn cancel_all_of(&mut self, slot: u32, then: Then) {
        self.order(CancelBuilder::fd(Fixed(slot)).all(), then);
    }

    pub(super) fn cancel_any(&mut self) {
        self.order(CancelBuilder::any(), Then::Nothing);
    }
}

impl ServerRing {
    /// Begins an operation that uses the memory in `resources` and the descriptor that `fd` keeps
    /// open until it ends.
    fn begin(
        &mut self,
        entry: Entry,
        resources: Resources,
        fd: Option<SharedFd>,
        then: Then,
        data: u64,
    ) -> Op {
        let op = self.operations.begin(data, resources, fd);
        self.push(entry.user_data(op.0), then);
        op
    }

    /// Begins an operation that ends at once with an errno, in its place in the chain.
    #[cold]
    fn refuse(&mut self, errno: i32, resources: Resources, then: Then, data: u64) -> Op {
        self.begin(entry::failing(errno), resources, None, then, data)
    }

    /// Queues a cancel request. It completes only when it fails, and that completion is not
    /// reported.
    fn order(&mut self, what: CancelBuilder, then: Then) {
        let order = opcode::AsyncCancel2::new(what).build().user_data(NO_OPERATION);
        // If such a request fails, a chain that it should break would end without completions too.
        let is_silent = then != Then::OnSuccess;
        self.push(if is_silent { order.flags(Flags::SKIP_SUCCESS) } else { order }, then);
    }

    fn push(&mut self, entry: Entry, then: Then) {
        // SAFETY: all that an entry made here points to is held by its operation, and heap memory
        // does not move with what holds it; or it is static.
        if !unsafe { self.queues.push(entry, then) } {
            self.fill_or_enter();
        }
    }
}

/// Number of a descriptor, by which an operation that holds a share in it refers to it.
fn number(fd: &SharedFd) -> Fd {
    Fd(fd.as_fd().as_raw_fd())
}

const fn beneath(resolve: ResolveFlags) -> OpenHow {
    let flags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);
    let resolve = resolve.union(ResolveFlags::BENEATH).union(ResolveFlags::NO_MAGICLINKS);
    types::OpenHow::new().flags(flags.bits() as u64).resolve(resolve.bits())
}

static BENEATH: OpenHow = beneath(ResolveFlags::empty());
static BENEATH_WITHOUT_LINKS: OpenHow = beneath(ResolveFlags::NO_SYMLINKS);

/// IORING_ACCEPT_DONTWAIT
const ACCEPT_DONTWAIT: u16 = 1 << 1;

/// IORING_ACCEPT_POLL_FIRST
const ACCEPT_POLL_FIRST: u16 = 1 << 2;

/// IORING_SEND_ZC_REPORT_USAGE
const ZERO_COPY: u16 = 1 << 3;

const SOCKET_URING_OP_SIOCOUTQ: u32 = 1;

/// Upper bound of slot numbers: to the kernel, a greater one means no slot or any slot.
const SLOTS_MAX: u32 = u32::MAX - 1;
