//! h2o: its configuration. Its backlog is fixed at 65535.

use super::program::{ServerProgram, Site, lines};
use crate::allow_list::{AllowList, Syntax, ValueShape};

pub(super) const PROGRAM: ServerProgram = ServerProgram {
    binaries: &["h2o"],
    package: "Debian's package h2o",
    version_flag: "-v",
    config_file: "server.conf",
    configuration,
    arguments: &["--mode=worker", "--conf", "{config}"],
    allowed: AllowList {
        program: "h2o",
        syntax: Syntax::Colon,
        options: &[
            ("file.etag", ValueShape::Switch),
            ("file.send-compressed", ValueShape::Switch),
            ("handshake-timeout", ValueShape::Number),
            ("limit-request-body", ValueShape::Number),
            ("max-delegations", ValueShape::Number),
            ("num-name-resolution-threads", ValueShape::Number),
            ("send-server-name", ValueShape::Switch),
            ("tcp-fastopen", ValueShape::Number),
        ],
    },
};

fn configuration(site: &Site<'_>) -> Result<String, String> {
    let user = if site.as_root { "user: root\n" } else { "" };
    let gzip = if site.spec.gzip() { "compress: [gzip]\n" } else { "" };
    Ok(format!(
        "{user}num-threads: {workers}
max-connections: {conns}
http1-request-timeout: 3600
pid-file: {dir}/h2o.pid
error-log: {dir}/h2o.log
temp-buffer-path: {dir}
{gzip}{options}listen:
  host: {host}
  port: {port}
{tls}hosts:
  default:
    paths:
      /:
        {answers}
",
        workers = site.workers,
        conns = site.conns_max(),
        dir = site.dir.display(),
        options = lines(&site.spec.options),
        host = site.address.ip(),
        port = site.address.port(),
        answers = answers(site),
        tls = tls(site),
    ))
}

/// Returns the certificate of the address; without one, nothing.
fn tls(site: &Site<'_>) -> String {
    let Some(files) = &site.tls else { return String::new() };
    let (certificate, key) = (files.certificate.display(), files.key.display());
    format!("  ssl:\n    certificate-file: {certificate}\n    key-file: {key}\n")
}

/// Returns the handler of `/`. Without `preserve-host`, the upstream would receive a host named
/// after its socket.
fn answers(site: &Site<'_>) -> String {
    match site.upstreams.first() {
        Some(socket) => {
            format!(
                "proxy.preserve-host: ON\n        proxy.reverse.url: \"http://[unix:{socket}]/\""
            )
        }
        None => format!("file.dir: {}", site.root.display()),
    }
}
