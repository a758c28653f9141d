//! lighttpd: its configuration.

use std::path::Path;

use super::program::{ServerProgram, Site, lines};
use crate::allow_list::{AllowList, Syntax, ValueShape};
use crate::experiment::ServerSpec;

pub(super) const PROGRAM: ServerProgram = ServerProgram {
    binaries: &["lighttpd"],
    package: "Debian's package lighttpd",
    version_flag: "-v",
    config_file: "server.conf",
    configuration,
    arguments: &["-D", "-f", "{config}"],
    allowed: AllowList {
        program: "lighttpd",
        syntax: Syntax::Equals,
        options: &[
            ("connection.kbytes-per-second", ValueShape::Number),
            ("deflate.compression-level", ValueShape::Number),
            ("server.event-handler", ValueShape::OneOf(&["linux-sysepoll", "poll", "select"])),
            ("server.follow-symlink", ValueShape::OneOf(&["enable", "disable"])),
            ("server.kbytes-per-second", ValueShape::Number),
            ("server.max-read-idle", ValueShape::Number),
            ("server.max-request-field-size", ValueShape::Number),
            ("server.max-request-size", ValueShape::Number),
            ("server.max-write-idle", ValueShape::Number),
            ("server.range-requests", ValueShape::OneOf(&["enable", "disable"])),
        ],
    },
};

fn configuration(site: &Site<'_>) -> Result<String, String> {
    let spec = site.spec;
    // One process serves by itself; several have a parent that does not.
    let workers = if site.workers > 1 { site.workers } else { 0 };
    let backlog = spec.backlog().map(|n| format!("server.listen-backlog = {n}\n"));
    if let Some(why) = lack(spec.gzip(), MODULE_DIRS) {
        return Err(why);
    }
    let (modules, gzip) = if spec.gzip() { ("\"mod_deflate\"", GZIP) } else { ("", "") };
    // 65535 requests per connection is the most lighttpd counts to; 0 would be one.
    Ok(format!(
        "server.document-root = \"{root}\"
server.bind = \"{host}\"
server.port = {port}
server.modules = ( {modules} )
server.errorlog = \"{dir}/lighttpd.log\"
server.pid-file = \"{dir}/lighttpd.pid\"
server.upload-dirs = ( \"{dir}\" )
server.max-worker = {workers}
server.max-fds = {files}
server.max-connections = {conns}
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 3600
server.network-backend = \"sendfile\"
server.stat-cache-engine = \"simple\"
mimetype.assign = ( \".html\" => \"text/html\", \".txt\" => \"text/plain\",
    \"\" => \"application/octet-stream\" )
{backlog}{gzip}{options}",
        root = site.root.display(),
        host = site.address.ip(),
        port = site.address.port(),
        dir = site.dir.display(),
        files = site.files_max.min(1 << 20),
        conns = site.conns_max(),
        backlog = backlog.unwrap_or_default(),
        options = lines(&spec.options),
    ))
}

/// Compression settings. Without a cache directory each reply is compressed anew, however high the
/// load average is.
const GZIP: &str = "deflate.mimetypes = ( \"text/html\", \"text/plain\" )
deflate.allowed-encodings = ( \"gzip\" )
deflate.max-loadavg = \"1000000.00\"
";

/// Directories in which distributions install its modules.
const MODULE_DIRS: &[&str] =
    &["/usr/lib/lighttpd", "/usr/lib64/lighttpd", "/usr/local/lib/lighttpd"];

/// Returns why this machine's lighttpd cannot do what it is asked for; `None` if it can.
pub(super) fn cannot(spec: &ServerSpec) -> Option<String> {
    lack(spec.gzip(), MODULE_DIRS)
}

/// Returns what is said where the compression module is wanted and in none of the directories.
/// Without it, lighttpd starts nevertheless, and would send the page uncompressed.
fn lack(compresses: bool, dirs: &[&str]) -> Option<String> {
    let is_there = dirs.iter().any(|dir| Path::new(dir).join("mod_deflate.so").is_file());
    (compresses && !is_there).then(|| {
        "lighttpd cannot compress here: Debian's package lighttpd-mod-deflate has the module"
            .to_owned()
    })
}

/// Returns whether this machine's lighttpd can compress.
pub(super) fn can_compress() -> bool {
    lack(true, MODULE_DIRS).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_module_is_said_with_its_package_where_it_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = ["/nowhere", dir.path().to_str().unwrap()];
        let why = lack(true, &dirs).unwrap();
        assert!(why.contains("Debian's package lighttpd-mod-deflate"), "{why}");
        assert_eq!(lack(false, &dirs), None);
        std::fs::write(dir.path().join("mod_deflate.so"), "").unwrap();
        assert_eq!(lack(true, &dirs), None);
    }
}
