//! Memory the kernel may reach while an operation goes on, and what becomes of it at the end. Knows
//! nothing of queues.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::{ffi::CString, mem};

use super::completion::Returned;
use super::piece::Piece;
use crate::socket::UNKNOWN_PEER;

/// What an operation has lent to the kernel, or will bring.
#[derive(Default)]
pub(super) enum Held {
    /// Nothing at all.
    #[default]
    Nothing,
    /// A descriptor will come.
    Descriptor,
    /// A descriptor will come, of what has this name.
    Path(#[expect(dead_code, reason = "the kernel reads it")] CString),
    /// The number of a descriptor is read, and it must stay open until then.
    Number(#[expect(dead_code, reason = "the kernel reads it")] Kept<RawFd>, OwnedFd),
    /// The address of a peer is written to; a descriptor comes with it, or the peer is in a slot.
    Peer(Kept<Peer>, bool),
    /// Bytes are read from.
    Piece(Piece),
    /// Bytes of two are read from.
    Pair(Kept<Pair>),
    /// Bytes are appended.
    Read(Vec<u8>),
}

/// Memory of operations that have ended, for others.
#[derive(Default)]
pub(super) struct Spare {
    peers: Vec<Kept<Peer>>,
    pairs: Vec<Kept<Pair>>,
}

impl Spare {
    #[inline]
    pub(super) fn peer(&mut self) -> Kept<Peer> {
        self.peers.pop().unwrap_or_else(|| Kept::new(Peer::new()))
    }

    #[inline]
    pub(super) fn pair(&mut self) -> Kept<Pair> {
        self.pairs.pop().unwrap_or_else(|| Kept::new(Pair::new()))
    }

    /// What is given back of an operation whose last completion had this result.
    pub(super) fn end(&mut self, held: Held, result: i32) -> Returned {
        match held {
            Held::Nothing => Returned::Nothing,
            Held::Number(_, fd) => Returned::Fd(fd),
            Held::Descriptor | Held::Path(_) => {
                owned(result).map_or(Returned::Nothing, Returned::Fd)
            }
            Held::Peer(peer, is_descriptor) => self.end_accept(peer, is_descriptor, result),
            Held::Piece(piece) => Returned::Piece(piece),
            Held::Pair(pair) => self.end_pair(pair),
            Held::Read(bytes) => Returned::Read(longer(bytes, result)),
        }
    }

    fn end_accept(&mut self, mut peer: Kept<Peer>, is_descriptor: bool, result: i32) -> Returned {
        // SAFETY: the operation has ended.
        let address = unsafe { peer.get_mut() }.take();
        self.peers.push(peer);
        match (result >= 0, is_descriptor) {
            (false, _) => Returned::Nothing,
            (true, false) => Returned::Peer(address),
            (true, true) => owned(result)
                .map_or(Returned::Nothing, |socket| Returned::Connection(socket, address)),
        }
    }

    fn end_pair(&mut self, mut pair: Kept<Pair>) -> Returned {
        // SAFETY: the operation has ended.
        let [first, second] = mem::take(unsafe { &mut pair.get_mut().pieces });
        self.pairs.push(pair);
        Returned::Two(first, second)
    }
}

/// The descriptor that an operation gave as its result.
fn owned(result: RawFd) -> Option<OwnedFd> {
    // SAFETY: the kernel opened it for this operation, and it is taken from its one completion.
    (result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(result) })
}

/// With what was read into the spare room.
fn longer(mut bytes: Vec<u8>, result: i32) -> Vec<u8> {
    let read = usize::try_from(result).unwrap_or(0).min(bytes.capacity() - bytes.len());
    // SAFETY: the kernel wrote as many bytes behind those that were there, and they fit.
    unsafe { bytes.set_len(bytes.len() + read) };
    bytes
}

/// A value at an address that the kernel knows. Not a `Box`: to move one asserts that nobody else
/// reaches what is in it.
pub(super) struct Kept<T>(NonNull<T>);

impl<T> Kept<T> {
    pub(super) fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(value))))
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// # Safety
    /// The kernel must not reach the value meanwhile.
    pub(super) unsafe fn get_mut(&mut self) -> &mut T {
        // SAFETY: the value lives as long as this does, and is reached through it alone but for
        // the kernel, for which the caller answers.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        // SAFETY: the value came from a box, and nothing can reach it any more: a ring that is
        // dropped leaks what the kernel has not let go of.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Where accept(2) says who called.
pub(super) struct Peer {
    address: libc::sockaddr_storage,
    bytes: libc::socklen_t,
}

impl Peer {
    const BYTES: libc::socklen_t = size_of::<libc::sockaddr_storage>() as libc::socklen_t;

    fn new() -> Self {
        // SAFETY: an address of zeros is one of no family.
        Self { address: unsafe { mem::zeroed() }, bytes: Self::BYTES }
    }

    /// Where the kernel writes.
    pub(super) fn places(peer: &Kept<Self>) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        let peer = peer.as_ptr();
        // SAFETY: the value is there as long as what keeps it, and only addresses are taken.
        unsafe { ((&raw mut (*peer).address).cast(), &raw mut (*peer).bytes) }
    }

    /// The address, which is that of nobody afterwards.
    fn take(&mut self) -> SocketAddr {
        let address = self.read();
        self.address.ss_family = libc::AF_UNSPEC as libc::sa_family_t;
        self.bytes = Self::BYTES;
        address
    }

    fn read(&self) -> SocketAddr {
        let at = &raw const self.address;
        match libc::c_int::from(self.address.ss_family) {
            libc::AF_INET => {
                // SAFETY: an address of this family has this form, and there is room for any.
                let v4 = unsafe { &*at.cast::<libc::sockaddr_in>() };
                let ip = v4.sin_addr.s_addr.to_ne_bytes();
                (ip, u16::from_be(v4.sin_port)).into()
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { &*at.cast::<libc::sockaddr_in6>() };
                let port = u16::from_be(v6.sin6_port);
                let ip = v6.sin6_addr.s6_addr.into();
                std::net::SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into()
            }
            _ => UNKNOWN_PEER,
        }
    }
}

/// What sendmsg(2) takes: two pieces, where they are, and the message that says so.
pub(super) struct Pair {
    pieces: [Piece; 2],
    parts: [libc::iovec; 2],
    message: libc::msghdr,
}

impl Pair {
    fn new() -> Self {
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: a message of zeros has no parts and no address.
        let message = unsafe { mem::zeroed() };
        Self { pieces: Default::default(), parts: [part; 2], message }
    }

    /// Takes the pieces, and whether their ranges can be sent: if not they are only kept.
    pub(super) fn fill(
        pair: &mut Kept<Self>,
        pieces: [Piece; 2],
        ranges: [Range<usize>; 2],
    ) -> bool {
        let at = pair.as_ptr();
        // SAFETY: no operation has this pair yet.
        let this = unsafe { pair.get_mut() };
        this.pieces = pieces;
        for ((part, piece), range) in this.parts.iter_mut().zip(&this.pieces).zip(&ranges) {
            let Some(bytes) = piece.part(range) else { return false };
            *part =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        }
        this.message.msg_iovlen = 2;
        // SAFETY: only an address is taken, of what is at an address of its own.
        this.message.msg_iov = unsafe { (&raw mut (*at).parts).cast() };
        true
    }

    /// Where the kernel reads.
    pub(super) fn message(pair: &Kept<Self>) -> *const libc::msghdr {
        // SAFETY: the value is there as long as what keeps it, and only an address is taken.
        unsafe { &raw const (*pair.as_ptr()).message }
    }
}
