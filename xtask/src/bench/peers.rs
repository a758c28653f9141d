//! The servers that are compared, and how each is told to do the same work: one worker process, no
//! access log, sendfile, connections kept open without limit. Everything a server reads or writes
//! lies in the folder of its run; no file of the system is used.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::process::CommandLine;

/// A server, with what distinguishes one contestant from another.
#[derive(Clone, Debug)]
pub(super) enum Server {
    /// `weir serve` with these options.
    Weir { program: PathBuf, options: Vec<String> },
    /// The bare epoll loop, whatever is asked answering with a body of this size.
    Bare { program: PathBuf, reply_bytes: u64 },
    /// nginx, from this program.
    Nginx(PathBuf),
    /// h2o, from this program.
    H2o(PathBuf),
    /// lighttpd, from this program.
    Lighttpd(PathBuf),
}

/// Where a server runs: its own folder, the files it serves, the address it listens on.
pub(super) struct Site<'a> {
    pub(super) folder: &'a Path,
    pub(super) files: &'a Path,
    pub(super) address: SocketAddr,
}

impl Server {
    /// How the server is started at `site`; writes its configuration there when it needs one.
    pub(super) fn command_line(&self, site: &Site<'_>) -> Result<CommandLine> {
        let (program, arguments) = match self {
            Self::Weir { program, options } => (program, weir(options, site)),
            Self::Bare { program, reply_bytes } => (program, bare(*reply_bytes, site)),
            Self::Nginx(program) => (program, nginx(site)?),
            Self::H2o(program) => (program, h2o(site)?),
            Self::Lighttpd(program) => (program, lighttpd(site)?),
        };
        Ok(CommandLine { program: program.clone(), arguments })
    }
}

fn weir(options: &[String], site: &Site<'_>) -> Vec<String> {
    let listen = site.address.to_string();
    let files = site.files.display().to_string();
    let common = ["serve".to_owned(), files, "--listen".to_owned(), listen];
    let one_loop = ["--workers".to_owned(), "1".to_owned()];
    common.into_iter().chain(one_loop).chain(options.iter().cloned()).collect()
}

fn bare(reply_bytes: u64, site: &Site<'_>) -> Vec<String> {
    let (listen, reply) = (site.address.to_string(), reply_bytes.to_string());
    vec!["--listen".to_owned(), listen, "--reply".to_owned(), reply]
}

fn nginx(site: &Site<'_>) -> Result<Vec<String>> {
    let (folder, files) = (site.folder.display(), site.files.display());
    let user = if is_root() { "user root;" } else { "" };
    let configuration = format!(
        "daemon off;
worker_processes 1;
{user}
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
worker_rlimit_nofile 20000;
events {{ worker_connections 16000; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    open_file_cache max=1000 inactive=60s;
    open_file_cache_valid 1s;
    default_type application/octet-stream;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {address} backlog=4096;
        root {files};
    }}
}}
",
        address = site.address,
    );
    let path = write(site, "nginx.conf", &configuration)?;
    let log = format!("{folder}/nginx.log");
    // -e: before it has read its configuration, nginx logs to a file of the system.
    Ok(vec!["-e".to_owned(), log, "-p".to_owned(), folder.to_string(), "-c".to_owned(), path])
}

fn h2o(site: &Site<'_>) -> Result<Vec<String>> {
    let user = if is_root() { "user: root" } else { "" };
    let configuration = format!(
        "{user}
num-threads: 1
max-connections: 16000
http1-request-timeout: 3600
pid-file: {folder}/h2o.pid
error-log: {folder}/h2o.log
temp-buffer-path: {folder}
listen:
  host: {host}
  port: {port}
hosts:
  default:
    paths:
      /:
        file.dir: {files}
",
        folder = site.folder.display(),
        files = site.files.display(),
        host = site.address.ip(),
        port = site.address.port(),
    );
    let path = write(site, "h2o.conf", &configuration)?;
    Ok(vec!["--mode=worker".to_owned(), "--conf".to_owned(), path])
}

fn lighttpd(site: &Site<'_>) -> Result<Vec<String>> {
    // 65535 requests per connection is the most lighttpd counts to; 0 would be one.
    let configuration = format!(
        "server.document-root = \"{files}\"
server.bind = \"{host}\"
server.port = {port}
server.modules = ()
server.errorlog = \"{folder}/lighttpd.log\"
server.pid-file = \"{folder}/lighttpd.pid\"
server.upload-dirs = ( \"{folder}\" )
server.max-worker = 0
server.max-fds = 20000
server.max-connections = 16000
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 3600
server.listen-backlog = 4096
server.network-backend = \"sendfile\"
server.stat-cache-engine = \"simple\"
mimetype.assign = ( \"\" => \"application/octet-stream\" )
",
        folder = site.folder.display(),
        files = site.files.display(),
        host = site.address.ip(),
        port = site.address.port(),
    );
    let path = write(site, "lighttpd.conf", &configuration)?;
    Ok(vec!["-D".to_owned(), "-f".to_owned(), path])
}

fn write(site: &Site<'_>, name: &str, text: &str) -> Result<String> {
    let path = site.folder.join(name);
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where `program` is installed: the search path, and the places servers are kept in.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = env::split_paths(&path).chain(extra);
    folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()))
}

/// The first line a program says about its version.
pub(super) fn version(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else { return "unknown".to_owned() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use crate::bench::process::{Running, free_address};

    #[test]
    fn weir_gets_one_loop_and_its_options_last() {
        let site = Site {
            folder: Path::new("/tmp/x"),
            files: Path::new("/tmp/www"),
            address: SocketAddr::from(([127, 0, 0, 1], 9)),
        };
        let options = ["--mechanism", "poll"].map(str::to_owned).to_vec();
        let server = Server::Weir { program: "weir".into(), options };
        let arguments = server.command_line(&site).unwrap().arguments.join(" ");
        let expected = "serve /tmp/www --listen 127.0.0.1:9 --workers 1 --mechanism poll";
        assert_eq!(arguments, expected);
    }

    /// Every peer that is installed takes the configuration it is given, and serves the file.
    #[test]
    fn installed_peers_serve_a_file() {
        let kinds = [("nginx", Server::Nginx as fn(PathBuf) -> Server, 21_000)];
        let kinds = kinds.into_iter().chain([
            ("h2o", Server::H2o as fn(PathBuf) -> Server, 21_100),
            ("lighttpd", Server::Lighttpd as fn(PathBuf) -> Server, 21_200),
        ]);
        for (name, server, port) in kinds {
            let Some(program) = find(name) else {
                println!("{name} is not installed: skipped");
                continue;
            };
            let reply = reply_of(&server(program), port);
            assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{name}: {reply}");
            assert!(reply.ends_with("\r\n\r\nhello"), "{name}: {reply}");
        }
    }

    fn reply_of(server: &Server, port: u16) -> String {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("www");
        fs::create_dir(&files).unwrap();
        fs::write(files.join("5.bin"), "hello").unwrap();
        let address = free_address(port).unwrap();
        let site = Site { folder: folder.path(), files: &files, address };
        let line = server.command_line(&site).unwrap();
        let _running = Running::start(&line, address, folder.path()).unwrap();
        let mut connection = TcpStream::connect(address).unwrap();
        let request = "GET /5.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        connection.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        connection.read_to_string(&mut reply).unwrap();
        reply
    }

    #[test]
    fn what_is_not_installed_is_not_found() {
        assert_eq!(find("no-such-server-of-this-name"), None);
        assert!(find("sh").is_some());
        assert_eq!(version(Path::new("/no/such/program"), "-v"), "unknown");
    }
}
