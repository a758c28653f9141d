//! TLS for a server (RFC 8446, RFC 5246): rustls behind the byte-stream contract of a plain socket.
//!
//! An [`Acceptor`] has the certificates and makes a [`Session`] for each connection. A session
//! turns the bytes of a socket into plaintext and back, by calls on a transport that it is given:
//! it knows neither sockets, nor how they are waited for, nor HTTP. The [`client`]'s side does the
//! same towards servers.

mod acceptor;
pub mod client;
mod identity;
mod resolver;
mod session;
mod tickets;

pub use acceptor::{Acceptor, Settings};
pub use identity::{CertificateFiles, Error, OpenFile};
pub use session::{Handshake, Session};
