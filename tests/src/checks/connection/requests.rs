//! Requests that a script selects by number: complete, truncated and invalid.

const CONDITIONS: [&str; 16] = [
    "If-None-Match: *",
    "If-Match: \"x\"",
    "If-Match: *",
    "If-None-Match: \"x\"",
    "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT",
    "If-Modified-Since: Sun, 09 Sep 2001 01:46:39 GMT",
    "If-Unmodified-Since: Sun, 09 Sep 2001 01:46:40 GMT",
    "If-Unmodified-Since: Sun, 09 Sep 2001 01:46:39 GMT",
    "If-None-Match: *\r\nRange: bytes=0-0",
    "If-None-Match: *\r\nConnection: close",
    "If-Range: \"x\"\r\nRange: bytes=0-0",
    "If-Modified-Since: nonsense",
    "If-None-Match: \"a\", \"b\"\r\nIf-None-Match: *",
    "If-Match: *\r\nIf-None-Match: *",
    "Accept-Encoding: gzip",
    "If-None-Match: *\r\nConnection: keep-alive",
];

const RANGES: [&str; 16] = [
    "0-0",
    "1-",
    "-5",
    "9999999-",
    "0-1,4-5",
    "0-0,-1",
    "5-2",
    "0-",
    "-0",
    "90-99",
    "1-2,1-2",
    "0-0,20-20,40-40,60-60",
    "4000-5000",
    "x",
    "65000-",
    "0-4095",
];

const TARGETS: [&str; 16] = [
    "/dir",
    "/dir/",
    "/",
    "/n/99",
    "/%00",
    "/../n/1",
    "/n/%31",
    "//n//2",
    "/n/3/",
    "/.n",
    "/n/4?query",
    "http://other/n/5",
    "/dir/entry-1",
    "/dir?q",
    "/n",
    "/dir/../n/6",
];

const METHODS: [&str; 8] = [
    "OPTIONS * HTTP/1.1",
    "CONNECT host:1 HTTP/1.1",
    "DELETE /n/1 HTTP/1.1",
    "TRACE / HTTP/1.1",
    "OPTIONS /n/1 HTTP/1.1",
    "BREW /n/1 HTTP/1.1",
    "PATCH /n/1 HTTP/1.1",
    "GET /n/1 HTTP/1.9",
];

const WRONG: [&str; 16] = [
    "GET /n/1 HTTP/1.1\r\n\r\n",
    "GET /n/1 HTTP/2.0\r\nHost: h\r\n\r\n",
    "GET /n/1 HTTP/1.1\nHost: h\n\n",
    "GET /n/1 HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
    "GET /n/1 HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n",
    "GET /n/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "GET /n/1 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "GET /n/1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
    "GET n HTTP/1.1\r\nHost: h\r\n\r\n",
    "\r\n\r\n\r\n\r\n\r\n\r\n",
    "\r\nGET /n/1 HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /n/1 HTTP/1.1\r\nHost : h\r\n\r\n",
    "POST /n/1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    "POST /n/1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    "GET /n/1 HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n",
    "HEAD /n/1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
];

/// Returns the request of a kind; `variant` selects the details, and its lower half the file.
pub(super) fn request(kind: u8, variant: u8) -> Vec<u8> {
    let (n, how) = (variant & 15, usize::from(variant >> 4));
    let get = |fields: &str| format!("GET /n/{n} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let text = match kind {
        0 => get(""),
        1 => format!("HEAD /n/{n} HTTP/1.1\r\nHost: h\r\n\r\n"),
        2 => get(&format!("{}\r\n", CONDITIONS[how])),
        3 => get(&format!("Range: bytes={}\r\n", RANGES[how])),
        4 if how % 2 == 0 => format!("GET /n/{n} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
        4 => format!("GET /n/{n} HTTP/1.0\r\n\r\n"),
        5 => get("Connection: close\r\n"),
        6 => {
            let post = format!("POST /n/{n} HTTP/1.1\r\nHost: h\r\nContent-Length: {how}\r\n\r\n");
            post + &"p".repeat(how)
        }
        7 => get("Transfer-Encoding: chunked\r\n") + &"3;e=f\r\nabc\r\n".repeat(how) + "0\r\n\r\n",
        8 => expecting(n, how),
        9 => get("").repeat(1 + 4 * how),
        10 => format!("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", TARGETS[how]),
        11 => format!("{}\r\nHost: h\r\n\r\n", METHODS[how % 8]),
        12 => WRONG[how].to_owned(),
        13 => {
            let bytes = usize::from(variant) * 5;
            let method = if how % 2 == 0 { "GET" } else { "HEAD" };
            let head =
                format!("{method} /n/{n} HTTP/1.1\r\nHost: h\r\nContent-Length: {bytes}\r\n\r\n");
            head + &"b".repeat(bytes)
        }
        14 => get(&format!("X-Long: {}\r\n", "x".repeat(usize::from(variant) * 300))),
        _ => get("")[..usize::from(variant) % 24].to_owned(),
    };
    text.into_bytes()
}

/// Returns a request that waits for `100 Continue`.
fn expecting(n: u8, how: usize) -> String {
    let target = if how & 1 == 0 { format!("/n/{n}") } else { "/none".to_owned() };
    let close = if how & 2 == 0 { "" } else { "Connection: close\r\n" };
    let (framing, body) = match how >> 2 {
        0 => ("Content-Length: 3", "abc"),
        1 => ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
        2 => ("Content-Length: 100000", ""),
        _ => ("Content-Length: 2", ""),
    };
    let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n");
    format!("{head}{close}{framing}\r\n\r\n{body}")
}
