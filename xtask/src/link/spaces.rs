//! Two network namespaces, the link between them, and programs in them. The link has one processor,
//! all other programs another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// Address of the servers' end of a link.
pub(super) const SERVER: &str = "10.79.0.2";

/// Network of the clients that are pinged: all of it is answered for.
const CLIENTS: &str = "10.79.128.0/17";

/// Time within which a link is up, and within which it ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest life of a namespace, seconds: more than all paths take.
const LIFE_S: &str = "7200";

/// The namespaces.
pub(super) struct Spaces {
    weir: PathBuf,
    clients: Holder,
    servers: Holder,
    scratch: TempDir,
}

/// A side of the link.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Clients,
    Servers,
}

/// A process that keeps a network namespace, and ends with this.
struct Holder(Child);

impl Holder {
    fn new() -> Result<Self> {
        let own = fs::read_link("/proc/self/ns/net")?;
        let mut command = Command::new("unshare");
        let mut holder = Self(command.args(["--net", "sleep", LIFE_S]).spawn()?);
        let link = format!("/proc/{}/ns/net", holder.0.id());
        until("a network namespace", || {
            ensure!(holder.0.try_wait()?.is_none(), "no network namespace can be had: be root");
            Ok(fs::read_link(&link).is_ok_and(|link| link != own))
        })?;
        Ok(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running link.
pub(super) struct Link {
    process: Holder,
    report: PathBuf,
}

/// What a link says of itself at its end.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct LinkReport {
    pub(super) late_p50_ns: u64,
    pub(super) late_p99_ns: u64,
    pub(super) reasons: Vec<String>,
}

impl Spaces {
    pub(super) fn new(weir: PathBuf) -> Result<Self> {
        let cpus = thread::available_parallelism()?.get();
        ensure!(cpus >= 2, "the link needs a processor to itself, and there is only one");
        let scratch = tempfile::Builder::new().prefix("weir-link-").tempdir()?;
        Ok(Self { weir, clients: Holder::new()?, servers: Holder::new()?, scratch })
    }

    /// Returns a directory for files of a measurement.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    fn id(&self, side: Side) -> String {
        match side {
            Side::Clients => self.clients.0.id().to_string(),
            Side::Servers => self.servers.0.id().to_string(),
        }
    }

    /// Returns the command of a program on a side, which is killed after `seconds`.
    pub(super) fn command(&self, side: Side, program: &str, seconds: u32) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.id(side), "taskset", "-c", "1"]);
        command.args(["timeout", &seconds.to_string(), program]);
        command.stdin(Stdio::null());
        command
    }

    /// Starts a link of a path between the namespaces.
    pub(super) fn link(&self, path: &str) -> Result<Link> {
        let report = self.scratch.path().join("link.json");
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(&self.weir).args(["load", "link", "--path", path]);
        command.args(["--clients", &self.id(Side::Clients)]);
        command.args(["--servers", &self.id(Side::Servers), "--json"]).arg(&report);
        let process = Holder(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        until("the link", || {
            let is_up = |side| Ok::<_, anyhow::Error>(self.ip(side, "link show weir0")?.is_some());
            Ok(is_up(Side::Clients)? && is_up(Side::Servers)?)
        })?;
        self.ip(Side::Clients, "link set lo up")?.context("ip link")?;
        self.ip(Side::Clients, &format!("route replace local {CLIENTS} dev lo"))?
            .context("ip route")?;
        Ok(Link { process, report })
    }

    /// Runs ip(8) on a side; `None` if it fails.
    fn ip(&self, side: Side, words: &str) -> Result<Option<()>> {
        let mut command = self.command(side, "ip", 10);
        let output = command.args(words.split(' ')).output()?;
        Ok(output.status.success().then_some(()))
    }
}

impl Link {
    /// Ends the link, and returns what it says.
    pub(super) fn end(mut self) -> Result<LinkReport> {
        let id = self.process.0.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        until("the link's end", || Ok(self.process.0.try_wait()?.is_some()))?;
        let text = fs::read_to_string(&self.report).context("the link wrote no report")?;
        Ok(serde_json::from_str(&text)?)
    }
}

fn until(what: &str, mut is_there: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !is_there()? {
        ensure!(began.elapsed() < PATIENCE, "{what} did not come within 10 s");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
