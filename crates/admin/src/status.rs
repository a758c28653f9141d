//! The status in JSON: what is to be said of the server, its last minutes, and the statistics with
//! the keys of `weir stat --json`.

use serde_json::Value;
use weir_stats::live::History;
use weir_stats::page::Snapshot;

/// Keys that come first, for a reader without a program.
const FIRST: [&str; 3] = ["sentence", "condition", "state"];

/// Keys of the statistics in full, which are left out where only the latest is asked for.
const FULL: [&str; 2] = ["total", "loops"];

/// Returns the text. `since`: number of the first sample to be told; `None` is all, with the
/// statistics in full.
pub(super) fn text(
    snapshot: &Snapshot,
    history: &History,
    since: Option<u64>,
    is_stopping: bool,
) -> String {
    let mut fields = history.to_json(since.unwrap_or(0));
    if let Value::Object(statistics) = snapshot.to_json() {
        let is_told = |key: &str| since.is_none() || !FULL.contains(&key);
        fields.extend(statistics.into_iter().filter(|(key, _)| is_told(key)));
    }
    let state = if is_stopping { "stopping" } else { "ready" };
    fields.insert("state".into(), state.into());
    let first = FIRST.iter().filter_map(|key| fields.remove_entry(*key)).collect::<Vec<_>>();
    // A line for each: the samples of 15 minutes would be thousands.
    let lines = first.into_iter().chain(fields);
    let lines: Vec<String> =
        lines.map(|(key, value)| format!("  {}: {value}", Value::from(key))).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// Returns the number of a query `since=NUMBER`; `None` if it is none.
pub(super) fn since(query: Option<&[u8]>) -> Option<u64> {
    let query = std::str::from_utf8(query?).ok()?;
    query.split('&').find_map(|pair| pair.strip_prefix("since=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Page, this_thread};

    #[test]
    fn the_sentence_comes_first_and_the_latest_is_told_without_the_statistics() {
        let page = Page::new(1);
        page.publish(0, &this_thread(), &[("replies", 3)]);
        let snapshot = page.observed().snapshot().unwrap();
        let whole = text(&snapshot, &History::default(), None, false);
        assert!(whole.starts_with("{\n  \"sentence\": \"The first second"), "{whole}");
        let json: Value = serde_json::from_str(&whole).unwrap();
        assert_eq!((&json["state"], &json["total"]["replies"]), (&"ready".into(), &3.into()));
        let latest = text(&snapshot, &History::default(), Some(7), true);
        let json: Value = serde_json::from_str(&latest).unwrap();
        assert_eq!((&json["state"], &json["history"]["next"]), (&"stopping".into(), &0.into()));
        assert!(json.get("total").is_none() && json.get("pid").is_some());
    }

    #[test]
    fn a_query_that_is_no_number_asks_for_everything() {
        let of = |query: &str| since(Some(query.as_bytes()));
        assert_eq!([of("since=7"), of("a=b&since=0")], [Some(7), Some(0)]);
        assert_eq!([of("since=-1"), of("since="), of(""), since(None)], [None; 4]);
        assert_eq!(since(Some(b"since=\xff")), None);
    }
}
