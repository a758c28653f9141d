//! Options of servers and load generators in an experiment, held against the allow-lists of the
//! programs.

use crate::allow_list::{AllowList, Refused};
use crate::experiment::{Experiment, LoadSpec, ServerSpec};
use crate::{generators, servers};

/// Rejects an experiment that sets options outside the allow-lists.
///
/// # Errors
/// Returns a sentence that names the first such option and the server or sweep it is set for.
pub fn check(experiment: &Experiment) -> Result<(), String> {
    for server in &experiment.server {
        of_server(server).map_err(|option| {
            sentence(&format!("server {}", server.id), server.kind().name(), option)
        })?;
    }
    for sweep in &experiment.sweep {
        of_load(&sweep.load).map_err(|option| {
            let program = generators::allow_list(sweep.load.generator).program;
            sentence(&format!("sweep {}", sweep.id), program, option)
        })?;
    }
    Ok(())
}

fn sentence(place: &str, program: &str, option: &str) -> String {
    format!(
        "{place}: {option:?} is not among the options of {program} that an experiment may set \
         (docs/lab.md lists them); with --allow-any-options it is passed on, and may then run \
         programs and read or write files as you"
    )
}

fn of_server(server: &ServerSpec) -> Result<(), Refused<'_>> {
    servers::allow_list(server.kind()).check(&server.options)
}

fn of_load(load: &LoadSpec) -> Result<(), Refused<'_>> {
    generators::allow_list(load.generator).check(&load.options)
}

/// Returns the allow-lists of all programs, for the documentation.
pub fn all() -> impl Iterator<Item = AllowList> {
    servers::allow_lists().chain(generators::allow_lists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allow_list::{Syntax, ValueShape};
    use crate::catalogue;
    use crate::experiment::{Generator, Kind};

    fn allows(list: &AllowList, options: &[&str]) -> bool {
        let options: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
        list.check(&options).is_ok()
    }

    #[test]
    fn every_experiment_of_the_program_needs_no_leave() {
        for entry in catalogue::all().unwrap() {
            assert_eq!(check(&entry.experiment), Ok(()), "{}", entry.id);
        }
    }

    #[test]
    fn a_directive_of_each_server_is_allowed_and_what_runs_a_program_is_not() {
        let cases = [
            (Kind::Nginx, "multi_accept on;", "load_module /tmp/x.so"),
            (Kind::H2o, "tcp-fastopen: 5", "error-log: \"| touch /tmp/x\""),
            (Kind::Lighttpd, "server.max-read-idle = 60", "include_shell \"touch /tmp/x\""),
            (Kind::Haproxy, "tune.maxaccept 1", "external-check command /tmp/x"),
            (Kind::Apache, "Timeout 60", "CustomLog \"|touch /tmp/x\" common"),
        ];
        for (kind, good, bad) in cases {
            assert!(allows(servers::allow_list(kind), &[good]), "{good}");
            assert!(!allows(servers::allow_list(kind), &[bad]), "{bad}");
        }
    }

    /// Characters that a configuration file may treat as the end of a value.
    const ENDS: [&str; 12] = ["\n", "\r", ";", "{", "}", "\"", "'", "#", "\\", "$x", "`x`", "\0"];

    #[test]
    fn no_value_leaves_its_line() {
        for list in all().filter(|list| list.syntax != Syntax::Words) {
            for (name, shape) in list.options {
                let value = match shape {
                    ValueShape::Nothing => "",
                    ValueShape::Switch => "on",
                    ValueShape::OneOf(names) => names[0],
                    _ => "5",
                };
                let directive = |value: &str| match list.syntax {
                    Syntax::Colon => format!("{name}: {value}"),
                    Syntax::Equals => format!("{name} = {value}"),
                    _ => format!("{name} {value}"),
                };
                assert!(allows(&list, &[&directive(value)]), "{}", directive(value));
                for end in ENDS {
                    let [behind, before] = [format!("{value}{end}x"), format!("x{end}{value}")];
                    assert!(!allows(&list, &[&directive(&behind)]), "{behind:?}");
                    assert!(!allows(&list, &[&directive(&before)]), "{before:?}");
                    assert!(!allows(&list, &[&format!("{end}{}", directive(value))]), "{name}");
                }
            }
        }
    }

    #[test]
    fn no_value_of_a_line_is_a_word() {
        for list in all().filter(|list| list.syntax != Syntax::Words) {
            assert!(list.options.iter().all(|(_, shape)| *shape != ValueShape::Word), "{list:?}");
        }
    }

    #[test]
    fn options_that_write_read_or_lead_elsewhere_are_not_allowed() {
        let weir = servers::allow_list(Kind::Weir);
        assert!(allows(weir, &["--preset", "accept25+$", "--caching=on", "--eager-read"]));
        assert!(allows(weir, &["--mechanism-option=pending-signals=64", "--accept-limit", "inf"]));
        for bad in [
            &["--access-log", "x"][..],
            &["--access-log=x"],
            &["--stats-json", "x"],
            &["--config", "x"],
            &["--error-page", "404=/etc/shadow"],
            &["--listen", "unix:x"],
            &["/"],
            &["--caching", "off"],
            &["--preset"],
            &["--preset", "--config"],
            &["--mechanism", "a/b"],
            &["--", "/"],
        ] {
            assert!(!allows(weir, bad), "{bad:?}");
        }
        let load = generators::allow_list(Generator::Weir);
        assert!(allows(load, &["--background-rate", "3000", "--mb=5", "--deadline", "0.5s"]));
        assert!(allows(load, &["--header", "Cache-Control:no-cache"]));
        assert!(!allows(load, &["--header", "Host:elsewhere"]));
        for bad in ["--json", "--each", "--ndjson", "--hdr-log", "--body", "--replay", "--wlog"] {
            assert!(!allows(load, &[bad, "x"]), "{bad}");
        }
        assert!(!allows(generators::allow_list(Generator::Wrk), &["-s", "x.lua"]));
        assert!(!allows(generators::allow_list(Generator::Wrk), &["http://other/"]));
        let httperf = generators::allow_list(Generator::Httperf);
        assert!(allows(httperf, &["--close-with-reset", "--think-timeout=2"]));
        assert!(!allows(httperf, &["--server=other"]) && !allows(httperf, &["--wlog=y,x"]));
    }
}
