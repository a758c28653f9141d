//! The generated tables of the documentation, from the same tables that the program uses.

use std::fmt::Write;

use clap::builder::PossibleValue;
use clap::{Arg, Args, Command};
use weir_lab::allow_list::{AllowList, ValueShape};
use weir_lab::metrics;
use weir_lab::validation::allowed_options;
use weir_load::config::PATH_PRESETS;
use weir_load::measure::ErrorKind;
use weir_load::workload::NamedWorkload;
use weir_server::accept::PolicyName;
use weir_server::{
    LOG_FIELDS, OUTPUTS, PRESETS, Preset, accept, architecture, readiness, slots, stats,
};

use crate::forwarding::options::EACH;
use crate::sites::options::{RouteKeys, Settings, SiteKeys};

/// Names of the tables.
pub(crate) const NAMES: [&str; 31] = [
    "architectures",
    "architecture-options",
    "architecture-presets",
    "accept-policies",
    "mechanisms",
    "mechanism-options",
    "slot-searches",
    "output-paths",
    "log-fields",
    "presets",
    "options",
    "site-keys",
    "statistics",
    "load-options",
    "load-scan-options",
    "load-link-options",
    "load-workloads",
    "load-errors",
    "load-paths",
    "lab-options",
    "lab-allowed-options",
    "lab-metrics",
    "probe-options",
    "stat-options",
    "forward-options",
    "cache-options",
    "tls-options",
    "tls-architectures",
    "forward-architectures",
    "in-flight-policies",
    "queue-policies",
];

/// Renders a table as Markdown; empty for a name not in [`NAMES`].
pub(crate) fn render(name: &str, cli: &Command) -> String {
    match name {
        "accept-policies" => accept_policies(),
        "architectures" => architectures(),
        "architecture-options" => architecture_options(),
        "architecture-presets" => architecture_presets(),
        "mechanisms" => mechanisms(),
        "mechanism-options" => mechanism_options(),
        "slot-searches" => slot_searches(),
        "output-paths" => output_paths(),
        "log-fields" => log_fields(),
        "presets" => presets(),
        "options" => options(find(cli, &["serve"]), |arg| {
            !is_of_upstreams(arg) && !is_of_cache(arg) && !is_of_tls(arg)
        }),
        "forward-options" => options(find(cli, &["serve"]), is_of_upstreams),
        "cache-options" => options(find(cli, &["serve"]), is_of_cache),
        "tls-options" => options(find(cli, &["serve"]), is_of_tls),
        "tls-architectures" => tls_architectures(),
        "forward-architectures" => forward_architectures(),
        "in-flight-policies" => in_flight_policies(),
        "queue-policies" => queue_policies(),
        "site-keys" => site_keys(),
        "statistics" => statistics(),
        "load-options" => options(find(cli, &["load"]), |_| true),
        "load-scan-options" => {
            options(find(cli, &["load", "scan"]), |arg| arg.get_help_heading() == Some("Scan"))
        }
        "load-link-options" => options(find(cli, &["load", "link"]), |_| true),
        "load-workloads" => load_workloads(),
        "load-errors" => load_errors(),
        "load-paths" => load_paths(),
        "lab-options" => options(find(cli, &["lab", "run"]), |_| true),
        "lab-allowed-options" => lab_allowed_options(),
        "lab-metrics" => lab_metrics(),
        "stat-options" => options(find(cli, &["stat"]), |arg| !arg.is_hide_set()),
        "probe-options" => options(find(cli, &["probe"]), |arg| !arg.is_hide_set()),
        _ => String::new(),
    }
}

fn is_of_upstreams(arg: &Arg) -> bool {
    matches!(arg.get_help_heading(), Some("Upstreams" | EACH))
}

/// Renders which architectures forward requests, and why the others do not.
fn forward_architectures() -> String {
    table(
        ["architecture", "forwards", "not, because"],
        architecture::TABLE.iter().map(|row| {
            let why = row.forwards_not.unwrap_or_default();
            [code(row.spelling), if why.is_empty() { "yes" } else { "no" }.into(), why.into()]
        }),
    )
}

/// Renders which architectures speak TLS, and why the others do not.
fn tls_architectures() -> String {
    table(
        ["architecture", "TLS", "not, because"],
        architecture::TABLE.iter().map(|row| {
            let why = row.tls_not.unwrap_or_default();
            [code(row.spelling), if why.is_empty() { "yes" } else { "no" }.into(), why.into()]
        }),
    )
}

fn is_of_tls(arg: &Arg) -> bool {
    arg.get_help_heading() == Some("TLS")
}

fn is_of_cache(arg: &Arg) -> bool {
    arg.get_help_heading() == Some("Cache")
}

fn in_flight_policies() -> String {
    table(
        ["policy", "what it is", "source"],
        accept::upstream::TABLE
            .iter()
            .map(|row| [code(row.spelling), row.summary.into(), row.source.into()]),
    )
}

fn slot_searches() -> String {
    table(
        ["slots", "how the lowest free one is found", "source"],
        slots::TABLE.iter().map(|row| [code(row.spelling), row.summary.into(), row.source.into()]),
    )
}

fn queue_policies() -> String {
    table(
        ["policy", "what it is", "source"],
        accept::upstream::QUEUE_TABLE
            .iter()
            .map(|row| [code(row.spelling), row.summary.into(), row.source.into()]),
    )
}

fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for row in rows {
        let cells = row.map(|cell| cell.replace('|', "\\|"));
        // Writing into a String cannot fail.
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// Renders the architectures. The last cell links to a page, so that an architecture without one
/// shows up as a dead link.
fn architectures() -> String {
    table(
        ["architecture", "what it is", "measured first in", "page"],
        architecture::TABLE.iter().map(|row| {
            let page = format!("[{0}](architectures/{0}.md)", row.spelling);
            [code(row.spelling), row.summary.into(), row.source.into(), page]
        }),
    )
}

fn architecture_options() -> String {
    let tunables = architecture::TABLE
        .iter()
        .flat_map(|row| row.tunables.iter().map(move |tunable| (row, tunable)));
    table(
        ["architecture", "option", "meaning", "default", "range"],
        tunables.map(|(row, tunable)| tunable_row(row.spelling, tunable)),
    )
}

/// Renders the presets available to each architecture, and why the others are not.
fn architecture_presets() -> String {
    table(
        ["architecture", "mechanisms", "presets", "not, because"],
        architecture::TABLE.iter().map(|row| {
            let (with, without): (Vec<_>, Vec<_>) = PRESETS.iter().partition(|preset| {
                row.excludes(&preset.strategy, &readiness::settings::Settings::default()).is_none()
            });
            let names = |presets: &[&Preset]| {
                let names: Vec<_> = presets.iter().map(|preset| code(preset.name)).collect();
                names.join(", ")
            };
            let with = if without.is_empty() { "all".into() } else { names(&with) };
            let why: Vec<_> = row
                .exclusions
                .iter()
                .map(|each| format!("{}: {}", each.choice.spelling(), each.why))
                .collect();
            let mechanisms = if row.takes_mechanism { "all" } else { "none" };
            [code(row.spelling), mechanisms.into(), with, why.join("; ")]
        }),
    )
}

fn tunable_row(owner: &str, tunable: &readiness::settings::Tunable) -> [String; 5] {
    let range = format!("{} to {}", tunable.min, tunable.max);
    [code(owner), code(tunable.name), tunable.help.into(), tunable.default.to_string(), range]
}

/// Renders the mechanisms. The last cell links to a page, so that a mechanism without one shows up
/// as a dead link.
fn mechanisms() -> String {
    let rows = readiness::TABLE.iter();
    table(
        ["mechanism", "what it is", "measured first in", "page"],
        rows.map(|row| {
            let page = format!("[{0}](mechanisms/{0}.md)", row.spelling);
            [code(row.spelling), row.summary.into(), row.source.into(), page]
        }),
    )
}

fn mechanism_options() -> String {
    let tunables = readiness::TABLE
        .iter()
        .flat_map(|row| row.tunables.iter().map(move |tunable| (row, tunable)));
    table(
        ["mechanism", "option", "meaning", "default", "range"],
        tunables.map(|(row, tunable)| tunable_row(row.spelling, tunable)),
    )
}

fn accept_policies() -> String {
    let rows = accept::TABLE.iter();
    table(
        ["policy", "what it does", "source"],
        rows.map(|row| [code(row.spelling), row.summary.into(), row.source.into()]),
    )
}

fn output_paths() -> String {
    table(
        ["output path", "what it is", "source"],
        OUTPUTS.iter().map(|row| [code(row.spelling), row.summary.into(), row.source.into()]),
    )
}

fn log_fields() -> String {
    table(
        ["field", "what it is", "in the journal"],
        LOG_FIELDS.iter().map(|row| {
            let journal = if row.journal.is_empty() { String::new() } else { code(row.journal) };
            [code(&format!("{{{}}}", row.name)), row.help.into(), journal]
        }),
    )
}

fn presets() -> String {
    let tick = |on: bool| if on { "on" } else { "" }.to_string();
    table(
        ["preset", "limit", "eager", "full-read", "on-close", "caching", "what it is", "source"],
        PRESETS.iter().map(|preset| {
            let strategy = preset.strategy;
            [
                code(preset.name),
                match strategy.accept_policy {
                    PolicyName::Limit => strategy.accept_limit.to_string(),
                    policy => policy.to_string(),
                },
                tick(strategy.eager_read && strategy.eager_write),
                tick(strategy.full_read),
                tick(strategy.accept_on_close),
                tick(strategy.caching),
                preset.summary.into(),
                preset.source.into(),
            ]
        }),
    )
}

fn lab_metrics() -> String {
    table(
        ["metric", "unit", "what it is"],
        metrics::rows().map(|row| [code(&row.name), row.unit, row.help]),
    )
}

/// Renders the allowed options, with one row per program: one per option would fill a page.
fn lab_allowed_options() -> String {
    let option =
        |(name, shape): &(&str, ValueShape)| format!("{} {}", code(name), shape.describe());
    let options = |list: &AllowList| match list.options {
        [] => "none".to_owned(),
        some => some
            .iter()
            .map(option)
            .map(|one| one.trim_end().to_owned())
            .collect::<Vec<_>>()
            .join("; "),
    };
    let mut rows: Vec<_> =
        allowed_options::all().map(|list| [list.program.to_owned(), options(&list)]).collect();
    // Two generators of a file may be one program.
    rows.dedup();
    table(["program", "options and what they may be set to"], rows.into_iter())
}

fn find<'a>(cli: &'a Command, names: &[&str]) -> Option<&'a Command> {
    names.iter().try_fold(cli, |command, name| command.find_subcommand(name))
}

/// Renders the options that are `wanted`, preceded by a row for each help heading.
fn options(command: Option<&Command>, wanted: fn(&Arg) -> bool) -> String {
    let mut heading = None;
    let mut rows = Vec::new();
    for arg in command.into_iter().flat_map(Command::get_arguments).filter(|arg| wanted(arg)) {
        if matches!(arg.get_id().as_str(), "help" | "version") {
            continue;
        }
        if heading != arg.get_help_heading() {
            heading = arg.get_help_heading();
            rows.push([format!("**{}**", heading.unwrap_or_default()), "".into(), "".into()]);
        }
        rows.push(option(arg));
    }
    table(["option", "meaning", "default"], rows.into_iter())
}

fn option(arg: &Arg) -> [String; 3] {
    let takes_value = arg.get_action().takes_values();
    let name = match arg.get_long() {
        Some(long) if takes_value => format!("--{long}{}", value_behind(arg)),
        Some(long) => format!("--{long}"),
        None => value_name(arg),
    };
    let default = arg.get_default_values().first();
    let default = default.filter(|value| takes_value && !value.is_empty());
    let default = default.map(|value| code(&value.to_string_lossy())).unwrap_or_default();
    [code(&name), meaning(arg), default]
}

fn value_name(arg: &Arg) -> String {
    arg.get_value_names().map(|names| names.join(" ")).unwrap_or_default()
}

/// Returns what follows the name of an option on a command line.
fn value_behind(arg: &Arg) -> String {
    let value = value_name(arg);
    let is_optional = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
    match (arg.is_require_equals_set(), is_optional) {
        (true, true) => format!("[={value}]"),
        (true, false) => format!("={value}"),
        (false, _) => format!(" {value}"),
    }
}

/// Returns the help of an option, with the values that it may have, unless the name of its value
/// lists them.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values = arg.get_possible_values();
    let values: Vec<&str> = values.iter().map(PossibleValue::get_name).collect();
    let is_listed = values.is_empty() || values.join("|") == value_name(arg);
    if !is_listed && !arg.is_hide_possible_values_set() {
        format!("{help} [{}]", values.join(", "))
    } else {
        help
    }
}

/// Renders the keys of the tables of sites and routes.
fn site_keys() -> String {
    let command = RouteKeys::augment_args(SiteKeys::augment_args(Command::new("site")));
    let command = Settings::augment_args(command);
    let mut heading = None;
    let mut rows = Vec::new();
    for arg in command.get_arguments() {
        if heading != arg.get_help_heading() {
            heading = arg.get_help_heading();
            rows.push([format!("**{}**", heading.unwrap_or_default()), "".into(), "".into()]);
        }
        let key = arg.get_long().unwrap_or_default();
        rows.push([code(key), code(&value_name(arg)), meaning(arg)]);
    }
    table(["key", "value", "meaning"], rows.into_iter())
}

fn load_workloads() -> String {
    table(
        ["workload", "what it is"],
        NamedWorkload::all().map(|named| [code(named.name()), named.help().into()]),
    )
}

fn load_paths() -> String {
    table(
        ["path", "stands for", "law"],
        PATH_PRESETS.iter().map(|(name, what, law)| {
            [code(name), (*what).into(), if law.contains('=') { code(law) } else { (*law).into() }]
        }),
    )
}

fn load_errors() -> String {
    let rows = ErrorKind::ALL.iter();
    table(
        ["error", "what happened"],
        rows.map(|kind| [code(kind.name()), error_meaning(*kind).into()]),
    )
}

fn error_meaning(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ConnectTimeout => "no connection within --timeout",
        ErrorKind::ConnectRefused => "no listener, or the server refuses (ECONNREFUSED)",
        ErrorKind::ConnectReset => "a reset before the connection was established",
        ErrorKind::HandshakeTimeout => "no progress of the TLS handshake within --timeout",
        ErrorKind::HandshakeReset => "a reset or close by the server during the TLS handshake",
        ErrorKind::TlsCertificate => {
            "the server's certificate was not accepted, or this client's by the server"
        }
        ErrorKind::TlsProtocol => {
            "the server does not speak TLS, has no version or cipher suite in common with this \
             client, broke the rules, or refused by an alert"
        }
        ErrorKind::SendTimeout => {
            "the request could not be sent within --timeout, or none of --conns was free for it"
        }
        ErrorKind::ReplyTimeout => "no byte of the reply for the length of --timeout",
        ErrorKind::Reset => "a reset after the connection was established (ECONNRESET, EPIPE)",
        ErrorKind::ClosedEarly => "the server closed before the reply was whole",
        ErrorKind::TlsTruncated => {
            "a reply without a length ended without TLS's word (close_notify) that it was whole"
        }
        ErrorKind::BadReply => "the reply is not HTTP, or not what was requested",
        ErrorKind::FdUnavail => "the client had no descriptor left",
        ErrorKind::PortUnavail => "the client had no port left (EADDRNOTAVAIL)",
        ErrorKind::Deadline => "not whole within --deadline of its planned start",
        ErrorKind::TcpViolation => {
            "the server broke the rules of TCP so that the connection could not go on \
             (--stack packet)"
        }
        ErrorKind::Other => "any other error of the kernel",
    }
}

fn statistics() -> String {
    let derived = stats::Derived::of(&stats::Counters::default(), 1.0);
    let derived = derived.rows().map(|(name, _, help)| [code(name), help.into()]);
    let counted = stats::TABLE.iter().map(|row| [code(row.name), row.help.into()]);
    table(["statistic", "meaning"], derived.into_iter().chain(counted))
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use clap::ArgAction;

    /// Returns the values of an option of the servers of an experiment.
    fn of(experiment: &str, option: &str) -> BTreeSet<String> {
        let entry = weir_lab::catalogue::one(experiment).unwrap();
        let options = entry.experiment.server.iter().flat_map(|server| &server.options);
        let options: Vec<&String> = options.collect();
        let pairs = options.windows(2).filter(|pair| pair[0] == option);
        pairs.map(|pair| pair[1].clone()).collect()
    }

    #[test]
    fn the_benchmarks_are_of_every_mechanism_preset_and_architecture() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mechanisms: Vec<&str> = readiness::TABLE.iter().map(|row| row.spelling).collect();
        assert_eq!(of("bench/mechanisms", "--mechanism"), names(&mechanisms));
        let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        assert_eq!(of("bench/presets", "--preset"), names(&presets));
        let entry = weir_lab::catalogue::one("bench/architectures").unwrap();
        let servers = entry.experiment.server.into_iter();
        let architectures: Vec<&str> = architecture::TABLE.iter().map(|row| row.spelling).collect();
        let found: BTreeSet<String> =
            servers.filter_map(|server| server.weir()?.arch.clone()).collect();
        assert_eq!(found, names(&architectures));
    }

    fn arg(value_name: &'static str) -> Arg {
        Arg::new("x").long("x").value_name(value_name).help("Help")
    }

    #[test]
    fn an_option_is_shown_as_it_is_written() {
        let shown = |arg: Arg| {
            let [name, ..] = option(&arg);
            name
        };
        assert_eq!(shown(arg("TIME")), "`--x TIME`");
        assert_eq!(shown(arg("TIME").num_args(0..=1)), "`--x TIME`");
        assert_eq!(shown(arg("TIME").require_equals(true)), "`--x=TIME`");
        assert_eq!(shown(arg("on|off").require_equals(true).num_args(0..=1)), "`--x[=on|off]`");
        assert_eq!(shown(arg("on|off").action(ArgAction::SetTrue)), "`--x`");
        assert_eq!(shown(Arg::new("x").value_name("DIR")), "`DIR`");
    }

    #[test]
    fn values_are_listed_unless_the_name_of_the_value_lists_them() {
        let shown = |arg: Arg| meaning(&arg.value_parser(["deny", "inside"]));
        assert_eq!(shown(arg("POLICY")), "Help [deny, inside]");
        assert_eq!(shown(arg("deny|inside")), "Help");
        assert_eq!(shown(arg("POLICY").hide_possible_values(true)), "Help");
        assert_eq!(meaning(&arg("TIME")), "Help");
    }

    #[test]
    fn an_empty_default_is_not_shown() {
        let default = |value: &'static str| {
            let [.., default] = option(&arg("LIST").default_value(value));
            default
        };
        assert_eq!(default(""), "");
        assert_eq!(default("20ms"), "`20ms`");
    }
}
