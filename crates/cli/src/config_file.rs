//! Options that the command line leaves out: those of the environment, and of the configuration
//! file, a TOML file whose keys are the names of the options. Both are converted to arguments, so
//! that every value is parsed and checked by the same code as on the command line. Upstreams, sites
//! and routes are tables, or may be.

mod environment;
mod option;
mod placed;
mod places;
mod show;
mod site_tables;
mod tables;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};
use toml::de::DeTable;
use weir_lab::document;
use weir_server::files;

use crate::command::{Cli, one_sentence};
use option::{CONFIG, Found, PRINT, option};
use placed::Source;
pub(crate) use places::Places;
use show::Origins;
pub(crate) use site_tables::{SettingsTable, SiteTable};
pub(crate) use tables::{Tables, UpstreamTable};

/// The variables of an environment.
pub(crate) type Environment = [(OsString, OsString)];

/// The arguments of the command line, of the environment and of the configuration file.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub args: Vec<OsString>,
    pub tables: Tables,
    pub places: Places,
    origins: Origins,
}

/// Inserts the arguments from the configuration file, if one is named, and those from the
/// environment before those of the command line. The command line takes precedence over the
/// environment, and that over the file.
///
/// # Errors
/// A sentence, with its line and column if it is about a file: the file cannot be read, is not
/// TOML, or contains a key or value that no option accepts, or a variable does.
pub(crate) fn merge(
    args: Vec<OsString>,
    matches: &ArgMatches,
    environment: &Environment,
) -> Result<Merged, String> {
    let Some((name @ ("serve" | "proxy"), given)) = matches.subcommand() else {
        return Ok(Merged { args, ..Merged::default() });
    };
    let command = subcommand(name);
    let by_line = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let mut found = environment::options(environment, &command)?;
    found.retain(|each| !by_line(&each.id));
    let by_environment: Vec<String> = found.iter().map(|each| each.id.clone()).collect();
    let is_given = |id: &str| by_line(id) || by_environment.iter().any(|each| each == id);
    let path = given.get_one::<PathBuf>(CONFIG).map(PathBuf::as_path);
    let path = path.or_else(|| environment::file(environment).map(Path::new));
    let mut merged = match path {
        Some(path) => read(path, &command, &is_given)?,
        None => Merged::default(),
    };
    let by_file = std::mem::take(&mut merged.args);
    merged.args = args.iter().take(2).cloned().collect();
    merged.args.extend(by_file);
    found.iter().for_each(|each| merged.places.add(each));
    merged.args.extend(found.into_iter().flat_map(|each| each.args));
    merged.origins.by_environment = by_environment;
    merged.args.extend(args.into_iter().skip(2));
    // The command line alone was sound, so whatever is wrong now is the fault of the others.
    let all = Cli::command().try_get_matches_from(&merged.args).map_err(|error| {
        let why = one_sentence(&error);
        let source = path.map_or("the environment".into(), |path| path.display().to_string());
        match merged.places.place_of(&why) {
            Some(place) => format!("{place}{why}"),
            None => format!("{source}: {why}"),
        }
    })?;
    let serve = all.subcommand_matches("serve").filter(|serve| !serve.get_flag(PRINT));
    let root_from = serve.and_then(|serve| serve.value_source("root"));
    if root_from == Some(ValueSource::DefaultValue) && works_in_top_directory() {
        let file = path.map(|path| format!("{}: ", path.display())).unwrap_or_default();
        return Err(format!("{file}{NO_ROOT}"));
    }
    Ok(merged)
}

/// Error of a server that would serve all files of the machine because nothing says what to serve.
const NO_ROOT: &str = "no root is named, and the working directory, which is served then, is /: \
    name one by `weir serve DIR`, or by root = \"DIR\" in the file; an empty directory will do \
    where every site has a root of its own";

/// Returns whether the working directory is `/`, in which service managers start a server.
fn works_in_top_directory() -> bool {
    env::current_dir().is_ok_and(|directory| directory.parent().is_none())
}

/// Returns the options in force as a configuration file, if the command line asks for that.
/// `line`: the matches of the command line alone.
pub(crate) fn shown(merged: &Merged, line: &ArgMatches) -> Option<String> {
    let (name @ ("serve" | "proxy"), line) = line.subcommand()? else { return None };
    line.try_get_one::<bool>(PRINT).ok()?.filter(|is_asked| **is_asked)?;
    let all = Cli::command().try_get_matches_from(&merged.args).ok()?;
    let all = all.subcommand_matches(name)?;
    Some(show::show(&subcommand(name), all, line, &merged.origins))
}

fn subcommand(name: &str) -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli.find_subcommand(name).cloned().unwrap_or_default()
}

fn read(path: &Path, command: &Command, is_given: &dyn Fn(&str) -> bool) -> Result<Merged, String> {
    let text =
        files::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let table = document::parse(&text).map_err(|why| format!("{}: {why}", path.display()))?;
    settings(table.get_ref(), Source { path, text: &text }, command, is_given)
}

/// Converts a file. `is_given`: whether the command line or the environment give an option.
fn settings(
    file: &DeTable<'_>,
    source: Source<'_>,
    command: &Command,
    is_given: &dyn Fn(&str) -> bool,
) -> Result<Merged, String> {
    let serves = command.get_name() == "serve";
    let mut merged = Merged { places: Places::of_file(source.path), ..Merged::default() };
    for (key, value) in file {
        if serves && merged.tables.take(key, value, source)? {
            continue;
        }
        if serves && key.get_ref() == "root" {
            let is_path = || source.wrong(value.span(), "root is a path");
            let text = value.get_ref().as_str().ok_or_else(is_path)?;
            if !is_given("root") {
                merged.places.add(&Found {
                    id: "root".into(),
                    name: "root".into(),
                    place: source.place(value.span()),
                    args: Vec::new(),
                });
                // A path that looks like an option is still a path.
                let dash = if text.starts_with('-') { "./" } else { "" };
                merged.args.push(format!("{dash}{text}").into());
                merged.origins.by_file.push("root".into());
            }
            continue;
        }
        let found = option(key, value, source, command)?;
        if !is_given(&found.id) {
            merged.places.add(&found);
            merged.args.extend(found.args);
            merged.origins.by_file.push(found.id);
        }
    }
    source.text.clone_into(&mut merged.origins.file);
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarding::options::UpstreamOptions;
    use crate::sites::options::RouteKeys;
    use crate::values::OnOff;
    use clap::{Args as _, FromArgMatches as _};

    fn read(file: &str, line: &[&str]) -> Result<Merged, String> {
        let matches = Cli::command().try_get_matches_from(line).unwrap();
        let table = document::parse(file).unwrap();
        let (name, given) = matches.subcommand().unwrap();
        let source = Source { path: Path::new("f"), text: file };
        let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
        settings(table.get_ref(), source, &subcommand(name), &is_given)
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
            ("access-log = false", "line 1, column 14: 'access-log' cannot be a boolean"),
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
            (
                "[[route]]\npaths = '/'",
                "line 2, column 1: there is no option 'paths': did you mean 'path'?",
            ),
            (
                "[[site]]\nhosts = 'a'\n[[site.route]]\ncache-contol = 'x'",
                "line 4, column 1: there is no option 'cache-contol': did you mean 'cache-con",
            ),
            ("[[site]]\nhosts = 'a'\nroute = 'x'", "line 3, column 9: 'route' is written as"),
            ("[[route]]\nstatus = 299", "line 2, column 10: invalid value '299'"),
            ("[[route]]\nset-header = ['A: b', 'Date: c']", "line 2, column 23: invalid value"),
            ("site = ['a', {hosts = 'a'}]", "line 1, column 9: 'site' is tables, or texts"),
            ("route = ['/a=b', {path = '/'}]", "line 1, column 10: 'route' is tables, or texts"),
            ("[site]\nhosts = 'a'", "line 1, column 1: 'site' is written as tables: [[site]]"),
            ("site = 'a'", "line 1, column 8: 'site' is written as tables: [[site]]"),
            ("[upstream]\nname = 'a'", "'upstream' is written as tables: [[upstream]]"),
            ("[route]\npath = '/'", "'route' is written as tables: [[route]]"),
            ("[[sites]]\nhosts = 'a'", "there is no option 'sites': did you mean 'site'?"),
            ("roots = 'a'", "line 1, column 1: there is no option 'roots': did you mean 'root'?"),
        ] {
            let error = read(file, &["weir", "serve"]).err().unwrap_or_default();
            assert!(error.contains(says), "{file:?}: {error}");
        }
    }

    #[test]
    fn what_only_serve_has_is_told_as_its_key_in_a_file_of_a_proxy() {
        for file in ["root = 'a'", "[[site]]", "[[upstream]]\nname = 'a'", "route = '/=a'"] {
            let error = read(file, &["weir", "proxy", "unix:a"]).err().unwrap_or_default();
            assert!(error.contains("is a key of `weir serve`"), "{file:?}: {error}");
        }
    }

    fn by_environment(line: &[&str], environment: &[(&str, &str)]) -> Result<Merged, String> {
        let args: Vec<OsString> = line.iter().map(OsString::from).collect();
        let matches = Cli::command().try_get_matches_from(&args).unwrap();
        let environment: Vec<_> =
            environment.iter().map(|(key, value)| (key.into(), value.into())).collect();
        merge(args, &matches, &environment)
    }

    #[test]
    fn the_line_wins_over_the_environment_and_that_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.toml");
        std::fs::write(&file, "max-conns = 1\nlisting = true\nworkers = 1\n").unwrap();
        let file = file.to_str().unwrap();
        let environment = [
            ("WEIR_CONFIG", file),
            ("WEIR_MAX_CONNS", "2"),
            ("WEIR_WORKERS", "2"),
            ("WEIR_LISTEN", "127.0.0.1:1 127.0.0.1:2"),
            ("WEIR_SERVICE_HOST", "10.0.0.1"),
        ];
        let merged = by_environment(&["weir", "serve", "--workers", "3"], &environment).unwrap();
        let args: Vec<_> = merged.args.iter().map(|arg| arg.to_str().unwrap()).collect();
        assert_eq!(
            args,
            [
                "weir",
                "serve",
                "--listing=on",
                "--listen=127.0.0.1:1",
                "--listen=127.0.0.1:2",
                "--max-conns=2",
                "--workers",
                "3"
            ]
        );
        for (variable, value, says) in [
            ("WEIR_MAX_CONNS", "no", "WEIR_MAX_CONNS: invalid value 'no'"),
            ("WEIR_HEADER", "X-Base: https://h/x", "WEIR_HEADER: nothing is left behind 'X-Base:'"),
        ] {
            let wrong = by_environment(&["weir", "serve"], &[(variable, value)]);
            let error = wrong.err().unwrap_or_default();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn a_list_in_the_environment_that_has_nothing_leaves_that_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.toml");
        std::fs::write(&file, "listen = '127.0.0.1:1'\nheader = 'X: a'\n").unwrap();
        let environment =
            [("WEIR_CONFIG", file.to_str().unwrap()), ("WEIR_LISTEN", ""), ("WEIR_HEADER", " ")];
        let merged = by_environment(&["weir", "serve"], &environment).unwrap();
        assert_eq!(merged.args[2..], ["--header=X: a", "--listen=127.0.0.1:1"]);
    }

    /// Returns what is shown of a file with a command line.
    fn shown_of(file: &Path, line: &[&str]) -> String {
        let print = ["--print-config", "--config", file.to_str().unwrap()];
        let line = [line, &print].concat();
        let matches = Cli::command().try_get_matches_from(&line).unwrap();
        let merged = by_environment(&line, &[("WEIR_MAX_BODY", "1M")]).unwrap();
        shown(&merged, &matches).unwrap()
    }

    #[test]
    fn options_beside_tables_of_their_name_are_shown_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.toml");
        let text = "upstream-ca = 'ca.pem'\n[[upstream]]\nname = 'app'\nservers = 'unix:a'\n\
                    [[route]]\npath = '/app'\nupstream = 'app'\n";
        std::fs::write(&file, text).unwrap();
        // A directory whose name is a number.
        let line = "weir serve 2024 --upstream more=unix:b,unix:c --route h.example/x=more \
                    --route /f=files";
        let first = shown_of(&file, &line.split(' ').collect::<Vec<_>>());
        assert!(first.contains("# upstream = \"more=unix:b,unix:c\"  # command line"), "{first}");
        std::fs::write(&file, &first).unwrap();
        let second = shown_of(&file, &["weir", "serve"]);
        let values = |text: &str| text.parse::<toml::Table>().unwrap();
        assert_eq!(values(&first), values(&second));
        let merged = read(&first, &["weir", "serve"]).unwrap();
        assert!(merged.args.contains(&"2024".into()), "{:?}", merged.args);
        let upstreams = merged.tables.upstreams.iter().map(|upstream| {
            let servers = upstream.servers.iter().map(|server| server.value.as_str());
            (upstream.name.value.as_str(), servers.collect::<Vec<_>>())
        });
        let upstreams: Vec<(&str, Vec<&str>)> = upstreams.collect();
        assert_eq!(upstreams, [("more", vec!["unix:b", "unix:c"]), ("app", vec!["unix:a"])]);
        let routes = merged.tables.routes.iter().map(|route| route.keys::<RouteKeys>().unwrap());
        let routes: Vec<_> = routes.map(|keys| (keys.host, keys.path.unwrap())).collect();
        let route = |host: Option<&str>, path: &str| (host.map(str::to_owned), path.to_owned());
        assert_eq!(
            routes,
            [route(Some("h.example"), "/x"), route(None, "/f"), route(None, "/app")]
        );
    }

    #[test]
    fn what_is_shown_is_a_file_that_says_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.toml");
        let text = "listen = ['127.0.0.1:1', '127.0.0.1:2']\nlisting = true\n\
                    header = 'X: \"a\"'\n[[upstream]]\nname = 'app'\nservers = 'unix:a'\n";
        std::fs::write(&file, text).unwrap();
        let line = ["weir", "serve", "dir"];
        let first = shown_of(&file, &line);
        for line in [
            "root = \"dir\"  # command line",
            "listen = [\"127.0.0.1:1\", \"127.0.0.1:2\"]  # file",
            "max-body = \"1M\"  # environment",
            "listing = true  # file",
            "delay-target = \"20ms\"  # default",
            "name = \"app\"",
        ] {
            assert!(first.lines().any(|each| each == line), "{line}: {first}");
        }
        std::fs::write(&file, &first).unwrap();
        let second = shown_of(&file, &line);
        let values = |text: &str| -> Vec<String> {
            let before = |line: &str| line.split("  # ").next().unwrap_or_default().to_owned();
            text.lines().map(before).collect()
        };
        assert_eq!(values(&first), values(&second));
    }

    #[test]
    fn an_upstream_that_says_whom_it_trusts_trusts_nobody_else() {
        let command = UpstreamOptions::augment_args(Command::new("proxy"));
        let trusts = |common: &str, own: &str| {
            let matches = command.clone().get_matches_from(["proxy", common]);
            let common = UpstreamOptions::from_arg_matches(&matches).unwrap();
            let file = format!("[[upstream]]\nname = 'a'\nservers = 'https://a'\n{own}");
            let tables = read(&file, &["weir", "serve"]).unwrap().tables;
            let options = tables.upstreams[0].options(&common).unwrap();
            (options.upstream_ca.is_some(), options.upstream_insecure == OnOff::On)
        };
        assert_eq!(trusts("--upstream-insecure", "upstream-ca = 'ca.pem'"), (true, false));
        assert_eq!(trusts("--upstream-ca=ca.pem", "upstream-insecure = true"), (false, true));
        assert_eq!(trusts("--upstream-ca=ca.pem", "upstream-insecure = false"), (true, false));
        assert_eq!(trusts("--upstream-insecure", "queue-target = '1s'"), (false, true));
        let both = "upstream-ca = 'ca.pem'\nupstream-insecure = false";
        assert_eq!(trusts("--upstream-insecure", both), (true, false));
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
        let keys = tables.routes.iter().map(|route| route.keys::<RouteKeys>().unwrap());
        let keys: Vec<_> = keys.map(|keys| (keys.host, keys.path)).collect();
        assert_eq!(keys, [(Some("a.example".into()), None), (None, Some("/static".into()))]);
    }
}
