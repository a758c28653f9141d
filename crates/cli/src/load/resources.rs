//! Resources of this machine for a run: ports, descriptors, processors. Read from `/proc`, with the
//! kernel's defaults for missing values. Nothing is judged here except a list of processors.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use weir_load::capacity_check::Resources;
use weir_load::config::{StackKind, tcp};

use crate::values;

/// The kernel's default range of ports, ip(7).
const PORTS_DEFAULT: RangeInclusive<u16> = 32_768..=60_999;

/// TCP_TIMEWAIT_LEN of Linux, seconds.
const TIME_WAIT_S: f64 = 60.0;

/// Collects the resources for a run from `sources` (empty: the kernel chooses) to `addresses` on
/// `cpus` (empty: all that are allowed).
pub(crate) fn resources(sources: &[IpAddr], addresses: &[SocketAddr], cpus: &[usize]) -> Resources {
    let connections = weir_load::open_limit();
    let open_files = limits_open_files(&read("/proc/self/limits")).unwrap_or(connections);
    let loopback = addresses.iter().all(|address| address.ip().is_loopback());
    let mut pinned = cpus.to_vec();
    pinned.sort_unstable();
    pinned.dedup();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Resources {
        ports: ports(&sysctl("ip_local_port_range"), &sysctl("ip_local_reserved_ports")),
        time_wait_s: TIME_WAIT_S,
        tw_reuse_s: tw_reuse_s(&sysctl("tcp_tw_reuse"), &sysctl("tcp_tw_reuse_delay"), loopback),
        open_files,
        other_fds: open_files.saturating_sub(connections),
        sources: sources.len().max(1) as u32,
        destinations: addresses.len().max(1) as u32,
        cores: if pinned.is_empty() { cores } else { pinned.len() },
    }
}

/// Returns the resources of connections to a Unix socket, which have no ports.
pub(crate) fn unix_resources(kernel: &Resources) -> Resources {
    Resources { ports: u32::MAX, time_wait_s: 0.0, tw_reuse_s: None, ..kernel.clone() }
}

/// Ports of a client that has them all, behind the system ports (RFC 6335 section 6).
const PORTS_OF_A_CLIENT: u32 = 64_511;

/// Collects the resources of weir's own TCP, whose clients have `hosts` addresses. It needs no
/// descriptors, and a port is free as soon as its connection is closed.
pub(crate) fn packet_resources(stack: &StackKind, hosts: u32, kernel: &Resources) -> Resources {
    Resources {
        ports: PORTS_OF_A_CLIENT,
        time_wait_s: 0.0,
        tw_reuse_s: None,
        open_files: weir_load::stack_limit(stack),
        other_fds: 0,
        sources: hosts,
        ..kernel.clone()
    }
}

/// Returns this kernel's settings of TCP, for a client that is to behave like it.
pub(crate) fn tcp_settings(acks_with_request: bool) -> tcp::Settings {
    let usual = tcp::Settings::default();
    let number = |name, usual| sysctl(name).trim().parse().unwrap_or(usual);
    // The largest of the buffers decides (tcp_select_initial_window).
    let buffer = sysctl("tcp_rmem").split_whitespace().last().and_then(|most| most.parse().ok());
    let buffer: u32 = buffer.unwrap_or(0).max(u32::from(u16::MAX));
    let fin_timeout_s: u64 = sysctl("tcp_fin_timeout").trim().parse().unwrap_or(60);
    tcp::Settings {
        acks_with_request,
        window_shift: (buffer.ilog2().saturating_sub(15)).min(14) as u8,
        linear_syns: number("tcp_syn_linear_timeouts", usual.linear_syns),
        syn_retries: number("tcp_syn_retries", usual.syn_retries),
        retries: number("tcp_retries2", usual.retries),
        fin_timeout_ns: fin_timeout_s.saturating_mul(1_000_000_000),
        ..usual
    }
}

/// Checks that threads may run on `cpus`.
///
/// # Errors
/// A sentence with the first that is not allowed, and those that are.
pub(crate) fn check_cpus(cpus: &[usize]) -> Result<(), String> {
    let status = read("/proc/self/status");
    let Some(allowed) = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
    else {
        return Ok(());
    };
    let list = values::cpus(allowed.trim()).unwrap_or_default();
    let stray = cpus.iter().find(|cpu| !list.is_empty() && !list.contains(cpu));
    stray.map_or(Ok(()), |cpu| {
        Err(format!("--cpus: there is no processor {cpu}, or it is not for us: {}", allowed.trim()))
    })
}

fn sysctl(name: &str) -> String {
    read(&format!("/proc/sys/net/ipv4/{name}"))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Number of ports the kernel chooses from.
fn ports(range: &str, reserved: &str) -> u32 {
    let mut ends = range.split_whitespace().map(str::parse::<u16>);
    let range = match (ends.next(), ends.next()) {
        (Some(Ok(first)), Some(Ok(last))) => first..=last,
        _ => PORTS_DEFAULT,
    };
    let lists = reserved.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse::<u16>().ok()?, last.parse::<u16>().ok()?))
    });
    let reserved = lists.map(|(first, last)| {
        let (first, last) = (first.max(*range.start()), last.min(*range.end()));
        (first..=last).count() as u32
    });
    (range.clone().count() as u32).saturating_sub(reserved.sum())
}

/// Delay after which the kernel reuses a port in TIME_WAIT, seconds; `None` if it does not.
/// `tcp_tw_reuse` is 0 never, 1 always, 2 on the loopback (Documentation/networking/ip-sysctl.rst).
fn tw_reuse_s(reuse: &str, delay_ms: &str, loopback: bool) -> Option<f64> {
    let applies = match reuse.trim() {
        "1" => true,
        "2" => loopback,
        _ => false,
    };
    let delay_ms: f64 = delay_ms.trim().parse().unwrap_or(1000.0);
    applies.then_some(delay_ms / 1000.0)
}

/// Parses the soft limit on open files of proc_pid_limits(5).
fn limits_open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_the_range_without_those_reserved() {
        assert_eq!(ports("32768\t60999\n", "\n"), 28_232);
        assert_eq!(ports("", ""), 28_232);
        assert_eq!(ports("1000 1009", "1,1003,1008-2000"), 7);
        assert_eq!(ports("1000 1009", "1-65535"), 0);
    }

    #[test]
    fn a_port_is_given_away_sooner_where_the_kernel_says_so() {
        assert_eq!(tw_reuse_s("0\n", "", true), None);
        assert_eq!(tw_reuse_s("2\n", "", true), Some(1.0));
        assert_eq!(tw_reuse_s("2\n", "1500\n", true), Some(1.5));
        assert_eq!(tw_reuse_s("2\n", "", false), None);
        assert_eq!(tw_reuse_s("1\n", "", false), Some(1.0));
        assert_eq!(tw_reuse_s("", "", true), None);
    }

    #[test]
    fn the_limit_on_open_files_is_read() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(limits_open_files(limits), Some(1024));
        assert_eq!(limits_open_files("Max open files unlimited"), None);
    }

    #[test]
    fn a_processor_that_is_not_there_is_refused() {
        assert!(check_cpus(&[]).is_ok());
        assert!(check_cpus(&[4095]).unwrap_err().contains("processor 4095"));
    }

    #[test]
    fn pinned_threads_have_the_processors_they_are_pinned_to() {
        let addresses = ["127.0.0.1:80".parse().unwrap()];
        assert_eq!(resources(&[], &addresses, &[0, 0]).cores, 1);
        assert!(resources(&[], &addresses, &[]).cores >= 1);
    }
}
