//! Settings of mechanisms: numbers with a name, a default and a range, declared by the mechanism
//! itself.

use std::ops::RangeInclusive;

/// A numeric setting of a mechanism.
#[derive(Clone, Copy, Debug)]
pub struct Tunable {
    /// Spelling in the option, including the unit: `busy-us`.
    pub name: &'static str,
    /// Description, in a single line.
    pub help: &'static str,
    /// Default value.
    pub default: u64,
    /// Minimum value.
    pub min: u64,
    /// Maximum value.
    pub max: u64,
}

impl Tunable {
    /// Returns the range of valid values.
    pub fn range(&self) -> RangeInclusive<u64> {
        self.min..=self.max
    }
}

/// Values chosen by the operator, for one mechanism.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(&'static str, u64)>);

impl Settings {
    /// Parses choices spelled `name=number`; the last one of a name counts.
    ///
    /// # Errors
    /// A sentence when the setting or the value does not exist.
    pub fn parse(tunables: &'static [Tunable], choices: &[String]) -> Result<Self, String> {
        choices.iter().map(|choice| parse(tunables, choice)).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the value of a setting.
    pub fn get(&self, tunable: &Tunable) -> u64 {
        let chosen = self.0.iter().rev().find(|(name, _)| *name == tunable.name);
        chosen.map_or(tunable.default, |&(_, value)| value)
    }
}

fn parse(tunables: &'static [Tunable], choice: &str) -> Result<(&'static str, u64), String> {
    let (name, value) = choice
        .split_once('=')
        .ok_or_else(|| format!("`{choice}` is not of the form name=number"))?;
    let tunable = tunables.iter().find(|tunable| tunable.name == name).ok_or_else(|| {
        let names: Vec<_> = tunables.iter().map(|tunable| tunable.name).collect();
        let known = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        format!("`{name}` cannot be set here; what can: {known}")
    })?;
    match value.parse() {
        Ok(value) if tunable.range().contains(&value) => Ok((tunable.name, value)),
        _ => Err(format!(
            "{name} is a number from {} to {}, not `{value}`",
            tunable.min, tunable.max
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUNABLES: &[Tunable] =
        &[Tunable { name: "busy-us", help: "", default: 50, min: 0, max: 1000 }];

    fn parse(choices: &[&str]) -> Result<u64, String> {
        let choices: Vec<_> = choices.iter().map(ToString::to_string).collect();
        Settings::parse(TUNABLES, &choices).map(|settings| settings.get(&TUNABLES[0]))
    }

    #[test]
    fn a_tunable_has_its_default_until_it_is_set_and_the_last_word_counts() {
        assert_eq!(parse(&[]), Ok(50));
        assert_eq!(parse(&["busy-us=0", "busy-us=7"]), Ok(7));
    }

    #[test]
    fn an_invalid_option_is_refused_in_a_sentence() {
        for wrong in ["busy", "busy-ms=1", "busy-us=", "busy-us=-1", "busy-us=1001"] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
        assert!(Settings::parse(&[], &["x=1".to_owned()]).unwrap_err().contains("nothing"));
    }
}
