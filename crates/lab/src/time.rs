//! The time of day, as written into results. Nothing else in this crate reads the wall clock.

use std::time::SystemTime;

/// Returns the current time, UTC, RFC 3339 to the second: `2026-11-22T09:15:00Z`.
pub fn utc_now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Returns the current date, UTC: `2026-11-22`.
pub fn utc_today() -> String {
    utc_now().split('T').next().unwrap_or_default().to_owned()
}
