//! The options of the error log, each defined once, and the destinations of both logs.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::PossibleValuesParser;
use weir_server::{ErrorLog, ErrorLogOptions, LogLevel, LogTarget};

use crate::print::say;

/// Socket of the system's logger: syslog(3).
const SYSLOG: &str = "/dev/log";

/// Socket of journald's native protocol: systemd-journald.service(8).
const JOURNAL: &str = "/run/systemd/journal/socket";

/// The error log.
#[derive(Debug, Args)]
pub(crate) struct ErrorLogArgs {
    /// Tell what happens to the server to a file, or to standard error with `stderr`; a SIGHUP
    /// opens the file again. To the system's logger with `syslog:` or to journald with `journald:`;
    /// another socket may follow the colon
    #[arg(long, value_name = "FILE|stderr", default_value = "stderr")]
    pub error_log: PathBuf,

    /// The least grave level of messages in the error log
    #[arg(long, value_name = "LEVEL", default_value = LogLevel::Notice.name(),
          value_parser = PossibleValuesParser::new(LogLevel::ALL.map(LogLevel::name)))]
    pub error_level: String,

    /// Refused connections and requests that the error log has a line for, in a second at most;
    /// each says how many had none since the last. 0: none
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub refusal_sample: u32,
}

impl ErrorLogArgs {
    /// Returns the log, which is opened when the server starts.
    pub(crate) fn log(&self) -> ErrorLog {
        let is_named = |level: &LogLevel| level.name() == self.error_level;
        let target = match &*self.error_log {
            path if path == Path::new("stderr") => LogTarget::Stderr,
            path => log_target(path),
        };
        let options = ErrorLogOptions {
            target,
            level: LogLevel::ALL.into_iter().find(is_named).unwrap_or(LogLevel::Notice),
            refusals: self.refusal_sample,
        };
        ErrorLog::new(options, say)
    }
}

/// Returns the destination that the value of a log's option names.
pub(crate) fn log_target(value: &Path) -> LogTarget {
    let socket = |prefix: &str, usual: &str| {
        let path = value.to_str()?.strip_prefix(prefix)?;
        Some(PathBuf::from(if path.is_empty() { usual } else { path }))
    };
    if let Some(path) = socket("syslog:", SYSLOG) {
        LogTarget::Syslog(path)
    } else if let Some(path) = socket("journald:", JOURNAL) {
        LogTarget::Journal(path)
    } else if value == Path::new("-") {
        LogTarget::Stdout
    } else {
        LogTarget::File(value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_a_destination() {
        for (value, target) in [
            ("-", LogTarget::Stdout),
            ("syslog:", LogTarget::Syslog(SYSLOG.into())),
            ("journald:/a", LogTarget::Journal("/a".into())),
            ("./syslog", LogTarget::File("./syslog".into())),
        ] {
            assert_eq!(log_target(Path::new(value)), target);
        }
    }
}
