//! Availability check: finds which of the resources that experiments use this machine has, and
//! reports what is lost without the rest.
//!
//! Reports only: installs nothing, changes nothing and decides nothing for a run.

use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::machine;
use crate::programs;

/// Availability of a resource.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Available in full.
    Have,
    /// Not available.
    Missing,
    /// Available, but less than experiments can use.
    Reduced,
}

/// The availability of a resource that experiments use.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct CheckResult {
    /// Name of the resource: `open files`, `httperf`.
    pub what: String,
    /// Availability of the resource.
    pub state: State,
    /// Details of the resource or, if it is missing or reduced, the consequences and a remedy.
    pub says: String,
}

/// A program that experiments start.
struct RequiredProgram {
    name: &'static str,
    version: &'static str,
    package: &'static str,
    lost: &'static str,
}

const PROGRAMS: [RequiredProgram; 10] = [
    required("ip", "-V", "iproute2", "network namespaces cannot be joined: loopback only"),
    required("nginx", "-v", "nginx-light", "comparisons with nginx are left out"),
    required("h2o", "--version", "h2o", "comparisons with h2o are left out"),
    required("lighttpd", "-v", "lighttpd", "comparisons with lighttpd are left out"),
    required("haproxy", "-v", "haproxy", "comparisons with HAProxy are left out"),
    required("apache2", "-v", "apache2", "comparisons with Apache are left out"),
    // With --version alone httperf continues and loads this machine.
    required(
        "httperf",
        "--version --help",
        "httperf",
        "the papers' own generator checks ours nowhere",
    ),
    required("wrk", "-v", "wrk", "no second closed-loop generator checks ours"),
    required("ab", "-V", "apache2-utils", "no third generator's cost is compared with ours"),
    required("strace", "-V", "strace", "other servers' system calls are not counted"),
];

const fn required(
    name: &'static str,
    version: &'static str,
    package: &'static str,
    lost: &'static str,
) -> RequiredProgram {
    RequiredProgram { name, version, package, lost }
}

/// File descriptors for the papers' 12,000 connections, twice: a generator's and a server's both
/// count.
const OPEN_FILES_WANTED: u64 = 32_768;
/// Load average from which the machine no longer counts as idle: half a processor is taken.
const BUSY: f64 = 0.5;
/// Share of time taken by the host above which figures are affected.
const STEAL_MAX: f64 = 0.01;

/// The capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN as a mask (capabilities(7)).
const NEEDED: u64 = 1 << 12 | 1 << 21;

/// Checks this machine.
pub fn check() -> Vec<CheckResult> {
    let allowed = weir_sys::process::allowed_cpus().map_or(0, |cpus| cpus.len());
    let status = machine::text("/proc/self/status").unwrap_or_default();
    let stat = machine::text("/proc/stat").unwrap_or_default();
    let mut findings = vec![
        namespaces(&status),
        processors(allowed),
        idle(machine::load_average()),
        open_files(machine::open_files_max()),
        clock(machine::clock_source().as_deref()),
        steal(&stat),
        limits(cgroup::available()),
    ];
    findings.extend(PROGRAMS.iter().map(program));
    findings
}

fn result(what: &str, state: State, says: impl Into<String>) -> CheckResult {
    CheckResult { what: what.into(), state, says: says.into() }
}

fn namespaces(status: &str) -> CheckResult {
    let what = "network namespaces";
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let kinds = ["net", "mnt", "pid"];
    let absent = kinds.iter().find(|kind| !exists(&format!("/proc/self/ns/{kind}")));
    match absent {
        _ if held & NEEDED != NEEDED => result(
            what,
            State::Missing,
            "needs CAP_SYS_ADMIN and CAP_NET_ADMIN; without them everything runs over loopback, \
             where the client's processor does part of the server's work: run as root",
        ),
        Some(kind) => result(
            what,
            State::Missing,
            format!("the kernel has no {kind} namespaces; everything runs over loopback"),
        ),
        None => result(what, State::Have, "two networks joined by a link, for each run"),
    }
}

fn limits(available: Result<String, String>) -> CheckResult {
    let what = "limits on servers";
    match available {
        Ok(says) => result(what, State::Have, says),
        Err(why) => {
            let says =
                format!("{why}: experiments with memory-mib or disk-reads-per-s are refused");
            result(what, State::Missing, says)
        }
    }
}

fn exists(path: &str) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn processors(allowed: usize) -> CheckResult {
    let what = "two processors";
    if allowed >= 2 {
        return result(what, State::Have, format!("{allowed} may be used"));
    }
    let says = "one may be used: server and client share it, so figures are of the two together; \
                give the machine another, or this process (taskset)";
    result(what, State::Reduced, says)
}

fn idle(load: Option<[f64; 3]>) -> CheckResult {
    let what = "idle machine";
    match load {
        Some([minute, ..]) if minute < BUSY => {
            result(what, State::Have, format!("load average {minute:.2}"))
        }
        Some([minute, ..]) => {
            let says = format!(
                "load average {minute:.2}: other programs take time from both sides, and figures \
                 are worse and less steady than they could be; stop them, or wait"
            );
            result(what, State::Reduced, says)
        }
        None => result(what, State::Missing, "the kernel tells no load average"),
    }
}

fn open_files(max: Option<u64>) -> CheckResult {
    let what = "open files";
    match max {
        None => result(what, State::Have, "no limit"),
        Some(max) if max >= OPEN_FILES_WANTED => result(what, State::Have, format!("{max}")),
        Some(max) => {
            let says = format!(
                "{max}: points with more connections fail; raise the hard limit to \
                 {OPEN_FILES_WANTED} or more (ulimit -Hn, limits.conf)"
            );
            result(what, State::Reduced, says)
        }
    }
}

fn clock(source: Option<&str>) -> CheckResult {
    let what = "clock source";
    match source {
        // Clock sources that are read without a system call, on x86 and on arm64.
        Some(fast @ ("tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "arch_sys_counter")) => {
            result(what, State::Have, fast)
        }
        Some(slow) => {
            let says = format!(
                "{slow}: reading the time takes a system call, which counts against whoever reads \
                 it often; start the kernel with clocksource=tsc if the processor's is stable"
            );
            result(what, State::Reduced, says)
        }
        None => result(what, State::Missing, "the kernel does not tell its clock"),
    }
}

/// Checks the share of time since boot that the host took from this guest (proc_stat(5)).
fn steal(stat: &str) -> CheckResult {
    let what = "time of its own";
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let ticks: Vec<f64> =
        all.unwrap_or_default().split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; user and nice include the later columns.
    let whole: f64 = ticks.iter().take(8).sum();
    let Some(&stolen) = ticks.get(7).filter(|_| whole > 0.0) else {
        return result(what, State::Missing, "the kernel does not tell what a host takes");
    };
    let share = stolen / whole;
    let percent = share * 100.0;
    if share <= STEAL_MAX {
        return result(
            what,
            State::Have,
            format!("{percent:.1} % taken by a host since the start"),
        );
    }
    let says = format!(
        "{percent:.1} % of the time since the start was taken by the host: points during which it \
         takes much are marked; use a machine of its own"
    );
    result(what, State::Reduced, says)
}

fn program(required: &RequiredProgram) -> CheckResult {
    match programs::find(required.name) {
        Some(file) => {
            let flags: Vec<&str> = required.version.split_whitespace().collect();
            let version = programs::version_of(&file, &flags);
            result(required.name, State::Have, version.unwrap_or_else(|| "version unknown".into()))
        }
        None => {
            let says = format!("{}; Debian: apt install {}", required.lost, required.package);
            result(required.name, State::Missing, says)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_looked_at_once_and_says_something() {
        let findings = check();
        let names: std::collections::BTreeSet<_> =
            findings.iter().map(|result| result.what.as_str()).collect();
        assert_eq!(names.len(), findings.len());
        assert!(names.contains("network namespaces") && names.contains("httperf"));
        assert!(findings.iter().all(|result| !result.says.is_empty()));
    }

    #[test]
    fn what_is_missing_says_what_is_lost_and_how_to_get_it() {
        let none = required("no-such-program", "-v", "a-package", "figures are left out");
        let found = program(&none);
        assert_eq!(found.state, State::Missing);
        assert!(found.says.contains("left out") && found.says.contains("apt install a-package"));
    }

    #[test]
    fn capabilities_decide_on_namespaces() {
        assert_eq!(namespaces("CapEff:\t000001ffffffffff\n").state, State::Have);
        assert_eq!(namespaces("CapEff:\t0000000000001000\n").state, State::Missing);
        assert_eq!(namespaces("").state, State::Missing);
    }

    #[test]
    fn limits_that_cannot_be_had_say_what_is_refused() {
        let none = limits(Err("for root".to_owned()));
        assert_eq!(none.state, State::Missing);
        assert!(none.says.starts_with("for root: experiments with memory-mib"));
        assert_eq!(limits(Ok("memory by version 2".to_owned())).state, State::Have);
    }

    #[test]
    fn limits_are_judged() {
        assert_eq!(processors(2).state, State::Have);
        assert_eq!(processors(1).state, State::Reduced);
        assert_eq!(idle(Some([0.1, 9.0, 9.0])).state, State::Have);
        assert_eq!(idle(Some([1.0, 0.0, 0.0])).state, State::Reduced);
        assert_eq!(open_files(None).state, State::Have);
        assert_eq!(open_files(Some(1024)).state, State::Reduced);
        assert_eq!(clock(Some("tsc")).state, State::Have);
        assert_eq!(clock(Some("hpet")).state, State::Reduced);
    }

    #[test]
    fn stolen_time_is_a_share_of_the_whole() {
        assert_eq!(steal("cpu  10 0 10 70 0 0 0 10 5 5\n").state, State::Reduced);
        assert_eq!(steal("cpu  50 0 50 900 0 0 0 0 0 0\n").state, State::Have);
        assert_eq!(steal("cpu  1 2\n").state, State::Missing);
    }
}
