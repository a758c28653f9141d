//! Laws of paths as text: a preset, or `rtt=50ms..200ms,jitter=5ms,loss=1%,burst=3,down=5m,up=1m,
//! queue=100ms,reorder=0.1%,duplicate=0.1%`.

use std::str::FromStr;
use std::time::Duration;

use super::law::{OneLaw, PathLaw, Span};
use super::presets::PRESETS;

/// Longest time that a path may take: an hour.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Least bandwidth, bits per second: a packet takes no more than a minute and a half.
const BITS_MIN: u64 = 1000;

impl FromStr for PathLaw {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = match PRESETS.iter().find(|(name, ..)| *name == text) {
            Some((_, _, law)) if !law.contains('=') => mix(law)?,
            _ => vec![(1, kind(text)?)],
        };
        Ok(Self { kinds, text: text.into() })
    }
}

/// Reads the weights of several kinds: `45 cable, 15 dsl`.
fn mix(law: &str) -> Result<Vec<(u32, OneLaw)>, String> {
    let part = |part: &str| {
        let (weight, name) = part.trim().split_once(' ')?;
        Some((weight.parse().ok()?, kind(name).ok()?))
    };
    law.split(',').map(|each| part(each).ok_or_else(|| format!("path: {each}"))).collect()
}

/// Reads one kind: a preset by name, with what is to differ behind it, or a list.
fn kind(text: &str) -> Result<OneLaw, String> {
    let (first, rest) = text.split_once(',').unwrap_or((text, ""));
    let preset = PRESETS.iter().find(|(name, _, law)| *name == first && law.contains('='));
    let mut kind = OneLaw::default();
    let own = match preset {
        Some((_, _, law)) => {
            read_list(law, &mut kind)?;
            rest
        }
        None if text.contains('=') => text,
        None => {
            let names: Vec<&str> = PRESETS.iter().map(|(name, ..)| *name).collect();
            return Err(format!(
                "path {text}: one of {}, or a list such as rtt=50ms..200ms,loss=1%,down=5m",
                names.join(", ")
            ));
        }
    };
    read_list(own, &mut kind)?;
    if kind.loss.burst > 1.0 && kind.loss.share > 0.5 {
        return Err("path: losses in bursts are at most 50%".into());
    }
    Ok(kind)
}

fn read_list(list: &str, kind: &mut OneLaw) -> Result<(), String> {
    for item in list.split(',').filter(|item| !item.is_empty()) {
        let Some((key, value)) = item.split_once('=') else {
            return Err(format!("path: {item}: give name=value"));
        };
        let read = match key {
            "rtt" => span(value).map(|read| kind.rtt = read),
            "jitter" => time(value).map(|read| kind.jitter_ns = read),
            "queue" => time(value).map(|read| kind.queue_ns = read),
            "loss" => share(value).map(|read| kind.loss.share = read),
            "reorder" => share(value).map(|read| kind.reorder = read),
            "duplicate" => share(value).map(|read| kind.duplicate = read),
            "burst" => burst(value).map(|read| kind.loss.burst = read),
            "down" => bits(value).map(|read| kind.down_bits_per_s = read),
            "up" => bits(value).map(|read| kind.up_bits_per_s = read),
            _ => {
                return Err(format!(
                    "path: {key}: one of rtt, jitter, loss, burst, down, up, queue, reorder, \
                     duplicate"
                ));
            }
        };
        read.map_err(|reason| format!("path: {key}={value}: {reason}"))?;
    }
    Ok(())
}

fn span(text: &str) -> Result<Span, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let (from_ns, to_ns) = (time(from)?, time(to)?);
    if from_ns > to_ns {
        return Err("the first time is the shorter one".into());
    }
    Ok(Span { from_ns, to_ns })
}

fn time(text: &str) -> Result<u64, String> {
    let time = humantime::parse_duration(text).map_err(|_| "a time such as 50ms".to_owned())?;
    if time > TIME_MAX {
        return Err("at most an hour".into());
    }
    Ok(time.as_nanos() as u64)
}

fn share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share such as 1% or 0.01".into())
}

fn burst(text: &str) -> Result<f64, String> {
    let burst = text.parse().ok().filter(|burst| (1.0..=1e6).contains(burst));
    burst.ok_or_else(|| "a mean number of packets, at least 1".into())
}

/// Reads a bandwidth: bits per second, with k, m or g for 10^3, 10^6 and 10^9.
fn bits(text: &str) -> Result<u64, String> {
    let wrong = || "bits per second, such as 5m or 64k".to_owned();
    let unit = |suffix: char| match suffix.to_ascii_lowercase() {
        'k' => Some(1e3),
        'm' => Some(1e6),
        'g' => Some(1e9),
        _ => None,
    };
    let (number, factor) = match text.chars().last().and_then(unit) {
        Some(factor) => (&text[..text.len() - 1], factor),
        None => (text, 1.0),
    };
    let bits = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if !(bits >= BITS_MIN as f64 && bits <= 1e12) {
        return Err(format!("{}, at least {BITS_MIN} and at most 1000g", wrong()));
    }
    Ok(bits as u64)
}

#[cfg(test)]
mod tests {
    use super::super::law::Loss;
    use super::*;

    fn one(text: &str) -> OneLaw {
        text.parse::<PathLaw>().unwrap().kinds[0].1
    }

    #[test]
    fn every_preset_is_sound() {
        for (name, meaning, law) in PRESETS {
            assert!(name.parse::<PathLaw>().is_ok() && !meaning.is_empty(), "{name}");
            if law.contains('=') {
                assert_eq!(one(name), one(law), "{name}");
            }
        }
        let mix: PathLaw = "mix".parse().unwrap();
        assert_eq!(mix.kinds.iter().map(|(weight, _)| weight).sum::<u32>(), 100);
        assert_eq!((mix.rtt_max_ns(), mix.to_string().as_str()), (640_000_000, "mix"));
    }

    #[test]
    fn a_list_says_what_differs_from_a_perfect_path_or_a_preset() {
        let law = one("rtt=50ms..200ms,loss=1%,burst=3,down=5m,up=64k,reorder=0.001");
        assert_eq!(law.rtt, Span { from_ns: 50_000_000, to_ns: 200_000_000 });
        assert_eq!(law.loss, Loss { share: 0.01, burst: 3.0 });
        assert_eq!((law.down_bits_per_s, law.up_bits_per_s), (5_000_000, 64_000));
        assert!((law.reorder - 0.001).abs() < 1e-12);
        let dsl = one("dsl,loss=0%");
        assert_eq!((dsl.down_bits_per_s, dsl.loss.share), (16_000_000, 0.0));
    }

    #[test]
    fn a_wrong_path_gets_one_sentence() {
        let table = [
            ("fast", "one of lan, cable, dsl, 4g, satellite, mix"),
            ("rtt=50", "a time such as 50ms"),
            ("rtt=2s..1s", "shorter"),
            ("rtt=2h", "an hour"),
            ("loss=101%", "a share"),
            ("loss=-1", "a share"),
            ("loss=NaN", "a share"),
            ("burst=0", "at least 1"),
            ("loss=60%,burst=2", "at most 50%"),
            ("down=fast", "bits per second"),
            ("down=0", "at least 1000"),
            ("down=é", "bits per second"),
            ("rtt=1ms,speed=3", "one of rtt"),
            ("dsl,loss", "name=value"),
        ];
        for (text, sentence) in table {
            let refused = text.parse::<PathLaw>().unwrap_err();
            assert!(refused.contains(sentence), "{text}: {refused}");
        }
    }
}
