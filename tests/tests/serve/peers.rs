//! Programs by other authors: curl, wget, wrk, ab and chromium as clients, and the documentation of
//! Rust as a tree to serve. A test of a program that is not installed says so and passes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use weir_tests::files::{LAST_MODIFIED, noise, target_of};
use weir_tests::server::run;
use weir_tests::{Root, Server, Setup, Stopped, assert_same, suite};

use crate::WEIR;

suite! {
    every_architecture:
    curl_gets_ranges_and_honours_dates,
    curl_sends_a_body_with_expect_100_continue,
    wget_mirrors_a_tree_byte_for_byte,
    sixty_four_connections_mirror_the_documentation_of_rust,
    wrk_sees_no_error,
    ab_sees_no_error,
    chromium_shows_a_page_with_its_script_and_style,
}

/// Returns whether the program is installed; prints a message if not.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).exists()));
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

fn url(server: &Server, target: &str) -> String {
    format!("http://{}{target}", server.authority())
}

pub(crate) fn succeeds(command: &mut Command) -> Stopped {
    let stopped = run(command);
    assert!(stopped.status.success(), "{command:?}: {}{}", stopped.stdout, stopped.stderr);
    stopped
}

/// Runs curl with its output in a file; returns the bytes and the status code.
fn curl(dir: &Path, arguments: &[&str]) -> (Vec<u8>, String) {
    let out = dir.join("out");
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "30", "-w", "%{http_code}", "-o"]).arg(&out).args(arguments);
    let status = succeeds(&mut command).stdout;
    let bytes = fs::read(&out).unwrap_or_default();
    let _ = fs::remove_file(out);
    (bytes, status)
}

fn curl_gets_ranges_and_honours_dates(setup: &Setup) {
    if !is_installed("curl") {
        return;
    }
    let root = Root::new();
    let body = noise(1, 100_000);
    root.write("file", &body);
    let server = setup.serve(&root, &[]);
    let url = url(&server, "/file");
    let curl = |arguments: &[&str]| curl(root.outside(), arguments);
    assert!(curl(&[&url]) == (body.clone(), "200".to_owned()));
    assert!(curl(&["-r", "100-199", &url]) == (body[100..200].to_vec(), "206".to_owned()));
    assert!(curl(&["-r", "-5", &url]) == (body[99_995..].to_vec(), "206".to_owned()));
    assert_eq!(curl(&["-z", LAST_MODIFIED, &url]), (vec![], "304".to_owned()));
    assert!(curl(&["-z", "Sat, 01 Jan 2000 00:00:00 GMT", &url]).0 == body);
    let (_, status) = curl(&["-I", &url]);
    assert_eq!(status, "200");
    server.stop_cleanly();
}

fn curl_sends_a_body_with_expect_100_continue(setup: &Setup) {
    if !is_installed("curl") {
        return;
    }
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    let upload = root.write("upload", noise(2, 2_000_000));
    let large = format!("@{}", upload.display());
    let url = url(&server, "/hello.txt");
    let (_, status) = curl(root.outside(), &["--data-binary", &large, &url]);
    assert!(status == "405" || status == "413", "{status}");
    let (body, _) = curl(root.outside(), &[&url]);
    assert_eq!(body, b"hello");
}

/// Writes a tree of some 300 files whose pages link to all of them.
fn write_tree(root: &Root) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut top = String::from("<!doctype html><title>top</title>\n");
    for dir in 0..10 {
        let mut page = String::from("<!doctype html><title>dir</title>\n");
        for file in 0..29 {
            let name = format!("dir{dir}/file{file}.bin");
            page.push_str(&format!("<a href=\"file{file}.bin\">{file}</a>\n"));
            files.push((name, noise(dir * 100 + file, (file * file * 97) as usize)));
        }
        top.push_str(&format!("<a href=\"dir{dir}/\">{dir}</a>\n"));
        files.push((format!("dir{dir}/index.html"), page.into_bytes()));
    }
    files.push(("index.html".to_owned(), top.into_bytes()));
    for (name, bytes) in &files {
        root.write(name, bytes);
    }
    files
}

fn wget_mirrors_a_tree_byte_for_byte(setup: &Setup) {
    if !is_installed("wget") {
        return;
    }
    let root = Root::new();
    let files = write_tree(&root);
    let server = setup.serve(&root, &[]);
    let mirror = root.outside().join("mirror");
    let mut wget = Command::new("wget");
    wget.args(["-q", "-m", "-nH", "-e", "robots=off", "--tries=1", "-P"]).arg(&mirror);
    succeeds(wget.arg(url(&server, "/")));
    for (name, bytes) in files {
        assert!(fs::read(mirror.join(&name)).expect(&name) == bytes, "{name}");
    }
    server.stop_cleanly();
}

/// Returns the directory of Rust's documentation, and some of its files by relative name; `None` if
/// it is not installed.
fn documentation() -> Option<&'static (PathBuf, Vec<String>)> {
    static FOUND: OnceLock<Option<(PathBuf, Vec<String>)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let printed = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
        let sysroot = String::from_utf8(printed.stdout).ok()?;
        let root = Path::new(sysroot.trim()).join("share/doc/rust/html");
        let names = sample(files_below(&root));
        (!names.is_empty()).then_some((root, names))
    });
    if found.is_none() {
        println!("skipped: the documentation of Rust is not installed");
    }
    found.as_ref()
}

/// Returns the files below a directory that a server shows, by relative name.
fn files_below(root: &Path) -> Vec<String> {
    let (mut dirs, mut files) = (vec![String::new()], Vec::new());
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(root.join(&dir)).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = entry.file_type().unwrap();
            match format!("{dir}{name}") {
                _ if name.starts_with('.') => (),
                path if kind.is_dir() => dirs.push(path + "/"),
                path if kind.is_file() => files.push(path),
                _ => (),
            }
        }
    }
    files.sort();
    files
}

/// Returns all names, or 2,000 evenly spread ones if there are more and the environment does not
/// ask for all.
fn sample(names: Vec<String>) -> Vec<String> {
    let all = std::env::var_os("WEIR_TEST_ALL").is_some();
    let step = if all { 1 } else { names.len().div_ceil(2000).max(1) };
    names.into_iter().step_by(step).collect()
}

fn sixty_four_connections_mirror_the_documentation_of_rust(setup: &Setup) {
    const CONNECTIONS: usize = 64;
    let Some((root, names)) = documentation() else { return };
    let server = setup.serve(root, &[]);
    thread::scope(|scope| {
        for first in 0..CONNECTIONS {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect();
                for name in names.iter().skip(first).step_by(CONNECTIONS) {
                    let reply = client.get(&target_of(name));
                    assert_eq!(reply.status, 200, "{name}");
                    assert_same(&reply.body, fs::read(root.join(name)).unwrap(), name);
                }
            });
        }
    });
    let stats = server.stop_cleanly().stats();
    assert_eq!(stats["total"]["replies"], names.len(), "{stats}");
}

fn wrk_sees_no_error(setup: &Setup) {
    if !is_installed("wrk") {
        return;
    }
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    let sees_no_error = |connections| {
        let mut wrk = Command::new("wrk");
        wrk.args(["-t1", "-d1s", "-c", connections]).arg(url(&server, "/hello.txt"));
        let report = succeeds(&mut wrk).stdout;
        assert!(report.contains("requests in"), "{report}");
        assert!(!report.contains("Socket errors") && !report.contains("Non-2xx"), "{report}");
    };
    thread::scope(|scope| {
        for connections in ["1", "40"] {
            scope.spawn(move || sees_no_error(connections));
        }
    });
    server.stop_cleanly();
}

/// Returns the number in a line of ab's report.
fn figure(report: &str, label: &str) -> Option<u64> {
    let line = report.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

fn ab_sees_no_error(setup: &Setup) {
    if !is_installed("ab") {
        return;
    }
    let root = Root::new();
    root.write_noise("file", 6144);
    let server = setup.serve(&root, &[]);
    for (connections, keep_alive) in [("1", ""), ("1", "-k"), ("64", ""), ("64", "-k")] {
        let mut ab = Command::new("ab");
        ab.args(["-q", "-n", "2000", "-c", connections])
            .args((!keep_alive.is_empty()).then_some("-k"));
        let report = succeeds(ab.arg(url(&server, "/file"))).stdout;
        assert_eq!(figure(&report, "Complete requests:"), Some(2000), "{report}");
        assert_eq!(figure(&report, "Failed requests:"), Some(0), "{report}");
        assert_eq!(figure(&report, "HTML transferred:"), Some(2000 * 6144), "{report}");
        assert!(!report.contains("Non-2xx"), "{report}");
        let kept = figure(&report, "Keep-Alive requests:").unwrap_or(0);
        assert_eq!(kept > 0, keep_alive == "-k", "{report}");
    }
    server.stop_cleanly();
}

fn chromium_shows_a_page_with_its_script_and_style(setup: &Setup) {
    let Some(browser) =
        ["chromium", "chromium-browser"].into_iter().find(|name| is_installed(name))
    else {
        return;
    };
    let root = Root::new();
    let page = "<!doctype html><link rel=stylesheet href=style.css><p id=p>waiting</p>\
        <script src=script.js></script>";
    root.write("index.html", page);
    root.write("style.css", "#p { color: rgb(1, 2, 3) }");
    let script = "const p = document.getElementById('p');\
        p.textContent = 'ran, ' + getComputedStyle(p).color;";
    root.write("script.js", script);
    let server = setup.serve(&root, &[]);
    let mut chromium = Command::new(browser);
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    chromium.arg(format!("--user-data-dir={}", root.outside().join("profile").display()));
    let dom = succeeds(chromium.arg(url(&server, "/"))).stdout;
    assert!(dom.contains("ran, rgb(1, 2, 3)"), "{dom}");
    server.stop_cleanly();
}
