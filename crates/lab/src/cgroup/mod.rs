//! Confinement of a server to less memory, a slower disk or less of a processor than the machine
//! has. Each start of the server gets a control group (cgroups(7)), of version 1 or 2, created
//! before and removed after; a controller of version 2 that was off is on meanwhile. The caller
//! puts the server into the group's folders.
//!
//! The memory limit includes the page cache of the files that the server reads, so a file set
//! larger than the limit is read from the disk. The limit on reads is the kernel's throttle: it
//! admits this many reads per second and delays the rest, whichever process of the server issues
//! them, in batches of a tenth of a second. It does not slow down individual reads, as seeks of a
//! disk would.

mod disk;
mod hierarchy;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weir_sys::proc;

use crate::experiment::ServerSpec;
use hierarchy::{Controller, Hierarchy};

pub(crate) use disk::keeps_in_memory;

/// Timeout for the last process of a group to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Polling interval while waiting for that.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Prefix of the names of group folders; the process id of the lab follows, and a number.
const PREFIX: &str = "weir-lab-";

/// Period of a limit on processor time: short, so that who has used its share up does not stand
/// still for long. Shares that are less than a quota of it have a longer one.
const CPU_PERIOD_US: f64 = 10_000.0;

/// The longest period that the kernel accepts.
const CPU_PERIOD_US_MAX: f64 = 1_000_000.0;

/// The least that the kernel accepts as a quota.
const CPU_QUOTA_US_MIN: f64 = 1_000.0;

/// Smallest limit on processor time, in percent of a processor: the least quota of the longest
/// period.
pub(crate) const CPU_PERCENT_MIN: f64 = 100.0 * CPU_QUOTA_US_MIN / CPU_PERIOD_US_MAX;

/// Resource limits of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Memory in MiB, including the page cache.
    pub memory_mib: Option<u32>,
    /// Reads per second from the disk that holds its files.
    pub disk_reads_per_s: Option<u32>,
    /// Processor time in percent of a processor: 0.1 or more.
    pub cpu_percent: Option<f64>,
}

impl Limits {
    /// Returns the limits of a server, or `None` if it has none.
    pub fn of(spec: &ServerSpec) -> Option<Self> {
        let limits = Self {
            memory_mib: spec.memory_mib.map(|mib| *mib),
            disk_reads_per_s: spec.disk_reads_per_s.map(|reads| *reads),
            cpu_percent: None,
        };
        (limits != Self::default()).then_some(limits)
    }

    /// Describes the limits for a reader: `at most 128 MiB of memory, at most 100 reads a second of
    /// its disk`.
    pub fn describe(&self) -> String {
        let memory = self.memory_mib.map(|mib| format!("at most {mib} MiB of memory"));
        let reads =
            self.disk_reads_per_s.map(|n| format!("at most {n} reads a second of its disk"));
        let cpu = self.cpu_percent.map(|percent| format!("at most {percent} % of a processor"));
        memory.into_iter().chain(reads).chain(cpu).collect::<Vec<_>>().join(", ")
    }

    /// Returns the value to set for each controller; `disk` is a device number such as `254:0`.
    fn settings(&self, disk: &str) -> Vec<(Controller, String)> {
        let bytes = self.memory_mib.map(|mib| (u64::from(mib) << 20).to_string());
        let memory = bytes.map(|bytes| (Controller::Memory, bytes));
        let reads = self.disk_reads_per_s.map(|n| (Controller::Disk, format!("{disk} {n}")));
        let cpu = self.cpu_percent.map(|percent| (Controller::Cpu, quota(percent)));
        memory.into_iter().chain(reads).chain(cpu).collect()
    }
}

/// Formats a share of a processor as a quota and its period, microseconds (the kernel's
/// scheduler/sched-bwc).
fn quota(percent: f64) -> String {
    let share = percent / 100.0;
    let period_us = (CPU_QUOTA_US_MIN / share).clamp(CPU_PERIOD_US, CPU_PERIOD_US_MAX);
    let quota_us = (period_us * share).max(CPU_QUOTA_US_MIN);
    format!("{quota_us:.0} {period_us:.0}")
}

/// A control group with limits, without processes at first. Dropping it removes the group once its
/// processes are gone, waiting 2 s at most, and with the last group turns off again what was turned
/// on for them.
#[derive(Debug)]
pub struct ControlGroup {
    folders: Vec<PathBuf>,
}

impl ControlGroup {
    /// Creates a group. `files` is a folder on the disk whose reads are limited.
    ///
    /// # Errors
    /// Returns a sentence if no hierarchy here has the controller, if the lab does not run as root,
    /// or if the files are on no disk whose reads can be counted.
    pub fn make(limits: &Limits, files: &Path) -> Result<Self, String> {
        let said = |why| format!("a server cannot be held to {}: {why}", limits.describe());
        Self::try_make(limits, files).map_err(said)
    }

    fn try_make(limits: &Limits, files: &Path) -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let disk = match limits.disk_reads_per_s {
            Some(_) => disk::under(files)?,
            None => String::new(),
        };
        let mut made = Self { folders: Vec::new() };
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        for (controller, value) in limits.settings(&disk) {
            let hierarchy = Hierarchy::find(controller)?;
            let _locked = hierarchy::lock(&hierarchy.root);
            remove_forgotten(&hierarchy.root);
            let folder = hierarchy.root.join(&name);
            made.enter(&folder)?;
            hierarchy.limit(&folder, controller, &value)?;
        }
        Ok(made)
    }

    /// Creates a folder of the group unless it has been created before.
    fn enter(&mut self, folder: &Path) -> Result<(), String> {
        if !self.folders.iter().any(|known| known == folder) {
            fs::create_dir(folder).map_err(|error| {
                format!("{}: {error} (control groups are for root)", folder.display())
            })?;
            self.folders.push(folder.to_owned());
        }
        Ok(())
    }

    /// Changes the limit on processor time of a group that has one.
    ///
    /// # Errors
    /// Returns the kernel's error, with the file.
    pub fn set_cpu_percent(&self, percent: f64) -> Result<(), String> {
        let hierarchy = Hierarchy::find(Controller::Cpu)?;
        let own = self.folders.iter().filter(|folder| folder.starts_with(&hierarchy.root));
        own.into_iter()
            .try_for_each(|folder| hierarchy.limit(folder, Controller::Cpu, &quota(percent)))
    }

    /// Returns the group's folders. A process to be limited writes itself into `cgroup.procs` in
    /// each.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + GONE_WITHIN;
        // A process that has just ended may still be counted. The next lab removes what is left.
        for folder in &self.folders {
            while fs::remove_dir(folder).is_err() && folder.exists() && Instant::now() < deadline {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        self.folders.iter().filter_map(|folder| folder.parent()).for_each(turn_off_unused);
    }
}

/// Turns off again what was turned on at a root, unless a group of a lab is left there.
fn turn_off_unused(root: &Path) {
    let _locked = hierarchy::lock(root);
    let mut entries = fs::read_dir(root).into_iter().flatten().flatten();
    if !entries.any(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        hierarchy::turn_off(root);
    }
}

/// Removes the groups of labs that were killed. A group with a process in it stays: rmdir(2) fails.
fn remove_forgotten(root: &Path) {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    for folder in entries.map(|entry| entry.path()).filter(|path| is_forgotten(path)) {
        let _ = fs::remove_dir(folder);
    }
}

/// Returns whether a folder is the group of a lab that no longer runs.
fn is_forgotten(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let lab = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    let lab = lab.and_then(|(pid, _)| pid.parse::<u32>().ok());
    lab.is_some_and(|pid| proc::of(pid).is_none())
}

/// Checks that groups with both limits are available here, and returns the version of control
/// groups that provides each. Makes a group for a moment, as a run would: the kernel says nowhere
/// else what it allows.
///
/// # Errors
/// Returns the reason if they are not.
pub fn available() -> Result<String, String> {
    let versions: Vec<String> = [Controller::Memory, Controller::Disk]
        .into_iter()
        .map(|one| Ok(format!("{} by version {}", one.what(), Hierarchy::find(one)?.version())))
        .collect::<Result<_, String>>()?;
    let memory = Limits { memory_mib: Some(64), ..Limits::default() };
    ControlGroup::try_make(&memory, Path::new("/"))?;
    Ok(versions.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Limits =
        Limits { memory_mib: Some(64), disk_reads_per_s: Some(200), cpu_percent: Some(50.0) };

    #[test]
    fn limits_are_told_in_bytes_and_by_the_disks_number() {
        let settings = BOTH.settings("254:0");
        assert_eq!(settings[0], (Controller::Memory, "67108864".to_owned()));
        assert_eq!(settings[1], (Controller::Disk, "254:0 200".to_owned()));
        assert_eq!(settings[2], (Controller::Cpu, "5000 10000".to_owned()));
        let words = "at most 64 MiB of memory, at most 200 reads a second of its disk, at most \
                     50 % of a processor";
        assert_eq!(BOTH.describe(), words);
    }

    #[test]
    fn a_share_that_is_no_quota_of_a_short_period_has_a_longer_one() {
        assert_eq!([50.0, 10.0].map(quota), ["5000 10000", "1000 10000"]);
        assert_eq!([5.0, 1.0].map(quota), ["1000 20000", "1000 100000"]);
        assert_eq!(CPU_PERCENT_MIN, 0.1);
        assert_eq!([CPU_PERCENT_MIN, 0.01].map(quota), ["1000 1000000"; 2]);
    }

    #[test]
    fn only_groups_of_labs_that_are_gone_are_forgotten() {
        let me = std::process::id();
        assert!(!is_forgotten(Path::new(&format!("/x/weir-lab-{me}-0"))));
        assert!(!is_forgotten(Path::new("/x/weir-lab-0")));
        assert!(!is_forgotten(Path::new("/x/other-4194305-0")));
        // A process id is at most 2^22 (proc(5), pid_max).
        assert!(is_forgotten(Path::new("/x/weir-lab-4194305-0")));
    }

    #[test]
    fn the_last_group_to_go_turns_off_what_was_turned_on() {
        let root = tempfile::tempdir().unwrap();
        let switch = root.path().join("cgroup.subtree_control");
        fs::write(&switch, "").unwrap();
        hierarchy::turn_on(root.path(), "io").unwrap();
        let me = std::process::id();
        let [first, second] = [0, 1].map(|number| {
            let mut group = ControlGroup { folders: Vec::new() };
            group.enter(&root.path().join(format!("weir-lab-{me}-{number}"))).unwrap();
            group
        });
        drop(first);
        assert_eq!(fs::read_to_string(&switch).unwrap(), "+io");
        drop(second);
        assert_eq!(fs::read_to_string(&switch).unwrap(), "-io");
    }

    #[test]
    fn a_limit_that_cannot_be_had_is_named_with_the_reason() {
        let limits = Limits { disk_reads_per_s: Some(200), ..Limits::default() };
        let why = ControlGroup::make(&limits, Path::new("/proc")).unwrap_err();
        let says = "a server cannot be held to at most 200 reads a second of its disk: the file \
                    system of /proc has no disk whose reads could be limited";
        assert_eq!(why, says);
    }

    #[test]
    fn a_group_is_there_with_its_limit_until_it_is_dropped() {
        let limits = Limits { memory_mib: Some(64), ..Limits::default() };
        let made = match ControlGroup::make(&limits, Path::new("/")) {
            Ok(made) => made,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let [folder] = made.folders() else { panic!("{made:?}") };
        let folder = folder.clone();
        let kept = ["memory.limit_in_bytes", "memory.max"].map(|name| folder.join(name));
        let kept = kept.iter().find_map(|path| fs::read_to_string(path).ok()).unwrap();
        assert_eq!(kept.trim(), "67108864");
        drop(made);
        assert!(!folder.exists());
    }
}
