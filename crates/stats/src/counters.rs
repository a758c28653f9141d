//! The counters of one loop and the table that describes them.

use std::ops::AddAssign;

/// A monotonic counter, or a high-water mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter(u64);

// Built with `--cfg weir_counters_off`, the methods that count do nothing: the one way to measure
// what counting costs. No release is built so.
impl Counter {
    /// Adds one.
    #[inline(always)]
    pub fn one(&mut self) {
        self.add(1);
    }

    /// Adds `more`.
    #[inline(always)]
    pub fn add(&mut self, more: u64) {
        if cfg!(not(weir_counters_off)) {
            self.0 += more;
        }
    }

    /// Raises the mark to `value` if that is larger.
    #[inline(always)]
    pub fn raise(&mut self, value: u64) {
        if cfg!(not(weir_counters_off)) && value > self.0 {
            self.0 = value;
        }
    }

    /// Returns the value.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Kind of a statistic, and with it the rule for merging it over several loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// A counter: the sum.
    #[default]
    Sum,
    /// A present state of each loop: the sum.
    SumNow,
    /// A high-water mark: the maximum.
    Max,
    /// A present state that all loops share: what the loop says that has published last.
    Latest,
}

impl Merge {
    /// Kinds with their names in a page.
    const NAMES: [(Self, &str); 4] = [
        (Self::Sum, "sum"),
        (Self::SumNow, "sum-now"),
        (Self::Max, "max"),
        (Self::Latest, "latest"),
    ];

    /// Returns whether the statistic only rises while the server runs.
    pub fn is_counter(self) -> bool {
        self == Self::Sum
    }

    /// Returns the name in a page.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(kind, _)| *kind == self).map_or("sum", |(_, name)| name)
    }

    /// Returns the kind of a name; one that another build has given is a counter.
    pub fn named(name: &str) -> Self {
        let found = Self::NAMES.iter().find(|(_, each)| *each == name);
        found.map_or(Self::Sum, |(kind, _)| *kind)
    }
}

/// A row of the table of counters.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name of the counter in the JSON.
    pub name: &'static str,
    /// Description of the value.
    pub help: &'static str,
    /// Kind of the statistic.
    pub merge: Merge,
}

macro_rules! counters {
    ($($name:ident $merge:ident $help:literal),+ $(,)?) => {
        /// The counters of one loop.
        #[derive(Clone, Debug, Default)]
        pub struct Counters {
            $(#[doc = $help] pub $name: Counter),+
        }

        /// The table of counters: name and meaning.
        pub const TABLE: &[Row] = &[
            $(Row { name: stringify!($name), help: $help, merge: Merge::$merge }),+
        ];

        impl Counters {
            /// Returns the values in the order of [`TABLE`].
            #[inline]
            pub fn values(&self) -> [u64; TABLE.len()] {
                [$(self.$name.get()),+]
            }

            fn values_mut(&mut self) -> [&mut u64; TABLE.len()] {
                [$(&mut self.$name.0),+]
            }
        }
    };
}

counters! {
    getevents_calls Sum "getevents-phases: calls of the event mechanism's wait",
    getevents_ready Sum "descriptors reported by those calls",
    event_notices Sum "notices taken one by one: signals, completions",
    event_overflows Sum "times the kernel's queue of notices overflowed",
    event_swept Sum "members checked in the full sweeps that followed",
    event_stale Sum "notices for members that were removed, or were not ready",
    event_coalesced Sum "notices with nothing new about their descriptor",
    event_checked Sum "members checked one by one, because no notice would come",
    event_rearmed Sum "members armed again after a notice",
    event_batched Sum "changes of interest submitted together with others",
    event_deleted Sum "members removed from the kernel's set by a call before their close",
    event_discarded Sum "notices discarded after an overflow, of those taken",
    event_takes Sum "calls that took notices, those after an overflow aside",
    event_taken_max Max "maximum number of notices taken by one call",
    event_fallbacks Sum "calls of the mechanism that stands in after an overflow",
    accept_phases Sum "accept-phases entered (N_phases)",
    accepted Sum "connections accepted",
    accepts_max Max "maximum number of connections accepted in one accept-phase",
    accept_queue_timed Sum "accepts whose time in the queue is known (--accept-queue-times: all)",
    accept_queue_ns Sum "time in the accept queue before these accepts, nanoseconds",
    accept_queue_ns_max Max "maximum time in the accept queue before one of them, nanoseconds",
    accept_would_block Sum "accepts that found no connection (EWOULDBLOCK)",
    accept_failed Sum "accepts that failed for lack of descriptors or memory",
    accept_aborted Sum "connections lost before they were accepted (ECONNABORTED)",
    open_at_accept Sum "open connections, summed over the accepts: the numerator of the mean",
    open_max Max "maximum number of open connections in one loop",
    work_phases Sum "work-phases with work",
    work_items Sum "connections served in work-phases",
    work_cuts Sum "work-phases interrupted to accept other connections",
    work_items_max Max "maximum number of connections served in one work-phase",
    reads Sum "reads of connections",
    read_would_block Sum "reads that found nothing (EWOULDBLOCK)",
    gone_before_read Sum "connections whose client had gone before the first byte was read",
    gone Sum "connections lost to a reset or a broken pipe after that",
    never_completed Sum "connections accepted, and closed without one complete reply",
    requests Sum "valid requests",
    replies Sum "replies sent completely",
    replies_cut Sum "replies cut short by the client, a deadline or a change of the file",
    replies_changed Sum "replies cut short because the file changed or could not be read",
    yields Sum "times a connection yielded to others",
    bytes_in Sum "bytes read",
    bytes_out Sum "bytes written",
    status_2xx Sum "replies with a 2xx status",
    status_3xx Sum "replies with a 3xx status",
    status_4xx Sum "replies with a 4xx status",
    status_5xx Sum "replies with a 5xx status",
    refused_requests Sum "requests refused as malformed, too large, not supported or in a loop",
    closed Sum "connections closed, each for one reason: the sum of end_* and timeout_*",
    end_finished Sum "connections closed after their last reply",
    end_refused Sum "connections closed because a request was refused",
    end_turned_away Sum "connections closed after a 503 because of the load",
    end_client_closed Sum "connections closed because the client had closed its side",
    end_client_reset Sum "connections closed because the client had reset them or disconnected",
    end_file_changed Sum "connections closed because a file changed in the middle of a reply",
    end_drained Sum "connections closed because the server stopped",
    end_evicted Sum "connections closed to make room",
    end_stale Sum "connections closed because their request had waited too long under overload",
    end_unfair Sum "connections closed because their source had used up its share under overload",
    end_memory Sum "connections closed because the memory budget was nearly used up",
    end_memory_refused Sum "connections closed as they, or a request, were refused for memory",
    end_client_limit Sum "connections closed because their client had as many open as it may",
    end_departed Sum "connections closed under overload because their client had disconnected",
    end_proxy_header Sum "connections closed because they did not begin with a PROXY header",
    end_tls Sum "connections closed as their client broke the rules of TLS, or spoke without it",
    end_upstream Sum "connections closed because an upstream broke off in the middle of a reply",
    end_failed Sum "connections closed because the kernel refused an operation or a process died",
    timeout_header Sum "connections cut at the header deadline",
    timeout_body Sum "connections cut at the body deadline",
    timeout_idle Sum "idle connections closed at their deadline",
    timeout_request Sum "connections cut at the deadline of the whole request",
    timeout_rate Sum "replies cut because the client read below the minimum rate",
    timeout_stall Sum "replies cut because the client took nothing for the stall timeout",
    evicted Sum "connections that waited for their client, closed to make room",
    overloads Sum "times a listener was found overloaded",
    overloaded_ns Sum "time for which listeners were overloaded, nanoseconds",
    queue_asked Sum "queries of the length of an accept queue",
    accept_queue SumNow "connections in the accept queues as of now, where a policy watches them",
    accept_backlog SumNow "bounds of the accept queues of the loops' own sockets as of now",
    queue_max Max "maximum length of an accept queue seen",
    backlog_changes Sum "changes of the bound of an accept queue",
    syn_filter_changes Sum "calls that attached, changed or detached the SYN filter",
    syn_filter_failed Sum "calls for the SYN filter that failed",
    syn_dropped Sum "connection requests dropped by the SYN filter for lack of a token",
    syn_dropped_unfair Sum "of these, requests of sources that had used up their share",
    syn_random_ppm Max "connection requests dropped at random as of now, per million (not counted)",
    refused_idle Sum "refusals because of load while the loop had time: 0 unless weir has a bug",
    refused_excess Sum "connections accepted and refused because the queue was too long",
    refused_stale Sum "connections accepted and refused because they had waited too long",
    refused_unfair Sum "requests on open connections refused as their source had used up its share",
    refused_memory Sum "connections accepted and refused because the memory budget was used up",
    refused_memory_requests Sum "requests refused because the memory budget was used up",
    refused_client_connections Sum "connections refused because of --client-connections",
    refused_client_requests Sum "requests answered with 429 because of --client-requests",
    client_bandwidth_pauses Sum "pauses of connections because of --client-bandwidth",
    departed Sum "connections closed unread because their client had disconnected",
    turned_away Sum "of the refused connections, those answered with 503",
    deferred_max Max "maximum number of deferred connections, served newest first",
    closed_by_pressure Sum "connections closed after a reply because too many were open",
    closed_by_share Sum "of these, connections of sources that had used up their share",
    tls_full Sum "TLS handshakes with a new key exchange and a signature",
    tls_full_ns Sum "processing time of full TLS handshakes, nanoseconds",
    tls_resumed Sum "TLS handshakes that resumed an earlier session",
    tls_resumed_ns Sum "processing time of resumed TLS handshakes, nanoseconds",
    tls_failed Sum "TLS handshakes that failed",
    tls_unfinished Sum "connections that ended before their TLS handshake was over",
    tls_plain Sum "connections of clients that spoke without TLS where it is expected: 400",
    upstream_requests Sum "requests forwarded to upstreams",
    upstream_waited Sum "of these, requests that had to wait for a place",
    upstream_connects Sum "connections to upstreams begun",
    upstream_reused Sum "requests sent on a connection to an upstream that was kept",
    upstream_repeated Sum "requests for which another connection was tried, because one could \
                           not be made or a kept one had ended",
    upstream_tls_full Sum "TLS handshakes with upstreams that had a new key exchange",
    upstream_tls_resumed Sum "TLS handshakes with upstreams that resumed an earlier session",
    upstream_tls_certificate Sum "requests whose upstream's certificate is not trusted",
    upstream_tls_alert Sum "requests whose upstream sent a TLS alert",
    upstream_tls_protocol Sum "requests whose upstream broke the rules of TLS, or speaks none",
    upstream_failed Sum "requests whose upstream was not there, or broke off",
    upstream_timeouts Sum "requests whose upstream took too long: 504, or a reply cut short",
    upstream_timeout_connect Sum "of these, those without a connection within --connect-timeout",
    upstream_timeout_first_byte Sum "of these, those without a reply within --first-byte-timeout",
    upstream_timeout_idle Sum "of these, those stopped for --upstream-idle-timeout",
    upstream_timeout_whole Sum "of these, those not over within --upstream-timeout",
    upstream_unavailable Sum "requests answered with 502 at once: checks find every server down",
    upstream_lacks Sum "requests answered with 503 for lack of a descriptor, memory or a port here",
    upstream_stale Sum "requests refused with 503 after the delay target, without a place",
    upstream_excess Sum "requests refused with 503 because too many waited for a place",
    upstream_syn_dropped Sum "connection requests dropped as too many waited for the only upstream",
    upstream_syn_dropped_again Sum "SYNs dropped for the only upstream that were dropped before",
    upstream_departed Sum "requests whose client had gone before their reply began",
    upstream_limit Latest "maximum number of requests in flight at all upstreams, as of now",
    upstream_in_flight Latest "requests in flight at all upstreams as of now",
    upstream_waiting Latest "requests that wait for a place at an upstream as of now",
    upstream_waiting_max Max "maximum number of requests that have waited for a place",
    upstream_spliced_bytes Sum "bytes of content that the kernel passed on from socket to socket",
    proxy_buffered_bytes Sum "bytes of replies that waited in memory for slow clients",
    proxy_buffers_bytes SumNow "memory in which replies and content wait as of now, bytes",
    upstream_checks Sum "health checks of servers of upstreams",
    upstream_checks_failed Sum "of these, checks that the server failed",
    upstream_servers_down Latest "servers of upstreams that their checks find down, as of now",
    proxy_cache_hits Sum "requests answered with a fresh stored reply of an upstream",
    proxy_cache_misses Sum "requests forwarded because no stored reply would do",
    proxy_cache_stale Sum "requests answered with a stale stored reply",
    proxy_cache_revalidated Sum "stored replies that an upstream said are still valid",
    proxy_cache_collapsed Sum "requests that waited for the reply to another one",
    proxy_cache_stored Sum "replies of upstreams stored",
    proxy_cache_evicted Sum "resources whose stored replies were evicted for lack of room",
    proxy_cache_bytes SumNow "size of the stored replies as of now, bytes",
    cache_hits Sum "lookups that found fresh content in the cache",
    cache_misses Sum "lookups of content not in the cache",
    cache_revalidated Sum "cached content checked against its file and kept",
    cache_evicted Sum "cached content evicted for lack of room or descriptors",
    cache_reloaded Sum "cached content found changed and loaded again",
    listings_made Sum "directory listings made",
    listing_parts Sum "parts in which directory listings were made",
    listing_part_rows_max Max "maximum number of entries and rows in one part",
    compressed_replies Sum "replies with a file's content compressed on the fly",
    compressed_saved_bytes Sum "bytes that these replies were shorter, before TLS",
    compressed_missed Sum "requests for a file none of whose compressed forms was ready, 304s too",
    compressions Sum "compressed forms of files made on the fly",
    compressions_useless Sum "forms made on the fly that were not smaller than their file",
    compression_ns Sum "processor time that forms made on the fly took, nanoseconds",
    compressed_bytes SumNow "size of the compressed forms kept as of now, bytes",
    memory_shortages Sum "times a loop found the memory budget nearly used up",
    memory_limit_bytes Latest "memory budget of the server, bytes; 0 without one",
    memory_used_bytes Latest "memory that the server has allocated as of now, bytes",
    memory_free_bytes Latest "memory that was freed and is still resident as of now, bytes",
    memory_connections_bytes Latest "memory of connections and what they hold as of now, bytes",
    memory_buffers_bytes Latest "memory of buffers kept for reuse as of now, bytes",
    memory_tls_bytes Latest "memory of TLS sessions as of now, bytes",
    memory_content_bytes Latest "memory of content that is cached or being sent as of now, bytes",
    memory_listings_bytes Latest "memory of listings under construction as of now, bytes",
    memory_upstreams_bytes Latest "memory of connections to upstreams as of now, bytes",
    memory_clients_bytes Latest "memory of the table of clients, bytes",
    memory_stacks_bytes Latest "memory of the stacks of threads and fibers as of now, bytes",
    log_lines Sum "access-log lines passed to the log's writer",
    log_lines_lost Sum "access-log lines lost: the writer could not keep up, or could not write",
    cold_lookups Sum "lookups of names that had to come from a disk",
    cold_reads Sum "reads of cached files that had to come from a disk",
    helper_fetches Sum "fetches submitted to helpers",
    helper_fetched Sum "of these, fetches done",
    helper_waiting_max Max "maximum number of connections waiting for helpers",
    helper_busy_ns Sum "time for which helpers were busy, nanoseconds",
    ring_enters Sum "calls that entered the ring",
    ring_entries Sum "operations and cancellations submitted to the ring",
    ring_completions Sum "completions",
    ring_overflows Sum "times the completion queue overflowed",
    ring_copied Sum "zero-copy sends that the kernel copied nevertheless",
    ring_starved Sum "receives that found no buffer, and were begun again",
    ring_pending_at_exit Sum "operations pending when the loop ended",
    ring_buffers_out_at_exit Sum "receive buffers not returned when the loop ended",
    ring_slots_taken_at_exit Sum "slots taken when the loop ended",
    fibers_begun Sum "fibers created",
    fibers_ended Sum "of these, fibers that have ended",
    fibers_max Max "maximum number of fibers in one loop",
    fiber_switches Sum "switches to a fiber",
    fibers_runnable Sum "runnable fibers, summed over the getevents-phases",
    fibers_runnable_max Max "maximum number of runnable fibers after a getevents-phase",
    threads_max Max "maximum number of threads, or child processes, in one loop",
    lock_contended Sum "times a thread had to wait for the lock of its group",
    children_lost Sum "child processes that ended without a command",
    context_switches_voluntary Sum "voluntary context switches of the loops' threads",
    context_switches_involuntary Sum "involuntary context switches of the loops' threads",
    getevents_user_ns Sum "user time of getevents-phases, nanoseconds (--phase-times)",
    getevents_system_ns Sum "system time of getevents-phases, nanoseconds (--phase-times)",
    accept_user_ns Sum "user time of accept-phases, nanoseconds (--phase-times)",
    accept_system_ns Sum "system time of accept-phases, nanoseconds (--phase-times)",
    work_user_ns Sum "user time of work-phases, nanoseconds (--phase-times)",
    work_system_ns Sum "system time of work-phases, nanoseconds (--phase-times)",
    phases_timed Sum "phases of which these are the times",
    cpu_user_ns Sum "user time of the loops, nanoseconds",
    cpu_system_ns Sum "system time of the loops, nanoseconds",
}

impl Counters {
    /// Counts replies by status class: 2xx, 3xx, 4xx, 5xx.
    #[inline]
    pub fn statuses(&mut self, [success, redirect, client, server]: [u64; 4]) {
        self.status_2xx.add(success);
        self.status_3xx.add(redirect);
        self.status_4xx.add(client);
        self.status_5xx.add(server);
    }

    /// Replaces the processor times of a loop, nanoseconds, which are measured by the kernel.
    pub fn set_cpu(&mut self, user_ns: u64, system_ns: u64) {
        self.cpu_user_ns = Counter(user_ns);
        self.cpu_system_ns = Counter(system_ns);
    }

    /// Replaces the context switches of a loop, which are counted by the kernel.
    pub fn set_switches(&mut self, voluntary: u64, involuntary: u64) {
        self.context_switches_voluntary = Counter(voluntary);
        self.context_switches_involuntary = Counter(involuntary);
    }

    /// Creates counters from their [`Counters::values`]; missing ones are zero.
    pub fn from_values(values: &[u64]) -> Self {
        let mut counters = Self::default();
        for (mine, value) in counters.values_mut().into_iter().zip(values) {
            *mine = *value;
        }
        counters
    }

    /// Replaces what all loops share of the upstreams: the limit, the requests in flight and
    /// waiting, and the servers that are down.
    pub fn set_upstreams(&mut self, [limit, in_flight, waiting, down]: [u64; 4]) {
        self.upstream_limit = Counter(limit);
        self.upstream_in_flight = Counter(in_flight);
        self.upstream_waiting = Counter(waiting);
        self.upstream_servers_down = Counter(down);
    }

    /// Replaces the checks of upstreams: all, and those that failed.
    pub fn set_upstream_checks(&mut self, [checks, failed]: [u64; 2]) {
        self.upstream_checks = Counter(checks);
        self.upstream_checks_failed = Counter(failed);
    }

    /// Replaces the state of a loop's own listening sockets: connections in their queues, the
    /// bounds of these, and the share of SYNs that their filters drop at random, per million.
    pub fn set_listeners(&mut self, [queue, backlog, random_ppm]: [u64; 3]) {
        self.accept_queue = Counter(queue);
        self.accept_backlog = Counter(backlog);
        self.syn_random_ppm = Counter(random_ppm);
    }

    /// Replaces what all loops share of the cache of replies: evictions, and stored bytes.
    pub fn set_proxy_cache(&mut self, [evicted, bytes]: [u64; 2]) {
        self.proxy_cache_evicted = Counter(evicted);
        self.proxy_cache_bytes = Counter(bytes);
    }

    /// Replaces the memory in which the replies of all loops wait for slow clients, bytes.
    pub fn set_proxy_buffers(&mut self, bytes: u64) {
        self.proxy_buffers_bytes = Counter(bytes);
    }

    /// Replaces the drops by SYN filters: for lack of a token, of these from sources that had used
    /// up their share, on account of an upstream, and of these those that had been dropped before.
    pub fn set_syn_dropped(&mut self, [dropped, unfair, for_upstream, again]: [u64; 4]) {
        self.syn_dropped = Counter(dropped);
        self.syn_dropped_unfair = Counter(unfair);
        self.upstream_syn_dropped = Counter(for_upstream);
        self.upstream_syn_dropped_again = Counter(again);
    }

    /// Replaces the counts of the event mechanism: notices, overflows, swept, stale, coalesced,
    /// checked, rearmed, batched, deleted, discarded, takes, most taken at once, fallbacks.
    pub fn set_mechanism(&mut self, counts: &[u64; 13]) {
        let mine = [
            &mut self.event_notices,
            &mut self.event_overflows,
            &mut self.event_swept,
            &mut self.event_stale,
            &mut self.event_coalesced,
            &mut self.event_checked,
            &mut self.event_rearmed,
            &mut self.event_batched,
            &mut self.event_deleted,
            &mut self.event_discarded,
            &mut self.event_takes,
            &mut self.event_taken_max,
            &mut self.event_fallbacks,
        ];
        for (counter, count) in mine.into_iter().zip(counts) {
            *counter = Counter(*count);
        }
    }

    /// Replaces the store's counts of cold lookups and reads: names, then files.
    pub fn set_cold(&mut self, [lookups, reads]: [u64; 2]) {
        self.cold_lookups = Counter(lookups);
        self.cold_reads = Counter(reads);
    }

    /// Replaces the store's counts of listings: made, parts, most rows in a part.
    pub fn set_listings(&mut self, [made, parts, part_rows_max]: [u64; 3]) {
        self.listings_made = Counter(made);
        self.listing_parts = Counter(parts);
        self.listing_part_rows_max = Counter(part_rows_max);
    }

    /// Replaces the counts of compression on the fly: forms made, those not smaller, the time they
    /// took, requests for which there was none yet, bytes kept.
    pub fn set_compression(&mut self, [made, useless, ns, missed, bytes]: [u64; 5]) {
        self.compressions = Counter(made);
        self.compressions_useless = Counter(useless);
        self.compression_ns = Counter(ns);
        self.compressed_missed = Counter(missed);
        self.compressed_bytes = Counter(bytes);
    }

    /// Replaces the account of memory, which all loops share, bytes: the budget, what is used of it
    /// and what was freed and is still resident, then the uses in the order of the table.
    pub fn set_memory(&mut self, [limit, used, free]: [u64; 3], parts: [u64; 8]) {
        self.memory_limit_bytes = Counter(limit);
        self.memory_used_bytes = Counter(used);
        self.memory_free_bytes = Counter(free);
        let mine = [
            &mut self.memory_connections_bytes,
            &mut self.memory_buffers_bytes,
            &mut self.memory_tls_bytes,
            &mut self.memory_content_bytes,
            &mut self.memory_listings_bytes,
            &mut self.memory_upstreams_bytes,
            &mut self.memory_clients_bytes,
            &mut self.memory_stacks_bytes,
        ];
        for (counter, bytes) in mine.into_iter().zip(parts) {
            *counter = Counter(bytes);
        }
    }

    /// Replaces the counts of helpers: fetches requested, fetches completed, most waiting at once,
    /// busy nanoseconds.
    pub fn set_helpers(&mut self, [asked, brought, waiting_max, busy_ns]: &[u64; 4]) {
        self.helper_fetches = Counter(*asked);
        self.helper_fetched = Counter(*brought);
        self.helper_waiting_max = Counter(*waiting_max);
        self.helper_busy_ns = Counter(*busy_ns);
    }

    /// Replaces the counts of a ring: calls, operations, completions, overflows, copies.
    pub fn set_ring(&mut self, [enters, entries, completions, overflows, copied]: &[u64; 5]) {
        self.ring_enters = Counter(*enters);
        self.ring_entries = Counter(*entries);
        self.ring_completions = Counter(*completions);
        self.ring_overflows = Counter(*overflows);
        self.ring_copied = Counter(*copied);
    }

    /// Sets the resources still in use when a ring was closed: operations, buffers, slots.
    pub fn set_ring_left(&mut self, [pending, buffers, slots]: &[u64; 3]) {
        self.ring_pending_at_exit = Counter(*pending);
        self.ring_buffers_out_at_exit = Counter(*buffers);
        self.ring_slots_taken_at_exit = Counter(*slots);
    }

    /// Replaces the counts of the content store: hits, misses, revalidations, reloads, evictions.
    pub fn set_cache(&mut self, [hits, misses, revalidated, reloaded, evicted]: [u64; 5]) {
        self.cache_evicted = Counter(evicted);
        self.cache_hits = Counter(hits);
        self.cache_misses = Counter(misses);
        self.cache_revalidated = Counter(revalidated);
        self.cache_reloaded = Counter(reloaded);
    }
}

impl AddAssign<&Self> for Counters {
    fn add_assign(&mut self, other: &Self) {
        let theirs = other.values();
        for ((mine, theirs), row) in self.values_mut().into_iter().zip(theirs).zip(TABLE) {
            *mine = match row.merge {
                Merge::Sum | Merge::SumNow => *mine + theirs,
                // Counters do not know when they were published. Loops that are merged here have
                // been asked at the same time.
                Merge::Max | Merge::Latest => (*mine).max(theirs),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_summed_but_marks_are_not() {
        let mut one = Counters::default();
        one.accepted.add(3);
        one.open_max.raise(7);
        let mut sum = one.clone();
        one.open_max.raise(5);
        sum += &one;
        assert_eq!(sum.accepted.get(), 6);
        assert_eq!(sum.open_max.get(), 7);
    }

    #[test]
    fn counters_can_be_told_as_numbers() {
        let mut told = Counters::default();
        told.accepted.add(3);
        told.set_switches(4, 5);
        let heard = Counters::from_values(&told.values());
        assert_eq!(heard.values(), told.values());
        assert_eq!(heard.context_switches_involuntary.get(), 5);
    }

    #[test]
    fn names_are_unique_and_each_has_a_meaning() {
        let mut names: Vec<_> = TABLE.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        assert!(TABLE.iter().all(|row| !row.help.is_empty()));
    }
}
