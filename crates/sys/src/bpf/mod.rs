//! eBPF by bpf(2): maps, one of them shared with this process by mmap(2), socket filter programs,
//! classifiers of received packets and programs attached to tracepoints. Programs are written with
//! [`Assembler`], so that the build needs no eBPF compiler.

mod assembler;
pub(crate) mod btf;
mod trace;

use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

pub use assembler::{Assembler, Cmp, Instruction, Label, Op, Reg, Size};
pub(crate) use trace::Trace;
#[cfg(test)]
pub(crate) use trace::in_two_networks;

/// Commands of bpf(2) used here.
mod command {
    pub(super) const MAP_CREATE: libc::c_int = 0;
    pub(super) const PROG_LOAD: libc::c_int = 5;
    pub(super) const GET_INFO: libc::c_int = 15;
    pub(super) const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
    pub(super) const LINK_CREATE: libc::c_int = 28;
}

/// Map types and a map flag (include/uapi/linux/bpf.h of Linux).
mod map {
    pub(super) const ARRAY: u32 = 2;
    pub(super) const LRU_HASH: u32 = 9;
    pub(super) const MMAPABLE: u32 = 1 << 10;
}

/// Program types.
mod kind {
    pub(super) const SOCKET_FILTER: u32 = 1;
    pub(super) const SCHED_CLS: u32 = 3;
    pub(super) const TRACING: u32 = 26;
}

/// Kind of hook of a tracing program: a tracepoint, whose arguments the kernel's types describe.
const TRACE_RAW_TP: u32 = 23;

/// Place of a program: packets that an interface has received, before any protocol sees them.
const TCX_INGRESS: u32 = 46;

/// Helper functions called by programs (bpf-helpers(7)).
pub mod helper {
    /// `map_lookup_elem(map, key)`: a pointer to the value, or null.
    pub const MAP_LOOKUP: i32 = 1;
    /// `map_update_elem(map, key, value, flags)`.
    pub const MAP_UPDATE: i32 = 2;
    /// `map_delete_elem(map, key)`.
    pub const MAP_DELETE: i32 = 3;
    /// `ktime_get_ns()`: the monotonic clock.
    pub const KTIME_NS: i32 = 5;
    /// `skb_load_bytes_relative(skb, offset, to, len, header)`: 0, or an error.
    pub const LOAD_BYTES_RELATIVE: i32 = 68;
    /// `probe_read_kernel(to, len, address)`: 0, or an error.
    pub const PROBE_READ_KERNEL: i32 = 113;
    /// The network header, as the `header` argument of [`LOAD_BYTES_RELATIVE`].
    pub const HEADER_NET: i32 = 1;
}

/// Creates an LRU hash map, which evicts its least recently used entry when full. Keys are `u64`.
///
/// # Errors
/// EPERM without CAP_BPF; ENOMEM: bpf(2).
pub fn lru_hash(value_bytes: u32, entries: u32) -> io::Result<OwnedFd> {
    create_map(&MapAttr {
        kind: map::LRU_HASH,
        key_bytes: size_of::<u64>() as u32,
        value_bytes,
        entries,
        flags: 0,
    })
}

/// Loads a socket filter program. The program returns the number of bytes of a packet to keep; 0
/// drops it.
///
/// # Errors
/// EPERM without CAP_BPF where unprivileged programs are not allowed; EACCES, EINVAL when the
/// kernel's verifier rejects it; ENOMEM: bpf(2).
pub fn load_socket_filter(program: &[Instruction]) -> io::Result<OwnedFd> {
    load(&ProgAttr::new(kind::SOCKET_FILTER, c"MIT OR Apache-2.0", program))
}

/// Loads a program for a tracepoint, given by the number of its type in the kernel's own types. Its
/// context is the tracepoint's arguments, of 8 bytes each; memory of the kernel that these point to
/// may be loaded where the types say that it is. It is declared to the kernel under MIT, in the one
/// spelling of it that the kernel knows (include/linux/license.h): memory may be loaded under such
/// licences only.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_PERFMON; EACCES, EINVAL when the kernel's verifier rejects it;
/// ENOMEM: bpf(2).
pub fn load_tracepoint(program: &[Instruction], type_number: u32) -> io::Result<OwnedFd> {
    let attr = ProgAttr {
        expected_attach_type: TRACE_RAW_TP,
        attach_btf_id: type_number,
        ..ProgAttr::new(kind::TRACING, c"Dual MIT/GPL", program)
    };
    load(&attr)
}

/// Attaches a program to its tracepoint for as long as the descriptor returned is open.
///
/// # Errors
/// EPERM without CAP_PERFMON; ENOMEM: bpf(2).
pub fn attach_tracepoint(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attr = TracepointAttr { name: 0, program: program.as_raw_fd() as u32, unused: 0 };
    let bytes = size_of::<TracepointAttr>();
    // SAFETY: the structure is the command's, and points to nothing.
    unsafe { bpf(command::RAW_TRACEPOINT_OPEN, (&raw const attr).cast(), bytes) }
}

/// Loads a classifier of packets. It returns what becomes of a packet ([`verdict`]).
///
/// # Errors
/// EPERM without CAP_BPF and CAP_NET_ADMIN; EACCES, EINVAL when the kernel's verifier rejects it;
/// ENOMEM: bpf(2).
pub fn load_classifier(program: &[Instruction]) -> io::Result<OwnedFd> {
    load(&ProgAttr::new(kind::SCHED_CLS, c"MIT OR Apache-2.0", program))
}

/// Attaches a classifier to what an interface receives, for as long as the descriptor returned is
/// open. Packet sockets see a packet before it does.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN; ENODEV; EINVAL before Linux 6.6: bpf(2).
pub fn attach_ingress(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    let attr = LinkAttr {
        program: program.as_raw_fd() as u32,
        interface,
        place: TCX_INGRESS,
        ..LinkAttr::default()
    };
    // SAFETY: the structure is the command's, and points to nothing.
    unsafe { bpf(command::LINK_CREATE, (&raw const attr).cast(), size_of::<LinkAttr>()) }
}

/// Verdicts of a classifier on a packet (include/uapi/linux/bpf.h, TCX_NEXT and TCX_DROP).
pub mod verdict {
    /// The next program, or the protocol, decides.
    pub const NEXT: i32 = -1;
    /// It is dropped.
    pub const DROP: i32 = 2;
}

fn load(attr: &ProgAttr<'_>) -> io::Result<OwnedFd> {
    // SAFETY: the structure is the command's, and the program and the licence it points to are
    // borrowed by it, so that they outlive the call.
    unsafe { bpf(command::PROG_LOAD, (&raw const *attr).cast(), size_of::<ProgAttr<'_>>()) }
}

/// An array map with one entry, whose value is a page of numbers shared between this process and
/// programs.
#[derive(Debug)]
pub struct SharedPage {
    map: OwnedFd,
    numbers: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: it is memory that is read and written by atomic operations only, from any thread, and
// belongs to nobody else in this process.
unsafe impl Send for SharedPage {}
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

/// Bytes mapped of a shared map: one page, whatever the value's size.
const PAGE_BYTES: usize = 4096;

impl SharedPage {
    /// Creates a page of `len` numbers, at most 512, all zero.
    ///
    /// # Errors
    /// EPERM without CAP_BPF where unprivileged maps are not allowed, EINVAL before Linux 5.5:
    /// bpf(2). ENOMEM: mmap(2).
    pub fn new(len: usize) -> io::Result<Self> {
        let value_bytes = len * size_of::<u64>();
        assert!(value_bytes <= PAGE_BYTES, "one page is mapped");
        let map = create_map(&MapAttr {
            kind: map::ARRAY,
            key_bytes: size_of::<u32>() as u32,
            value_bytes: value_bytes as u32,
            entries: 1,
            flags: map::MMAPABLE,
        })?;
        Self::of(map, len)
    }

    /// Maps the page of a map that another process has created as here.
    ///
    /// # Errors
    /// ENOMEM; ENODEV, EACCES: it is no such map: mmap(2).
    pub fn of(map: OwnedFd, len: usize) -> io::Result<Self> {
        assert!(len * size_of::<u64>() <= PAGE_BYTES, "one page is mapped");
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice, of a descriptor that is open.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, flags, map.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(address.cast()) {
            Some(numbers) => Ok(Self { map, numbers, len }),
            None => Err(io::Error::other("a page was mapped at address 0")),
        }
    }

    /// The map, as an operand for a program.
    pub fn map(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.map)
    }

    /// The shared numbers.
    pub fn numbers(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is a page, aligned and large enough for `len` numbers, lives as long
        // as `self`, and whoever writes to it does so atomically: this process through this slice,
        // the kernel's programs by aligned stores of 64 bits.
        unsafe { std::slice::from_raw_parts(self.numbers.as_ptr(), self.len) }
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `of` with this size; the slices lent out are gone.
        unsafe { libc::munmap(self.numbers.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Returns the number by which the kernel knows a program, whichever descriptor it has.
///
/// # Errors
/// EBADF, EINVAL: it is no program, or nothing of eBPF: bpf(2).
pub fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = ProgInfo::default();
    let mut attr = InfoAttr {
        fd: program.as_raw_fd() as u32,
        info_bytes: size_of::<ProgInfo>() as u32,
        info: (&raw mut info) as u64,
    };
    let bytes = size_of::<InfoAttr>();
    // SAFETY: the structure is the command's, and the kernel writes to it, and to the information
    // that it points to as many bytes as it says; both outlive the call.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command::GET_INFO, &raw mut attr, bytes) };
    crate::check(answer as libc::c_int)?;
    Ok(info.id)
}

/// The fields of `union bpf_attr` for OBJ_GET_INFO_BY_FD.
#[repr(C)]
struct InfoAttr {
    fd: u32,
    info_bytes: u32,
    info: u64,
}

/// The leading fields of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgInfo {
    kind: u32,
    id: u32,
}

/// The leading fields of `union bpf_attr` for MAP_CREATE; fields not passed count as zero.
#[repr(C)]
struct MapAttr {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

/// The leading fields of `union bpf_attr` for PROG_LOAD.
#[repr(C)]
#[derive(Default)]
struct ProgAttr<'a> {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
    /// Descriptions of the program itself: none.
    described: [u32; 9],
    attach_btf_id: u32,
    pointed_to: PhantomData<&'a ()>,
}

impl<'a> ProgAttr<'a> {
    fn new(kind: u32, licence: &'a CStr, program: &'a [Instruction]) -> Self {
        Self {
            kind,
            count: program.len() as u32,
            instructions: program.as_ptr() as u64,
            licence: licence.as_ptr() as u64,
            ..Self::default()
        }
    }
}

/// The leading fields of `union bpf_attr` for LINK_CREATE at TCX_INGRESS.
#[repr(C)]
#[derive(Default)]
struct LinkAttr {
    program: u32,
    interface: u32,
    place: u32,
    flags: u32,
    /// Relative to no other program.
    relative_to: u64,
    expected_revision: u64,
}

/// The fields of `union bpf_attr` for RAW_TRACEPOINT_OPEN.
#[repr(C)]
struct TracepointAttr {
    /// Not given: a tracing program has been loaded for one.
    name: u64,
    program: u32,
    unused: u32,
}

fn create_map(attr: &MapAttr) -> io::Result<OwnedFd> {
    // SAFETY: the structure is the command's, and points to nothing.
    unsafe { bpf(command::MAP_CREATE, (&raw const *attr).cast(), size_of::<MapAttr>()) }
}

/// Issues a bpf(2) command that creates a descriptor.
///
/// # Safety
/// `attr` must be what the command takes, of `bytes` bytes, and what it points to must be as well.
unsafe fn bpf(
    command: libc::c_int,
    attr: *const libc::c_void,
    bytes: usize,
) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attr, bytes) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made it, for us alone, and closes it on exec.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_page_is_as_many_numbers_as_were_asked_for() {
        let page = match SharedPage::new(9) {
            Ok(page) => page,
            Err(error) => return println!("skipped: no eBPF map can be had: {error}"),
        };
        assert_eq!(page.numbers().len(), 9);
        assert!(page.numbers().iter().all(|number| number.load(Relaxed) == 0));
        page.numbers()[8].store(u64::MAX, Relaxed);
        assert_eq!(page.numbers()[8].load(Relaxed), u64::MAX);
    }

    #[test]
    fn a_program_that_is_none_is_rejected() {
        let mut nothing = Assembler::default();
        nothing.exit();
        // It returns what was never set.
        assert!(load_socket_filter(&nothing.finish()).is_err());
    }
}
