//! Lookup of the disk that holds a folder, in the notation of the kernel's I/O throttle.

use std::fs;
use std::path::Path;

/// File systems that keep files in memory only: tmpfs and ramfs, by their statfs(2) magic numbers.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Returns the device number of the whole disk that holds a folder, such as `254:0`.
///
/// # Errors
/// Returns a sentence if the folder cannot be inspected or its file system has no disk of its own.
pub(super) fn under(folder: &Path) -> Result<String, String> {
    let said = |error| format!("{}: {error}", folder.display());
    let device = rustix::fs::stat(folder).map_err(said)?.st_dev;
    let number = (rustix::fs::major(device), rustix::fs::minor(device));
    whole(Path::new("/sys/dev/block"), number).ok_or_else(|| {
        format!("the file system of {} has no disk whose reads could be limited", folder.display())
    })
}

/// Returns the disk of a device, which may be a partition; `None` if there is no such device.
fn whole(devices: &Path, (major, minor): (u32, u32)) -> Option<String> {
    let number = format!("{major}:{minor}");
    // The link leads to the device's directory; that of a partition lies within its disk's.
    let device = devices.join(&number).canonicalize().ok()?;
    if !device.join("partition").exists() {
        return Some(number);
    }
    let disk = fs::read_to_string(device.parent()?.join("dev")).ok()?;
    Some(disk.trim().to_owned())
}

/// Returns whether a folder's files are in memory only, so that nothing is ever read from a disk.
///
/// # Errors
/// Returns a sentence if the folder cannot be inspected.
pub(crate) fn keeps_in_memory(folder: &Path) -> Result<bool, String> {
    let about = rustix::fs::statfs(folder);
    let about = about.map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(IN_MEMORY.contains(&(about.f_type as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_partition_is_of_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let (disk, links) = (sys.path().join("block/sda"), sys.path().join("links"));
        fs::create_dir_all(disk.join("sda1")).unwrap();
        fs::create_dir(&links).unwrap();
        fs::write(disk.join("dev"), "8:0\n").unwrap();
        fs::write(disk.join("sda1/dev"), "8:1\n").unwrap();
        fs::write(disk.join("sda1/partition"), "1\n").unwrap();
        symlink(&disk, links.join("8:0")).unwrap();
        symlink(disk.join("sda1"), links.join("8:1")).unwrap();
        assert_eq!(whole(&links, (8, 0)).as_deref(), Some("8:0"));
        assert_eq!(whole(&links, (8, 1)).as_deref(), Some("8:0"));
        assert_eq!(whole(&links, (0, 23)), None);
    }

    #[test]
    fn a_file_system_in_memory_is_on_no_disk() {
        assert_eq!(keeps_in_memory(Path::new("/proc")), Ok(false));
        assert!(under(Path::new("/proc")).unwrap_err().contains("has no disk"));
        assert!(under(Path::new("/no/such/folder")).is_err());
        match fs::read_to_string("/proc/mounts") {
            Ok(mounts) if mounts.contains("tmpfs /dev/shm ") => {
                assert_eq!(keeps_in_memory(Path::new("/dev/shm")), Ok(true));
            }
            _ => eprintln!("no tmpfs at /dev/shm: skipped"),
        }
    }
}
