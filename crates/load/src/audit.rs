//! Run validity: was the server measured, or this client? Takes counts, returns a verdict.
//!
//! A run limited by its client says nothing about the server. It is INVALID, with the reasons and
//! what to change. A slow server still makes a valid run: the audit does not judge the server, and
//! does not know how a run was driven or how a verdict is shown.

use crate::measure::{Counts, ErrorKind, Interval, RunOutcome, ThreadCpu, TimeHistogram};

/// Number of late starts that is tolerated however few starts there are.
const LATE_MIN: u64 = 1;

/// The smallest valid share of planned requests that were started.
pub const ACHIEVED_MIN: f64 = 0.99;
/// The largest valid lag of 99 % of the starts, nanoseconds.
pub const LAG_MAX_NS: u64 = 10_000_000;
/// The largest valid lag as a share of the median response, where that is less than [`LAG_MAX_NS`].
pub const LAG_SHARE_MAX: f64 = 0.1;
/// Lag that is always tolerated, nanoseconds.
pub const LAG_SMALL_NS: u64 = 1_000_000;
/// The largest valid CPU share of a driving thread over the whole run, of one core.
pub const CPU_MAX: f64 = 0.95;
/// The largest valid CPU share of a thread in its busiest second, of one core. Applies only if 1 %
/// of the starts were later than [`LAG_SMALL_NS`].
pub const CPU_BUSIEST_MAX: f64 = 0.98;
/// The largest share of its time for which a driving thread may be ready to run and wait for its
/// core, where that and its CPU share are more than [`CPU_MAX`] together.
pub const RUN_DELAY_MAX: f64 = 0.1;

/// The conditions of a run that decide what its numbers mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditInput {
    /// True for a closed loop: nothing is planned, so nothing can be late.
    pub closed: bool,
    /// Driving threads.
    pub threads: usize,
    /// Source ports in total, over all source addresses; 0 if they were not counted.
    pub ports: u64,
    /// Time for which a port stays occupied after its connection is closed (TIME_WAIT),
    /// nanoseconds; 0 if it is free at once.
    pub port_hold_ns: u64,
    /// Length of the warm-up, whose connections hold ports too, nanoseconds.
    pub warmup_ns: u64,
    /// Length of the cool-down, whose connections do too, nanoseconds.
    pub cooldown_ns: u64,
    /// File descriptors available to connections.
    pub descriptors: u64,
    /// True if only rates and errors are judged, as in a scan without a latency limit. Lag of a few
    /// milliseconds then does not matter.
    pub rates_only: bool,
    /// True if a time is judged: a deadline or a condition on a time is set.
    pub latency_limits: bool,
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// True if the figures describe the server, not this client.
    pub valid: bool,
    /// True if the rates and errors describe the server: the run is valid, or its lag was too small
    /// to change a rate ([`AuditInput::rates_only`]).
    pub rates_valid: bool,
    /// Reasons for an invalid run: full sentences with figures and what to change. Empty for a
    /// valid run.
    pub reasons: Vec<String>,
    /// Caveats to read before the figures are trusted.
    pub notes: Vec<String>,
    /// The figures behind the verdict.
    pub metrics: AuditMetrics,
}

/// The figures by which a run is judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditMetrics {
    /// Median lag of the starts, nanoseconds.
    pub lag_p50_ns: u64,
    /// 99th percentile of the lag, nanoseconds.
    pub lag_p99_ns: u64,
    /// 99.9th percentile of the lag, nanoseconds.
    pub lag_p999_ns: u64,
    /// Largest lag, nanoseconds.
    pub lag_max_ns: u64,
    /// Share of the planned requests that were started, 0 to 1; `None` in a closed loop, or if
    /// nothing was planned.
    pub achieved: Option<f64>,
    /// CPU share of each thread, of one core, 0 to 1: over the whole run, or until nothing more was
    /// begun if that is more.
    pub cpu: Vec<f64>,
    /// The largest CPU share of any thread in any one second, 0 to 1.
    pub busiest: f64,
    /// File descriptors never used.
    pub descriptors_left: u64,
    /// Ports never used, neither by an open connection nor in TIME_WAIT; `None` if they were not
    /// counted.
    pub ports_left: Option<u64>,
}

/// Audits a completed run.
pub fn audit(input: &AuditInput, outcome: &RunOutcome) -> Verdict {
    let metrics = metrics(input, outcome);
    let rates_only = AuditInput { rates_only: true, ..*input };
    let evidence = |input| Evidence {
        input,
        counts: &outcome.counts,
        lag: &outcome.times.lag,
        response: &outcome.times.response,
        cpu: metrics.cpu.iter().copied().fold(0.0, f64::max),
        busiest: metrics.busiest,
        grace: 0,
    };
    let reasons_for = |input| {
        let mut reasons = evidence(input).reasons();
        reasons.extend(nothing_measured(&outcome.counts));
        reasons.extend(packets_without_room(outcome));
        reasons.extend(kept_off_its_core(outcome));
        reasons
    };
    let reasons = reasons_for(input);
    let rates_valid = reasons_for(&rates_only).is_empty();
    let notes = notes(input, outcome);
    Verdict { valid: reasons.is_empty(), rates_valid, reasons, notes, metrics }
}

/// The running verdict, updated after each second of a run. Of the CPU shares it has those of the
/// threads that still run alone, and how long these waited for their cores is no part of it: the
/// final verdict judges both of all threads.
#[derive(Clone, Debug)]
pub struct RunningAudit {
    /// The conditions of the run.
    pub input: AuditInput,
    /// The seconds so far as one, of their total length.
    pub so_far: Interval,
}

impl RunningAudit {
    /// Creates the verdict of a run that is just starting.
    pub fn new(input: &AuditInput) -> Self {
        Self { input: *input, so_far: Interval::default() }
    }

    /// Adds a second of the run.
    pub fn add(&mut self, interval: &Interval) {
        let length_ns = self.so_far.length_ns + interval.length_ns;
        self.so_far.add(interval);
        self.so_far.length_ns = length_ns;
        self.so_far.cpu_share_so_far = interval.cpu_share_so_far;
    }

    /// Returns the reasons why the run would be INVALID if it ended now; empty if it would be
    /// valid.
    pub fn reasons(&self) -> Vec<String> {
        let Interval { counts, response, lag, cpu_share_so_far, .. } = &self.so_far;
        let evidence = Evidence {
            input: &self.input,
            counts,
            lag,
            response,
            cpu: *cpu_share_so_far,
            busiest: 0.0,
            // A start that is due as the second ends is begun in the next one.
            grace: self.input.threads as u64,
        };
        evidence.reasons()
    }
}

/// Input common to the final and the running verdict.
struct Evidence<'a> {
    input: &'a AuditInput,
    counts: &'a Counts,
    lag: &'a TimeHistogram,
    response: &'a TimeHistogram,
    cpu: f64,
    busiest: f64,
    grace: u64,
}

impl Evidence<'_> {
    fn reasons(&self) -> Vec<String> {
        let found = [
            self.without_descriptor(),
            self.without_port(),
            self.not_started(),
            self.late(),
            self.busy(),
        ];
        found.into_iter().flatten().collect()
    }

    fn without_descriptor(&self) -> Option<String> {
        let lost = self.counts.errors.of(ErrorKind::FdUnavail);
        (lost > 0).then(|| {
            format!(
                "No descriptor was free for {lost} of {} starts (fd-unavail): raise the limit \
                 (`ulimit -n`, --max-conns, or fs.epoll.max_user_watches), or shorten --timeout, \
                 or lower the rate.",
                self.counts.planned
            )
        })
    }

    fn without_port(&self) -> Option<String> {
        let lost = self.counts.errors.of(ErrorKind::PortUnavail);
        (lost > 0).then(|| {
            format!(
                "No port was free for {lost} of {} starts (port-unavail): give more addresses \
                 with --source, or leave TIME_WAIT to the server with --close server, or lower \
                 the rate.",
                self.counts.planned
            )
        })
    }

    fn not_started(&self) -> Option<String> {
        let Counts { planned, started, .. } = *self.counts;
        let achieved = achieved(self.input, self.counts)?;
        let missing = planned.saturating_sub(started);
        let short = !self.input.closed && achieved < ACHIEVED_MIN && missing > self.grace;
        short.then(|| {
            format!(
                "Of {planned} planned requests only {started} were started, {:.1} % (99 % are \
                 needed): use more --threads or more machines, or lower the rate.",
                100.0 * achieved
            )
        })
    }

    fn late(&self) -> Option<String> {
        let (limit_ns, why) = self.lag_limit();
        let count = self.lag.count();
        let late = count - self.lag.0.count_between(0, limit_ns).min(count);
        // Of a few starts one is more than 1 %, and says nothing.
        (!self.input.closed && late > LATE_MIN && late * 100 > count).then(|| {
            format!(
                "This client was late: {late} of {count} starts were too far behind the \
                 plan, 1 % by {:.3} ms or more, where {why}: use more --threads, pin them to \
                 cores of their own with --cpus, or lower the rate.",
                ms(self.lag.at(0.99))
            )
        })
    }

    /// Returns the largest lag allowed for 99 % of the starts, nanoseconds, and an explanation of
    /// the limit.
    fn lag_limit(&self) -> (u64, String) {
        let median_ns = self.response.at(0.5);
        let share_ns = ((median_ns as f64 * LAG_SHARE_MAX) as u64).max(LAG_SMALL_NS);
        let absolute = self.input.rates_only || self.response.count() == 0;
        if absolute || share_ns >= LAG_MAX_NS {
            return (LAG_MAX_NS, format!("{:.0} ms are allowed", ms(LAG_MAX_NS)));
        }
        let median_ms = ms(median_ns);
        let (limit_ms, small_ms) = (ms(share_ns), ms(LAG_SMALL_NS));
        let why = format!(
            "{limit_ms:.3} ms are allowed, 10 % of the median response of {median_ms:.3} ms but \
             not less than {small_ms:.0} ms"
        );
        (share_ns, why)
    }

    fn busy(&self) -> Option<String> {
        let lag_ns = self.lag.at(0.99);
        let late = !self.input.closed && lag_ns > LAG_SMALL_NS;
        let advice = if self.input.closed {
            "the client is the bottleneck, and its figures are lower bounds; use more --threads \
             or fewer connections"
        } else {
            "use more --threads or more machines, or lower the rate"
        };
        if self.cpu > CPU_MAX {
            let used = 100.0 * self.cpu;
            return Some(format!(
                "A driving thread used {used:.1} % of its core (95 % is the limit): {advice}."
            ));
        }
        (self.busiest > CPU_BUSIEST_MAX && late).then(|| {
            format!(
                "In its busiest second a driving thread used {:.1} % of its core (98 % is the \
                 limit), and 1 % of all starts were {:.3} ms or more late: {advice}.",
                100.0 * self.busiest,
                ms(lag_ns)
            )
        })
    }
}

/// Packets that found no room on this side: a server would be blamed for their loss.
fn packets_without_room(outcome: &RunOutcome) -> Option<String> {
    let packets = outcome.packets.filter(|packets| packets.overflowed + packets.refused > 0)?;
    Some(format!(
        "{} packets found no room on this side and {} were refused by the interface: use more \
         --threads, or lower the rate.",
        packets.overflowed, packets.refused
    ))
}

/// A thread that something else kept off its core: replies lay there unread. In a closed loop, or
/// where all connections were busy, no start is late for that.
fn kept_off_its_core(outcome: &RunOutcome) -> Option<String> {
    let threads = outcome.threads.iter();
    let shares = threads.filter_map(|thread| Some((thread.while_planned, thread.run_delay?)));
    let kept_off = shares.filter(|(ran, waited)| ran + waited > CPU_MAX && *waited > RUN_DELAY_MAX);
    let (ran, waited) = kept_off.max_by(|one, other| one.1.total_cmp(&other.1))?;
    Some(format!(
        "A driving thread ran for {:.1} % of its time and waited for its core for {:.1} % (95 % \
         is the limit for both together): pin it to a core of its own with --cpus, or end what \
         else runs there.",
        100.0 * ran,
        100.0 * waited
    ))
}

fn nothing_measured(counts: &Counts) -> Option<String> {
    (counts.arrivals == 0 && counts.planned == 0).then(|| {
        "Nothing was measured, no start fell into the measured time: raise --rate or --duration, \
         or shorten --warmup and --cooldown."
            .into()
    })
}

fn notes(input: &AuditInput, outcome: &RunOutcome) -> Vec<String> {
    let found = [
        input.closed.then(|| {
            "Closed loop: latencies of a closed loop omit what the server's slowness kept from \
             being sent."
                .into()
        }),
        outcome.interrupted.then(|| {
            format!(
                "The run was interrupted after {:.3} s; the figures hold for what was done until \
                 then.",
                outcome.elapsed_ns as f64 / 1e9
            )
        }),
        without_a_time(input, &outcome.counts),
        without_a_reply(&outcome.counts),
    ];
    found.into_iter().flatten().collect()
}

fn without_a_reply(counts: &Counts) -> Option<String> {
    let lost = counts.errors.total();
    (counts.replies == 0 && lost > 0)
        .then(|| format!("None of {lost} requests was answered: the figures are of errors alone."))
}

fn without_a_time(input: &AuditInput, counts: &Counts) -> Option<String> {
    let lost = counts.errors.total();
    (input.latency_limits && lost > 0).then(|| {
        format!(
            "{lost} of {} requests that ended have no response time, because they ended in \
             errors: judge errors beside times.",
            lost + counts.replies
        )
    })
}

fn metrics(input: &AuditInput, outcome: &RunOutcome) -> AuditMetrics {
    let lag = &outcome.times.lag;
    let threads = &outcome.threads;
    AuditMetrics {
        lag_p50_ns: lag.at(0.5),
        lag_p99_ns: lag.at(0.99),
        lag_p999_ns: lag.at(0.999),
        lag_max_ns: lag.max(),
        achieved: achieved(input, &outcome.counts),
        cpu: threads.iter().map(|thread| cpu(thread, outcome.elapsed_ns)).collect(),
        busiest: threads.iter().map(|thread| thread.busiest).fold(0.0, f64::max),
        descriptors_left: input.descriptors.saturating_sub(outcome.open_max),
        ports_left: (input.ports > 0)
            .then(|| input.ports.saturating_sub(outcome.open_max + ports_held(input, outcome))),
    }
}

/// Returns the share of its core that a thread used. The wait for the last replies does not dilute
/// it: starts come before replies, so that none need be late where replies are read too late.
fn cpu(thread: &ThreadCpu, elapsed_ns: u64) -> f64 {
    share(thread.user_ns + thread.system_ns, elapsed_ns).max(thread.while_planned)
}

fn achieved(input: &AuditInput, counts: &Counts) -> Option<f64> {
    (!input.closed && counts.planned > 0).then(|| counts.started as f64 / counts.planned as f64)
}

/// Returns the largest number of ports held by closed connections at once: the connects of the
/// busiest window of [`AuditInput::port_hold_ns`]. Those of the warm-up and of the cool-down are
/// taken to be even, as their seconds are not counted one by one.
fn ports_held(input: &AuditInput, outcome: &RunOutcome) -> u64 {
    let window_s = input.port_hold_ns.div_ceil(1_000_000_000) as usize;
    if window_s == 0 {
        return 0;
    }
    let mut connects: Vec<u64> = outcome.seconds.iter().map(|each| each.counts.connects).collect();
    let unmeasured = outcome.whole_run.since(&outcome.counts).connects as f64;
    let (warmup_s, cooldown_s) = (input.warmup_ns as f64 / 1e9, input.cooldown_ns as f64 / 1e9);
    let each_s = unmeasured / (warmup_s + cooldown_s);
    let in_warm_up = if cooldown_s > 0.0 { each_s * warmup_s } else { unmeasured };
    let cooldown = (outcome.planned_ns / 1_000_000_000) as usize;
    for second in connects.iter_mut().skip(cooldown).take(cooldown_s.ceil() as usize) {
        *second += each_s.ceil() as u64;
    }
    let held_at = |end: usize| {
        let measured = &connects[end.saturating_sub(window_s)..end];
        let before_s = (window_s - measured.len()) as f64;
        let share = if before_s < warmup_s { before_s / warmup_s } else { 1.0 };
        measured.iter().sum::<u64>() + (in_warm_up * share).ceil() as u64
    };
    (0..=connects.len()).map(held_at).max().unwrap_or(0)
}

fn share(part_ns: u64, whole_ns: u64) -> f64 {
    if whole_ns == 0 { 0.0 } else { part_ns as f64 / whole_ns as f64 }
}

fn ms(time_ns: u64) -> f64 {
    time_ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::SecondSummary;

    const MS: u64 = 1_000_000;

    fn input() -> AuditInput {
        AuditInput { threads: 2, ports: 28_000, descriptors: 1_000, ..AuditInput::default() }
    }

    fn closed() -> AuditInput {
        AuditInput { closed: true, ..input() }
    }

    /// A valid run of ten seconds: 1,000 requests answered in 5 ms.
    fn outcome() -> RunOutcome {
        let mut outcome = RunOutcome {
            planned_ns: 10_000 * MS,
            elapsed_ns: 10_000 * MS,
            open_max: 40,
            threads: vec![ThreadCpu {
                user_ns: 1_000 * MS,
                system_ns: 2_000 * MS,
                busiest: 0.4,
                while_planned: 0.3,
                run_delay: None,
            }],
            ..RunOutcome::default()
        };
        outcome.counts.planned = 1_000;
        outcome.counts.arrivals = 1_000;
        outcome.counts.started = 1_000;
        outcome.counts.replies = 1_000;
        for _ in 0..1_000 {
            outcome.times.lag.record(20_000);
            outcome.times.response.record(5 * MS);
        }
        outcome
    }

    fn reasons(input: &AuditInput, outcome: &RunOutcome) -> Vec<String> {
        let verdict = audit(input, outcome);
        assert_eq!(verdict.valid, verdict.reasons.is_empty());
        verdict.reasons
    }

    #[test]
    fn a_run_that_kept_its_plan_is_valid_and_shows_by_what() {
        let verdict = audit(&input(), &outcome());
        assert!(verdict.valid && verdict.notes.is_empty(), "{verdict:?}");
        assert_eq!(verdict.metrics.achieved, Some(1.0));
        assert_eq!(verdict.metrics.cpu, [0.3]);
        assert_eq!(verdict.metrics.descriptors_left, 960);
        assert_eq!(verdict.metrics.ports_left, Some(27_960));
        assert!((20_000..20_100).contains(&verdict.metrics.lag_p99_ns));
    }

    #[test]
    fn running_out_of_descriptors_or_ports_is_the_clients_fault_in_both_loops() {
        for (kind, name) in
            [(ErrorKind::FdUnavail, "fd-unavail"), (ErrorKind::PortUnavail, "port-unavail")]
        {
            let mut outcome = outcome();
            outcome.counts.errors.count(kind);
            for input in [input(), closed()] {
                let reasons = reasons(&input, &outcome);
                assert!(reasons.len() == 1 && reasons[0].contains(name), "{reasons:?}");
            }
        }
    }

    #[test]
    fn ninety_nine_of_a_hundred_planned_starts_are_enough() {
        let mut outcome = outcome();
        outcome.counts.started = 990;
        assert!(audit(&input(), &outcome).valid);
        outcome.counts.started = 989;
        let reasons = reasons(&input(), &outcome);
        assert!(reasons[0].contains("98.9 %"), "{reasons:?}");
        assert!(audit(&closed(), &outcome).valid);
    }

    #[test]
    fn a_late_client_is_measured_against_the_response_it_reports() {
        let late = |lag_ns: u64, response_ns: u64| {
            let mut outcome = outcome();
            outcome.times = crate::measure::Distributions::default();
            // One that is late could be chance.
            outcome.times.lag.record(lag_ns);
            assert!(audit(&input(), &outcome).valid);
            outcome.times.lag.record(lag_ns);
            outcome.times.response.record(response_ns);
            !audit(&input(), &outcome).valid
        };
        assert!(late(11 * MS, 10_000 * MS));
        assert!(!late(9 * MS, 10_000 * MS));
        assert!(late(3 * MS, 20 * MS));
        assert!(!late(2 * MS - MS / 10, 20 * MS));
        assert!(!late(MS - MS / 10, MS));
        assert!(late(MS + MS / 10, MS));
    }

    #[test]
    fn a_client_that_is_a_little_late_spoils_times_and_no_rates() {
        let verdict = |lag_ns: u64| {
            let mut outcome = outcome();
            (0..100).for_each(|_| outcome.times.lag.record(lag_ns));
            let verdict = audit(&input(), &outcome);
            (verdict.valid, verdict.rates_valid)
        };
        assert_eq!(verdict(MS / 2), (true, true));
        assert_eq!(verdict(3 * MS), (false, true));
        assert_eq!(verdict(11 * MS), (false, false));
    }

    #[test]
    fn where_only_rates_are_judged_a_few_milliseconds_are_not_late() {
        let mut outcome = outcome();
        (0..50).for_each(|_| outcome.times.lag.record(9 * MS));
        assert!(!audit(&input(), &outcome).valid);
        let rates_only = AuditInput { rates_only: true, ..input() };
        assert!(audit(&rates_only, &outcome).valid);
        (0..50).for_each(|_| outcome.times.lag.record(11 * MS));
        assert!(!audit(&rates_only, &outcome).valid);
    }

    #[test]
    fn without_a_reply_only_the_absolute_limit_counts() {
        let mut outcome = outcome();
        outcome.times = crate::measure::Distributions::default();
        outcome.times.lag.record(2 * MS);
        assert!(audit(&input(), &outcome).valid);
        outcome.times.lag.record(12 * MS);
        outcome.times.lag.record(12 * MS);
        let reasons = reasons(&input(), &outcome);
        assert!(reasons[0].contains("10 ms are allowed"), "{reasons:?}");
    }

    #[test]
    fn a_busy_thread_makes_figures_lower_bounds() {
        let mut outcome = outcome();
        outcome.threads[0].user_ns = 7_600 * MS;
        let open = reasons(&input(), &outcome);
        assert!(open[0].contains("96.0 % of its core"), "{open:?}");
        let closed = reasons(&closed(), &outcome);
        assert!(closed[0].contains("lower bounds"), "{closed:?}");
    }

    #[test]
    fn waiting_for_the_last_reply_does_not_excuse_a_busy_thread() {
        let mut outcome = outcome();
        outcome.threads[0].while_planned = 0.96;
        // In an open loop too: starts come before replies, and none is late.
        for input in [input(), closed()] {
            let verdict = audit(&input, &outcome);
            let reasons = verdict.reasons;
            assert!(reasons.len() == 1 && reasons[0].contains("96.0 % of its core"), "{reasons:?}");
            assert_eq!(verdict.metrics.cpu, [0.96]);
        }
    }

    #[test]
    fn a_thread_that_waits_for_its_core_measures_itself_in_both_loops() {
        let reasons_at = |input: &AuditInput, ran: f64, waited: Option<f64>| {
            let mut outcome = outcome();
            (outcome.threads[0].while_planned, outcome.threads[0].run_delay) = (ran, waited);
            reasons(input, &outcome)
        };
        for input in [input(), closed()] {
            let reasons = reasons_at(&input, 0.5, Some(0.5));
            assert!(reasons.len() == 1, "{reasons:?}");
            assert!(reasons[0].contains("ran for 50.0 %"), "{reasons:?}");
            assert!(reasons[0].contains("waited for its core for 50.0 %"), "{reasons:?}");
            // It had time left; it had nearly all; the kernel does not tell.
            for (ran, waited) in [(0.5, Some(0.4)), (0.9, Some(0.09)), (0.5, None)] {
                assert_eq!(reasons_at(&input, ran, waited), [""; 0]);
            }
        }
    }

    #[test]
    fn a_busy_second_counts_when_starts_were_late_too() {
        let mut outcome = outcome();
        outcome.threads[0].busiest = 0.99;
        assert!(audit(&input(), &outcome).valid);
        outcome.times.response = TimeHistogram::default();
        (0..100).for_each(|_| outcome.times.lag.record(2 * MS));
        let reasons = reasons(&input(), &outcome);
        assert!(reasons.len() == 1 && reasons[0].contains("busiest second"), "{reasons:?}");
        assert!(audit(&closed(), &outcome).valid);
    }

    #[test]
    fn a_run_without_arrivals_measured_nothing() {
        for input in [input(), closed()] {
            let reasons = reasons(&input, &RunOutcome::default());
            assert!(reasons[0].starts_with("Nothing was measured"), "{reasons:?}");
        }
    }

    #[test]
    fn notes_name_the_loop_the_interruption_and_what_has_no_time() {
        let mut outcome = outcome();
        outcome.interrupted = true;
        outcome.counts.errors.count(ErrorKind::Deadline);
        let verdict = audit(&AuditInput { latency_limits: true, ..closed() }, &outcome);
        assert!(verdict.valid);
        assert!(verdict.notes[0].contains("closed loop omit"));
        assert!(verdict.notes[1].contains("interrupted after 10.000 s"));
        assert!(verdict.notes[2].starts_with("1 of 1001 requests"));
    }

    #[test]
    fn ports_in_time_wait_are_not_left() {
        let mut outcome = outcome();
        for second in 0..4 {
            let counts = Counts { connects: 100 * (second + 1), ..Counts::default() };
            outcome.seconds.push(SecondSummary { second, counts, ..SecondSummary::default() });
        }
        let held = AuditInput { port_hold_ns: 2_000 * MS, ..input() };
        assert_eq!(audit(&held, &outcome).metrics.ports_left, Some(28_000 - 40 - 700));
        let longer = AuditInput { port_hold_ns: 60_000 * MS, ..input() };
        assert_eq!(audit(&longer, &outcome).metrics.ports_left, Some(28_000 - 40 - 1_000));
        let unknown = AuditInput { ports: 0, ..input() };
        assert_eq!(audit(&unknown, &outcome).metrics.ports_left, None);
    }

    #[test]
    fn ports_in_time_wait_from_the_warm_up_are_not_left() {
        let mut outcome = outcome();
        for second in 0..4 {
            let counts = Counts { connects: 100, ..Counts::default() };
            outcome.seconds.push(SecondSummary { second, counts, ..SecondSummary::default() });
        }
        outcome.counts.connects = 400;
        outcome.whole_run = outcome.counts;
        outcome.whole_run.connects += 1_000;
        let left = |port_hold_ms: u64| {
            let (port_hold_ns, warmup_ns) = (port_hold_ms * MS, 10_000 * MS);
            let input = AuditInput { port_hold_ns, warmup_ns, ..input() };
            audit(&input, &outcome).metrics.ports_left
        };
        // TIME_WAIT lasts longer than the run, until its end into the warm-up, and not so long.
        assert_eq!(left(60_000), Some(28_000 - 40 - 1_400));
        assert_eq!(left(6_000), Some(28_000 - 40 - 600));
        assert_eq!(left(1_000), Some(28_000 - 40 - 100));
        assert_eq!(left(0), Some(28_000 - 40));
    }

    #[test]
    fn ports_in_time_wait_in_the_cool_down_are_not_left() {
        // A hundred in each of four seconds, of which the last is not measured.
        let seconds = [100, 100, 100, 0].into_iter().zip(0..).map(|(connects, second)| {
            let counts = Counts { connects, ..Counts::default() };
            SecondSummary { second, counts, ..SecondSummary::default() }
        });
        let mut outcome = RunOutcome { planned_ns: 3_000 * MS, ..outcome() };
        outcome.seconds.extend(seconds);
        outcome.counts.connects = 300;
        outcome.whole_run = outcome.counts;
        outcome.whole_run.connects += 100;
        let times = AuditInput { port_hold_ns: 60_000 * MS, cooldown_ns: 1_000 * MS, ..input() };
        assert_eq!(audit(&times, &outcome).metrics.ports_left, Some(28_000 - 40 - 400));
    }

    #[test]
    fn the_verdict_so_far_is_of_the_busiest_thread_and_not_of_their_mean() {
        let mut second = Interval::default();
        for cpu_share_so_far in [0.96, 0.2] {
            let length_ns = 1_000 * MS;
            second.add(&Interval { length_ns, cpu_share_so_far, ..Interval::default() });
        }
        let mut running_audit = RunningAudit::new(&input());
        running_audit.add(&second);
        let reasons = running_audit.reasons();
        assert!(reasons.len() == 1 && reasons[0].contains("96.0 % of its core"), "{reasons:?}");
        // The share is that of the whole run each time, and may fall again.
        running_audit.add(&Interval { cpu_share_so_far: 0.9, ..second });
        assert_eq!(running_audit.reasons(), [""; 0]);
    }

    #[test]
    fn a_fault_of_one_second_stays_in_the_verdict_so_far() {
        let mut running_audit = RunningAudit::new(&input());
        let mut interval = Interval { length_ns: 1_000 * MS, ..Interval::default() };
        interval.counts.planned = 50;
        interval.counts.started = 48;
        running_audit.add(&interval);
        assert_eq!(running_audit.reasons(), [""; 0]);
        interval.counts.errors.count(ErrorKind::FdUnavail);
        running_audit.add(&interval);
        running_audit.add(&Interval { length_ns: 1_000 * MS, ..Interval::default() });
        let reasons = running_audit.reasons();
        assert!(reasons.len() == 2 && reasons[1].contains("only 96 were started"), "{reasons:?}");
    }
}
