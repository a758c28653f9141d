//! A server for the tests of the loads: it serves the files of the matrix, and lies about one of
//! them when told to. Knows just enough HTTP for wrk and ab.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use tempfile::TempDir;
use weir_lab::programs;

use super::files::{self, Asked};

/// How the file of 4097 bytes is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// As it is.
    None,
    /// With another last byte.
    LastByte,
    /// Without its last byte, and saying so.
    Shorter,
    /// As the file of 4096 bytes.
    OtherFile,
}

/// A running server; it lives until the test ends.
pub(super) struct Lying {
    pub(super) address: SocketAddr,
    pub(super) set: Vec<Asked>,
    pub(super) folder: TempDir,
}

/// Starts the server, or says that the test is skipped because `tool` is missing.
pub(super) fn serve(lie: Lie, tool: &str) -> Option<Lying> {
    if programs::find(tool).is_none() {
        println!("{tool} is not installed: skipped");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let set = files::write(folder.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let replies: Arc<Vec<_>> = Arc::new(set.iter().map(|asked| reply(asked, &set, lie)).collect());
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let replies = replies.clone();
            thread::spawn(move || answer(&connection, &replies));
        }
    });
    Some(Lying { address, set, folder })
}

fn reply(asked: &Asked, set: &[Asked], lie: Lie) -> (String, Vec<u8>) {
    let mut body = fs::read(&asked.path).unwrap();
    if asked.bytes == 4097 {
        match lie {
            Lie::None => {}
            Lie::LastByte => *body.last_mut().unwrap() ^= 1,
            Lie::Shorter => drop(body.pop()),
            Lie::OtherFile => {
                let other = set.iter().find(|other| other.bytes == 4096).unwrap();
                body = fs::read(&other.path).unwrap();
            }
        }
    }
    let head = "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n";
    let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
    (format!("GET {} ", asked.target), [head.into_bytes(), body].concat())
}

/// Answers until the client goes, which is how every connection of a load ends.
fn answer(mut connection: &TcpStream, replies: &[(String, Vec<u8>)]) {
    let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
    while let Some(first) = lines.next() {
        let _ = lines.by_ref().take_while(|line| !line.is_empty()).count();
        let reply = replies.iter().find(|(asked, _)| first.starts_with(asked));
        if connection.write_all(&reply.unwrap().1).is_err() {
            return;
        }
    }
}
