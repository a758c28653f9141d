//! Opens the page in Chromium as a reader would: from a file, without a network, at desktop and
//! phone widths. A probe injected into a copy of the page reports its observations to the
//! surrounding frame.

use std::fs;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use super::page;
use crate::report::fixtures::{self, HOSTILE};

/// Records all errors, from before the page's own scripts.
const WATCH: &str = "<script>window.wrong = [];
addEventListener('error', (e) => wrong.push(String(e.message)));
addEventListener('unhandledrejection', (e) => wrong.push(String(e.reason)));
addEventListener('securitypolicyviolation', (e) => wrong.push(e.violatedDirective));
console.error = console.warn = (...all) => wrong.push(all.join(' '));
</script>";

/// Waits until every figure is drawn, hides a series by its legend, hovers over a point, and
/// reports.
const PROBE: &str = "<script>(async () => {
const root = document.documentElement, next = () => new Promise((go) => setTimeout(go, 20));
while (!root.dataset.drawn && wrong.length === 0) await next();
const plots = [...document.querySelectorAll('.plot')];
const drawn = plots.filter((plot) => plot.querySelector('.live svg path')).length;
const still = plots.filter((plot) => plot.querySelector('.still svg')).length;
const live = plots[0].querySelector('.live'), legend = plots[0].nextElementSibling;
const button = legend.querySelector('button');
const chart = echarts.getInstanceByDom(live);
const shown = () => chart.getOption().series.filter((one) => one && /^\\d+$/.test(one.id)).length;
chart.dispatchAction({ type: 'showTip', seriesIndex: 0, dataIndex: 3 });
await next();
const hover = live.querySelector('.tip').textContent;
const before = shown();
button.click();
await next();
const after = shown();
const loaded = performance.getEntriesByType('resource').map((entry) => entry.name);
const bold = [...document.querySelectorAll('b')].some((b) => b.textContent === 'bold');
const labels = [...legend.querySelectorAll('span')].map((e) => e.textContent);
parent.postMessage({ wrong, plots: plots.length, drawn, still, hover, before, after,
  pressed: button.getAttribute('aria-pressed'), loaded, bold, labels,
  inner: innerWidth, room: root.clientWidth, wide: root.scrollWidth }, '*');
})();</script>";

/// The page at two widths, and the reports of the probes in the order of their widths. Frames are
/// needed because a browser's own window cannot be as narrow as a phone.
const FRAMES: &str = "<!DOCTYPE html><meta charset=utf-8><body><script>
const all = [];
addEventListener('message', (e) => {
  all.push(e.data);
  all.sort((one, other) => one.inner - other.inner);
  if (all.length === 2) document.documentElement.dataset.probe = JSON.stringify(all);
});
</script>
<iframe src=report.html style='width:390px;height:800px;border:0'></iframe>
<iframe src=report.html style='width:1200px;height:800px;border:0'></iframe>";

/// Returns the reports of the probe at phone and desktop width; `None` without Chromium.
fn seen() -> Option<[Value; 2]> {
    static SEEN: OnceLock<Option<[Value; 2]>> = OnceLock::new();
    let seen = SEEN.get_or_init(|| {
        let names = ["chromium", "chromium-browser"];
        let browser = names.into_iter().find(|name| {
            Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
        });
        browser.map(render)
    });
    if seen.is_none() {
        eprintln!("skipped: chromium is not installed");
    }
    seen.clone()
}

fn render(browser: &str) -> [Value; 2] {
    let dir = tempfile::tempdir().unwrap();
    let page = page(&fixtures::findings()).unwrap();
    let page = page.replacen("<style>", &format!("{WATCH}<style>"), 1);
    let page = page.replacen("</body>", &format!("{PROBE}</body>"), 1);
    fs::write(dir.path().join("report.html"), page).unwrap();
    fs::write(dir.path().join("frames.html"), FRAMES).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(["--dump-dom", "--virtual-time-budget=60000", "--window-size=1700,900"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("file://{}", dir.path().join("frames.html").display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let told = dom.split_once("data-probe=\"").and_then(|(_, rest)| rest.split_once('"'));
    let (told, _) = told.unwrap_or_else(|| {
        panic!("the page told nothing: {}", String::from_utf8_lossy(&output.stderr))
    });
    let told = told.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">");
    serde_json::from_str(&told.replace("&amp;", "&")).unwrap()
}

#[test]
fn chromium_draws_every_figure_loads_nothing_and_reports_no_error() {
    // The example has one figure without a point: a sentence takes its place.
    let figures = fixtures::findings().chapters.iter().map(|c| c.pictures.len()).sum::<usize>() - 1;
    for seen in seen().into_iter().flatten() {
        assert_eq!(seen["wrong"], Value::Array(Vec::new()));
        assert_eq!(seen["loaded"], Value::Array(Vec::new()));
        for what in ["plots", "drawn", "still"] {
            assert_eq!(seen[what], figures, "{what}");
        }
    }
}

#[test]
fn chromium_shows_a_point_that_is_pointed_at_and_hides_a_series_by_its_legend() {
    for seen in seen().into_iter().flatten() {
        let hover = seen["hover"].as_str().unwrap();
        assert!(hover.contains("16,000 /s") && hover.contains("1 flagged"), "{hover}");
        assert_eq!(seen["pressed"], "false");
        let count = |name: &str| seen[name].as_u64().unwrap();
        assert_eq!(count("after") + 1, count("before"));
    }
}

#[test]
fn chromium_sees_a_hostile_label_as_text() {
    for seen in seen().into_iter().flatten() {
        assert_eq!(seen["bold"], false);
        let labels = seen["labels"].as_array().unwrap();
        assert!(labels.iter().any(|label| label == HOSTILE), "{labels:?}");
    }
}

#[test]
fn the_page_is_no_wider_than_a_phone_or_a_desk() {
    let Some(seen) = seen() else { return };
    for (seen, width) in seen.iter().zip([390, 1200]) {
        assert_eq!(seen["inner"], width);
        let pixels = |name: &str| seen[name].as_u64().unwrap();
        assert!(pixels("wide") <= pixels("room"), "{} of {}", seen["wide"], seen["room"]);
    }
}
