//! Control group hierarchies: the mount point and version of each controller, and the names of its
//! files (cgroups(7); the kernel's admin-guide, cgroup-v1 and cgroup-v2).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The file of version 2 that has the controllers of a group's children; a word with a sign turns
/// one on or off.
const SWITCH: &str = "cgroup.subtree_control";

/// Roots of version 2, each with a controller that was off there and that this lab has turned on.
static TURNED_ON: Mutex<Vec<(PathBuf, &'static str)>> = Mutex::new(Vec::new());

/// A resource of a group that can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    /// Reads from a disk.
    Disk,
    /// Processor time.
    Cpu,
}

impl Controller {
    /// Returns a human-readable name.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk reads",
            Self::Cpu => "processor time",
        }
    }

    fn name(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Memory, _) => "memory",
            (Self::Cpu, _) => "cpu",
            (Self::Disk, Version::One) => "blkio",
            (Self::Disk, Version::Two) => "io",
        }
    }

    /// Returns the name of the group's file that holds the limit.
    fn file(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Memory, Version::One) => "memory.limit_in_bytes",
            (Self::Memory, Version::Two) => "memory.max",
            (Self::Disk, Version::One) => "blkio.throttle.read_iops_device",
            (Self::Disk, Version::Two) => "io.max",
            (Self::Cpu, Version::One) => "cpu.cfs_quota_us",
            (Self::Cpu, Version::Two) => "cpu.max",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The hierarchy in which a controller's groups are created. They are created at its root,
/// whichever group the lab is in, because version 2 has no limits below a group with processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    version: Version,
    pub(super) root: PathBuf,
}

impl Hierarchy {
    /// Returns the hierarchy of a controller.
    ///
    /// # Errors
    /// Returns a sentence if no hierarchy mounted here has the controller.
    pub(super) fn find(controller: Controller) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
        let offered =
            |root: &Path| fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        among(&mounts, controller, offered).ok_or_else(|| {
            let names = [Version::One, Version::Two].map(|version| controller.name(version));
            let names = if names[0] == names[1] { names[0].to_owned() } else { names.join(" or ") };
            format!("no control groups with the controller {names} are mounted here")
        })
    }

    /// Returns the version, 1 or 2.
    pub(super) fn version(&self) -> u32 {
        match self.version {
            Version::One => 1,
            Version::Two => 2,
        }
    }

    /// Sets a limit on a group.
    ///
    /// # Errors
    /// Returns the kernel's error, with the file.
    pub(super) fn limit(
        &self,
        folder: &Path,
        controller: Controller,
        value: &str,
    ) -> Result<(), String> {
        if self.version == Version::Two {
            turn_on(&self.root, controller.name(self.version))?;
        }
        if let (Controller::Cpu, Version::One, Some((_, period))) =
            (controller, self.version, value.split_once(' '))
        {
            write(&folder.join("cpu.cfs_period_us"), period)?;
        }
        let file = folder.join(controller.file(self.version));
        write(&file, &self.text(controller, value))
    }

    fn text(&self, controller: Controller, value: &str) -> String {
        match (controller, self.version) {
            (Controller::Disk, Version::Two) => value.replacen(' ', " riops=", 1),
            (Controller::Cpu, Version::One) => {
                value.split_once(' ').map_or(value, |(quota, _)| quota).to_owned()
            }
            _ => value.to_owned(),
        }
    }
}

/// Turns a controller on for the groups at a root of version 2, unless it is on.
pub(super) fn turn_on(root: &Path, name: &'static str) -> Result<(), String> {
    let switch = root.join(SWITCH);
    let on = fs::read_to_string(&switch).unwrap_or_default();
    if on.split_whitespace().any(|one| one == name) {
        return Ok(());
    }
    write(&switch, &format!("+{name}"))?;
    turned_on().push((root.to_owned(), name));
    Ok(())
}

/// Turns off again what [`turn_on`] has turned on at a root. The groups there lose their limits by
/// that: there must be none left.
pub(super) fn turn_off(root: &Path) {
    let mut all = turned_on();
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        mem::take(&mut *all).into_iter().partition(|(at, _)| at == root);
    *all = elsewhere;
    for (_, name) in here {
        // The kernel refuses (EBUSY) while groups of others pass it on to groups below them.
        let _ = write(&root.join(SWITCH), &format!("-{name}"));
    }
}

fn turned_on() -> MutexGuard<'static, Vec<(PathBuf, &'static str)>> {
    TURNED_ON.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a root until the file is dropped, so that of two labs none turns off what the other is
/// about to use; `None` if it cannot be locked.
pub(super) fn lock(root: &Path) -> Option<File> {
    let root = File::open(root).ok()?;
    root.lock().ok()?;
    Some(root)
}

/// Returns the first mount that has the controller. Version 1 names its controllers in the mount
/// options, version 2 in a file. Version 1 goes first: a controller mounted there is not available
/// in version 2.
fn among(
    mounts: &str,
    controller: Controller,
    offered: impl Fn(&Path) -> String,
) -> Option<Hierarchy> {
    let mut found: Vec<Hierarchy> = mounts
        .lines()
        .filter_map(|line| {
            let (kind, options, root) = mount(line)?;
            let version = match kind {
                "cgroup" => Version::One,
                "cgroup2" => Version::Two,
                _ => return None,
            };
            let name = controller.name(version);
            let has = match version {
                Version::One => options.split(',').any(|option| option == name),
                Version::Two => offered(&root).split_whitespace().any(|one| one == name),
            };
            has.then_some(Hierarchy { version, root })
        })
        .collect();
    found.sort_by_key(Hierarchy::version);
    found.into_iter().next()
}

/// Parses the type, the options and the mount point of a mount (proc_pid_mountinfo(5)).
fn mount(line: &str) -> Option<(&str, &str, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let place = before.split(' ').nth(4)?;
    let mut after = after.split(' ');
    let (kind, _source, options) = (after.next()?, after.next()?, after.next()?);
    // A space in a path is escaped like this.
    Some((kind, options, PathBuf::from(place.replace("\\040", " "))))
}

/// Writes to a kernel file, which must exist and is never created.
fn write(path: &Path, value: &str) -> Result<(), String> {
    let written = OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "\
24 1 0:22 / /proc rw,relatime - proc proc rw
30 29 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 29 0:27 / /sys/fs/cgroup/blk\\040io rw,relatime shared:9 - cgroup cgroup rw,cpu,blkio
32 29 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const TWO: &str = "30 29 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    fn found(mounts: &str, controller: Controller, offers: &str) -> Option<(u32, String)> {
        let found = among(mounts, controller, |_| offers.to_owned())?;
        Some((found.version(), found.root.display().to_string()))
    }

    #[test]
    fn a_controller_is_found_where_it_is_mounted_or_offered() {
        let memory = found(ONE, Controller::Memory, "pids");
        assert_eq!(memory, Some((1, "/sys/fs/cgroup/memory".to_owned())));
        let disk = found(ONE, Controller::Disk, "pids");
        assert_eq!(disk, Some((1, "/sys/fs/cgroup/blk io".to_owned())));
        let both = "cpu io memory";
        for controller in [Controller::Memory, Controller::Disk] {
            let here = Some((2, "/sys/fs/cgroup".to_owned()));
            assert_eq!(found(TWO, controller, both), here);
            assert_eq!(found(TWO, controller, "cpu"), None);
        }
        assert_eq!(found("", Controller::Memory, both), None);
    }

    #[test]
    fn each_version_is_told_in_its_own_words() {
        let at = |version| Hierarchy { version, root: PathBuf::new() };
        let said = |version| at(version).text(Controller::Disk, "254:0 200");
        assert_eq!(said(Version::One), "254:0 200");
        assert_eq!(said(Version::Two), "254:0 riops=200");
        let said = |version| at(version).text(Controller::Cpu, "5000 10000");
        assert_eq!((said(Version::One), said(Version::Two)), ("5000".into(), "5000 10000".into()));
        assert_eq!(at(Version::Two).text(Controller::Memory, "5"), "5");
    }

    #[test]
    fn of_version_1_the_period_is_set_before_the_quota() {
        let root = tempfile::tempdir().unwrap();
        let at = Hierarchy { version: Version::One, root: root.path().to_owned() };
        let [period, quota] =
            ["cpu.cfs_period_us", "cpu.cfs_quota_us"].map(|n| root.path().join(n));
        let why = at.limit(root.path(), Controller::Cpu, "5000 10000").unwrap_err();
        assert!(why.contains("cpu.cfs_period_us"), "{why}");
        fs::write(&period, "").unwrap();
        fs::write(&quota, "").unwrap();
        at.limit(root.path(), Controller::Cpu, "5000 10000").unwrap();
        let read = |path| fs::read_to_string(path).unwrap();
        assert_eq!((read(period), read(quota)), ("10000".to_owned(), "5000".to_owned()));
    }

    #[test]
    fn of_version_2_the_controller_is_turned_on_above_before_the_limit_is_set() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("group");
        fs::create_dir(&folder).unwrap();
        let at = Hierarchy { version: Version::Two, root: root.path().to_owned() };
        let on = root.path().join("cgroup.subtree_control");
        let why = at.limit(&folder, Controller::Disk, "8:0 5").unwrap_err();
        assert!(why.contains("cgroup.subtree_control"), "{why}");
        fs::write(&on, "").unwrap();
        let why = at.limit(&folder, Controller::Disk, "8:0 5").unwrap_err();
        assert!(why.contains("io.max"), "{why}");
        fs::write(folder.join("io.max"), "").unwrap();
        at.limit(&folder, Controller::Disk, "8:0 5").unwrap();
        assert_eq!(fs::read_to_string(on).unwrap(), "+io");
        assert_eq!(fs::read_to_string(folder.join("io.max")).unwrap(), "8:0 riops=5");
    }

    #[test]
    fn only_a_controller_that_was_off_is_turned_off_again() {
        let root = tempfile::tempdir().unwrap();
        let at = Hierarchy { version: Version::Two, root: root.path().to_owned() };
        let switch = root.path().join(SWITCH);
        let read = || fs::read_to_string(&switch).unwrap();
        fs::write(root.path().join("memory.max"), "").unwrap();
        fs::write(root.path().join("io.max"), "").unwrap();
        fs::write(&switch, "cpu memory\n").unwrap();
        at.limit(root.path(), Controller::Memory, "5").unwrap();
        turn_off(root.path());
        assert_eq!(read(), "cpu memory\n");
        fs::write(&switch, "").unwrap();
        at.limit(root.path(), Controller::Disk, "8:0 5").unwrap();
        turn_off(&root.path().join("another"));
        assert_eq!(read(), "+io");
        turn_off(root.path());
        assert_eq!(read(), "-io");
        // It is turned off once.
        fs::write(&switch, "").unwrap();
        turn_off(root.path());
        assert_eq!(read(), "");
    }
}
