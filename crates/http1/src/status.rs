//! The status codes the server replies with, and the bytes that depend on them alone.
//!
//! Status lines and error pages are built at compile time, so sending one costs a single copy.

/// A status code of RFC 9110 section 15 (429, 431: RFC 6585; 451: RFC 7725).
///
/// Only the constants below exist, so each has its reason, line and page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(u16);

macro_rules! statuses {
    ($($name:ident $code:literal $reason:literal;)*) => {
        impl Status {
            $(
                #[doc = concat!("`", $code, " ", $reason, "`")]
                pub const $name: Self = Self($code);
            )*

            /// All statuses, in ascending order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the reason phrase, such as `Not Found`.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }

            /// Returns the whole status line with its CRLF, such as `HTTP/1.1 200 OK\r\n`.
            #[must_use]
            pub const fn line(self) -> &'static [u8] {
                match self.0 {
                    $($code => concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n").as_bytes(),)*
                    _ => b"",
                }
            }

            /// Returns a small HTML page that repeats the status line.
            #[must_use]
            pub const fn page(self) -> &'static [u8] {
                match self.0 {
                    $($code => page!($code, $reason).as_bytes(),)*
                    _ => b"",
                }
            }
        }
    };
}

macro_rules! page {
    ($code:literal, $reason:literal) => {
        concat!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
            "<meta name=\"viewport\" content=\"width=device-width\">\n",
            "<title>",
            $code,
            " ",
            $reason,
            "</title>\n<style>:root{color-scheme:light dark}",
            "body{font:1.125rem/1.5 system-ui,sans-serif;max-width:36rem;",
            "margin:20vh auto;padding:0 1rem}h1{font-weight:600}</style>\n",
            "</head>\n<body>\n<h1>",
            $code,
            " ",
            $reason,
            "</h1>\n</body>\n</html>\n",
        )
    };
}

statuses! {
    CONTINUE 100 "Continue";
    OK 200 "OK";
    NO_CONTENT 204 "No Content";
    PARTIAL_CONTENT 206 "Partial Content";
    MOVED_PERMANENTLY 301 "Moved Permanently";
    FOUND 302 "Found";
    SEE_OTHER 303 "See Other";
    NOT_MODIFIED 304 "Not Modified";
    TEMPORARY_REDIRECT 307 "Temporary Redirect";
    PERMANENT_REDIRECT 308 "Permanent Redirect";
    BAD_REQUEST 400 "Bad Request";
    UNAUTHORIZED 401 "Unauthorized";
    FORBIDDEN 403 "Forbidden";
    NOT_FOUND 404 "Not Found";
    METHOD_NOT_ALLOWED 405 "Method Not Allowed";
    REQUEST_TIMEOUT 408 "Request Timeout";
    GONE 410 "Gone";
    PRECONDITION_FAILED 412 "Precondition Failed";
    CONTENT_TOO_LARGE 413 "Content Too Large";
    URI_TOO_LONG 414 "URI Too Long";
    RANGE_NOT_SATISFIABLE 416 "Range Not Satisfiable";
    EXPECTATION_FAILED 417 "Expectation Failed";
    MISDIRECTED_REQUEST 421 "Misdirected Request";
    TOO_MANY_REQUESTS 429 "Too Many Requests";
    HEADER_FIELDS_TOO_LARGE 431 "Request Header Fields Too Large";
    UNAVAILABLE_FOR_LEGAL_REASONS 451 "Unavailable For Legal Reasons";
    INTERNAL_SERVER_ERROR 500 "Internal Server Error";
    NOT_IMPLEMENTED 501 "Not Implemented";
    BAD_GATEWAY 502 "Bad Gateway";
    SERVICE_UNAVAILABLE 503 "Service Unavailable";
    GATEWAY_TIMEOUT 504 "Gateway Timeout";
    VERSION_NOT_SUPPORTED 505 "HTTP Version Not Supported";
    LOOP_DETECTED 508 "Loop Detected";
}

impl Status {
    /// Returns the code as a number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Returns the status with this code; `None` if the server replies with none such.
    #[must_use]
    pub fn of(code: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.0 == code)
    }

    /// Returns whether a reply with it has no content (RFC 9110 section 6.4.1).
    #[must_use]
    pub const fn is_bodiless(self) -> bool {
        matches!(self.0, 100..200 | 204 | 304)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_line() {
        for status in Status::ALL {
            let expected = format!("HTTP/1.1 {} {}\r\n", status.code(), status.reason());
            assert_eq!(status.line(), expected.as_bytes());
            assert!(!status.reason().is_empty());
        }
    }

    #[test]
    fn every_page_is_small_and_names_its_status() {
        for status in Status::ALL {
            let page = std::str::from_utf8(status.page()).unwrap();
            assert!(page.len() < 600, "{} bytes", page.len());
            assert!(page.starts_with("<!doctype html>"));
            assert!(page.contains(&format!("<h1>{} {}</h1>", status.code(), status.reason())));
        }
    }

    #[test]
    fn the_table_ascends() {
        assert!(Status::ALL.is_sorted());
        assert_eq!(Status::ALL.len(), 33);
    }
}
