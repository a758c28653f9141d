//! Workloads by name: the files that each requests. Writing the files happens elsewhere.

use crate::file_set::FileSet;

/// The workload that is a page of text.
pub(crate) const PAGE: &str = "page-40k";

/// The workload that is the log of a day: of a sweep with a day alone.
pub(crate) const DAY: &str = "day";

/// The workload that is the static part of SPECweb99.
const SPECWEB99: &str = "specweb99";

/// The workloads that `weir load` knows by name.
pub const OF_LOAD: [&str; 7] = ["one-byte", "2k", "6k", "one-packet", "1259", "8192", SPECWEB99];

/// Similarity to a known name above which an unknown one is taken for a slip of it (Jaro).
const ALIKE: f64 = 0.7;

/// Maximum size of a single file, in KiB.
const FILE_KIB_MAX: u64 = 1 << 20;

/// Returns the size in bytes of the only file of a workload `file-KIBk`, such as `file-64k`.
pub fn file_size(workload: &str) -> Option<u64> {
    let kib: u64 = workload.strip_prefix("file-")?.strip_suffix('k')?.parse().ok()?;
    // Each size has a single name: no `+16`, no `016`.
    let sound = (1..=FILE_KIB_MAX).contains(&kib) && workload == format!("file-{kib}k");
    sound.then_some(kib << 10)
}

/// Checks that there is a workload of this name.
///
/// # Errors
/// Returns a sentence with the known name that is most like it, or else with all of them.
pub(crate) fn known(workload: &str) -> Result<(), String> {
    let fixed = || OF_LOAD.into_iter().chain([PAGE, DAY]);
    let of_size = file_size(workload).is_some() || FileSet::named(workload).is_some();
    if of_size || fixed().any(|name| name == workload) {
        return Ok(());
    }
    let alike = fixed().map(|name| (strsim::jaro(workload, name), name));
    let nearest = alike.filter(|(alike, _)| *alike > ALIKE).max_by(|a, b| a.0.total_cmp(&b.0));
    Err(match nearest {
        Some((_, name)) => format!("there is no workload {workload}: did you mean {name}?"),
        None => format!(
            "there is no workload {workload}; there are {}, file-KIBk and files-COUNTxKIBk",
            fixed().collect::<Vec<_>>().join(", ")
        ),
    })
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
        SPECWEB99 | DAY => None,
        sized if file_size(sized).is_some() => Some(format!("/{sized}.bin")),
        several if FileSet::named(several).is_some() => None,
        small => Some(format!("/{small}.txt")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_that_is_none_is_told_with_the_name_that_is_meant() {
        for name in ["one-byte", "2k", "specweb99", PAGE, DAY, "file-64k", "files-16x8k"] {
            assert_eq!(known(name), Ok(()));
        }
        for (wrong, meant) in [("onebyte", "one-byte"), ("specweb", "specweb99"), ("9192", "8192")]
        {
            let said = format!("there is no workload {wrong}: did you mean {meant}?");
            assert_eq!(known(wrong), Err(said));
        }
        let all = known("x").unwrap_err();
        assert!(all.contains("x; there are one-byte, 2k") && all.contains("page-40k"), "{all}");
    }

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
