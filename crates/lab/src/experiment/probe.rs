//! Probe settings of an experiment file: a sweep without a load, along which `weir probe` measures
//! the event mechanisms of its servers in isolation.

use serde::Deserialize;

use super::units::{Bounded, Seconds};

/// A probe, except for the number of idle members, which the sweep varies.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProbeSpec {
    /// Members that have an event in each round; at most as many as `weir probe` takes.
    pub active: Bounded<1, 4096>,
    /// Measured duration in seconds, at scale 1.
    #[serde(default = "quarter")]
    pub seconds: Seconds,
}

fn quarter() -> Seconds {
    Seconds::QUARTER
}

/// Returns the options of `weir serve` that a probe takes: those about the mechanism.
pub(crate) fn mechanism_options(options: &[String]) -> Vec<String> {
    let names = ["--mechanism", "--mechanism-option"];
    let mut told = Vec::new();
    let mut words = options.iter();
    while let Some(word) = words.next() {
        if names.contains(&word.as_str()) {
            told.push(word.clone());
            told.extend(words.next().cloned());
        } else if word.split_once('=').is_some_and(|(name, _)| names.contains(&name)) {
            told.push(word.clone());
        }
    }
    told
}

/// Returns whether the options select a mechanism.
pub(crate) fn has_mechanism(options: &[String]) -> bool {
    options.iter().any(|word| word == "--mechanism" || word.starts_with("--mechanism="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_about_the_mechanism_is_told() {
        let options = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        let given = options("--preset x --mechanism poll --mechanism-option=a=1 --caching=on");
        assert_eq!(mechanism_options(&given), options("--mechanism poll --mechanism-option=a=1"));
        assert!(has_mechanism(&given) && has_mechanism(&options("--mechanism=poll")));
        assert!(!has_mechanism(&options("--mechanism-option a=1")));
    }
}
