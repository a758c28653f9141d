//! Replies, parsed strictly: anything that RFC 9112 forbids a server to send is an error.

use std::fmt::{self, Debug, Formatter};

/// A reply: its head and, once it has been read, its body.
#[derive(Clone)]
pub struct Reply {
    /// The status code, 100 to 599.
    pub status: u16,
    /// Fields in the order received, names as received.
    pub fields: Vec<(String, String)>,
    /// The body; empty until it is read.
    pub body: Vec<u8>,
}

impl Reply {
    /// Parses a head including its empty line.
    ///
    /// # Errors
    /// A sentence about the first thing that RFC 9112 forbids.
    pub fn parse_head(head: &[u8]) -> Result<Reply, String> {
        let head = head.strip_suffix(b"\r\n\r\n").ok_or("no empty line")?;
        let head: String = head.iter().map(|&byte| char::from(byte)).collect();
        let mut lines = head.split("\r\n");
        let status = parse_status_line(lines.next().unwrap_or_default())?;
        let fields = lines.map(parse_field).collect::<Result<Vec<_>, _>>()?;
        Ok(Reply { status, fields, body: Vec::new() })
    }

    /// Returns the value of a field that may occur once.
    ///
    /// # Panics
    /// When it occurs twice.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} occurs twice");
        value
    }

    /// Returns the value of a required field.
    ///
    /// # Panics
    /// When it is absent or occurs twice.
    pub fn expect_field(&self, name: &str) -> &str {
        self.field(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.fields))
    }

    /// Returns whether the list in field `name` contains `element`, ignoring case.
    pub fn lists(&self, name: &str, element: &str) -> bool {
        let list = self.field(name).unwrap_or_default();
        list.split(',').any(|item| item.trim().eq_ignore_ascii_case(element))
    }

    /// Returns `Content-Length` in bytes.
    ///
    /// # Errors
    /// A sentence when it is not digits only, or when there is a transfer coding.
    pub fn content_length(&self) -> Result<Option<usize>, String> {
        if self.field("Transfer-Encoding").is_some() {
            return Err("a transfer coding".to_owned());
        }
        let Some(digits) = self.field("Content-Length") else { return Ok(None) };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("Content-Length: {digits}"));
        }
        digits.parse().map(Some).map_err(|_| format!("Content-Length: {digits}"))
    }

    /// Returns whether a reply with this status has no body whatever its fields say (RFC 9112
    /// section 6.3).
    pub fn is_bodiless(&self) -> bool {
        matches!(self.status, 100..200 | 204 | 304)
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Debug for Reply {
    /// Formats the reply without the bytes of the body, which would bury the message of a failed
    /// test.
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        write!(out, "{} {:?} with {} bytes", self.status, self.fields, self.body.len())
    }
}

fn parse_status_line(line: &str) -> Result<u16, String> {
    let wrong = || format!("status line {line:?}");
    let (code, reason) =
        line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split_once(' ')).ok_or_else(wrong)?;
    let printable = reason.chars().all(|c| c == '\t' || (' '..='~').contains(&c));
    let digits = code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit());
    let code = code.parse().map_err(|_| wrong())?;
    if digits && printable && (100..600).contains(&code) { Ok(code) } else { Err(wrong()) }
}

fn parse_field(line: &str) -> Result<(String, String), String> {
    let wrong = || format!("field line {line:?}");
    let (name, value) = line.split_once(':').ok_or_else(wrong)?;
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let allowed = |c: char| c == '\t' || (c >= ' ' && c != '\x7f');
    if name.is_empty() || !name.chars().all(token) || !value.chars().all(allowed) {
        return Err(wrong());
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_status_and_fields() {
        let reply = Reply::parse_head(b"HTTP/1.1 200 OK\r\nA: b\r\nC:  d \r\n\r\n").unwrap();
        assert_eq!(reply.status, 200);
        assert_eq!((reply.field("a"), reply.field("c")), (Some("b"), Some("d")));
    }

    #[test]
    fn a_forbidden_reply_is_an_error() {
        let heads = [
            "HTTP/1.1 200 OK\nA: b\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\n",
            "HTTP/1.1 200\r\n\r\n",
            "HTTP/1.1 +20 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\n folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\nc\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n",
        ];
        for head in heads {
            assert!(Reply::parse_head(head.as_bytes()).is_err(), "{head:?}");
        }
    }
}
