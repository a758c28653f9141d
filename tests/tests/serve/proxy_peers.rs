//! Servers by other authors behind a proxy, and a browser in front of it. A test of a program that
//! is not installed says so and passes.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use weir_tests::wait::until;
use weir_tests::{Root, Server, request};

use crate::WEIR;
use crate::peers::{is_installed, succeeds};

/// A server by another author; killed when dropped.
struct Peer {
    child: Child,
    port: u16,
}

impl Peer {
    /// Starts a program in a folder with a file of this name and text; `arguments` gives its
    /// arguments for a port. `None` if it is not installed.
    fn start(
        program: &str,
        (file, text): (&str, &str),
        folder: &Path,
        arguments: impl Fn(u16) -> Vec<String>,
    ) -> Option<Self> {
        if !is_installed(program) {
            return None;
        }
        std::fs::write(folder.join(file), text).unwrap();
        let port = free_port();
        let mut command = Command::new(program);
        command.args(arguments(port)).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let peer = Self { child: command.spawn().unwrap(), port };
        until("it listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        Some(peer)
    }

    fn proxy(&self) -> Server {
        Server::proxy(WEIR, &[&format!("http://127.0.0.1:{}", self.port)], &[])
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port that nothing listens on.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Asserts what the applications of `tests/peers` answer through a proxy.
fn assert_answers(peer: &Peer) {
    let server = peer.proxy();
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/a").text(), "GET /a 0");
        let content = vec![b'x'; 1_000_000];
        let length = format!("Content-Length: {}", content.len());
        let head = request("POST", "/b", &[&length]);
        client.send([head.as_bytes(), &content].concat());
        assert_eq!(client.reply().text(), "POST /b 1000000");
        let chunk = format!("{:x}\r\n", content.len());
        let head = request("PUT", "/c", &["Transfer-Encoding: chunked"]) + &chunk;
        client.send([head.as_bytes(), &content, b"\r\n0\r\n\r\n"].concat());
        assert_eq!(client.reply().text(), "PUT /c 1000000");
        assert_eq!(client.get("/stream").body, b"line\n".repeat(1000));
        assert_eq!(client.head_with("/d", &[]).status, 200);
    }
    server.stop_cleanly();
}

#[test]
fn gunicorn_answers_behind_a_proxy() {
    let folder = Root::new();
    let file = ("wsgi.py", include_str!("../../peers/wsgi.py"));
    let arguments = |port| vec!["-b".to_owned(), format!("127.0.0.1:{port}"), "wsgi".to_owned()];
    if let Some(peer) = Peer::start("gunicorn", file, folder.outside(), arguments) {
        assert_answers(&peer);
    }
}

#[test]
fn uvicorn_answers_behind_a_proxy() {
    let folder = Root::new();
    let file = ("asgi.py", include_str!("../../peers/asgi.py"));
    let arguments =
        |port: u16| ["--port", &port.to_string(), "asgi:application"].map(str::to_owned).to_vec();
    if let Some(peer) = Peer::start("uvicorn", file, folder.outside(), arguments) {
        assert_answers(&peer);
    }
}

#[test]
fn puma_answers_behind_a_proxy() {
    let folder = Root::new();
    let file = ("config.ru", include_str!("../../peers/config.ru"));
    let arguments = |port| vec!["-b".to_owned(), format!("tcp://127.0.0.1:{port}")];
    if let Some(peer) = Peer::start("puma", file, folder.outside(), arguments) {
        assert_answers(&peer);
    }
}

#[test]
fn a_browser_posts_streams_and_speaks_websocket_through_a_proxy() {
    let Some(browser) =
        ["chromium", "chromium-browser"].into_iter().find(|name| is_installed(name))
    else {
        return;
    };
    let folder = Root::new();
    let file = ("browser.py", include_str!("../../peers/browser.py"));
    let arguments = |port: u16| vec!["browser.py".to_owned(), port.to_string()];
    let Some(peer) = Peer::start("python3", file, folder.outside(), arguments) else { return };
    let server = peer.proxy();
    let mut chromium = Command::new(browser);
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    chromium.arg(format!("--user-data-dir={}", folder.outside().join("profile").display()));
    let url = format!("http://{}/", server.authority());
    let dom = succeeds(chromium.arg(url)).stdout;
    assert!(dom.contains("saw 3000000, 3, 3 true"), "{dom}");
    server.stop_cleanly();
}
