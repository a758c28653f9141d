//! The messages between the processes of a server, as bytes: commands to a child process, reports
//! to its parent. Both ends are the same program, so numbers are sent in native byte order. Knows
//! nothing of channels or processes.

use weir_stats::{CallRow, Counters, LoopReport, TABLE};
use weir_sys::profile;

use crate::control::Phase;

/// Maximum size of a message, bytes.
pub(super) const BYTES_MAX: usize = 8192;

/// Maximum size of an error message, bytes; a longer one is cut to fit.
const ERROR_BYTES_MAX: usize = 2048;

/// Command to a process. It contains all earlier ones, so that only the last one matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub phase: Phase,
    /// Number of the last report requested.
    pub report_request: u64,
    /// Number of requests to reopen the access log.
    pub reopens: u64,
    /// Number of calls to give memory back.
    pub memory_calls: u64,
    /// True once a predecessor has closed its listening sockets.
    pub is_relieved: bool,
}

/// A message from a process to its parent.
#[derive(Debug)]
pub(super) enum Message {
    /// The process serves.
    Ready,
    /// The process cannot serve, with the reason.
    Failed(String),
    /// Its counters, with the number of the request they answer.
    Report(u64, Box<LoopReport>),
    /// It has found less memory left of the budget, of which the others are to know.
    MemoryShort,
}

impl Command {
    /// The initial command: serve.
    pub(super) const FIRST: Self = Self {
        phase: Phase::Run,
        report_request: 0,
        reopens: 0,
        memory_calls: 0,
        is_relieved: false,
    };

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let Self { phase, report_request, reopens, memory_calls, is_relieved } = self;
        let relieved = u64::from(is_relieved);
        bytes([phase as u64, report_request, reopens, memory_calls, relieved].into_iter())
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let numbers: [u64; 5] = numbers(bytes).try_into().ok()?;
        let [phase, report_request, reopens, memory_calls, relieved] = numbers;
        let phase = Phase::of(u8::try_from(phase).ok()?);
        Some(Self { phase, report_request, reopens, memory_calls, is_relieved: relieved != 0 })
    }
}

impl Message {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Ready => vec![b'r'],
            Self::MemoryShort => vec![b'm'],
            Self::Failed(why) => {
                let why = why.bytes().take(ERROR_BYTES_MAX);
                std::iter::once(b'f').chain(why).collect()
            }
            Self::Report(report_request, report) => {
                let calls = report.calls.iter().flat_map(|row| [row.count, row.time_ns]);
                let values = report.counters.values();
                let all = std::iter::once(*report_request).chain(values).chain(calls);
                std::iter::once(b't').chain(bytes(all)).collect()
            }
        }
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            b'r' => Some(Self::Ready),
            b'm' => Some(Self::MemoryShort),
            b'f' => Some(Self::Failed(String::from_utf8_lossy(rest).into_owned())),
            b't' => {
                let numbers = numbers(rest);
                let (report_request, numbers) = numbers.split_first()?;
                let (values, calls) = numbers.split_at_checked(TABLE.len())?;
                let counters = Counters::from_values(values);
                let report = LoopReport { counters, calls: rows(calls) };
                Some(Self::Report(*report_request, Box::new(report)))
            }
            _ => None,
        }
    }
}

fn rows(calls: &[u64]) -> Vec<CallRow> {
    let (pairs, _) = calls.as_chunks::<2>();
    let named = profile::NAMES.iter().zip(pairs);
    named.map(|(name, &[count, time_ns])| CallRow { name, count, time_ns }).collect()
}

fn bytes(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    numbers.flat_map(u64::to_ne_bytes).collect()
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let (chunks, _) = bytes.as_chunks::<8>();
    chunks.iter().map(|chunk| u64::from_ne_bytes(*chunk)).collect()
}

/// Adds a report to a sum, call by call.
pub(super) fn add(sum: &mut LoopReport, report: &LoopReport) {
    sum.counters += &report.counters;
    if sum.calls.is_empty() {
        return sum.calls.clone_from(&report.calls);
    }
    for (row, more) in sum.calls.iter_mut().zip(&report.calls) {
        row.count += more.count;
        row.time_ns += more.time_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_arrives_unchanged() {
        for phase in [Phase::Run, Phase::HandOver, Phase::Drain, Phase::Stop] {
            let command = Command {
                phase,
                report_request: u64::MAX,
                reopens: 7,
                memory_calls: 3,
                is_relieved: true,
            };
            assert_eq!(Command::from_bytes(&command.to_bytes()), Some(command));
        }
        assert_eq!(Command::from_bytes(b"short"), None);
    }

    #[test]
    fn a_report_arrives_unchanged_and_fits_a_message() {
        let mut counters = Counters::default();
        counters.requests.add(12);
        let call = |name| CallRow { name, count: 3, time_ns: u64::MAX };
        let calls: Vec<_> = profile::NAMES.iter().map(|name| call(name)).collect();
        let report = LoopReport { counters, calls };
        let bytes = Message::Report(9, Box::new(report.clone())).to_bytes();
        assert!(bytes.len() < BYTES_MAX);
        let Some(Message::Report(9, received)) = Message::from_bytes(&bytes) else {
            panic!("not a report")
        };
        assert_eq!(received.counters.values(), report.counters.values());
        assert_eq!(received.calls, report.calls);
    }

    #[test]
    fn an_error_arrives_and_an_invalid_message_does_not() {
        let failed = Message::Failed("no such root".into()).to_bytes();
        let read = Message::from_bytes(&failed);
        assert!(matches!(read, Some(Message::Failed(why)) if why.contains("root")));
        assert!(Message::from_bytes(b"").is_none() && Message::from_bytes(b"t").is_none());
        assert!(Message::Failed("x".repeat(99_999)).to_bytes().len() < BYTES_MAX);
    }

    #[test]
    fn reports_are_added_row_by_row() {
        let calls = vec![CallRow { name: "read", count: 2, time_ns: 5 }];
        let mut report = LoopReport { calls, ..LoopReport::default() };
        report.counters.requests.add(1);
        let mut sum = LoopReport::default();
        add(&mut sum, &report);
        add(&mut sum, &report);
        assert_eq!((sum.counters.requests.get(), sum.calls[0].count), (2, 4));
    }
}
