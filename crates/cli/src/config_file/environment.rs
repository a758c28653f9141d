//! Options from the environment: `WEIR_MAX_CONNS=100` is `--max-conns 100`. Variables that are
//! named after no option are left alone, because service managers and orchestrators set such too.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, Command};

use super::option::{self, CONFIG, Found};

/// Prefix of the names of variables.
const PREFIX: &str = "WEIR_";

/// Returns the variable that stands for an option.
pub(super) fn variable(option: &str) -> String {
    format!("{PREFIX}{}", option.to_uppercase().replace('-', "_"))
}

/// Returns the options that the variables of an environment give. The values of an option that may
/// be repeated are separated by white space; without any it is not given.
///
/// # Errors
/// A sentence that begins with the variable: its value is not one of the option's.
pub(super) fn options(
    environment: &[(OsString, OsString)],
    command: &Command,
) -> Result<Vec<Found>, String> {
    let given = |name: &str| {
        let variable = variable(name);
        let found = environment.iter().find(|(key, _)| key.as_os_str() == OsStr::new(&variable));
        found.map(|(_, value)| (variable, value))
    };
    let mut options = Vec::new();
    for (arg, name) in option::known(command) {
        let Some((variable, value)) = given(name) else { continue };
        let value = value.to_str().ok_or_else(|| format!("{variable}: it is not UTF-8"))?;
        let values =
            if is_repeated(arg) { value.split_whitespace().collect() } else { vec![value] };
        if values.is_empty() {
            continue;
        }
        let mut args = Vec::new();
        for (index, value) in values.iter().enumerate() {
            if index + 1 < values.len() && is_cut(arg, value) {
                let why = "a space begins the next of the list, so none may stand behind a colon";
                return Err(format!("{variable}: nothing is left behind '{value}': {why}"));
            }
            let one = OsString::from(format!("--{name}={value}"));
            option::check(command, &one).map_err(|why| format!("{variable}: {why}"))?;
            args.push(one);
        }
        let (id, name, place) = (arg.get_id().to_string(), name.into(), format!("{variable}: "));
        options.push(Found { id, name, place, args });
    }
    Ok(options)
}

/// Returns the file that the environment names.
pub(super) fn file(environment: &[(OsString, OsString)]) -> Option<&OsStr> {
    let variable = variable(CONFIG);
    let named = environment.iter().find(|(key, _)| key.as_os_str() == OsStr::new(&variable));
    named.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
}

/// Returns whether a value, if another follows, may be what a space has left of one that is written
/// with a space in it, as `NAME: VALUE` is.
fn is_cut(arg: &Arg, value: &str) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    value.ends_with(':') && names.iter().any(|name| name.contains(' '))
}

fn is_repeated(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_without_a_value_may_end_a_list() {
        let header = Arg::new("header").long("header").value_name("NAME: VALUE");
        let command = Command::new("serve").arg(header.action(ArgAction::Append));
        let args = |value: &str| -> Result<Vec<OsString>, String> {
            let environment = [(OsString::from("WEIR_HEADER"), OsString::from(value))];
            let found = options(&environment, &command)?;
            Ok(found.into_iter().flat_map(|each| each.args).collect())
        };
        assert_eq!(args("X-Empty:").unwrap(), ["--header=X-Empty:"]);
        assert_eq!(args("X-A:1 X-Empty: ").unwrap(), ["--header=X-A:1", "--header=X-Empty:"]);
        assert!(args("X-Empty: X-A:1").is_err());
    }
}
