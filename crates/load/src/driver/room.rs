//! Room set aside before a run for the connections that are open at once if the server stalls:
//! tables of this size that had to grow would hold up the starts of tens of milliseconds.

use std::io;

use weir_sys::huge_pages;

use crate::config::{Config, LoadModel};
use crate::schedule::ArrivalLaw;

/// Maximum number of connections for which room is set aside, over all threads.
const ROOM_MAX: usize = 1 << 21;

/// Time by which connections may outlast their timeout: timers have ticks, and a busy thread is
/// late.
const OVERDUE_NS: u64 = 100_000_000;

/// Returns the number of the load's connections of thread number `index` that are open at once if
/// the server stalls: no more than there are arrivals, and than `open_max`, the thread's limit.
pub(super) fn open_if_stalled(config: &Config, index: usize, open_max: usize) -> usize {
    let new = match &config.model {
        LoadModel::Open(_) if config.shared_conns > 0 => config.shared_conns,
        LoadModel::Open(law) => arrivals_until_timeout(config, law),
        LoadModel::Closed(conns) => *conns,
    };
    config.share(new.min(ROOM_MAX), index).min(open_max)
}

/// Returns the number of arrivals between an arrival and its timeout.
fn arrivals_until_timeout(config: &Config, law: &ArrivalLaw) -> usize {
    let held_ns = config.timeout_ns.saturating_add(OVERDUE_NS).min(config.duration_ns);
    let held_s = held_ns as f64 / 1e9;
    let planned = (law.mean_rate(config.duration_ns) * held_s).ceil() as u64;
    let arrivals_max = if config.arrivals_max == 0 { u64::MAX } else { config.arrivals_max };
    usize::try_from(planned.min(arrivals_max)).unwrap_or(usize::MAX)
}

/// Creates an empty table with room for this many connections, in huge pages if it is large.
///
/// # Errors
/// As [`no_memory`].
pub(super) fn table<T>(room: usize) -> io::Result<Vec<T>> {
    let mut table = Vec::new();
    table.try_reserve_exact(room).map_err(|_| no_memory(room))?;
    huge_pages::ask_for(&table);
    Ok(table)
}

/// Returns the error of a table for which there is no memory: a sentence with what to change.
pub(super) fn no_memory(room: usize) -> io::Error {
    let sentence = format!(
        "there is no memory for the {room} connections that are open at once if the server \
         stalls: lower --rate or --timeout, or limit them (--max-conns)"
    );
    io::Error::new(io::ErrorKind::OutOfMemory, sentence)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{S, config};
    use super::*;

    /// A limit that is none.
    const MANY: usize = 1 << 30;

    /// Configuration of a run of 10 s with a timeout of 5 s.
    fn at(rate: f64) -> Config {
        Config { model: LoadModel::Open(ArrivalLaw::Constant { rate }), ..config() }
    }

    #[test]
    fn room_is_for_the_arrivals_of_a_timeout() {
        assert_eq!(open_if_stalled(&at(1000.0), 0, MANY), 5100);
        let halves = Config { threads: 2, ..at(1000.0) };
        assert_eq!([0, 1].map(|index| open_if_stalled(&halves, index, MANY)), [2550; 2]);
        assert_eq!(open_if_stalled(&at(1e9), 0, MANY), ROOM_MAX);
    }

    #[test]
    fn room_is_for_no_more_than_arrive_or_may_be_open() {
        let few = Config { arrivals_max: 10, timeout_ns: 10 * S, ..at(1e6) };
        assert_eq!(open_if_stalled(&few, 0, MANY), 10);
        let short = Config { duration_ns: S / 2, ..at(1000.0) };
        assert_eq!(open_if_stalled(&short, 0, MANY), 500);
        let model = LoadModel::Open(ArrivalLaw::Trace([0, 1, 2].into()));
        let trace = Config { model, duration_ns: S, ..config() };
        assert_eq!(open_if_stalled(&trace, 0, MANY), 3);
        assert_eq!(open_if_stalled(&at(1000.0), 0, 64), 64);
        let endless = Config { timeout_ns: u64::MAX, duration_ns: u64::MAX / 4, ..at(1e9) };
        assert_eq!(open_if_stalled(&endless, 0, MANY), ROOM_MAX);
    }

    #[test]
    fn connections_that_last_need_room_whatever_the_rate() {
        let shared = Config { shared_conns: 7, ..at(1e6) };
        assert_eq!(open_if_stalled(&shared, 0, MANY), 7);
        let closed = Config { model: LoadModel::Closed(9), threads: 2, ..config() };
        assert_eq!([0, 1].map(|index| open_if_stalled(&closed, index, MANY)), [5, 4]);
        let most = usize::MAX;
        let all = Config { idle: most, slow_senders: most, slow_readers: 1, ..config() };
        assert_eq!(all.background(), most);
    }

    #[test]
    fn a_table_for_which_there_is_no_memory_is_a_sentence() {
        assert_eq!(table::<u64>(1000).unwrap().capacity(), 1000);
        for room in [usize::MAX, usize::MAX / 16] {
            let refused = table::<u64>(room).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
            assert!(refused.to_string().contains(&format!("the {room} connections")));
        }
    }
}
