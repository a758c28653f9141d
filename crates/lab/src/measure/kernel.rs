//! Network counters of a namespace: /proc/PID/net/netstat and snmp (RFC 1213 and Linux's own), and
//! the meaning of its connection drops.

use std::collections::BTreeMap;
use std::path::Path;

use crate::record::Kernel;

/// Counters of a namespace at an instant, by group and name: `TcpExt.ListenDrops`.
pub type Counters = BTreeMap<String, u64>;

/// Reads `netstat` and `snmp` of a directory such as `/proc/PID/net`.
///
/// # Errors
/// A file cannot be read, or does not consist of pairs of lines.
pub fn read(directory: &Path) -> Result<Counters, String> {
    let mut counters = Counters::new();
    for name in ["netstat", "snmp"] {
        let path = directory.join(name);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        counters.extend(parse(&text)?);
    }
    Ok(counters)
}

/// Parses pairs of lines, one of names and one of values, that begin with the same group. Settings
/// among them that may be negative (`Tcp.MaxConn`) are left out.
///
/// # Errors
/// A line of names is not followed by a line with the same number of values.
pub fn parse(text: &str) -> Result<Counters, String> {
    let mut counters = Counters::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((of, values))) =
            (names.split_once(": "), values.split_once(": "))
        else {
            return Err(format!("a line of network counters has no group: {names:.40}"));
        };
        let (names, values): (Vec<_>, Vec<_>) =
            (names.split_whitespace().collect(), values.split_whitespace().collect());
        if group != of || names.len() != values.len() {
            return Err(format!("the names and values of the counters {group} do not match"));
        }
        for (name, value) in names.iter().zip(values) {
            if let Ok(value) = value.parse() {
                counters.insert(format!("{group}.{name}"), value);
            }
        }
    }
    Ok(counters)
}

/// Returns the growth of the counters from `before` to `after`. A number that fell is not a counter
/// (`Tcp.CurrEstab`) and is left out.
pub fn moved(before: &Counters, after: &Counters) -> BTreeMap<String, u64> {
    let growth = |(name, now): (&String, &u64)| {
        let then = before.get(name).copied().unwrap_or(0);
        let by = now.checked_sub(then).filter(|by| *by > 0)?;
        Some((name.clone(), by))
    };
    after.iter().filter_map(growth).collect()
}

/// Returns the growth of a counter; 0 if it did not move.
pub fn count(kernel: &Kernel, name: &str) -> u64 {
    kernel.moved.get(name).copied().unwrap_or(0)
}

/// Connections dropped before a server could accept them, by kind, as counted by Linux 6.12 to
/// 6.18.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Drops of all kinds (ListenDrops).
    pub all: u64,
    /// SYN queue full, without cookies (SynQFull: TCPReqQFullDrop).
    pub syn_queue_full: u64,
    /// SYN queue full, answered with a cookie: nothing is dropped (TCPReqQFullDoCookies).
    pub cookies: u64,
    /// Accept queue full, at the SYN (AcceptQFull) or at the third ACK (ListenOverflow), which move
    /// the same counters (ListenOverflows): only a trace tells them apart.
    pub accept_queue_full: u64,
    /// Last quarter of the SYN queue, from a peer not yet proven, without cookies (DropRequest):
    /// the part of ListenDrops that nothing else explains, connections lost for want of memory
    /// among them.
    pub drop_request: u64,
    /// Kinds that only a trace tells apart, if there was one.
    pub traced: Option<Traced>,
}

/// Drops that only a trace tells apart, or knows at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Accept queue full at the SYN (AcceptQFull): what of ListenOverflows is not at the third ACK.
    pub accept_queue_full_at_syn: u64,
    /// Accept queue full at the third ACK (ListenOverflow), with a cookie or without.
    pub listen_overflow: u64,
    /// SYNs dropped by a SYN filter, which are not among ListenDrops.
    pub filter: u64,
    /// Packets dropped that are no part of a new handshake, which are not among ListenDrops.
    pub other: u64,
}

/// Classifies a namespace's drops by kind.
pub fn classify(kernel: &Kernel) -> Drops {
    let all = count(kernel, "TcpExt.ListenDrops");
    let syn_queue_full = count(kernel, "TcpExt.TCPReqQFullDrop");
    let cookies = count(kernel, "TcpExt.TCPReqQFullDoCookies");
    let accept_queue_full = count(kernel, "TcpExt.ListenOverflows");
    let drop_request = all.saturating_sub(accept_queue_full).saturating_sub(syn_queue_full);
    let traced = kernel.traced.map(|traced| {
        let listen_overflow = traced.overflow + traced.overflow_of_cookie;
        Traced {
            accept_queue_full_at_syn: accept_queue_full.saturating_sub(listen_overflow),
            listen_overflow,
            filter: traced.filter,
            other: traced.other,
        }
    });
    Drops { all, syn_queue_full, cookies, accept_queue_full, drop_request, traced }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TracedDrops;

    const SNMP: &str = include_str!("fixtures/snmp.txt");
    const NETSTAT: &str = include_str!("fixtures/netstat.txt");

    fn kernel(moved: &[(&str, u64)]) -> Kernel {
        let moved = moved.iter().map(|(name, by)| (format!("TcpExt.{name}"), *by)).collect();
        Kernel { window_s: 1.0, moved, ..Kernel::default() }
    }

    #[test]
    fn pairs_of_lines_become_named_counters() {
        let snmp = parse(SNMP).unwrap();
        assert_eq!((snmp["Tcp.PassiveOpens"], snmp["Ip.InReceives"]), (407, 94871));
        assert!(!snmp.contains_key("Tcp.MaxConn"));
        let netstat = parse(NETSTAT).unwrap();
        assert_eq!((netstat["TcpExt.TW"], netstat["TcpExt.ListenDrops"]), (416, 0));
        assert_eq!(netstat["IpExt.InOctets"], 264_780_866);
    }

    #[test]
    fn names_without_their_values_are_an_error() {
        assert!(parse("Tcp: A B\nTcp: 1\n").unwrap_err().contains("do not match"));
        assert!(parse("Tcp: A\nUdp: 1\n").unwrap_err().contains("do not match"));
        assert!(parse("A B\n1 2\n").unwrap_err().contains("no group"));
    }

    #[test]
    fn a_difference_has_only_what_grew() {
        let at = |drops, open| {
            Counters::from([("TcpExt.ListenDrops".into(), drops), ("Tcp.CurrEstab".into(), open)])
        };
        let moved = moved(&at(5, 9), &at(8, 2));
        assert_eq!(moved, Counters::from([("TcpExt.ListenDrops".into(), 3)]));
    }

    #[test]
    fn this_machines_own_counters_can_be_read() {
        let counters = read(Path::new("/proc/self/net")).unwrap();
        assert!(counters.contains_key("Tcp.PassiveOpens"));
        assert!(counters.contains_key("TcpExt.ListenDrops"));
        assert!(read(Path::new("/proc/self/fdinfo")).unwrap_err().contains("netstat"));
    }

    #[test]
    fn each_row_of_the_table_of_drops_is_told() {
        // Rows: the counters that move on an event, and the expected classification.
        type Row<'a> = (&'a [(&'a str, u64)], [u64; 4]);
        let rows: [Row<'_>; 5] = [
            (&[("TCPReqQFullDrop", 1), ("ListenDrops", 1)], [1, 0, 0, 0]),
            (&[("TCPReqQFullDoCookies", 1)], [0, 1, 0, 0]),
            (&[("ListenOverflows", 1), ("ListenDrops", 1)], [0, 0, 1, 0]),
            (&[("ListenDrops", 1)], [0, 0, 0, 1]),
            (&[], [0, 0, 0, 0]),
        ];
        for (counters, wanted) in rows {
            let drops = classify(&kernel(counters));
            let told =
                [drops.syn_queue_full, drops.cookies, drops.accept_queue_full, drops.drop_request];
            assert_eq!(told, wanted, "{counters:?}");
        }
    }

    #[test]
    fn a_difference_of_counters_is_never_below_zero() {
        let mut kernel = kernel(&[("ListenOverflows", 9), ("ListenDrops", 7)]);
        kernel.traced = Some(TracedDrops { overflow: 10, ..TracedDrops::default() });
        let drops = classify(&kernel);
        assert_eq!((drops.all, drops.drop_request), (7, 0));
        assert_eq!(drops.traced.unwrap().accept_queue_full_at_syn, 0);
    }

    #[test]
    fn a_trace_parts_the_two_that_share_a_counter() {
        let mut kernel = kernel(&[("ListenOverflows", 9), ("ListenDrops", 9)]);
        assert_eq!(classify(&kernel).traced, None);
        kernel.traced =
            Some(TracedDrops { overflow: 4, overflow_of_cookie: 2, filter: 5, other: 1 });
        let parts = Traced { accept_queue_full_at_syn: 3, listen_overflow: 6, filter: 5, other: 1 };
        assert_eq!(classify(&kernel).traced, Some(parts));
    }
}
