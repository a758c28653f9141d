//! The last step before a program of the run: enters its network, moves to its processors, and ties
//! it to the life of the lab.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use weir_sys::{namespace, process, run_dir};

use super::cpus;

/// Variables that both weir and its lab need, and that are no options.
const KEPT: [&str; 2] = [run_dir::VARIABLE, super::cleanup::RUN_VARIABLE];

/// Exit code that a shell reports for a command that it could not run.
const CANNOT_RUN: u8 = 127;

#[derive(Debug, Default, PartialEq, Eq)]
struct EnterOptions {
    groups: Vec<PathBuf>,
    net: Option<PathBuf>,
    mnt: Option<PathBuf>,
    cpus: Vec<usize>,
    parent: Option<u32>,
    program: OsString,
    args: Vec<OsString>,
}

/// Runs `weir lab-enter [--group FOLDER]… [--net LINK] [--mnt LINK] [--cpus LIST] [--parent PID] --
/// PROGRAM ARGS`: becomes the program, or prints the reason to stderr and ends with code 127.
pub fn enter_main(args: Vec<OsString>) -> ExitCode {
    let why = match parse(args) {
        Ok(options) => exec_program(&options),
        Err(why) => why,
    };
    eprintln!("weir lab-enter: {why}");
    ExitCode::from(CANNOT_RUN)
}

fn parse(args: Vec<OsString>) -> Result<EnterOptions, String> {
    let mut options = EnterOptions::default();
    let mut args = args.into_iter();
    while let Some(name) = args.next() {
        if name == "--" {
            options.program = args.next().ok_or("no program is named")?;
            options.args = args.collect();
            return Ok(options);
        }
        let name = name.to_string_lossy().into_owned();
        let value = args.next().ok_or_else(|| format!("{name} lacks its value"))?;
        set(&mut options, &name, &value)?;
    }
    Err("no program is named".into())
}

fn set(options: &mut EnterOptions, name: &str, value: &OsStr) -> Result<(), String> {
    match name {
        "--group" => options.groups.push(value.into()),
        "--net" => options.net = Some(value.into()),
        "--mnt" => options.mnt = Some(value.into()),
        "--cpus" => options.cpus = cpus::parse_list(&value.to_string_lossy())?,
        "--parent" => {
            let pid = value.to_str().and_then(|text| text.parse().ok());
            options.parent = Some(pid.ok_or("a parent is a process id")?);
        }
        _ => return Err(format!("no such option: {name}")),
    }
    Ok(())
}

/// Replaces this process by the program; returns only on failure, with the reason.
fn exec_program(options: &EnterOptions) -> String {
    if let Err(why) = prepare(options) {
        return why;
    }
    let mut command = Command::new(&options.program);
    // Options from the lab's own environment would change what a weir is measured with.
    let of_options = |name: &OsStr| {
        name.to_str().is_some_and(|name| name.starts_with("WEIR_") && !KEPT.contains(&name))
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_options(name)) {
        command.env_remove(name);
    }
    let error = command.args(&options.args).exec();
    format!("cannot run {}: {error}", options.program.display())
}

fn prepare(options: &EnterOptions) -> Result<(), String> {
    if let Some(parent) = options.parent {
        let alive = namespace::die_with(parent).map_err(|error| format!("prctl: {error}"))?;
        if !alive {
            return Err("the lab is gone".into());
        }
    }
    let entering = |link: &Path| format!("entering {}", link.display());
    // This precedes the mounts of the side, which show no control groups.
    for group in &options.groups {
        enter_group(group).map_err(|error| format!("{}: {error}", entering(group)))?;
    }
    if let Some(net) = &options.net {
        namespace::enter_network(net).map_err(|error| format!("{}: {error}", entering(net)))?;
    }
    if let Some(mnt) = &options.mnt {
        enter_mounts(mnt).map_err(|error| format!("{}: {error}", entering(mnt)))?;
    }
    if !options.cpus.is_empty() {
        let list = cpus::format_list(&options.cpus);
        let told = |error| format!("running on processors {list}: {error}");
        namespace::run_on(&options.cpus).map_err(told)?;
    }
    process::raise_open_files();
    Ok(())
}

/// Moves this process into a control group: a process that writes 0 into the file means itself
/// (cgroups(7)).
fn enter_group(group: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).open(group.join("cgroup.procs"))?.write_all(b"0")
}

/// Enters a mount namespace; the working directory stays the same one, by name.
fn enter_mounts(mnt: &Path) -> std::io::Result<()> {
    let here = std::env::current_dir()?;
    namespace::enter_mounts(mnt)?;
    std::env::set_current_dir(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn options_end_where_the_program_begins() {
        let line =
            "--group /g --group /h --net /n --mnt /m --cpus 0,2-3 --parent 7 -- nginx -c --net";
        let expected = EnterOptions {
            groups: vec!["/g".into(), "/h".into()],
            net: Some("/n".into()),
            mnt: Some("/m".into()),
            cpus: vec![0, 2, 3],
            parent: Some(7),
            program: "nginx".into(),
            args: words("-c --net"),
        };
        assert_eq!(parse(words(line)), Ok(expected));
    }

    #[test]
    fn missing_and_unknown_arguments_are_named() {
        assert!(parse(words("--net")).unwrap_err().contains("--net"));
        assert!(parse(words("--cpus 1 --")).unwrap_err().contains("program"));
        assert!(parse(words("--cpus 1")).unwrap_err().contains("program"));
        assert!(parse(words("--else 1 -- x")).unwrap_err().contains("--else"));
        assert!(parse(words("--parent x -- x")).unwrap_err().contains("process id"));
    }
}
