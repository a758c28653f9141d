//! Packets that the kernel drops before any network protocol sees them, because the input queue of
//! the processor that is to handle them is full (`net.core.netdev_max_backlog`):
//! /proc/net/softnet_stat, a row for each processor, in hexadecimal (`softnet_seq_show` in Linux's
//! net/core/net-procfs.c).

use std::collections::BTreeMap;
use std::path::Path;

use crate::record::Softnet;

/// Place of the processor's number in a row, where the kernel writes it (Linux 5.10 and later).
const CPU: usize = 12;

/// Counts of the processors at an instant, by their number. They are of 32 bits and wrap.
pub(super) type SoftnetReading = BTreeMap<usize, Row>;

/// The counts of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    handled: u32,
    dropped: u32,
}

/// Reads the counts of these processors from a directory such as `/proc/PID/net`; `None` where the
/// kernel has no such file.
///
/// # Errors
/// The file does not consist of rows of hexadecimal numbers.
pub(super) fn read(directory: &Path, cpus: &[usize]) -> Result<Option<SoftnetReading>, String> {
    let Ok(text) = std::fs::read_to_string(directory.join("softnet_stat")) else {
        return Ok(None);
    };
    let mut rows = parse(&text)?;
    rows.retain(|cpu, _| cpus.contains(cpu));
    Ok(Some(rows))
}

fn parse(text: &str) -> Result<SoftnetReading, String> {
    let row = |(number, line): (usize, &str)| {
        let fields = line.split_whitespace().map(|field| u32::from_str_radix(field, 16));
        let fields: Vec<u32> = fields.collect::<Result<_, _>>().ok()?;
        let [handled, dropped, ..] = fields.as_slice() else { return None };
        // Only processors that are online have a row.
        let cpu = fields.get(CPU).map_or(number, |cpu| *cpu as usize);
        Some((cpu, Row { handled: *handled, dropped: *dropped }))
    };
    let rows = text.lines().enumerate().map(row);
    let rows: Option<SoftnetReading> = rows.collect();
    rows.ok_or_else(|| "softnet_stat has a row that is not of hexadecimal numbers".to_owned())
}

/// Returns the growth of all counts between two readings of the same processors.
pub(super) fn between((before, after): (&SoftnetReading, &SoftnetReading)) -> Softnet {
    let mut grown = Softnet::default();
    for (cpu, now) in after {
        let Some(then) = before.get(cpu) else { continue };
        grown.handled += u64::from(now.handled.wrapping_sub(then.handled));
        grown.dropped += u64::from(now.dropped.wrapping_sub(then.dropped));
    }
    grown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processor 1 is not online.
    const TEXT: &str = "\
        25c411fc 0010ced8 000000b5 00000000 00000000 00000000 00000000 00000000 00000000 0361a1e2 \
        00000000 00000000 00000000 00000000 00000000\n\
        fffffff0 00000003 0000003d 00000000 00000000 00000000 00000000 00000000 00000000 047eb12c \
        00000000 00000000 00000002 00000000 00000000\n";

    #[test]
    fn a_row_has_its_processor_and_its_counts_in_hexadecimal() {
        let rows = parse(TEXT).unwrap();
        assert_eq!(rows.keys().collect::<Vec<_>>(), [&0, &2]);
        assert_eq!(rows[&0], Row { handled: 0x25c4_11fc, dropped: 0x0010_ced8 });
        // Older kernels do not write which processor a row is of.
        assert_eq!(parse("1 2 0\n3 4 0\n").unwrap()[&1], Row { handled: 3, dropped: 4 });
        assert!(parse("1 x\n").is_err() && parse("1\n").is_err());
    }

    #[test]
    fn counts_that_wrap_have_grown() {
        let before = parse(TEXT).unwrap();
        let mut after = before.clone();
        after.insert(2, Row { handled: 0x10, dropped: 5 });
        assert_eq!(between((&before, &after)), Softnet { handled: 0x20, dropped: 2 });
        after.insert(7, Row { handled: 9, dropped: 9 });
        assert_eq!(between((&before, &after)), Softnet { handled: 0x20, dropped: 2 });
    }

    #[test]
    fn this_machines_own_counts_can_be_read_and_other_processors_are_left_out() {
        let own = Path::new("/proc/self/net");
        match read(own, &[0]).unwrap() {
            Some(rows) => assert!(rows.keys().all(|cpu| *cpu == 0), "{rows:?}"),
            None => println!("skipped: the kernel has no softnet_stat"),
        }
        assert_eq!(read(own, &[]).unwrap().unwrap_or_default(), SoftnetReading::new());
        assert_eq!(read(Path::new("/proc/self/fdinfo"), &[0]), Ok(None));
    }
}
