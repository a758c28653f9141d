//! Parsing and display of laws: the grammar of `--arrivals`, which includes httperf's letters
//! (httperf(1), `--period`). The caller reads the file of a trace.

use std::fmt;
use std::io;

use super::law::{ArrivalLaw, RateStep};
use super::law_parameters::{RATE_MAX, check_time, format_number};
use super::trace;

/// Default rate, arrivals per second.
pub const RATE_DEFAULT: f64 = 100.0;

const LAWS: &str = "a law is constant, poisson, uniform, uniform:SHORTEST,LONGEST, \
                    steps:R1xD1,R2xD2, vT1,D1,T2,D2, dT, eT, uT1,T2, ramp:R1-R2, \
                    sine:MEAN,AMPLITUDE,PERIOD or trace:FILE";

impl ArrivalLaw {
    /// Parses the law given by `--arrivals` (`law`) and `--rate` (`rate`). A law without figures
    /// takes the rate, or [`RATE_DEFAULT`]. Times are seconds, or have a unit: `us`, `ms`, `s`,
    /// `m`, `h`. `read` returns the text of the file that `trace:FILE` names.
    ///
    /// # Errors
    ///
    /// A sentence that names the option, or the file and its line, and says what to change.
    pub fn parse(
        law: &str,
        rate: Option<f64>,
        read: &mut dyn FnMut(&str) -> io::Result<String>,
    ) -> Result<Self, String> {
        let option_error = |why: String| format!("--arrivals {law}: {why}");
        if let "constant" | "poisson" | "uniform" = law {
            return at_rate(law, rate.unwrap_or(RATE_DEFAULT));
        }
        let (name, arguments) = split_law(law).ok_or_else(|| option_error(LAWS.into()))?;
        if let Some(rate) = rate {
            let why =
                format!("the law has its own figures; leave out --rate {}", format_number(rate));
            return Err(option_error(why));
        }
        let arrivals = parse_arguments(name, arguments, read).map_err(option_error)?;
        arrivals.check().map_err(option_error)?;
        Ok(arrivals)
    }
}

fn at_rate(law: &str, rate: f64) -> Result<ArrivalLaw, String> {
    let arrivals = match law {
        "poisson" => ArrivalLaw::Poisson { rate },
        "uniform" => ArrivalLaw::Uniform { shortest_s: 0.0, longest_s: 2.0 / rate },
        _ => ArrivalLaw::Constant { rate },
    };
    let option_error = |why| format!("--rate {}: {why}", format_number(rate));
    if !(rate > 0.0 && rate <= RATE_MAX) {
        return Err(option_error(format!(
            "it is above 0, and at most {RATE_MAX} arrivals a second"
        )));
    }
    arrivals.check().map_err(option_error)?;
    Ok(arrivals)
}

/// Splits a law into its name, or httperf's letter for it, and its figures.
fn split_law(law: &str) -> Option<(&str, &str)> {
    if let Some((name, arguments)) = law.split_once(':') {
        let known = ["uniform", "steps", "ramp", "sine", "trace"].contains(&name);
        return known.then_some((name, arguments));
    }
    let (letter, arguments) = law.split_at_checked(1)?;
    let numeric = arguments.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    (["d", "e", "u", "v"].contains(&letter) && numeric).then_some((letter, arguments))
}

fn parse_arguments(
    name: &str,
    arguments: &str,
    read: &mut dyn FnMut(&str) -> io::Result<String>,
) -> Result<ArrivalLaw, String> {
    match name {
        "d" => Ok(ArrivalLaw::Constant { rate: rate_of_interval(arguments)? }),
        "e" => Ok(ArrivalLaw::Poisson { rate: rate_of_interval(arguments)? }),
        "u" | "uniform" => uniform(arguments),
        "v" => intervals(arguments),
        "steps" => arguments.split(',').map(step).collect::<Result<_, _>>().map(ArrivalLaw::Steps),
        "ramp" => ramp(arguments),
        "sine" => sine(arguments),
        _ => {
            let text = read(arguments).map_err(|error| format!("{arguments}: {error}"))?;
            trace::read(arguments, &text).map(ArrivalLaw::Trace)
        }
    }
}

fn uniform(arguments: &str) -> Result<ArrivalLaw, String> {
    let (shortest, longest) =
        arguments.split_once(',').ok_or("two times are needed: SHORTEST,LONGEST")?;
    Ok(ArrivalLaw::Uniform {
        shortest_s: parse_seconds(shortest)?,
        longest_s: parse_seconds(longest)?,
    })
}

/// Parses httperf's `v`: pairs of the time between arrivals and its duration.
fn intervals(arguments: &str) -> Result<ArrivalLaw, String> {
    let arguments: Vec<&str> = arguments.split(',').collect();
    let (pairs, odd) = arguments.as_chunks::<2>();
    if !odd.is_empty() {
        return Err("times come in pairs, T1,D1: between arrivals, and for how long".into());
    }
    let step = |[between, duration]: &[&str; 2]| {
        Ok(RateStep { rate: rate_of_interval(between)?, duration_s: parse_seconds(duration)? })
    };
    pairs.iter().map(step).collect::<Result<_, String>>().map(ArrivalLaw::Steps)
}

fn step(arguments: &str) -> Result<RateStep, String> {
    let (rate, duration) = arguments
        .split_once('x')
        .ok_or_else(|| format!("{arguments:?} is not RATExDURATION, as in 100x10"))?;
    Ok(RateStep { rate: parse_number(rate)?, duration_s: parse_seconds(duration)? })
}

fn ramp(arguments: &str) -> Result<ArrivalLaw, String> {
    // A number may have a minus of its own, as in 1e-3.
    let rates = |(at, _)| {
        let (from, to) = (arguments.get(..at)?, arguments.get(at + 1..)?);
        Some(ArrivalLaw::Ramp { from: parse_number(from).ok()?, to: parse_number(to).ok()? })
    };
    let ramp = arguments.match_indices('-').find_map(rates);
    ramp.ok_or_else(|| "two rates are needed: FROM-TO, as in 100-500".into())
}

fn sine(arguments: &str) -> Result<ArrivalLaw, String> {
    let parts: Vec<&str> = arguments.split(',').collect();
    let [mean, amplitude, period] = parts[..] else {
        return Err("three figures are needed: MEAN,AMPLITUDE,PERIOD".into());
    };
    let (mean, amplitude) = (parse_number(mean)?, parse_number(amplitude)?);
    Ok(ArrivalLaw::Sine { mean, amplitude, period_s: parse_seconds(period)? })
}

/// Returns the rate of arrivals that are this far apart.
fn rate_of_interval(text: &str) -> Result<f64, String> {
    let between_s = parse_seconds(text)?;
    check_time("the time between arrivals is", between_s)?;
    Ok(1.0 / between_s)
}

/// Parses a time; returns seconds.
fn parse_seconds(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 5] =
        [("us", 1e6), ("ms", 1e3), ("s", 1.0), ("m", 1.0 / 60.0), ("h", 1.0 / 3600.0)];
    let with_unit = |&(unit, in_a_second)| Some((text.strip_suffix(unit)?, in_a_second));
    let (number_text, in_a_second) = UNITS.iter().find_map(with_unit).unwrap_or((text, 1.0));
    Ok(parse_number(number_text)? / in_a_second)
}

fn parse_number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

/// Displays the law in words: `constant 1000/s`.
impl fmt::Display for ArrivalLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArrivalLaw::Constant { rate } => write!(f, "constant {rate}/s"),
            ArrivalLaw::Poisson { rate } => write!(f, "poisson {rate}/s"),
            ArrivalLaw::Uniform { shortest_s, longest_s } => {
                write!(f, "uniform {shortest_s} s to {longest_s} s apart")
            }
            ArrivalLaw::Steps(steps) => {
                for (at, step) in steps.iter().enumerate() {
                    let before = if at == 0 { "steps" } else { "," };
                    write!(f, "{before} {}/s for {} s", step.rate, step.duration_s)?;
                }
                Ok(())
            }
            ArrivalLaw::Ramp { from, to } => write!(f, "ramp {from}/s to {to}/s"),
            ArrivalLaw::Sine { mean, amplitude, period_s } => {
                write!(f, "sine {mean}/s, up and down {amplitude}/s every {period_s} s")
            }
            ArrivalLaw::Trace(starts_ns) => write!(f, "trace of {} starts", starts_ns.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(law: &str, rate: Option<f64>) -> Result<ArrivalLaw, String> {
        ArrivalLaw::parse(law, rate, &mut |file| match file {
            "good" => Ok("# two\n0\n0.5\n".into()),
            "bad" => Ok("0\nx\n".into()),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
        })
    }

    #[test]
    fn laws_are_read_and_shown() {
        let table = [
            ("constant", "constant 100/s"),
            ("poisson", "poisson 100/s"),
            ("uniform", "uniform 0 s to 0.02 s apart"),
            ("uniform:1ms,0.003", "uniform 0.001 s to 0.003 s apart"),
            ("u0.001,0.003", "uniform 0.001 s to 0.003 s apart"),
            ("d0.1", "constant 10/s"),
            ("e.1", "poisson 10/s"),
            ("v0.1,5,0.05,1", "steps 10/s for 5 s, 20/s for 1 s"),
            ("steps:100x10", "steps 100/s for 10 s"),
            (
                "steps:100x10s,0x500ms,7.5x2m",
                "steps 100/s for 10 s, 0/s for 0.5 s, 7.5/s for 120 s",
            ),
            ("ramp:100-500", "ramp 100/s to 500/s"),
            ("ramp:1e-3-5", "ramp 0.001/s to 5/s"),
            ("ramp:5-0", "ramp 5/s to 0/s"),
            ("sine:100,50,1h", "sine 100/s, up and down 50/s every 3600 s"),
            ("trace:good", "trace of 2 starts"),
        ];
        for (law, format_number) in table {
            assert_eq!(
                parse(law, None).map(|law| law.to_string()),
                Ok(format_number.into()),
                "{law}"
            );
        }
        assert_eq!(parse("poisson", Some(0.5)), Ok(ArrivalLaw::Poisson { rate: 0.5 }));
        assert_eq!(parse("trace:good", None), Ok(ArrivalLaw::Trace([0, 500_000_000].into())));
    }

    #[test]
    fn an_error_names_the_option_to_change() {
        let table = [
            ("sometimes", None, "--arrivals sometimes: a law is constant, poisson,"),
            ("", None, "--arrivals : a law is"),
            ("constant:5", None, "a law is constant"),
            ("x5", None, "a law is constant"),
            ("é5", None, "a law is constant"),
            ("constant", Some(f64::NAN), "--rate NaN: it is above 0, and at most 1000000000 arr"),
            ("poisson", Some(-1.0), "--rate -1: it is above 0"),
            ("uniform", Some(0.0), "--rate 0: it is above 0"),
            ("uniform", Some(f64::INFINITY), "--rate inf: it is above 0"),
            ("constant", Some(1e300), "--rate 1e300: it is"),
            ("steps:1e300x1", None, "not 1e300"),
            ("ramp:1-2", Some(5.0), "the law has its own figures; leave out --rate 5"),
            ("trace:missing", Some(5.0), "leave out --rate 5"),
            ("uniform:1", None, "two times are needed"),
            ("uniform:2,1", None, "not above the longest"),
            ("uniform:1,x", None, "--arrivals uniform:1,x: \"x\" is not a number"),
            ("d0", None, "the time between arrivals is a nanosecond to"),
            ("e1e-10", None, "the time between arrivals is a nanosecond to"),
            ("v1,2,3", None, "times come in pairs"),
            ("v1,0", None, "a step lasts a nanosecond to"),
            ("steps:100", None, "\"100\" is not RATExDURATION"),
            ("steps:", None, "\"\" is not RATExDURATION"),
            ("steps:100x10,ax1", None, "\"a\" is not a number"),
            ("steps:NaNx1", None, "not NaN"),
            ("steps:1xinf", None, "not inf s"),
            ("steps:2e9x1", None, "not 2000000000"),
            ("ramp:100", None, "two rates are needed"),
            ("ramp:-5-10", None, "not -5"),
            ("sine:1,2", None, "three figures are needed"),
            ("sine:1,2,3", None, "the amplitude is 0 to the mean"),
            ("trace:missing", None, "missing: no such file"),
            ("trace:bad", None, "--arrivals trace:bad: bad, line 2: \"x\" is not a start"),
        ];
        for (law, rate, sentence) in table {
            let refused = parse(law, rate).unwrap_err();
            assert!(refused.contains(sentence), "{law}: {refused}");
        }
    }
}
