//! Workloads: sources of sessions, the requests they name, and the files they ask for.
//!
//! Each request is prepared once. A session is a function of the arrival's number and the seed, so
//! that it does not matter which thread asks for it, or when. Only [`files`] touches the disk:
//! parsers take text.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::config::Workload;
use crate::session::{RequestId, Requests, SessionSource, Template};

pub mod files;
pub mod replay;
pub mod sessions;
pub mod simple;
pub mod small;
pub mod specweb99;

use simple::{Shape, Targets};
use small::Small;
use specweb99::FileSet;

/// A workload, with the requests its sessions name.
pub type Built = (Arc<dyn Workload>, Requests);

/// An error in a workload's options or file, as a sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    fn at(name: &str, line: usize, what: impl fmt::Display) -> Self {
        Self(format!("{name}:{line}: {what}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// A named workload, whose files `weir load files` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A single small file.
    Small(&'static Small),
    /// The static part of SPECweb99.
    Specweb99,
}

impl Named {
    /// Returns all named workloads, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = Named> {
        small::ALL.iter().map(Named::Small).chain([Named::Specweb99])
    }

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Named::Small(small) => small.name,
            Named::Specweb99 => "specweb99",
        }
    }

    /// Returns a one-line description.
    pub fn help(self) -> &'static str {
        match self {
            Named::Small(small) => small.help,
            Named::Specweb99 => {
                "the static part of SPECweb99: 36 files a directory, 102 to 921600 B"
            }
        }
    }

    /// Builds the workload that requests its files below the path `base`. `mb` is the size of the
    /// SPECweb99 set, MiB. `shape` applies to a small file; SPECweb99 has its own shape, and takes
    /// only [`Shape::close`] from it.
    ///
    /// # Errors
    /// For SPECweb99, the errors of [`FileSet::new`].
    pub fn build(
        self,
        template: &Template,
        base: &str,
        mb: u64,
        shape: Shape,
    ) -> Result<Built, Error> {
        match self {
            Named::Small(small) => {
                Ok(Targets::get(vec![below(base, small.file)]).build(template, shape))
            }
            Named::Specweb99 => Ok(FileSet::new(mb)?.build(template, base, shape.close)),
        }
    }
}

impl FromStr for Named {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Named::all().find(|named| named.name() == name).ok_or_else(|| {
            let names: Vec<_> = Named::all().map(Named::name).collect();
            Error(format!("no workload is called {name}; there are {}", names.join(", ")))
        })
    }
}

/// Returns the target of a file below the path `base`.
fn below(base: &str, file: &str) -> String {
    format!("{}/{file}", base.trim_end_matches('/'))
}

/// Parses a request target (RFC 9112 section 3.2) in a file: a path, an absolute URI, or `*`. Bytes
/// above ASCII are percent-encoded. `None` if it cannot be sent.
fn target(bytes: &[u8]) -> Option<String> {
    let visible = bytes.iter().all(|byte| byte.is_ascii_graphic() || !byte.is_ascii());
    let absolute =
        ["http://", "https://"].iter().any(|scheme| bytes.starts_with(scheme.as_bytes()));
    if !visible || !(bytes.starts_with(b"/") || absolute || bytes == b"*") {
        return None;
    }
    let mut target = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            0x80.. => target.push_str(&format!("%{byte:02X}")),
            _ => target.push(char::from(byte)),
        }
    }
    Some(target)
}

/// A request table in which each distinct request is prepared once.
struct Interned<'a> {
    template: &'a Template,
    requests: Requests,
    ids: HashMap<(String, String, Vec<u8>), RequestId>,
}

impl<'a> Interned<'a> {
    fn new(template: &'a Template) -> Self {
        Self { template, requests: Requests::default(), ids: HashMap::new() }
    }

    fn id(&mut self, method: &str, target: &str, body: &[u8]) -> RequestId {
        let key = (method.to_owned(), target.to_owned(), body.to_vec());
        *self
            .ids
            .entry(key)
            .or_insert_with(|| self.requests.push(self.template.request(method, target, body)))
    }
}

/// A deterministic workload: every source is a copy of the same one.
struct Copies<S>(S);

impl<S: SessionSource + Clone + Sync + 'static> Workload for Copies<S> {
    fn source(&self, _seed: u64) -> Box<dyn SessionSource> {
        Box::new(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;

    /// Returns the sessions of the arrivals numbered `arrivals`.
    pub(super) fn filled(workload: &dyn Workload, arrivals: std::ops::Range<u64>) -> Vec<Session> {
        let mut source = workload.source(1);
        arrivals
            .map_while(|arrival| {
                let mut session = Session::default();
                source.fill(arrival, &mut session).then_some(session)
            })
            .collect()
    }

    /// Returns the target of each step, prefixed with `+` if the step is pipelined.
    pub(super) fn targets(requests: &Requests, session: &Session) -> Vec<String> {
        let target = |step: &crate::session::SessionStep| {
            let request = str::from_utf8(&requests.get(step.request).unwrap().keep).unwrap();
            let target = request.split(' ').nth(1).unwrap();
            format!("{}{target}", if step.piped { "+" } else { "" })
        };
        session.steps.iter().map(target).collect()
    }

    #[test]
    fn every_name_is_its_workload_s() {
        for named in Named::all() {
            assert_eq!(named.name().parse(), Ok(named));
            let (workload, requests) =
                named.build(&Template::default(), "/base/", 1, Shape::default()).unwrap();
            let session = &filled(&*workload, 0..1)[0];
            assert!(targets(&requests, session).iter().all(|target| target.contains("/base/")));
        }
        let error = "specweb".parse::<Named>().unwrap_err().to_string();
        assert!(error.contains("one-byte, 2k, 6k, one-packet, 1259, 8192, specweb99"), "{error}");
    }

    #[test]
    fn a_target_is_what_can_stand_in_a_request_line() {
        for (bytes, expected) in [
            (&b"/a?b=c#d"[..], Some("/a?b=c#d")),
            (b"/\xc3\xa9", Some("/%C3%A9")),
            (b"http://h/x", Some("http://h/x")),
            (b"*", Some("*")),
            (b"", None),
            (b"a", None),
            (b"**", None),
            (b"/a b", None),
            (b"/a\r\nX: y", None),
            (b"/\x7f", None),
        ] {
            assert_eq!(target(bytes).as_deref(), expected);
        }
    }
}
