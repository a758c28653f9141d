//! The configuration file: TOML whose keys are the names of the options. It is converted to
//! arguments, so that every value is parsed and checked by the same code as on the command line.
//! Upstreams and routes may be tables.

mod option;
mod placed;
mod tables;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};
use toml::de::DeTable;
use weir_lab::document;

use crate::command::{Cli, one_sentence};
use option::option;
use placed::Source;
pub(crate) use tables::{RouteTable, Tables, UpstreamTable};

/// The arguments of the command line and of the configuration file.
pub(crate) struct Merged {
    pub args: Vec<OsString>,
    pub tables: Tables,
}

/// Inserts the arguments from the configuration file, if one is named, before those of the command
/// line. Options given on the command line take precedence.
///
/// # Errors
/// A sentence with its line and column: the file cannot be read, is not TOML, or contains a key or
/// value that no option accepts.
pub(crate) fn with_config_file(
    args: Vec<OsString>,
    matches: &ArgMatches,
) -> Result<Merged, String> {
    let alone = |args| Ok(Merged { args, tables: Tables::default() });
    let Some((name @ ("serve" | "proxy"), given)) = matches.subcommand() else {
        return alone(args);
    };
    let Some(path) = given.get_one::<PathBuf>("config") else { return alone(args) };
    let file = read(path, &subcommand(name), given)?;
    let mut merged: Vec<OsString> = args.iter().take(2).cloned().collect();
    merged.extend(file.args);
    merged.extend(args.into_iter().skip(2));
    // The command line alone was sound, so whatever is wrong now is the file's fault.
    Cli::command()
        .try_get_matches_from(&merged)
        .map_err(|error| format!("{}: {}", path.display(), one_sentence(&error)))?;
    Ok(Merged { args: merged, tables: file.tables })
}

fn subcommand(name: &str) -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli.find_subcommand(name).cloned().unwrap_or_default()
}

fn read(path: &Path, command: &Command, given: &ArgMatches) -> Result<Merged, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let table = document::parse(&text).map_err(|why| format!("{}: {why}", path.display()))?;
    settings(table.get_ref(), Source { path, text: &text }, command, given)
}

/// Converts a file. `given`: the options of the command line.
fn settings(
    file: &DeTable<'_>,
    source: Source<'_>,
    command: &Command,
    given: &ArgMatches,
) -> Result<Merged, String> {
    let serves = command.get_name() == "serve";
    let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let mut merged = Merged { args: Vec::new(), tables: Tables::default() };
    for (key, value) in file {
        if serves && merged.tables.take(key, value, source)? {
            continue;
        }
        if serves && key.get_ref() == "root" {
            let is_path = || source.wrong(value.span(), "root is a path");
            let text = value.get_ref().as_str().ok_or_else(is_path)?;
            if !is_given("root") {
                // A path that looks like an option is still a path.
                let dash = if text.starts_with('-') { "./" } else { "" };
                merged.args.push(format!("{dash}{text}").into());
            }
            continue;
        }
        let (id, args) = option(key, value, source, command)?;
        if !is_given(&id) {
            merged.args.extend(args);
        }
    }
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, line: &[&str]) -> Result<Merged, String> {
        let matches = Cli::command().try_get_matches_from(line).unwrap();
        let table = document::parse(file).unwrap();
        let given = matches.subcommand_matches("serve").unwrap();
        let source = Source { path: Path::new("f"), text: file };
        settings(table.get_ref(), source, &subcommand("serve"), given)
    }

    fn merged(file: &str, line: &[&str]) -> Result<Vec<String>, String> {
        let args = read(file, line)?.args;
        Ok(args.into_iter().map(|arg| arg.into_string().unwrap()).collect())
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
    fn an_error_has_its_place_and_the_nearest_name() {
        for (file, says) in [
            ("nothing = 1", "f: line 1, column 1: there is no option 'nothing'"),
            (
                "listing = true\nmax-con = 7",
                "line 2, column 1: there is no option 'max-con': did you mean 'max-conns'?",
            ),
            ("config = 'x'", "line 1, column 1: there is no option 'config'"),
            ("listen = []", "line 1, column 10: 'listen' is an empty list"),
            ("listen = {a = 1}", "line 1, column 10: 'listen' cannot be a table"),
            ("listen = ['127.0.0.1:1', 'x']", "line 1, column 26: invalid value 'x' for '--listen"),
            ("max-conns = 0", "line 1, column 13: invalid value '0' for '--max-conns"),
            ("[[upstream]]\nname = 'a'", "line 1, column 1: 'servers' is missing"),
            ("[[upstream]]\nservers = 'unix:a'", "line 1, column 1: 'name' is missing"),
            ("[[upstream]]\nname = 'a'\nservers = []", "'servers' is missing"),
            ("[[upstream]]\nname = 'a'\nservers = [1]", "line 3, column 12: 'servers' is a text"),
            (
                "[[upstream]]\nserver = 'a'",
                "line 2, column 1: there is no option 'server': did you mean 'servers'?",
            ),
            ("[[upstream]]\nlisten = 'a'", "line 2, column 1: there is no option 'listen'"),
            ("[[upstream]]\nqueue-target = 'soon'", "line 2, column 16: invalid value 'soon'"),
            ("[[route]]\npath = 'a'", "line 2, column 8: a path begins with /"),
            ("[[route]]\npath = '/'", "line 1, column 1: 'upstream' is missing"),
            (
                "[[route]]\npaths = '/'",
                "line 2, column 1: there is no key 'paths': did you mean 'path'?",
            ),
            ("route = ['/a=b', {path = '/'}]", "line 1, column 10: 'route' is tables, or texts"),
        ] {
            let error = read(file, &["weir", "serve"]).err().unwrap_or_default();
            assert!(error.contains(says), "{file:?}: {error}");
        }
    }

    #[test]
    fn upstreams_and_routes_may_be_tables() {
        let file = "[[upstream]]\nname = 'app'\nservers = ['unix:a', 'unix:b']\n\
                    max-in-flight = inf\nqueue-target = '50ms'\n\
                    [[route]]\nhost = 'a.example'\nupstream = 'app'\n\
                    [[route]]\npath = '/static'\nupstream = 'files'\n";
        let tables = read(file, &["weir", "serve"]).unwrap().tables;
        let servers: Vec<&str> =
            tables.upstreams[0].servers.iter().map(|server| server.value.as_str()).collect();
        assert_eq!(
            (tables.upstreams[0].name.value.as_str(), servers),
            ("app", vec!["unix:a", "unix:b"])
        );
        let routes: Vec<_> = tables
            .routes
            .iter()
            .map(|route| (route.host.as_deref(), route.path.as_str()))
            .collect();
        assert_eq!(routes, [(Some("a.example"), "/"), (None, "/static")]);
    }
}
