//! A reply, and its bytes.

use std::borrow::Cow;

use weir_http1::{RequestError, Status, imf_date};

/// Status of a request for a host that is not this one (RFC 9110 section 15.5.20).
const MISDIRECTED: (u16, &str) = (421, "Misdirected Request");

/// Media type of a line of text.
const PLAIN: &str = "text/plain; charset=utf-8";

/// Policy for content that is no page: a browser that shows it loads and runs nothing.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    status: (u16, &'static str),
    media_type: &'static str,
    /// Policy for the content (Content Security Policy Level 3).
    policy: Cow<'static, str>,
    body: String,
}

impl Reply {
    /// Returns a reply with content.
    pub(crate) fn content(media_type: &'static str, body: String) -> Self {
        let status = (Status::OK.code(), Status::OK.reason());
        Self { status, media_type, policy: NOTHING.into(), body }
    }

    /// Returns a reply with a page, and the policy for it.
    pub(crate) fn page(html: String, policy: String) -> Self {
        Self { policy: policy.into(), ..Self::content("text/html; charset=utf-8", html) }
    }

    /// Returns a reply of one line of text.
    pub(crate) fn line(status: Status, text: &str) -> Self {
        let status = (status.code(), status.reason());
        Self { status, ..Self::content(PLAIN, format!("{text}\n")) }
    }

    /// Returns the reply to a head that is no valid request, or is too large.
    pub(crate) fn refusal(error: &RequestError) -> Self {
        Self::line(error.status, error.why)
    }

    /// Returns the reply to a request for another host.
    pub(crate) fn misdirected() -> Self {
        let body = "this is not the host that was asked for\n".to_owned();
        Self { status: MISDIRECTED, ..Self::content(PLAIN, body) }
    }

    /// Returns the bytes of a reply that ends its connection. `unix_s`: the time, seconds since
    /// 1970. `head_only`: the request was a HEAD.
    pub(crate) fn to_bytes(&self, unix_s: u64, head_only: bool) -> Vec<u8> {
        let Self { status: (code, reason), media_type, policy, body } = self;
        let date = imf_date(unix_s);
        let date = String::from_utf8_lossy(&date);
        let allow =
            if *code == Status::METHOD_NOT_ALLOWED.code() { "Allow: GET, HEAD\r\n" } else { "" };
        let mut text = format!(
            "HTTP/1.1 {code} {reason}\r\n\
             Date: {date}\r\n\
             Content-Type: {media_type}\r\n\
             Content-Length: {}\r\n\
             Cache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\n\
             Content-Security-Policy: {policy}\r\n\
             Referrer-Policy: no-referrer\r\n\
             {allow}Connection: close\r\n\r\n",
            body.len()
        );
        if !head_only {
            text.push_str(body);
        }
        text.into_bytes()
    }

    /// Returns the status code.
    #[cfg(test)]
    pub(crate) fn code(&self) -> u16 {
        self.status.0
    }

    /// Returns the content.
    #[cfg(test)]
    pub(crate) fn body(&self) -> &str {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_its_length_and_the_date_and_after_a_head_no_content() {
        let reply = Reply::line(Status::OK, "ok");
        let head = String::from_utf8(reply.to_bytes(784_111_777, true)).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
        assert!(head.contains("\r\nContent-Length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let whole = reply.to_bytes(784_111_777, false);
        assert_eq!(whole, [head.as_bytes(), b"ok\n"].concat());
    }

    #[test]
    fn methods_that_would_be_allowed_are_told_with_405_alone() {
        let text = |reply: Reply| String::from_utf8(reply.to_bytes(0, false)).unwrap();
        let refused = Reply::line(Status::METHOD_NOT_ALLOWED, "GET and HEAD only");
        assert!(text(refused).contains("\r\nAllow: GET, HEAD\r\n"));
        assert!(!text(Reply::misdirected()).contains("Allow"));
    }
}
