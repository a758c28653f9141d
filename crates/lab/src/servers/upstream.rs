//! What stands behind a server that is a proxy: `weir serve` with the same document root, on a Unix
//! socket in the run's directory, on the server's processors. It is part of the server under test.
//! Knows no proxy.

use crate::child::Group;
use crate::experiment::{Kind, ServerSpec};
use crate::ground::Side;

use super::{Launch, anonymous, stopped, until_ready, weir};

/// Its socket. Relative to the run's directory, where it and the proxy are started: a path of this
/// kind has to be short (unix(7)), and that of the directory may not be.
pub(super) const SOCKET: &str = "upstream.sock";

/// Whether a server has one: one that is to wait for it, and one that compresses only what it
/// passes on.
pub(super) fn is_wanted(spec: &ServerSpec) -> bool {
    spec.proxy_burn_us.is_some() || (spec.kind == Kind::Haproxy && spec.gzip)
}

/// A running one. Dropping it kills its processes.
pub(super) struct Upstream {
    pub(super) group: Group,
    /// Its command, without the paths of this run.
    pub(super) command: String,
}

impl Upstream {
    /// Starts one, and returns when it listens.
    ///
    /// # Errors
    /// A sentence with its last words: it did not start.
    pub(super) fn start(launch: &Launch<'_>) -> Result<Self, String> {
        let program = launch.weir.as_os_str();
        let mut command = launch.ground.command_in(Side::Server, program, launch.groups);
        let arguments = arguments(launch);
        command.args(&arguments).current_dir(launch.dir);
        let group = Group::start(launch.ground, command, launch.dir, "upstream")?;
        until_ready(&group, "the upstream", || Ok(group.said().contains(weir::READY)))?;
        Ok(Self { group, command: anonymous(&format!("weir {}", arguments.join(" ")), launch) })
    }

    /// Tells it to stop, and says how it ended.
    pub(super) fn stop(self) -> Result<(), String> {
        stopped(self.group, Kind::Weir, "the upstream")
    }
}

/// A preset of the papers takes in all that wait and answers at once: what refuses or drops is then
/// the proxy alone. Its proxy keeps connections open for as long as it likes.
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
