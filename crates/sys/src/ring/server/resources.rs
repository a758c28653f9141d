//! Memory that the kernel may access during an operation, and its return at the end.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::{ffi::CString, mem};

use super::completion::Returned;
use super::send_buffer::SendBuffer;
use crate::socket::UNKNOWN_PEER;

/// Resources that an operation has lent to the kernel, or will create.
#[derive(Default)]
pub(super) enum Resources {
    /// Nothing.
    #[default]
    Nothing,
    /// A descriptor that the operation will create.
    Descriptor,
    /// The path of a file that the operation will open as a descriptor.
    Path(#[expect(dead_code, reason = "the kernel reads it")] CString),
    /// A descriptor, which must stay open until its number has been read.
    Number(#[expect(dead_code, reason = "the kernel reads it")] Pinned<RawFd>, OwnedFd),
    /// Space for a peer's address. The flag is true if the connection gets a descriptor, false if
    /// it goes into a slot.
    Peer(Pinned<Peer>, bool),
    /// Bytes to send.
    Buffer(SendBuffer),
    /// Two pieces to send as one.
    Pair(Pinned<Pair>),
    /// A buffer to append to.
    Read(Vec<u8>),
}

/// Memory of ended operations, kept for reuse.
#[derive(Default)]
pub(super) struct Spare {
    peers: Vec<Pinned<Peer>>,
    pairs: Vec<Pinned<Pair>>,
}

impl Spare {
    #[inline]
    pub(super) fn peer(&mut self) -> Pinned<Peer> {
        self.peers.pop().unwrap_or_else(|| Pinned::new(Peer::new()))
    }

    #[inline]
    pub(super) fn pair(&mut self) -> Pinned<Pair> {
        self.pairs.pop().unwrap_or_else(|| Pinned::new(Pair::new()))
    }

    /// Returns the resources of an operation whose last completion had this result.
    pub(super) fn end(&mut self, resources: Resources, result: i32) -> Returned {
        match resources {
            Resources::Nothing => Returned::Nothing,
            Resources::Number(_, fd) => Returned::Fd(fd),
            Resources::Descriptor | Resources::Path(_) => {
                owned(result).map_or(Returned::Nothing, Returned::Fd)
            }
            Resources::Peer(peer, is_descriptor) => self.end_accept(peer, is_descriptor, result),
            Resources::Buffer(piece) => Returned::Buffer(piece),
            Resources::Pair(pair) => self.end_pair(pair),
            Resources::Read(bytes) => Returned::Read(longer(bytes, result)),
        }
    }

    fn end_accept(&mut self, mut peer: Pinned<Peer>, is_descriptor: bool, result: i32) -> Returned {
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

    fn end_pair(&mut self, mut pair: Pinned<Pair>) -> Returned {
        // SAFETY: the operation has ended.
        let [first, second] = mem::take(unsafe { &mut pair.get_mut().pieces });
        self.pairs.push(pair);
        Returned::Pair(first, second)
    }
}

/// Takes ownership of the descriptor that is an operation's result.
fn owned(result: RawFd) -> Option<OwnedFd> {
    // SAFETY: the kernel opened it for this operation, and it is taken from its one completion.
    (result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(result) })
}

/// Extends the vector by the bytes read into its spare capacity.
fn longer(mut bytes: Vec<u8>, result: i32) -> Vec<u8> {
    let read = usize::try_from(result).unwrap_or(0).min(bytes.capacity() - bytes.len());
    // SAFETY: the kernel wrote as many bytes behind those that were there, and they fit.
    unsafe { bytes.set_len(bytes.len() + read) };
    bytes
}

/// A value at an address known to the kernel. Not a `Box`, because moving a box asserts exclusive
/// access to its content.
pub(super) struct Pinned<T>(NonNull<T>);

impl<T> Pinned<T> {
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

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        // SAFETY: the value came from a box, and nothing can reach it any more: a ring that is
        // dropped leaks what the kernel has not let go of.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Space for the peer's address returned by accept(2).
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

    /// Pointers to the address and its length, for the kernel to write.
    pub(super) fn places(peer: &Pinned<Self>) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        let peer = peer.as_ptr();
        // SAFETY: the value is there as long as what keeps it, and only addresses are taken.
        unsafe { ((&raw mut (*peer).address).cast(), &raw mut (*peer).bytes) }
    }

    /// Takes the address and clears it.
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

/// Arguments of sendmsg(2): two pieces, their locations, and the message header.
pub(super) struct Pair {
    pieces: [SendBuffer; 2],
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

    /// Stores the pieces and returns whether their ranges can be sent; stores the pieces either
    /// way.
    pub(super) fn fill(
        pair: &mut Pinned<Self>,
        pieces: [SendBuffer; 2],
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

    /// Pointer to the message header, for the kernel to read.
    pub(super) fn message(pair: &Pinned<Self>) -> *const libc::msghdr {
        // SAFETY: the value is there as long as what keeps it, and only an address is taken.
        unsafe { &raw const (*pair.as_ptr()).message }
    }
}
