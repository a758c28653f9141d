//! The bytes of a fuzz input as a script: a sequence of events, without their effects.

/// The rest of a script.
pub(super) struct Script<'a>(pub &'a [u8]);

/// An event, most of them at one of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The client has another request of a kind to send.
    Ask {
        kind: u8,
        variant: u8,
    },
    /// The client has more bytes to send: from the script, or repetitions of one byte.
    Raw {
        bytes: u8,
    },
    Fill {
        byte: u8,
        times: u8,
    },
    /// Some of the client's bytes arrive.
    Arrive {
        bytes: usize,
        serve: bool,
    },
    /// The connection is served if it is ready, or unconditionally.
    Serve {
        always: bool,
    },
    /// The room for writes changes: in total, or per call.
    Room {
        bytes: usize,
    },
    NoRoom,
    WriteMax {
        bytes: usize,
    },
    TakeNone,
    /// An iteration of the loop begins and serves all connections, in forward or backward order.
    Iteration {
        later_ns: u64,
        backwards: bool,
    },
    /// The connection that yielded continues.
    Resume,
    /// The disk read that the connection waits for completes or fails.
    Fetched {
        really: bool,
    },
    /// Time passes, and due events happen.
    Pass {
        ns: u64,
    },
    /// Time passes until the deadline, or to a nanosecond before.
    PassDeadline {
        early: bool,
    },
    Pressure,
    Drain,
    Evict,
    TurnAway,
    Shut,
    Reset,
    Unacknowledged {
        bytes: u64,
    },
    Forget {
        file: u8,
    },
}

const LATER_NS: [u64; 8] =
    [1, 1000, 100_000, 1_000_000, 1_000_000_000, 3_000_000_000, 11_000_000_000, 86_400_000_000_000];

impl Script<'_> {
    /// Returns the next byte; 0 past the end.
    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Returns the next bytes, as far as there are any.
    pub(super) fn bytes(&mut self, count: usize) -> &[u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// Returns the next event and the connection it applies to; `None` at the end.
    pub(super) fn event(&mut self) -> Option<(usize, Event)> {
        if self.0.is_empty() {
            return None;
        }
        let first = self.byte();
        Some((usize::from(first >> 6), self.event_of(first & 63)))
    }

    fn event_of(&mut self, code: u8) -> Event {
        match code {
            0..16 => Event::Ask { kind: code, variant: self.byte() },
            16..19 => Event::Raw { bytes: self.byte() & 31 },
            19 => Event::Fill { byte: self.byte(), times: self.byte() },
            20..24 => Event::Arrive { bytes: self.amount(), serve: code & 1 != 0 },
            24..28 => Event::Arrive { bytes: usize::MAX, serve: code & 1 != 0 },
            28..32 => Event::Serve { always: false },
            32 => Event::Serve { always: true },
            33..36 => Event::Room { bytes: self.amount() },
            36 => Event::Room { bytes: usize::MAX },
            37 => Event::NoRoom,
            38 => Event::WriteMax { bytes: self.amount() },
            39 => Event::TakeNone,
            40..44 => {
                Event::Iteration { later_ns: self.later_ns() % 7_000_000, backwards: code & 1 != 0 }
            }
            44 | 45 => Event::Resume,
            46 | 47 => Event::Fetched { really: true },
            48 => Event::Fetched { really: false },
            49 | 50 => Event::Pass { ns: self.later_ns() },
            51 | 52 => Event::PassDeadline { early: false },
            53 => Event::PassDeadline { early: true },
            54 => Event::Pressure,
            55 => Event::Drain,
            56 | 57 => Event::Evict,
            58 => Event::TurnAway,
            59 => Event::Shut,
            60 => Event::Reset,
            61 => Event::Unacknowledged { bytes: self.amount() as u64 },
            _ => Event::Forget { file: self.byte() & 15 },
        }
    }

    fn later_ns(&mut self) -> u64 {
        LATER_NS[usize::from(self.byte()) % LATER_NS.len()]
    }

    /// Returns a number of bytes: small ones exactly, and powers of two.
    fn amount(&mut self) -> usize {
        match self.byte() {
            byte @ 0..224 => usize::from(byte),
            byte => 1 << (byte - 216).min(20),
        }
    }
}
