//! The status in JSON: the statistics with the keys of `weir stat --json`, and whether the server
//! is stopping.

use serde_json::Value;
use weir_stats::page::Snapshot;

/// Returns the text.
pub(super) fn text(snapshot: &Snapshot, is_stopping: bool) -> String {
    let mut whole = snapshot.to_json();
    if let Value::Object(fields) = &mut whole {
        let state = if is_stopping { "stopping" } else { "ready" };
        fields.insert("state".into(), state.into());
    }
    format!("{whole:#}\n")
}
