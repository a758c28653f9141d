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

/// Returns the rows that say how the kinds of dropped connections were told apart, and how SYNs
/// were counted; none before the first point.
pub fn traces(lines: &[Line]) -> Vec<Row> {
    let points: Vec<&Kernel> = lines.iter().filter_map(kernel).collect();
    let row = |name: &str, said: Option<String>| Some((name.to_owned(), said?));
    let rows = [row("drops told apart", drops(&points)), row("SYNs at the link", syns(&points))];
    rows.into_iter().flatten().collect()
}

fn kernel(line: &Line) -> Option<&Kernel> {
    match line {
        Line::Point(point) if point.probe.is_none() => Some(&point.kernel),
        _ => None,
    }
}

fn drops(points: &[&Kernel]) -> Option<String> {
    let why = points.iter().find_map(|kernel| kernel.untraced.as_deref());
    let counters = "by the kernel's counters, which have AcceptQFull and ListenOverflow as one";
    let traced = points.iter().filter(|kernel| kernel.traced.is_some()).count();
    told([traced, points.len()], "by a trace of the kernel", counters, why)
}

fn syns(points: &[&Kernel]) -> Option<String> {
    let why = points.iter().find_map(|kernel| kernel.syns_uncounted.as_deref());
    let counted = points.iter().filter(|kernel| kernel.syns.is_some()).count();
    told([counted, points.len()], "counted by a trace of the kernel", "not counted", why)
}

/// Returns what is said of an instrument that was there at `some` of `all` points: `with` it, and
/// `without` it. `why`: a reason for which it was not there.
fn told([some, all]: [usize; 2], with: &str, without: &str, why: Option<&str>) -> Option<String> {
    let why = why.map_or(String::new(), |why| format!(" ({why})"));
    match some {
        _ if all == 0 => None,
        _ if some == all => Some(with.to_owned()),
        0 => Some(format!("{without}{why}")),
        _ => Some(format!("at {some} of {all} points {with}, at the others {without}{why}")),
    }
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
        let said = |lines: &[Line]| traces(lines)[0].1.clone();
        assert_eq!(traces(&[]), []);
        assert_eq!(said(&[traced()]), "by a trace of the kernel");
        assert!(said(&[line(None, None)]).ends_with("ListenOverflow as one"));
        assert!(said(&[line(None, Some("no CAP_BPF"))]).ends_with("as one (no CAP_BPF)"));
        assert!(said(&[traced(), line(None, None)]).starts_with("at 1 of 2 points by a trace"));
    }

    #[test]
    fn syns_have_their_instrument_named_or_the_reason_for_none() {
        let line = |syns: Option<u64>, why: Option<&str>| {
            let syns_uncounted = why.map(str::to_owned);
            let kernel = Kernel { syns, syns_uncounted, ..Kernel::default() };
            Line::Point(Box::new(Point { kernel, ..Point::default() }))
        };
        let said = |lines: &[Line]| traces(lines)[1].1.clone();
        assert_eq!(said(&[line(Some(0), None)]), "counted by a trace of the kernel");
        assert_eq!(said(&[line(None, Some("no CAP_BPF"))]), "not counted (no CAP_BPF)");
        let both = [line(Some(7), None), line(None, None)];
        assert!(said(&both).ends_with("at the others not counted"));
    }
}
