//! A reader of HTTP/1.1 messages that knows only one way to write them, and no leniency: of what it
//! accepts, no two parsers can disagree where it ends (RFC 9112 section 11.2). It shares no code
//! with the parsers under test.

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The request line or status line.
    pub line: String,
    /// The fields, in their order.
    pub fields: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
}

/// A message and its length in bytes; `None` if it is incomplete.
pub type Read = Result<Option<(Message, usize)>, String>;

impl Message {
    /// Returns the values of the fields with this name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let fields = self.fields.iter().filter(move |(each, _)| each.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| value.as_str())
    }

    /// Returns the status; 0 of a request.
    #[must_use]
    pub fn status(&self) -> u16 {
        let code = self.line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        code.and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// Returns the only value of a field; `None` if there is none.
    fn only<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, String> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(format!("{name} came twice")),
        }
    }
}

/// Reads a request at the start of `bytes`.
///
/// # Errors
/// It is not written in the one way.
pub fn request(bytes: &[u8]) -> Read {
    let Some((mut message, head)) = head(bytes)? else { return Ok(None) };
    let words: Vec<&str> = message.line.split(' ').collect();
    let is_target = |target: &str| target.starts_with('/') || target == "*";
    if !matches!(words[..], [_, target, "HTTP/1.1"] if is_target(target)) {
        return Err(format!("request line {:?}", message.line));
    }
    if message.only("host")?.is_none() || message.fields.iter().any(|(name, _)| name.contains('_'))
    {
        return Err(format!("{message:?}"));
    }
    let len = content(&mut message, bytes, head, Some(0))?;
    Ok(len.map(|len| (message, len)))
}

/// Reads a reply at the start of `bytes`. `to_head`: to a HEAD request; `has_ended`: the connection
/// has ended behind `bytes`.
///
/// # Errors
/// It is not written in the one way.
pub fn reply(bytes: &[u8], to_head: bool, has_ended: bool) -> Read {
    let Some((mut message, head)) = head(bytes)? else { return Ok(None) };
    let status = message.status();
    if !(100..600).contains(&status) {
        return Err(format!("status line {:?}", message.line));
    }
    if to_head || status < 200 || matches!(status, 204 | 304) {
        return Ok(Some((message, head)));
    }
    let otherwise = has_ended.then_some(bytes.len() - head);
    let len = content(&mut message, bytes, head, otherwise)?;
    Ok(len.map(|len| (message, len)))
}

/// Reads a head, up to the empty line.
fn head(bytes: &[u8]) -> Read {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let mut lines = bytes[..end].split(|&byte| byte == b'\n');
    let count = bytes[..end].iter().filter(|&&byte| byte == b'\n').count();
    let line = text(lines.next().unwrap_or_default(), count == 0)?;
    let mut fields = Vec::new();
    for (nth, line) in lines.enumerate() {
        let line = text(line, nth + 1 == count)?;
        let (name, value) = line.split_once(": ").ok_or(format!("field line {line:?}"))?;
        let is_token = |name: &str| {
            let is_tchar = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            !name.is_empty() && name.chars().all(is_tchar)
        };
        if !is_token(name) || value.trim() != value {
            return Err(format!("field line {line:?}"));
        }
        fields.push((name.to_owned(), value.to_owned()));
    }
    Ok(Some((Message { line, fields, body: Vec::new() }, end + 4)))
}

/// Checks a line, which ends in CR unless it is the `last`, and has no control otherwise.
fn text(line: &[u8], last: bool) -> Result<String, String> {
    let line = if last { Some(line) } else { line.strip_suffix(b"\r") };
    let line = line.ok_or("a line ended by a bare LF")?;
    let text = String::from_utf8_lossy(line).into_owned();
    let has_control = line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t');
    if has_control { Err(format!("control in {text:?}")) } else { Ok(text) }
}

/// Reads the content behind a head of this length. Returns the length of the whole. `otherwise`:
/// the length of content that no field tells.
fn content(
    message: &mut Message,
    bytes: &[u8],
    head: usize,
    otherwise: Option<usize>,
) -> Result<Option<usize>, String> {
    let rest = &bytes[head..];
    let length = match (message.only("content-length")?, message.only("transfer-encoding")?) {
        (None, None) => otherwise,
        (Some(length), None) => {
            let number: usize = length.parse().map_err(|_| format!("length {length:?}"))?;
            if number.to_string() != length {
                return Err(format!("length {length:?}"));
            }
            Some(number)
        }
        (None, Some("chunked")) => {
            let Some((body, len)) = chunks(rest)? else { return Ok(None) };
            message.body = body;
            return Ok(Some(head + len));
        }
        framing => return Err(format!("{framing:?}")),
    };
    let Some(body) = length.and_then(|length| rest.get(..length)) else { return Ok(None) };
    message.body = body.to_vec();
    Ok(Some(head + body.len()))
}

/// Reads chunks without extensions, and trailers.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let Some(end) = bytes[at..].windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let size = String::from_utf8_lossy(&bytes[at..at + end]).into_owned();
        let number = usize::from_str_radix(&size, 16).map_err(|_| format!("size {size:?}"))?;
        if format!("{number:x}") != size {
            return Err(format!("size {size:?}"));
        }
        at += end + 2;
        if number == 0 {
            break;
        }
        let Some(data) = bytes.get(at..at + number + 2) else { return Ok(None) };
        let data = data.strip_suffix(b"\r\n").ok_or("a chunk not ended by CRLF")?;
        body.extend_from_slice(data);
        at += number + 2;
    }
    // The trailers read like a head without its first line.
    let trailers = [b"x\r\n", &bytes[at..]].concat();
    let Some((message, len)) = head(&trailers)? else { return Ok(None) };
    let is_framing = |(name, _): &(String, String)| {
        ["content-length", "transfer-encoding", "host"].contains(&&*name.to_ascii_lowercase())
    };
    if message.fields.iter().any(is_framing) {
        return Err(format!("trailers {message:?}"));
    }
    Ok(Some((body, at + len - 3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_is_accepted() {
        let two = b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                    2\r\nhi\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let (first, len) = request(two).unwrap().unwrap();
        assert_eq!((first.line.as_str(), &first.body[..]), ("POST /a HTTP/1.1", &b"hi"[..]));
        let (second, rest) = request(&two[len..]).unwrap().unwrap();
        assert_eq!((second.line.as_str(), len + rest), ("GET / HTTP/1.1", two.len()));
        for end in 0..len {
            assert_eq!(request(&two[..end]), Ok(None), "{end}");
        }
        let (bare, len) = reply(b"HTTP/1.1 204 None\r\n\r\nx", false, false).unwrap().unwrap();
        assert_eq!((bare.status(), len), (204, 21));
    }

    #[test]
    fn all_others_are_not() {
        for fields in [
            "",
            "Host: a\r\nHost: a\r\n",
            "Host: a\nA: b\r\n",
            "Host: a\r\nA:b\r\n",
            "Host: a\r\nA : b\r\n",
            "Host: a\r\nA: b\r\n c\r\n",
            "Host: a\r\nA_B: b\r\n",
            "Host: a\r\nA: b\rc\r\n",
            "Host: a\r\nContent-Length: 01\r\n",
            "Host: a\r\nContent-Length: 1, 1\r\n",
            "Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n",
            "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n01\r\nx\r\n0\r\n",
            "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n1;x\r\nx\r\n0\r\n",
            "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: a\r\n",
        ] {
            let bytes = format!("POST / HTTP/1.1\r\n{fields}\r\n");
            assert!(request(bytes.as_bytes()).is_err(), "{fields:?}");
        }
    }
}
