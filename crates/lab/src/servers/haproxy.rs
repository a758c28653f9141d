//! haproxy: its configuration. By itself it answers with a rule per file of the document root,
//! which it reads into memory once; in front of an upstream it proxies the replies, and compresses
//! them if requested.

use std::fs;
use std::path::{Path, PathBuf};

use super::program::{ServerProgram, Site, lines, quoted};
use crate::allow_list::{AllowList, Syntax, ValueShape};

pub(super) const PROGRAM: ServerProgram = ServerProgram {
    binaries: &["haproxy"],
    package: "Debian's package haproxy",
    version_flag: "-v",
    config_file: "server.conf",
    configuration,
    arguments: &["-db", "-f", "{config}"],
    allowed: AllowList {
        program: "haproxy",
        syntax: Syntax::Line,
        options: &[
            ("busy-polling", ValueShape::Nothing),
            ("maxcompcpuusage", ValueShape::Number),
            ("maxcomprate", ValueShape::Number),
            ("noepoll", ValueShape::Nothing),
            ("nopoll", ValueShape::Nothing),
            ("noreuseport", ValueShape::Nothing),
            ("nosplice", ValueShape::Nothing),
            ("tune.bufsize", ValueShape::Number),
            ("tune.comp.maxlevel", ValueShape::Number),
            ("tune.http.maxhdr", ValueShape::Number),
            ("tune.idletimer", ValueShape::Number),
            ("tune.listener.multi-queue", ValueShape::Switch),
            ("tune.maxaccept", ValueShape::Number),
            ("tune.maxpollevents", ValueShape::Number),
            ("tune.pipesize", ValueShape::Number),
            ("tune.rcvbuf.client", ValueShape::Number),
            ("tune.rcvbuf.server", ValueShape::Number),
            ("tune.recv_enough", ValueShape::Number),
            ("tune.runqueue-depth", ValueShape::Number),
            ("tune.sched.low-latency", ValueShape::Switch),
            ("tune.sndbuf.client", ValueShape::Number),
            ("tune.sndbuf.server", ValueShape::Number),
        ],
    },
};

/// Maximum number of files. Rules are evaluated one by one: with more of them, finding one would be
/// what is measured.
const FILES_MAX: usize = 8;

/// haproxy's default buffer size; a reply must fit in a buffer.
const BUFFER_BYTES_DEFAULT: u64 = 16_384;

/// Room in a buffer in addition to a file.
const BUFFER_SPARE_BYTES: u64 = 8_192;

fn configuration(site: &Site<'_>) -> Result<String, String> {
    let (buffer, answers) = match (site.upstreams.is_empty(), site.serves_files) {
        (true, _) => {
            let (buffer, rules) = answering(site)?;
            (buffer, rules + "    http-request return status 404\n")
        }
        (false, false) => (BUFFER_BYTES_DEFAULT, proxying(site)),
        (false, true) => {
            let (buffer, rules) = answering(site)?;
            (buffer, rules + &proxying(site))
        }
    };
    let backlog = site.spec.backlog().map(|n| format!("    backlog {n}\n")).unwrap_or_default();
    Ok(format!(
        "global
    nbthread {workers}
    maxconn {conns}
    log stderr format raw daemon emerg
    tune.bufsize {buffer}
{options}defaults
    mode http
    timeout client 1h
    timeout http-request 1h
    timeout http-keep-alive 1h
    timeout connect 1h
    timeout server 1h
frontend lab
    bind {address}{tls}
    maxconn {conns}
{backlog}{answers}",
        workers = site.workers,
        // haproxy reserves two descriptors per connection, one of them for an upstream.
        conns = site.conns_max().min(site.files_max.saturating_sub(400) / 2),
        options = lines(&site.spec.options).replace('\n', "\n    ").trim_end_matches(' '),
        address = site.address,
        tls = tls(site),
    ))
}

/// Returns the parameters of an address with TLS; without, nothing.
fn tls(site: &Site<'_>) -> String {
    let Some(files) = &site.tls else { return String::new() };
    format!(" ssl crt {} alpn http/1.1", quoted(&files.both))
}

/// Returns the buffer size that the rules need, and the rules that answer requests.
fn answering(site: &Site<'_>) -> Result<(u64, String), String> {
    let files = files(site.root)?;
    let rules: String = files.iter().map(|(path, _)| rule(path)).collect();
    let largest = files.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let buffer = (largest + BUFFER_SPARE_BYTES).next_power_of_two().max(BUFFER_BYTES_DEFAULT);
    Ok((buffer, rules))
}

/// Returns the proxy settings. Upstream connections are reused for all clients: a new connection
/// per request would add the upstream's work to the measurement.
fn proxying(site: &Site<'_>) -> String {
    let gzip = if site.spec.gzip() { GZIP } else { "" };
    let settings = site.spec.haproxy();
    let queue = settings.and_then(|settings| settings.queue_ms);
    let queue = queue.map(|ms| format!("    timeout queue {}ms\n", *ms)).unwrap_or_default();
    let limit = settings.and_then(|settings| settings.in_flight);
    let limit = limit.map(|limit| format!(" maxconn {}", *limit)).unwrap_or_default();
    let server = |(number, socket)| format!("    server s{number} unix@{socket}{limit}\n");
    let servers: String = site.upstreams.iter().enumerate().map(server).collect();
    format!(
        "{gzip}    default_backend upstream
backend upstream
    http-reuse always
{queue}{servers}"
    )
}

/// Compression of proxied replies on the fly, without a cache.
const GZIP: &str = "    filter compression
    compression algo gzip
    compression type text/html text/plain
";

/// Returns the files of a document root and their sizes, by name.
fn files(root: &Path) -> Result<Vec<(PathBuf, u64)>, String> {
    let wrong = |error| format!("cannot read {}: {error}", root.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(root).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let metadata = entry.metadata().map_err(wrong)?;
        if metadata.is_dir() || files.len() == FILES_MAX {
            return Err(format!(
                "haproxy cannot serve this workload, such as specweb99: it answers with a rule \
                 for each file, and has room for {FILES_MAX} files without directories"
            ));
        }
        files.push((entry.path(), metadata.len()));
    }
    files.sort();
    Ok(files)
}

fn rule(path: &Path) -> String {
    let content_type = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html",
        Some("txt") => "text/plain",
        _ => "application/octet-stream",
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let file = quoted(path);
    format!(
        "    http-request return status 200 content-type {content_type} file {file} \
         if {{ path /{name} }}\n"
    )
}
