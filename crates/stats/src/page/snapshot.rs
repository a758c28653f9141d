//! A copy of a page: the numbers of all loops by name, their sums, and their JSON, which has the
//! keys of a server's own report.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::layout::{Layout, PageError, UPSTREAM_WORDS, upstreams_at, values_of};
use super::slot::{Owner, SlotCopy, State, Usage, copy};
use super::upstream::UpstreamState;
use super::words::Words;
use crate::{Counters, Derived, Merge, TABLE};

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
    /// Kind of the statistic.
    pub merge: Merge,
}

/// Numbers of a loop, or of a child process, at one publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoopSnapshot {
    /// Owner of the numbers.
    pub owner: Owner,
    /// Time of the publication by the owner's clock, nanoseconds of CLOCK_MONOTONIC.
    pub published_ns: u64,
    /// Counters in the order of the page, a count and a time for each call, and the upstreams.
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
    /// Time of the copy, nanoseconds since 1970. The clock may have been set since the server's
    /// start, and goes on while the machine is suspended.
    pub taken_unix_ns: u64,
}

impl Layout {
    /// Copies the slots of a page. `now_ns`: the time, nanoseconds of CLOCK_MONOTONIC; `unix_ns`:
    /// nanoseconds since 1970.
    ///
    /// # Errors
    /// [`PageError::Busy`] if no copy succeeded: its writer is paused in the middle of a
    /// publication, and the caller may try again later.
    pub fn snapshot(
        &self,
        words: &(impl Words + ?Sized),
        now_ns: u64,
        unix_ns: u64,
    ) -> Result<Snapshot, PageError> {
        for _ in 0..TRIES {
            let ended = Self::moves_ended(words).ok_or(PageError::Damaged)?;
            let loops = self.copy_slots(words)?;
            if Self::moves_begun(words) == Some(ended) {
                let layout = self.clone();
                return Ok(Snapshot { layout, loops, taken_ns: now_ns, taken_unix_ns: unix_ns });
            }
        }
        Err(PageError::Busy)
    }

    fn copy_slots(&self, words: &(impl Words + ?Sized)) -> Result<Vec<LoopSnapshot>, PageError> {
        let values = values_of(&self.description);
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
        Derived::of(&Self::counters(counters), elapsed_s).rows()
    }

    /// Returns counters by their names; those that the page does not have are 0.
    pub fn counters(named: &[Named]) -> Counters {
        let by_name: BTreeMap<&str, u64> =
            named.iter().filter_map(|row| Some((&*row.name, row.value?))).collect();
        let value = |name: &str| by_name.get(name).copied().unwrap_or(0);
        let values: Vec<u64> = TABLE.iter().map(|row| value(row.name)).collect();
        Counters::from_values(&values)
    }

    /// Returns the counters of each worker, merged over its slots, with the worker's index.
    pub fn workers(&self) -> Vec<(u64, Vec<Named>)> {
        let workers = self.by_worker().into_iter();
        workers.map(|(worker, loops)| (worker, self.merged(&loops))).collect()
    }

    /// Returns the present state of each upstream, as the loop knows it that has published last.
    pub fn upstreams(&self) -> Vec<UpstreamState> {
        let description = &self.layout.description;
        let loops: Vec<_> = self.loops.iter().collect();
        let Some(last) = latest(&loops) else { return Vec::new() };
        let numbers = last.values.get(upstreams_at(description)..).unwrap_or_default();
        let (states, _) = numbers.as_chunks::<UPSTREAM_WORDS>();
        let named = description.upstreams.iter().zip(states);
        named
            .map(|((name, servers), words)| UpstreamState::of_words(name, *servers, *words))
            .collect()
    }

    fn by_worker(&self) -> BTreeMap<u64, Vec<&LoopSnapshot>> {
        let mut workers: BTreeMap<u64, Vec<&LoopSnapshot>> = BTreeMap::new();
        for each in &self.loops {
            workers.entry(each.owner.worker).or_default().push(each);
        }
        workers
    }

    fn merged(&self, loops: &[&LoopSnapshot]) -> Vec<Named> {
        let rows = self.layout.description.counters.iter().enumerate();
        let last = latest(loops);
        rows.map(|(index, (name, merge, help))| {
            let values = loops.iter().map(|each| each.value(index, name));
            let value = match merge {
                Merge::Sum | Merge::SumNow => values.reduce(|a, b| Some(a?.saturating_add(b?))),
                Merge::Max => values.reduce(|a, b| Some(a?.max(b?))),
                Merge::Latest => last.map(|last| last.value(index, name)),
            };
            let value = value.unwrap_or(Some(0));
            Named { name: name.clone(), help: help.clone(), value, merge: *merge }
        })
        .collect()
    }

    /// Returns the snapshot as JSON with the keys of a report, and `pid`, `program`, `addresses`,
    /// `upstreams`, `started_unix_s` and `time_unix_s`. A counter that the kernel did not tell has
    /// no key.
    pub fn to_json(&self) -> Value {
        let description = &self.layout.description;
        let workers = self.by_worker().into_values();
        let loops: Vec<Value> = workers.map(|loops| self.part(&loops)).collect();
        let upstreams: Vec<Value> = self.upstreams().iter().map(UpstreamState::to_json).collect();
        json!({
            "pid": description.pid,
            "program": description.program,
            "addresses": description.addresses,
            "started_unix_s": description.started_unix_ns as f64 / 1e9,
            "time_unix_s": self.taken_unix_ns as f64 / 1e9,
            "elapsed_s": self.elapsed_s(),
            "total": self.part(&self.loops.iter().collect::<Vec<_>>()),
            "loops": loops,
            "upstreams": upstreams,
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

/// Returns the slot that was published last.
fn latest<'a>(loops: &[&'a LoopSnapshot]) -> Option<&'a LoopSnapshot> {
    loops.iter().max_by_key(|each| each.published_ns).copied()
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
