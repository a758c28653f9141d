//! Workloads that repeatedly request one small file, as a table.

/// Payload of one packet, bytes: the maximum segment size on a path of 1500-byte packets, with
/// timestamps (RFC 7323).
pub const MSS_BYTES: u64 = 1448;

/// Length of the reply head that `weir serve`, with its defaults, sends for the file of
/// `one-packet` if the request has `Connection: close`, bytes; 19 fewer if it has not. Measured;
/// date and entity tag always have this length.
pub const WEIR_HEAD_BYTES: u64 = 250;

/// A workload of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallFile {
    /// Name on the command line.
    pub name: &'static str,
    /// Name of the file.
    pub file: &'static str,
    /// Size of the file.
    pub size: FileSize,
    /// Description in one line.
    pub help: &'static str,
}

/// The size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSize {
    /// A fixed number of bytes.
    Bytes(u64),
    /// The size given by [`one_packet_body`].
    OnePacket,
}

impl FileSize {
    /// Returns the size in bytes, for a server whose reply head has `head_bytes`.
    pub fn bytes(self, head_bytes: u64) -> u64 {
        match self {
            FileSize::Bytes(bytes) => bytes,
            FileSize::OnePacket => one_packet_body(head_bytes),
        }
    }
}

/// Returns the size of the body that fills one segment of [`MSS_BYTES`] together with a head of
/// `head_bytes`; 0 if the head leaves no room.
pub fn one_packet_body(head_bytes: u64) -> u64 {
    MSS_BYTES.saturating_sub(head_bytes)
}

/// All workloads of one file.
pub const ALL: [SmallFile; 6] = [
    SmallFile {
        name: "one-byte",
        file: "one-byte.txt",
        size: FileSize::Bytes(1),
        help: "a file of 1 byte: the cost of a connection",
    },
    SmallFile {
        name: "2k",
        file: "2k.txt",
        size: FileSize::Bytes(2048),
        help: "a file of 2048 bytes",
    },
    SmallFile {
        name: "6k",
        file: "6k.txt",
        size: FileSize::Bytes(6144),
        help: "a file of 6144 bytes",
    },
    SmallFile {
        name: "one-packet",
        file: "one-packet.txt",
        size: FileSize::OnePacket,
        help: "a file that fills one segment of 1448 bytes together with the reply's head",
    },
    SmallFile {
        name: "1259",
        file: "1259.txt",
        size: FileSize::Bytes(1259),
        help: "a file of 1259 bytes: the smaller of Banga and Druschel",
    },
    SmallFile {
        name: "8192",
        file: "8192.txt",
        size: FileSize::Bytes(8192),
        help: "a file of 8192 bytes: the larger of Banga and Druschel",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_names() {
        let sizes = ALL.map(|small| small.size.bytes(WEIR_HEAD_BYTES));
        assert_eq!(sizes, [1, 2048, 6144, 1198, 1259, 8192]);
        assert_eq!(one_packet_body(248), 1200);
        assert_eq!(one_packet_body(2000), 0);
    }
}
