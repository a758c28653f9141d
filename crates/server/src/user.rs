//! The user that a server becomes once its addresses are bound, and what it leaves to a process
//! that keeps its privileges ([`weir_sys::privileged`]).
//!
//! The order is: bind and listen, make the filters of SYNs and attach what stays attached, then
//! leave the rest to that process, become the user, and only then start what serves.

use std::path::{Path, PathBuf};

use weir_sys::privileged::{self, Duties};
use weir_sys::sandbox::Support;
use weir_sys::user::{self, User};

use crate::config::{Address, Config, Error, LogTarget, SandboxMode};
use crate::worker::syn_filter;

/// Name of the channel to the process that keeps the privileges, for a successor.
pub(crate) const CHANNEL: &str = "privileged channel";

/// Checks that there is the user that a configuration names.
///
/// # Errors
/// A message: there is none.
pub(crate) fn check(config: &Config) -> Result<(), Error> {
    let Some(name) = &config.user else { return Ok(()) };
    User::find(&name.user, name.group.as_deref()).map(drop).map_err(|error| failed(&error))
}

/// Returns the user that a server has yet to become; `None` if it is to stay as it is, or is the
/// user already, without a privilege.
///
/// # Errors
/// A message: there is no such user, or this process may not become it.
fn find(config: &Config) -> Result<Option<User>, Error> {
    let Some(name) = &config.user else { return Ok(None) };
    let user = User::find(&name.user, name.group.as_deref()).map_err(|error| failed(&error))?;
    if user.is_current() {
        return Ok(user::has_privileges().then_some(user));
    }
    if privileged::is_there() {
        let why = "--user: this server has become another user for good: to change it, start the \
                   server anew";
        return Err(Error(why.into()));
    }
    if user::may_change() {
        return Ok(Some(user));
    }
    let why = "--user takes a server that is started as root, or with CAP_SETUID and CAP_SETGID";
    Err(Error(why.into()))
}

/// Starts the process that keeps the privileges, and becomes the user for good, with the files of
/// Unix sockets, if the configuration names one. Must be called while this process has one thread.
///
/// # Errors
/// A message: there is no such user, this process may not become it, or a privilege is left.
pub(crate) fn change(config: &Config, addresses: &[Address]) -> Result<(), Error> {
    let Some(user) = find(config)? else { return Ok(()) };
    let support = match config.sandbox {
        SandboxMode::Off => Support { landlock: 0, seccomp: false },
        SandboxMode::Auto | SandboxMode::On => Support::find(),
    };
    let duties = Duties { logs: logs(config), rules: syn_filter::rules(config), support };
    privileged::start(duties).map_err(|error| failed(&error))?;
    if let Some(tls) = &config.tls {
        // That process keeps what it was forked with for ever, and no key may be found from it.
        tls.renew_ticket_keys().map_err(|error| Error(format!("--user: {error}")))?;
    }
    let of_loops = addresses.iter().filter_map(|address| match address {
        Address::Unix(path) => Some(&**path),
        Address::Tcp(_) | Address::Tls(_) => None,
    });
    for path in of_loops.chain(config.admin_socket.as_deref()) {
        give(path, &user, config);
    }
    user.become_for_good().map_err(|error| failed(&error))
}

/// Gives the user the file of a socket.
fn give(path: &Path, user: &User, config: &Config) {
    // One of a service manager's has no path here, and an owner of its own.
    if path.exists()
        && let Err(error) = user.own_socket_file(path)
    {
        let path = path.display();
        config.errors.warn(&format!("--user: {path} stays as it is: {error}"));
    }
}

/// Returns the logs that are files.
fn logs(config: &Config) -> Vec<PathBuf> {
    let access = config.access_log.as_ref().map(|log| &log.target);
    let targets = access.into_iter().chain([&config.errors.options().target]);
    let path = |target: &LogTarget| match target {
        LogTarget::File(path) => Some(path.clone()),
        _ => None,
    };
    targets.filter_map(path).collect()
}

fn failed(error: &std::io::Error) -> Error {
    Error(format!("--user: {error}"))
}
