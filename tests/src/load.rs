//! `weir load` as a child process, its parsed output, and a server that records everything its
//! clients did.
//!
//! Every run is checked here for the invariants of any run, whatever it is for. The server's
//! records are the truth that a run's figures are compared with.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use weir_http1::{Body, HeadParser, Limits, Parse};

use crate::server::run;

/// Distributions of complete replies.
const OF_REPLIES: [&str; 5] = ["send", "wait", "transfer", "service", "response"];

/// Maximum relative error of a time in a histogram, which has three significant digits.
const ROUNDING: f64 = 0.002;

/// A finished run.
#[derive(Debug)]
pub struct LoadRun {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Output of `--json`.
    pub json: Value,
    /// Output of `--each`, by planned start.
    pub each: Vec<RequestLine>,
}

/// A line of `--each`. Times are nanoseconds since the start of the run.
#[derive(Clone, Debug)]
pub struct RequestLine {
    /// Times of: planned, started, connected, sent, first byte, last byte; `None` for what did not
    /// happen.
    pub clocks: [Option<u64>; 6],
    /// Time at which the TLS handshake was done; `None` without TLS.
    pub secured: Option<u64>,
    /// The reply's status, or the name of the error.
    pub end: String,
}

/// Runs `weir load` on `url`. Options are separated by white space.
///
/// # Panics
/// When the run refuses its options, crashes, or reports anything that violates an invariant.
pub fn load(weir: &str, options: &str, url: impl Display) -> LoadRun {
    load_through(&[], weir, options, url)
}

/// Like [`load`], but passes the command line as the last arguments of another program, such as a
/// shell that sets a limit.
pub fn load_through(before: &[&str], weir: &str, options: &str, url: impl Display) -> LoadRun {
    let dir = TempDir::new().unwrap();
    let (json, each) = (dir.path().join("run.json"), dir.path().join("each.ndjson"));
    let mut words = before.iter().copied().chain([weir, "load"]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(options.split_whitespace());
    command.arg("--json").arg(&json).arg("--each").arg(&each).arg(url.to_string());
    let stopped = run(&mut command);
    let code = stopped.status.code().unwrap_or(-1);
    assert!(!stopped.stderr.contains("panicked"), "{}", stopped.stderr);
    assert!([0, 1, 3].contains(&code), "exit code {code} of {options}: {}", stopped.stderr);
    let json = serde_json::from_str(&read(&json)).unwrap();
    let mut each: Vec<RequestLine> = read(&each).lines().map(RequestLine::parse).collect();
    each.sort_by_key(|line| line.clocks);
    let ran = LoadRun { code, stdout: stopped.stdout, stderr: stopped.stderr, json, each };
    ran.check();
    ran
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

impl LoadRun {
    /// Returns a number of the JSON's counts.
    pub fn count(&self, name: &str) -> u64 {
        let count = &self.json["counts"][name];
        count.as_u64().unwrap_or_else(|| panic!("{name} is {count}"))
    }

    /// Returns the kinds of errors that occurred, with their counts.
    pub fn errors(&self) -> BTreeMap<&str, u64> {
        let errors = self.json["errors"].as_object().unwrap().iter();
        let errors = errors.map(|(kind, count)| (kind.as_str(), count.as_u64().unwrap()));
        errors.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns whether the run reports that it was not limited by its client.
    pub fn is_valid(&self) -> bool {
        self.json["verdict"]["valid"].as_bool().unwrap()
    }

    /// Checks the invariants of every run.
    fn check(&self) {
        let (planned, started) = (self.count("planned"), self.count("started"));
        let (replies, errors) = (self.count("replies"), self.count("errors"));
        assert_eq!(self.errors().values().sum::<u64>(), errors, "{self:?}");
        assert!(started <= planned && self.count("arrivals") <= planned, "{self:?}");
        if self.json["verdict"]["interrupted"] == false {
            assert_eq!(started, replies + errors, "{self:?}");
        }
        self.check_whole_run();
        let statuses = self.json["counts"]["statuses"].as_object().unwrap().values();
        assert_eq!(statuses.map(|count| count.as_u64().unwrap()).sum::<u64>(), replies);
        let conditions = self.json["conditions"].as_array().unwrap();
        let met = conditions.iter().all(|condition| condition["holds"] == false);
        let expected = if !self.is_valid() { 3 } else { i32::from(!met) };
        assert_eq!(self.code, expected, "{self:?}");
        self.each.iter().for_each(RequestLine::check);
        self.check_clocks();
    }

    /// Checks the counts with the warm-up included: they equal the measured ones if there is none.
    fn check_whole_run(&self) {
        let warm = self.json["description"]["warmup_s"].as_f64().unwrap() > 0.0;
        for (name, whole) in self.json["whole_run"].as_object().unwrap() {
            let (whole, measured) = (whole.as_u64().unwrap(), self.count(name));
            assert!(whole == measured || (warm && whole > measured), "{name}: {self:?}");
        }
    }

    /// Returns a number of the JSON's whole run: the counts with those of the warm-up.
    pub fn whole_count(&self, name: &str) -> u64 {
        let count = &self.json["whole_run"][name];
        count.as_u64().unwrap_or_else(|| panic!("{name} is {count}"))
    }

    /// Checks that the histograms agree with the individual requests.
    fn check_clocks(&self) {
        let clocks = &self.json["clocks"];
        for name in OF_REPLIES {
            assert_eq!(clocks[name]["count"], self.count("replies"), "{name}");
        }
        assert_eq!(clocks["connect"]["count"], self.count("connected"));
        assert_eq!(clocks["handshake"]["count"], self.count("handshakes"));
        assert!(self.count("handshakes_resumed") <= self.count("handshakes"));
        let from_ns = (self.json["description"]["warmup_s"].as_f64().unwrap() * 1e9) as u64;
        let lines = || self.each.iter().filter(|line| line.planned_ns() >= from_ns);
        let failed = lines().filter(|line| !line.is_reply()).count() as u64;
        assert_eq!(failed, self.count("errors"));
        for (name, time_ns) in [
            ("response", RequestLine::response_ns as fn(&RequestLine) -> u64),
            ("service", RequestLine::service_ns),
        ] {
            let mut times: Vec<u64> = lines().filter(|line| line.is_reply()).map(time_ns).collect();
            assert_eq!(times.len() as u64, self.count("replies"));
            times.sort_unstable();
            check_summary(&clocks[name], &times, name);
        }
    }
}

/// Checks a summary of `times`, nanoseconds, ascending.
fn check_summary(summary: &Value, times: &[u64], name: &str) {
    if times.is_empty() {
        return;
    }
    let at = |share: f64| times[((times.len() as f64 * share).ceil() as usize).max(1) - 1] as f64;
    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
    for (key, exact_ns) in [
        ("min_us", times[0] as f64),
        ("mean_us", mean),
        ("p50_us", at(0.5)),
        ("p99_us", at(0.99)),
        ("max_us", at(1.0)),
    ] {
        let shown_ns = summary[key].as_f64().unwrap() * 1e3;
        let off = (shown_ns - exact_ns).abs();
        assert!(off <= exact_ns * ROUNDING + 1.0, "{name} {key}: {shown_ns}, not {exact_ns}");
    }
}

impl RequestLine {
    fn parse(line: &str) -> RequestLine {
        let line: Value = serde_json::from_str(line).unwrap();
        let clocks =
            ["planned", "started", "connected", "sent", "first_byte", "last_byte"].map(|clock| {
                let time = line.get(format!("{clock}_ns")).unwrap_or_else(|| panic!("{line}"));
                time.as_u64()
            });
        let end = [&line["status"], &line["error"]].into_iter().find(|end| !end.is_null());
        let secured = line.get("secured_ns").map(|time| time.as_u64().unwrap());
        RequestLine { clocks, secured, end: end.unwrap().to_string().trim_matches('"').to_owned() }
    }

    /// Checks that clocks go forward, and that a reply has all six.
    fn check(&self) {
        let happened: Vec<u64> = self.clocks.iter().flatten().copied().collect();
        assert!(happened.is_sorted(), "{self:?}");
        if let Some(secured) = self.secured {
            assert!(self.clocks[2].is_some_and(|connected| connected <= secured), "{self:?}");
            assert!(self.clocks[3].is_none_or(|sent| secured <= sent), "{self:?}");
        }
        let first = self.clocks.iter().take_while(|clock| clock.is_some()).count();
        assert_eq!(first, happened.len(), "a clock is skipped: {self:?}");
        assert_eq!(happened.len() == 6, self.is_reply(), "{self:?}");
    }

    /// Returns whether there was a complete reply.
    pub fn is_reply(&self) -> bool {
        self.end.parse::<u16>().is_ok()
    }

    /// Returns the planned start.
    pub fn planned_ns(&self) -> u64 {
        self.clocks[0].unwrap()
    }

    /// Returns the time from the planned start to the last byte of a complete reply.
    pub fn response_ns(&self) -> u64 {
        self.clocks[5].unwrap() - self.planned_ns()
    }

    /// Returns the time from the actual start to the last byte of a complete reply.
    pub fn service_ns(&self) -> u64 {
        self.clocks[5].unwrap() - self.clocks[1].unwrap()
    }
}

/// Behaviour of a [`RecordingServer`].
#[derive(Clone, Copy, Debug)]
pub struct ReplySettings {
    /// Bytes of the body.
    pub body_bytes: usize,
    /// Number of requests of a connection that must be waiting before it answers, all of them at
    /// once.
    pub hold: usize,
}

/// Record of a connection. Instants of requests are taken once they are read, those of replies
/// before they are written: any time a client measures contains them.
#[derive(Clone, Debug)]
pub struct ConnectionRecord {
    /// The client's address.
    pub peer: SocketAddr,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written, or about to be.
    pub bytes_out: u64,
    /// Complete requests, in order.
    pub requests: Vec<RequestRecord>,
    /// End of the connection, if it has ended, and its cause.
    pub end: Option<(Instant, End)>,
}

/// Cause of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Closed by the server, as requested.
    AsRequested,
    /// Closed by the client.
    Closed,
    /// Reset by the client.
    Reset,
}

/// Record of a request.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// The request line.
    pub line: String,
    /// The head, including the request line.
    pub head: String,
    /// The content.
    pub body: Vec<u8>,
    /// Number of reads it took to arrive.
    pub reads: u64,
    /// Instant at which it was complete.
    pub read: Instant,
    /// Instant just before it was answered.
    pub answered: Option<Instant>,
    /// True if the kernel has taken the whole answer.
    pub written: bool,
}

/// A correct server that records everything. It listens on a free port of 127.0.0.1; a thread
/// serves each connection.
pub struct RecordingServer {
    address: SocketAddr,
    records: Arc<Mutex<Vec<ConnectionRecord>>>,
    stop: Arc<AtomicBool>,
}

impl RecordingServer {
    /// Starts a server.
    pub fn start(settings: ReplySettings) -> RecordingServer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (records, stop) =
            (Arc::<Mutex<Vec<ConnectionRecord>>>::default(), Arc::<AtomicBool>::default());
        let server =
            RecordingServer { address, records: Arc::clone(&records), stop: Arc::clone(&stop) };
        thread::spawn(move || {
            while let Ok((stream, peer)) = listener.accept() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let mut connections = records.lock().unwrap();
                let connection = Connection {
                    number: connections.len(),
                    records: Arc::clone(&records),
                    settings,
                };
                let requests = Vec::new();
                connections.push(ConnectionRecord {
                    peer,
                    bytes_in: 0,
                    bytes_out: 0,
                    requests,
                    end: None,
                });
                thread::spawn(move || connection.serve(stream));
            }
        });
        server
    }

    /// Starts a server that answers each request at once with a thousand bytes.
    pub fn plain() -> RecordingServer {
        RecordingServer::start(ReplySettings { body_bytes: 1000, hold: 1 })
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a URL of the server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns all connections so far, in the order they were accepted.
    pub fn connections(&self) -> Vec<ConnectionRecord> {
        self.records.lock().unwrap().clone()
    }

    /// Returns the request lines of all connections so far, grouped by connection.
    pub fn lines(&self) -> Vec<String> {
        self.connections()
            .into_iter()
            .flat_map(|connection| connection.requests)
            .map(|request| request.line)
            .collect()
    }
}

impl Drop for RecordingServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Only to wake the thread that accepts.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

/// A connection, as its thread serves it.
struct Connection {
    number: usize,
    records: Arc<Mutex<Vec<ConnectionRecord>>>,
    settings: ReplySettings,
}

impl Connection {
    fn record(&self) -> RecordGuard<'_> {
        RecordGuard { connections: self.records.lock().unwrap(), number: self.number }
    }

    /// Serves until either side ends the connection.
    fn serve(self, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let (mut input, mut piece) = (Vec::new(), [0; 16 << 10]);
        let (mut reads, mut waiting) = (0, Vec::new());
        let end = loop {
            let count = match stream.read(&mut piece) {
                Ok(0) => break End::Closed,
                Ok(count) => count,
                Err(_) => break End::Reset,
            };
            reads += 1;
            self.record().get().bytes_in += count as u64;
            input.extend_from_slice(&piece[..count]);
            while let Some((request, keeps)) = take(&mut input, reads) {
                reads = 0;
                let mut record = self.record();
                waiting.push((record.get().requests.len(), keeps));
                record.get().requests.push(request);
            }
            if waiting.len() < self.settings.hold {
                continue;
            }
            if !waiting.drain(..).all(|(number, keeps)| self.answer(&mut stream, number, keeps)) {
                break End::AsRequested;
            }
        };
        self.record().get().end = Some((Instant::now(), end));
    }

    /// Answers a request; returns whether the connection continues.
    fn answer(&self, stream: &mut TcpStream, number: usize, keeps: bool) -> bool {
        let mut record = self.record();
        let request = &mut record.get().requests[number];
        let length = self.settings.body_bytes;
        let connection = if keeps { "keep-alive" } else { "close" };
        let mut reply = format!(
            "HTTP/1.1 200 OK\r\nConnection: {connection}\r\nContent-Length: {length}\r\n\r\n"
        );
        if !request.line.starts_with("HEAD ") {
            reply.push_str(&"x".repeat(length));
        }
        request.answered = Some(Instant::now());
        record.get().bytes_out += reply.len() as u64;
        drop(record);
        let written = stream.write_all(reply.as_bytes()).is_ok();
        self.record().get().requests[number].written = written;
        keeps
    }
}

struct RecordGuard<'a> {
    connections: MutexGuard<'a, Vec<ConnectionRecord>>,
    number: usize,
}

impl RecordGuard<'_> {
    fn get(&mut self) -> &mut ConnectionRecord {
        &mut self.connections[self.number]
    }
}

/// Takes a complete request from the front, if there is one; returns it with whether its connection
/// stays open.
fn take(input: &mut Vec<u8>, reads: u64) -> Option<(RequestRecord, bool)> {
    let (request_line, head_len, keeps, framing) =
        match HeadParser::default().parse(input, &Limits::default()) {
            Parse::Complete(head) => {
                (head.request_line.to_vec(), head.head_len, head.keep_alive, head.framing)
            }
            Parse::Partial => return None,
            Parse::Refused(refusal) => panic!("{refusal:?}"),
        };
    let body = Body::new(framing).advance(&input[head_len..]).unwrap();
    if !body.done {
        return None;
    }
    let mut whole: Vec<u8> = input.drain(..head_len + body.consumed).collect();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let body = whole.split_off(head_len);
    let (line, head) = (text(&request_line), text(&whole));
    let request = RequestRecord {
        line,
        head,
        body,
        reads,
        read: Instant::now(),
        answered: None,
        written: false,
    };
    Some((request, keeps))
}
