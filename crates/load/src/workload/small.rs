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
    /// Name on the command line; that of the file has `.txt` behind it.
    pub name: &'static str,
    /// Size of the file.
    pub size: FileSize,
    /// Description in one line.
    pub help: &'static str,
}

impl SmallFile {
    /// Returns the name of the file.
    pub fn file(&self) -> String {
        format!("{}.txt", self.name)
    }
}

/// The size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSize {
    /// A fixed number of bytes.
    Bytes(u64),
    /// Number of bytes that fills one segment of [`MSS_BYTES`] together with the reply's head.
    OnePacket,
}

impl FileSize {
    /// Returns the size in bytes, for a server whose reply head has `head_bytes`; 0 if the head
    /// leaves no room.
    pub fn bytes(self, head_bytes: u64) -> u64 {
        match self {
            FileSize::Bytes(bytes) => bytes,
            FileSize::OnePacket => MSS_BYTES.saturating_sub(head_bytes),
        }
    }
}

/// All workloads of one file.
pub const ALL: [SmallFile; 6] = [
    small("one-byte", FileSize::Bytes(1), "a file of 1 byte: the cost of a connection"),
    small("2k", FileSize::Bytes(2048), "a file of 2048 bytes"),
    small("6k", FileSize::Bytes(6144), "a file of 6144 bytes"),
    small(
        "one-packet",
        FileSize::OnePacket,
        "a file that fills one segment of 1448 bytes with the head of `weir serve --compress=off`",
    ),
    small("1259", FileSize::Bytes(1259), "a file of 1259 bytes: the smaller of Banga and Druschel"),
    small("8192", FileSize::Bytes(8192), "a file of 8192 bytes: the larger of Banga and Druschel"),
];

const fn small(name: &'static str, size: FileSize, help: &'static str) -> SmallFile {
    SmallFile { name, size, help }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_names() {
        let sizes = ALL.map(|small| small.size.bytes(WEIR_HEAD_BYTES));
        assert_eq!(sizes, [1, 2048, 6144, 1198, 1259, 8192]);
        assert_eq!(FileSize::OnePacket.bytes(248), 1200);
        assert_eq!(FileSize::OnePacket.bytes(2000), 0);
    }
}
