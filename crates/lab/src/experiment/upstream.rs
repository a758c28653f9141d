//! Servers behind the proxies of a sweep, and what happens to them during a point, as an experiment
//! file describes both.

use serde::{Deserialize, Serialize};

use super::units::{Bounded, BurnUs, Rate, Seconds};

/// An application, started anew behind each server of a sweep, which is its proxy.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UpstreamSpec {
    /// The program.
    pub kind: UpstreamKind,
    /// Number of its worker processes. One of weir's, gunicorn's or puma's serves one request at a
    /// time, one of uvicorn's as many as come.
    pub workers: Bounded<1, 1024>,
    /// Mean service time, in microseconds.
    pub mean_us: BurnUs,
    /// Law of the service time.
    #[serde(default)]
    pub law: ServiceLaw,
    /// Processor time in the mean service time, in microseconds; the rest is a wait.
    #[serde(default = "none")]
    pub burn_us: BurnUs,
    /// Limit on the processor time of each application, in percent of a processor.
    pub cpu_percent: Option<Bounded<1, 10_000>>,
    /// Number of applications, each with workers of its own.
    #[serde(default = "one")]
    pub servers: Bounded<1, 16>,
}

fn none() -> BurnUs {
    BurnUs::of::<0>()
}

fn one() -> Bounded<1, 16> {
    Bounded::of::<1>()
}

impl UpstreamSpec {
    /// Returns the prefix of the paths that are requested of it, which says the service time, with
    /// the seed of those that a law draws.
    pub fn prefix(&self, seed: u64) -> String {
        let law = match self.law {
            ServiceLaw::Fixed => self.law.name().to_owned(),
            law => format!("{}:{seed}", law.name()),
        };
        format!("/.weir/work/{}/{law}/{}", self.mean_us, self.burn_us)
    }
}

/// The program of an application.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamKind {
    /// `weir serve` of this binary, with a process for each request.
    Weir,
    /// gunicorn(1) with synchronous workers: Python, WSGI.
    Gunicorn,
    /// uvicorn(1): Python, ASGI.
    Uvicorn,
    /// puma(1) with a thread for each worker process: Ruby, Rack.
    Puma,
}

impl UpstreamKind {
    /// All programs.
    pub const ALL: [Self; 4] = [Self::Weir, Self::Gunicorn, Self::Uvicorn, Self::Puma];

    /// Returns its name in experiment files, which is also that of its binary.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::Gunicorn => "gunicorn",
            Self::Uvicorn => "uvicorn",
            Self::Puma => "puma",
        }
    }
}

/// Law of a service time.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceLaw {
    /// Always the mean.
    #[default]
    Fixed,
    /// Exponential.
    Exponential,
    /// Log-normal with a standard deviation of three means.
    HeavyTailed,
}

impl ServiceLaw {
    /// All laws.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Exponential, Self::HeavyTailed];

    /// Returns its name in experiment files and in paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Exponential => "exponential",
            Self::HeavyTailed => "heavy-tailed",
        }
    }
}

/// A disturbance of the last application of a sweep, once in each point.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DisturbanceSpec {
    /// Its kind.
    pub kind: DisturbanceKind,
    /// Measured time before it, in seconds, at scale 1.
    pub before_s: Seconds,
    /// Its duration, in seconds.
    pub for_s: Seconds,
    /// slow: the factor by which its limit on processor time shrinks.
    pub times: Option<Rate>,
}

/// The kind of a disturbance.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum DisturbanceKind {
    /// Its limit on processor time is lowered.
    Slow,
    /// It is killed, and started again at the end.
    Death,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_and_law_is_called_in_files_as_it_calls_itself() {
        for kind in UpstreamKind::ALL {
            for law in ServiceLaw::ALL {
                let text = format!(
                    "kind = \"{}\"\nworkers = 2\nmean-us = 9\nlaw = \"{}\"",
                    kind.name(),
                    law.name()
                );
                let spec: UpstreamSpec = toml::from_str(&text).unwrap();
                assert_eq!((spec.kind, spec.law, *spec.servers), (kind, law, 1));
                let seed = if law == ServiceLaw::Fixed { "" } else { ":7" };
                assert_eq!(spec.prefix(7), format!("/.weir/work/9/{}{seed}/0", law.name()));
            }
        }
    }
}
