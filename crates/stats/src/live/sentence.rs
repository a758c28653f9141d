//! The sentence about a server: why it refuses when it refuses, and what has failed.

use super::reading::Reading;
use super::refusals::Refused;
use super::sample::Sample;
use crate::page::UpstreamState;

/// Part of what comes below which refusals are not the first thing to say.
const REFUSED_MIN: f64 = 0.005;

/// Part of the time for which a listener must be overloaded to be called so.
pub(super) const OVERLOADED_MIN: f64 = 0.1;

/// Condition of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Not known yet.
    #[default]
    Unknown,
    /// Everything that comes is served.
    Calm,
    /// Some of what comes is refused because of the limits of clients.
    Limiting,
    /// Overload control is at work, and what it refuses is not counted.
    Overloaded,
    /// Some of what comes is refused because of load, or for lack of memory.
    Refusing,
    /// Something that the server needs has failed.
    Failing,
}

impl Condition {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Calm => "calm",
            Self::Limiting => "limiting",
            Self::Overloaded => "overloaded",
            Self::Refusing => "refusing",
            Self::Failing => "failing",
        }
    }
}

/// A sentence about a server, or two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sentence {
    /// Condition that the first of them is about.
    pub condition: Condition,
    /// The text.
    pub text: String,
}

impl Sentence {
    /// Returns the sentence before anything is known.
    pub(super) fn unknown() -> Self {
        let text = "The first second is being measured.".into();
        Self { condition: Condition::Unknown, text }
    }

    /// Returns the sentence about some seconds, of which `last` is the end.
    pub(super) fn of(sample: &Sample, last: &Reading) -> Self {
        let memory = refused_for_memory(sample, last).map(|text| (Condition::Refusing, text));
        Self::beginning(memory.or_else(|| of_load(sample, last)), sample, last)
    }

    /// Returns the sentence about an overload in these seconds; `None` without one. Lack of memory
    /// is none.
    pub(super) fn of_overload(sample: &Sample, last: &Reading) -> Option<Self> {
        Some(Self::beginning(Some(of_load(sample, last)?), sample, last))
    }

    /// Returns the sentence that begins with why things are refused, if they are, and goes on with
    /// what else is to be said.
    fn beginning(refused: Option<(Condition, String)>, sample: &Sample, last: &Reading) -> Self {
        let limited = limited(sample).into_iter().map(|text| (Condition::Limiting, text));
        let faults = faults(sample, last).into_iter().map(|text| (Condition::Failing, text));
        let all: Vec<_> = refused.into_iter().chain(limited).chain(faults).collect();
        let Some((condition, _)) = all.first() else {
            return Self { condition: Condition::Calm, text: calm(sample) };
        };
        let texts: Vec<&str> = all.iter().map(|(_, text)| text.as_str()).collect();
        Self { condition: *condition, text: texts.join(" ") }
    }
}

/// Returns what is refused because of load; `None` if hardly anything is.
fn of_load(sample: &Sample, last: &Reading) -> Option<(Condition, String)> {
    let refused = refused_connections(sample, last)
        .or_else(|| refused_forwarded(sample, last))
        .or_else(|| refused_requests(sample));
    let refused = refused.map(|text| (Condition::Refusing, text));
    refused.or_else(|| Some((Condition::Overloaded, overloaded(sample, last)?)))
}

fn refused_for_memory(sample: &Sample, last: &Reading) -> Option<String> {
    let percent = percent(sample.refused_for_memory(), sample.offered())?;
    let counters = &last.total.counters;
    let mib = |bytes: crate::Counter| count(bytes.get() as f64 / f64::from(1 << 20));
    let (used, limit) = (mib(counters.memory_used_bytes), mib(counters.memory_limit_bytes));
    Some(format!(
        "Refusing {percent} of what comes for lack of memory: {used} MiB of {limit} MiB are in use."
    ))
}

fn refused_connections(sample: &Sample, last: &Reading) -> Option<String> {
    let Sample { accepted, departed, refused: [syn, excess, stale, ..], .. } = *sample;
    let arrived = accepted + syn;
    let percent = percent(syn + excess + stale, arrived)?;
    let served = (accepted - excess - stale - departed).max(0.0);
    let (arrived, served, within) = (rate(arrived), rate(served), within(last));
    Some(format!(
        "Refusing {percent} of new connections: {arrived}/s arrive, {served}/s can be served \
         {within}."
    ))
}

fn refused_forwarded(sample: &Sample, last: &Reading) -> Option<String> {
    let [_, _, _, _, _, _, syns, ..] = sample.refused;
    let (refused, arrived) = (sample.refused(Refused::Forwarded), sample.forwarded + syns);
    let percent = percent(refused, arrived)?;
    let (arrived, sent) = (rate(arrived), rate((arrived - refused).max(0.0)));
    let mut text = format!(
        "Refusing {percent} of requests for upstreams: {arrived}/s arrive, {sent}/s find a place \
         in time"
    );
    let fullest = last.upstreams.iter().max_by_key(|each| each.waiting);
    if let Some(UpstreamState { name, limit: Some(limit), waiting, .. }) = fullest {
        text += &format!("; {waiting} wait for the {limit} places at upstream {name}");
    }
    if syns > 0.0 {
        text += &format!("; of those refused, {}/s had no connection yet", rate(syns));
    }
    Some(text + ".")
}

fn refused_requests(sample: &Sample) -> Option<String> {
    let [_, _, _, refused, ..] = sample.refused;
    let percent = percent(refused, sample.offered())?;
    let refused = rate(refused);
    Some(format!(
        "Refusing {percent} of requests: {refused}/s come from sources that have used up their \
         share."
    ))
}

/// Returns what the limits of clients refuse, which is not on account of load.
fn limited(sample: &Sample) -> Vec<String> {
    let Sample { limited_requests: requests, limited_connections: connections, .. } = *sample;
    let of_requests = percent(requests, sample.answered + sample.failed + requests);
    let of_connections = percent(connections, sample.accepted);
    let of_requests = of_requests.map(|percent| {
        let requests = rate(requests);
        format!(
            "Refusing {percent} of requests by --client-requests: {requests}/s come from clients \
             that have made as many as they may."
        )
    });
    let of_connections = of_connections.map(|percent| {
        let connections = rate(connections);
        format!(
            "Refusing {percent} of new connections by --client-connections: {connections}/s come \
             from clients that have as many open as they may."
        )
    });
    of_requests.into_iter().chain(of_connections).collect()
}

fn overloaded(sample: &Sample, last: &Reading) -> Option<String> {
    (sample.overloaded >= OVERLOADED_MIN).then(|| {
        let (accepted, within) = (rate(sample.accepted), within(last));
        format!(
            "Overloaded: {accepted} connections/s are accepted, as many as can be served {within}."
        )
    })
}

fn faults(sample: &Sample, last: &Reading) -> Vec<String> {
    let down = last.upstreams.iter().filter(|each| each.servers_down > 0);
    let mut faults: Vec<String> = down.map(down_servers).collect();
    let seconds = sample.seconds;
    let mut add = |per_s: f64, text: &dyn Fn(String) -> String| {
        if per_s > 0.0 {
            faults.push(text(count(per_s * seconds)));
        }
    };
    let span = format!("in {seconds:.0} s");
    add(sample.upstream_failed, &|n| format!("Requests failed at upstreams: {n} {span}."));
    add(sample.exhausted, &|n| {
        format!("Accepts failed for lack of descriptors or memory: {n} {span}.")
    });
    add(sample.log_lost, &|n| format!("Lines of the access log were lost: {n} {span}."));
    faults
}

fn down_servers(upstream: &UpstreamState) -> String {
    let UpstreamState { name, servers, servers_down, .. } = upstream;
    if servers_down >= servers {
        return format!("Upstream {name} is down: checks find no server that is well.");
    }
    format!("Upstream {name} has {servers_down} of {servers} servers down.")
}

fn calm(sample: &Sample) -> String {
    let answered = sample.answered + sample.failed;
    if answered + sample.accepted == 0.0 {
        return "Calm: no requests.".into();
    }
    let refused = sample.refused_in_all() > 0.0;
    let refused = if refused { "hardly anything" } else { "nothing" };
    format!("Calm: {} requests/s are answered, and {refused} is refused.", rate(answered))
}

fn within(last: &Reading) -> String {
    match last.target_ns {
        0 => "in time".into(),
        ns => format!("within {} ms", (ns as f64 / 1e6).max(1.0).round()),
    }
}

/// Returns a part in percent, of which the least is 1; `None` if it is too small to be said first.
fn percent(part: f64, whole: f64) -> Option<String> {
    let share = part / whole.max(f64::MIN_POSITIVE);
    let percent = (100.0 * share).clamp(1.0, 100.0);
    (part > 0.0 && share >= REFUSED_MIN).then(|| format!("{percent:.0} %"))
}

/// Returns a number per second: whole from 10 on.
pub fn rate(per_s: f64) -> String {
    if per_s >= 9.95 || per_s == 0.0 { count(per_s) } else { format!("{per_s:.1}") }
}

/// Returns a whole number, with its thousands apart.
pub fn count(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::with_capacity(digits.len() + 4);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
