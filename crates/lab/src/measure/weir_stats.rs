//! Statistics of `weir serve`, as written by `--stats-json` (docs/serve.md), and the difference of
//! two snapshots.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::record::CallCount;

/// Beginnings of the names of what the kernel counts for a server's threads.
const OF_THE_KERNEL: [&str; 2] = ["cpu_", "context_switches_"];

/// Statistics since the server's start, or their growth between two snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Counters by name, summed over all loops, including zeros, and `elapsed_s`.
    pub totals: BTreeMap<String, f64>,
    /// The profile of system calls; empty if the server keeps none.
    pub calls: Vec<CallCount>,
}

impl Stats {
    /// Reads the document of the file.
    ///
    /// # Errors
    /// A required member is missing.
    pub fn read(document: &Value) -> Result<Self, String> {
        let number = |value: &Value| value.as_f64();
        let missing = |name: &str| format!("the server's statistics have no {name}");
        let total = document.get("total").ok_or_else(|| missing("total"))?;
        let elapsed_s =
            document.get("elapsed_s").and_then(number).ok_or_else(|| missing("elapsed_s"))?;
        let mut totals = BTreeMap::from([("elapsed_s".to_owned(), elapsed_s)]);
        for row in weir_stats::TABLE {
            let value = total.get(row.name).and_then(number).ok_or_else(|| missing(row.name))?;
            totals.insert(row.name.to_owned(), value);
        }
        Ok(Self { totals, calls: total.get("calls").map_or_else(Vec::new, profile) })
    }

    /// Returns the growth since `before`, an earlier snapshot of the same server. High-water marks
    /// and present states have no difference and are left out; calls keep their names, most time
    /// first. Counts of the kernel may fall a little, since a thread or a process takes some of its
    /// own with it; they have then not grown.
    ///
    /// # Errors
    /// A counter fell: the snapshots come from two servers.
    pub fn since(&self, before: &Self) -> Result<Self, String> {
        let mut totals = BTreeMap::new();
        let row = |name: &str| weir_stats::TABLE.iter().find(|row| row.name == name);
        let is_count = |name: &str| row(name).is_none_or(|row| row.merge.is_counter());
        for (name, now) in self.totals.iter().filter(|(name, _)| is_count(name)) {
            let by = now - before.totals.get(name).copied().unwrap_or(0.0);
            let is_of_kernel = OF_THE_KERNEL.iter().any(|prefix| name.starts_with(prefix));
            if by < 0.0 && !is_of_kernel {
                return Err(format!("{name} of the server's statistics fell: it was restarted"));
            }
            totals.insert(name.clone(), by.max(0.0));
        }
        Ok(Self { totals, calls: grown(&before.calls, &self.calls) })
    }
}

fn profile(calls: &Value) -> Vec<CallCount> {
    let Some(calls) = calls.as_object() else { return Vec::new() };
    let row = |(name, row): (&String, &Value)| {
        let count = row.get("count")?.as_u64()?;
        let time_ns = row.get("time_ns")?.as_u64()?;
        Some(CallCount { name: name.clone(), count, time_s: Some(time_ns as f64 / 1e9) })
    };
    let mut rows: Vec<CallCount> = calls.iter().filter_map(row).collect();
    sort(&mut rows);
    rows
}

fn grown(before: &[CallCount], after: &[CallCount]) -> Vec<CallCount> {
    let growth = |now: &CallCount| {
        let then = before.iter().find(|call| call.name == now.name);
        let time_then_s = then.and_then(|call| call.time_s).unwrap_or(0.0);
        CallCount {
            name: now.name.clone(),
            count: now.count.saturating_sub(then.map_or(0, |call| call.count)),
            time_s: now.time_s.map(|time_s| (time_s - time_then_s).max(0.0)),
        }
    };
    let mut rows: Vec<CallCount> = after.iter().map(growth).collect();
    sort(&mut rows);
    rows
}

fn sort(rows: &mut [CallCount]) {
    rows.sort_by(|a, b| b.time_s.unwrap_or(0.0).total_cmp(&a.time_s.unwrap_or(0.0)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_stats::{CallRow, Counters, LoopReport, Report};

    /// Returns the statistics of a server after `elapsed_s` seconds, with `accepted` accepts in
    /// each of two loops.
    fn stats(elapsed_s: f64, accepted: u64, calls: u64) -> Stats {
        let mut counters = Counters::default();
        counters.accepted.add(accepted);
        counters.accept_phases.add(2 * accepted);
        counters.open_max.raise(accepted);
        let row = |name, count| CallRow { name, count, time_ns: 1_000_000_000 * count };
        let calls = match calls {
            0 => Vec::new(),
            some => vec![row("accept4", some), row("epoll_wait", 3 * some)],
        };
        let part = LoopReport { counters, calls };
        let text = Report { elapsed_s, loops: vec![part.clone(), part] }.to_json().to_string();
        Stats::read(&serde_json::from_str(&text).unwrap()).unwrap()
    }

    #[test]
    fn totals_are_of_all_loops_and_keep_zeros() {
        let stats = stats(2.5, 10, 0);
        let (accepted, replies) = (stats.totals["accepted"], stats.totals["replies"]);
        assert_eq!((accepted, replies, stats.totals["elapsed_s"]), (20.0, 0.0, 2.5));
        assert!(!stats.totals.contains_key("c_avg"));
        assert_eq!(stats.totals.len(), weir_stats::TABLE.len() + 1);
        assert_eq!(stats.calls, []);
    }

    #[test]
    fn a_difference_has_counters_and_no_marks() {
        let before = stats(1.0, 10, 1);
        let after = stats(4.0, 25, 3);
        let grown = after.since(&before).unwrap();
        assert_eq!((grown.totals["accepted"], grown.totals["elapsed_s"]), (30.0, 3.0));
        assert!(after.totals.contains_key("open_max") && !grown.totals.contains_key("open_max"));
        let calls: Vec<_> = grown.calls.iter().map(|c| (&*c.name, c.count, c.time_s)).collect();
        assert_eq!(calls, [("epoll_wait", 12, Some(12.0)), ("accept4", 4, Some(4.0))]);
    }

    #[test]
    fn a_count_of_the_kernel_that_fell_has_not_grown() {
        let (mut before, after) = (stats(1.0, 10, 0), stats(2.0, 10, 0));
        before.totals.insert("cpu_user_ns".into(), 5.0);
        assert_eq!(after.since(&before).unwrap().totals["cpu_user_ns"], 0.0);
    }

    #[test]
    fn a_present_state_that_fell_is_no_restart() {
        for name in ["upstream_limit", "accept_queue"] {
            let (mut before, after) = (stats(1.0, 10, 0), stats(2.0, 10, 0));
            before.totals.insert(name.into(), 8.0);
            assert!(!after.since(&before).unwrap().totals.contains_key(name), "{name}");
        }
    }

    #[test]
    fn calls_first_made_in_between_count_from_nothing() {
        let before = stats(1.0, 10, 0);
        let after = stats(2.0, 10, 2);
        assert_eq!(after.since(&before).unwrap().calls[1].count, 4);
    }

    #[test]
    fn a_restart_and_a_file_without_a_total_are_errors() {
        let late = stats(4.0, 25, 0);
        let early = stats(1.0, 10, 0);
        assert!(early.since(&late).unwrap_err().contains("restarted"));
        assert!(Stats::read(&serde_json::json!({})).unwrap_err().contains("no total"));
    }
}
