//! Validation of experiment files beyond their syntax: names that exist, numbers in range, settings
//! that agree. Each error is one sentence that names the place.

pub mod allowed_options;
mod claim;
mod day;
mod figure;
mod load;
mod overload;
mod probe;
mod references;
mod rules;
mod sweep;
mod upstream;

use std::collections::BTreeMap;

use crate::experiment::{Experiment, ScatterFigure, ServerSpec, TimelineFigure, file};
pub(crate) use rules::known_metric;
use rules::{must, unique};

impl Experiment {
    /// Parses and validates an experiment file.
    ///
    /// # Errors
    /// Returns one sentence that names the place: invalid TOML or fields, an undefined name, a
    /// number out of range, contradictory settings.
    pub fn parse(text: &str) -> Result<Self, String> {
        let experiment = file::read(text)?;
        check(&experiment)?;
        Ok(experiment)
    }
}

/// Validates an experiment.
///
/// # Errors
/// Returns the first violation, as a sentence.
fn check(experiment: &Experiment) -> Result<(), String> {
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
    let of_days: Vec<String> = experiment.scatter.iter().flat_map(ScatterFigure::ids).collect();
    let drawn = figures.chain(&along_time).chain(&of_days).chain(tables);
    unique("figure or table", drawn)?;
    labels(&experiment.server)?;
    experiment.server.iter().try_for_each(architecture)?;
    experiment.sweep.iter().try_for_each(|one| sweep::sweep(experiment, one))?;
    experiment.figure.iter().try_for_each(|one| figure::figure(experiment, one))?;
    experiment.timeline.iter().try_for_each(|one| overload::figure(experiment, one))?;
    experiment.scatter.iter().try_for_each(|one| day::figure(experiment, one))?;
    experiment.table.iter().try_for_each(|one| figure::table(experiment, one))?;
    experiment.matrix.iter().try_for_each(|one| figure::matrix(experiment, one))?;
    unique("claim", experiment.claim.iter().map(|claim| &claim.id))?;
    experiment.claim.iter().try_for_each(|claim| {
        claim.check_own(experiment).map_err(|why| format!("claim {}: {why}", claim.id))
    })
}

/// Checks that no two servers have the same label.
fn labels(servers: &[ServerSpec]) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for ServerSpec { id, label, .. } in servers {
        if let Some(other) = seen.insert(label, id) {
            return Err(format!("server {id}: server {other} has the label `{label}` too"));
        }
    }
    Ok(())
}

/// Checks that the options of a server leave its architecture to the settings for it. What the
/// server cannot do, it refuses itself.
fn architecture(server: &ServerSpec) -> Result<(), String> {
    let is_of_arch = |word: &String| {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        ["--arch", "--arch-option"].contains(&name)
    };
    must(!server.options.iter().any(is_of_arch), || {
        format!(
            "server {}: arch and arch-options say the architecture, so options do not",
            server.id
        )
    })
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

#[cfg(test)]
mod tests {
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
    pub(super) fn said_of(good: &str, from: &str, to: &str) -> String {
        assert!(good.contains(from), "{from}");
        match Experiment::parse(&good.replacen(from, to, 1)) {
            Ok(_) => String::new(),
            Err(error) => error,
        }
    }

    fn said(from: &str, to: &str) -> String {
        said_of(GOOD, from, to)
    }

    /// Checks that a valid file with one text replaced is refused, in these words.
    pub(super) fn refuses(good: &str, cases: &[(&str, &str, &str)]) {
        for (from, to, expected) in cases {
            let error = said_of(good, from, to);
            assert!(error.contains(expected), "{to}: {error}");
        }
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
        let error = said("kind = \"nginx\"", "kind = \"iis\"");
        assert!(error.starts_with("line 12, column 8: kind is one of `weir`"), "{error}");
        let error = said("kind = \"nginx\"", "");
        assert!(error.starts_with("line 9, column 1: missing field `kind`"), "{error}");
        assert!(said("question", "answer").contains("unknown field `answer`"));
    }

    #[test]
    fn errors_in_a_precision_are_reported() {
        let good = GOOD.replacen("burn-us = 60", "precision = { percent = 2 }", 1);
        let precision = Experiment::parse(&good).unwrap().sweep[0].precision.unwrap();
        assert_eq!((precision.share(), *precision.max_rounds), (0.02, 20));
        let place = "line 20, column";
        for (to, expected) in [
            ("{ percent = 0 }", "0 is not a percentage above 0"),
            ("{ percent = 101 }", "101 is not a percentage"),
            ("{ max-rounds = 9 }", "missing field `percent`"),
            ("{ percent = 2, max-rounds = 5 }", "5 is not 6 to 1000"),
            ("{ percent = 2, rounds = 9 }", "unknown field `rounds`"),
        ] {
            let error = said_of(&good, "{ percent = 2 }", to);
            assert!(error.starts_with(place) && error.contains(expected), "{to}: {error}");
        }
        let many = "{ percent = 2, max-rounds = 9 }\nrepetitions = 10";
        let error = said_of(&good, "{ percent = 2 }", many);
        assert!(error.contains("sweep up: it has 10 repetitions, more than its max"), "{error}");
    }

    #[test]
    fn errors_in_a_sum_are_reported_with_their_place() {
        let claim = "[[claim]]\nid = \"c\"\nfigure = \"fig-1\"\ntext = \"t\"\nwhere = \"p\"\n\
                     sweep = \"up\"\nabove = 1\n\
                     top = [{ metric = \"c_avg\", server = \"one\", at = 1 }, \
                     { metric = \"reply_rate\", server = \"one\", at = 50, sweep = \"idle\" }]\n";
        let good = format!("{GOOD}{claim}").replacen("[0, 100]", "[0, 50]", 1);
        assert_eq!(said_of(&good, "c_avg", "c_avg"), "");
        let from = "server = \"one\", at = 50";
        for (to, expected) in [
            ("server = \"ngx\", at = 50", "claim c: sweep idle has no server ngx"),
            ("server = \"one\", at = 2.5", "claim c: 2.5 is not a value of sweep idle"),
            ("host = \"one\", at = 50", "unknown field `host`"),
        ] {
            let error = said_of(&good, from, to);
            assert!(error.contains(expected), "{to}: {error}");
        }
        let error = said_of(&good, from, "host = \"one\", at = 50");
        assert!(error.starts_with("line 45, column"), "{error}");
        let start = good.find("top = [").unwrap();
        let error = said_of(&good, &good[start..], "top = []\n");
        assert!(error.contains("a sum has at least one quantity"), "{error}");
        assert!(error.starts_with("line 45, column"), "{error}");
    }

    #[test]
    fn errors_in_names_and_servers_are_reported() {
        let cases = [
            ("title = \"T\"", "title = \" \"", "title: the text is empty"),
            ("title = \"T\"", "title = \"\\u001b]0;x\"", "has a control character"),
            ("net.ipv4.tcp_syncookies", "net.bridge.x", "below net.core, net.ipv4"),
            ("net.ipv4.tcp_syncookies", "net.ipv4/../../kernel.x", "below net.core, net.ipv4"),
            ("net.ipv4.tcp_syncookies", "net.ipv4...x", "below net.core, net.ipv4"),
            ("net.ipv4.tcp_syncookies", "net.core", "below net.core, net.ipv4"),
            ("net.ipv4.tcp_syncookies", "kernel.pid_max", "below net.core, net.ipv4"),
            ("id = \"ngx\"", "id = \"one\"", "server one: two have this id"),
            ("id = \"ngx\"", "id = \"n/x\"", "id: `n/x`: an id is letters"),
            ("id = \"idle\"", "id = \"up\"", "sweep up: two have this id"),
            ("id = \"table-1\"", "id = \"fig-1\"", "figure or table fig-1: two have this id"),
            ("label = \"nginx\"", "label = \"accept 1\"", "server ngx: server one has the label"),
            ("label = \"nginx\"", "label = \"\"", "label: the text is empty"),
            (
                "gzip = true",
                "burn-us = 5",
                "unknown field `burn-us` for a server of kind nginx, exp",
            ),
            ("gzip = true", "backlog = 0", "backlog: 0 is not 1 or more"),
            ("gzip = true", "memory-mib = 4", "memory-mib: 4 is not 16 or more"),
            ("gzip = true", "disk-reads-per-s = 0", "disk-reads-per-s: 0 is not 1 or more"),
            ("gzip = true", "proxy-burn-us = 0", "proxy-burn-us: 0 is not 1 to 1000000"),
            ("gzip = true", "proxy-burn-us = 1000001", "proxy-burn-us: 1000001 is not 1 to"),
            (
                "\"nginx\"\ngzip = true",
                "\"apache\"\nproxy-burn-us = 5",
                "for a server of kind apache",
            ),
            ("kind = \"weir\"", "kind = \"weir\"\nin-flight = 1", "unknown field `in-flight`"),
        ];
        refuses(GOOD, &cases);
    }

    #[test]
    fn errors_in_a_sweep_are_reported() {
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
            ("burn-us = 60", "repetitions = 0", "repetitions: 0 is not 1 or more"),
            (
                "servers = [\"one\"]",
                "servers = [\"ngx\"]\nburn-us = 1",
                "sweep idle: burn-us needs",
            ),
            ("rate = 50", "", "sweep idle: it needs a rate, or load.closed"),
            ("rate = 50", "rate = 50\nload.closed = 1", "sweep idle: it has a rate and a closed"),
            ("rate = 50", "rate = -1", "rate: -1 is not positive"),
            (
                "rate = 50",
                "rate = 1\nload.generator = \"wrk\"",
                "wrk, ab and h2load make closed loops",
            ),
            (
                "rate = 50",
                "load = { closed = 1, generator = \"httperf\" }",
                "httperf makes open loops",
            ),
            (
                "rate = 50",
                "rate = 1\nload = { cooldown-s = 1, generator = \"httperf\" }",
                "load.cooldown-s is for weir load alone",
            ),
            ("rate = 50", "rate = 1\nload.keep-alive = true", "load.keep-alive needs load.closed"),
            ("rate = 50", "rate = 1\nload.idle = 3", "so load.idle is not given"),
            ("x = \"idle\"", "x = \"conns\"", "the value 0 is not positive"),
        ];
        refuses(GOOD, &cases);
    }

    #[test]
    fn errors_in_a_load_are_reported() {
        let cases = [
            ("workload = \"\"", "load.workload is empty"),
            ("workload = \"../../../etc\"", "is not letters, digits and dashes"),
            ("workload = \"--out\"", "is not letters, digits and dashes"),
            (
                "workload = \"one-pakcet\"",
                "there is no workload one-pakcet: did you mean one-packet?",
            ),
            ("options = [\"--mb\", \"../..\"]", "load.options: --mb is a number of MiB"),
            ("options = [\"--mb=10001\"]", "load.options: --mb is a number of MiB"),
            ("duration-s = 0", "is not a positive time"),
            ("duration-s = nan", "is not a positive time"),
            ("timeout-s = -1", "load.timeout-s: -1 is not a positive time"),
            ("warmup-s = -1", "load.warmup-s: -1 is not a time"),
            ("cooldown-s = -1", "load.cooldown-s: -1 is not a time"),
            ("conns = 0", "load.conns: 0 is not 1 or more"),
            ("requests-per-conn = 0", "load.requests-per-conn: 0 is not 1 or more"),
            (
                "arrivals = \"late\"",
                "unknown variant `late`, expected one of `constant`, `poisson`",
            ),
        ];
        for (to, expected) in cases {
            let error = said("burn-us = 60", &format!("load.{to}"));
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn errors_in_a_mix_are_reported() {
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
            ("0.9 => 0", "share: 0 is not a share between 0 and 1"),
            ("0.9 => 0.8", "its shares sum up to 0.9, not to 1"),
            ("60 => 5000", "two classes burn 5000 µs"),
            ("5000 => 1000001", "burn-us: 1000001 is not 0 to 1000000"),
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
    fn errors_in_a_matrix_or_claim_are_reported() {
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
            (
                "label = \"i\"",
                "label = \"i\", relative-to = \"ngx\"",
                "matrix m: sweep idle does not measure server ngx",
            ),
            ("id = \"m\"", "id = \"fig-1\"", "figure or table fig-1: two have this id"),
            ("gzip = true", "row = \"accept 1\"", "servers one and ngx are in one cell"),
            ("at = 2.5 }", "at = 2 }", "claim c: 2 is not a value of sweep up"),
            ("above = 1\n", "", "claim c: it needs `above` or `below`"),
            (
                "{ metric = \"c_avg\"",
                "{ metric = \"server_bytes_per_idle\"",
                "claim c: server_bytes_per_idle cannot be claimed",
            ),
            ("where = \"here\"", "where = \"here\"\nexperiment = \"x\"", "so none is named"),
        ];
        refuses(&good, &cases);
    }

    #[test]
    fn errors_in_a_figure_or_table_are_reported() {
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
        refuses(GOOD, &cases);
    }
}
