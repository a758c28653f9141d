//! Document roots: the files that each workload requests, written to a directory.

use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::process_group::last_lines;
use crate::workload::{DAY, PAGE, file_size};

/// Size of that page, in bytes.
const PAGE_BYTES: usize = 40_960;

/// Seed of its random text, which is the same everywhere.
const SEED: u64 = 40_960;

const HEAD: &str = "<!DOCTYPE html>\n<html><head><title>A page</title></head><body>\n<p>";
const TAIL: &str = "</p>\n</body></html>\n";

/// Words of all lengths; earlier ones are picked more often.
const WORDS: &str = "the of and to in a is that it was for on are as with his they at be this from \
    have or by one had not but what all were when we there can an your which their said if do will \
    each about how up out them then she many some so these would other into has more her two like \
    him see time could no make than first been its who now people my made over did down only way \
    find use may water long little very after words called just where most know get through back \
    much before go good new write our used me man too any day same right look think also around \
    another came come work three word must because does part even place well such here take why \
    things help put years different away again off went old number great tell men say small every \
    found still between name should home big give air line set own under read last never us left \
    end along while might next sound below saw something thought both few those always looked show \
    large often together asked house world going want school important until form food keep \
    children feet land side without boy once animals life enough took sometimes four head above \
    kind began almost live page got earth need far hand high year mother light parts country \
    father let night following picture being study second eyes soon times story boys since white \
    days ever paper hard near sentence better best across during today others however sure means";

/// Writes the files that a workload requests, readable by all users. `mb` is the size of the
/// specweb99 files, in MiB.
///
/// # Errors
/// Returns a sentence if there is no such workload, or the files cannot be written.
pub fn write_root(weir: &Path, workload: &str, mb: Option<&str>, dir: &Path) -> Result<(), String> {
    fs::create_dir_all(dir)
        .and_then(|()| fs::set_permissions(dir, Permissions::from_mode(0o755)))
        .map_err(|error| format!("cannot write {}: {error}", dir.display()))?;
    if workload == PAGE {
        let path = dir.join("page.html");
        return fs::write(&path, page())
            .map_err(|error| format!("cannot write {}: {error}", path.display()));
    }
    if let Some(bytes) = file_size(workload) {
        let path = dir.join(format!("{workload}.bin"));
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        return fs::write(&path, content)
            .map_err(|error| format!("cannot write {}: {error}", path.display()));
    }
    if workload == DAY {
        // Its files are those of the log, which each point has of its own.
        return Ok(());
    }
    let mut command = Command::new(weir);
    command.args(["load", "files"]).arg(dir).args(["--workload", workload]);
    command.args(mb.into_iter().flat_map(|mb| ["--mb", mb]));
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("weir load files does not start: {error}"))?;
    if !output.status.success() {
        let words = last_lines(&String::from_utf8_lossy(&output.stderr));
        return Err(format!("the files of workload {workload} are not written: {words}"));
    }
    Ok(())
}

/// Generates the page: sentences of frequent words, in paragraphs.
fn page() -> String {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut text = HEAD.to_owned();
    let room = PAGE_BYTES - TAIL.len();
    while text.len() < room {
        let words_left = 6 + chance.next_u64() % 12;
        for at in 0..words_left {
            let word = pick(&words, &mut chance);
            let gap = if at == 0 { "" } else { " " };
            let _ = match (at, word.split_at_checked(1)) {
                (0, Some((first, rest))) => write!(text, "{}{rest}", first.to_uppercase()),
                _ => write!(text, "{gap}{word}"),
            };
        }
        text.push_str(if chance.next_u64().is_multiple_of(6) { ".</p>\n<p>" } else { ". " });
    }
    text.truncate(room);
    text + TAIL
}

/// Picks a word; the product of two uniform random numbers prefers the earlier ones.
fn pick<'a>(words: &[&'a str], chance: &mut Xoshiro256PlusPlus) -> &'a str {
    let count = words.len() as u64;
    let (first, second) = (chance.next_u64() % count, chance.next_u64() % count);
    words.get((first * second / count) as usize).copied().unwrap_or("the")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write as _};
    use std::thread;

    #[test]
    fn the_page_has_its_size_and_is_the_same_each_time() {
        let page = page();
        assert_eq!(page.len(), PAGE_BYTES);
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with(TAIL));
        assert_eq!(page, super::page());
    }

    #[test]
    fn the_page_compresses_like_text() {
        let mut gzip = Command::new("gzip");
        gzip.arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut gzip) = gzip.spawn() else {
            eprintln!("gzip is not installed: skipped");
            return;
        };
        let mut input = gzip.stdin.take().unwrap();
        let writer = thread::spawn(move || input.write_all(page().as_bytes()));
        let mut compressed = Vec::new();
        gzip.stdout.take().unwrap().read_to_end(&mut compressed).unwrap();
        writer.join().unwrap().unwrap();
        gzip.wait().unwrap();
        let share = compressed.len() as f64 / PAGE_BYTES as f64;
        assert!((0.15..0.5).contains(&share), "{share}");
    }

    #[test]
    fn a_file_has_its_size_and_each_size_a_single_name() {
        let dir = tempfile::tempdir().unwrap();
        write_root(Path::new("no-weir-needed"), "file-3k", None, dir.path()).unwrap();
        assert_eq!(fs::metadata(dir.path().join("file-3k.bin")).unwrap().len(), 3072);
        for name in ["file-0k", "file-03k", "file-+3k", "file-3", "file-k", "file-1048577k"] {
            assert_eq!(file_size(name), None, "{name}");
        }
    }

    #[test]
    fn a_root_can_be_read_by_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("www");
        write_root(Path::new("no-weir-needed"), PAGE, None, &root).unwrap();
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read(root.join("page.html")).unwrap().len(), PAGE_BYTES);
        let told = write_root(Path::new("no-such-weir"), "2k", None, &root).unwrap_err();
        assert!(told.contains("does not start"), "{told}");
    }
}
