//! The sink (`crates/load/examples/tcp_sink.rs`): a server for as many connections as a client can
//! hold open, of which it keeps nothing, for clients with a TCP of their own. It is built from
//! source, and looked for beside weir.

use std::path::{Path, PathBuf};

use super::program::example;
use crate::allow_list::{AllowList, Syntax};
use crate::environment::{Environment, PacketLink};

pub(super) const NAME: &str = "tcp_sink";

/// What it says once it answers.
pub(super) const READY: &str = "answers";

/// It has no options.
pub(super) const ALLOWED: AllowList =
    AllowList { program: NAME, syntax: Syntax::Words, options: &[] };

/// Returns the program.
pub(super) fn find(weir: &Path) -> Result<PathBuf, String> {
    example(weir, "weir-load", NAME)
}

/// Returns the link that it needs.
pub(super) fn link(environment: &dyn Environment) -> Result<PacketLink, String> {
    let link = environment.packet_link();
    link.ok_or_else(|| format!("{NAME} needs namespaces, which this testbed has not"))
}

pub(super) fn arguments(environment: &dyn Environment) -> Result<Vec<String>, String> {
    let link = link(environment)?;
    Ok(vec![link.server_interface, link.server_address.to_string()])
}
