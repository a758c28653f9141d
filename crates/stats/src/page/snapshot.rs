//! A copy of a page: the numbers of all loops by name, their sums, and their JSON, which has the
//! keys of a server's own report.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::layout::{Layout, PageError};
use super::slot::{Owner, SlotCopy, State, Usage, copy};
use super::words::Words;
use crate::{Counters, Derived, TABLE};

/// Names of the counters that the kernel counts for a live loop, in the order of [`Usage`].
const OF_THE_KERNEL: [&str; 4] =
    ["cpu_user_ns", "cpu_system_ns", "context_switches_voluntary", "context_switches_involuntary"];

/// Number of copies of a page tried before it counts as busy, because numbers were moved.
const TRIES: u32 = 16;

/// A counter of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Name of the counter.
    pub name: String,
    /// Meaning of the value.
    pub help: String,
    /// Value; `None` if the kernel did not tell.
    pub value: Option<u64>,
    /// True for a high-water mark.
    pub is_max: bool,
}

/// Numbers of a loop, or of a child process, at one publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopSnapshot {
    /// Owner of the numbers.
    pub owner: Owner,
    /// Time of the publication by the owner's clock, nanoseconds of CLOCK_MONOTONIC.
    pub published_ns: u64,
    /// Counters in the order of the page, and a count and a time for each call.
    values: Vec<u64>,
    /// Counts of the kernel for a live owner; `None` if they are not known.
    usage: Option<Usage>,
}

/// A copy of a page in which each loop has the numbers of one publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Layout of the page, with its names.
    pub layout: Layout,
    /// Slots in use.
    pub loops: Vec<LoopSnapshot>,
    /// Time of the copy, nanoseconds of CLOCK_MONOTONIC.
    pub taken_ns: u64,
}

impl Layout {
    /// Copies the slots of a page. `now_ns`: the time, nanoseconds of CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// [`PageError::Busy`] if no copy succeeded: its writer is paused in the middle of a
    /// publication, and the caller may try again later.
    pub fn snapshot(
        &self,
        words: &(impl Words + ?Sized),
        now_ns: u64,
    ) -> Result<Snapshot, PageError> {
        for _ in 0..TRIES {
            let ended = Self::moves_ended(words).ok_or(PageError::Damaged)?;
            let loops = self.copy_slots(words)?;
            if Self::moves_begun(words) == Some(ended) {
                return Ok(Snapshot { layout: self.clone(), loops, taken_ns: now_ns });
            }
        }
        Err(PageError::Busy)
    }

    fn copy_slots(&self, words: &(impl Words + ?Sized)) -> Result<Vec<LoopSnapshot>, PageError> {
        let values = self.description.counters.len() + 2 * self.description.calls.len();
        let mut loops = Vec::new();
        for slot in 0..self.description.slots {
            let first = self.slot_at(slot).ok_or(PageError::Damaged)?;
            let copied = copy(words, first, values).ok_or(PageError::Busy)?;
            let SlotCopy { owner, published_ns, values } = copied;
            if owner.state != State::Free {
                let usage = Some(owner.usage_of_ended).filter(|_| owner.state != State::Live);
                loops.push(LoopSnapshot { owner, published_ns, values, usage });
            }
        }
        Ok(loops)
    }
}

impl Snapshot {
    /// Adds what the kernel counts for each live loop: `usage` returns it for an owner, without
    /// that of threads that have ended; `None` if it cannot be known.
    pub fn add_usage(&mut self, mut usage: impl FnMut(&Owner) -> Option<Usage>) {
        for each in self.loops.iter_mut().filter(|each| each.owner.state == State::Live) {
            let found =
                if each.owner.pid == 0 { Some(Usage::default()) } else { usage(&each.owner) };
            each.usage = found.map(|found| found.plus(each.owner.usage_of_ended));
        }
    }

    /// Returns the server's running time, seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.taken_ns.saturating_sub(self.layout.description.started_ns) as f64 / 1e9
    }

    /// Returns the merged counters of all loops.
    pub fn total(&self) -> Vec<Named> {
        self.merged(&self.loops.iter().collect::<Vec<_>>())
    }

    /// Returns the figures derived from counters of `elapsed_s` seconds, in the order of display.
    pub fn derived(counters: &[Named], elapsed_s: f64) -> [(&'static str, f64, &'static str); 8] {
        let by_name: BTreeMap<&str, u64> =
            counters.iter().filter_map(|row| Some((&*row.name, row.value?))).collect();
        let value = |name: &str| by_name.get(name).copied().unwrap_or(0);
        let values: Vec<u64> = TABLE.iter().map(|row| value(row.name)).collect();
        Derived::of(&Counters::from_values(&values), elapsed_s).rows()
    }

    fn merged(&self, loops: &[&LoopSnapshot]) -> Vec<Named> {
        let rows = self.layout.description.counters.iter().enumerate();
        rows.map(|(index, (name, is_max, help))| {
            let values = loops.iter().map(|each| each.value(index, name));
            let value = values.reduce(|sum, next| {
                let (sum, next) = (sum?, next?);
                Some(if *is_max { sum.max(next) } else { sum.saturating_add(next) })
            });
            let value = value.unwrap_or(Some(0));
            Named { name: name.clone(), help: help.clone(), value, is_max: *is_max }
        })
        .collect()
    }

    /// Returns the snapshot as JSON with the keys of a report, and `pid`, `program`, `addresses`,
    /// `started_unix_s` and `time_unix_s`. A counter that the kernel did not tell has no key.
    pub fn to_json(&self) -> Value {
        let description = &self.layout.description;
        let mut workers: BTreeMap<u64, Vec<&LoopSnapshot>> = BTreeMap::new();
        for each in &self.loops {
            workers.entry(each.owner.worker).or_default().push(each);
        }
        let loops: Vec<Value> = workers.into_values().map(|loops| self.part(&loops)).collect();
        let started_s = description.started_unix_ns as f64 / 1e9;
        json!({
            "pid": description.pid,
            "program": description.program,
            "addresses": description.addresses,
            "started_unix_s": started_s,
            "time_unix_s": started_s + self.elapsed_s(),
            "elapsed_s": self.elapsed_s(),
            "total": self.part(&self.loops.iter().collect::<Vec<_>>()),
            "loops": loops,
        })
    }

    fn part(&self, loops: &[&LoopSnapshot]) -> Value {
        let counters = self.merged(loops);
        let mut map = Map::new();
        for (name, value, _) in Self::derived(&counters, self.elapsed_s()) {
            map.insert(name.into(), json!(value));
        }
        for Named { name, value, .. } in counters {
            if let Some(value) = value {
                map.insert(name, value.into());
            }
        }
        let calls = self.calls(loops);
        if !calls.is_empty() {
            map.insert("calls".into(), Value::Object(calls));
        }
        Value::Object(map)
    }

    fn calls(&self, loops: &[&LoopSnapshot]) -> Map<String, Value> {
        let first = self.layout.description.counters.len();
        let sum = |index: usize| {
            loops
                .iter()
                .filter_map(|each| each.values.get(index))
                .fold(0, |a: u64, b| a.saturating_add(*b))
        };
        let names = self.layout.description.calls.iter().enumerate();
        names
            .map(|(index, name)| (name, sum(first + 2 * index), sum(first + 2 * index + 1)))
            .filter(|(_, count, _)| *count > 0)
            .map(|(name, count, time_ns)| {
                (name.clone(), json!({ "count": count, "time_ns": time_ns }))
            })
            .collect()
    }
}

impl LoopSnapshot {
    fn value(&self, index: usize, name: &str) -> Option<u64> {
        let published = self.values.get(index).copied();
        let Some(kernel) = OF_THE_KERNEL.iter().position(|one| *one == name) else {
            return published;
        };
        if self.owner.state != State::Live {
            return published;
        }
        let Usage { user_ns, system_ns, voluntary, involuntary } = self.usage?;
        let counts = [user_ns, system_ns, voluntary, involuntary];
        Some(published?.saturating_add(counts[kernel]))
    }
}
