//! Describes sweeps and places along them for readers.

use super::study::Study;
use super::upstream;
use crate::experiment::{
    Axis, BackgroundLoadKind, BackgroundLoadSpec, Kind, LoadSpec, Pace, RateUnit, RequestClass,
    ServerSpec, Sweep, TlsKey,
};
use crate::{generators, plan};

/// Returns the label of the horizontal axis of a sweep's figures, with its unit.
pub(super) fn x_label(sweep: &Sweep) -> String {
    match (sweep.x, sweep.rate_unit) {
        (Axis::Rate, RateUnit::Own) if sweep.spike.is_some() => {
            "offered in the spike, multiples of the server's own capacity".to_owned()
        }
        (Axis::Rate, _) if sweep.spike.is_some() => {
            format!("{} offered in the spike, 1/s", offered(&sweep.load))
        }
        (Axis::Rate, RateUnit::Own) => "offered, multiples of the server's own capacity".to_owned(),
        (Axis::Rate, _) => format!("{} offered, 1/s", offered(&sweep.load)),
        (Axis::Idle, _) => "idle connections".to_owned(),
        (Axis::Conns, _) => "persistent connections".to_owned(),
        (Axis::BackgroundLoad, _) => {
            format!("{} beside the load, 1/s", them(sweep.background_load.as_ref()))
        }
    }
}

/// Returns the noun for the traffic beside the load.
fn them(background_load: Option<&BackgroundLoadSpec>) -> &'static str {
    match background_load {
        Some(BackgroundLoadSpec { kind: BackgroundLoadKind::Cold, .. }) => {
            "requests for cold files"
        }
        _ => "clients",
    }
}

/// Returns the noun for what is offered: a session of one request is a request.
fn offered(load: &LoadSpec) -> &'static str {
    let several = load.workload == "specweb99" || load.requests_per_conn.is_some_and(|n| *n > 1);
    if several { "sessions" } else { "requests" }
}

/// Describes a value of a sweep: `2 × the capacity of accept 1`, `100 idle connections`.
pub(super) fn place(study: &Study<'_>, sweep: &Sweep, x: f64) -> String {
    match sweep.x {
        Axis::Rate => rate(study, sweep, x),
        Axis::Idle => format!("{x} idle connections"),
        Axis::Conns => format!("{x} persistent connections"),
        Axis::BackgroundLoad => format!("{x}/s beside the load"),
    }
}

fn rate(study: &Study<'_>, sweep: &Sweep, x: f64) -> String {
    match sweep.rate_unit {
        RateUnit::PerSecond => format!("{x}/s"),
        RateUnit::Own => format!("{x} × the server's own capacity"),
        RateUnit::Reference => format!("{x} × the capacity of {}", reference(study, sweep)),
    }
}

fn reference<'a>(study: &Study<'a>, sweep: &'a Sweep) -> &'a str {
    let id = sweep.reference.as_deref().unwrap_or_default();
    study.server(id).map_or(id, |server| study.label(server))
}

/// Describes a sweep in a sentence. `repetitions` is the planned number; `scale` is the run's.
pub(super) fn sweep(study: &Study<'_>, index: usize, repetitions: u32, scale: f64) -> String {
    let sweep = study.sweep(index);
    if let Some(spec) = sweep.probe {
        return probe(study, index, *spec.active, (repetitions, scale));
    }
    let mut parts = vec![
        format!("{}: {}, {}", sweep.id, workload(&sweep.load), range(study, index)),
        timing(sweep, repetitions, scale),
        generator(sweep),
    ];
    if sweep.load.idle > 0 {
        parts.push(format!("{} idle connections beside the load", sweep.load.idle));
    }
    if let Some(day) = sweep.day {
        parts.push(format!(
            "each point replays the log of a made-up day, in {} samples of equal length",
            day.samples
        ));
    }
    parts.extend(sweep.background_load.as_ref().map(|spec| background_load(sweep, spec)));
    parts.extend(upstream::describe(sweep, scale));
    parts.extend(burning(study, index));
    let of = study.experiment.servers_of(sweep, &[]);
    let gzip: Vec<&str> = of
        .into_iter()
        .filter(|server| study.experiment.server[*server].gzip())
        .map(|server| study.label(server))
        .collect();
    if !gzip.is_empty() {
        parts.push(format!("replies are compressed with gzip on the fly by {}", gzip.join(", ")));
    }
    parts.extend(tls(study, sweep));
    if sweep.client_may_limit {
        parts.push("points count in which the load generator was the limit".to_owned());
    }
    if sweep.calls {
        parts.push("system calls are counted".to_owned());
    }
    if let Some(bin_ms) = sweep.timeline_ms {
        parts.push(format!("what came of it is kept in bins of {bin_ms} ms"));
    }
    format!("{}.", parts.join("; "))
}

/// Describes a sweep without a load.
fn probe(study: &Study<'_>, index: usize, active: u32, (repetitions, scale): (u32, f64)) -> String {
    let sweep = study.sweep(index);
    let times = if repetitions == 1 { "once".to_owned() } else { format!("{repetitions} times") };
    let measured = (plan::scaled(sweep, scale).1 * 1e3).round() / 1e3;
    format!(
        "{}: no server and no load but weir probe, the mechanism by itself, {}, beside {active} \
         active ones; each point measured {times} for {measured} s.",
        sweep.id,
        range(study, index)
    )
}

fn workload(load: &LoadSpec) -> String {
    let each = match load.requests_per_conn.map(|count| *count) {
        _ if load.keep_alive => " over connections kept open".to_owned(),
        Some(1) | None => String::new(),
        Some(count) => format!(" with {count} requests a connection"),
    };
    format!("the workload {}{each}", load.workload)
}

/// Describes the range of the values and what stays constant.
fn range(study: &Study<'_>, index: usize) -> String {
    let sweep = study.sweep(index);
    let first = sweep.values.first().copied().unwrap_or_default();
    let last = sweep.values.last().copied().unwrap_or_default();
    let ends = if sweep.values.len() == 1 { String::new() } else { format!("{first} to ") };
    let mut text = format!("{ends}{}", place(study, sweep, last));
    if sweep.values.len() > 1 {
        text += &format!(" in {} steps", sweep.values.len());
    }
    match (sweep.rate, sweep.load.pace) {
        (Some(rate), _) => text += &format!(", at {}", self::rate(study, sweep, *rate)),
        (None, Pace::Closed(conns)) => text += &format!(", a closed loop of {conns} connections"),
        (None, Pace::Open) => {}
    }
    if let Some(spike) = sweep.spike {
        let base = rate(study, sweep, *spike.base);
        text += &format!(
            ", as a spike of {} s after {} s and before {} s at {base}, evenly spaced",
            spike.for_s, spike.before_s, spike.after_s
        );
    }
    if let Some(conns) = sweep.load.conns {
        text += &format!(", over {conns} persistent connections");
    }
    let known = study.server(sweep.reference.as_deref().unwrap_or_default());
    if let Some(capacity) = known.and_then(|server| study.capacity(index, server)) {
        text += &format!(" (that capacity is {capacity:.0} sessions/s)");
    }
    text
}

fn timing(sweep: &Sweep, repetitions: u32, scale: f64) -> String {
    let load = &sweep.load;
    let times = if repetitions == 1 { "once".to_owned() } else { format!("{repetitions} times") };
    let warmup = match *load.warmup_s {
        0.0 => String::new(),
        seconds => format!(" after {seconds} s of warm-up"),
    };
    let cooldown = match *load.cooldown_s {
        0.0 => String::new(),
        seconds => format!(", while the load goes on for {seconds} s more"),
    };
    let measured = (plan::scaled(sweep, scale).1 * 1e3).round() / 1e3;
    format!(
        "each point measured {times} for {measured} s{warmup}{cooldown}; what makes no progress \
         for {} s is an error",
        load.timeout_s
    )
}

fn generator(sweep: &Sweep) -> String {
    let load = &sweep.load;
    let by = generators::allow_list(load.generator).program;
    let arrivals = match (load.arrivals, load.pace) {
        (Some(law), Pace::Open) => format!(", {} arrivals", law.name()),
        _ => String::new(),
    };
    let options = match load.options.is_empty() {
        true => String::new(),
        false => format!(", with {}", load.options.join(" ")),
    };
    format!("load by {by}{arrivals}{options}")
}

/// Describes the clients beside the load and their behaviour.
fn background_load(sweep: &Sweep, spec: &BackgroundLoadSpec) -> String {
    let hold_s = spec.hold_s.unwrap_or(sweep.load.timeout_s);
    let does = match spec.kind {
        BackgroundLoadKind::Mute => format!("connect, say nothing, and reset after {hold_s} s"),
        BackgroundLoadKind::Slow => format!("send a byte a second, and reset after {hold_s} s"),
        BackgroundLoadKind::Reconnect => {
            format!("wait {hold_s} s for a reply and begin again at once, if they get none")
        }
        BackgroundLoadKind::KeepAlive => format!("come back for a second reply after {hold_s} s"),
        BackgroundLoadKind::Files => {
            format!("ask for the file itself, and give up after {hold_s} s without progress")
        }
        BackgroundLoadKind::Cold => {
            let set = spec.workload.as_deref().unwrap_or_default();
            format!("ask for a file of {set} each, and give up after {hold_s} s without progress")
        }
    };
    let clients = match spec.factor {
        Some(factor) => format!("{factor} × as many clients"),
        None => "clients".to_owned(),
    };
    format!("beside the load, from an address of their own, {clients} {does}")
}

/// Describes the artificial work that slows weir down, so that the server is overloaded and not the
/// client.
fn burning(study: &Study<'_>, index: usize) -> Vec<String> {
    let sweep = study.sweep(index);
    let mut parts = Vec::new();
    let so = "so that one client core can overload it";
    if !sweep.load.mix.is_empty() {
        let class = |class: &RequestClass| {
            format!("{} % burn {} µs", (1e4 * *class.share).round() / 100.0, class.burn_us)
        };
        let classes: Vec<String> = sweep.load.mix.iter().map(class).collect();
        parts.push(format!(
            "of the requests, {} of processor time in the server, in an order of chance",
            classes.join(" and ")
        ));
    }
    if *sweep.burn_us > 0 {
        let whose = "processor time in the server";
        parts.push(format!("each request burns {} µs of {whose}, {so}", sweep.burn_us));
    }
    for server in study.experiment.servers_of(sweep, &[]) {
        let spec = &study.experiment.server[server];
        parts.extend(behind(spec));
        match spec.weir().and_then(|weir| weir.burn_us) {
            Some(us) => parts.push(format!("in {} it burns {us} µs", spec.label)),
            None if *sweep.burn_us > 0
                && spec.weir().is_none()
                && spec.proxy_burn_us().is_none() =>
            {
                parts.push(format!("in {} it burns nothing", spec.label));
            }
            None => {}
        }
    }
    parts
}

/// Describes the TLS of servers that speak it.
fn tls(study: &Study<'_>, sweep: &Sweep) -> Option<String> {
    let of = study.experiment.servers_of(sweep, &[]);
    let keys: Vec<_> =
        of.iter().filter_map(|server| study.experiment.server[*server].tls()).collect();
    let who = if keys.len() == of.len() { "all".to_owned() } else { keys.len().to_string() };
    let key = match keys.first()? {
        key if keys.iter().any(|other| other != key) => "keys of several kinds",
        TlsKey::EcdsaP256 => "ECDSA keys on P-256",
        TlsKey::Rsa2048 => "RSA keys of 2048 bits",
    };
    Some(format!("{who} over TLS, with {key}"))
}

/// Describes the server behind a proxy.
fn behind(spec: &ServerSpec) -> Option<String> {
    let label = &spec.label;
    let whose = if spec.is_upstream_apart() { "the client's" } else { "the same" };
    let of = format!("passes on what a weir serve on {whose} processors answers");
    match spec.proxy_burn_us() {
        Some(us) => Some(format!("{label} {of}, which burns {us} µs for each request")),
        None if spec.is_weir_proxy() || spec.gzip() && spec.kind() == Kind::Haproxy => {
            Some(format!("{label} {of}"))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::experiment::Experiment;
    use crate::experiment::{HaproxySettings, Program, ProxyBurnUs};

    fn said(from: &str, to: &str, scale: f64) -> String {
        let experiment = Experiment::parse(&fixtures::TEXT.replace(from, to)).unwrap();
        sweep(&Study::new("p/e", &experiment, &[]), 0, 3, scale)
    }

    #[test]
    fn a_sweep_is_a_sentence() {
        assert_eq!(
            said("x", "x", 0.1),
            "up: the workload one-packet, 1 to 4 × the capacity of accept 1 in 3 steps; each point \
             measured 3 times for 0.9 s after 1 s of warm-up; what makes no progress for 1 s is an \
             error; load by weir load; each request burns 60 µs of processor time in the server, \
             so that one client core can overload it; in nginx it burns nothing; replies are \
             compressed with gzip on the fly by nginx."
        );
    }

    #[test]
    fn a_mix_and_a_proxy_are_said() {
        let mix = "load.mix = [{ share = 0.9, burn-us = 6 }, { share = 0.1, burn-us = 500 }]";
        let mut experiment = fixtures::experiment();
        let text = fixtures::TEXT
            .replace("burn-us = 60", mix)
            .replace("kind = \"nginx\"", "kind = \"weir\"");
        let mixed = Experiment::parse(&text.replace("gzip = true", "")).unwrap();
        let said = sweep(&Study::new("p/e", &mixed, &[]), 0, 3, 1.0);
        let expected = "of the requests, 90 % burn 6 µs and 10 % burn 500 µs of processor time";
        assert!(said.contains(expected), "{said}");
        experiment.server[1].program =
            Program::Haproxy(HaproxySettings { gzip: true, ..HaproxySettings::default() });
        let said = |experiment: &Experiment| sweep(&Study::new("p/e", experiment, &[]), 0, 3, 1.0);
        let passes = "nginx passes on what a weir serve on the same processors answers";
        assert!(said(&experiment).contains(&format!("{passes}; in nginx it burns nothing;")));
        experiment.server[1].program = Program::Haproxy(HaproxySettings {
            gzip: true,
            proxy_burn_us: ProxyBurnUs::try_from(7).ok(),
            ..HaproxySettings::default()
        });
        let said = said(&experiment);
        assert!(said.contains(&format!("{passes}, which burns 7 µs for each request; replies")));
    }

    #[test]
    fn a_spike_and_clients_beside_the_load_are_in_the_sentence() {
        let spike =
            "timeline-ms = 100\nspike = { base = 0.5, before-s = 2, for-s = 10, after-s = 5 }";
        let said_of = said("burn-us = 60", spike, 1.0);
        let expected = "1 to 4 × the capacity of accept 1 in 3 steps, as a spike of 10 s after 2 s \
                        and before 5 s at 0.5 × the capacity of accept 1, evenly spaced;";
        assert!(said_of.contains(expected), "{said_of}");
        assert!(said_of.contains("measured 3 times for 17 s"), "{said_of}");
        assert!(said_of.contains("kept in bins of 100 ms"), "{said_of}");
        for (kind, does) in [
            ("mute", "connect, say nothing, and reset after 1 s"),
            ("slow", "send a byte a second, and reset after 1 s"),
            ("reconnect", "wait 1 s for a reply and begin again at once, if they get none"),
            ("keep-alive", "come back for a second reply after 1 s"),
            ("files", "ask for the file itself, and give up after 1 s without progress"),
        ] {
            let background_load = format!("beside = {{ kind = \"{kind}\", factor = 10 }}");
            let said_of = said("burn-us = 60", &background_load, 1.0);
            let expected = format!("of their own, 10 × as many clients {does}");
            assert!(said_of.contains(&expected), "{said_of}");
        }
    }

    #[test]
    fn an_axis_has_the_name_of_what_is_offered() {
        let mut sweep = fixtures::experiment().sweep.remove(0);
        assert_eq!(x_label(&sweep), "requests offered, 1/s");
        sweep.load.workload = "specweb99".to_owned();
        assert_eq!(x_label(&sweep), "sessions offered, 1/s");
        sweep.rate_unit = RateUnit::Own;
        assert_eq!(x_label(&sweep), "offered, multiples of the server's own capacity");
        sweep.spike =
            Some(toml::from_str("base = 1\nbefore-s = 1\nfor-s = 1\nafter-s = 1").unwrap());
        let expected = "offered in the spike, multiples of the server's own capacity";
        assert_eq!(x_label(&sweep), expected);
        (sweep.x, sweep.spike) = (Axis::Conns, None);
        assert_eq!(x_label(&sweep), "persistent connections");
    }
}
