//! The page of statistics of a running server: a file of the run directory that other processes
//! map, and the side of each loop, which publishes its counters there.
//!
//! A loop publishes before a wait, and in the middle of a long accept-phase or work-phase every few
//! connections. A loop that has little to do in each of many iterations leaves some waits out: it
//! copies at most once every [`FRESH_NS`], and the first wait that lasts longer than [`PENDING_NS`]
//! is interrupted for the rest. So what is read is never older than that. A loop makes no system
//! call for a publication and reads no clock: its time is that of the loop's iteration.

use std::sync::Arc;

use weir_stats::page::{Description, Layout, Owner, SlotWriter, State, Usage, Words};
use weir_stats::{CallRow, Counters, LoopReport, Merge, TABLE};
use weir_sys::process::{ids_in_proc, monotonic_ns, unix_ns};
use weir_sys::profile;
use weir_sys::run_dir::RunFile;
use weir_sys::shared_page::SharedNumbers;

use crate::config::{Address, Config, ErrorLog, Upstream};

/// Weight of the connections accepted or served after which a long phase publishes.
const WEIGHT_MAX: u32 = 64;

/// Time for which a publication counts as fresh, nanoseconds. A copy costs a quarter of a
/// microsecond, most of it cache misses: before each wait that is a hundredth of a cheap reply.
const FRESH_NS: u64 = 500_000;

/// Time within which what a loop left unpublished before a wait is published, nanoseconds. A wait
/// with a shorter limit has the kernel set its clock anew each time, which costs more than a copy.
const PENDING_NS: u64 = 20_000_000;

/// Weight of a connection that was accepted.
pub(crate) const ACCEPTED: u32 = 1;

/// Weight of a connection that was served in a work-phase, which takes longer.
pub(crate) const SERVED: u32 = 4;

/// Weight of a connection that is served as soon as it is accepted: each publishes.
pub(crate) const EAGER: u32 = WEIGHT_MAX;

/// A page of statistics, shared by the loops of a server.
#[derive(Clone, Debug)]
pub(crate) struct StatPage(Arc<Page>);

#[derive(Debug)]
struct Page {
    numbers: SharedNumbers,
    layout: Layout,
    /// First slot of the child processes, and their number for each worker.
    children_from: usize,
    children: usize,
}

/// A page at the start of a server, with the file that publishes it.
#[derive(Debug)]
pub(crate) struct NewPage {
    pub(crate) page: StatPage,
    /// Removes the file when dropped; `None` if there is no directory for one.
    pub(crate) file: Option<RunFile>,
}

impl StatPage {
    /// Creates the page of a server with `children` processes for each worker, unless it is
    /// switched off. `first_pid`: the process that was started first. If its file cannot be created
    /// the operator is told, and the page is not seen by other processes.
    pub(crate) fn create(
        config: &Config,
        addresses: &[Address],
        children: usize,
        first_pid: u32,
    ) -> Option<NewPage> {
        if !config.stat_page {
            return None;
        }
        let (pid, _) = ids_in_proc();
        let calls = if config.profile_calls { profile::NAMES } else { &[] };
        let children_from = config.workers;
        let layout = Layout::new(Description {
            pid: pid.into(),
            first_pid: first_pid.into(),
            started_unix_ns: unix_ns(),
            started_ns: monotonic_ns(),
            slots: children_from + config.workers * children,
            addresses: addresses.iter().map(ToString::to_string).collect(),
            target_ns: config.policy.target_ns,
            upstreams: config.upstreams.iter().map(name_of).collect(),
            calls: calls.iter().map(ToString::to_string).collect(),
            ..Description::of_this_build()
        });
        let tell = |why: String| {
            config.errors.warn(&format!("statistics cannot be read by `weir stat`: {why}"));
        };
        let words = layout.words();
        let (numbers, file) = match file_of(pid, words) {
            Ok((numbers, file)) => (numbers, Some(file)),
            Err(why) => {
                tell(why);
                (SharedNumbers::anonymous(words).ok()?, None)
            }
        };
        layout.write_header(numbers.numbers());
        let page = Page { numbers, layout, children_from, children };
        Some(NewPage { page: Self(Arc::new(page)), file })
    }

    /// Returns the publisher of a worker.
    pub(crate) fn of_worker(&self, worker: usize) -> Publisher {
        self.publisher(worker, worker)
    }

    /// Returns the publisher of one of a worker's children.
    pub(crate) fn of_child(&self, worker: usize, child: usize) -> Publisher {
        let slot = self.0.children_from + worker * self.0.children + child;
        self.publisher(slot, worker)
    }

    /// Returns the layout of the page.
    pub(crate) fn layout(&self) -> &Layout {
        &self.0.layout
    }

    fn publisher(&self, slot: usize, worker: usize) -> Publisher {
        let owner = Owner { worker: worker as u64, ..Owner::default() };
        Publisher { page: Some(self.clone()), slot, owner, ..Publisher::default() }
    }
}

impl Words for StatPage {
    #[inline]
    fn load(&self, index: usize) -> Option<u64> {
        self.0.numbers.numbers().load(index)
    }
}

impl NewPage {
    /// Lets other processes find the page.
    pub(crate) fn publish(&self, errors: &ErrorLog) {
        if let Some(Err(error)) = self.file.as_ref().map(RunFile::publish) {
            errors.warn(&format!("statistics cannot be read by `weir stat`: {error}"));
        }
    }
}

/// Returns the name of an upstream, and the number of its servers.
fn name_of(upstream: &Upstream) -> (String, u64) {
    (upstream.name.clone(), upstream.servers.len() as u64)
}

fn file_of(pid: u32, words: usize) -> Result<(SharedNumbers, RunFile), String> {
    let file = RunFile::create(pid)?;
    match SharedNumbers::of_file(std::os::fd::AsFd::as_fd(&file), words) {
        Ok(numbers) => Ok((numbers, file)),
        Err(error) => Err(format!("no room for {} KiB: {error}", words / 128)),
    }
}

/// The side of one loop, or of one child process: the only writer of a slot.
#[derive(Debug, Default)]
pub(crate) struct Publisher {
    page: Option<StatPage>,
    slot: usize,
    owner: Owner,
    /// CLOCK_MONOTONIC when the loop's clock showed 0, nanoseconds.
    origin_ns: u64,
    /// Weight of what was done since the last publication.
    weight: u32,
    /// [`activity`] at the last publication.
    activity: u64,
    /// Time of the last publication on the loop's clock, nanoseconds; `None` before the first.
    published_ns: Option<u64>,
    /// True if the last wait began without a publication.
    is_pending: bool,
    /// Buffer for the calls and the upstreams.
    rest: Vec<u64>,
}

impl Publisher {
    /// Takes the slot for the calling thread, whose clock shows `now_ns`.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        if self.page.is_none() {
            return;
        }
        let (pid, tid) = ids_in_proc();
        self.origin_ns = monotonic_ns().saturating_sub(now_ns);
        self.owner = Owner { state: State::Live, pid: pid.into(), tid: tid.into(), ..self.owner };
        self.set_owner();
    }

    /// Takes the slot for counters that no thread works for.
    pub(crate) fn begin_without_thread(&mut self) {
        self.owner.state = State::Live;
        self.set_owner();
    }

    /// Records that threads named after the worker do its work, and the usage of those that have
    /// ended.
    pub(crate) fn note_threads(&mut self, usage_of_ended: Usage) {
        self.owner = Owner { has_threads: true, usage_of_ended, ..self.owner };
        self.set_owner();
    }

    /// Returns whether counters are published at all.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.page.is_some()
    }

    /// Adds the weight of a connection accepted or served; returns whether to publish now.
    #[inline]
    pub(crate) fn is_due(&mut self, weight: u32) -> bool {
        self.weight += weight;
        self.weight >= WEIGHT_MAX && self.is_on()
    }

    /// Returns whether connections have been accepted, served or closed, or a policy has changed
    /// something, since the last publication, or nothing was published yet.
    pub(crate) fn has_changed(&self, counters: &Counters) -> bool {
        let is_first = self.published_ns.is_none();
        self.is_on() && (is_first || activity(counters) != self.activity)
    }

    /// Returns whether to publish before a wait that begins at `now_ns` on the loop's clock. If
    /// not, the wait has to end at [`Self::due_ns`].
    #[inline]
    pub(crate) fn is_due_before_wait(&mut self, now_ns: u64) -> bool {
        let is_fresh = self.published_ns.is_some_and(|at_ns| now_ns < at_ns + FRESH_NS);
        self.is_pending = is_fresh && self.is_on();
        !is_fresh && self.is_on()
    }

    /// Returns when what was left out before the last wait is to be published, by the loop's clock.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.published_ns.filter(|_| self.is_pending).map(|at_ns| at_ns + PENDING_NS)
    }

    /// Publishes the counters of a loop as of `now_ns` on its clock. `upstreams`: the numbers of
    /// their states.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        now_ns: u64,
        counters: &Counters,
        calls: &[profile::Row],
        upstreams: &[u64],
    ) {
        self.weight = 0;
        self.published_ns = Some(now_ns);
        self.is_pending = false;
        self.activity = activity(counters);
        self.rest.clear();
        self.rest.extend(calls.iter().flat_map(|row| [row.count, row.time_ns]));
        self.rest.extend(upstreams);
        if let Some(slot) = self.slot() {
            slot.publish(self.origin_ns + now_ns, &counters.values(), &self.rest);
        }
    }

    /// Publishes a report as the sum of what has ended.
    pub(crate) fn publish_sum(&self, report: &LoopReport) {
        if let Some(slot) = self.slot() {
            slot.publish(monotonic_ns(), &report.counters.values(), &numbers(&report.calls));
        }
    }

    /// Publishes the last report of a loop. `upstreams`: the numbers of their states.
    pub(crate) fn finish(&self, report: &LoopReport, upstreams: &[u64]) {
        if let Some(slot) = self.slot() {
            let calls = if self.has_calls() { numbers(&report.calls) } else { Vec::new() };
            let rest = [&calls, upstreams].concat();
            slot.finish(monotonic_ns(), &report.counters.values(), &rest);
        }
    }

    /// Takes over the numbers of a process that was killed: as last published, or as of its last
    /// report where that is later.
    pub(crate) fn last_published(&self, report: &LoopReport) -> LoopReport {
        let Some(values) = self.slot().map(|slot| slot.values()) else { return report.clone() };
        let Some((values, calls)) = values.split_at_checked(TABLE.len()) else {
            return report.clone();
        };
        let counters = later_of(values, &report.counters);
        let (pairs, _) = calls.as_chunks::<2>();
        let named = profile::NAMES.iter().zip(pairs).filter(|_| self.has_calls());
        let calls = named.map(|(name, &[count, time_ns])| {
            let told = report.calls.iter().find(|row| row.name == *name);
            let (told, told_ns) = told.map_or((0, 0), |row| (row.count, row.time_ns));
            CallRow { name, count: count.max(told), time_ns: time_ns.max(told_ns) }
        });
        LoopReport { counters, calls: calls.collect() }
    }

    /// Adds an ended process to the sum, in place of the slot that it had.
    pub(crate) fn fold(&self, sum: &LoopReport, ended: &Publisher) {
        let (Some(page), Some(slot)) = (&self.page, ended.slot()) else { return };
        page.0.layout.move_between(page.0.numbers.numbers(), || {
            self.publish_sum(sum);
            slot.free();
        });
    }

    fn has_calls(&self) -> bool {
        self.page.as_ref().is_some_and(StatPage::has_calls)
    }

    fn set_owner(&self) {
        if let Some(slot) = self.slot() {
            slot.set_owner(&self.owner);
        }
    }

    #[inline]
    fn slot(&self) -> Option<SlotWriter<'_>> {
        let Page { numbers, layout, .. } = &*self.page.as_ref()?.0;
        layout.slot(numbers.numbers(), self.slot)
    }
}

impl StatPage {
    fn has_calls(&self) -> bool {
        !self.0.layout.description.calls.is_empty()
    }
}

/// Returns published counters, but each that a report has higher as that has it: it was made after
/// the last publication. What was a present state of the process alone has ended with it.
fn later_of(published: &[u64], report: &Counters) -> Counters {
    let rows = TABLE.iter().zip(published.iter().zip(report.values()));
    let later = rows.map(|(row, (&published, told))| match row.merge {
        Merge::Sum | Merge::Max => published.max(told),
        Merge::SumNow => 0,
        Merge::Latest => published,
    });
    Counters::from_values(&later.collect::<Vec<_>>())
}

/// Returns a number that changes with whatever a group of threads does for a connection, and with
/// what a policy changes at a listener, also while no connection comes.
fn activity(counters: &Counters) -> u64 {
    let Counters { reads, accepted, accept_would_block, bytes_out, closed, .. } = counters;
    let Counters { overloads, overloaded_ns, backlog_changes, syn_filter_changes, .. } = counters;
    let of_connections = [reads, accepted, accept_would_block, bytes_out, closed];
    let of_policies = [overloads, overloaded_ns, backlog_changes, syn_filter_changes];
    let all = of_connections.iter().chain(&of_policies);
    all.fold(0, |sum: u64, counter| sum.wrapping_add(counter.get()))
}

fn numbers(calls: &[CallRow]) -> Vec<u64> {
    calls.iter().flat_map(|row| [row.count, row.time_ns]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_overload_is_published_though_no_connection_comes() {
        let page = Page {
            numbers: SharedNumbers::anonymous(1).unwrap(),
            layout: Layout::new(Description::of_this_build()),
            children_from: 0,
            children: 0,
        };
        let page = Some(StatPage(Arc::new(page)));
        let changes: [fn(&mut Counters); 4] = [
            |counters| counters.overloads.one(),
            |counters| counters.overloaded_ns.add(1),
            |counters| counters.backlog_changes.one(),
            |counters| counters.syn_filter_changes.one(),
        ];
        for change in changes {
            let mut publisher = Publisher { page: page.clone(), ..Publisher::default() };
            let mut counters = Counters::default();
            assert!(publisher.has_changed(&counters), "nothing was published yet");
            publisher.publish(0, &counters, &[], &[]);
            assert!(!publisher.has_changed(&counters));
            change(&mut counters);
            assert!(publisher.has_changed(&counters));
        }
    }

    #[test]
    fn a_killed_process_leaves_what_it_told_later_than_it_published() {
        let mut published = Counters::default();
        published.requests.add(5);
        published.accepted.add(3);
        let mut told = published.clone();
        told.requests.add(1);
        published.accepted.one();
        let at = |name: &str| TABLE.iter().position(|row| row.name == name).unwrap();
        let mut values = published.values();
        (values[at("accept_queue")], values[at("memory_used_bytes")]) = (7, 9);
        let later = later_of(&values, &told);
        assert_eq!((later.requests.get(), later.accepted.get()), (6, 4));
        assert_eq!((later.accept_queue.get(), later.memory_used_bytes.get()), (0, 9));
    }
}
