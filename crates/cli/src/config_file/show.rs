//! The options that are in force, as a configuration file that gives the same ones, each with the
//! place it comes from.

use std::fmt::Write;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use toml::{Table, Value};

use super::option;

/// Where options come from that the command line leaves out.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    /// Ids of the options that the environment and the file gave.
    pub by_environment: Vec<String>,
    pub by_file: Vec<String>,
    /// The text of the file.
    pub file: String,
}

/// Writes the options of a subcommand. `all`: the matches of the merged arguments; `line`: those of
/// the command line alone.
pub(super) fn show(
    command: &Command,
    all: &ArgMatches,
    line: &ArgMatches,
    origins: &Origins,
) -> String {
    let mut text = String::new();
    let by_line = |id: &str| line.value_source(id) == Some(ValueSource::CommandLine);
    let origin = |id: &str| {
        let named = |ids: &[String]| ids.iter().any(|each| each == id);
        match () {
            () if by_line(id) => "command line",
            () if named(&origins.by_environment) => "environment",
            () if named(&origins.by_file) => "file",
            () => "default",
        }
    };
    for (id, name) in [("root", "root"), ("urls", "servers")] {
        if let Some(values) = texts(all, id) {
            let comment = if name == "servers" { "# " } else { "" };
            let _ =
                writeln!(text, "{comment}{name} = {}  # {}", literal(&values, false), origin(id));
        }
    }
    let mut heading = None;
    for (arg, name) in option::known(command) {
        let Some(values) = texts(all, arg.get_id().as_str()) else { continue };
        if heading != arg.get_help_heading() {
            heading = arg.get_help_heading();
            let _ = writeln!(text, "\n# {}", heading.unwrap_or_default());
        }
        let origin = origin(arg.get_id().as_str());
        let values = literal(&values, option::is_switch(arg));
        let _ = writeln!(text, "{name} = {values}  # {origin}");
    }
    let tables = tables(&origins.file);
    if !tables.is_empty() {
        let _ = write!(text, "\n{tables}");
    }
    text
}

/// Returns the values of an option as they are written on a command line; `None` without any.
fn texts(all: &ArgMatches, id: &str) -> Option<Vec<String>> {
    let values = all.try_get_raw(id).ok()??;
    let values: Vec<_> = values.map(|value| value.to_string_lossy().into_owned()).collect();
    (!values.is_empty()).then_some(values)
}

/// Writes values as TOML: a list if there are several.
fn literal(values: &[String], is_switch: bool) -> String {
    let value = |text: &String| value(text, is_switch);
    match values {
        [one] => value(one).to_string(),
        several => Value::Array(several.iter().map(value).collect()).to_string(),
    }
}

fn value(text: &str, is_switch: bool) -> Value {
    match (text, text.parse::<i64>()) {
        ("on", _) if is_switch => Value::Boolean(true),
        ("off", _) if is_switch => Value::Boolean(false),
        (_, Ok(number)) if number.to_string() == text => Value::Integer(number),
        _ => Value::String(text.to_owned()),
    }
}

/// Returns the tables of a file that stand for no option.
fn tables(file: &str) -> String {
    let Ok(mut all) = file.parse::<Table>() else { return String::new() };
    let is_tables = |value: &Value| {
        value.as_array().is_some_and(|values| values.first().is_some_and(Value::is_table))
    };
    all.retain(|key, value| matches!(key, "upstream" | "site" | "route") && is_tables(value));
    all.to_string()
}
