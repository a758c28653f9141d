//! What a front does wrong on purpose, and what it has counted.

use std::sync::atomic::AtomicU64;

/// What a front does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It closes the connection once the client's first message has come.
    CloseInHandshake,
    /// It resets the connection then.
    ResetInHandshake,
    /// It says nothing then.
    SilentInHandshake,
    /// It sends half of its part of the handshake, and closes.
    CloseMidHandshake,
    /// It ends connections without close_notify.
    NoCloseNotify,
    /// It asks for new keys (RFC 8446 section 4.6.3) behind each reply.
    KeyUpdates,
    /// It sends what is not TLS behind the handshake.
    Garbage,
}

/// Handshakes that a front has seen.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Connections accepted.
    pub(super) accepted: AtomicU64,
    /// Full handshakes done.
    pub(super) full: AtomicU64,
    /// Resumed handshakes done.
    pub(super) resumed: AtomicU64,
    /// Updates of keys asked for.
    pub(super) key_updates: AtomicU64,
}
