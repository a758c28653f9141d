//! Files opened below a root and read; sockets installed as descriptors.

use super::*;
use std::ffi::CString;
use std::io::Write;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::PathBuf;

use weir_sys::file::{self, File};

/// A scratch directory with a file outside the root, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("weir-sys-ring-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("root/sub")).unwrap();
        std::fs::write(path.join("secret"), b"secret").unwrap();
        std::fs::write(path.join("root/sub/a"), b"0123456789").unwrap();
        std::os::unix::fs::symlink("sub/a", path.join("root/link")).unwrap();
        std::os::unix::fs::symlink("../secret", path.join("root/out")).unwrap();
        Self(path)
    }

    fn root(&self) -> Arc<File> {
        Arc::new(file::open_root(&self.0.join("root")).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(bench: &mut Bench, root: &Arc<File>, path: &str, symlinks: bool) -> Completion {
    let path = CString::new(path).unwrap();
    bench.ring.open_beneath(SharedFd::of(root), path, symlinks, Then::Nothing, 1);
    bench.next(1)
}

fn read<T: AsFd + 'static>(
    bench: &mut Bench,
    file: &Arc<T>,
    into: Vec<u8>,
    range: Range<u64>,
    by: ReadThread,
    data: u64,
) {
    bench.ring.read(SharedFd::of(file), into, range, by, Then::Nothing, data);
}

#[test]
fn a_file_is_opened_and_read_from_where_it_is_wanted() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let scratch = Scratch::new("read");
    let opened = open(&mut bench, &scratch.root(), "sub/a", false);
    let Returned::Fd(file) = opened.returned else { panic!("{opened:?}") };
    let file = Arc::new(file);
    for (offset, want, bytes) in [(0, 4, "> 0123"), (8, 100, "> 89"), (10, 5, "> "), (99, 5, "> ")]
    {
        let range = offset..offset + want;
        read(&mut bench, &file, b"> ".to_vec(), range, ReadThread::Worker, 2);
        let completion = bench.next(2);
        assert_eq!(completion.result as usize, bytes.len() - 2);
        assert!(matches!(completion.returned, Returned::Read(got) if got == bytes.as_bytes()));
    }
    // Bytes just read are still cached, or the file system never caches them.
    read(&mut bench, &file, b"> ".to_vec(), 6..10, ReadThread::Caller, 3);
    let completion = bench.next(3);
    let whole = matches!(&completion.returned, Returned::Read(got) if got == b"> 6789");
    assert!(whole || completion.failed_with(libc::EOPNOTSUPP), "{completion:?}");
    bench.assert_idle();
}

#[test]
fn an_uncached_file_is_not_read_at_once() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let scratch = Scratch::new("cold");
    let path = scratch.0.join("root/cold");
    std::fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
    let file = Arc::new(std::fs::File::open(&path).unwrap());
    if !file::evict(file.as_fd(), 0, 0).unwrap() {
        return eprintln!("SKIPPED: {} stays in the page cache", path.display());
    }
    read(&mut bench, &file, Vec::new(), 0..1 << 20, ReadThread::Caller, 1);
    let completion = bench.next(1);
    // A fast disk delivers some of it during the check.
    let told = completion.result;
    assert!(told == -libc::EAGAIN || told > 0 || told == -libc::EOPNOTSUPP, "{told}");
    read(&mut bench, &file, Vec::new(), 0..1 << 20, ReadThread::Worker, 2);
    assert_eq!(bench.next(2).result, 1 << 20);
    bench.assert_idle();
}

#[test]
fn nothing_is_opened_outside_the_root() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let scratch = Scratch::new("beneath");
    let root = scratch.root();
    for (path, symlinks, errno) in [
        ("../secret", false, libc::EXDEV),
        ("../secret", true, libc::EXDEV),
        ("sub/../../secret", true, libc::EXDEV),
        ("/etc/passwd", true, libc::EXDEV),
        ("out", true, libc::EXDEV),
        ("out", false, libc::ELOOP),
        ("link", false, libc::ELOOP),
        ("missing", false, libc::ENOENT),
    ] {
        let completion = open(&mut bench, &root, path, symlinks);
        assert!(completion.failed_with(errno), "{path}: {completion:?}");
        assert!(file::is_absent(&completion.outcome().unwrap_err()));
    }
    assert!(matches!(open(&mut bench, &root, "link", true).returned, Returned::Fd(_)));
    bench.assert_idle();
}

/// Checks that a file is read although its owner is dropped before the read has begun, or even been
/// submitted: files opened meanwhile get other numbers, and the file closes when the read has
/// ended.
fn is_read_though_dropped(submits: bool, by: ReadThread, then: Then) {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let scratch = Scratch::new(&format!("dropped-{submits}-{by:?}-{then:?}"));
    std::fs::write(scratch.0.join("other"), "other file").unwrap();
    let path = scratch.0.join("root/sub/a");
    assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
    let file = Arc::new(std::fs::File::open(&path).unwrap());
    let alive = Arc::downgrade(&file);
    bench.ring.read(SharedFd::of(&file), Vec::new(), 0..10, by, then, 1);
    if then == Then::Always {
        bench.ring.read(SharedFd::of(&file), Vec::new(), 0..10, by, Then::Nothing, 2);
    }
    if submits {
        bench.ring.submit().unwrap();
    }
    drop(file);
    let others: Vec<_> =
        (0..8).map(|_| std::fs::File::open(scratch.0.join("other")).unwrap()).collect();
    for data in 1..=if then == Then::Always { 2 } else { 1 } {
        let completion = bench.next(data);
        let read = matches!(&completion.returned, Returned::Read(got) if got == b"0123456789");
        assert!(read || completion.failed_with(libc::EOPNOTSUPP), "{completion:?}");
    }
    assert_eq!(alive.strong_count(), 0, "nobody keeps it open");
    drop(others);
    bench.assert_idle();
}

#[test]
fn a_file_stays_open_for_a_read_whoever_drops_it() {
    for by in [ReadThread::Caller, ReadThread::Worker] {
        for then in [Then::Nothing, Then::Always] {
            is_read_though_dropped(false, by, then);
            is_read_though_dropped(true, by, then);
        }
    }
}

#[test]
fn a_ring_that_is_dropped_lets_go_of_what_its_operations_keep_open() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let (listener, waker) = (listener(), waker());
    let alive = (Arc::downgrade(&listener), Arc::downgrade(&waker));
    let into = AcceptTarget::Slot(0);
    bench.ring.accept(SharedFd::of(&listener), into, AcceptWait::AfterAttempt, Then::Nothing, 1);
    bench.ring.poll(SharedFd::of(&waker), libc::POLLIN as u32, 2);
    bench.turn();
    bench.ring.poll(SharedFd::of(&waker), libc::POLLIN as u32, 3);
    drop((listener, waker));
    assert_eq!((alive.0.strong_count(), alive.1.strong_count()), (1, 2));
    drop(bench);
    assert_eq!((alive.0.strong_count(), alive.1.strong_count()), (0, 0));
}

#[test]
fn a_failed_read_gives_back_what_it_was_given() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let scratch = Scratch::new("directory");
    let opened = open(&mut bench, &scratch.root(), "sub", false);
    let Returned::Fd(directory) = opened.returned else { panic!("{opened:?}") };
    let directory = Arc::new(directory);
    read(&mut bench, &directory, vec![1, 2, 3], 0..10, ReadThread::Worker, 2);
    let completion = bench.next(2);
    assert!(completion.failed_with(libc::EISDIR), "{completion:?}");
    assert!(matches!(completion.returned, Returned::Read(got) if got == [1, 2, 3]));
    bench.assert_idle();
}

#[test]
fn a_file_read_and_sent_in_one_chain_arrives() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let scratch = Scratch::new("large");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 253) as u8).collect();
    std::fs::write(scratch.0.join("root/large"), &bytes).unwrap();
    let opened = open(&mut bench, &scratch.root(), "large", false);
    let Returned::Fd(file) = opened.returned else { panic!("{opened:?}") };
    let file = Arc::new(file);
    let mut got = Vec::new();
    loop {
        let at = got.len() as u64;
        let range = at..at + (1 << 20);
        read(&mut bench, &file, got, range, ReadThread::Worker, 2);
        let completion = bench.next(2);
        let Returned::Read(bytes) = completion.returned else { panic!("nothing came back") };
        got = bytes;
        if completion.result == 0 {
            break;
        }
    }
    assert!(got == bytes);
    bench.assert_idle();
}

#[test]
fn a_socket_in_a_slot_is_given_a_descriptor_too() {
    let Some(mut bench) = Bench::new(SETTING) else { return };
    let mut peer = bench.connect(5);
    bench.ring.install(5, Then::Nothing, 1);
    let completion = bench.next(1);
    let Returned::Fd(socket) = completion.returned else { panic!("{completion:?}") };
    bench.close(5);
    let mut socket = TcpStream::from(socket);
    assert_eq!(socket.peer_addr().unwrap(), peer.local_addr().unwrap());
    socket.write_all(b"by descriptor").unwrap();
    drop(socket);
    assert_eq!(rest(&mut peer), b"by descriptor");
    bench.ring.install(5, Then::Nothing, 2);
    assert_eq!(bench.end(2), -libc::EBADF);
    bench.assert_idle();
}
