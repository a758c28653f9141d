//! What a measurement was taken with: the machine, its settings, the programs and their versions.
//! Recorded with every run, so that a line of the results stands alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Serialize;

use super::{LOAD_CORE, SERVER_CORE};
use crate::tree;

/// The set-up of a measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setup {
    /// The day, UTC, as YYYY-MM-DD.
    pub(super) date: String,
    /// A short name for the machine, from its processor.
    pub(super) machine: String,
    pub(super) cpu_model: String,
    pub(super) cores: usize,
    /// Whether the processor says that it is a virtual one.
    pub(super) virtual_machine: bool,
    /// The frequency governor of the server's core, where there is one.
    pub(super) governor: Option<String>,
    pub(super) kernel: String,
    /// The kernel's settings that concern connections.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) descriptors_max: Option<u64>,
    pub(super) server_core: usize,
    pub(super) load_core: usize,
    pub(super) weir_commit: String,
    /// Whether the tree held changes that the commit does not.
    pub(super) weir_dirty: bool,
    /// The programs measured or measuring, and their versions.
    pub(super) versions: BTreeMap<String, String>,
    pub(super) rounds: u32,
    pub(super) seconds: u32,
    pub(super) warm_up_seconds: u32,
    pub(super) seed: u64,
}

/// What of the set-up the caller knows.
pub(super) struct Plan {
    pub(super) versions: BTreeMap<String, String>,
    pub(super) descriptors_max: Option<u64>,
    pub(super) rounds: u32,
    pub(super) seconds: u32,
    pub(super) warm_up_seconds: u32,
    pub(super) seed: u64,
}

const SETTINGS: &[&str] = &[
    "net/core/somaxconn",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_congestion_control",
];

impl Setup {
    /// Where the results of the day and the machine belong.
    pub(super) fn folder(&self) -> PathBuf {
        tree::root().join(format!("results/{}-{}", self.date, self.machine))
    }

    /// Reads what the machine says about itself.
    pub(super) fn read(plan: Plan) -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let cpu_model = field(&cpuinfo, "model name").unwrap_or("unknown").to_owned();
        let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
        let flags = field(&cpuinfo, "flags").unwrap_or_default();
        let day = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 86_400;
        let governor = format!("/sys/devices/system/cpu/cpu{SERVER_CORE}/cpufreq/scaling_governor");
        Ok(Self {
            date: date(i64::try_from(day)?),
            machine: format!("{cores}core-{}", slug(&cpu_model)),
            virtual_machine: flags.split_whitespace().any(|flag| flag == "hypervisor"),
            cpu_model,
            cores,
            governor: fs::read_to_string(governor).ok().map(|text| text.trim().to_owned()),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            settings: SETTINGS.iter().filter_map(|name| setting(name)).collect(),
            descriptors_max: plan.descriptors_max,
            server_core: SERVER_CORE,
            load_core: LOAD_CORE,
            weir_commit: git(&["rev-parse", "HEAD"]).unwrap_or_else(|_| "unknown".to_owned()),
            // The results themselves are what a measurement changes.
            weir_dirty: git(&["status", "--porcelain", "--", ".", ":!results"])
                .is_ok_and(|changes| !changes.is_empty()),
            versions: plan.versions,
            rounds: plan.rounds,
            seconds: plan.seconds,
            warm_up_seconds: plan.warm_up_seconds,
            seed: plan.seed,
        })
    }
}

fn setting(name: &str) -> Option<(String, String)> {
    let value = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
    Some((name.replace('/', "."), value))
}

fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(tree::root()).output()?;
    output.status.success().then_some(()).context("git failed")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The telling words of a processor's name.
fn slug(model: &str) -> String {
    let model = model.to_lowercase().replace("(r)", " ").replace("(tm)", " ");
    let model = model.split('@').next().unwrap_or_default();
    let silent = |word: &&str| {
        !matches!(*word, "intel" | "amd" | "cpu" | "processor") && !word.ends_with("-core")
    };
    let words: Vec<&str> = model.split_whitespace().filter(silent).collect();
    let name = words.join("-").replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "");
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// The date of a day counted from 1970-01-01 (Howard Hinnant's civil_from_days).
fn date(day: i64) -> String {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        let days = [(0, "1970-01-01"), (19_782, "2024-02-29"), (19_783, "2024-03-01")];
        let more = [(20_453, "2025-12-31"), (20_454, "2026-01-01"), (11_016, "2000-02-29")];
        for (day, expected) in days.into_iter().chain(more) {
            assert_eq!(date(day), expected);
        }
    }

    #[test]
    fn processors_have_short_names() {
        assert_eq!(slug("Intel(R) Xeon(R) Processor"), "xeon");
        assert_eq!(slug("Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz"), "xeon-gold-6230");
        assert_eq!(slug("AMD EPYC 7B13 64-Core Processor"), "epyc-7b13");
        assert_eq!(slug(""), "unknown");
    }

    #[test]
    fn the_machine_can_be_read() {
        let plan = Plan {
            versions: BTreeMap::new(),
            descriptors_max: Some(20),
            rounds: 1,
            seconds: 2,
            warm_up_seconds: 1,
            seed: 3,
        };
        let setup = Setup::read(plan).unwrap();
        assert!(setup.cores > 0 && setup.machine.starts_with(&format!("{}core-", setup.cores)));
        assert_eq!(setup.date.len(), 10);
        assert!(setup.settings.contains_key("net.core.somaxconn"));
    }

    #[test]
    fn fields_of_cpuinfo_are_found() {
        let text = "processor\t: 0\nmodel name\t: A B\nflags\t: x hypervisor\n";
        assert_eq!(field(text, "model name"), Some("A B"));
        assert_eq!(field(text, "cache"), None);
    }
}
