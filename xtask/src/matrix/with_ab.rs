//! The load of ab, a second opinion: one file at a time, its length and status compared.

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

use super::files::Asked;
use super::row::Row;

/// How long ab waits for a socket before it gives up, seconds.
const TIMEOUT_S: u32 = 60;

/// What ab says when its own side is at an end: EMFILE, EADDRNOTAVAIL.
const OWN_LIMITS: [&str; 2] = ["Too many open files", "Cannot assign requested address"];

/// Asks `server` `requests` times for each file of `files`, over `connections` kept open. `ab`
/// makes a command of ab.
pub(super) fn run<'a>(
    ab: impl Fn() -> Command,
    server: SocketAddr,
    files: impl Iterator<Item = &'a Asked>,
    connections: u32,
    requests: impl Fn(&Asked) -> u32,
) -> Row {
    let mut row = Row { tool: "ab", connections, ..Row::default() };
    for file in files {
        let requests = requests(file);
        match load(ab(), server, file, connections, requests).output() {
            Ok(output) => read(&output, file, requests, &mut row),
            Err(error) => row.errors.push(format!("ab does not start: {error}")),
        }
    }
    row
}

fn load(
    mut ab: Command,
    server: SocketAddr,
    file: &Asked,
    connections: u32,
    requests: u32,
) -> Command {
    ab.args(["-k", "-q", "-s", &TIMEOUT_S.to_string(), "-c", &connections.to_string()]);
    ab.args(["-n", &requests.to_string(), &format!("http://{server}{}", file.target)]);
    ab.stdin(Stdio::null());
    ab
}

fn read(output: &Output, file: &Asked, requests: u32, row: &mut Row) {
    let complaints = String::from_utf8_lossy(&output.stderr);
    if OWN_LIMITS.iter().any(|limit| complaints.contains(limit)) {
        row.skipped = Some(format!("ab: {}", complaints.trim()));
    } else if !output.status.success() {
        row.errors.push(format!("{}: ab: {}", file.target, complaints.trim().replace('\n', " / ")));
    } else {
        let report = String::from_utf8_lossy(&output.stdout);
        row.checked += number(&report, "Complete requests:").unwrap_or(0);
        row.mismatches += number(&report, "Failed requests:").unwrap_or(0);
        row.errors.extend(wrong(&report, file, requests));
    }
}

/// What is wrong in ab's report about `file`, in words.
fn wrong(report: &str, file: &Asked, requests: u32) -> Vec<String> {
    let expected = [
        ("Complete requests:", Some(u64::from(requests))),
        ("Failed requests:", Some(0)),
        ("Document Length:", Some(file.bytes as u64)),
        ("Keep-Alive requests:", Some(u64::from(requests))),
        ("Non-2xx responses:", None),
    ];
    let differs = expected.iter().filter(|(name, value)| number(report, name) != *value);
    let said = |name: &str| number(report, name).map_or("none".to_owned(), |n| n.to_string());
    differs.map(|(name, _)| format!("{}: {name} {}", file.target, said(name))).collect()
}

/// The number in the line of `report` that starts with `name`.
fn number(report: &str, name: &str) -> Option<u64> {
    let rest = report.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::liar::{self, Lie};
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    const REPORT: &str = "Document Length:        4097 bytes\n\nComplete requests:      20\n\
                          Failed requests:        0\nKeep-Alive requests:    20\n";

    fn file() -> Asked {
        Asked { target: "/4097.bin".to_owned(), path: "x".into(), bytes: 4097 }
    }

    #[test]
    fn a_report_is_held_to_what_was_asked_for() {
        assert_eq!(wrong(REPORT, &file(), 20), Vec::<String>::new());
        let more = wrong(REPORT, &file(), 21);
        assert_eq!(
            more,
            ["/4097.bin: Complete requests: 20", "/4097.bin: Keep-Alive requests: 20"]
        );
        let length = REPORT.replace("4097 bytes", "4096 bytes");
        assert_eq!(wrong(&length, &file(), 20), ["/4097.bin: Document Length: 4096"]);
        let status = format!("{REPORT}Non-2xx responses:      3\n");
        assert_eq!(wrong(&status, &file(), 20), ["/4097.bin: Non-2xx responses: 3"]);
        let failed = REPORT.replace("Failed requests:        0", "Failed requests:        7");
        assert_eq!(wrong(&failed, &file(), 20), ["/4097.bin: Failed requests: 7"]);
    }

    #[test]
    fn its_own_limits_are_told_from_the_servers_faults() {
        let output = |stderr: &str| Output {
            status: ExitStatus::from_raw(1 << 8),
            stdout: Vec::new(),
            stderr: stderr.as_bytes().to_vec(),
        };
        let mut row = Row::default();
        read(&output("socket: Too many open files (24)\n"), &file(), 1, &mut row);
        assert!(row.skipped.is_some() && !row.failed());
        let mut row = Row::default();
        read(&output("apr_socket_recv: Connection reset by peer (104)\n"), &file(), 1, &mut row);
        assert!(row.skipped.is_none());
        assert_eq!(row.errors, ["/4097.bin: ab: apr_socket_recv: Connection reset by peer (104)"]);
    }

    #[test]
    fn a_short_reply_is_found() {
        for (lie, failed) in [(Lie::None, false), (Lie::Shorter, true)] {
            let Some(site) = liar::serve(lie, "ab") else { return };
            let files = site.set.iter().filter(|file| file.bytes == 4097);
            let row = run(|| Command::new("ab"), site.address, files, 4, |_| 20);
            assert_eq!((row.checked, row.failed()), (20, failed), "{row:?}");
        }
    }
}
