//! The requested and the actual properties of a testbed: plain data, the latter kept with the
//! results.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The requested kind of testbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestedMode {
    /// Namespaces if available, else loopback.
    #[default]
    Auto,
    /// Namespaces, or an error.
    Namespaces,
    /// Loopback.
    Loopback,
}

/// The requested properties of a testbed.
#[derive(Clone, Debug)]
pub struct TestbedOptions {
    /// Its kind.
    pub mode: RequestedMode,
    /// The server's processors; defaults to the first that may be used.
    pub server_cpus: Option<Vec<usize>>,
    /// The client's processors; defaults to the first on another core.
    pub client_cpus: Option<Vec<usize>>,
    /// Number of source addresses of loads, 1 to 500. Each has about 64,000 ports, and a port
    /// cannot be reused for a minute after its connection.
    pub client_addresses: u32,
    /// Settings of both networks, such as `net.ipv4.tcp_syncookies` = 0.
    pub sysctl: BTreeMap<String, i64>,
}

impl Default for TestbedOptions {
    fn default() -> Self {
        Self {
            mode: RequestedMode::Auto,
            server_cpus: None,
            client_cpus: None,
            client_addresses: 8,
            sysctl: BTreeMap::new(),
        }
    }
}

/// The actual kind of testbed.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Two network namespaces and a veth pair.
    Namespaces,
    /// The host's loopback.
    Loopback,
}

/// The actual properties of a testbed.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Description {
    /// Its kind.
    pub mode: Mode,
    /// Conditions that affect the figures, as sentences; empty if there are none.
    pub warnings: Vec<String>,
    /// The server's side.
    pub server: SideDescription,
    /// The client's side.
    pub client: SideDescription,
    /// MTU in bytes, as read back.
    pub mtu: Option<u32>,
}

/// The properties of a side of a testbed.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct SideDescription {
    /// Its processors.
    pub cpus: Vec<usize>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its network interface.
    pub interface: String,
    /// Mask of the processors that handle its packets, as read back; `None` if it cannot be set,
    /// and on loopback, where the sender's processor handles them.
    pub rps_cpus: Option<String>,
    /// Settings of its network, as read back.
    pub sysctl: BTreeMap<String, String>,
}
