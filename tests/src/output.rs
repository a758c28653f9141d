//! Output of a child process, collected while it runs so that its pipe never fills.

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::wait::until;

/// An output stream of a child process.
pub struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    /// Starts to collect the output of `pipe` until its end.
    pub fn collect(mut pipe: impl Read + Send + 'static) -> Output {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut piece) {
                shared.lock().unwrap().extend_from_slice(&piece[..n]);
            }
        });
        Output { bytes, reader: Some(reader) }
    }

    /// Returns the output so far.
    pub fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// Returns all output, once the process and its descendants have closed the stream.
    ///
    /// # Panics
    /// When it stays open for [`crate::wait::TIMEOUT`].
    pub fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            until("all who print had ended", || reader.is_finished());
            reader.join().unwrap();
        }
        self.so_far()
    }
}
