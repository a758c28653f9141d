//! The options that an experiment file may pass to servers and load generators.
//!
//! An experiment is data and may come from a third party; an option of another program may run a
//! command, or read or write a file. Each program's own module lists the options that can do
//! neither, and the values they take. Any other option needs the operator's permission. Nothing
//! here starts a program.

use crate::experiment::{Experiment, LoadSpec, ServerSpec};
use crate::{generators, servers};

/// The options of a program that are passed on without the operator's permission.
#[derive(Clone, Copy, Debug)]
pub struct AllowList {
    /// The program.
    pub program: &'static str,
    /// Option syntax of the program.
    pub syntax: Syntax,
    /// The options by name, with the values each may take. With such a value an option runs nothing
    /// and names no file.
    pub options: &'static [(&'static str, ValueShape)],
}

/// Option syntax of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Words on a command line: `--name value` or `--name=value`.
    Words,
    /// A line `name value`.
    Line,
    /// A line `name value`, optionally ended by a semicolon.
    Statement,
    /// A line `name: value`.
    Colon,
    /// A line `name = value`; values other than numbers are in double quotes.
    Equals,
}

/// Permitted values of an option. No shape accepts white space, quotes, braces, semicolons,
/// slashes, dollar signs or backslashes, except that [`ValueShape::Word`] accepts dollar signs. A
/// value therefore cannot end its line, name a file or refer to a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueShape {
    /// No value: the name alone.
    Nothing,
    /// No value, `on` or `off`.
    Switch,
    /// A number, such as `12` or `0.5`.
    Number,
    /// A number with a unit, such as `10ms` or `4k`.
    Quantity,
    /// Numbers separated by commas.
    Numbers,
    /// A name and a number, such as `pool=64`.
    Setting,
    /// A value from this list.
    OneOf(&'static [&'static str]),
    /// A number, or a value from this list.
    NumberOr(&'static [&'static str]),
    /// Names separated by commas.
    Names,
    /// Letters, digits and any of `. _ - + $`, starting with a letter or a digit. For command lines
    /// only, which are not parsed a second time.
    Word,
}

/// An option of an experiment that is not on the allow-list.
type Refused<'a> = &'a str;

/// Rejects an experiment that sets options outside the allow-lists.
///
/// # Errors
/// Returns a sentence that names the first such option and the server or sweep it is set for.
pub fn check(experiment: &Experiment) -> Result<(), String> {
    for server in &experiment.server {
        of_server(server).map_err(|option| {
            let ServerSpec { id, kind, .. } = server;
            sentence(&format!("server {id}"), kind.name(), option)
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
    servers::allow_list(server.kind).check(&server.options)
}

fn of_load(load: &LoadSpec) -> Result<(), Refused<'_>> {
    generators::allow_list(load.generator).check(&load.options)
}

impl AllowList {
    /// Fails with the first option that is not allowed.
    fn check<'a>(&self, options: &'a [String]) -> Result<(), Refused<'a>> {
        match self.syntax {
            Syntax::Words => self.command_line(options),
            _ => options.iter().try_for_each(|option| self.directive(option)),
        }
    }

    fn shape(&self, name: &str) -> Option<ValueShape> {
        let allowed = self.options.iter().find(|(allowed, _)| *allowed == name)?;
        Some(allowed.1)
    }

    /// Checks a command line. No permitted value begins with a dash, so a word checked as a value
    /// here cannot be an option's name to the program.
    fn command_line<'a>(&self, command_line: &'a [String]) -> Result<(), Refused<'a>> {
        let mut command_line = command_line.iter();
        while let Some(word) = command_line.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word.as_str(), None),
            };
            let shape = self.shape(name).ok_or(word.as_str())?;
            let value = match (value, shape) {
                (None, ValueShape::Nothing | ValueShape::Switch) => continue,
                (None, _) => command_line.next().map_or("", String::as_str),
                (Some(value), _) => value,
            };
            if !shape.accepts(value) {
                return Err(word);
            }
        }
        Ok(())
    }

    /// Checks a line of a configuration file.
    fn directive<'a>(&self, option: &'a str) -> Result<(), Refused<'a>> {
        let directive = match self.syntax {
            Syntax::Statement => option.strip_suffix(';').unwrap_or(option),
            _ => option,
        };
        let separator = match self.syntax {
            Syntax::Colon => ":",
            Syntax::Equals => "=",
            Syntax::Words | Syntax::Line | Syntax::Statement => " ",
        };
        let (name, value) = directive.split_once(separator).unwrap_or((directive, ""));
        let (name, value) = (name.trim_matches(' '), value.trim_matches(' '));
        let quoted = || value.strip_prefix('"')?.strip_suffix('"');
        let value = match self.syntax {
            Syntax::Equals => quoted().unwrap_or(value),
            _ => value,
        };
        let accepts = self.shape(name).is_some_and(|shape| shape.accepts(value));
        if accepts { Ok(()) } else { Err(option) }
    }
}

impl ValueShape {
    fn accepts(self, value: &str) -> bool {
        match self {
            Self::Nothing => value.is_empty(),
            Self::Switch => ["on", "off"].contains(&value.to_ascii_lowercase().as_str()),
            Self::Number => is_number(value),
            Self::Quantity => is_number(value.trim_end_matches(|c: char| c.is_ascii_alphabetic())),
            Self::Numbers => value.split(',').all(is_number),
            Self::Setting => value
                .split_once('=')
                .is_some_and(|(name, number)| is_name(name) && is_number(number)),
            Self::OneOf(names) => names.contains(&value),
            Self::NumberOr(names) => is_number(value) || names.contains(&value),
            Self::Names => value.split(',').all(is_name),
            Self::Word => {
                value.starts_with(|c: char| c.is_ascii_alphanumeric()) && value.bytes().all(in_word)
            }
        }
    }

    /// Returns a description of the shape for readers.
    pub fn describe(self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Switch => "on or off".to_owned(),
            Self::Number => "N".to_owned(),
            Self::Quantity => "N and a unit".to_owned(),
            Self::Numbers => "N,N…".to_owned(),
            Self::Setting => "NAME=N".to_owned(),
            Self::OneOf(names) => names.join(", "),
            Self::NumberOr(names) => format!("N, {}", names.join(", ")),
            Self::Names => "NAME,NAME…".to_owned(),
            Self::Word => "NAME".to_owned(),
        }
    }
}

fn is_number(text: &str) -> bool {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| (1..=12).contains(&part.len()) && part.bytes().all(is_digit);
    digits(whole) && digits(decimals)
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-+$".contains(&byte)
}

/// Returns the allow-lists of all programs, for the documentation.
pub fn all() -> impl Iterator<Item = AllowList> {
    servers::allow_lists().chain(generators::allow_lists())
}

#[cfg(test)]
mod tests {
    use super::*;
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
