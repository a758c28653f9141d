//! A server for tests of what stands in front of it: it records each request as it arrived, and
//! answers with the bytes that the test gives.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt;

use weir_http1::{Body, HeadParser, Limits, Parse};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// The head, with the empty line that ends it.
    pub head: String,
    /// The content, without chunk heads and trailers.
    pub body: Vec<u8>,
    /// Number of the connection, from 0.
    pub connection: usize,
}

impl Received {
    /// Returns the request line.
    #[must_use]
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// Returns the values of the fields with this name.
    #[must_use]
    pub fn fields(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }
}

/// Bytes that an origin sends for a request, and what becomes of the connection.
pub type Sent = (Vec<u8>, After);

/// What becomes of an origin's connection after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It stays open.
    Keep,
    /// It is closed.
    Close,
    /// It is reset.
    Reset,
}

/// Answers a request.
type Answer = dyn Fn(&Received) -> Sent + Send + Sync;

struct Shared {
    answer: Box<Answer>,
    /// The requests so far, if they are recorded.
    received: Option<Mutex<Vec<Received>>>,
    connections: AtomicUsize,
    in_flight: AtomicUsize,
    in_flight_max: AtomicUsize,
    malformed: AtomicUsize,
    stops: AtomicBool,
}

/// A running origin; stopped when dropped.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    /// Starts an origin. Without any bytes of a reply, the connection is closed; and after one to
    /// HTTP/1.0.
    pub fn start(answer: impl Fn(&Received) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let answer = move |received: &Received| {
            let reply = answer(received);
            let ends = reply.is_empty() || reply.starts_with(b"HTTP/1.0");
            (reply, if ends { After::Close } else { After::Keep })
        };
        Self::start_with(Box::new(answer), Some(Mutex::default()))
    }

    /// Starts an origin for so many requests that they are not recorded.
    pub fn for_many(answer: impl Fn(&Received) -> Sent + Send + Sync + 'static) -> Self {
        Self::start_with(Box::new(answer), None)
    }

    fn start_with(answer: Box<Answer>, received: Option<Mutex<Vec<Received>>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answer,
            received,
            connections: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            in_flight_max: AtomicUsize::new(0),
            malformed: AtomicUsize::new(0),
            stops: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.stops.load(Ordering::Relaxed) {
                    return;
                }
                let number = accepting.connections.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || shared.serve(stream, number));
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    /// Starts an origin that answers with the request line and the content.
    pub fn echo() -> Self {
        Self::start(|received| reply(&[received.line().as_bytes(), b"\n", &received.body].concat()))
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests so far.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        let received = self.shared.received.as_ref().expect("requests that are recorded");
        received.lock().unwrap().clone()
    }

    /// Returns the number of connections so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of requests that were being answered at a time.
    #[must_use]
    pub fn in_flight_max(&self) -> usize {
        self.shared.in_flight_max.load(Ordering::Relaxed)
    }

    /// Returns the number of connections on which something else than a request arrived.
    #[must_use]
    pub fn malformed(&self) -> usize {
        self.shared.malformed.load(Ordering::Relaxed)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        // Wakes the accept.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A gate at which an origin waits before it answers; closed at first.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// Lets through those that wait, and those to come.
    pub fn open(&self) {
        self.set(true);
    }

    /// Holds up those to come.
    pub fn close(&self) {
        self.set(false);
    }

    fn set(&self, is_open: bool) {
        let (state, changed) = &*self.0;
        *state.lock().unwrap() = is_open;
        changed.notify_all();
    }

    /// Waits until it is open.
    pub fn pass(&self) {
        let (state, changed) = &*self.0;
        let is_closed = |is_open: &mut bool| !*is_open;
        drop(changed.wait_while(state.lock().unwrap(), is_closed).unwrap());
    }
}

/// Returns a 200 with a content of known length.
#[must_use]
pub fn reply(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Starts an origin that handles each connection after the head of its first request, for as long
/// as the process runs, and returns its address. The handler gets the bytes behind that head.
///
/// # Panics
/// When there is no free port.
pub fn by_hand(handle: impl Fn(TcpStream, Vec<u8>) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let handle = Arc::new(handle);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let handle = Arc::clone(&handle);
            std::thread::spawn(move || {
                let mut head = Vec::new();
                loop {
                    if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
                        return handle(stream, head.split_off(at + 4));
                    }
                    if read(&mut stream, &mut head).is_none() {
                        return;
                    }
                }
            });
        }
    });
    address
}

impl Shared {
    fn serve(&self, mut stream: TcpStream, connection: usize) {
        let mut input = Vec::new();
        while let Some(received) = self.receive(&mut stream, &mut input, connection) {
            if let Some(all) = &self.received {
                all.lock().unwrap().push(received.clone());
            }
            let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
            self.in_flight_max.fetch_max(now, Ordering::Relaxed);
            let (reply, after) = (self.answer)(&received);
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            let is_sent = stream.write_all(&reply).is_ok();
            if after == After::Reset {
                let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
                return;
            }
            if !is_sent || after == After::Close {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
    }

    /// Receives a request; `None` at the end of the connection.
    fn receive(
        &self,
        stream: &mut TcpStream,
        input: &mut Vec<u8>,
        connection: usize,
    ) -> Option<Received> {
        let mut parser = HeadParser::default();
        let (head, mut body) = loop {
            match parser.parse(input, &Limits::default()) {
                Parse::Complete(request) => {
                    let head = input.get(..request.head_len)?.to_vec();
                    let body = Body::new(request.framing);
                    input.drain(..head.len());
                    break (head, body);
                }
                Parse::Refused(_) => {
                    self.malformed.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
                Parse::Partial => read(stream, input)?,
            }
        };
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.to_ascii_lowercase().contains("\r\nexpect: 100-continue\r\n") {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
        }
        let mut content = Vec::new();
        let mut trailers = Vec::new();
        while !body.is_done() {
            let Ok(piece) = body.next_piece(input, &mut trailers) else {
                self.malformed.fetch_add(1, Ordering::Relaxed);
                return None;
            };
            content.extend_from_slice(&input[piece.data]);
            input.drain(..piece.consumed);
            if piece.consumed == 0 && !piece.done {
                read(stream, input)?;
            }
        }
        Some(Received { head, body: content, connection })
    }
}

fn read(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 16 << 10];
    match stream.read(&mut buffer) {
        Ok(0) | Err(_) => None,
        Ok(bytes) => {
            input.extend_from_slice(&buffer[..bytes]);
            Some(())
        }
    }
}
