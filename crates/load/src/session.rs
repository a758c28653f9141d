//! What one arrival does: requests on a connection, in bursts, with think times between them.
//!
//! A [`Source`] makes sessions, one for each planned start, and an [`Requests`] table holds the
//! bytes. Nothing here knows sockets, time of day, or where sessions come from.

/// Which request of the table of [`Requests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u32);

/// One request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to send.
    pub request: RequestId,
    /// How long to wait after the replies to all earlier steps, nanoseconds. Nothing waits before
    /// the first step: its planned start is the session's.
    pub think_ns: u64,
    /// Sent right behind the step before it, without waiting for its reply: pipelined.
    pub piped: bool,
}

/// The requests of one connection, in order. Its memory is used again for the next session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// In the order they are sent; empty for a session that is over before it begins.
    pub steps: Vec<Step>,
    /// Whether the last request says `Connection: close` (or is HTTP/1.0), so that the server ends
    /// the connection. Otherwise this side closes once the last reply is there.
    pub last_closes: bool,
}

/// Makes a session for each planned start.
pub trait Source: Send {
    /// Fills in what arrival number `arrival` (0-based, over all threads) does; `session` comes
    /// empty. Each thread asks for its own arrivals, in ascending order. False: there is no more,
    /// the run ends here.
    fn fill(&mut self, arrival: u64, session: &mut Session) -> bool;
}

/// A request as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The whole request, for a connection that stays open.
    pub keep: Box<[u8]>,
    /// The whole request, for the last one of a connection that the server is asked to close.
    pub close: Box<[u8]>,
    /// Whether the reply has no body whatever its fields say (HEAD).
    pub head_only: bool,
}

impl Prepared {
    /// What it asks for: its request target (RFC 9112 section 3.2).
    pub fn target(&self) -> &str {
        let word = self.keep.split(|byte| *byte == b' ').nth(1);
        word.and_then(|word| str::from_utf8(word).ok()).unwrap_or_default()
    }
}

/// Every request of a workload, each once.
#[derive(Clone, Debug, Default)]
pub struct Requests(Vec<Prepared>);

impl Requests {
    /// Adds a request.
    pub fn push(&mut self, request: Prepared) -> RequestId {
        self.0.push(request);
        RequestId((self.0.len() - 1) as u32)
    }

    /// One of them.
    pub fn get(&self, id: RequestId) -> Option<&Prepared> {
        self.0.get(id.0 as usize)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The HTTP version requests are sent as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0; a connection that stays open is asked for with `Connection: keep-alive`.
    Http10,
    /// HTTP/1.1; a close is asked for with `Connection: close`.
    #[default]
    Http11,
}

/// What all requests of a run have in common.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// The version.
    pub version: Version,
    /// The `Host` field's value.
    pub authority: String,
    /// More field lines: name and value, as they are sent. One named `Host` replaces the above,
    /// one named `User-Agent` the default.
    pub fields: Vec<(String, String)>,
}

impl Template {
    /// The request `method target` with `body`, which is sent with its length unless it is empty
    /// and the method has none by custom (GET, HEAD, OPTIONS, DELETE).
    pub fn request(&self, method: &str, target: &str, body: &[u8]) -> Prepared {
        let render = |close: bool| self.render(method, target, body, close).into_boxed_slice();
        Prepared { keep: render(false), close: render(true), head_only: method == "HEAD" }
    }

    fn render(&self, method: &str, target: &str, body: &[u8], close: bool) -> Vec<u8> {
        let version = if self.version == Version::Http10 { "HTTP/1.0" } else { "HTTP/1.1" };
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
            (Version::Http11, true) => field("Connection", "close"),
            (Version::Http10, false) => field("Connection", "keep-alive"),
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
        let mut template = Template { authority: "h:1".into(), ..Template::default() };
        let request = template.request("GET", "/x", b"");
        let agent = concat!("User-Agent: weir-load/", env!("CARGO_PKG_VERSION"), "\r\n");
        assert_eq!(text(&request.keep), format!("GET /x HTTP/1.1\r\nHost: h:1\r\n{agent}\r\n"));
        assert!(text(&request.close).ends_with("Connection: close\r\n\r\n"));
        assert_eq!(request.target(), "/x");
        template.version = Version::Http10;
        let request = template.request("GET", "/x", b"");
        assert!(text(&request.keep).ends_with("Connection: keep-alive\r\n\r\n"));
        assert!(!text(&request.close).contains("Connection"));
    }

    #[test]
    fn given_fields_replace_the_usual_ones() {
        let fields = vec![("host".into(), "other".into()), ("User-Agent".into(), "me".into())];
        let template = Template { fields, ..Template::default() };
        let request = text(&template.request("POST", "/", b"ab").keep);
        let expected = "POST / HTTP/1.1\r\nhost: other\r\nUser-Agent: me\r\nContent-Length: 2\r\n";
        assert_eq!(request, format!("{expected}\r\nab"));
    }
}
