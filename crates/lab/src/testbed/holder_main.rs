//! The holder: a process that holds the namespaces of a side and carries out the lab's commands in
//! them.
//!
//! Commands are lines on its standard input. The end of that input is the end of the lab, however
//! it came about: the holder then kills all processes left of the run, and ends.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use weir_sys::namespace;

use super::cleanup::{self, Mark};

/// Argument that requests namespaces of the holder's own. With the process id of another holder as
/// a further argument, the networks of both are cleaned up at the end.
pub(super) const OWN: &str = "own";
/// Argument that requests no namespaces; the mark of the run follows.
pub(super) const RUN: &str = "run";
/// Printed when the holder is ready.
pub(super) const READY: &str = "ready";

/// Runs a holder: `weir lab-holder`. Its arguments and its commands are private to the testbed.
pub fn holder_main(args: Vec<OsString>) -> ExitCode {
    let args: Vec<String> =
        args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let mut mark = match prepare(&args) {
        Ok(mark) => mark,
        Err(why) => {
            // The lab may be gone, and then there is nothing to answer.
            let _ = answer(&format!("error {why}"));
            return ExitCode::FAILURE;
        }
    };
    let listened = answer(READY).and_then(|()| serve_commands(mark.as_mut()));
    if let Some(mark) = mark {
        cleanup::kill_marked(&mark);
    }
    if listened.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Sets up the holder according to its arguments; returns the mark of the processes to kill, if
/// any.
fn prepare(args: &[String]) -> Result<Option<Mark>, String> {
    namespace::ignore_signals();
    match args {
        [kind, run] if kind == RUN => Ok(Some(Mark::Run { run: run.clone(), groups: Vec::new() })),
        [kind, rest @ ..] if kind == OWN => {
            let leave = |error| format!("leaving the host's network: {error}");
            namespace::unshare_network().map_err(leave)?;
            match rest {
                [] => Ok(None),
                [other, ..] => {
                    let other = PathBuf::from(format!("/proc/{other}/ns/net"));
                    let links = [PathBuf::from("/proc/self/ns/net"), other];
                    Mark::networks(&links).map(Some)
                }
            }
        }
        _ => Err("a namespace holder is started by the testbed only".into()),
    }
}

fn serve_commands(mut mark: Option<&mut Mark>) -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let done = run_command(&line?, mark.as_deref_mut());
        answer(&match done {
            Ok(value) => format!("ok {value}"),
            Err(error) => format!("error {error}"),
        })?;
    }
    Ok(())
}

fn run_command(line: &str, mark: Option<&mut Mark>) -> io::Result<String> {
    let mut words = line.splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some("write"), Some(path), Some(value)) => {
            // These are kernel files: they exist, and must never be created.
            let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
            file.write_all(value.as_bytes())?;
            Ok(String::new())
        }
        (Some("read"), Some(path), None) => {
            let text = std::fs::read_to_string(path)?;
            Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
        }
        (Some("group"), Some(group), None) => {
            let group = group.parse().map_err(io::Error::other)?;
            mark.into_iter().for_each(|mark| mark.add_group(group));
            Ok(String::new())
        }
        _ => Err(io::Error::other(format!("no such command: {line}"))),
    }
}

fn answer(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_written_and_read_and_none_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("value");
        let path = file.to_str().unwrap();
        assert!(run_command(&format!("write {path} 1"), None).is_err());
        std::fs::write(&file, "").unwrap();
        assert_eq!(run_command(&format!("write {path} 1024\t 65535"), None).unwrap(), "");
        assert_eq!(run_command(&format!("read {path}"), None).unwrap(), "1024 65535");
        for wrong in ["", "read", "write /x", "remove /x", "group x"] {
            assert!(run_command(wrong, None).is_err(), "{wrong}");
        }
    }
}
