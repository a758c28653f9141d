//! The access log: where it goes, and what its lines hold.

use std::path::PathBuf;
use std::sync::Arc;

/// Format of an access log's lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The Combined Log Format of Apache and nginx.
    Combined,
    /// A JSON object per line.
    Json,
    /// The operator's own.
    Pattern(Arc<LogPattern>),
}

/// Destination of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to; reopened at a hang-up signal.
    File(PathBuf),
    /// A socket that takes messages of RFC 5424, such as `/dev/log`.
    Syslog(PathBuf),
    /// The socket of systemd-journald's native protocol.
    Journal(PathBuf),
}

/// Access log of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Its destination.
    pub target: LogTarget,
    /// Format of its lines.
    pub format: LogFormat,
}

/// A field of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "its row in the table says what it is")]
pub enum LogField {
    Remote,
    Peer,
    User,
    Id,
    Time,
    Rfc3339,
    Request,
    Method,
    Target,
    Host,
    Status,
    Bytes,
    DurationUs,
    Referer,
    UserAgent,
}

/// A row of the table of fields.
#[derive(Clone, Copy, Debug)]
pub struct LogFieldRow {
    /// The field.
    pub field: LogField,
    /// Its name in a format.
    pub name: &'static str,
    /// Its name in the journal, where the message does not say it all.
    pub journal: &'static str,
    /// Description of its value.
    pub help: &'static str,
}

const fn row(
    field: LogField,
    name: &'static str,
    journal: &'static str,
    help: &'static str,
) -> LogFieldRow {
    LogFieldRow { field, name, journal, help }
}

/// The table of fields.
pub const LOG_FIELDS: &[LogFieldRow] = &[
    row(
        LogField::Remote,
        "remote",
        "WEIR_REMOTE",
        "address of the client, by what a `--trusted-proxy` says of it in X-Forwarded-For or \
         Forwarded",
    ),
    row(LogField::Peer, "peer", "WEIR_PEER", "address that the connection came from"),
    row(
        LogField::User,
        "user",
        "WEIR_USER",
        "name given with a password (RFC 7617); without a 401 where one is asked for, it was right",
    ),
    row(LogField::Id, "id", "WEIR_REQUEST_ID", "identifier of the request (`--request-id`)"),
    row(LogField::Time, "time", "", "end of the reply, such as `06/Nov/1994:08:49:37 +0000`"),
    row(LogField::Rfc3339, "rfc3339", "", "the same, as `1994-11-06T08:49:37.123Z`"),
    row(LogField::Request, "request", "WEIR_REQUEST", "request line"),
    row(LogField::Method, "method", "", "its method"),
    row(LogField::Target, "target", "", "its target: path and query"),
    row(LogField::Host, "host", "WEIR_HOST", "host that it names"),
    row(LogField::Status, "status", "WEIR_STATUS", "status of the reply"),
    row(LogField::Bytes, "bytes", "WEIR_BYTES", "bytes of its body that were sent"),
    row(
        LogField::DurationUs,
        "duration_us",
        "WEIR_DURATION_US",
        "time from the first byte of the request to the last of its reply, microseconds",
    ),
    row(LogField::Referer, "referer", "WEIR_REFERER", "Referer"),
    row(LogField::UserAgent, "user_agent", "WEIR_USER_AGENT", "User-Agent"),
];

/// The operator's own format of a line: text with fields in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPattern(Vec<PatternPart>);

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternPart {
    /// Text, as it is.
    Text(String),
    /// A field.
    Field {
        /// Which one.
        field: LogField,
        /// True if it stands in double quotes, where spaces do not end it.
        is_quoted: bool,
    },
}

impl LogPattern {
    /// Parses a pattern such as `{remote} "{request}" {status}`.
    ///
    /// # Errors
    /// A sentence: there is no such field, a brace has no partner, there is a control character, or
    /// nothing of a request is logged.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.chars().any(char::is_control) {
            return Err("a log format is one line, without control characters".into());
        }
        let (mut parts, mut rest, mut is_quoted) = (Vec::new(), text, false);
        while let Some(open) = rest.find('{') {
            let (before, after) = rest.split_at(open);
            let (name, behind) = after
                .get(1..)
                .and_then(|after| after.split_once('}'))
                .ok_or("a `{` in a log format begins the name of a field, which ends with `}`")?;
            is_quoted ^= before.matches('"').count() % 2 == 1;
            if !before.is_empty() {
                parts.push(PatternPart::Text(before.to_owned()));
            }
            let row = LOG_FIELDS.iter().find(|row| row.name == name).ok_or_else(|| {
                let names: Vec<_> = LOG_FIELDS.iter().map(|row| row.name).collect();
                format!("no field of a log is called {name:?}: there are {}", names.join(", "))
            })?;
            parts.push(PatternPart::Field { field: row.field, is_quoted });
            rest = behind;
        }
        if parts.is_empty() {
            return Err("a log format is `combined`, `json`, or text with fields in braces, such \
                        as {remote}"
                .into());
        }
        if !rest.is_empty() {
            parts.push(PatternPart::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// Returns the parts, in order.
    #[must_use]
    pub fn parts(&self) -> &[PatternPart] {
        &self.0
    }

    fn has(&self, wanted: LogField) -> bool {
        self.0
            .iter()
            .any(|part| matches!(part, PatternPart::Field { field, .. } if *field == wanted))
    }
}

impl AccessLog {
    /// Returns whether the log needs the host of a request.
    pub(crate) fn has_host(&self) -> bool {
        let in_format = match &self.format {
            LogFormat::Combined => false,
            LogFormat::Json => true,
            LogFormat::Pattern(pattern) => pattern.has(LogField::Host),
        };
        in_format || matches!(self.target, LogTarget::Journal(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_text_with_fields_in_braces() {
        let text = |text: &str| PatternPart::Text(text.into());
        let field = |field, is_quoted| PatternPart::Field { field, is_quoted };
        let pattern = LogPattern::parse("{remote} \"{request}\" {status}}").unwrap();
        assert_eq!(
            pattern.parts(),
            [
                field(LogField::Remote, false),
                text(" \""),
                field(LogField::Request, true),
                text("\" "),
                field(LogField::Status, false),
                text("}"),
            ]
        );
        assert!(pattern.has(LogField::Status) && !pattern.has(LogField::Host));
    }

    #[test]
    fn a_wrong_pattern_is_refused_in_a_sentence() {
        for (pattern, why) in [
            ("plain", "combined"),
            ("", "combined"),
            ("{remot}", "remote"),
            ("{remote", "ends with"),
            ("{remote}\n", "one line"),
        ] {
            let error = LogPattern::parse(pattern).unwrap_err();
            assert!(error.contains(why), "{pattern:?}: {error}");
        }
    }

    #[test]
    fn fields_have_names_of_their_own_and_those_of_the_journal_are_valid() {
        let mut names: Vec<_> = LOG_FIELDS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), LOG_FIELDS.len());
        // Upper case, digits and underscores: systemd.journal-fields(7).
        let is_valid = |c: char| c.is_ascii_uppercase() || c == '_';
        assert!(LOG_FIELDS.iter().all(|row| row.journal.chars().all(is_valid)));
    }
}
