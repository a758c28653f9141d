//! Families of metrics: one per system call, per counter of the server, per counter of the kernel,
//! and per class of a mix. Parses their names.

use super::metric::{Metric, MetricInfo, counted, counted_rate, metrics, ms, ratio};
use crate::measure::kernel;
use crate::record::{CallCount, CallsRun, ClassResult, Point};

/// The name for all system calls together.
const ALL: &str = "total";

/// The quantity that calls counted from outside have too.
const PER_REPLY: &str = "per_reply";

/// A system call of a point.
pub(super) struct Call {
    count: f64,
    time_s: Option<f64>,
    elapsed_s: f64,
    replies: Option<f64>,
}

// In a label, `{}` stands for the call.
metrics! {
    OF_CALL of Call;
    "share", "time in {}", "%", |c| ratio(100.0 * c.time_s?, c.elapsed_s),
        "Of one loop's wall time, waiting included: loops add up";
    "rate", "{} a second", "1/s", |c| ratio(c.count, c.elapsed_s),
        "Calls per second";
    "per_reply", "{} a reply", "calls", |c| ratio(c.count, c.replies?),
        "Calls for each reply";
    "mean_us", "time of a call, {}", "us", |c| ratio(1e6 * c.time_s?, c.count),
        "Wall time of a call";
}

// In a label, `{}` stands for the number of the class.
metrics! {
    OF_CLASS of ClassResult;
    "reply_rate", "replies, class {}", "replies/s", |c| ratio(c.replies as f64, c.window_s),
        "Replies per second that are no refusals";
    "reply_share", "requests that became replies, class {}", "%",
        |c| ratio(100.0 * c.replies as f64, c.planned as f64),
        "Of the requests of the class, what became whole replies and no refusals";
    "response_p50", "response time, median, class {}", "ms",
        |c| ms(c.response.as_ref(), |times| times.p50_us),
        "From the planned start to the last byte: half are no longer";
    "response_p99", "response time, 99th percentile, class {}", "ms",
        |c| ms(c.response.as_ref(), |times| times.p99_us),
        "From the planned start to the last byte: 99 % are no longer";
}

/// A member of a family.
enum Member<'a> {
    Call(&'a str, &'static Metric<Call>),
    Counter(&'static weir_stats::Row),
    Kernel(&'a str),
    /// The number of a class, from 1.
    Class(usize, &'static Metric<ClassResult>),
}

fn member(name: &str) -> Option<Member<'_>> {
    let (family, rest) = name.split_once('.')?;
    let (of_what, of) = rest.rsplit_once('.').filter(|(of_what, _)| !of_what.is_empty())?;
    match (family, of) {
        ("calls", _) => Some(Member::Call(of_what, named(OF_CALL, of)?)),
        // High-water marks and present states have no rate.
        ("counter", "rate") => {
            let row = weir_stats::TABLE.iter().find(|row| row.name == of_what)?;
            row.merge.is_counter().then_some(Member::Counter(row))
        }
        ("kernel", "rate") if of_what.contains('.') => Some(Member::Kernel(of_what)),
        ("class", _) => {
            let number = of_what.parse().ok().filter(|number| *number > 0)?;
            Some(Member::Class(number, named(OF_CLASS, of)?))
        }
        _ => None,
    }
}

fn named<T>(table: &'static [Metric<T>], name: &str) -> Option<&'static Metric<T>> {
    table.iter().find(|metric| metric.name == name)
}

/// Returns the quantity of a class metric: PART of `class.N.PART`.
pub(super) fn of_class(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, part)| part)
}

pub(super) fn value(point: &Point, name: &str) -> Option<f64> {
    match member(name)? {
        Member::Call(name, metric) => (metric.of)(&call(point, name)?),
        Member::Counter(row) => counted_rate(point, row.name),
        Member::Kernel(counter) => {
            ratio(kernel::count(&point.kernel, counter) as f64, point.kernel.window_s)
        }
        Member::Class(number, metric) => (metric.of)(point.load.classes.get(number - 1)?),
    }
}

pub(super) fn find(name: &str) -> Option<MetricInfo> {
    let a_second = |counter: &str| format!("{counter} a second").into();
    Some(match member(name)? {
        Member::Call(ALL, metric) => described(metric, "system calls"),
        Member::Call(call, metric) => described(metric, call),
        Member::Class(number, metric) => described(metric, &number.to_string()),
        Member::Counter(row) => {
            MetricInfo { label: a_second(row.name), unit: "1/s", help: row.help.into() }
        }
        Member::Kernel(counter) => {
            let help = "The server's network namespace counted it".into();
            MetricInfo { label: a_second(counter), unit: "1/s", help }
        }
    })
}

fn described<T>(metric: &'static Metric<T>, member: &str) -> MetricInfo {
    let label = metric.label.replace("{}", member).into();
    MetricInfo { label, unit: metric.unit, help: metric.help.into() }
}

/// Returns the count and time of a call: 0 if the profile does not list it, `None` without a
/// profile.
fn of_calls(calls: &[CallCount], name: &str) -> Option<CallCount> {
    if calls.is_empty() {
        return None;
    }
    let none = CallCount { name: name.to_owned(), count: 0, time_s: Some(0.0) };
    Some(calls.iter().filter(|call| name == ALL || call.name == name).fold(none, |sum, call| {
        CallCount {
            count: sum.count + call.count,
            time_s: sum.time_s.zip(call.time_s).map(|(sum_s, time_s)| sum_s + time_s),
            ..sum
        }
    }))
}

fn call(point: &Point, name: &str) -> Option<Call> {
    let CallCount { count, time_s, .. } = of_calls(&point.server.calls, name)?;
    let (elapsed_s, replies) = (counted(point, "elapsed_s")?, counted(point, "replies"));
    Some(Call { count: count as f64, time_s, elapsed_s, replies })
}

pub(super) fn calls_value(run: &CallsRun, name: &str) -> Option<f64> {
    let Member::Call(name, Metric { name: PER_REPLY, .. }) = member(name)? else { return None };
    ratio(of_calls(&run.calls, name)?.count as f64, run.replies as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::fixtures;
    use crate::metrics;
    use crate::record::Times;

    #[test]
    fn members_of_every_family_have_values_and_say_what_they_are() {
        let point = fixtures::point();
        let wanted = [
            ("calls.epoll_wait.share", 50.0, "time in epoll_wait", "%"),
            ("calls.accept4.rate", 1550.0, "accept4 a second", "1/s"),
            ("calls.sendto.per_reply", 1.0, "sendto a reply", "calls"),
            ("calls.sendto.mean_us", 20.0, "time of a call, sendto", "us"),
            ("calls.total.rate", 6050.0, "system calls a second", "1/s"),
            ("calls.close.rate", 0.0, "close a second", "1/s"),
            ("counter.replies.rate", 1500.0, "replies a second", "1/s"),
            ("counter.gone.rate", 0.0, "gone a second", "1/s"),
            ("kernel.TcpExt.ListenDrops.rate", 20.0, "TcpExt.ListenDrops a second", "1/s"),
            ("kernel.Tcp.RetransSegs.rate", 0.0, "Tcp.RetransSegs a second", "1/s"),
        ];
        for (name, wanted, label, unit) in wanted {
            let got = metrics::value(&point, name).unwrap();
            assert!((got - wanted).abs() < 1e-9, "{name}: {got}");
            let info = metrics::find(name).unwrap();
            assert_eq!((&*info.label, info.unit), (label, unit), "{name}");
        }
    }

    #[test]
    fn a_name_outside_its_family_is_not_found() {
        let point = fixtures::point();
        for name in [
            "calls.accept4.median",
            "calls.share",
            "calls..rate",
            "counter.no_such.rate",
            "counter.open_max.rate",
            "counter.elapsed_s.rate",
            "kernel.ListenDrops.rate",
            "kernel.TcpExt.ListenDrops",
            "class.0.reply_rate",
            "class.one.reply_rate",
            "class.1.reply_max",
            "class.reply_rate",
            "",
        ] {
            assert_eq!((metrics::find(name), metrics::value(&point, name)), (None, None), "{name}");
        }
    }

    #[test]
    fn each_class_of_a_mix_has_its_figures() {
        let mut point = fixtures::point();
        let of = |point: &Point, name: &str| metrics::value(point, name);
        assert_eq!(of(&point, "class.1.reply_rate"), None);
        let response = Some(Times { p99_us: Some(3000.0), count: 9, ..Times::default() });
        let dear = ClassResult {
            window_s: 1.5,
            planned: 40,
            replies: 30,
            response,
            ..ClassResult::default()
        };
        point.load.classes = vec![ClassResult::default(), dear];
        assert_eq!(of(&point, "class.2.reply_rate"), Some(20.0));
        assert_eq!(of(&point, "class.2.reply_share"), Some(75.0));
        assert_eq!(of(&point, "class.2.response_p99"), Some(3.0));
        assert_eq!(of(&point, "class.1.response_p50"), None);
        let info = metrics::find("class.2.response_p50").unwrap();
        assert_eq!((&*info.label, info.unit), ("response time, median, class 2", "ms"));
        assert!(metrics::is_of_times("class.2.response_p50"));
        assert!(!metrics::is_of_times("class.2.reply_share"));
    }

    #[test]
    fn without_a_profile_no_call_has_a_value() {
        let mut point = fixtures::point();
        point.server.calls.clear();
        assert_eq!(metrics::value(&point, "calls.total.rate"), None);
        assert_eq!(metrics::value(&point, "calls.accept4.per_reply"), None);
        // A call that was never made has a share but no mean.
        let point = fixtures::point();
        assert_eq!(metrics::value(&point, "calls.close.share"), Some(0.0));
        assert_eq!(metrics::value(&point, "calls.close.mean_us"), None);
    }

    #[test]
    fn calls_counted_from_outside_are_told_for_each_reply_only() {
        let call = |name: &str, count| CallCount { name: name.into(), count, time_s: None };
        let mut run = CallsRun {
            key: fixtures::key(),
            by: "strace".into(),
            calls: vec![call("accept4", 200), call("writev", 100)],
            replies: 100,
            began: None,
        };
        let of = metrics::calls_value;
        assert_eq!(of(&run, "calls.accept4.per_reply"), Some(2.0));
        assert_eq!(of(&run, "calls.total.per_reply"), Some(3.0));
        assert_eq!(of(&run, "calls.read.per_reply"), Some(0.0));
        assert_eq!(of(&run, "calls.accept4.rate"), None);
        assert_eq!(of(&run, "calls.accept4.share"), None);
        run.replies = 0;
        assert_eq!(of(&run, "calls.accept4.per_reply"), None);
    }
}
