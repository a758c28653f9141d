//! The time of day, as it is written into results. Nothing else here asks for it.

use std::time::SystemTime;

/// Now, UTC, RFC 3339 to the second: `2026-11-22T09:15:00Z`.
pub fn utc_now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Today, UTC: `2026-11-22`.
pub fn utc_today() -> String {
    utc_now().split('T').next().unwrap_or_default().to_owned()
}
