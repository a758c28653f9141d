//! Validation of experiment files beyond their syntax: names that exist, numbers in range, settings
//! that agree. Each error is one sentence that names the place.

mod overload;
mod probe;

use std::collections::BTreeMap;

use super::{
    At, Axis, Experiment, Figure, Generator, Kind, LoadSpec, Matrix, Position, RateUnit,
    RequestClass, ServerSpec, Sweep, TimelineFigure, arch,
};
use crate::file_set::FileSet;
use crate::{metrics, servers};

/// Maximum processor time that `weir serve` burns per request, in microseconds.
const BURN_US_MAX: u32 = 1_000_000;

/// Minimum memory limit with which a server starts, in MiB.
const MEMORY_MIB_MIN: u32 = 16;

/// Maximum size of the specweb99 file set, in MiB.
const MB_MAX: u32 = 10_000;

/// Tolerance for the sum of a mix's shares, which are written in decimals.
const SHARE_ERROR_MAX: f64 = 1e-6;

/// Validates an experiment.
///
/// # Errors
/// Returns the first violation, as a sentence.
pub(super) fn check(experiment: &Experiment) -> Result<(), String> {
    must(!experiment.title.trim().is_empty(), || "the experiment has no title".to_owned())?;
    must(!experiment.server.is_empty(), || "the experiment has no server".to_owned())?;
    must(!experiment.sweep.is_empty(), || "the experiment has no sweep".to_owned())?;
    for name in experiment.sysctl.keys() {
        must(is_of_namespace(name), || {
            format!(
                "sysctl {name}: an experiment sets only what a network namespace has of its own, \
                 below net.core, net.ipv4 and net.ipv6"
            )
        })?;
    }
    unique("server", experiment.server.iter().map(|server| &server.id))?;
    unique("sweep", experiment.sweep.iter().map(|sweep| &sweep.id))?;
    let figures = experiment.figure.iter().map(|figure| &figure.id);
    let along_time: Vec<String> =
        experiment.timeline.iter().flat_map(TimelineFigure::ids).collect();
    let tables = experiment.table.iter().map(|table| &table.id);
    let tables = tables.chain(experiment.matrix.iter().map(|matrix| &matrix.id));
    let drawn = figures.chain(&along_time).chain(tables);
    unique("figure or table", drawn)?;
    labels(&experiment.server)?;
    experiment.server.iter().try_for_each(server)?;
    experiment.sweep.iter().try_for_each(|one| sweep(experiment, one))?;
    experiment.figure.iter().try_for_each(|one| figure(experiment, one))?;
    experiment.timeline.iter().try_for_each(|one| overload::figure(experiment, one))?;
    experiment.table.iter().try_for_each(|one| table(experiment, one))?;
    experiment.matrix.iter().try_for_each(|one| matrix(experiment, one))?;
    unique("claim", experiment.claim.iter().map(|claim| &claim.id))?;
    experiment.claim.iter().try_for_each(|claim| {
        claim.check_own(experiment).map_err(|why| format!("claim {}: {why}", claim.id))
    })
}

/// Rejects control characters other than line breaks and tabs: names and texts are shown on
/// terminals.
///
/// # Errors
/// Returns a sentence with the offending text, escaped.
pub(super) fn texts(text: &str) -> Result<(), String> {
    let table: toml::Table = super::read(text)?;
    table.iter().try_for_each(|(key, value)| in_text(key).and_then(|()| in_value(value)))
}

fn in_value(value: &toml::Value) -> Result<(), String> {
    match value {
        toml::Value::String(text) => in_text(text),
        toml::Value::Array(values) => values.iter().try_for_each(in_value),
        toml::Value::Table(table) => {
            table.iter().try_for_each(|(key, value)| in_text(key).and_then(|()| in_value(value)))
        }
        _ => Ok(()),
    }
}

fn in_text(text: &str) -> Result<(), String> {
    let shown = |c: char| !c.is_control() || c == '\n' || c == '\t';
    must(text.chars().all(shown), || format!("{text:?} has a control character"))
}

/// Returns whether a setting (sysctl(8)) belongs to a family that each network namespace has
/// separately, and its name is a plain path below `/proc/sys/net`.
fn is_of_namespace(name: &str) -> bool {
    let mut parts = name.split('.');
    let family = parts.next() == Some("net")
        && parts.next().is_some_and(|family| ["core", "ipv4", "ipv6"].contains(&family));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let mut below = parts.peekable();
    family && below.peek().is_some() && below.all(|p| !p.is_empty() && p.bytes().all(plain))
}

fn must(kept: bool, says: impl FnOnce() -> String) -> Result<(), String> {
    if kept { Ok(()) } else { Err(says()) }
}

/// Checks that ids are unique and plain: they become parts of file names and table rows.
fn unique<'a>(what: &str, ids: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = Vec::new();
    for id in ids {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
        must(!id.is_empty() && id.bytes().all(plain), || {
            format!("{what} `{id}`: an id is letters, digits and any of . - _ +")
        })?;
        must(!seen.contains(&id), || format!("{what} {id}: two have this id"))?;
        seen.push(id);
    }
    Ok(())
}

fn labels(servers: &[ServerSpec]) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for ServerSpec { id, label, .. } in servers {
        must(!label.trim().is_empty(), || format!("server {id}: its label is empty"))?;
        if let Some(other) = seen.insert(label, id) {
            return Err(format!("server {id}: server {other} has the label `{label}` too"));
        }
    }
    Ok(())
}

fn server(server: &ServerSpec) -> Result<(), String> {
    let id = &server.id;
    let weir = server.kind == Kind::Weir;
    must(weir || server.burn_us.is_none(), || {
        format!("server {id}: burn-us is for weir alone, no other server can burn time")
    })?;
    must(!weir || !server.gzip, || format!("server {id}: weir does not compress, so no gzip"))?;
    let proxy = matches!(server.kind, Kind::Nginx | Kind::H2o | Kind::Haproxy);
    must(proxy || server.proxy_burn_us.is_none(), || {
        format!("server {id}: proxy-burn-us is for nginx, h2o and haproxy, which can be proxies")
    })?;
    let burns = server.burn_us.into_iter().chain(server.proxy_burn_us);
    must(burns.max().is_none_or(|us| us <= BURN_US_MAX), || {
        format!("server {id}: a request burns {BURN_US_MAX} µs at most")
    })?;
    must(server.proxy_burn_us != Some(0), || format!("server {id}: proxy-burn-us is 1 or more"))?;
    must(server.backlog != Some(0), || format!("server {id}: a backlog is 1 or more"))?;
    must(server.memory_mib.is_none_or(|mib| mib >= MEMORY_MIB_MIN), || {
        format!("server {id}: memory-mib is {MEMORY_MIB_MIN} or more")
    })?;
    must(server.disk_reads_per_s != Some(0), || {
        format!("server {id}: disk-reads-per-s is 1 or more")
    })?;
    arch::check(server).map_err(|why| format!("server {id}: {why}"))
}

fn sweep(experiment: &Experiment, sweep: &Sweep) -> Result<(), String> {
    let id = &sweep.id;
    known_servers(experiment, &format!("sweep {id}"), &sweep.servers)?;
    values(sweep)?;
    unit(experiment, sweep)?;
    match &sweep.probe {
        Some(spec) => probe::sweep(experiment, sweep, spec)?,
        None => rates(sweep)?,
    }
    load(id, &sweep.load)?;
    overload::sweep(sweep)?;
    must(sweep.repetitions >= 1, || format!("sweep {id}: repetitions is 1 or more"))?;
    must((1..=1024).contains(&sweep.capacity_connections), || {
        format!("sweep {id}: capacity-connections is 1 to 1024")
    })?;
    let servers = experiment.servers_of(sweep, &[]);
    let mut servers = servers.iter().filter_map(|index| experiment.server.get(*index));
    if !sweep.load.mix.is_empty() {
        return mix(sweep, servers);
    }
    must(sweep.burn_us == 0 || servers.any(|one| one.kind == Kind::Weir), || {
        format!("sweep {id}: burn-us needs a weir server, and none of its servers is")
    })
}

fn mix<'a>(sweep: &Sweep, servers: impl Iterator<Item = &'a ServerSpec>) -> Result<(), String> {
    let place = format!("sweep {}: load.mix", sweep.id);
    let load = &sweep.load;
    must(load.mix.len() >= 2, || format!("{place} has one class, and needs two or more"))?;
    must(sweep.burn_us == 0, || format!("{place} says what requests burn, so burn-us does not"))?;
    for (index, RequestClass { share, burn_us }) in load.mix.iter().enumerate() {
        must(positive(*share), || format!("{place}: the share {share} is not positive"))?;
        must(*burn_us <= BURN_US_MAX, || {
            format!("{place}: a request burns {BURN_US_MAX} µs at most")
        })?;
        must(load.mix[..index].iter().all(|other| other.burn_us != *burn_us), || {
            format!("{place}: two classes burn {burn_us} µs")
        })?;
    }
    let sum: f64 = load.mix.iter().map(|class| class.share).sum();
    must((sum - 1.0).abs() <= SHARE_ERROR_MAX, || {
        format!("{place}: its shares sum up to {sum}, not to 1")
    })?;
    must(load.generator == Generator::Weir, || format!("{place} is for weir load alone"))?;
    must(servers::file_of(&load.workload).is_some(), || {
        format!("{place} needs a workload of one file, and {} has several", load.workload)
    })?;
    for ServerSpec { id, kind, burn_us, .. } in servers {
        must(*kind == Kind::Weir, || {
            format!("{place} is for weir servers, no other can burn time, and {id} is none")
        })?;
        must(burn_us.is_none(), || {
            format!("{place} says what requests burn, and so does server {id}")
        })?;
    }
    Ok(())
}

fn known_servers(experiment: &Experiment, place: &str, ids: &[String]) -> Result<(), String> {
    for (index, id) in ids.iter().enumerate() {
        must(experiment.server.iter().any(|server| server.id == *id), || {
            format!("{place}: there is no server {id}")
        })?;
        must(!ids[..index].contains(id), || format!("{place}: server {id} is named twice"))?;
    }
    Ok(())
}

fn values(sweep: &Sweep) -> Result<(), String> {
    let Sweep { id, values, x, .. } = sweep;
    must(!values.is_empty(), || format!("sweep {id}: it has no values"))?;
    for value in values {
        // Curves over idle connections or additional clients begin at 0.
        let from_none = matches!(x, Axis::Idle | Axis::BackgroundLoad);
        let low = *value < 0.0 || (*value == 0.0 && !from_none);
        must(value.is_finite() && !low, || {
            format!("sweep {id}: the value {value} is not positive")
        })?;
        must(matches!(x, Axis::Rate | Axis::BackgroundLoad) || value.fract() == 0.0, || {
            format!("sweep {id}: {value} is not a number of connections")
        })?;
    }
    must(values.windows(2).all(|pair| pair[0] < pair[1]), || {
        format!("sweep {id}: its values do not ascend")
    })
}

fn unit(experiment: &Experiment, sweep: &Sweep) -> Result<(), String> {
    let id = &sweep.id;
    match (&sweep.reference, sweep.rate_unit) {
        (None, RateUnit::Reference) => {
            Err(format!("sweep {id}: rate-unit is \"reference\", and no reference is given"))
        }
        (Some(_), RateUnit::PerSecond | RateUnit::Own) => {
            Err(format!("sweep {id}: a reference needs rate-unit = \"reference\""))
        }
        (Some(server), _) if experiment.server.iter().all(|one| one.id != *server) => {
            Err(format!("sweep {id}: there is no server {server} to be its reference"))
        }
        _ => Ok(()),
    }
}

/// Checks that the loop is either open, with its rate given in one place, or closed, without a
/// rate.
fn rates(sweep: &Sweep) -> Result<(), String> {
    let Sweep { id, rate, load, .. } = sweep;
    if sweep.x == Axis::Rate {
        must(rate.is_none(), || format!("sweep {id}: x is the rate, so there is no other rate"))?;
        must(load.closed.is_none(), || {
            format!("sweep {id}: x is the rate, and a closed loop has none")
        })?;
    } else {
        must(rate.is_some() || load.closed.is_some(), || {
            format!("sweep {id}: it needs a rate, or load.closed")
        })?;
        must(rate.is_none() || load.closed.is_none(), || {
            format!("sweep {id}: it has a rate and a closed loop, which has none")
        })?;
    }
    must(rate.is_none_or(positive), || format!("sweep {id}: its rate is not positive"))?;
    let closed = matches!(load.generator, Generator::Wrk | Generator::Ab);
    must(!closed || load.closed.is_some(), || {
        format!("sweep {id}: wrk and ab make closed loops, so they need load.closed")
    })?;
    must(load.generator != Generator::Httperf || load.closed.is_none(), || {
        format!("sweep {id}: httperf makes open loops, so load.closed is not for it")
    })?;
    must(sweep.x != Axis::Idle || load.idle == 0, || {
        format!("sweep {id}: x is the number of idle connections, so load.idle is not given")
    })?;
    must(sweep.x != Axis::Conns || load.conns.is_none(), || {
        format!("sweep {id}: x is the number of connections, so load.conns is not given")
    })
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn load(id: &str, load: &LoadSpec) -> Result<(), String> {
    let place = |name: &str| format!("sweep {id}: load.{name}");
    let workload = load.workload.as_str();
    must(!workload.trim().is_empty(), || format!("{} is empty", place("workload")))?;
    // The workload also becomes a directory name and a command-line argument.
    must(is_plain(workload), || {
        format!("{} {workload:?} is not letters, digits and dashes", place("workload"))
    })?;
    must(load.mb().is_none_or(is_mib), || {
        format!("{}: --mb is a number of MiB, {MB_MAX} at most", place("options"))
    })?;
    let set = FileSet::named(workload);
    must(set.is_some() || !workload.starts_with("files-"), || {
        format!("{} {workload} is no set: files-COUNTxKIBk", place("workload"))
    })?;
    must(set.is_none() || load.generator == Generator::Weir, || {
        format!("{} is for weir load alone", place("workload"))
    })?;
    must(servers::file_size(workload).is_some() || !workload.starts_with("file-"), || {
        format!("{} {workload} is no file: file-KIBk", place("workload"))
    })?;
    let times = [("duration-s", load.duration_s), ("timeout-s", load.timeout_s)];
    for (name, seconds) in times {
        must(positive(seconds), || format!("{} is not a positive time", place(name)))?;
    }
    must(load.warmup_s.is_finite() && load.warmup_s >= 0.0, || {
        format!("{} is not a time", place("warmup-s"))
    })?;
    let counts = [
        ("conns", load.conns),
        ("closed", load.closed),
        ("requests-per-conn", load.requests_per_conn),
    ];
    for (name, count) in counts {
        must(count != Some(0), || format!("{} is 1 or more", place(name)))?;
    }
    let law = load.arrivals.as_deref().unwrap_or("constant");
    must(["constant", "poisson", "uniform"].contains(&law), || {
        format!("{} is constant, poisson or uniform, not {law}", place("arrivals"))
    })
}

/// Returns whether a name consists of letters, digits and dashes and does not begin with a dash.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.bytes().all(plain) && !name.starts_with('-')
}

fn is_mib(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse().is_ok_and(|mib: u32| mib <= MB_MAX)
}

fn figure(experiment: &Experiment, figure: &Figure) -> Result<(), String> {
    let place = format!("figure {}", figure.id);
    let sweep = drawn(experiment, &place, &figure.sweep, &figure.servers)?;
    let units = known_metrics(&place, "y", &figure.y)?;
    if let Some(odd) = units.iter().position(|unit| *unit != units[0]) {
        return Err(format!(
            "{place}: {} is in `{}` and {} in `{}`, and they share an axis",
            figure.y[0], units[0], figure.y[odd], units[odd]
        ));
    }
    must(!figure.x_log || sweep.values.iter().all(|value| *value > 0.0), || {
        format!("{place}: a logarithmic axis has no place for 0, a value of sweep {}", sweep.id)
    })
}

fn table(experiment: &Experiment, table: &super::Table) -> Result<(), String> {
    let place = format!("table {}", table.id);
    let sweep = drawn(experiment, &place, &table.sweep, &table.servers)?;
    known_metrics(&place, "columns", &table.columns)?;
    must(!table.at.is_empty(), || format!("{place}: `at` names no place of the sweep"))?;
    table.at.iter().try_for_each(|at| at_a_place(&place, sweep, *at))
}

fn matrix(experiment: &Experiment, matrix: &Matrix) -> Result<(), String> {
    let place = format!("matrix {}", matrix.id);
    known_metrics(&place, "metric", std::slice::from_ref(&matrix.metric))?;
    must(!matrix.of.is_empty(), || format!("{place}: `of` names no sweep"))?;
    let plain = matrix.relative_to.is_none() || metrics::relative(&matrix.metric).is_none();
    must(plain, || format!("{place}: {} is a ratio already", matrix.metric))?;
    for (index, cells) in matrix.of.iter().enumerate() {
        let sweep = drawn(experiment, &place, &cells.sweep, matrix.relative_to.as_slice())?;
        at_a_place(&place, sweep, cells.at)?;
        must(matrix.of[..index].iter().all(|other| other.label != cells.label), || {
            format!("{place}: two columns are called {}", cells.label)
        })?;
        alone(experiment, sweep).map_err(|why| format!("{place}: {why}"))?;
    }
    Ok(())
}

/// Checks that no two servers of the sweep share a cell.
fn alone(experiment: &Experiment, sweep: &Sweep) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for server in experiment.servers_of(sweep, &[]).into_iter().map(|at| &experiment.server[at]) {
        let row = server.row.as_ref().unwrap_or(&server.label);
        if let Some(other) = seen.insert((row, &server.column), &server.id) {
            return Err(format!("servers {other} and {} are in one cell, of {row}", server.id));
        }
    }
    Ok(())
}

fn at_a_place(place: &str, sweep: &Sweep, at: At) -> Result<(), String> {
    match at {
        At::Value(x) => must(sweep.index_of(x).is_some(), || {
            format!("{place}: {x} is not a value of sweep {}", sweep.id)
        }),
        At::Named(named) => must(named != Position::Peak || sweep.probe.is_none(), || {
            format!("{place}: a probe has no replies, and so no peak")
        }),
    }
}

/// Returns the sweep of a figure or table, provided that it exists and includes the servers.
fn drawn<'a>(
    experiment: &'a Experiment,
    place: &str,
    sweep: &str,
    servers: &[String],
) -> Result<&'a Sweep, String> {
    let found = experiment.sweep.iter().find(|one| one.id == sweep);
    let found = found.ok_or_else(|| format!("{place}: there is no sweep {sweep}"))?;
    known_servers(experiment, place, servers)?;
    for server in servers {
        must(found.servers.is_empty() || found.servers.contains(server), || {
            format!("{place}: sweep {sweep} does not measure server {server}")
        })?;
    }
    Ok(found)
}

/// Returns the units of the named metrics.
fn known_metrics(place: &str, field: &str, names: &[String]) -> Result<Vec<&'static str>, String> {
    must(!names.is_empty(), || format!("{place}: `{field}` names no metric"))?;
    let mut units = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let info = metrics::find(name);
        units.push(info.ok_or_else(|| format!("{place}: there is no metric {name}"))?.unit);
        must(!names[..index].contains(name), || format!("{place}: {name} is named twice"))?;
    }
    Ok(units)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const GOOD: &str = r#"
title = "T"
question = "Q?"
sysctl = { "net.ipv4.tcp_syncookies" = 0 }
[[server]]
id = "one"
label = "accept 1"
kind = "weir"
[[server]]
id = "ngx"
label = "nginx"
kind = "nginx"
gzip = true
[[sweep]]
id = "up"
x = "rate"
values = [1, 2.5]
rate-unit = "reference"
reference = "one"
burn-us = 60
[[sweep]]
id = "idle"
x = "idle"
servers = ["one"]
values = [0, 100]
rate = 50
[[figure]]
id = "fig-1"
title = "F"
sweep = "up"
y = ["reply_rate"]
[[table]]
id = "table-1"
title = "F"
sweep = "up"
columns = ["c_avg", "response_p99"]
at = [2.5, "peak"]
"#;

    /// Returns the error for a valid file with one text replaced; empty if there is none.
    pub(in super::super) fn said_of(good: &str, from: &str, to: &str) -> String {
        assert!(good.contains(from), "{from}");
        match Experiment::parse(&good.replacen(from, to, 1)) {
            Ok(_) => String::new(),
            Err(error) => error,
        }
    }

    fn said(from: &str, to: &str) -> String {
        said_of(GOOD, from, to)
    }

    #[test]
    fn a_good_file_is_taken() {
        let experiment = Experiment::parse(GOOD).unwrap();
        assert_eq!(experiment.servers_of(&experiment.sweep[1], &[]), [0]);
        assert_eq!(experiment.servers_of(&experiment.sweep[0], &[]), [0, 1]);
        assert_eq!(experiment.sweep[0].index_of(2.5 + 1e-12), Some(1));
    }

    #[test]
    fn an_error_of_the_text_names_its_line() {
        assert_eq!(said("kind = \"nginx\"", "kind = \"iis\"")[..8], *"line 12:");
        assert!(said("question", "answer").contains("unknown field `answer`"));
    }

    #[test]
    fn what_is_wrong_with_names_and_servers_is_said() {
        let cases = [
            ("title = \"T\"", "title = \" \"", "the experiment has no title"),
            ("title = \"T\"", "title = \"\\u001b]0;x\"", "has a control character"),
            ("net.ipv4.tcp_syncookies", "net.bridge.x", "below net.core, net.ipv4"),
            ("net.ipv4.tcp_syncookies", "net.ipv4/../../kernel.x", "below net.core, net.ipv4"),
            ("net.ipv4.tcp_syncookies", "net.ipv4...x", "below net.core, net.ipv4"),
            ("net.ipv4.tcp_syncookies", "net.core", "below net.core, net.ipv4"),
            ("net.ipv4.tcp_syncookies", "kernel.pid_max", "below net.core, net.ipv4"),
            ("id = \"ngx\"", "id = \"one\"", "server one: two have this id"),
            ("id = \"ngx\"", "id = \"n/x\"", "server `n/x`: an id is letters"),
            ("id = \"idle\"", "id = \"up\"", "sweep up: two have this id"),
            ("id = \"table-1\"", "id = \"fig-1\"", "figure or table fig-1: two have this id"),
            ("label = \"nginx\"", "label = \"accept 1\"", "server ngx: server one has the label"),
            ("label = \"nginx\"", "label = \"\"", "server ngx: its label is empty"),
            ("gzip = true", "burn-us = 5", "server ngx: burn-us is for weir alone"),
            ("gzip = true", "backlog = 0", "server ngx: a backlog is 1 or more"),
            ("gzip = true", "memory-mib = 4", "server ngx: memory-mib is 16 or more"),
            ("gzip = true", "disk-reads-per-s = 0", "server ngx: disk-reads-per-s is 1 or more"),
            ("gzip = true", "proxy-burn-us = 0", "server ngx: proxy-burn-us is 1 or more"),
            ("gzip = true", "proxy-burn-us = 1000001", "server ngx: a request burns 1000000"),
            ("\"nginx\"\ngzip = true", "\"apache\"\nproxy-burn-us = 5", "ngx: proxy-burn-us is"),
            ("kind = \"weir\"", "kind = \"weir\"\ngzip = true", "server one: weir does not comp"),
        ];
        for (from, to, expected) in cases {
            let error = said(from, to);
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_sweep_is_said() {
        let cases = [
            ("servers = [\"one\"]", "servers = [\"x\"]", "sweep idle: there is no server x"),
            ("servers = [\"one\"]", "servers = [\"one\", \"one\"]", "server one is named twice"),
            ("[1, 2.5]", "[]", "sweep up: it has no values"),
            ("[1, 2.5]", "[2.5, 1]", "sweep up: its values do not ascend"),
            ("[1, 2.5]", "[0, 2.5]", "sweep up: the value 0 is not positive"),
            ("[1, 2.5]", "[1, inf]", "sweep up: the value inf is not positive"),
            ("[1, 2.5]", "[1, nan]", "sweep up: the value NaN is not positive"),
            ("[0, 100]", "[0.5]", "sweep idle: 0.5 is not a number of connections"),
            ("reference = \"one\"", "", "sweep up: rate-unit is \"reference\", and no"),
            ("reference = \"one\"", "reference = \"x\"", "there is no server x to be its"),
            ("\"reference\"", "\"own\"", "sweep up: a reference needs rate-unit"),
            ("burn-us = 60", "rate = 5", "sweep up: x is the rate, so there is no other"),
            ("burn-us = 60", "load.closed = 5", "sweep up: x is the rate, and a closed loop"),
            ("burn-us = 60", "repetitions = 0", "sweep up: repetitions is 1 or more"),
            (
                "servers = [\"one\"]",
                "servers = [\"ngx\"]\nburn-us = 1",
                "sweep idle: burn-us needs",
            ),
            ("rate = 50", "", "sweep idle: it needs a rate, or load.closed"),
            ("rate = 50", "rate = 50\nload.closed = 1", "sweep idle: it has a rate and a closed"),
            ("rate = 50", "rate = -1", "sweep idle: its rate is not positive"),
            ("rate = 50", "rate = 1\nload.generator = \"wrk\"", "wrk and ab make closed loops"),
            (
                "rate = 50",
                "load = { closed = 1, generator = \"httperf\" }",
                "httperf makes open loops",
            ),
            ("rate = 50", "rate = 1\nload.idle = 3", "so load.idle is not given"),
            ("x = \"idle\"", "x = \"conns\"", "the value 0 is not positive"),
        ];
        for (from, to, expected) in cases {
            let error = said(from, to);
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_load_is_said() {
        let cases = [
            ("workload = \"\"", "load.workload is empty"),
            ("workload = \"../../../etc\"", "is not letters, digits and dashes"),
            ("workload = \"--out\"", "is not letters, digits and dashes"),
            ("options = [\"--mb\", \"../..\"]", "load.options: --mb is a number of MiB"),
            ("options = [\"--mb=10001\"]", "load.options: --mb is a number of MiB"),
            ("duration-s = 0", "load.duration-s is not a positive time"),
            ("duration-s = nan", "load.duration-s is not a positive time"),
            ("timeout-s = -1", "load.timeout-s is not a positive time"),
            ("warmup-s = -1", "load.warmup-s is not a time"),
            ("conns = 0", "load.conns is 1 or more"),
            ("requests-per-conn = 0", "load.requests-per-conn is 1 or more"),
            ("arrivals = \"late\"", "is constant, poisson or uniform, not late"),
        ];
        for (to, expected) in cases {
            let error = said("burn-us = 60", &format!("load.{to}"));
            assert!(error.starts_with("sweep up: ") && error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_mix_is_said() {
        let said = |load: &str| {
            let good = "workload = \"2k\"\nmix = [{ share = 0.9, burn-us = 60 }, \
                        { share = 0.1, burn-us = 5000 }]";
            let (from, to) = load.split_once(" => ").unwrap_or(("", ""));
            assert!(good.contains(from), "{from}");
            let load = good.replacen(from, to, 1);
            said("[[figure]]", &format!("[sweep.load]\n{load}\n[[figure]]"))
        };
        assert_eq!(said(""), "");
        let cases = [
            ("{ share = 0.9, burn-us = 60 },  => ", "has one class, and needs two"),
            ("0.9 => 0", "the share 0 is not positive"),
            ("0.9 => 0.8", "its shares sum up to 0.9, not to 1"),
            ("60 => 5000", "two classes burn 5000 µs"),
            ("5000 => 1000001", "a request burns 1000000 µs at most"),
            ("2k => specweb99", "needs a workload of one file, and specweb99 has several"),
            ("mix => generator = \"httperf\"\nmix", "is for weir load alone"),
            ("burn-us = 60 => burn = 60", "unknown field `burn`"),
        ];
        for (load, expected) in cases {
            let error = said(load);
            assert!(error.contains(expected), "{load}: {error}");
        }
    }

    #[test]
    fn a_mix_is_for_weir_and_says_alone_what_requests_burn() {
        let mix = "load.mix = [{ share = 0.5, burn-us = 6 }, { share = 0.5, burn-us = 5 }]";
        let error = said("burn-us = 60", mix);
        assert!(error.contains("load.mix is for weir servers") && error.contains("ngx"), "{error}");
        let error = said("burn-us = 60", &format!("burn-us = 60\n{mix}"));
        assert!(error.contains("so burn-us does not"), "{error}");
        let own = GOOD.replacen("kind = \"weir\"", "kind = \"weir\"\nburn-us = 1", 1);
        let error = Experiment::parse(&own.replacen("rate = 50", &format!("rate = 50\n{mix}"), 1));
        assert!(error.unwrap_err().contains("and so does server one"));
    }

    #[test]
    fn a_sweep_along_connections_names_them_once() {
        let error = said(
            "x = \"idle\"\nservers = [\"one\"]\nvalues = [0, 100]",
            "x = \"conns\"\nvalues = [1]\nload.conns = 2",
        );
        assert!(error.contains("so load.conns is not given"), "{error}");
    }

    #[test]
    fn what_is_wrong_with_a_matrix_or_an_own_claim_is_said() {
        let more = "[[matrix]]\nid = \"m\"\ntitle = \"M\"\nmetric = \"c_avg\"\n\
                    of = [{ sweep = \"up\", label = \"u\" }, { sweep = \"idle\", label = \"i\" }]\n\
                    [[claim]]\nid = \"c\"\nfigure = \"m\"\ntext = \"T\"\nwhere = \"here\"\n\
                    sweep = \"up\"\nabove = 1\n\
                    top = { metric = \"c_avg\", server = \"one\", at = 2.5 }\n";
        let good = format!("{GOOD}{more}");
        assert_eq!(said_of(&good, "", ""), "");
        let cases = [
            ("metric = \"c_avg\"\nof", "metric = \"x\"\nof", "matrix m: there is no metric x"),
            ("sweep = \"idle\", label", "sweep = \"x\", label", "matrix m: there is no sweep x"),
            ("label = \"i\"", "label = \"u\"", "matrix m: two columns are called u"),
            ("label = \"i\"", "label = \"i\", at = 5", "matrix m: 5 is not a value of sweep idle"),
            ("id = \"m\"", "id = \"fig-1\"", "figure or table fig-1: two have this id"),
            ("gzip = true", "row = \"accept 1\"", "servers one and ngx are in one cell"),
            ("at = 2.5 }", "at = 2 }", "claim c: 2 is not a value of sweep up"),
            ("above = 1\n", "", "claim c: it needs `above` or `below`"),
            ("where = \"here\"", "where = \"here\"\nexperiment = \"x\"", "so none is named"),
        ];
        for (from, to, expected) in cases {
            let error = said_of(&good, from, to);
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_figure_or_table_is_said() {
        let cases = [
            ("sweep = \"up\"\ny", "sweep = \"x\"\ny", "figure fig-1: there is no sweep x"),
            ("sweep = \"up\"\ny", "servers = [\"x\"]\nsweep = \"up\"\ny", "there is no server x"),
            (
                "sweep = \"up\"\ny",
                "servers = [\"ngx\"]\nsweep = \"idle\"\ny",
                "figure fig-1: sweep idle does not measure server ngx",
            ),
            ("sweep = \"up\"\ny", "x-log = true\nsweep = \"idle\"\ny", "has no place for 0"),
            ("[\"reply_rate\"]", "[]", "figure fig-1: `y` names no metric"),
            ("[\"reply_rate\"]", "[\"x\"]", "figure fig-1: there is no metric x"),
            ("[\"reply_rate\"]", "[\"c_avg\", \"c_avg\"]", "c_avg is named twice"),
            (
                "[\"reply_rate\"]",
                "[\"reply_rate\", \"response_p99\"]",
                "figure fig-1: reply_rate is in `replies/s` and response_p99 in `ms`",
            ),
            ("[\"c_avg\", \"response_p99\"]", "[\"x\"]", "table table-1: there is no metric x"),
            ("[2.5, \"peak\"]", "[3]", "table table-1: 3 is not a value of sweep up"),
            ("[2.5, \"peak\"]", "[]", "table table-1: `at` names no place"),
        ];
        for (from, to, expected) in cases {
            let error = said(from, to);
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
