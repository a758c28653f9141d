//! What an intruder would try from within a thread that serves. For tests: it is in no release.

use std::io;
use std::os::unix::net::{UnixDatagram, UnixStream};

/// The attempts that are refused, by name.
pub const ATTEMPTS: [&str; 21] = [
    "read", "write", "unlink", "exec", "fork", "connect", "mptcp", "sendto", "sendmsg", "smc",
    "unix", "datagram", "packet", "ptrace", "kill", "affinity", "idle", "bpf", "mount", "setuid",
    "ring",
];

/// Tries something that a confined thread must not be able to do; or with "forge", "resign" and
/// "hush", something that it can, and that must not harm other processes. `path`: of a file that it
/// must not be able to create, or remove, or of a socket that it must not be able to connect to.
///
/// # Errors
/// That of the call: it was refused. `NotFound` for an unknown name.
pub fn attempt(name: &str, path: &str) -> io::Result<()> {
    match name {
        "unix" => return UnixStream::connect(path).map(drop),
        "datagram" => return UnixDatagram::unbound()?.connect(path),
        "forge" | "resign" | "hush" => {
            misuse(name);
            return Ok(());
        }
        _ => {}
    }
    let path = std::ffi::CString::new(path)?;
    let passwd = c"/etc/passwd".as_ptr();
    let shell = c"/bin/true".as_ptr();
    let none = std::ptr::null::<libc::c_void>();
    let mut ring = [0_u32; 30];
    // SAFETY: every pointer is to a string or a structure that outlives the call and is as large
    // as the call takes it to be, or null, which the kernel takes or refuses. A child of fork(2)
    // only ends.
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
            // Of no socket: the filter sees the option alone.
            "smc" => {
                let (level, option) = (libc::IPPROTO_TCP, libc::TCP_ULP);
                libc::setsockopt(-1, level, option, c"smc".as_ptr().cast(), 3).into()
            }
            "packet" => libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).into(),
            "ptrace" => libc::ptrace(libc::PTRACE_TRACEME, 0, none, none),
            "kill" => libc::kill(libc::getppid(), 0).into(),
            // With arguments that the kernel refuses after the process: nothing changes.
            "affinity" => libc::syscall(libc::SYS_sched_setaffinity, libc::getppid(), 0, none),
            "idle" => {
                let (call, policy) = (libc::SYS_sched_setscheduler, libc::SCHED_IDLE);
                libc::syscall(call, libc::getppid(), policy, none)
            }
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

/// Misuses the channels that this process has to others of the server: sends what is no message
/// ("forge"), sends a last report and ends ("resign"), or closes its side ("hush").
fn misuse(way: &str) {
    // Of the number that answers all requests to come, with counters that are zero.
    let mut report = [0_u8; 8001];
    report[0] = b't';
    report[1..9].fill(0xff);
    let sent = if way == "forge" { &report[..1] } else { &report[..] };
    for fd in 0..1024 {
        let (mut kind, mut size) = (0_i32, size_of::<i32>() as libc::socklen_t);
        let (at, flags) = ((&raw mut kind).cast(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        // SAFETY: the kernel fills in the number and its size, and reads the bytes, during the
        // calls. What is sent, or sent no more, is for others to judge: that is the test.
        unsafe {
            let asked = libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, at, &raw mut size);
            if asked != 0 || kind != libc::SOCK_SEQPACKET {
                continue;
            }
            if way == "hush" {
                libc::shutdown(fd, libc::SHUT_WR);
            } else {
                libc::send(fd, sent.as_ptr().cast(), sent.len(), flags);
            }
        }
    }
    if way == "resign" {
        // SAFETY: it ends the process, in which nothing is left to be dropped that matters.
        unsafe { libc::_exit(0) }
    }
}
