//! Replies as a client parses them, however they are split.

use weir_http1::reply_parser::{HEAD_BYTES_MAX, PrematureEnd, ReplyError, ReplyParser, State};

/// Checks a reply, or the front of one: the first byte says whether HEAD was asked for (`h`), the
/// rest is what the server sends. How it is split never matters.
pub fn reply(data: &[u8]) {
    let Some((&first, input)) = data.split_first() else { return };
    let head_only = first == b'h';
    let whole = feed(head_only, [input]);
    assert_eq!(feed(head_only, input.chunks(1)), whole, "one byte at a time");
    let (front, back) = input.split_at(usize::from(first).min(input.len()));
    assert_eq!(feed(head_only, [front, back]), whole, "in two");
    match whole {
        Ok(seen) => check(&seen, input.len(), head_only),
        Err(bad) => assert!(!bad.why.is_empty()),
    }
}

/// Result of a parser for all of its input.
#[derive(Debug, PartialEq)]
struct Seen {
    taken: usize,
    state: State,
    status: u16,
    head_bytes: u64,
    body_bytes: u64,
    keeps_open: bool,
    eof: Result<(), PrematureEnd>,
}

fn feed<'a>(
    head_only: bool,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Seen, ReplyError> {
    let mut parser = ReplyParser::new(head_only);
    let (mut taken, mut state) = (0, State::NeedMore);
    for piece in pieces {
        let progress = parser.advance(piece)?;
        assert!(progress.state == State::Done || progress.taken == piece.len());
        taken += progress.taken;
        state = progress.state;
    }
    let (status, keeps_open) = (parser.status(), parser.keeps_open());
    let (head_bytes, body_bytes) = (parser.head_bytes(), parser.body_bytes());
    assert_eq!(parser.started(), taken > 0);
    Ok(Seen { taken, state, status, head_bytes, body_bytes, keeps_open, eof: parser.eof() })
}

fn check(seen: &Seen, len: usize, head_only: bool) {
    assert!(seen.taken <= len && seen.head_bytes + seen.body_bytes <= seen.taken as u64);
    assert!(seen.head_bytes <= u64::from(HEAD_BYTES_MAX));
    assert!(seen.status == 0 || (200..600).contains(&seen.status));
    assert!(seen.body_bytes == 0 || (!head_only && !matches!(seen.status, 0 | 204 | 304)));
    match seen.state {
        State::Done => assert!(seen.status != 0 && seen.eof.is_ok()),
        State::NeedMore => {
            assert_eq!(seen.taken, len);
            let until_close = seen.eof.is_ok();
            assert!(!until_close || (seen.status != 0 && !seen.keeps_open));
        }
    }
}
