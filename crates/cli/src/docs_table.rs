//! The generated tables of the documentation, from the same tables that the program runs on.

use std::fmt::Write;

use clap::Command;
use weir_server::{PRESETS, readiness, stats};

/// The tables there are.
pub(crate) const NAMES: [&str; 4] = ["mechanisms", "presets", "options", "statistics"];

/// A table as Markdown; nothing for a name not in [`NAMES`].
pub(crate) fn render(name: &str, cli: &Command) -> String {
    match name {
        "mechanisms" => mechanisms(),
        "presets" => presets(),
        "options" => options(cli),
        "statistics" => statistics(),
        _ => String::new(),
    }
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

fn mechanisms() -> String {
    let rows = readiness::TABLE.iter();
    table(
        ["mechanism", "what it is", "measured first in"],
        rows.map(|row| [code(row.spelling), row.summary.into(), row.source.into()]),
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
                strategy.accept_limit.to_string(),
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

fn options(cli: &Command) -> String {
    let serve = cli.find_subcommand("serve").cloned().unwrap_or_default();
    let rows: Vec<_> = serve
        .get_arguments()
        .filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
        .map(|arg| {
            let value = arg.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
            let name = match arg.get_long() {
                Some(long) if arg.get_action().takes_values() => format!("--{long} {value}"),
                Some(long) => format!("--{long}"),
                None => value,
            };
            let default = arg.get_default_values();
            let default = default.first().map(|value| value.to_string_lossy().into_owned());
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            [code(&name), help, default.as_deref().map(code).unwrap_or_default()]
        })
        .collect();
    table(["option", "meaning", "default"], rows.into_iter())
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
