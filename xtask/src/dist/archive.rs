//! Archives whose bytes depend on nothing but the files in them.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};

use super::files::PackedFile;

/// Packs files below `top`, with the folders that they are in, sorted by their paths.
pub(super) fn tar_gz(files: &[PackedFile], top: &str, time_s: u64) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut sorted: Vec<&PackedFile> = files.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut folders = BTreeSet::new();
    for file in &sorted {
        let path = format!("{top}{}", file.path);
        for (at, _) in path.match_indices('/') {
            folders.insert(path[..=at].to_owned());
        }
    }
    for folder in folders {
        let mut header = header(tar::EntryType::Directory, 0o755, 0, time_s);
        archive.append_data(&mut header, folder, &[][..])?;
    }
    for file in sorted {
        let size = file.bytes.len() as u64;
        let mut header = header(tar::EntryType::Regular, file.mode, size, time_s);
        archive.append_data(&mut header, format!("{top}{}", file.path), &file.bytes[..])?;
    }
    gz(&archive.into_inner()?)
}

fn header(kind: tar::EntryType, mode: u32, size: u64, time_s: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(time_s);
    header.set_uid(0);
    header.set_gid(0);
    // Into fields of 32 bytes: both fit.
    let _ = header.set_username("root");
    let _ = header.set_groupname("root");
    header
}

/// Compresses bytes, without a name or a time.
pub(super) fn gz(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    packed.write_all(bytes)?;
    Ok(packed.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_in_which_files_are_named_does_not_change_the_archive() {
        let files = [PackedFile::text("b/c", "1"), PackedFile::program("a", vec![2])];
        let swapped = [files[1].clone(), files[0].clone()];
        assert_eq!(tar_gz(&files, "x/", 7).unwrap(), tar_gz(&swapped, "x/", 7).unwrap());
        assert_ne!(tar_gz(&files, "x/", 7).unwrap(), tar_gz(&files, "x/", 8).unwrap());
    }

    #[test]
    fn every_file_and_folder_is_there_with_its_mode() {
        let files = [PackedFile::text("b/c", "1"), PackedFile::program("a", vec![2])];
        let bytes = tar_gz(&files, "x/", 7).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let found: Vec<(String, u32)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let path = entry.path_bytes().into_owned();
                (String::from_utf8(path).unwrap(), entry.header().mode().unwrap())
            })
            .collect();
        let expected = [("x/", 0o755), ("x/b/", 0o755), ("x/a", 0o755), ("x/b/c", 0o644)];
        assert_eq!(found, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }
}
