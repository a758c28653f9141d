//! What is wished of a testbed and what came of it: plain data, kept with the results.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Which kind of testbed is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WishedMode {
    /// Namespaces where they can be had, loopback elsewhere.
    #[default]
    Auto,
    /// Namespaces or nothing.
    Namespaces,
    /// Loopback.
    Loopback,
}

/// What a testbed should be.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// Its kind.
    pub mode: WishedMode,
    /// The server's processors; by default the first that may be used.
    pub server_cpus: Option<Vec<usize>>,
    /// The client's processors; by default the first on another core.
    pub client_cpus: Option<Vec<usize>>,
    /// How many addresses loads come from, 1 to 500. Each has about 64,000 ports, and a port rests
    /// for a minute after its connection.
    pub client_addresses: u32,
    /// Settings of both networks, such as `net.ipv4.tcp_syncookies` = 0.
    pub sysctl: BTreeMap<String, i64>,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            mode: WishedMode::Auto,
            server_cpus: None,
            client_cpus: None,
            client_addresses: 8,
            sysctl: BTreeMap::new(),
        }
    }
}

/// Which kind of testbed it is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Two network namespaces and a veth pair.
    Namespaces,
    /// The host's loopback.
    Loopback,
}

/// What a testbed is.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Description {
    /// Its kind.
    pub mode: Mode,
    /// What about it bears on the figures, in sentences; empty when nothing does.
    pub warnings: Vec<String>,
    /// The server's side.
    pub server: SideDescription,
    /// The client's side.
    pub client: SideDescription,
    /// Bytes in a packet, as read back.
    pub mtu: Option<u32>,
}

/// What a side of a testbed is.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct SideDescription {
    /// Its processors.
    pub cpus: Vec<usize>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its network interface.
    pub interface: String,
    /// The mask of processors that handle its packets, as read back; none on loopback, where the
    /// sender's does.
    pub rps_cpus: Option<String>,
    /// Settings of its network, as read back.
    pub sysctl: BTreeMap<String, String>,
}
