//! Help texts of metrics. The statistics are described in a table, in which a row may refer to the
//! row above and to the names of others; a metric is shown by itself, and has a text of its own
//! where that of the table would not do.

/// Texts of metrics by the names of their counters.
const OWN: &[(&str, &str)] = &[
    ("getevents_ready", "descriptors reported by the event mechanism's waits"),
    ("event_swept", "members checked in the full sweeps after an overflow of the kernel's queue"),
    ("event_discarded", "notices taken and discarded after an overflow of the kernel's queue"),
    ("event_takes", "calls that took notices, without those after an overflow"),
    ("accept_queue_ns", "time in the accept queue, of the accepts whose time is known"),
    ("accept_queue_ns_max", "maximum time in the accept queue, of the accepts whose time is known"),
    ("gone", "connections lost to a reset or a broken pipe after their first byte was read"),
    ("closed", "connections closed: weir_connections_closed_total over all reasons"),
    ("syn_dropped_unfair", "SYNs of sources with no share left, of those the SYN filter dropped"),
    ("syn_random_ppm", "share of SYNs that are dropped at random now, which no counter has"),
    ("turned_away", "connections answered with 503 because of load"),
    ("closed_by_share", "connections of sources with no share left, closed as too many were open"),
    ("upstream_waited", "requests for upstreams that had to wait for a place"),
    ("upstream_timeout_connect", "requests without an upstream's connection in --connect-timeout"),
    ("upstream_timeout_first_byte", "requests without an upstream's reply in --first-byte-timeout"),
    ("upstream_timeout_idle", "requests whose upstream stopped for --upstream-idle-timeout"),
    ("upstream_timeout_whole", "requests not answered whole by an upstream in --upstream-timeout"),
    ("upstream_checks_failed", "health checks that a server of an upstream failed"),
    ("listing_part_rows_max", "maximum number of entries and rows in one part of a listing"),
    ("helper_fetched", "fetches that helpers have done"),
    ("ring_completions", "completions taken from the ring"),
    ("fibers_ended", "fibers that have ended"),
    ("phases_timed", "phases whose user and system times are known (--phase-times)"),
];

/// Returns the text of a counter: its own, or that of the table without its unit, which is in the
/// metric's name.
pub(crate) fn of(counter: &str, text_in_table: &str) -> String {
    match OWN.iter().find(|(name, _)| *name == counter) {
        Some((_, own)) => (*own).to_owned(),
        None => text_in_table
            .replace(", nanoseconds", "")
            .replace(", bytes", "")
            .replace(", per million", ""),
    }
}

#[cfg(test)]
mod tests {
    use weir_stats::TABLE;

    use super::*;

    /// Words that refer to another row of the table, or to names that metrics do not have.
    const REFERENCES: [&str; 9] = [
        "of these",
        "those calls",
        "these accepts",
        "one of them",
        "of the refused",
        "are these",
        "that followed",
        "after that",
        "_*",
    ];

    #[test]
    fn no_text_needs_another() {
        for row in TABLE {
            let text = of(row.name, row.help);
            let found = REFERENCES.iter().find(|words| text.contains(*words));
            assert_eq!(found, None, "{}: {text}", row.name);
            assert!(!text.contains("nanoseconds"), "{}: {text}", row.name);
        }
    }

    #[test]
    fn every_text_of_its_own_is_of_a_counter() {
        for (name, text) in OWN {
            let row = TABLE.iter().find(|row| row.name == *name);
            assert!(row.is_some_and(|row| row.help != *text), "{name}");
        }
    }
}
