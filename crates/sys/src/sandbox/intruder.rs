//! What an intruder would try from within a thread that serves. For tests: it is in no release.

use std::io;

/// The attempts, by name.
pub const ATTEMPTS: [&str; 16] = [
    "read", "write", "unlink", "exec", "fork", "connect", "mptcp", "sendto", "sendmsg", "packet",
    "ptrace", "kill", "bpf", "mount", "setuid", "ring",
];

/// Tries something that a confined thread must not be able to do. `path`: of a file that it must
/// not be able to create, or remove.
///
/// # Errors
/// That of the call: it was refused. `NotFound` for an unknown name.
pub fn attempt(name: &str, path: &str) -> io::Result<()> {
    let path = std::ffi::CString::new(path)?;
    let passwd = c"/etc/passwd".as_ptr();
    let shell = c"/bin/true".as_ptr();
    let none = std::ptr::null::<libc::c_void>();
    let mut ring = [0_u32; 30];
    // SAFETY: every pointer is to a string or a structure that outlives the call and is as large
    // as the call takes it to be, or null where that is allowed. A child of fork(2) only ends.
    let answer = unsafe {
        match name {
            "read" => libc::open(passwd, libc::O_RDONLY).into(),
            "write" => libc::open(path.as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o600).into(),
            "unlink" => libc::unlink(path.as_ptr()).into(),
            "exec" => libc::syscall(libc::SYS_execve, shell, none, none),
            "fork" => match libc::fork() {
                0 => libc::_exit(0),
                pid => pid.into(),
            },
            "connect" | "mptcp" | "sendto" | "sendmsg" => connect(name),
            "packet" => libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).into(),
            "ptrace" => libc::ptrace(libc::PTRACE_TRACEME, 0, none, none),
            "kill" => libc::kill(libc::getppid(), 0).into(),
            "bpf" => libc::syscall(libc::SYS_bpf, 0, none, 0),
            "mount" => {
                libc::mount(c"none".as_ptr(), c"/mnt".as_ptr(), c"tmpfs".as_ptr(), 0, none).into()
            }
            "setuid" => libc::syscall(libc::SYS_setuid, 0),
            "ring" => libc::syscall(libc::SYS_io_uring_setup, 1, ring.as_mut_ptr()),
            _ => return Err(io::ErrorKind::NotFound.into()),
        }
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a connection to a port that is no upstream's: by connect(2), for TCP or for MPTCP, or by a
/// message (MSG_FASTOPEN, tcp(7)).
fn connect(way: &str) -> libc::c_long {
    // SAFETY: all zeroes is a valid value of these structures of numbers and of pointers.
    let (mut address, mut message): (libc::sockaddr_in, libc::msghdr) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = 9_u16.to_be();
    address.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
    let (at, size) = (&raw mut address, size_of_val(&address) as libc::socklen_t);
    let mut byte = 0_u8;
    let mut piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    (message.msg_name, message.msg_namelen) = (at.cast(), size);
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    let protocol = if way == "mptcp" { libc::IPPROTO_MPTCP } else { 0 };
    let (at, flag) = (at.cast_const().cast(), libc::MSG_FASTOPEN);
    // SAFETY: the address, the byte, and the message that points to both outlive the calls, which
    // only read them, and are as large as they are said to be.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, protocol);
        match way {
            // Sent without a socket too: a listener that is shut down would do.
            "sendto" => {
                libc::sendto(fd, (&raw const byte).cast(), 1, flag, at, size) as libc::c_long
            }
            "sendmsg" => libc::sendmsg(fd, &raw const message, flag) as libc::c_long,
            _ if fd < 0 => -1,
            _ => libc::connect(fd, at, size).into(),
        }
    }
}
