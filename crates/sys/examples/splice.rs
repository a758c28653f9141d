//! Cost of passing bytes on from one socket to another, by copying and through a pipe (splice(2)):
//! processor time of the thread in the middle, for contents of 1 MB and 100 MB. The thread has a
//! processor for itself; the sender and the receiver share another.
//! `cargo run --release -p weir-sys --example splice`.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use weir_sys::pipe::Pipe;
use weir_sys::process::{allowed_cpus, pin_thread, thread_cpu_clock_ns};

/// Size of the buffer of copying, and of the pipe, bytes.
const BUFFER_BYTES: usize = 64 << 10;
const PIPE_BYTES: usize = 256 << 10;

/// Contents passed on in a measurement, and the size of each, bytes.
const CONTENTS: [(usize, usize); 2] = [(1000, 1_000_000), (10, 100_000_000)];

const ROUNDS: usize = 5;

fn main() -> io::Result<()> {
    let cpus = allowed_cpus()?;
    for _ in 0..ROUNDS {
        for (count, bytes) in CONTENTS {
            for by_pipe in [false, true] {
                let spent_ns = measure(count, bytes, by_pipe, &cpus)?;
                let per_mb_us = spent_ns as f64 / (count * bytes) as f64 * 1000.0;
                let how = if by_pipe { "pipe" } else { "copy" };
                println!("{how}, contents of {} MB: {per_mb_us:.0} us per MB", bytes / 1_000_000);
            }
        }
    }
    Ok(())
}

/// Passes contents on; returns the processor time that this took, nanoseconds.
fn measure(count: usize, bytes: usize, by_pipe: bool, cpus: &[usize]) -> io::Result<u64> {
    let ((mut sender, from), (to, mut receiver)) = (pair()?, pair()?);
    let (middle, ends) = (cpus.first().copied(), cpus.last().copied());
    let total = count * bytes;
    let sending = thread::spawn(move || -> io::Result<()> {
        ends.map_or(Ok(()), pin_thread)?;
        let piece = vec![7; BUFFER_BYTES];
        let mut left = total;
        while left > 0 {
            left -= sender.write(&piece[..left.min(BUFFER_BYTES)])?;
        }
        Ok(())
    });
    let receiving = thread::spawn(move || -> io::Result<()> {
        ends.map_or(Ok(()), pin_thread)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut left = total;
        while left > 0 {
            left -= receiver.read(&mut buffer)?;
        }
        Ok(())
    });
    middle.map_or(Ok(()), pin_thread)?;
    let began_ns = thread_cpu_clock_ns();
    (0..count).try_for_each(|_| {
        if by_pipe { pass_by_pipe(&from, &to, bytes) } else { pass_by_copy(&from, &to, bytes) }
    })?;
    let spent_ns = thread_cpu_clock_ns() - began_ns;
    for end in [sending, receiving] {
        end.join().map_err(|_| io::Error::other("an end failed"))??;
    }
    Ok(spent_ns)
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_write_timeout(Some(Duration::from_secs(30)))?;
    Ok((near, far))
}

fn pass_by_copy(mut from: &TcpStream, mut to: &TcpStream, bytes: usize) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut left = bytes;
    while left > 0 {
        let received = from.read(&mut buffer[..left.min(BUFFER_BYTES)])?;
        to.write_all(&buffer[..received])?;
        left -= received;
    }
    Ok(())
}

fn pass_by_pipe(from: &TcpStream, to: &TcpStream, bytes: usize) -> io::Result<()> {
    let mut pipe = Pipe::new(PIPE_BYTES)?;
    let mut left = bytes;
    while left > 0 {
        left -= pipe.fill(from.as_fd(), left.min(PIPE_BYTES))?;
        while pipe.held() > 0 {
            pipe.drain(to.as_fd())?;
        }
    }
    Ok(())
}
