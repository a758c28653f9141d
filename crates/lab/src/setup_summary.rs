//! The machine and the testbed as names and values for a reader, limited to what affects
//! measurements. The run's own file has the rest.

use crate::machine::Machine;
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

    #[test]
    fn unknown_values_have_no_row() {
        let known = Machine { kernel_release: Some("6.1.0".to_owned()), ..Machine::default() };
        assert_eq!(machine(&known), [("kernel".to_owned(), "6.1.0".to_owned())]);
    }
}
