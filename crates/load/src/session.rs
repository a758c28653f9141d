//! Sessions, one per arrival: requests on a connection, in bursts, with think times between them.
//!
//! A [`SessionSource`] makes a session for each planned start; a [`RequestTable`] table holds the
//! bytes of the requests.

/// Index of a request in the table of [`RequestTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u32);

/// A request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStep {
    /// The request to send.
    pub request: RequestId,
    /// Think time after the replies to all earlier steps, nanoseconds. Ignored for the first step,
    /// whose planned start is the session's.
    pub think_ns: u64,
    /// True if the request is pipelined: sent directly after the previous step, without waiting for
    /// its reply.
    pub piped: bool,
}

/// The requests of a connection, in order. Its memory is reused for the next session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Requests in the order in which they are sent; empty for a session that is over before it
    /// begins.
    pub steps: Vec<SessionStep>,
    /// True if the last request has `Connection: close` (or is HTTP/1.0), so that the server closes
    /// the connection. Otherwise this side closes it after the last reply.
    pub last_closes: bool,
}

/// Makes a session for each planned start.
pub trait SessionSource: Send {
    /// Fills `session`, which is empty, with the steps of arrival number `arrival` (0-based, over
    /// all threads). Each thread asks for its own arrivals, in ascending order. Returns false if
    /// there are no more sessions, which ends the run.
    fn fill(&mut self, arrival: u64, session: &mut Session) -> bool;
}

/// A serialized request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerializedRequest {
    /// The whole request, for a connection that stays open.
    pub keep: Box<[u8]>,
    /// The whole request, for the last one of a connection that the server is asked to close.
    pub close: Box<[u8]>,
    /// True if the reply has no body, whatever its fields say (HEAD).
    pub head_only: bool,
}

impl SerializedRequest {
    /// Returns the request target (RFC 9112 section 3.2).
    pub fn target(&self) -> &str {
        let word = self.keep.split(|byte| *byte == b' ').nth(1);
        word.and_then(|word| str::from_utf8(word).ok()).unwrap_or_default()
    }
}

/// The table of a workload's requests, each stored once.
#[derive(Clone, Debug, Default)]
pub struct RequestTable(Vec<SerializedRequest>);

impl RequestTable {
    /// Adds a request.
    pub fn push(&mut self, request: SerializedRequest) -> RequestId {
        self.0.push(request);
        RequestId((self.0.len() - 1) as u32)
    }

    /// Returns a request.
    pub fn get(&self, id: RequestId) -> Option<&SerializedRequest> {
        self.0.get(id.0 as usize)
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// HTTP version of the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0; `Connection: keep-alive` asks for the connection to stay open.
    Http10,
    /// HTTP/1.1; `Connection: close` asks for a close.
    #[default]
    Http11,
}

/// Properties common to all requests of a run.
#[derive(Clone, Debug, Default)]
pub struct RequestTemplate {
    /// HTTP version.
    pub version: HttpVersion,
    /// Value of the `Host` field.
    pub authority: String,
    /// Further field lines: name and value, as they are sent. A field named `Host` replaces
    /// `authority`; one named `User-Agent` replaces the default.
    pub fields: Vec<(String, String)>,
}

impl RequestTemplate {
    /// Serializes the request `method target` with `body`. `Content-Length` is added, unless the
    /// template has that field, or the body is empty and the method usually has none (GET, HEAD,
    /// OPTIONS, DELETE, TRACE).
    pub fn request(&self, method: &str, target: &str, body: &[u8]) -> SerializedRequest {
        let render = |close: bool| self.render(method, target, body, close).into_boxed_slice();
        SerializedRequest { keep: render(false), close: render(true), head_only: method == "HEAD" }
    }

    fn render(&self, method: &str, target: &str, body: &[u8], close: bool) -> Vec<u8> {
        let version = if self.version == HttpVersion::Http10 { "HTTP/1.0" } else { "HTTP/1.1" };
        let mut head = format!("{method} {target} {version}\r\n");
        let mut field = |name: &str, value: &str| {
            head.extend([name, ": ", value, "\r\n"]);
        };
        let has =
            |name: &str| self.fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !has("host") {
            field("Host", &self.authority);
        }
        if !has("user-agent") {
            field("User-Agent", concat!("weir-load/", env!("CARGO_PKG_VERSION")));
        }
        self.fields.iter().for_each(|(name, value)| field(name, value));
        let length = body.len().to_string();
        let bodiless = matches!(method, "GET" | "HEAD" | "OPTIONS" | "DELETE" | "TRACE");
        if !(has("content-length") || body.is_empty() && bodiless) {
            field("Content-Length", &length);
        }
        match (self.version, close) {
            _ if has("connection") => {}
            (HttpVersion::Http11, true) => field("Connection", "close"),
            (HttpVersion::Http10, false) => field("Connection", "keep-alive"),
            _ => {}
        }
        let mut request = head.into_bytes();
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(request: &[u8]) -> String {
        String::from_utf8(request.to_vec()).unwrap()
    }

    #[test]
    fn a_request_says_how_long_its_connection_lives() {
        let mut template =
            RequestTemplate { authority: "h:1".into(), ..RequestTemplate::default() };
        let request = template.request("GET", "/x", b"");
        let agent = concat!("User-Agent: weir-load/", env!("CARGO_PKG_VERSION"), "\r\n");
        assert_eq!(text(&request.keep), format!("GET /x HTTP/1.1\r\nHost: h:1\r\n{agent}\r\n"));
        assert!(text(&request.close).ends_with("Connection: close\r\n\r\n"));
        assert_eq!(request.target(), "/x");
        template.version = HttpVersion::Http10;
        let request = template.request("GET", "/x", b"");
        assert!(text(&request.keep).ends_with("Connection: keep-alive\r\n\r\n"));
        assert!(!text(&request.close).contains("Connection"));
    }

    #[test]
    fn given_fields_replace_the_usual_ones() {
        let fields = vec![("host".into(), "other".into()), ("User-Agent".into(), "me".into())];
        let template = RequestTemplate { fields, ..RequestTemplate::default() };
        let request = text(&template.request("POST", "/", b"ab").keep);
        let expected = "POST / HTTP/1.1\r\nhost: other\r\nUser-Agent: me\r\nContent-Length: 2\r\n";
        assert_eq!(request, format!("{expected}\r\nab"));
    }
}
