//! Commands of the applications that a sweep puts behind its servers. All serve the same: a reply
//! of 1 KiB, or the file that is asked for, after the service time that the path says.

use std::fs;
use std::path::PathBuf;

use crate::experiment::{UpstreamKind, UpstreamSpec};
use crate::programs;

use super::super::launch::Launch;

/// What each worker of an application in another language prints when it is ready.
pub(super) const READY: &str = "a worker is ready";

/// Connections that may wait for a worker: as many as the kernel's default allows.
const BACKLOG: u32 = 4096;

/// The application in Python, behind gunicorn and uvicorn.
const PYTHON: (&str, &str) = ("app.py", include_str!("app.py"));

/// The application in Ruby, behind puma.
const RUBY: (&str, &str) = ("config.ru", include_str!("config.ru"));

/// Returns the program of an application and its arguments; writes its source.
///
/// # Errors
/// Returns a sentence if the program is not installed or the source cannot be written.
pub(super) fn command(
    spec: &UpstreamSpec,
    launch: &Launch<'_>,
    socket: &str,
) -> Result<(PathBuf, Vec<String>), String> {
    let workers = spec.workers.to_string();
    let (source, arguments) = match spec.kind {
        UpstreamKind::Weir => return Ok((launch.weir.to_owned(), weir(spec, launch, socket))),
        UpstreamKind::Gunicorn => (PYTHON, gunicorn(&workers, socket)),
        UpstreamKind::Uvicorn => (PYTHON, uvicorn(&workers, socket)),
        UpstreamKind::Puma => (RUBY, puma(&workers, socket)),
    };
    let file = launch.dir.join(source.0);
    fs::write(&file, source.1).map_err(|error| format!("{}: {error}", file.display()))?;
    let name = spec.kind.name();
    let program = programs::find(name).ok_or_else(|| format!("{name} is not installed"))?;
    Ok((program, arguments))
}

/// A process for each request: it takes the connection that has waited longest, and works for it
/// whether or not its client has gone.
fn weir(spec: &UpstreamSpec, launch: &Launch<'_>, socket: &str) -> Vec<String> {
    let root = launch.root.display().to_string();
    let mut arguments = words(&["serve", &root, "--workers=1", "--arch=processes"]);
    arguments.push(format!("--listen=unix:{socket}"));
    arguments.push(format!("--arch-option=pool={}", spec.workers));
    arguments.push(format!("--listenq={BACKLOG}"));
    arguments.extend(words(&["--preset=accept1", "--bench-endpoints=on"]));
    arguments
}

fn gunicorn(workers: &str, socket: &str) -> Vec<String> {
    let bind = format!("unix:{socket}");
    words(&["--workers", workers, "--bind", &bind, "--log-level", "warning", "app:wsgi"])
}

fn uvicorn(workers: &str, socket: &str) -> Vec<String> {
    let quiet = ["--no-access-log", "--log-level", "warning"];
    let own = ["--workers", workers, "--uds", socket];
    words(&[&own[..], &quiet, &["app:asgi"]].concat())
}

fn puma(workers: &str, socket: &str) -> Vec<String> {
    let bind = format!("unix://{socket}");
    words(&["--workers", workers, "--threads", "1:1", "--bind", &bind, "-e", "production"])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
