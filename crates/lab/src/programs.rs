//! Installed programs: their paths and versions. Knows none of them by name.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::Crc;

/// Directories of servers that are not on an ordinary user's search path.
const ALSO: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns the executable file of a program: the first of that name on `PATH`, or else in the
/// administrator's directories.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(ALSO.iter().map(PathBuf::from));
    places.map(|place| place.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the version of a program, from the output of `program flags`: the first word that begins
/// with a digit and has a dot, on the first line that has one.
pub fn version_of(program: &Path, flags: &[&str]) -> Option<String> {
    let output = Command::new(program).args(flags).stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    version_in(&String::from_utf8_lossy(&text))
}

/// Returns the checksum (CRC-32) and the length of a program's file, which tell builds of a version
/// apart; `None` if it cannot be read.
pub fn build_of(program: &Path) -> Option<String> {
    let mut file = File::open(program).ok()?;
    let mut sum = Crc::new();
    let mut block = vec![0; 1 << 16];
    loop {
        match file.read(&mut block).ok()? {
            0 => return Some(format!("{:08x}, {} bytes", sum.sum(), file.metadata().ok()?.len())),
            read => sum.update(block.get(..read)?),
        }
    }
}

fn version_in(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    let mut words = line.split([' ', '/', ')']).map(|word| word.trim_start_matches("httperf-"));
    words
        .find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_found_and_what_is_not_there_is_not() {
        assert!(find("sh").is_some_and(|file| file.ends_with("sh")));
        assert_eq!(find("no-such-program-anywhere"), None);
    }

    #[test]
    fn builds_differ_by_their_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let build = |bytes: &[u8]| {
            let file = dir.path().join("program");
            std::fs::write(&file, bytes).unwrap();
            build_of(&file).unwrap()
        };
        assert_eq!(build(b"123456789"), "cbf43926, 9 bytes");
        assert_ne!(build(b"123456780"), build(b"123456789"));
        assert_eq!(build_of(&dir.path().join("none")), None);
    }

    #[test]
    fn versions_are_read_from_what_programs_say() {
        let table = [
            ("nginx version: nginx/1.22.1\n", "1.22.1"),
            ("h2o version 2.2.5\nOpenSSL: OpenSSL 3.0.19 27 Jan 2026\n", "2.2.5"),
            ("lighttpd/1.4.69 (ssl) - a light and fast webserver\n", "1.4.69"),
            ("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://x/\n", "2.6.12-1+deb12u4"),
            ("Server version: Apache/2.4.71 (Debian)\n", "2.4.71"),
            ("wrk debian/4.1.0-3+b2 [epoll] Copyright\n", "4.1.0-3+b2"),
            ("httperf: httperf-0.9.0 compiled without DEBUG\n", "0.9.0"),
            ("gunicorn (version 20.1.0)\n", "20.1.0"),
            ("weir 0.1.0\n", "0.1.0"),
            ("\nenvoy  version: 1e5f7a9c/1.40.0/Clean/RELEASE/BoringSSL\n", "1.40.0"),
        ];
        for (said, version) in table {
            assert_eq!(version_in(said).as_deref(), Some(version));
        }
        assert_eq!(version_in("no number"), None);
    }
}
