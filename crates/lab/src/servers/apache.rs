//! Apache httpd with the event MPM: its configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::program::{ServerProgram, Site, lines, quoted};
use crate::allow_list::{AllowList, Syntax, ValueShape};

pub(super) const PROGRAM: ServerProgram = ServerProgram {
    binaries: &["apache2", "httpd"],
    package: "Debian's package apache2",
    version_flag: "-v",
    config_file: "server.conf",
    configuration,
    arguments: &["-f", "{config}", "-D", "FOREGROUND"],
    allowed: AllowList {
        program: "apache",
        syntax: Syntax::Line,
        options: &[
            ("AsyncRequestWorkerFactor", ValueShape::Number),
            ("DeflateCompressionLevel", ValueShape::Number),
            ("EnableMMAP", ValueShape::Switch),
            ("EnableSendfile", ValueShape::Switch),
            ("KeepAlive", ValueShape::Switch),
            ("KeepAliveTimeout", ValueShape::Number),
            ("ListenBackLog", ValueShape::Number),
            ("ListenCoresBucketsRatio", ValueShape::Number),
            ("MaxConnectionsPerChild", ValueShape::Number),
            ("MaxKeepAliveRequests", ValueShape::Number),
            ("MaxMemFree", ValueShape::Number),
            ("MaxRequestWorkers", ValueShape::Number),
            ("MaxSpareThreads", ValueShape::Number),
            ("MinSpareThreads", ValueShape::Number),
            ("ReceiveBufferSize", ValueShape::Number),
            ("SendBufferSize", ValueShape::Number),
            ("ServerLimit", ValueShape::Number),
            ("StartServers", ValueShape::Number),
            ("ThreadLimit", ValueShape::Number),
            ("ThreadsPerChild", ValueShape::Number),
            ("Timeout", ValueShape::Number),
        ],
    },
};

/// Directories in which distributions install its modules.
const MODULE_DIRS: &[&str] =
    &["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules", "/usr/lib/httpd/modules"];

/// Threads per child. A connection has a thread while it is served, not while it is kept open.
const THREADS: usize = 400;

/// Connections of a child per idle thread.
const CONNS_PER_THREAD: usize = 40;

/// Users to run as when started as root, which it refuses to stay; the first that exists is used.
const USERS: &[&str] = &["www-data", "apache", "nobody"];

fn configuration(site: &Site<'_>) -> Result<String, String> {
    let user = if site.as_root { user(site)? } else { String::new() };
    let backlog = site.spec.backlog().map(|n| format!("ListenBackLog {n}\n"));
    let gzip =
        if site.spec.gzip() { "AddOutputFilterByType DEFLATE text/html text/plain\n" } else { "" };
    Ok(format!(
        "ServerRoot {dir}
ServerName lab
PidFile {pid}
DefaultRuntimeDir {dir}
ErrorLog {errors}
LogLevel warn
{modules}{user}Listen {address}
{backlog}ServerLimit {workers}
StartServers {workers}
ThreadLimit {THREADS}
ThreadsPerChild {THREADS}
AsyncRequestWorkerFactor {CONNS_PER_THREAD}
MaxRequestWorkers {threads}
MinSpareThreads 1
MaxSpareThreads {threads}
MaxConnectionsPerChild 0
KeepAlive On
KeepAliveTimeout 3600
MaxKeepAliveRequests 0
EnableSendfile On
TypesConfig /dev/null
AddType text/html .html
AddType text/plain .txt
{gzip}{options}DocumentRoot {root}
<Directory {root}>
    AllowOverride None
    Require all granted
</Directory>
",
        dir = quoted(site.dir),
        pid = quoted(&site.dir.join("apache.pid")),
        errors = quoted(&site.dir.join("apache.log")),
        root = quoted(site.root),
        modules = modules(site.spec.gzip())?,
        address = site.address,
        backlog = backlog.unwrap_or_default(),
        workers = site.workers,
        threads = THREADS * site.workers,
        options = lines(&site.spec.options),
    ))
}

/// Returns the directives that load the modules it needs, except those built in.
fn modules(gzip: bool) -> Result<String, String> {
    let dir = MODULE_DIRS.iter().map(Path::new).find(|dir| dir.is_dir());
    let dir = dir.ok_or("the modules of Apache are not where they usually are")?;
    let names = ["mpm_event", "unixd", "authz_core", "mime"];
    let names = names.iter().chain(if gzip { &["filter", "deflate"][..] } else { &[] });
    let there = names.filter(|name| dir.join(format!("mod_{name}.so")).is_file());
    let line = |name| format!("LoadModule {name}_module {}/mod_{name}.so\n", dir.display());
    Ok(there.map(line).collect())
}

/// Returns the directive for its user, who must be able to read the document root.
fn user(site: &Site<'_>) -> Result<String, String> {
    for dir in site.root.ancestors() {
        let mode = fs::metadata(dir).map_or(0, |metadata| metadata.permissions().mode());
        if mode & 0o001 == 0 && !dir.as_os_str().is_empty() {
            return Err(format!(
                "Apache does not serve as root, and other users may not enter {}",
                dir.display()
            ));
        }
    }
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let is_known = |user: &&&str| known.lines().any(|line| line.starts_with(&format!("{user}:")));
    let user = USERS.iter().find(is_known).ok_or("there is no user for Apache to be")?;
    Ok(format!("User {user}\n"))
}
