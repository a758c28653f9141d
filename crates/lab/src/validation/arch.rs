//! Architecture settings of a `weir serve` in an experiment file: the table of architectures and
//! the options each accepts. Conflicts with presets are left to the program, which reports them
//! when it starts.

use std::ops::RangeInclusive;

use crate::experiment::{Kind, ServerSpec};

/// An architecture of `weir serve --arch`.
struct Arch {
    name: &'static str,
    /// True if its event mechanism can be chosen.
    has_mechanism: bool,
    /// Options that `--arch-option` accepts, with their ranges.
    options: &'static [(&'static str, RangeInclusive<u32>)],
}

/// Maximum number of flows of control: the number of connections a server holds.
const POOL_MAX: u32 = 15_000;

const POOL: (&str, RangeInclusive<u32>) = ("pool", 1..=POOL_MAX);

const TABLE: &[Arch] = &[
    Arch { name: "loop", has_mechanism: true, options: &[] },
    Arch {
        name: "ring",
        has_mechanism: false,
        options: &[("sqpoll", 0..=1), ("gather-us", 0..=1_000), ("zero-copy-from", 0..=1 << 30)],
    },
    Arch { name: "fiber", has_mechanism: true, options: &[POOL] },
    Arch { name: "threads", has_mechanism: false, options: &[POOL] },
    Arch { name: "processes", has_mechanism: false, options: &[POOL] },
    Arch { name: "helpers", has_mechanism: true, options: &[("helpers", 1..=1024)] },
];

/// Validates the architecture settings of a server.
///
/// # Errors
/// Returns a sentence that does not name the server: an unknown architecture or option, or a
/// mechanism for an architecture that has none.
pub(super) fn check(server: &ServerSpec) -> Result<(), String> {
    let given = |name: &str| server.options.iter().any(|word| is_option(word, name));
    if given("--arch") || given("--arch-option") {
        return Err("arch and arch-options say the architecture, so options do not".to_owned());
    }
    let Some(name) = &server.arch else {
        return match server.arch_options.is_empty() {
            true => Ok(()),
            false => Err("arch-options need an arch".to_owned()),
        };
    };
    if server.kind != Kind::Weir {
        return Err("arch is for weir alone".to_owned());
    }
    let arch = TABLE.iter().find(|arch| arch.name == name).ok_or_else(|| {
        let names: Vec<&str> = TABLE.iter().map(|arch| arch.name).collect();
        format!("there is no arch {name}; there are {}", names.join(", "))
    })?;
    if !arch.has_mechanism && given("--mechanism") {
        return Err(format!("arch {name} takes no mechanism"));
    }
    server.arch_options.iter().try_for_each(|word| option(arch, word))
}

/// Returns whether a word is the option `name`, with its value behind an equals sign or in the next
/// word.
fn is_option(word: &str, name: &str) -> bool {
    word.split_once('=').map_or(word, |(before, _)| before) == name
}

fn option(arch: &Arch, word: &str) -> Result<(), String> {
    let (name, value) = word
        .split_once('=')
        .ok_or_else(|| format!("an arch option is name=number, and {word} is not"))?;
    let known = arch.options.iter().find(|(known, _)| *known == name);
    let (_, range) = known.ok_or_else(|| format!("arch {} has no option {name}", arch.name))?;
    match value.parse::<u32>() {
        Ok(number) if range.contains(&number) => Ok(()),
        _ => Err(format!("{name} is {} to {}, not {value}", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests {
    use crate::validation::tests::said_of;

    const GOOD: &str = r#"
title = "T"
question = "Q?"
[[server]]
id = "one"
label = "fibers"
kind = "weir"
arch = "fiber"
arch-options = ["pool=1000"]
options = ["--mechanism", "poll"]
[[server]]
id = "two"
label = "ring"
kind = "weir"
arch = "ring"
[[sweep]]
id = "up"
x = "rate"
values = [1]
"#;

    #[test]
    fn what_is_wrong_with_an_architecture_is_said() {
        assert_eq!(said_of(GOOD, "", ""), "");
        let cases = [
            ("\"fiber\"", "\"fibre\"", "server one: there is no arch fibre; there are loop, ring,"),
            ("\"fiber\"", "\"threads\"", "server one: arch threads takes no mechanism"),
            ("pool=1000", "pool", "an arch option is name=number, and pool is not"),
            ("pool=1000", "pool=0", "server one: pool is 1 to 15000, not 0"),
            ("pool=1000", "helpers=4", "server one: arch fiber has no option helpers"),
            ("arch = \"fiber\"", "", "server one: arch-options need an arch"),
            ("[\"--mechanism\"", "[\"--arch=loop\"", "so options do not"),
            ("[\"--mechanism\"", "[\"--arch-option\"", "so options do not"),
            ("\"ring\"\n[[", "\"ring\"\narch-options = [\"sqpoll=2\"]\n[[", "sqpoll is 0 to 1"),
            ("kind = \"weir\"\narch = \"ring\"", "kind = \"h2o\"\narch = \"ring\"", "weir alone"),
        ];
        for (from, to, expected) in cases {
            let error = said_of(GOOD, from, to);
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
