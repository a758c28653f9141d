//! The check of a configuration against this machine, without a server: it finds what would stop
//! one at its start, and changes nothing. Addresses are left out: the server that runs has them,
//! and a service manager makes the folders of Unix sockets as it starts.

use std::io;
use std::path::Path;
use std::thread;

use weir_sys::sandbox::Support;
use weir_sys::{file, process};

use crate::architecture::ArchitectureName;
use crate::config::{Config, Error, LogTarget, SandboxMode};
use crate::context::log;
use crate::context::log::errors::ERRORS;
use crate::models::ring;
use crate::{sandbox, user};

/// A part of a configuration that this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Name of the option.
    pub option: &'static str,
    /// A sentence.
    pub why: String,
}

/// Checks that the user, the processors, the ring or the event mechanism, the confinement and the
/// logs that a configuration names are there.
///
/// # Errors
/// The first that is not, for this process's user.
pub fn check(config: &Config) -> Result<(), Unavailable> {
    let of = |option: &'static str| move |Error(why)| Unavailable { option, why };
    user::check(config).map_err(of("user"))?;
    config.cpus.iter().try_for_each(|cpu| check_cpu(*cpu)).map_err(of("cpus"))?;
    check_ring(config).map_err(of("arch"))?;
    check_mechanism(config).map_err(of("mechanism"))?;
    check_sandbox(config).map_err(of("sandbox"))?;
    check_log(ERRORS, &config.errors.options().target).map_err(of("error-log"))?;
    let access = config.access_log.as_ref().map(|log| check_log(log::ACCESS, &log.target));
    access.unwrap_or(Ok(())).map_err(of("access-log"))
}

/// Checks that this process's user may serve the files of a root, and list its directories if
/// `lists`.
///
/// # Errors
/// There is no such directory, or it may not.
pub fn check_root(root: &Path, lists: bool) -> io::Result<()> {
    file::may_enter(root, lists)
}

fn check_cpu(cpu: usize) -> Result<(), Error> {
    // A thread of its own, since it stays there.
    let pinned = thread::Builder::new().spawn(move || process::pin_thread(cpu).is_ok());
    match pinned.map(thread::JoinHandle::join) {
        Ok(Ok(false)) => {
            Err(Error(format!("--cpus: processor {cpu} is not there, or may not be used")))
        }
        _ => Ok(()),
    }
}

fn check_ring(config: &Config) -> Result<(), Error> {
    match config.arch {
        ArchitectureName::Ring => {
            ring::try_open(config).map_err(|error| Error(format!("--arch ring: {error}")))
        }
        _ => Ok(()),
    }
}

fn check_mechanism(config: &Config) -> Result<(), Error> {
    if !config.arch.row().takes_mechanism {
        return Ok(());
    }
    let (name, spelling) = (config.mechanism, config.mechanism.row().spelling);
    name.try_open().map_err(|error| Error(format!("--mechanism {spelling}: {error}")))
}

fn check_sandbox(config: &Config) -> Result<(), Error> {
    match sandbox::lack(Support::find()) {
        Some(lack) if config.sandbox == SandboxMode::On => {
            Err(Error(format!("--sandbox on: {lack}")))
        }
        _ => Ok(()),
    }
}

fn check_log(name: &str, target: &LogTarget) -> Result<(), Error> {
    log::check(target).map_err(|error| Error(format!("cannot open the {name}: {error}")))
}
