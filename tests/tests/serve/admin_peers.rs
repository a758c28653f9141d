//! What an operator's other programs make of the admin address: a browser of the live page,
//! Prometheus of the metrics, and the alerts and the dashboard in `contrib`. A test of a program
//! that is not installed says so and passes.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weir_tests::origin::{Gate, reply};
use weir_tests::wait::until;
use weir_tests::{Address, Origin, Root, Server, request};

use crate::WEIR;
use crate::admin::{ADMIN, admin, ask, metric};
use crate::peers::{is_installed, succeeds};

fn contrib(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib").join(path)
}

/// Returns the words of a text that are names of metrics of a server.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric = |word: &&str| {
        let rest = word.strip_prefix("weir_").or(word.strip_prefix("process_"));
        rest.is_some_and(|rest| !rest.is_empty())
    };
    words.filter(is_metric).collect()
}

#[test]
fn the_alerts_and_the_dashboard_name_metrics_that_there_are() {
    let server = Server::proxy(WEIR, &["http://127.0.0.1:1"], &ADMIN);
    let metrics = ask(&admin(&server), "/metrics").text();
    let known = metrics_in(&metrics);
    for file in ["prometheus/weir.rules.yml", "grafana/weir.json"] {
        let text = fs::read_to_string(contrib(file)).unwrap();
        let named = metrics_in(&text);
        assert!(named.len() >= 6, "{file}: {named:?}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    let dashboard = fs::read_to_string(contrib("grafana/weir.json")).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&dashboard).is_ok());
}

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics_and_the_alerts() {
    if !is_installed("promtool") {
        return;
    }
    let server = Server::proxy(WEIR, &["http://127.0.0.1:1"], &ADMIN);
    let metrics = ask(&admin(&server), "/metrics").text();
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    promtool.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let rules = contrib("prometheus/weir.rules.yml");
    succeeds(Command::new("promtool").args(["check", "rules"]).arg(rules));
    let tests = contrib("prometheus/weir.rules.test.yml");
    succeeds(Command::new("promtool").args(["test", "rules"]).arg(tests));
}

#[test]
fn chromium_shows_the_live_page() {
    let Some(browser) =
        ["chromium", "chromium-browser"].into_iter().find(|name| is_installed(name))
    else {
        return;
    };
    let root = Root::with_hello();
    let server = Server::start(WEIR, &ADMIN, &root);
    let address = admin(&server);
    until("a second was measured", || ask(&address, "/status.json").text().contains("Calm"));
    let Address::Tcp(tcp) = &address else { panic!("a TCP address") };
    let url = format!("http://{tcp}/");
    let mut chromium = Command::new(browser);
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    chromium.arg("--virtual-time-budget=5000");
    chromium.arg(format!("--user-data-dir={}", root.outside().join("profile").display()));
    let dom = succeeds(chromium.arg(url)).stdout;
    for words in ["Calm: no requests.", "waited too long", "% of offered", ">now</text>"] {
        assert!(dom.contains(words), "{words:?}:\n{dom}");
    }
}

#[test]
fn an_overload_of_an_upstream_is_in_the_metrics_the_status_and_the_log() {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = Origin::start(move |_| {
        at_origin.pass();
        reply(b"late")
    });
    let few = ["--max-in-flight", "1", "--queue-target", "10ms"];
    let server = Server::proxy(WEIR, &[&origin.url()], &[&ADMIN[..], &few].concat());
    let address = admin(&server);
    let of = |name: &str| {
        let name = format!("weir_upstream_{name}{{upstream=\"default\"}}");
        metric(&ask(&address, "/metrics").text(), &name)
    };
    let mut first = server.connect();
    first.send(request("GET", "/", &[]));
    until("it is in flight", || of("in_flight") == Some(1.0));
    assert_eq!((of("limit"), of("servers"), of("servers_down")), (Some(1.0), Some(1.0), Some(0.0)));
    until("the log says that an overload begins", || {
        assert_eq!(server.get("/").status, 503, "it has waited for longer than the target");
        server.stderr_so_far().contains("an overload begins. Refusing ")
    });
    let status = ask(&address, "/status.json").text();
    assert!(status.contains("of requests for upstreams"), "{status}");
    gate.open();
    assert_eq!(first.reply().text(), "late");
    until("nothing is in flight", || of("in_flight") == Some(0.0));
    server.stop_cleanly();
}
