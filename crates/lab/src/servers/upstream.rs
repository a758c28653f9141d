//! The upstream of a server that is a proxy: `weir serve` with the same document root, on a Unix
//! socket in the run's directory, on the server's processors. It is part of the server under test.

use crate::environment::Side;
use crate::experiment::{Kind, ServerSpec};
use crate::process_group::ProcessGroup;

use super::launch::{Launch, stopped, until_ready, without_paths};
use super::weir;

/// Path of its socket, relative to the run's directory, in which it and the proxy are started: the
/// path of a Unix socket must be short (unix(7)), and that of the directory may not be.
pub(super) const SOCKET: &str = "upstream.sock";

/// Returns whether a server has an upstream: if processor time is to be burnt behind it, or if it
/// compresses only proxied replies, as haproxy does; a `weir proxy` always.
pub(super) fn is_wanted(spec: &ServerSpec) -> bool {
    spec.is_weir_proxy()
        || spec.proxy_burn_us().is_some()
        || (spec.kind() == Kind::Haproxy && spec.gzip())
}

/// A running upstream. Dropping it kills its processes.
pub(super) struct Upstream {
    pub(super) group: ProcessGroup,
    /// Its command, without the paths of this run.
    pub(super) command: String,
}

impl Upstream {
    /// Starts an upstream, and returns when it listens.
    ///
    /// # Errors
    /// Returns a sentence with its last output if it did not start.
    pub(super) fn start(launch: &Launch<'_>) -> Result<Self, String> {
        let program = launch.weir.as_os_str();
        let mut command = launch.environment.command_in(Side::Server, program, launch.groups);
        let arguments = arguments(launch);
        command.args(&arguments).current_dir(launch.dir);
        let group = ProcessGroup::start(launch.environment, command, launch.dir, "upstream")?;
        until_ready(&group, "the upstream", || Ok(group.stdout().contains(weir::READY)))?;
        Ok(Self { group, command: without_paths(&format!("weir {}", arguments.join(" ")), launch) })
    }

    /// Stops it; returns a sentence unless it ended well.
    pub(super) fn stop(self) -> Result<(), String> {
        stopped(self.group, Kind::Weir, "the upstream")
    }
}

/// Returns its arguments. The preset, one of the papers', accepts all waiting connections and
/// answers at once, so that only the proxy refuses or drops any. The proxy may keep its connections
/// open as long as it likes.
fn arguments(launch: &Launch<'_>) -> Vec<String> {
    let mut arguments = vec!["serve".to_owned(), launch.root.display().to_string()];
    arguments.push(format!("--listen=unix:{SOCKET}"));
    arguments.push(format!("--workers={}", launch.workers.max(1)));
    let fixed = ["--preset=eager", "--caching=on", "--idle-timeout=1h"];
    arguments.extend(fixed.map(str::to_owned));
    if launch.bench_endpoints {
        arguments.push("--bench-endpoints=on".to_owned());
    }
    arguments
}
