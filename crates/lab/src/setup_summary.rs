//! The machine, the testbed and the instruments as names and values for a reader, limited to what
//! affects measurements. The run's own file has the rest.

use crate::machine::Machine;
use crate::record::{Kernel, Line};
use crate::testbed::{Description, Mode, SideDescription};

/// A name and its value.
pub type Row = (String, String);

/// Returns the rows of a machine.
pub fn machine(machine: &Machine) -> Vec<Row> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let number = |value: Option<usize>| value.map_or(String::new(), |n| n.to_string());
    let memory = machine
        .memory_bytes
        .map_or(String::new(), |bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)));
    let guest = match (machine.is_guest, &machine.product) {
        (Some(true), Some(product)) => format!("yes ({product})"),
        (Some(true), None) => "yes".to_owned(),
        (Some(false), _) => "no".to_owned(),
        (None, _) => String::new(),
    };
    let accounting = match machine.irq_time_accounting {
        Some(true) => "exact",
        Some(false) => "sampled at ticks",
        None => "",
    };
    let load = machine
        .load_average
        .map_or(String::new(), |[one, five, _]| format!("{one:.2} (1 min), {five:.2} (5 min)"));
    let rows = [
        ("kernel", text(&machine.kernel_release)),
        ("distribution", text(&machine.distribution)),
        ("processor", text(&machine.cpu_model)),
        ("processors", number(machine.cpus_online)),
        ("virtual machine", guest),
        ("memory", memory),
        ("clock", text(&machine.clock_source)),
        ("interrupts' time", accounting.to_owned()),
        ("load average at the start", load),
    ];
    named(rows)
}

/// Returns the rows of a testbed.
pub fn testbed(testbed: &Description) -> Vec<Row> {
    let kind = match testbed.mode {
        Mode::Namespaces => "two network namespaces and a pair of virtual links",
        Mode::Loopback => "the loopback of the machine, shared",
    };
    let mtu = testbed.mtu.map_or(String::new(), |mtu| format!("{mtu} bytes"));
    let rows = [
        ("testbed", kind.to_owned()),
        ("largest packet", mtu),
        ("server's side", side(&testbed.server)),
        ("client's side", side(&testbed.client)),
        ("server's settings", settings(&testbed.server)),
        ("client's settings", settings(&testbed.client)),
    ];
    named(rows)
}

/// Returns the row that says how the kinds of dropped connections were told apart; `None` before
/// the first point.
pub fn drops(lines: &[Line]) -> Option<Row> {
    let points = lines.iter().filter_map(|line| match line {
        Line::Point(point) if point.probe.is_none() => Some(&point.kernel),
        _ => None,
    });
    let (traced, not): (Vec<&Kernel>, Vec<_>) = points.partition(|kernel| kernel.traced.is_some());
    let why = not.iter().find_map(|kernel| kernel.untraced.as_deref());
    let why = why.map_or(String::new(), |why| format!(" ({why})"));
    let counters =
        format!("by the kernel's counters, which have AcceptQFull and ListenOverflow as one{why}");
    let said = match (traced.len(), not.len()) {
        (0, 0) => return None,
        (_, 0) => "by a trace of the kernel".to_owned(),
        (0, _) => counters,
        (some, others) => {
            let all = some + others;
            format!("at {some} of {all} points by a trace of the kernel, at the others {counters}")
        }
    };
    Some(("drops told apart".to_owned(), said))
}

fn side(side: &SideDescription) -> String {
    let cpus: Vec<String> = side.cpus.iter().map(usize::to_string).collect();
    let addresses = match side.addresses.as_slice() {
        [] => String::new(),
        [one] => format!("; {one}"),
        [first, .., last] => format!("; {} addresses, {first} to {last}", side.addresses.len()),
    };
    let packets = side
        .rps_cpus
        .as_ref()
        .map_or(String::new(), |mask| format!("; packets handled by mask {mask}"));
    format!("processor {}{addresses}{packets}", cpus.join(", "))
}

fn settings(side: &SideDescription) -> String {
    let each = side.sysctl.iter().map(|(name, value)| format!("{name} = {value}"));
    each.collect::<Vec<_>>().join("; ")
}

fn named<const N: usize>(rows: [(&str, String); N]) -> Vec<Row> {
    let there = rows.into_iter().filter(|(_, value)| !value.is_empty());
    there.map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Point, TracedDrops};

    #[test]
    fn unknown_values_have_no_row() {
        let known = Machine { kernel_release: Some("6.1.0".to_owned()), ..Machine::default() };
        assert_eq!(machine(&known), [("kernel".to_owned(), "6.1.0".to_owned())]);
    }

    #[test]
    fn drops_have_their_instrument_named() {
        let line = |traced: Option<TracedDrops>, why: Option<&str>| {
            let kernel = Kernel { traced, untraced: why.map(str::to_owned), ..Kernel::default() };
            Line::Point(Box::new(Point { kernel, ..Point::default() }))
        };
        let traced = || line(Some(TracedDrops::default()), None);
        let said = |lines: &[Line]| drops(lines).unwrap().1;
        assert_eq!(drops(&[]), None);
        assert_eq!(said(&[traced()]), "by a trace of the kernel");
        assert!(said(&[line(None, None)]).ends_with("ListenOverflow as one"));
        assert!(said(&[line(None, Some("no CAP_BPF"))]).ends_with("as one (no CAP_BPF)"));
        assert!(said(&[traced(), line(None, None)]).starts_with("at 1 of 2 points by a trace"));
    }
}
