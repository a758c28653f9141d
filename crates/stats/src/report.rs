//! Reports: the counters of every loop over a period, the figures derived from them, and their text
//! and JSON form. Returns text only; writing it out is up to the caller.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::{Counters, TABLE};

/// Count and time of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRow {
    /// Name of the call.
    pub name: &'static str,
    /// Number of calls.
    pub count: u64,
    /// Wall time spent in the calls, nanoseconds.
    pub time_ns: u64,
}

/// The part of a report about one loop.
#[derive(Clone, Debug, Default)]
pub struct LoopReport {
    /// Counters of the loop.
    pub counters: Counters,
    /// Profile of system calls; empty if they were not profiled.
    pub calls: Vec<CallRow>,
}

/// Figures derived from the counters: pariag-accept eq. 4.1 and the papers' rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Derived {
    /// Connections accepted per accept-phase (C_avg).
    pub c_avg: f64,
    /// Connections accepted per second: `accept_phases * c_avg / elapsed_s`.
    pub accept_rate: f64,
    /// Waits per second (select rate).
    pub getevents_rate: f64,
    /// Mean number of descriptors returned per wait.
    pub fds_per_call: f64,
    /// Product of the two above: descriptors per second.
    pub fd_rate: f64,
    /// Mean number of open connections, over the accepts.
    pub open_mean: f64,
    /// Mean number of connections served per work-phase.
    pub work_items_mean: f64,
    /// Replies per second.
    pub reply_rate: f64,
}

impl Derived {
    /// Computes the figures for `elapsed_s` seconds; those with nothing counted are zero.
    pub fn of(counters: &Counters, elapsed_s: f64) -> Self {
        let ratio = |above: u64, below: f64| if below > 0.0 { above as f64 / below } else { 0.0 };
        let accepted = counters.accepted.get();
        let calls = counters.getevents_calls.get();
        let phases = counters.accept_phases.get() as f64;
        let c_avg = ratio(accepted, phases);
        let getevents_rate = ratio(calls, elapsed_s);
        let fds_per_call = ratio(counters.getevents_ready.get(), calls as f64);
        Self {
            c_avg,
            accept_rate: ratio(accepted, elapsed_s),
            getevents_rate,
            fds_per_call,
            fd_rate: getevents_rate * fds_per_call,
            open_mean: ratio(counters.open_at_accept.get(), accepted as f64),
            work_items_mean: ratio(counters.work_items.get(), counters.work_phases.get() as f64),
            reply_rate: ratio(counters.replies.get(), elapsed_s),
        }
    }

    /// Returns the figures with their names and meanings, in the order of display.
    pub fn rows(&self) -> [(&'static str, f64, &'static str); 8] {
        [
            ("c_avg", self.c_avg, "connections accepted per accept-phase (C_avg)"),
            (
                "accept_rate",
                self.accept_rate,
                "accepts per second = accept_phases · c_avg / elapsed_s",
            ),
            ("getevents_rate", self.getevents_rate, "waits per second"),
            ("fds_per_call", self.fds_per_call, "descriptors returned per wait, mean"),
            ("fd_rate", self.fd_rate, "descriptors per second, the product of both"),
            ("open_mean", self.open_mean, "connections open, mean over the accepts"),
            ("work_items_mean", self.work_items_mean, "connections served per work-phase, mean"),
            ("reply_rate", self.reply_rate, "replies per second"),
        ]
    }
}

/// All counters over a period.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Length of the period, seconds.
    pub elapsed_s: f64,
    /// The parts, one per loop.
    pub loops: Vec<LoopReport>,
}

impl Report {
    /// Returns the merged counters of all loops.
    pub fn total(&self) -> Counters {
        let mut total = Counters::default();
        for part in &self.loops {
            total += &part.counters;
        }
        total
    }

    /// Returns the calls of all loops as one table, the most expensive first; empty if they were
    /// not profiled.
    pub fn calls(&self) -> Vec<CallRow> {
        let mut sum: Vec<CallRow> = Vec::new();
        for row in self.loops.iter().flat_map(|part| &part.calls) {
            match sum.iter_mut().find(|known| known.name == row.name) {
                Some(known) => {
                    known.count += row.count;
                    known.time_ns += row.time_ns;
                }
                None => sum.push(*row),
            }
        }
        sum.retain(|row| row.count > 0);
        sum.sort_by_key(|row| std::cmp::Reverse(row.time_ns));
        sum
    }

    /// Returns the report as JSON: `elapsed_s`, `total`, `loops`, and `calls` if they were
    /// profiled.
    pub fn to_json(&self) -> Value {
        let part = |counters: &Counters, calls: &[CallRow]| {
            let mut map = Map::new();
            for (name, value, _) in Derived::of(counters, self.elapsed_s).rows() {
                map.insert(name.into(), json!(value));
            }
            for (row, value) in TABLE.iter().zip(counters.values()) {
                map.insert(row.name.into(), value.into());
            }
            if !calls.is_empty() {
                let calls: Map<_, _> = calls
                    .iter()
                    .map(|row| {
                        (row.name.into(), json!({ "count": row.count, "time_ns": row.time_ns }))
                    })
                    .collect();
                map.insert("calls".into(), Value::Object(calls));
            }
            Value::Object(map)
        };
        let loops: Vec<_> =
            self.loops.iter().map(|each| part(&each.counters, &each.calls)).collect();
        json!({
            "elapsed_s": self.elapsed_s,
            "total": part(&self.total(), &self.calls()),
            "loops": loops,
        })
    }

    /// Returns the report as a table for a terminal. Counters that are zero are left out.
    pub fn to_table(&self) -> String {
        let total = self.total();
        let mut out = String::new();
        // Writing into a String cannot fail.
        let _ = writeln!(out, "weir: {:.1} s, {} loop(s)", self.elapsed_s, self.loops.len());
        for (name, value, help) in Derived::of(&total, self.elapsed_s).rows() {
            let _ = writeln!(out, "  {name:<20} {value:>16.2}  {help}");
        }
        for (row, value) in TABLE.iter().zip(total.values()).filter(|(_, value)| *value > 0) {
            let _ = writeln!(out, "  {:<20} {value:>16}  {}", row.name, row.help);
        }
        self.write_calls(&mut out);
        out
    }

    /// Writes the papers' profile: a call's share is of the loops' whole time, including waits.
    fn write_calls(&self, out: &mut String) {
        let calls = self.calls();
        if calls.is_empty() {
            return;
        }
        let loops_ns = self.elapsed_s * 1e9 * self.loops.len() as f64;
        let _ = writeln!(
            out,
            "  {:<12} {:>12} {:>12} {:>10} {:>8}",
            "call", "count", "time ms", "ns/call", "% time"
        );
        for row in calls {
            let _ = writeln!(
                out,
                "  {:<12} {:>12} {:>12.1} {:>10.0} {:>8.2}",
                row.name,
                row.count,
                row.time_ns as f64 / 1e6,
                row.time_ns as f64 / row.count as f64,
                100.0 * row.time_ns as f64 / loops_ns.max(1.0)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut counters = Counters::default();
        counters.accept_phases.add(4);
        counters.accepted.add(10);
        counters.getevents_calls.add(8);
        counters.getevents_ready.add(40);
        let calls = vec![CallRow { name: "read", count: 2, time_ns: 3_000 }];
        let part = LoopReport { counters, calls };
        Report { elapsed_s: 2.0, loops: vec![part.clone(), part] }
    }

    #[test]
    fn the_accept_identity_holds_in_the_json() {
        let json = report().to_json();
        let get = |name: &str| json["total"][name].as_f64().unwrap();
        assert_eq!(get("accept_rate"), get("accept_phases") * get("c_avg") / 2.0);
        assert_eq!(get("fd_rate"), get("getevents_rate") * get("fds_per_call"));
        assert_eq!(json["loops"].as_array().unwrap().len(), 2);
        assert_eq!(json["total"]["calls"]["read"]["count"], 4);
    }

    #[test]
    fn the_table_leaves_out_what_never_happened() {
        let table = report().to_table();
        assert!(table.contains("accepted                           20"));
        assert!(!table.contains("timeout_rate"));
        assert!(table.contains("read                    4"));
    }
}
