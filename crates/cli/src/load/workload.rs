//! Builds the workload, that is the requests of each arrival, from its options and the files they
//! name. This is the only part of the command line that reads those files; arrival times are
//! handled elsewhere.

use std::path::Path;

use weir_load::schedule::ArrivalLaw;
use weir_load::session::{HttpVersion, RequestTemplate};
use weir_load::workload::sessions::{SessionLog, Wlog, Wsess, Wsesslog, Wset};
use weir_load::workload::simple::{SessionShape, Targets};
use weir_load::workload::{BuiltWorkload, NamedWorkload, replay};

use super::input;
use super::options::{ConnOptions, Http, WorkloadOptions};
use super::target::{Target, truncated};

/// A workload and its properties.
pub(crate) struct PlannedWorkload {
    /// The workload and its requests.
    pub built: BuiltWorkload,
    /// Description in words.
    pub name: String,
    /// Number of sessions, if limited.
    pub sessions: Option<u64>,
    /// Start times of the sessions, if the workload determines them.
    pub arrivals: Option<ArrivalLaw>,
}

impl PlannedWorkload {
    fn endless(built: BuiltWorkload, name: String) -> Self {
        Self { built, name, sessions: None, arrivals: None }
    }
}

/// Builds the workload that `options` ask for, on connections of this `shape`.
///
/// # Errors
/// A sentence: a file cannot be read or has the wrong format, or a shape or a URL does not fit the
/// workload.
pub(crate) fn work(
    options: &WorkloadOptions,
    conns: &ConnOptions,
    shape: SessionShape,
    target: &Target,
) -> Result<PlannedWorkload, String> {
    let template = RequestTemplate {
        version: if conns.http == Http::Http10 { HttpVersion::Http10 } else { HttpVersion::Http11 },
        authority: target.authority.clone(),
        fields: options.header.clone(),
    };
    let builder = WorkloadBuilder { options, conns, shape, target, template };
    if let Some(name) = &options.workload {
        builder.named(name)
    } else if let Some(wsess) = &options.wsess {
        builder.wsess(wsess)
    } else if let Some(wsesslog) = &options.wsesslog {
        builder.wsesslog(wsesslog)
    } else if let Some(wlog) = &options.wlog {
        builder.wlog(wlog)
    } else if let Some(wset) = &options.wset {
        builder.wset(*wset)
    } else if let Some(file) = &options.replay {
        builder.replay(file)
    } else {
        builder.url()
    }
}

/// Inputs from which a workload is built.
struct WorkloadBuilder<'a> {
    options: &'a WorkloadOptions,
    conns: &'a ConnOptions,
    shape: SessionShape,
    target: &'a Target,
    template: RequestTemplate,
}

impl WorkloadBuilder<'_> {
    fn url(&self) -> Result<PlannedWorkload, String> {
        let (method, target) = (self.options.method.clone(), self.target.request_target());
        self.stays_open()?;
        let name = format!("{method} {}{}", truncated(&target), self.per_conn());
        let body = self.options.body.as_deref().map_or(Ok(Vec::new()), body)?;
        let targets = Targets { method, body, ..Targets::get(vec![target]) };
        Ok(PlannedWorkload::endless(targets.build(&self.template, self.shape), name))
    }

    fn named(&self, name: &str) -> Result<PlannedWorkload, String> {
        let named: NamedWorkload = name.parse()?;
        let own_shape = named == NamedWorkload::Specweb99;
        if own_shape {
            self.no_shape("--workload specweb99")?;
        }
        self.stays_open()?;
        let (base, mb) = (self.base("--workload")?, self.options.mb);
        let built = named.build(&self.template, base, mb, self.shape)?;
        let more = if own_shape { format!(", {mb} MiB") } else { self.per_conn() };
        Ok(PlannedWorkload::endless(built, format!("{name}{more}")))
    }

    fn wsess(&self, wsess: &Wsess) -> Result<PlannedWorkload, String> {
        self.no_shape("--wsess")?;
        let (target, burst) = (self.target.request_target(), self.options.burst_length);
        let Wsess { sessions, calls, think_ns } = *wsess;
        let think_s = think_ns as f64 / 1e9;
        let name = format!(
            "{sessions} sessions of {calls} requests, bursts of {burst}, {think_s} s apart"
        );
        let built = wsess.build(&self.template, &target, burst, self.shape.close);
        Ok(PlannedWorkload { sessions: Some(sessions), ..PlannedWorkload::endless(built, name) })
    }

    fn wsesslog(&self, wsesslog: &Wsesslog) -> Result<PlannedWorkload, String> {
        self.no_shape("--wsesslog")?;
        self.no_path("--wsesslog")?;
        let Wsesslog { sessions, think_ns, file } = wsesslog;
        let log = SessionLog::parse(&path_text(file), &read_file(file)?)?;
        let built = log.build(&self.template, *sessions, *think_ns, self.shape.close);
        let name = format!("{sessions} sessions of {}", path_text(file));
        Ok(PlannedWorkload { sessions: Some(*sessions), ..PlannedWorkload::endless(built, name) })
    }

    fn wlog(&self, wlog: &Wlog) -> Result<PlannedWorkload, String> {
        self.no_path("--wlog")?;
        self.stays_open()?;
        let text = read_file(&wlog.file)?;
        let built = wlog.build(&path_text(&wlog.file), &text, &self.template, self.shape);
        let uris = text.split(|&byte| byte == b'\0' || byte == b'\n');
        let uris = uris.filter(|uri| !uri.trim_ascii().is_empty()).count() as u64;
        let length = u64::from(self.shape.requests.max(1));
        let name = format!("the URIs of {}{}", path_text(&wlog.file), self.per_conn());
        let sessions = (!wlog.repeat).then(|| uris.div_ceil(length));
        Ok(PlannedWorkload { sessions, ..PlannedWorkload::endless(built?, name) })
    }

    fn wset(&self, wset: Wset) -> Result<PlannedWorkload, String> {
        let base = self.base("--wset")?;
        self.stays_open()?;
        let name = format!("{} files below {base}{}", wset.files, self.per_conn());
        Ok(PlannedWorkload::endless(wset.build(&self.template, base, self.shape), name))
    }

    fn replay(&self, file: &Path) -> Result<PlannedWorkload, String> {
        self.no_shape("--replay")?;
        self.no_path("--replay")?;
        let (speed, close) = (self.options.speed, self.shape.close);
        let log = read_file(file)?;
        let replay = replay::parse(&path_text(file), &log, speed, &self.template, close)?;
        let replay::LogCounts { total, skipped, emptied } = replay.counts;
        Ok(PlannedWorkload {
            built: replay.built,
            name: format!(
                "replay of {}, {total} lines ({skipped} skipped, {emptied} without their body), \
                 {speed} times as fast",
                path_text(file)
            ),
            sessions: Some(total - skipped),
            arrivals: Some(replay.arrivals),
        })
    }

    /// Describes in words how requests are assigned to connections; empty for the default.
    fn per_conn(&self) -> String {
        let SessionShape { requests, pipeline, .. } = self.shape;
        let piped = if pipeline > 1 { format!(", {pipeline} at a time") } else { String::new() };
        match requests {
            0 => piped,
            1 => ", 1 request a connection".into(),
            _ => format!(", {requests} requests a connection{piped}"),
        }
    }

    /// Checks the shape for a workload that assigns its requests to connections itself.
    fn no_shape(&self, workload: &str) -> Result<(), String> {
        let refuse = |option: &str| {
            Err(format!("{workload} says how many requests a connection has: leave out {option}"))
        };
        match self.shape {
            SessionShape { pipeline: 2.., .. } => refuse("--pipeline"),
            SessionShape { requests: 1.., .. } if self.conns.requests_per_conn.is_some() => {
                refuse("--requests-per-conn")
            }
            _ if self.header_closes() => refuse("--header 'Connection: close'"),
            _ => Ok(()),
        }
    }

    /// Checks that no header closes a connection that carries several requests.
    fn stays_open(&self) -> Result<(), String> {
        if self.shape.requests == 1 || !self.header_closes() {
            return Ok(());
        }
        let why = "--header 'Connection: close' ends a connection with its first request: leave \
                   it out; the last one says it by itself";
        Err(why.into())
    }

    /// Returns whether a header asks the server to close (RFC 9110 section 7.6.1).
    fn header_closes(&self) -> bool {
        let closes = |value: &str| {
            value.split(',').any(|option| option.trim().eq_ignore_ascii_case("close"))
        };
        let mut headers = self.options.header.iter();
        headers.any(|(name, value)| name.eq_ignore_ascii_case("connection") && closes(value))
    }

    /// Checks the URL for a workload whose file contains whole paths.
    fn no_path(&self, option: &str) -> Result<(), String> {
        if self.target.request_target() == "/" {
            return Ok(());
        }
        Err(format!("{option}: the file says what is asked for; leave the path out of the URL"))
    }

    /// Returns the base path for a workload whose files are below the URL's path.
    fn base(&self, option: &str) -> Result<&str, String> {
        match self.target.query {
            Some(_) => Err(format!("{option} asks for files below the URL: leave out its query")),
            None => Ok(&self.target.path),
        }
    }
}

fn body(file: &str) -> Result<Vec<u8>, String> {
    if file != "@-" {
        return read_file(Path::new(file));
    }
    input::all(std::io::stdin())
        .map_err(|error| format!("--body: cannot read standard input: {error}"))
}

fn read_file(file: &Path) -> Result<Vec<u8>, String> {
    input::file(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

fn path_text(file: &Path) -> String {
    file.display().to_string()
}
