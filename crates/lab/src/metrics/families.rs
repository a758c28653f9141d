//! Families of metrics: one per system call, per counter of the server, per counter of the kernel,
//! and per class of a mix. Parses their names.

use super::metric::{MetricInfo, counted, counted_rate, ms, ratio};
use crate::measure::kernel;
use crate::record::{CallCount, CallsRun, ClassResult, Point};

/// The name for all system calls together.
const ALL: &str = "total";

/// The quantity of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Share,
    Rate,
    PerReply,
    MeanUs,
}

/// The quantity of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfClass {
    ReplyRate,
    ReplyShare,
    ResponseP50,
    ResponseP99,
}

/// A member of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member<'a> {
    Call(&'a str, Of),
    Counter(&'a str),
    Kernel(&'a str),
    /// The number of a class, from 1.
    Class(usize, OfClass),
}

fn member(name: &str) -> Option<Member<'_>> {
    let (family, rest) = name.split_once('.')?;
    let (of_what, of) = rest.rsplit_once('.').filter(|(of_what, _)| !of_what.is_empty())?;
    match (family, of) {
        ("calls", "share") => Some(Member::Call(of_what, Of::Share)),
        ("calls", "rate") => Some(Member::Call(of_what, Of::Rate)),
        ("calls", "per_reply") => Some(Member::Call(of_what, Of::PerReply)),
        ("calls", "mean_us") => Some(Member::Call(of_what, Of::MeanUs)),
        ("counter", "rate") if is_counter(of_what) => Some(Member::Counter(of_what)),
        ("kernel", "rate") if of_what.contains('.') => Some(Member::Kernel(of_what)),
        ("class", _) => {
            let number = of_what.parse().ok().filter(|number| *number > 0)?;
            Some(Member::Class(number, class_part(of)?))
        }
        _ => None,
    }
}

fn class_part(name: &str) -> Option<OfClass> {
    match name {
        "reply_rate" => Some(OfClass::ReplyRate),
        "reply_share" => Some(OfClass::ReplyShare),
        "response_p50" => Some(OfClass::ResponseP50),
        "response_p99" => Some(OfClass::ResponseP99),
        _ => None,
    }
}

/// Returns the quantity of a class metric: PART of `class.N.PART`.
pub(super) fn of_class(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, part)| part)
}

/// Returns whether weir has this counter and a rate of it is meaningful.
fn is_counter(name: &str) -> bool {
    !name.ends_with("_max") && weir_stats::TABLE.iter().any(|row| row.name == name)
}

pub(super) fn value(point: &Point, name: &str) -> Option<f64> {
    match member(name)? {
        Member::Call(call, of) => call_value(point, call, of),
        Member::Counter(counter) => counted_rate(point, counter),
        Member::Kernel(counter) => {
            ratio(kernel::count(&point.kernel, counter) as f64, point.kernel.window_s)
        }
        Member::Class(number, of) => class_value(point.load.classes.get(number - 1)?, of),
    }
}

pub(super) fn find(name: &str) -> Option<MetricInfo> {
    let info = |label: String, unit, help: &str| {
        Some(MetricInfo { label: label.into(), unit, help: help.to_owned().into() })
    };
    match member(name)? {
        Member::Call(call, of) => {
            let call = if call == ALL { "system calls" } else { call };
            match of {
                Of::Share => info(
                    format!("time in {call}"),
                    "%",
                    "Of one loop's wall time, waiting included: loops add up",
                ),
                Of::Rate => info(format!("{call} a second"), "1/s", "Calls a second"),
                Of::PerReply => info(format!("{call} a reply"), "calls", "Calls for each reply"),
                Of::MeanUs => info(format!("time of a call, {call}"), "us", "Wall time of a call"),
            }
        }
        Member::Counter(counter) => {
            let help = weir_stats::TABLE.iter().find(|row| row.name == counter)?.help;
            info(format!("{counter} a second"), "1/s", help)
        }
        Member::Kernel(counter) => {
            info(format!("{counter} a second"), "1/s", "The server's network namespace counted it")
        }
        Member::Class(number, of) => {
            let class = |what: &str| format!("{what}, class {number}");
            match of {
                OfClass::ReplyRate => {
                    info(class("replies"), "replies/s", "Replies a second that are no refusals")
                }
                OfClass::ReplyShare => info(
                    class("requests that became replies"),
                    "%",
                    "Of the requests of the class, what became whole replies and no refusals",
                ),
                OfClass::ResponseP50 => info(
                    class("response time, median"),
                    "ms",
                    "From the planned start to the last byte: half are no longer",
                ),
                OfClass::ResponseP99 => info(
                    class("response time, 99th percentile"),
                    "ms",
                    "From the planned start to the last byte: 99 % are no longer",
                ),
            }
        }
    }
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

fn call_value(point: &Point, name: &str, of: Of) -> Option<f64> {
    let call = of_calls(&point.server.calls, name)?;
    let (count, elapsed_s) = (call.count as f64, counted(point, "elapsed_s")?);
    match of {
        Of::Share => ratio(100.0 * call.time_s?, elapsed_s),
        Of::Rate => ratio(count, elapsed_s),
        Of::PerReply => ratio(count, counted(point, "replies")?),
        Of::MeanUs => ratio(1e6 * call.time_s?, count),
    }
}

fn class_value(class: &ClassResult, of: OfClass) -> Option<f64> {
    let replies = class.replies as f64;
    match of {
        OfClass::ReplyRate => ratio(replies, class.window_s),
        OfClass::ReplyShare => ratio(100.0 * replies, class.planned as f64),
        OfClass::ResponseP50 => ms(class.response.as_ref(), |times| times.p50_us),
        OfClass::ResponseP99 => ms(class.response.as_ref(), |times| times.p99_us),
    }
}

pub(super) fn calls_value(run: &CallsRun, name: &str) -> Option<f64> {
    let Member::Call(name, Of::PerReply) = member(name)? else { return None };
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
