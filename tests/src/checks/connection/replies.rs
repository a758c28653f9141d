//! The client's view of the replies: strictly parsed, each matched to the request whose turn it is.
//! Judges by the bytes in both directions alone.

use std::ops::RangeInclusive;

use super::expected::{Answer, Asked, Content, asked};
use super::site::Site;
use crate::multipart::{self, content_range};
use crate::reply::Reply;

/// Maximum size of a reply's head: a redirect repeats the target, in which a byte may become three.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Events on a connection that may change its replies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exceptions {
    /// Pressure, or the server is stopping: it may close after any reply.
    pub closing: bool,
    /// Refused on account of load.
    pub turned_away: bool,
    /// A deadline passed: the next reply may say so.
    pub expired: bool,
    /// Closed, reset, or not writable.
    pub lost: bool,
}

impl Exceptions {
    /// Returns whether a request may remain without a reply.
    pub(super) fn excuse(self) -> bool {
        self.closing || self.turned_away || self.lost
    }

    /// Returns whether a reply may come without a request, if nothing follows it.
    fn allow_last_word(self, status: u16) -> bool {
        status == 408 && self.expired || status == 503 && self.turned_away
    }
}

/// Replies of a connection so far.
#[derive(Debug, Default)]
pub(super) struct Replies {
    /// Bytes sent to the client that have been read.
    read: usize,
    /// Bytes of the client's requests that have been answered.
    answered: usize,
    /// True if the last reply announced the close.
    pub closed: bool,
    /// Number of complete replies.
    pub count: u64,
}

impl Replies {
    /// Continues to read the bytes sent; each reply must match the next of the requests.
    pub(super) fn read(&mut self, sent: &[u8], requests: &[u8], site: &Site, so: Exceptions) {
        while self.read < sent.len() {
            assert!(!self.closed, "more after the last reply");
            let rest = &sent[self.read..];
            let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
                assert!(rest.len() < HEAD_BYTES_MAX, "a head without end");
                assert!(b"HTTP/1.1 ".iter().zip(rest).all(|(a, b)| a == b), "no head");
                return;
            };
            let head = Reply::parse_head(&rest[..end + 4]).unwrap();
            let asked = asked(&requests[self.answered..], site);
            let body = &rest[end + 4..];
            let Some(bytes) = self.reply(head, body, asked, site, so) else { return };
            self.read += end + 4 + bytes;
        }
    }

    /// Returns whether a reply is due.
    pub(super) fn owes(&self, requests: &[u8], site: &Site) -> bool {
        let asked = asked(&requests[self.answered..], site);
        !self.closed && asked.is_some()
    }

    /// Returns whether no reply is partly sent.
    pub(super) fn is_between(&self, sent: &[u8]) -> bool {
        self.read == sent.len()
    }

    /// Judges a reply that may be incomplete. Returns the length of its body, if that is complete.
    fn reply(
        &mut self,
        mut head: Reply,
        rest: &[u8],
        asked: Option<Asked>,
        site: &Site,
        so: Exceptions,
    ) -> Option<usize> {
        let closes = head.lists("Connection", "close");
        let is_last_word = closes && so.allow_last_word(head.status);
        // Who is turned away was not listened to.
        let head_only = asked.as_ref().is_some_and(|asked| asked.head_only) && head.status != 503;
        let length = head.content_length().unwrap();
        let has_none = head.is_bodiless() || head_only;
        assert!(has_none || length.is_some(), "no length: {head:?}");
        let bytes = if has_none { 0 } else { length.unwrap_or(0) };
        head.body = rest[..bytes.min(rest.len())].to_vec();
        let is_whole = head.body.len() == bytes;
        let asked = asked.filter(|_| !is_last_word);
        if let Some(asked) = &asked {
            judge(&head, is_whole, asked, site, so);
        } else {
            assert!(is_last_word, "a reply without a request: {head:?}");
        }
        if !is_whole {
            return None;
        }
        match asked {
            _ if closes => self.closed = true,
            Some(Asked { content: Content::Whole(bytes), .. }) => self.answered += bytes,
            asked => panic!("{head:?} before the end of {asked:?}"),
        }
        self.count += 1;
        Some(bytes)
    }
}

/// Judges a reply, whose body may be incomplete, by the request.
fn judge(reply: &Reply, is_whole: bool, asked: &Asked, site: &Site, so: Exceptions) {
    let closes = reply.lists("Connection", "close");
    if let Content::Wrong(statuses) = asked.content
        && statuses.contains(&reply.status)
        && closes
    {
        return;
    }
    let must_close = asked.closes || !matches!(asked.content, Content::Whole(_));
    let may_close = so.closing || asked.has_content;
    assert!(closes == must_close || closes && may_close, "{reply:?} to {asked:?}");
    let has_body = !asked.head_only;
    let fits = match &asked.answer {
        Answer::Status(status) => reply.status == *status,
        Answer::Whole(number) => is_file(reply, &site.files[*number], has_body),
        Answer::Range(number, range) => is_range(reply, &site.files[*number], Some(range)),
        Answer::Ranges(number, ranges) => {
            let file = &site.files[*number];
            reply.status == 206 && (!is_whole || are_ranges(reply, file, Some(ranges)))
        }
        Answer::NotModified(number) => reply.status == 304 && has_tag(reply, &site.files[*number]),
        Answer::File(number) => {
            let file = &site.files[*number];
            match reply.status {
                200 => is_file(reply, file, has_body),
                206 if reply.field("Content-Range").is_some() => is_range(reply, file, None),
                206 => !is_whole || are_ranges(reply, file, None),
                304 => has_tag(reply, file),
                status => [412, 416].contains(&status),
            }
        }
        Answer::Any => [200, 301, 304, 400, 404, 412, 416].contains(&reply.status),
    };
    assert!(fits, "{reply:?} to {asked:?}");
}

/// Returns whether the reply has a complete file.
fn is_file(reply: &Reply, file: &[u8], has_body: bool) -> bool {
    let body = if has_body { file } else { b"" };
    reply.status == 200
        && reply.content_length() == Ok(Some(file.len()))
        && has_tag(reply, file)
        && body.starts_with(&reply.body)
}

/// Returns whether the reply has a range of a file: the wanted one, or any.
fn is_range(reply: &Reply, file: &[u8], wanted: Option<&RangeInclusive<u64>>) -> bool {
    let (range, whole) = content_range(reply.expect_field("Content-Range"));
    reply.status == 206
        && whole == file.len()
        && wanted.is_none_or(|wanted| is_same(&range, wanted))
        && reply.content_length() == Ok(Some(range.len()))
        && has_tag(reply, file)
        && file[range].starts_with(&reply.body)
}

/// Returns whether the reply has ranges of a file: the wanted ones, or any.
fn are_ranges(reply: &Reply, file: &[u8], wanted: Option<&Vec<RangeInclusive<u64>>>) -> bool {
    let parts = multipart::parts(reply);
    let are_same = |wanted: &Vec<_>| {
        wanted.len() == parts.len()
            && parts.iter().zip(wanted).all(|(part, wanted)| is_same(&part.range, wanted))
    };
    wanted.is_none_or(are_same)
        && parts
            .iter()
            .all(|part| part.whole == file.len() && part.bytes == file[part.range.clone()])
}

fn is_same(range: &std::ops::Range<usize>, wanted: &RangeInclusive<u64>) -> bool {
    range.start as u64 == *wanted.start() && range.end as u64 == wanted.end() + 1
}

/// Returns whether the reply has the entity tag of a file, which begins with the file's length.
fn has_tag(reply: &Reply, file: &[u8]) -> bool {
    let tag = reply.field("ETag").unwrap_or_default();
    tag.starts_with(&format!("\"{:x}-", file.len()))
}
