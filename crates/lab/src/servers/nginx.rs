//! nginx: its configuration.

use super::program::{APPLICATION, ServerProgram, Site, quoted};
use crate::allow_list::{AllowList, Syntax, ValueShape};

pub(super) const PROGRAM: ServerProgram = ServerProgram {
    binaries: &["nginx"],
    package: "Debian's package nginx",
    version_flag: "-v",
    config_file: "server.conf",
    configuration,
    // -e: until it has read its configuration, nginx logs to a system-wide file.
    arguments: &["-e", "{dir}/nginx.log", "-p", "{dir}", "-c", "{config}"],
    allowed: AllowList {
        program: "nginx",
        syntax: Syntax::Statement,
        options: &[
            ("accept_mutex", ValueShape::Switch),
            ("accept_mutex_delay", ValueShape::Quantity),
            ("aio", ValueShape::OneOf(&["on", "off", "threads"])),
            ("client_body_timeout", ValueShape::Quantity),
            ("client_header_timeout", ValueShape::Quantity),
            ("directio", ValueShape::Quantity),
            ("gzip_comp_level", ValueShape::Number),
            ("gzip_min_length", ValueShape::Quantity),
            ("lingering_close", ValueShape::OneOf(&["on", "off", "always"])),
            ("lingering_timeout", ValueShape::Quantity),
            ("multi_accept", ValueShape::Switch),
            ("pcre_jit", ValueShape::Switch),
            ("postpone_output", ValueShape::Number),
            ("read_ahead", ValueShape::Quantity),
            ("reset_timedout_connection", ValueShape::Switch),
            ("send_timeout", ValueShape::Quantity),
            ("sendfile_max_chunk", ValueShape::Quantity),
            ("server_tokens", ValueShape::Switch),
            ("ssl_buffer_size", ValueShape::Quantity),
            ("ssl_session_cache", ValueShape::OneOf(&["off", "none"])),
            ("ssl_session_tickets", ValueShape::Switch),
            ("tcp_nodelay", ValueShape::Switch),
            ("timer_resolution", ValueShape::Quantity),
            ("use", ValueShape::OneOf(&["poll", "epoll"])),
            ("worker_aio_requests", ValueShape::Number),
        ],
    },
};

/// Directives of the `events` block.
const OF_EVENTS: &[&str] =
    &["multi_accept", "accept_mutex", "accept_mutex_delay", "use", "worker_aio_requests"];

/// Directives of the main context.
const OF_MAIN: &[&str] = &["timer_resolution", "pcre_jit", "worker_priority", "thread_pool"];

fn configuration(site: &Site<'_>) -> Result<String, String> {
    let user = if site.as_root { "user root;\n" } else { "" };
    let backlog = site.spec.backlog().map(|n| format!(" backlog={n}")).unwrap_or_default();
    let gzip = if site.spec.gzip() { "    gzip on;\n" } else { "" };
    let upstream = upstream(&site.upstreams);
    let answers = answers(site);
    let (ssl, identity) = tls(site);
    Ok(format!(
        "daemon off;
worker_processes {workers};
{user}{main}pid {pid};
error_log {errors} warn;
worker_rlimit_nofile {files};
events {{
    worker_connections {conns};
{events}}}
http {{
    access_log {log};
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    open_file_cache max=1000 inactive=60s;
    open_file_cache_valid 1s;
    default_type application/octet-stream;
    types {{ text/html html; text/plain txt; }}
{gzip}{http}{upstream}{folders}    server {{
        listen {address}{ssl}{backlog};
{identity}{answers}    }}
}}
",
        workers = site.workers,
        main = directives(site, is_of(OF_MAIN), ""),
        events = directives(site, is_of(OF_EVENTS), "    "),
        http = directives(site, |name| !is_of(OF_MAIN)(name) && !is_of(OF_EVENTS)(name), "    "),
        pid = quoted(&site.dir.join("nginx.pid")),
        errors = quoted(&site.dir.join("nginx.log")),
        folders = folders(site),
        log = access_log(site),
        files = site.files_max,
        conns = site.conns_max(),
        address = site.address,
    ))
}

/// Returns the directives for the folders of what it writes to a file in between.
fn folders(site: &Site<'_>) -> String {
    let line = |name: &str| format!("    {name}_temp_path {};\n", quoted(&site.dir.join(name)));
    ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(line).concat()
}

/// Returns the parameters of its access log: lines wait as long as weir's do, at most.
fn access_log(site: &Site<'_>) -> String {
    match site.spec.access_log() {
        true => format!("{} combined buffer=32k flush=1s", quoted(&site.dir.join("access.log"))),
        false => "off".to_owned(),
    }
}

/// Returns the parameter of an address with TLS, and the directives of the certificate.
fn tls(site: &Site<'_>) -> (&'static str, String) {
    let Some(files) = &site.tls else { return ("", String::new()) };
    let (certificate, key) = (quoted(&files.certificate), quoted(&files.key));
    let directives = format!(
        "        ssl_certificate {certificate};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.2 TLSv1.3;
"
    );
    (" ssl", directives)
}

/// Returns the upstream block, if there are upstreams, with connections that are reused.
fn upstream(sockets: &[String]) -> String {
    let servers: String = sockets.iter().map(|one| format!("server unix:{one}; ")).collect();
    match servers.is_empty() {
        true => servers,
        false => format!("    upstream behind {{ {servers}keepalive 1024; }}\n"),
    }
}

/// Returns the locations: files, and what is passed on.
fn answers(site: &Site<'_>) -> String {
    let files = format!("        root {};\n", quoted(site.root));
    match (site.upstreams.is_empty(), site.serves_files) {
        (true, _) => files,
        (false, false) => format!("        location / {PASS_ON}"),
        (false, true) => format!("{files}        location {APPLICATION}/ {PASS_ON}"),
    }
}

/// Proxy settings. The buffers hold a whole page; nginx writes what does not fit to a file.
const PASS_ON: &str = "{
            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffers 8 16k;
        }
";

fn is_of(block: &'static [&'static str]) -> impl Fn(&str) -> bool {
    |name| block.contains(&name)
}

/// Returns the options that belong to a block, one per line; their semicolon is optional.
fn directives(site: &Site<'_>, belongs: impl Fn(&str) -> bool, indent: &str) -> String {
    let name = |option: &str| option.split_whitespace().next().unwrap_or_default().to_owned();
    let options = site.spec.options.iter().map(|option| option.trim());
    options
        .filter(|option| belongs(&name(option)))
        .map(|option| {
            let end = if option.ends_with([';', '}']) { "" } else { ";" };
            format!("{indent}{option}{end}\n")
        })
        .collect()
}
