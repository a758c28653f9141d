//! A key of a configuration file and its value, as the option of a command line.

use std::ffi::OsString;

use clap::{Arg, Command};
use toml::Spanned;
use toml::de::DeValue;

use super::placed::Source;
use crate::command::one_sentence;

/// Ids of the options that name a file, and that print one.
pub(super) const CONFIG: &str = "config";
pub(super) const PRINT: &str = "print_config";

/// An option found outside of the command line, with an argument for each value.
pub(super) struct Found {
    pub id: String,
    pub name: String,
    /// Place where it was found, as it comes before an error.
    pub place: String,
    pub args: Vec<OsString>,
}

/// Similarity to a known name above which an unknown one is taken for a slip of it (Jaro).
const ALIKE: f64 = 0.7;

/// Returns the options that a file or the environment may give, with their names.
pub(super) fn known(command: &Command) -> impl Iterator<Item = (&Arg, &str)> {
    let named = command.get_arguments().filter_map(|arg| Some((arg, arg.get_long()?)));
    named.filter(|(arg, _)| !matches!(arg.get_id().as_str(), CONFIG | PRINT | "help" | "version"))
}

/// Returns the option that a key names, with an argument for each value.
pub(super) fn option(
    key: &Spanned<impl AsRef<str>>,
    value: &Spanned<DeValue<'_>>,
    source: Source<'_>,
    command: &Command,
) -> Result<Found, String> {
    let name = key.get_ref().as_ref();
    let Some((option, _)) = known(command).find(|(_, known)| *known == name) else {
        return Err(source.wrong(key.span(), &unknown_key(name, command)));
    };
    let values = match value.get_ref() {
        DeValue::Array(values) if values.is_empty() => {
            let says = format!("'{name}' is an empty list: leave it out");
            return Err(source.wrong(value.span(), &says));
        }
        DeValue::Array(values) => values.iter().collect(),
        _ => vec![value],
    };
    let mut args = Vec::new();
    for value in values {
        let wrong = |says: &str| source.wrong(value.span(), says);
        let is_no_scalar =
            || wrong(&format!("'{name}' cannot be a {}", value.get_ref().type_str()));
        let text = scalar(value.get_ref()).ok_or_else(is_no_scalar)?;
        // A path could be any text, "off" too.
        if value.get_ref().is_bool() && !is_switch(option) {
            return Err(is_no_scalar());
        }
        let arg: OsString = format!("--{name}={text}").into();
        check(command, &arg).map_err(|why| wrong(&why))?;
        args.push(arg);
    }
    let place = source.place(value.span());
    Ok(Found { id: option.get_id().to_string(), name: name.to_owned(), place, args })
}

/// Returns whether an option is turned on and off, so that a boolean stands for its value.
pub(super) fn is_switch(option: &Arg) -> bool {
    option.get_possible_values().iter().any(|value| value.matches("on", false))
}

/// Returns a value as it is written on a command line; `None` for a list, a table or a date.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::Boolean(on) => if *on { "on" } else { "off" }.to_owned(),
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok()?.to_string()
        }
        DeValue::Float(number) => number.as_str().to_owned(),
        _ => return None,
    })
}

/// Checks an argument by itself.
pub(super) fn check(command: &Command, arg: &OsString) -> Result<(), String> {
    let alone = command.clone().no_binary_name(true).mut_args(|arg| arg.required(false));
    alone.try_get_matches_from([arg]).map(drop).map_err(|error| one_sentence(&error))
}

/// Keys of the file of `weir serve` that are no options there, or may be tables.
const OF_SERVE: [&str; 4] = ["root", "upstream", "site", "route"];

/// Says that no option has the name of a key.
fn unknown_key(name: &str, command: &Command) -> String {
    let options = known(command).map(|(_, option)| option);
    match command.get_name() {
        "proxy" if OF_SERVE.contains(&name) => {
            format!("'{name}' is a key of `weir serve`, and not of `weir proxy`")
        }
        "serve" => unknown("option", name, options.chain(OF_SERVE)),
        _ => unknown("option", name, options),
    }
}

/// Says that a name is unknown, and which known one is like it.
pub(super) fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let alike = known.map(|each| (strsim::jaro(name, each), each));
    let nearest = alike.filter(|(alike, _)| *alike > ALIKE).max_by(|a, b| a.0.total_cmp(&b.0));
    let tip = nearest.map(|(_, each)| format!(": did you mean '{each}'?")).unwrap_or_default();
    format!("there is no {what} '{name}'{tip}")
}
