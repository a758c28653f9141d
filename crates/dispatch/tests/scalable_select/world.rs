//! Descriptors of every kind known to select(2), and random events on them.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send,
};

/// A seeded pseudorandom generator (xorshift64*).
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// The open descriptors.
pub(crate) struct World {
    pub rng: SeededRng,
    pub fds: Vec<OwnedFd>,
    /// Approximate maximum number of open descriptors.
    open_max: usize,
}

/// An event that may have to be reported.
pub(crate) enum Event {
    Nothing,
    /// The descriptor of this number was closed.
    Closed(RawFd),
}

impl World {
    pub(crate) fn new(seed: u64, open_max: usize) -> Self {
        Self { rng: SeededRng::new(seed), fds: Vec::new(), open_max }
    }

    /// Applies a random event to a random descriptor.
    pub(crate) fn happen(&mut self) -> Event {
        if self.fds.len() < 4 || (self.fds.len() < self.open_max && self.rng.percent(15)) {
            self.open();
            return Event::Nothing;
        }
        let at = self.rng.below(self.fds.len());
        if self.fds.len() >= self.open_max || self.rng.percent(8) {
            let gone = self.fds.swap_remove(at);
            return Event::Closed(gone.as_raw_fd());
        }
        // An action that does not apply to a descriptor of its kind fails without effect.
        let _ = self.act(at);
        Event::Nothing
    }

    fn act(&mut self, at: usize) -> io::Result<()> {
        let fd = &self.fds[at];
        let bytes = [1, 2, 100, 4096, 65536][self.rng.below(5)];
        match self.rng.below(13) {
            0..=2 => drop(rustix::io::write(fd, &vec![1; bytes])?),
            3 | 4 => drop(rustix::io::read(fd, &mut vec![0; bytes])?),
            5 => while rustix::io::write(fd, &[1; 65536])? > 0 {},
            6 => while rustix::io::read(fd, &mut [0; 65536])? > 0 {},
            7 => {
                let how = [Shutdown::Read, Shutdown::Write, Shutdown::Both];
                rustix::net::shutdown(fd, how[self.rng.below(3)])?;
            }
            8 => drop(send(fd, b"!", SendFlags::OOB)?),
            9 => drop(recv(fd, &mut [0_u8; 1][..], RecvFlags::OOB)?),
            // Fills an eventfd.
            10 => drop(rustix::io::write(fd, &(u64::MAX - 1).to_ne_bytes())?),
            11 => {
                let copy = rustix::io::dup(fd)?;
                self.fds.push(copy);
            }
            _ => self.call_or_accept(at)?,
        }
        Ok(())
    }

    /// Connects to a listener, or accepts from it.
    fn call_or_accept(&mut self, at: usize) -> io::Result<()> {
        if self.rng.percent(50) {
            let new = rustix::net::accept_with(&self.fds[at], flags())?;
            self.fds.push(new);
        } else {
            let address = SocketAddr::try_from(rustix::net::getsockname(&self.fds[at])?)?;
            let caller = rustix::net::socket_with(family(), SocketType::STREAM, flags(), None)?;
            let _ = rustix::net::connect(&caller, &address);
            self.fds.push(caller);
        }
        Ok(())
    }

    fn open(&mut self) {
        match self.rng.below(10) {
            0 | 1 => {
                let (reader, writer) =
                    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
                self.fds.extend([reader, writer]);
            }
            2 => self.open_pair(SocketType::STREAM),
            3 => self.open_pair(SocketType::SEQPACKET),
            4 | 5 => self.open_tcp(),
            6 => self.fds.push(eventfd(0, EventfdFlags::NONBLOCK).unwrap()),
            7 => self.fds.push(File::open("/proc/self/exe").unwrap().into()),
            8 => self.fds.push(File::open("/").unwrap().into()),
            _ => self.fds.push(listener()),
        }
    }

    fn open_pair(&mut self, kind: SocketType) {
        let (near, far) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags(), None).unwrap();
        self.fds.extend([near, far]);
    }

    fn open_tcp(&mut self) {
        let (near, far) = tcp_pair();
        self.fds.extend([near, far]);
    }
}

fn flags() -> SocketFlags {
    SocketFlags::NONBLOCK | SocketFlags::CLOEXEC
}

fn family() -> AddressFamily {
    AddressFamily::INET
}

fn listener() -> OwnedFd {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener.into()
}

/// Creates both ends of a connection over the loopback interface.
pub(crate) fn tcp_pair() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    (near.into(), far.into())
}

/// Duplicates a descriptor at a number that no other thread takes: numbers are assigned from the
/// lowest.
pub(crate) fn copy_above(fd: &impl AsFd, number: RawFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(fd, number).unwrap()
}
