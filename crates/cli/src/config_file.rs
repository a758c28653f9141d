//! The configuration file: TOML whose keys are the names of the options. It is converted to
//! arguments, so that every value is parsed and checked by the same code as on the command line.

use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};
use toml::{Table, Value};

use crate::command::Cli;

/// Inserts the arguments from the configuration file, if one is named, before those of the command
/// line. Options given on the command line take precedence.
///
/// # Errors
/// A sentence: the file cannot be read, is not TOML, or contains a key or value that no option
/// accepts.
pub(crate) fn with_config_file(
    args: Vec<OsString>,
    matches: &ArgMatches,
) -> Result<Vec<OsString>, String> {
    let Some((name @ ("serve" | "proxy"), serve)) = matches.subcommand() else { return Ok(args) };
    let Some(path) = serve.get_one::<std::path::PathBuf>("config") else { return Ok(args) };
    let explain = |why: String| format!("{}: {}", path.display(), why.trim().replace('\n', " "));
    let command = subcommand(name);
    let extra = read(path).and_then(|table| arguments(&table, &command, serve)).map_err(explain)?;
    let mut merged: Vec<OsString> = args.iter().take(2).cloned().collect();
    merged.extend(extra);
    merged.extend(args.into_iter().skip(2));
    // The command line alone was sound, so whatever is wrong now is the file's fault.
    Cli::command()
        .try_get_matches_from(&merged)
        .map_err(|error| explain(crate::command::one_sentence(&error)))?;
    Ok(merged)
}

fn subcommand(name: &str) -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli.find_subcommand(name).cloned().unwrap_or_default()
}

fn read(path: &Path) -> Result<Table, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    text.parse::<Table>().map_err(|error| error.message().to_string())
}

fn arguments(
    table: &Table,
    command: &Command,
    given: &ArgMatches,
) -> Result<Vec<OsString>, String> {
    let mut out = Vec::new();
    for (key, value) in table {
        if key == "root" && command.get_name() == "serve" {
            let text = value.as_str().ok_or("root is a path")?;
            if given.value_source("root") != Some(ValueSource::CommandLine) {
                // A path that looks like an option is still a path.
                let dash = if text.starts_with('-') { "./" } else { "" };
                out.push(format!("{dash}{text}").into());
            }
            continue;
        }
        let option = command
            .get_arguments()
            .find(|arg| arg.get_long() == Some(key.as_str()))
            .filter(|_| key != "config" && key != "help" && key != "version")
            .ok_or_else(|| format!("there is no option '{key}'"))?;
        if given.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine) {
            continue;
        }
        let values = match value {
            Value::Array(values) if values.is_empty() => {
                return Err(format!("'{key}' is an empty list: leave it out"));
            }
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            out.push(argument(key, value)?);
        }
    }
    Ok(out)
}

fn argument(key: &str, value: &Value) -> Result<OsString, String> {
    let text = match value {
        Value::Boolean(on) => if *on { "on" } else { "off" }.to_string(),
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        _ => return Err(format!("'{key}' cannot be a {}", value.type_str())),
    };
    Ok(format!("--{key}={text}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(file: &str, line: &[&str]) -> Result<Vec<String>, String> {
        let matches = Cli::command().try_get_matches_from(line).unwrap();
        let table = file.parse::<Table>().unwrap();
        let serve = matches.subcommand_matches("serve").unwrap();
        let extra = arguments(&table, &subcommand("serve"), serve)?;
        Ok(extra.into_iter().map(|arg| arg.into_string().unwrap()).collect())
    }

    #[test]
    fn the_file_fills_in_what_the_command_line_left_out() {
        let file = "listen = ['127.0.0.1:1', '[::1]:1']\nlisting = true\nmax-conns = 7\n\
                    eager-read = false\nmechanism = 'poll'";
        let args = merged(file, &["weir", "serve", "--mechanism", "select"]).unwrap();
        assert_eq!(
            args,
            [
                "--eager-read=off",
                "--listen=127.0.0.1:1",
                "--listen=[::1]:1",
                "--listing=on",
                "--max-conns=7"
            ]
        );
    }

    #[test]
    fn an_unknown_key_is_refused() {
        for bad in ["nothing = 1", "config = 'x'", "listen = []", "listen = {a = 1}"] {
            assert!(merged(bad, &["weir", "serve"]).is_err(), "{bad}");
        }
    }
}
