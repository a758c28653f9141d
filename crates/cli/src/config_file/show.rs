//! The options that are in force, as a configuration file that gives the same ones, each with the
//! place it comes from.

use std::fmt::Write;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use toml::{Table, Value};

use super::option;
use crate::values;

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
            // A path is a text, whatever it looks like.
            let values = literal(values.into_iter().map(Value::String).collect());
            let _ = writeln!(text, "{comment}{name} = {values}  # {}", origin(id));
        }
    }
    let mut tables = tables(&origins.file);
    let mut heading = None;
    for (arg, name) in option::known(command) {
        let Some(values) = texts(all, arg.get_id().as_str()) else { continue };
        if heading != arg.get_help_heading() {
            heading = arg.get_help_heading();
            let _ = writeln!(text, "\n# {}", heading.unwrap_or_default());
        }
        let origin = origin(arg.get_id().as_str());
        // A key is tables or an option: where the file has tables, the option is among them.
        let comment = if tables.contains_key(name) { "# " } else { "" };
        put_before(&mut tables, name, &values);
        let is_switch = option::is_switch(arg);
        let values = literal(values.iter().map(|text| value(text, is_switch)).collect());
        let _ = writeln!(text, "{comment}{name} = {values}  # {origin}");
    }
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
fn literal(values: Vec<Value>) -> String {
    match &values[..] {
        [one] => one.to_string(),
        _ => Value::Array(values).to_string(),
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
fn tables(file: &str) -> Table {
    let Ok(mut all) = file.parse::<Table>() else { return Table::new() };
    let is_tables = |value: &Value| {
        value.as_array().is_some_and(|values| values.first().is_some_and(Value::is_table))
    };
    all.retain(|key, value| matches!(key, "upstream" | "site" | "route") && is_tables(value));
    all
}

/// Puts the values of an option before the tables of its name, if there are any, as tables.
fn put_before(tables: &mut Table, name: &str, values: &[String]) {
    let Some(all) = tables.get_mut(name).and_then(Value::as_array_mut) else { return };
    let pairs = values.iter().filter_map(|text| text.split_once('='));
    let mut made: Vec<Value> = match name {
        "upstream" => pairs.map(|(name, urls)| Value::Table(upstream(name, urls))).collect(),
        _ => pairs.filter_map(|(from, to)| route(from, to)).map(Value::Table).collect(),
    };
    made.append(all);
    *all = made;
}

fn upstream(name: &str, urls: &str) -> Table {
    let servers = urls.split(',').map(text_value).collect();
    let mut table = Table::new();
    table.insert("name".into(), text_value(name));
    table.insert("servers".into(), Value::Array(servers));
    table
}

fn route(from: &str, to: &str) -> Option<Table> {
    let (host, path) = values::host_and_path(from)?;
    let mut table = Table::new();
    if let Some(host) = host {
        table.insert("host".into(), text_value(host));
    }
    table.insert("path".into(), text_value(path));
    table.insert("upstream".into(), text_value(to));
    Some(table)
}

fn text_value(text: &str) -> Value {
    Value::String(text.to_owned())
}
