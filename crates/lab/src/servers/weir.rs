//! `weir serve` of this binary: its arguments and its statistics.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use weir_observe::ServerPage;

use super::program::{APPLICATION, Site};
use crate::allow_list::{AllowList, Syntax, ValueShape};
use crate::experiment::ServerSpec;
use crate::measure::processes;
use crate::measure::weir_stats::Stats;
use crate::process_group::ProcessGroup;

/// Name of the statistics file.
pub(super) const STATS: &str = "stats.json";

/// Prefix of the line that it prints when all its loops run.
pub(super) const READY: &str = "weir: serving ";

/// Delay before a second SIGTERM, which makes it drop open connections.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Timeout for the statistics. If a loop is too busy to answer, they appear after two seconds, with
/// its last known state.
const SHOWN_WITHIN: Duration = Duration::from_millis(2_500);

/// Polling interval for the statistics: often enough for fresh figures, without causing load.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Connections, and requests per second, of a client: more than any load has.
const CLIENT_MAX: u32 = 1_000_000;

/// Options that an experiment may set. The files it reads or writes and the address it listens on
/// are not among them.
pub(super) const ALLOWED: AllowList = AllowList {
    program: "weir",
    syntax: Syntax::Words,
    options: &[
        ("--accept-limit", ValueShape::NumberOr(&["inf", "auto"])),
        ("--accept-on-close", ValueShape::Switch),
        ("--accept-policy", ValueShape::Word),
        ("--accept-queue-times", ValueShape::Switch),
        ("--body-timeout", ValueShape::Quantity),
        ("--buffers-total", ValueShape::Quantity),
        ("--cache", ValueShape::Quantity),
        ("--cache-heuristic", ValueShape::Number),
        ("--cache-size", ValueShape::Quantity),
        ("--cache-valid", ValueShape::Quantity),
        ("--caching", ValueShape::Switch),
        ("--compress", ValueShape::Switch),
        ("--compress-cache", ValueShape::Quantity),
        ("--compress-max", ValueShape::Quantity),
        ("--controls-off", ValueShape::Names),
        ("--delay-target", ValueShape::Quantity),
        ("--dotfiles", ValueShape::Switch),
        ("--drain-timeout", ValueShape::Quantity),
        ("--eager-read", ValueShape::Switch),
        ("--eager-write", ValueShape::Switch),
        ("--full-read", ValueShape::Switch),
        ("--header-timeout", ValueShape::Quantity),
        ("--idle-timeout", ValueShape::Quantity),
        ("--in-flight-policy", ValueShape::Word),
        ("--keep-idle", ValueShape::Number),
        ("--linger-timeout", ValueShape::Quantity),
        ("--listing", ValueShape::Switch),
        ("--max-body", ValueShape::Quantity),
        ("--max-conns", ValueShape::Number),
        ("--max-in-flight", ValueShape::NumberOr(&["inf", "auto"])),
        ("--mechanism", ValueShape::Word),
        ("--mechanism-option", ValueShape::Setting),
        ("--min-rate", ValueShape::Quantity),
        ("--min-rate-grace", ValueShape::Quantity),
        ("--open-files", ValueShape::Number),
        ("--output", ValueShape::Word),
        ("--phase-times", ValueShape::Switch),
        ("--precompressed", ValueShape::Names),
        ("--preset", ValueShape::Word),
        ("--queue-target", ValueShape::Quantity),
        ("--refuse", ValueShape::OneOf(&["kernel", "rst", "fin", "503"])),
        ("--reply-buffer", ValueShape::Quantity),
        ("--request-buffer", ValueShape::Quantity),
        ("--request-timeout", ValueShape::Quantity),
        ("--sendfile-above", ValueShape::Quantity),
        ("--share-listener", ValueShape::Switch),
        ("--slots", ValueShape::Word),
        ("--stat-page", ValueShape::Switch),
        ("--syn-filter", ValueShape::OneOf(&["auto", "tokens", "random", "none"])),
        ("--syn-filter-at", ValueShape::OneOf(&["auto", "socket", "link"])),
        ("--symlinks", ValueShape::OneOf(&["deny", "inside"])),
    ],
};

pub(super) fn arguments(site: &Site<'_>, calls: bool, bench_endpoints: bool) -> Vec<String> {
    let upstreams = site.upstreams.iter().map(|socket| format!("unix:{socket}"));
    let serve = ["serve".to_owned(), site.root.display().to_string()];
    let mut arguments = match (site.upstreams.is_empty(), site.serves_files) {
        (true, _) => serve.to_vec(),
        (false, false) => std::iter::once("proxy".to_owned()).chain(upstreams).collect(),
        (false, true) => {
            let application = format!("app={}", upstreams.collect::<Vec<_>>().join(","));
            let route = format!("{APPLICATION}=app");
            let options = ["--upstream".to_owned(), application, "--route".to_owned(), route];
            serve.into_iter().chain(options).collect()
        }
    };
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    match &site.tls {
        None => option("--listen", site.address.to_string()),
        Some(files) => {
            option("--listen", format!("https://{}", site.address));
            option("--tls-cert", files.certificate.display().to_string());
            option("--tls-key", files.key.display().to_string());
        }
    }
    option("--workers", site.workers.to_string());
    option("--stats-json", site.dir.join(STATS).display().to_string());
    if site.spec.access_log() {
        option("--access-log", site.dir.join("access.log").display().to_string());
    }
    if site.spec.weir().is_some_and(|weir| weir.operated) {
        option("--admin", format!("unix:{}", site.dir.join("admin.sock").display()));
        option("--client-connections", CLIENT_MAX.to_string());
        option("--client-requests", format!("{CLIENT_MAX}/s"));
    }
    arguments.extend(settings(site.spec));
    // These two take a value only behind an equals sign.
    if bench_endpoints && site.upstreams.is_empty() {
        arguments.push("--bench-endpoints=on".to_owned());
    }
    if calls {
        arguments.push("--profile-calls=on".to_owned());
    }
    // Where nobody takes anything compressed, the head need not say (Vary) that it might be: with
    // it the workload `one-packet` would be two. Under a preset it does not.
    let says = |option: &String| option.starts_with("--compress") || option == "--preset";
    if !site.spec.gzip() && !site.spec.options.iter().any(says) {
        arguments.push("--compress=off".to_owned());
    }
    arguments.extend(site.spec.options.iter().cloned());
    arguments
}

/// Returns the options that follow from a server's settings in the experiment.
pub(super) fn settings(spec: &ServerSpec) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    if let Some(backlog) = spec.backlog() {
        option("--listenq", backlog.to_string());
    }
    if let Some(settings) = spec.weir() {
        settings.arch.iter().for_each(|arch| option("--arch", arch.clone()));
        settings.arch_options.iter().for_each(|one| option("--arch-option", one.clone()));
    }
    arguments
}

/// Returns the statistics that a server publishes as they are now, whatever it is doing; `None` if
/// it publishes none, or not all. `pid`: the process that was started, which may have started the
/// server.
pub(super) fn published(pid: u32) -> Option<Value> {
    let page = processes::tree(pid).into_iter().find_map(|pid| ServerPage::open(pid).ok())?;
    let document = page.snapshot().ok()?.to_json();
    Stats::read(&document).is_ok().then_some(document)
}

/// Requests the statistics and reads them. The file is not replaced atomically: it is removed
/// first, and its content counts once it is a complete document.
pub(super) fn snapshot(group: &ProcessGroup, path: &Path) -> Result<Value, String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {error}", path.display()));
        }
        _ => {}
    }
    group.signal(Signal::USR1);
    let deadline = Instant::now() + SHOWN_WITHIN;
    loop {
        thread::sleep(LOOK_EVERY);
        if let Some(value) = read(path) {
            return Ok(value);
        }
        if group.ended() {
            return Err(format!("weir has ended: {}", group.last_output()));
        }
        if Instant::now() >= deadline {
            return Err("weir wrote no statistics in time".to_owned());
        }
    }
}

/// Reads the statistics in a file, if they are complete.
pub(super) fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
