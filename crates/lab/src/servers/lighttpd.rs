//! lighttpd: its configuration.

use std::path::Path;

use super::program::{ServerProgram, Site, lines};
use crate::allow_list::{AllowList, Syntax, ValueShape};

pub(super) const PROGRAM: ServerProgram = ServerProgram {
    binaries: &["lighttpd"],
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
    if spec.gzip() && !can_compress() {
        let why = "lighttpd cannot compress here: Debian's package lighttpd-mod-deflate has the \
                   module";
        return Err(why.to_owned());
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

/// Returns whether the compression module is installed. Without it, lighttpd starts nevertheless,
/// and would send the page uncompressed.
fn can_compress() -> bool {
    MODULE_DIRS.iter().any(|dir| Path::new(dir).join("mod_deflate.so").is_file())
}
