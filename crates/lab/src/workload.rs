//! Workloads by name: the files that each requests. Writing the files happens elsewhere.

use crate::file_set::FileSet;

/// The workload that is a page of text.
pub(crate) const PAGE: &str = "page-40k";

/// The workload that is the log of a day: of a sweep with a day alone.
pub(crate) const DAY: &str = "day";

/// Maximum size of a single file, in KiB.
const FILE_KIB_MAX: u64 = 1 << 20;

/// Returns the size in bytes of the only file of a workload `file-KIBk`, such as `file-64k`.
pub fn file_size(workload: &str) -> Option<u64> {
    let kib: u64 = workload.strip_prefix("file-")?.strip_suffix('k')?.parse().ok()?;
    // Each size has a single name: no `+16`, no `016`.
    let sound = (1..=FILE_KIB_MAX).contains(&kib) && workload == format!("file-{kib}k");
    sound.then_some(kib << 10)
}

/// Returns the path to pass to `weir load`: that of the lab's own file, or the one below which it
/// requests the files of a workload that it knows by name.
pub fn path_of(workload: &str) -> String {
    let own = workload == PAGE || file_size(workload).is_some();
    file_of(workload).filter(|_| own).unwrap_or_else(|| "/".to_owned())
}

/// Returns the path of the only file that a workload requests; `None` if it requests several.
pub fn file_of(workload: &str) -> Option<String> {
    match workload {
        PAGE => Some("/page.html".to_owned()),
        "specweb99" | DAY => None,
        sized if file_size(sized).is_some() => Some(format!("/{sized}.bin")),
        several if FileSet::named(several).is_some() => None,
        small => Some(format!("/{small}.txt")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_has_its_paths() {
        for (workload, path, file) in [
            (PAGE, "/page.html", "/page.html"),
            ("2k", "/", "/2k.txt"),
            ("file-64k", "/file-64k.bin", "/file-64k.bin"),
        ] {
            assert_eq!(
                (path_of(workload).as_str(), file_of(workload).as_deref()),
                (path, Some(file))
            );
        }
        assert_eq!((file_of("specweb99"), file_of("files-16x8k")), (None, None));
    }
}
