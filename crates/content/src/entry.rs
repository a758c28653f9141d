//! Servable representations: one version of a file, with prebuilt header fields and its bytes in
//! memory or behind a descriptor.
//!
//! An entry is immutable. It does not know where it came from or whether it is cached.

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use weir_sys::file::{self, File, Kind, ResidencyCheck, Status};
use weir_sys::heap::{Charge, Part};

use crate::time::Now;
use crate::validators::{self, Validators};
use crate::variants::Coding;

/// A representation, ready to send.
pub struct Entry {
    /// CRLF-terminated lines, in the order of [`FieldGroups`].
    fields: Box<[u8]>,
    validators_end: usize,
    representation_end: usize,
    etag: Range<usize>,
    content_type: Range<usize>,
    modified_s: Option<u64>,
    is_date_weak: bool,
    coding: Option<Coding>,
    /// Length of the file that this is a form of, bytes; `None` for what was not compressed here.
    plain_len: Option<u64>,
    status: Status,
    len: u64,
    content: Content,
    _charge: Charge,
}

/// Location of an entry's bytes.
pub enum Content {
    /// The whole content, read at once.
    Memory(Arc<[u8]>),
    /// An open file, which may change while it is served.
    File(Arc<OpenFile>),
}

impl Content {
    /// Returns the memory that the bytes take.
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Memory(body) => body.len(),
            Self::File(_) => 0,
        }
    }
}

impl Debug for Entry {
    /// Formats the fields as text.
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let fields = format_args!("\"{}\"", self.fields.escape_ascii());
        out.debug_struct("Entry")
            .field("fields", &fields)
            .field("status", &self.status)
            .field("content", &self.content)
            .finish_non_exhaustive()
    }
}

impl Debug for Content {
    /// Omits the bytes, which would bury the rest of the message.
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(bytes) => write!(out, "Memory({} bytes)", bytes.len()),
            Self::File(file) => out.debug_tuple("File").field(file).finish(),
        }
    }
}

/// A reply of another server, from which an entry is built. Lines are ended by CRLF.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Field lines of a 200, 206 or 304.
    pub lines: &'a [u8],
    /// Field lines of a 200 or 206 only: those that describe the content, but for its length.
    pub content_lines: &'a [u8],
    /// Field lines of a 200 only: those about the whole content, but for its length.
    pub whole_lines: &'a [u8],
    /// Range of the value of ETag in `lines`; empty if there is none.
    pub etag: (usize, usize),
    /// Range of the value of Content-Type in `content_lines`; empty if there is none.
    pub content_type: (usize, usize),
    /// `Last-Modified`, or what stands in for it; seconds since the epoch.
    pub modified_s: Option<u64>,
    /// True if that is no strong validator.
    pub is_date_weak: bool,
}

/// Metadata from which an entry is built, besides its content.
pub(crate) struct Description<'a> {
    pub(crate) content_type: &'a str,
    pub(crate) coding: Option<Coding>,
    /// True if other requests for the same path may get another coding.
    pub(crate) varies: bool,
    /// Version of the file that the content was read from.
    pub(crate) status: Status,
}

/// Field lines by the replies that carry them.
#[derive(Default)]
struct FieldGroups {
    /// Validators and `Vary`, for a 200, 206 or 304 (RFC 9110 section 15.4.5).
    validators: Vec<u8>,
    /// Description of the content, for a 200 or 206.
    representation: Vec<u8>,
    /// Description of the content as a whole, for a 200.
    whole: Vec<u8>,
}

impl FieldGroups {
    /// Creates an entry without validators from the lines and, for a 200, `Content-Length`.
    /// `content_type` is the range of its value in the representation's lines.
    fn into_entry(
        self,
        content_type: Range<usize>,
        len: u64,
        status: Status,
        content: Content,
    ) -> Entry {
        let validators_end = self.validators.len();
        let representation_end = validators_end + self.representation.len();
        let mut fields = [self.validators, self.representation, self.whole].concat();
        append_text(&mut fields, "Content-Length", &len.to_string());
        let bytes = size_of::<Entry>() + fields.len() + content.memory_bytes();
        Entry {
            _charge: Charge::of(Part::Content, bytes),
            fields: fields.into_boxed_slice(),
            validators_end,
            representation_end,
            etag: 0..0,
            content_type: validators_end + content_type.start..validators_end + content_type.end,
            modified_s: None,
            is_date_weak: false,
            coding: None,
            plain_len: None,
            status,
            len,
            content,
        }
    }
}

impl Entry {
    pub(crate) fn new(description: &Description<'_>, content: Content, now: Now) -> Entry {
        let Description { content_type, coding, varies, status } = *description;
        let modified_s = validators::modified_s(&status, now);
        let mut fields = FieldGroups::default();
        let suffix = coding.map_or("", |coding| coding.suffix().trim_start_matches('.'));
        let etag = append_field(&mut fields.validators, "ETag", |line| {
            validators::append_etag(&status, suffix, now, line);
        });
        if let Some(modified_s) = modified_s {
            let date = validators::format_date(modified_s);
            append_text(&mut fields.validators, "Last-Modified", &date);
        }
        if varies {
            append_text(&mut fields.validators, "Vary", "Accept-Encoding");
        }
        let content_type = append_text(&mut fields.representation, "Content-Type", content_type);
        if let Some(coding) = coding {
            append_text(&mut fields.representation, "Content-Encoding", coding.token());
        }
        append_text(&mut fields.representation, "Accept-Ranges", "bytes");
        Entry {
            etag,
            modified_s,
            coding,
            ..fields.into_entry(content_type, status.len, status, content)
        }
    }

    /// Creates an entry for a form of a file's entry that was compressed here.
    ///
    /// Its entity tag is the file's, but weak: forms of one version mean the same and differ in
    /// their bytes, by their level too (RFC 9110 section 8.8.3). So a client that has one form is
    /// told that it is current whichever would be sent, and ranges of two are never joined. It
    /// takes no ranges itself.
    pub(crate) fn compressed(plain: &Entry, coding: Coding, body: Arc<[u8]>) -> Entry {
        let mut fields = FieldGroups::default();
        let etag = append_field(&mut fields.validators, "ETag", |line| {
            line.extend_from_slice(b"W/");
            line.extend_from_slice(plain.validators().etag);
        });
        if let Some(modified_s) = plain.modified_s {
            let date = validators::format_date(modified_s);
            append_text(&mut fields.validators, "Last-Modified", &date);
        }
        append_text(&mut fields.validators, "Vary", "Accept-Encoding");
        let content_type = append_field(&mut fields.representation, "Content-Type", |line| {
            line.extend_from_slice(plain.content_type());
        });
        append_text(&mut fields.representation, "Content-Encoding", coding.token());
        let (len, content) = (body.len() as u64, Content::Memory(body));
        Entry {
            etag,
            modified_s: plain.modified_s,
            coding: Some(coding),
            plain_len: Some(plain.len),
            ..fields.into_entry(content_type, len, plain.status, content)
        }
    }

    /// Creates an entry for a page generated from a file or directory with this status. It has no
    /// validators.
    pub(crate) fn page(content_type: &str, body: Arc<[u8]>, status: Status) -> Entry {
        let mut fields = FieldGroups::default();
        let content_type = append_text(&mut fields.representation, "Content-Type", content_type);
        let len = body.len() as u64;
        fields.into_entry(content_type, len, status, Content::Memory(body))
    }

    /// Creates an entry for a reply of another server.
    pub fn received(reply: &Received<'_>, body: Arc<[u8]>) -> Entry {
        let Received { lines, content_lines, whole_lines, .. } = *reply;
        let Received { etag, content_type, modified_s, is_date_weak, .. } = *reply;
        let fields = FieldGroups {
            validators: lines.to_vec(),
            representation: content_lines.to_vec(),
            whole: whole_lines.to_vec(),
        };
        let len = body.len() as u64;
        let content_type = content_type.0..content_type.1;
        Entry {
            etag: etag.0..etag.1,
            modified_s,
            is_date_weak,
            ..fields.into_entry(content_type, len, NO_FILE, Content::Memory(body))
        }
    }

    /// Returns the length of the content, bytes.
    #[allow(clippy::len_without_is_empty)] // a length to send, not a collection
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the content.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the field lines of a 200: validators, representation, `Content-Length`.
    pub fn fields_200(&self) -> &[u8] {
        &self.fields
    }

    /// Returns the field lines of a 206 with one range, to which the sender adds `Content-Range`
    /// and the `Content-Length` of the range.
    ///
    /// A multipart 206 uses [`Entry::fields_304`] and the type of the multipart, and only for an
    /// entry without [`Entry::coding`]: no RFC says where a coding belongs among parts, so a coded
    /// representation is sent whole instead.
    pub fn fields_206(&self) -> &[u8] {
        &self.fields[..self.representation_end]
    }

    /// Returns the field lines of a 304 (RFC 9110 section 15.4.5): validators and `Vary`.
    pub fn fields_304(&self) -> &[u8] {
        &self.fields[..self.validators_end]
    }

    /// Returns the value of `Content-Type`, for the heads of multipart parts.
    pub fn content_type(&self) -> &[u8] {
        &self.fields[self.content_type.clone()]
    }

    /// Returns the content coding, if any.
    pub fn coding(&self) -> Option<Coding> {
        self.coding
    }

    /// Returns the number of bytes that were saved by compressing the content here; `None` if it
    /// was not.
    pub fn saved_bytes(&self) -> Option<u64> {
        self.plain_len.map(|plain_len| plain_len.saturating_sub(self.len))
    }

    /// Returns the validators that conditional requests are evaluated against.
    pub fn validators(&self) -> Validators<'_> {
        Validators {
            etag: &self.fields[self.etag.clone()],
            modified_s: self.modified_s,
            is_date_weak: self.is_date_weak,
        }
    }

    /// Returns the version of the file that this entry represents.
    pub(crate) fn status(&self) -> &Status {
        &self.status
    }

    /// Memory use while cached, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Entry>() + self.fields.len() + self.content.memory_bytes()
    }
}

/// Maximum number of status checks on a file of which only the change time differs.
const STATUS_CHECKS_MAX: usize = 16;

/// An open regular file and the version of it that was examined.
///
/// To keep a reply from mixing two versions, a sender calls [`OpenFile::is_unchanged`] before it
/// commits to a length and after each chunk it has read, and aborts the connection if the file has
/// changed. Only a quiet file is sent with `sendfile(2)`: one that is still being written is read
/// first, then checked, then sent. A write through a shared mapping goes undetected until the
/// kernel updates the file's times.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    status: Status,
}

impl OpenFile {
    pub(crate) fn new(file: File, status: Status) -> OpenFile {
        OpenFile { file, status }
    }

    /// Returns whether the file still has the contents it had when it was examined.
    ///
    /// A file that lost or gained a name has a new change time for that reason alone, and one
    /// replaced by a rename must be sent to its end as it was. tmpfs sets the time a moment before
    /// it updates the link count, so if only the time has changed the file is examined again.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        for _ in 0..STATUS_CHECKS_MAX {
            let now = file::status(self.file.as_fd())?;
            let Status { nlink, ctime_ns, .. } = now;
            if now != (Status { nlink, ctime_ns, ..self.status }) {
                return Ok(false);
            }
            if nlink != self.status.nlink || ctime_ns == self.status.ctime_ns {
                return Ok(true);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// Returns whether the file had been left alone for some time when it was examined. The change
    /// time decides: each write updates it, and unlike the modification time it cannot be set.
    pub fn is_quiet(&self, now: Now) -> bool {
        self.status.ctime_ns + QUIET_NS < i128::from(now.unix_ns)
    }

    /// Reads from `offset` on; returns 0 at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file::pread(self.file.as_fd(), buffer, offset)
    }

    /// Returns the number of bytes at the start of `range` that can be sent without waiting for a
    /// disk, as reported by [`file::resident`]. If that fails, all of `range` counts as resident:
    /// sending it then reports the error.
    pub fn resident(&self, range: Range<u64>, check: ResidencyCheck) -> u64 {
        let len = range.end.saturating_sub(range.start);
        file::resident(self.file.as_fd(), range.start, len, check).unwrap_or(len)
    }

    /// Returns the length of the file when it was examined, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.status.len
    }

    pub(crate) fn id(&self) -> FileId {
        (self.status.dev, self.status.ino)
    }
}

/// Identity of a file: the file system, and the inode within it.
pub(crate) type FileId = (u64, u64);

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Appends a field line; returns the range of its value.
fn append_field(
    lines: &mut Vec<u8>,
    name: &str,
    append_value: impl FnOnce(&mut Vec<u8>),
) -> Range<usize> {
    lines.extend_from_slice(name.as_bytes());
    lines.extend_from_slice(b": ");
    let start = lines.len();
    append_value(lines);
    let end = lines.len();
    lines.extend_from_slice(b"\r\n");
    start..end
}

fn append_text(lines: &mut Vec<u8>, name: &str, value: &str) -> Range<usize> {
    append_field(lines, name, |lines| lines.extend_from_slice(value.as_bytes()))
}

/// Status of an entry that is of no file.
const NO_FILE: Status = Status {
    kind: Kind::File,
    dev: 0,
    ino: 0,
    len: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    mode: 0,
    mtime_ns: 0,
    ctime_ns: 0,
};

/// Age of the last change beyond which a file is considered completely written.
const QUIET_NS: i128 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::FILE;

    const NOW: Now = Now { monotonic_ns: 0, unix_ns: 1_000_000_000_000_000_000 };

    fn entry(coding: Option<Coding>, varies: bool) -> Entry {
        let status = Status { len: 5, ..FILE };
        let description = Description { content_type: "text/plain", coding, varies, status };
        Entry::new(&description, Content::Memory(Arc::from(*b"hello")), NOW)
    }

    #[test]
    fn the_fields_come_in_three_nested_parts() {
        let entry = entry(Some(Coding::Gzip), true);
        let etag = String::from_utf8(entry.validators().etag.to_vec()).unwrap();
        assert!(etag.starts_with("\"5-") && etag.ends_with("gz\""));
        let validators = format!(
            "ETag: {etag}\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             Vary: Accept-Encoding\r\n"
        );
        let representation = format!(
            "{validators}Content-Type: text/plain\r\nContent-Encoding: gzip\r\n\
             Accept-Ranges: bytes\r\n"
        );
        let all = format!("{representation}Content-Length: 5\r\n");
        assert_eq!(entry.fields_304(), validators.as_bytes());
        assert_eq!(entry.fields_206(), representation.as_bytes());
        assert_eq!(entry.fields_200(), all.as_bytes());
        assert_eq!(entry.content_type(), b"text/plain");
        assert_eq!(entry.validators().modified_s, Some(784_111_777));
    }

    #[test]
    fn a_reply_of_another_server_keeps_its_lines() {
        let reply = Received {
            lines: b"ETag: \"a\"\r\nVia: 1.1 b\r\n",
            content_lines: b"Content-Type: text/css\r\n",
            whole_lines: b"Content-Digest: c\r\n",
            etag: (6, 9),
            content_type: (14, 22),
            modified_s: Some(7),
            is_date_weak: true,
        };
        let entry = Entry::received(&reply, Arc::from(*b"hello"));
        let part = [reply.lines, reply.content_lines].concat();
        let all = [&part[..], reply.whole_lines, b"Content-Length: 5\r\n"].concat();
        assert_eq!((entry.fields_200(), entry.fields_304()), (&all[..], reply.lines));
        assert_eq!(entry.fields_206(), part);
        assert_eq!(
            entry.validators(),
            Validators { etag: b"\"a\"", modified_s: Some(7), is_date_weak: true }
        );
        assert_eq!((entry.content_type(), entry.len()), (&b"text/css"[..], 5));
    }

    #[test]
    fn a_lone_representation_does_not_vary() {
        let entry = entry(None, false);
        assert!(memchr::memmem::find(entry.fields_200(), b"Vary").is_none());
        assert!(memchr::memmem::find(entry.fields_200(), b"Content-Encoding").is_none());
        assert!(entry.memory_bytes() > entry.fields_200().len() + 5);
    }
}
