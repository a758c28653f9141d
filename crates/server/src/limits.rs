//! Limits of the kernel: the SYN filters available, and the descriptors that connections and
//! files share.

use std::io;

use weir_accept::SynFilter;
use weir_content::CompressionOptions;
use weir_sys::{memory_limit, privileged, process};

use crate::architecture::ArchitectureName;
use crate::config::{Config, Error, MemoryLimit, SynFilterPlace};
use crate::models::prefork::pool_size;
use crate::worker::listener::Socket;

/// Descriptors that a loop needs besides its connections, their files and its listeners.
const SPARE_FDS: u64 = 32;

/// Least memory budget, bytes: below it, the buffers and tables of a server at rest would be all.
pub const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// Returns the SYN filter to use: the configured one, or the best available. It is an error if the
/// configured one is unavailable.
pub(crate) fn syn_filter<'s>(
    config: &Config,
    mut sockets: impl Iterator<Item = &'s Socket>,
) -> Result<SynFilter, Error> {
    if !config.policy.name.row().refuses {
        return Ok(SynFilter::None);
    }
    let available = sockets.find(|socket| socket.own).map_or(SynFilter::None, Socket::syn_filter);
    match config.syn_filter {
        None => Ok(available),
        Some(SynFilter::None) => Ok(SynFilter::None),
        Some(SynFilter::Random) if available != SynFilter::None => Ok(SynFilter::Random),
        Some(wanted) if wanted == available => Ok(wanted),
        Some(wanted) => Err(Error(format!(
            "--syn-filter {wanted} is unavailable: it needs a TCP socket of the server's own and \
             CAP_NET_ADMIN{}; the best here is {available}",
            if wanted == SynFilter::Tokens { " and CAP_BPF" } else { "" }
        ))),
    }
}

/// Warning of a successor with `--user`: the process that keeps the privileges attaches filters to
/// sockets alone.
const NOT_AT_LINKS: &str = "--syn-filter-at link: with --user, a successor drops SYNs at its \
                            sockets alone, and at the link after a restart";

/// Attaches the SYN filters to interfaces, where that is possible and not configured otherwise, and
/// returns the number of attachments.
pub(crate) fn filter_at_links(
    config: &Config,
    sockets: &mut [Vec<Socket>],
) -> Result<usize, Error> {
    let attached = match (config.syn_filter_at, sockets) {
        (SynFilterPlace::Socket, _) => return Ok(0),
        (place, _) if privileged::is_there() => {
            if place == SynFilterPlace::Link {
                config.errors.warn(NOT_AT_LINKS);
            }
            return Ok(0);
        }
        (_, [of_the_loop]) => attach_to_links(of_the_loop),
        // At the link nobody knows yet whose connection it will be.
        _ => Err("several loops share the addresses (--workers 1)".into()),
    };
    match attached {
        Err(why) if config.syn_filter_at == SynFilterPlace::Link => {
            Err(Error(format!("--syn-filter-at link is unavailable: {why}")))
        }
        attached => Ok(attached.unwrap_or(0)),
    }
}

fn attach_to_links(sockets: &mut [Socket]) -> Result<usize, String> {
    let attached: io::Result<usize> = sockets.iter_mut().map(Socket::filter_at_links).sum();
    match attached {
        Ok(0) => Err("no Ethernet interface has an address of a filtered listener".into()),
        Ok(attached) => Ok(attached),
        Err(error) => Err(format!("it needs Linux 6.6, CAP_NET_ADMIN and CAP_BPF: {error}")),
    }
}

/// Divides the cache among the loops, and among the roots of each, and keeps max-conns below what
/// RLIMIT_NOFILE allows; that limit is per process.
pub(crate) fn fit(config: &mut Config, listeners: usize) {
    let (loops, processes) = parts(config);
    config.memory = memory_limit(config.memory);
    // Each root has a cache of its own.
    let roots = config.site_roots.len() as u64 + 1;
    let fds = process::raise_open_files();
    let content = &mut config.content;
    content.caching = config.strategy.caching;
    content.waits = config.arch.waits_for_disks(&config.arch_settings);
    content.cache_bytes_max /= loops * processes * roots;
    content.compression =
        content.compression.filter(|_| content.caching).map(|it| divided(it, loops, processes));
    // A quarter of the descriptors at most for files, so that a small limit still serves.
    let files_max = (content.open_files_max / processes).min(fds / 4);
    content.open_files_max = (files_max / (loops * roots)).max(1);
    let files = if content.caching { content.open_files_max * loops * roots } else { 0 };
    let overhead = SPARE_FDS + loops * (listeners as u64 + 4);
    let free = fds.saturating_sub(overhead + files);
    // Without a cache each connection may have a file of its own open.
    let room = if content.caching { free } else { free / 2 }.max(8).saturating_mul(processes);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    if room < config.conns_max {
        let wanted = std::mem::replace(&mut config.conns_max, room);
        config.errors.warn(&format!(
            "{room} connections at most, not {wanted}: {fds} descriptors are allowed, and files \
             take {files} of them (ulimit -n, --open-files)"
        ));
    }
}

/// Returns the memory budget as a number, unless there is none.
fn memory_limit(limit: MemoryLimit) -> MemoryLimit {
    match limit {
        MemoryLimit::Auto => memory_limit::available_bytes().map_or(MemoryLimit::None, |bytes| {
            MemoryLimit::Bytes((bytes / 4 * 3).max(MEMORY_BYTES_MIN))
        }),
        limit => limit,
    }
}

/// Returns the number of loops of a process, and of processes that serve.
fn parts(config: &Config) -> (u64, u64) {
    let workers = config.workers.max(1) as u64;
    match config.arch {
        ArchitectureName::Processes => (1, workers * pool_size::children(config) as u64),
        _ => (workers, 1),
    }
}

/// Returns a sentence on what is not compressed though it should be; `None` if there is nothing.
#[must_use]
pub fn compression_gap(config: &Config) -> Option<String> {
    let serves_files = config.root.is_some() || !config.site_roots.is_empty();
    let wanted = config.content.compression.filter(|_| serves_files)?;
    if !config.strategy.caching {
        let why = "without --caching=on there is nowhere to keep what it makes";
        return Some(format!("--compress=on compresses nothing: {why}"));
    }
    let (loops, processes) = parts(config);
    let bytes_max = divided(wanted, loops, processes).file_bytes_max;
    let each = match (loops, processes) {
        (1, 1) => String::new(),
        (loops, 1) => format!(" in each of {loops} loops"),
        (_, processes) => format!(" in each of {processes} processes"),
    };
    (bytes_max < wanted.file_bytes_max).then(|| {
        let why = format!("--compress-cache has no room for more{each}");
        format!("files larger than {bytes_max} bytes are not compressed: {why}")
    })
}

/// Divides what is kept of compressed forms among processes, and among the loops of each. An eighth
/// is for forms that no loop has come for yet. A file is only compressed where its form has room.
fn divided(options: CompressionOptions, loops: u64, processes: u64) -> CompressionOptions {
    let bytes_max = options.cache_bytes_max / processes;
    let unclaimed_bytes_max = bytes_max / 8;
    let cache_bytes_max = (bytes_max - unclaimed_bytes_max) / loops;
    let file_bytes_max = options.file_bytes_max.min(unclaimed_bytes_max).min(cache_bytes_max);
    CompressionOptions { cache_bytes_max, unclaimed_bytes_max, file_bytes_max }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_compressed_where_each_loop_and_process_has_room_for_it() {
        let options = CompressionOptions {
            cache_bytes_max: 32 << 20,
            unclaimed_bytes_max: 0,
            file_bytes_max: 1 << 20,
        };
        let file_max = |loops, processes| divided(options, loops, processes).file_bytes_max;
        assert_eq!((file_max(1, 1), file_max(16, 1)), (1 << 20, 1 << 20));
        assert_eq!((file_max(64, 1), file_max(1, 128)), (448 << 10, 32 << 10));
        let shares = divided(options, 16, 1);
        assert_eq!(shares.unclaimed_bytes_max + 16 * shares.cache_bytes_max, 32 << 20);
    }
}
