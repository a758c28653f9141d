//! TLS with programs by other authors: curl, openssl and wrk. A test of a program that is not
//! installed says so and passes.

use std::path::Path;
use std::process::{Command, Stdio};

use weir_tests::server::run;
use weir_tests::tls::{Authority, NAMES};
use weir_tests::{Root, Server, Setup, assert_same, suite};

use crate::WEIR;
use crate::peers::{is_installed, succeeds};

suite! {
    every_tls_architecture:
    curl_gets_and_sends_with_either_version,
    openssl_makes_a_handshake_and_resumes_it,
    wrk_sees_no_error_with_tls,
}

fn url(server: &Server, target: &str) -> String {
    format!("https://{}{target}", server.authority())
}

fn curl(arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new("curl");
    let command = command.args(["-sS", "--fail", "--max-time", "30"]).args(arguments);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn curl_gets_and_sends_with_either_version(setup: &Setup) {
    if !is_installed("curl") {
        return;
    }
    let (authority, root) = (Authority::new(), Root::new());
    let issued = authority.issue("server", &NAMES);
    let file = root.write_noise("noise", 1 << 20);
    let server = setup.serve(&root, &issued.options());
    let (ca, url) = (authority.file(), url(&server, &file.target));
    let ca = ["--cacert", ca.to_str().unwrap()];
    for version in [&["--tlsv1.3"][..], &["--tlsv1.2", "--tls-max", "1.2"]] {
        let body = curl(&[&ca[..], version, &[&url, &url]].concat());
        assert_same(&body, file.body.repeat(2), "both");
        let upload = [&ca[..], version, &["--data-binary", "some content", &url]].concat();
        let mut command = Command::new("curl");
        let status =
            succeeds(command.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}"]).args(upload));
        assert_eq!(status.stdout, "405");
    }
    server.stop_cleanly();
}

#[test]
fn curl_takes_a_certificate_of_the_servers_own_when_told_to() {
    if !is_installed("curl") {
        return;
    }
    let options = ["--listen", "https://127.0.0.1:0", "--tls-self-signed"];
    let root = Root::with_hello();
    let server = Server::start(WEIR, &options, &root);
    assert_eq!(curl(&["-k", &url(&server, "/hello.txt")]), b"hello");
    server.stop_cleanly();
}

/// Runs `openssl s_client` with a request, and returns what it prints.
fn s_client(server: &Server, ca: &Path, arguments: &[&str]) -> String {
    let request =
        "printf 'GET /hello.txt HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n'";
    let script = format!("{request} | openssl s_client -ign_eof -verify_return_error \"$@\" 2>&1");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", "-connect", &server.authority(), "-CAfile"]).arg(ca);
    succeeds(command.args(arguments)).stdout
}

fn openssl_makes_a_handshake_and_resumes_it(setup: &Setup) {
    if !is_installed("openssl") {
        return;
    }
    let (authority, root) = (Authority::new(), Root::with_hello());
    let issued = authority.issue("server", &NAMES);
    let server = setup.serve(&root, &issued.options());
    for (version, suite) in [("-tls1_3", "TLS_AES_256_GCM_SHA384"), ("-tls1_2", "ECDHE-ECDSA-")] {
        let session = root.outside().join("session");
        let file = session.to_str().unwrap();
        let first = s_client(&server, &authority.file(), &[version, "-sess_out", file]);
        assert!(first.contains("hello") && first.contains(suite), "{first}");
        assert!(first.contains("New, "), "{first}");
        let again = s_client(&server, &authority.file(), &[version, "-sess_in", file]);
        assert!(again.contains("hello") && again.contains("Reused, "), "{again}");
    }
    server.stop_cleanly();
}

fn wrk_sees_no_error_with_tls(setup: &Setup) {
    if !is_installed("wrk") {
        return;
    }
    let (authority, root) = (Authority::new(), Root::with_hello());
    let server = setup.serve(&root, &authority.issue("server", &NAMES).options());
    let mut command = Command::new("wrk");
    let stopped = run(command.args(["-t1", "-c8", "-d1s", &url(&server, "/hello.txt")]));
    assert!(stopped.status.success(), "{}", stopped.stderr);
    let has_error = stopped.stdout.contains("Socket errors") || stopped.stdout.contains("Non-2xx");
    assert!(!has_error && !stopped.stdout.contains(" 0 requests in"), "{}", stopped.stdout);
    server.stop_cleanly();
}
