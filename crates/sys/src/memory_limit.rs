//! Memory that this process may use: its control groups' limits (the kernel's admin-guide,
//! cgroup-v2 and cgroup-v1; cgroups(7)) and that of the machine (proc_meminfo(5)).

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Limits of a group of version 2, then of version 1. `memory.high` does not kill, but a group
/// beyond it hardly gets on.
const FILES: [&str; 3] = ["memory.max", "memory.high", "memory.limit_in_bytes"];

/// Returns the memory that this process may use, bytes: the least of the machine's and the limits
/// of the control groups that it is in. `None` if nothing tells.
pub fn available_bytes() -> Option<u64> {
    // It is hidden where /proc shows processes alone (proc(5), subset=pid).
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = folders(Path::new(MOUNT), &groups).into_iter().filter_map(|folder| limit(&folder));
    limits.chain(machine).min()
}

/// Returns the size of the machine's memory, bytes.
fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the folders of the groups named in a `cgroup` file that may limit memory, and of all
/// that they are in. In a container the name may be one outside of what is mounted; then what is
/// mounted is the container's own group.
fn folders(mount: &Path, groups: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let root = match controllers {
            "" => mount.to_owned(),
            list if list.split(',').any(|each| each == "memory") => mount.join("memory"),
            _ => continue,
        };
        let group = root.join(name.trim_start_matches('/'));
        let chain = group.ancestors().take_while(|each| each.starts_with(&root));
        folders.extend(chain.map(Path::to_owned));
    }
    folders
}

/// Returns the limit of a group, bytes; `None` without one.
fn limit(folder: &Path) -> Option<u64> {
    let read = |name: &&str| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
    FILES.iter().filter_map(read).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        assert_eq!(of_machine("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16384));
        assert_eq!(of_machine("MemFree: 1 kB\n"), None);
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn a_group_is_limited_by_all_that_it_is_in() {
        let mount = Path::new("/m");
        let two = folders(mount, "0::/a/b\n");
        assert_eq!(two, ["/m/a/b", "/m/a", "/m"].map(PathBuf::from));
        let one = folders(mount, "5:cpu,cpuacct:/x\n4:memory:/a\n0::/\n");
        assert_eq!(one, ["/m/memory/a", "/m/memory", "/m"].map(PathBuf::from));
    }

    #[test]
    fn a_limit_is_a_number_and_the_lower_of_two() {
        let folder = std::env::temp_dir().join(format!("weir-limit-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(limit(&folder), None);
        fs::write(folder.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit(&folder), None, "it says that there is none");
        fs::write(folder.join("memory.high"), "4096\n").unwrap();
        assert_eq!(limit(&folder), Some(4096));
        fs::write(folder.join("memory.max"), "2048\n").unwrap();
        assert_eq!(limit(&folder), Some(2048));
        fs::remove_dir_all(&folder).unwrap();
    }
}
