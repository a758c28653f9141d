//! Network settings (sysctl(8)): written in each namespace, and read back.
//!
//! The host's settings are never changed: a holder writes, and it is in no network but its own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::namespace_holder::NamespaceHolder;
use crate::environment::Side;

/// Settings read back on each side, in addition to the requested ones.
const RECORDED: [&str; 10] = [
    "net.core.somaxconn",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_syn_retries",
    "net.ipv4.tcp_synack_retries",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_tw_reuse",
];

/// Returns the default settings of a side: a server gets the backlog it requests, and the client
/// has all the ports there are.
fn ours(side: Side) -> &'static [(&'static str, &'static str)] {
    match side {
        Side::Server => &[("net.core.somaxconn", "65535")],
        Side::Client => {
            &[("net.core.somaxconn", "65535"), ("net.ipv4.ip_local_port_range", "1024 65535")]
        }
    }
}

/// Rejects names that are not network settings.
///
/// # Errors
/// Returns a sentence with the name.
pub(super) fn check_names(asked: &BTreeMap<String, i64>) -> Result<(), String> {
    let fits = |name: &str| {
        name.starts_with("net.")
            && !name.contains("..")
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match asked.keys().find(|name| !fits(name)) {
        Some(name) => Err(format!("{name:?} is not a setting of a network, such as net.ipv4.…")),
        None => Ok(()),
    }
}

/// Applies the requested settings, and the defaults for the others.
///
/// # Errors
/// Returns a sentence that names the setting that could not be set.
pub(super) fn apply(
    holder: &mut NamespaceHolder,
    side: Side,
    asked: &BTreeMap<String, i64>,
) -> Result<(), String> {
    let defaults = ours(side).iter().filter(|(name, _)| !asked.contains_key(*name));
    let defaults = defaults.map(|&(name, value)| (name, value.to_owned()));
    let asked = asked.iter().map(|(name, value)| (name.as_str(), value.to_string()));
    for (name, value) in defaults.chain(asked) {
        let path = file(name);
        holder.write(&path, &value).map_err(|error| {
            format!("{name} cannot be set to {value} in a network namespace: {error}")
        })?;
    }
    Ok(())
}

/// Reads the settings of a holder's network, except those that the kernel does not have.
pub(super) fn read_back(
    holder: &mut NamespaceHolder,
    asked: &BTreeMap<String, i64>,
) -> BTreeMap<String, String> {
    let names = RECORDED.into_iter().chain(asked.keys().map(String::as_str));
    let read = |name: &str| Some((name.to_owned(), holder.read(&file(name)).ok()?));
    names.filter_map(read).collect()
}

fn file(name: &str) -> String {
    let path: PathBuf = ["/proc/sys"].into_iter().chain(name.split('.')).collect();
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_file_below_proc_sys() {
        assert_eq!(file("net.core.somaxconn"), "/proc/sys/net/core/somaxconn");
    }

    #[test]
    fn only_settings_of_a_network_are_taken() {
        let check = |name: &str| check_names(&BTreeMap::from([(name.to_owned(), 1)]));
        assert_eq!(check("net.ipv4.tcp_syncookies"), Ok(()));
        for wrong in ["vm.swappiness", "net...x", "net./x", "net.core.a\nwrite", ""] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
