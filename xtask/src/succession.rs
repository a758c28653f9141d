//! Succession under load: a server reads changed configurations again and again, and is replaced by
//! newly installed programs again and again, while clients keep it busy over connections that stay
//! open and over ones that do not. No request may fail. Asks nothing about speed.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::tree;

/// The options of the trial.
#[derive(clap::Args)]
pub(crate) struct SuccessionArgs {
    /// How often the configuration is changed and read again
    #[arg(long, default_value_t = 50)]
    reloads: u32,
    /// How often the program is installed anew and takes over
    #[arg(long, default_value_t = 50)]
    upgrades: u32,
    /// Connections that stay open, and ones that close after a request, at the same time
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Pause after each of them, milliseconds
    #[arg(long, default_value_t = 100)]
    pause_ms: u64,
    /// Options of the server besides, separated by white space
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    options: String,
}

/// Time within which a successor serves.
const START_MAX: Duration = Duration::from_secs(60);

const INTERVAL: Duration = Duration::from_millis(2);

/// Numbers of loops of the configurations, in turn.
const LOOPS: [u32; 5] = [1, 2, 2, 4, 3];

/// Size of the file that is asked for, bytes.
const FILE_BYTES: usize = 1024;

/// Runs the trial, and prints what came of it.
pub(crate) fn run(args: &SuccessionArgs) -> Result<()> {
    let weir = tree::build(tree::cargo(), &["--release", "--package", "weir"], "weir")?;
    let scratch = tempfile::Builder::new().prefix("weir-succession-").tempdir()?;
    let mut server = Server::start(&weir, scratch.path(), &LOOPS, &args.options)?;
    let stay_open = ["--requests-per-conn", "inf"];
    let mut failed = 0;
    for (what, count) in [("reloads", args.reloads), ("upgrades", args.upgrades)] {
        let loads = [("stay-open", &stay_open[..]), ("close", &[])].map(|(name, options)| {
            Load::start(&weir, &server.url, &args.connections.to_string(), options, scratch.path())
                .map(|load| (name, load))
        });
        let done = server.succeed(what, count, Duration::from_millis(args.pause_ms));
        for load in loads {
            let (name, load) = load?;
            let outcome = load.finish()?;
            println!("{count} {what}, connections that {name}: {outcome}");
            failed += outcome.failed;
        }
        done?;
    }
    server.stop()?;
    ensure!(failed == 0, "{failed} request(s) failed");
    Ok(())
}

/// The server that was started first, and the way to what it says.
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
    /// Numbers of loops of its configurations, in turn.
    loops: &'static [u32],
    /// The original of the program, and the path at which it is installed.
    weir: PathBuf,
    installed: PathBuf,
    config: PathBuf,
    messages: PathBuf,
    successions: usize,
}

impl Server {
    /// Starts a server of `/file`, whose configurations have these numbers of loops in turn.
    pub(crate) fn start(
        weir: &Path,
        scratch: &Path,
        loops: &'static [u32],
        options: &str,
    ) -> Result<Self> {
        let root = scratch.join("root");
        fs::create_dir_all(&root)?;
        fs::write(root.join("file"), [b'x'; FILE_BYTES])?;
        let [installed, config, messages] =
            ["weir", "weir.toml", "messages"].map(|name| scratch.join(name));
        fs::write(&config, text(loops, 0))?;
        install(weir, &installed)?;
        let mut process = Command::new(&installed)
            .arg("serve")
            .arg(&root)
            .args(["--listen", "127.0.0.1:0", "--config"])
            .arg(&config)
            .args(options.split_whitespace())
            .env("WEIR_RUN_DIR", scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&messages)?)
            .spawn()?;
        let mut line = String::new();
        let stdout = process.stdout.take().context("no standard output")?;
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut line)?;
        // What its successors say is read and forgotten.
        thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let address = line.split_whitespace().find(|word| word.starts_with("http://"));
        let Some(url) = address.map(|address| format!("{address}/file")) else {
            bail!("the server did not start: {}", fs::read_to_string(messages)?)
        };
        let weir = weir.to_path_buf();
        Ok(Self { process, url, loops, weir, installed, config, messages, successions: 0 })
    }

    /// Has it replaced `count` times.
    fn succeed(&mut self, what: &str, count: u32, pause: Duration) -> Result<()> {
        for _ in 0..count {
            self.succeed_once(what)?;
            thread::sleep(pause);
        }
        Ok(())
    }

    /// Has it replaced by `reloads` or by `upgrades`, and waits until its successor serves.
    pub(crate) fn succeed_once(&mut self, what: &str) -> Result<()> {
        self.successions += 1;
        if what == "reloads" {
            fs::write(&self.config, text(self.loops, self.successions))?;
            signal("HUP", self.process.id())?;
        } else {
            install(&self.weir, &self.installed)?;
            signal("USR2", self.process.id())?;
        }
        self.await_successions()
    }

    /// Waits until as many successors serve as were asked for.
    fn await_successions(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            let messages = fs::read_to_string(&self.messages)?;
            if messages.matches("serves from now on").count() >= self.successions {
                return Ok(());
            }
            let has_ended = self.process.try_wait()?.is_some();
            let is_stuck = has_ended || start.elapsed() > START_MAX;
            ensure!(!is_stuck, "no successor number {} serves: {messages}", self.successions);
            thread::sleep(INTERVAL);
        }
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        signal("TERM", self.process.id())?;
        let status = self.process.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it has ended, so have the others; else it passes the signal on.
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = signal("TERM", self.process.id());
        }
    }
}

/// A configuration unlike those with other numbers.
fn text(loops: &[u32], number: usize) -> String {
    let loops = loops[number % loops.len()];
    format!("workers = {loops}\nheader = 'X-Number: {number}'\n")
}

/// Puts a program in place of another, as a package manager does.
fn install(program: &Path, path: &Path) -> Result<()> {
    let new = path.with_extension("new");
    fs::copy(program, &new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    Ok(fs::rename(new, path)?)
}

fn signal(name: &str, pid: u32) -> Result<()> {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status()?;
    ensure!(status.success(), "kill -s {name} {pid} ended with {status}");
    Ok(())
}

/// A load in a closed loop, which goes on until it is told to stop.
struct Load {
    process: Child,
    json: PathBuf,
}

impl Load {
    fn start(
        weir: &Path,
        url: &str,
        connections: &str,
        options: &[&str],
        scratch: &Path,
    ) -> Result<Self> {
        let json = scratch.join(format!("load-{}.json", options.len()));
        let process = Command::new(weir)
            .args(["load", "--quiet", "--duration", "1h", "--closed", connections])
            .args(options)
            .arg("--json")
            .arg(&json)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { process, json })
    }

    fn finish(mut self) -> Result<Outcome> {
        signal("INT", self.process.id())?;
        self.process.wait()?;
        let text = fs::read_to_string(&self.json).context("the load's output")?;
        Outcome::of(&serde_json::from_str(&text)?)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It has ended, unless something else has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What came of the requests of a load.
struct Outcome {
    replies: u64,
    failed: u64,
    /// The kinds of errors that there were, and other replies than 200.
    kinds: Vec<String>,
}

impl Outcome {
    fn of(json: &Value) -> Result<Self> {
        let number = |value: &Value| value.as_u64().context("a number is missing");
        let counts = &json["counts"];
        let replies = number(&counts["replies"])?;
        let good = number(&counts["statuses"]["2xx"])?;
        let errors = json["errors"].as_object().context("no errors")?;
        let mut kinds = Vec::new();
        let mut failed = replies.saturating_sub(good);
        if failed > 0 {
            kinds.push(format!("{failed} other statuses than 2xx"));
        }
        for (kind, count) in errors {
            match number(count)? {
                0 => {}
                count => {
                    failed += count;
                    kinds.push(format!("{count} {kind}"));
                }
            }
        }
        Ok(Self { replies, failed, kinds })
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { replies, failed, kinds } = self;
        write!(f, "{replies} replies, {failed} failed requests")?;
        if kinds.is_empty() { Ok(()) } else { write!(f, " ({})", kinds.join(", ")) }
    }
}
