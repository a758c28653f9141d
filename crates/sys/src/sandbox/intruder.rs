//! What an intruder would try from within a thread that serves. For tests: it is in no release.

use std::io;

/// The attempts, by name.
pub const ATTEMPTS: [&str; 13] = [
    "read", "write", "unlink", "exec", "fork", "connect", "packet", "ptrace", "kill", "bpf",
    "mount", "setuid", "ring",
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
    let mut address: libc::sockaddr_in = unspecified();
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = 9_u16.to_be();
    address.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
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
            "connect" => {
                let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
                let size = size_of_val(&address) as libc::socklen_t;
                let at = (&raw const address).cast();
                if fd < 0 { -1 } else { libc::connect(fd, at, size).into() }
            }
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

fn unspecified() -> libc::sockaddr_in {
    // SAFETY: all zeroes is a valid value of this structure of numbers.
    unsafe { std::mem::zeroed() }
}
