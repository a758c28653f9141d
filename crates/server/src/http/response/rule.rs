//! Replies by the rule of a route: refusals, redirects, a fixed status, and which file is meant.

use std::borrow::Cow;

use weir_content::path::{encode, redirect_location};
use weir_content::{Found, Lookup};
use weir_http1::{Method, Request, Status, Target};

use super::Reply;
use crate::config::Config;
use crate::sites::paths::plain;
use crate::sites::ruling::{Ruling, Verdict};
use crate::sites::template::{Template, Values};
use crate::sites::{Action, Files, Rule};

/// Place of a file for a request.
pub(super) struct FilePlace<'p> {
    /// Number of its root.
    pub root: usize,
    /// Part of the target's path that is none of the file's.
    pub prefix: Cow<'p, [u8]>,
    /// Path below the root, encoded; empty if a slash is missing.
    pub path: Cow<'p, [u8]>,
}

impl Reply<'_, '_> {
    /// Answers a request as its rule says, unless that is with files or by an upstream. Returns
    /// whether it did.
    pub(super) fn by_rule(&mut self, request: &Request<'_>, ruling: Ruling) -> bool {
        let leaves = |rule: &Rule| leaves_to_others(rule, request.method);
        if ruling.verdict == Verdict::Pass && self.rule().is_none_or(leaves) {
            return false;
        }
        let config = self.context.config();
        let rule = ruling.rule.and_then(|index| config.rule(index));
        match (ruling.verdict, rule.map(|rule| (rule, &rule.action))) {
            (Verdict::Refuse(status), _) => self.refuse_by(rule, status),
            (Verdict::Preflight, _) => self.bodiless(Status::NO_CONTENT),
            (Verdict::Pass, Some((rule, Action::Redirect(status, target)))) => {
                self.redirect(request, rule, *status, target);
            }
            (Verdict::Pass, Some((_, Action::Status(status)))) if status.is_bodiless() => {
                self.bodiless(*status);
            }
            (Verdict::Pass, Some((_, Action::Status(status)))) => self.plain(*status, b""),
            (Verdict::Pass, _) => return false,
        }
        true
    }

    /// Returns the rule for the request.
    pub(super) fn rule(&self) -> Option<&Rule> {
        self.context.config.rule(self.info.ruling?.rule?)
    }

    fn refuse_by(&mut self, rule: Option<&Rule>, status: Status) {
        match status {
            Status::UNAUTHORIZED => {
                let users = rule.and_then(|rule| rule.users.as_deref());
                return self.plain(status, users.map_or(b"", |users| users.challenge()));
            }
            Status::SERVICE_UNAVAILABLE => return self.plain(status, b"Retry-After: 1\r\n"),
            Status::FORBIDDEN => {}
            _ => self.context.counters.refused_requests.one(),
        }
        self.close |= status == Status::CONTENT_TOO_LARGE;
        self.plain(status, b"");
    }

    fn bodiless(&mut self, status: Status) {
        self.start(status);
        self.end(status, 0);
    }

    fn redirect(&mut self, request: &Request<'_>, rule: &Rule, status: Status, target: &Template) {
        let query = if let Target::Path { query, .. } = request.target { query } else { None };
        let path = request.target.path();
        let tail = tail(rule, path);
        let mut line = Vec::new();
        target.write(&Values { path, tail: &tail, query }, &mut line);
        line.splice(..0, *b"Location: ");
        line.extend_from_slice(b"\r\n");
        self.plain(status, &line);
    }

    /// Returns where the file at `path` is, by the rule.
    pub(super) fn file_place<'p>(&self, path: &'p [u8]) -> FilePlace<'p> {
        let Some(rule) = self.rule() else {
            return FilePlace { root: 0, prefix: Cow::Borrowed(b""), path: Cow::Borrowed(path) };
        };
        let (root, strips) = rule.served_files().map_or((0, false), |it| (it.root, it.strips));
        if !strips {
            return FilePlace { root, prefix: Cow::Borrowed(b""), path: Cow::Borrowed(path) };
        }
        let mut prefix = Vec::new();
        encode(rule.path.strip_suffix(b"/").unwrap_or(&rule.path), &mut prefix);
        FilePlace { root, prefix: Cow::Owned(prefix), path: tail(rule, path) }
    }

    /// Redirects to a path with a slash at its end.
    pub(super) fn add_slash(&mut self, path: &[u8], query: Option<&[u8]>) {
        let mut room = Vec::new();
        let location = redirect_location(plain(path, &mut room).path, query);
        let line = [b"Location: ", &location[..], b"\r\n"].concat();
        self.plain(Status::MOVED_PERMANENTLY, &line);
    }

    /// Looks for the files that are tried when there is nothing at the request's own path.
    pub(super) fn find_tried(&mut self, lookup: &Lookup<'_>) -> Found {
        let config = self.context.config();
        let Some(files) = self.files(&config) else { return Found::NotFound };
        let mut path = Vec::new();
        for tried in &files.tried {
            path.clear();
            tried.write(&Values { path: lookup.path, ..Values::default() }, &mut path);
            match self.find(files.root, &Lookup { path: &path, ..*lookup }) {
                Found::NotFound | Found::Malformed | Found::Redirect(_) => {}
                found => return found,
            }
        }
        Found::NotFound
    }

    fn files<'c>(&self, config: &'c Config) -> Option<&'c Files> {
        config.rule(self.info.ruling?.rule?)?.served_files()
    }
}

/// Returns whether a rule leaves the reply to others: it has files served, or an upstream's
/// replies, or its status would say that a tunnel begins (RFC 9110 section 9.3.6).
fn leaves_to_others(rule: &Rule, method: Method) -> bool {
    match &rule.action {
        Action::Files(_) | Action::Upstream(_) => true,
        Action::Status(status) => method == Method::Connect && status.code() < 300,
        Action::Redirect(..) => false,
    }
}

/// Returns the part of a request's path that is below the route's, encoded: empty, or beginning
/// with a slash.
fn tail<'p>(rule: &Rule, path: &'p [u8]) -> Cow<'p, [u8]> {
    let own = rule.path.strip_suffix(b"/").unwrap_or(&rule.path);
    let mut room = Vec::new();
    let decoded = plain(path, &mut room).path;
    let Some(rest) = decoded.strip_prefix(own) else { return Cow::Borrowed(path) };
    if decoded.len() == path.len() && !path.contains(&b'%') {
        return Cow::Borrowed(path.get(own.len()..).unwrap_or_default());
    }
    let mut encoded = Vec::new();
    encode(rest, &mut encoded);
    Cow::Owned(encoded)
}
