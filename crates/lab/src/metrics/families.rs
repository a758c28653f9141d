//! Metrics that are many of a kind: of each system call, each counter of the server's, each counter
//! of the kernel's. Knows how their names are put together.

use super::{MetricInfo, counted, counted_rate, ratio};
use crate::measure::kernel;
use crate::record::{CallCount, CallsRun, Point};

/// The name that stands for all system calls together.
const ALL: &str = "total";

/// What of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Share,
    Rate,
    PerReply,
    MeanUs,
}

/// A member of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member<'a> {
    Call(&'a str, Of),
    Counter(&'a str),
    Kernel(&'a str),
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
        _ => None,
    }
}

/// Whether weir counts it, and a rate of it means something.
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
    }
}

/// A call that is not among those of a profile was not made; without a profile nothing is known.
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

pub(super) fn calls_value(run: &CallsRun, name: &str) -> Option<f64> {
    let Member::Call(name, Of::PerReply) = member(name)? else { return None };
    ratio(of_calls(&run.calls, name)?.count as f64, run.replies as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::made_up;
    use crate::metrics;

    #[test]
    fn members_of_every_family_have_values_and_say_what_they_are() {
        let point = made_up::point();
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
    fn what_is_no_member_is_not_found() {
        let point = made_up::point();
        for name in [
            "calls.accept4.median",
            "calls.share",
            "calls..rate",
            "counter.no_such.rate",
            "counter.open_max.rate",
            "counter.elapsed_s.rate",
            "kernel.ListenDrops.rate",
            "kernel.TcpExt.ListenDrops",
            "",
        ] {
            assert_eq!((metrics::find(name), metrics::value(&point, name)), (None, None), "{name}");
        }
    }

    #[test]
    fn without_a_profile_no_call_has_a_value() {
        let mut point = made_up::point();
        point.server.calls.clear();
        assert_eq!(metrics::value(&point, "calls.total.rate"), None);
        assert_eq!(metrics::value(&point, "calls.accept4.per_reply"), None);
        // Called never, it has a share but no mean.
        let point = made_up::point();
        assert_eq!(metrics::value(&point, "calls.close.share"), Some(0.0));
        assert_eq!(metrics::value(&point, "calls.close.mean_us"), None);
    }

    #[test]
    fn calls_counted_from_outside_are_told_for_each_reply_only() {
        let call = |name: &str, count| CallCount { name: name.into(), count, time_s: None };
        let mut run = CallsRun {
            key: made_up::key(),
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
