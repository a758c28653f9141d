//! Faults that a proxy must not pass on as something else: a reply that broke off.

use weir_tests::origin::After;
use weir_tests::{Origin, Setup, suite};

use crate::WEIR;

suite! {
    every_forwarding_architecture:
    a_reply_that_broke_off_does_not_end_like_one_that_is_whole,
}

/// Number of replies that break off.
const CUT_REPLIES: usize = 20;

/// The client of HTTP/1.0 knows the end of a reply without a length by the close alone.
fn a_reply_that_broke_off_does_not_end_like_one_that_is_whole(setup: &Setup) {
    let half = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let origin = Origin::for_many(move |_| (half.to_vec(), After::Close));
    let server = setup.proxy(&[&origin.url()], &[]);
    for _ in 0..CUT_REPLIES {
        let mut client = server.connect();
        client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
        if let Ok(all) = client.rest() {
            assert!(all.is_empty(), "it looks whole: {}", String::from_utf8_lossy(&all));
        }
    }
    server.stop_cleanly();
}
