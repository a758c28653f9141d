//! A TCP segment without its ports: what a connection is told of and what it sends (RFC 9293
//! section 3.1).

use crate::seq::Seq;

/// A segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Sequence number of the first byte, or of the SYN.
    pub seq: Seq,
    /// Acknowledgement number, if there is one (ACK).
    pub ack: Option<Seq>,
    /// Window, not yet scaled.
    pub window: u16,
    /// SYN, FIN, RST, PSH.
    pub flags: Flags,
    /// The options.
    pub options: Options,
    /// The data.
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// Returns the sequence space that the segment takes: its data, SYN and FIN.
    pub fn space(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.flags.syn) + u32::from(self.flags.fin)
    }

    /// Returns the sequence number behind the segment.
    pub fn end(&self) -> Seq {
        self.seq.plus(self.space())
    }
}

/// The flags besides ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Opens the connection.
    pub syn: bool,
    /// Ends the sender's stream.
    pub fin: bool,
    /// Ends the connection.
    pub rst: bool,
    /// No further data is on its way for now.
    pub psh: bool,
}

/// The options that Linux sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size, bytes (RFC 9293 section 3.7.1). Only with a SYN.
    pub mss: Option<u16>,
    /// Window scale, bits (RFC 7323 section 2). Only with a SYN.
    pub window_shift: Option<u8>,
    /// SACK permitted (RFC 2018 section 2). Only with a SYN.
    pub may_sack: bool,
    /// Timestamp and echo reply (RFC 7323 section 3).
    pub timestamps: Option<Timestamps>,
    /// Blocks received beyond the acknowledgement number (RFC 2018 section 3).
    pub sack: [Option<(Seq, Seq)>; SACK_MAX],
}

impl Options {
    /// Returns the bytes of the blocks' option with its padding; 0 without a block.
    pub fn sack_bytes(&self) -> usize {
        match self.sack.iter().flatten().count() {
            0 => 0,
            blocks => 4 + 8 * blocks,
        }
    }
}

/// Blocks in a segment that has timestamps too.
pub const SACK_MAX: usize = 3;

/// The timestamps option, in ticks of a millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The last timestamp received.
    pub echo: u32,
}
