//! Validation of servers.

use std::collections::BTreeMap;

use super::arch;
use super::rules::{BURN_US_MAX, must};
use crate::experiment::{Kind, ServerSpec};

/// Minimum memory limit with which a server starts, in MiB.
const MEMORY_MIB_MIN: u32 = 16;

pub(super) fn labels(servers: &[ServerSpec]) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for ServerSpec { id, label, .. } in servers {
        must(!label.trim().is_empty(), || format!("server {id}: its label is empty"))?;
        if let Some(other) = seen.insert(label, id) {
            return Err(format!("server {id}: server {other} has the label `{label}` too"));
        }
    }
    Ok(())
}

pub(super) fn server(server: &ServerSpec) -> Result<(), String> {
    let id = &server.id;
    let weir = server.kind == Kind::Weir;
    must(weir || server.burn_us.is_none(), || {
        format!("server {id}: burn-us is for weir alone, no other server can burn time")
    })?;
    must(!weir || !server.gzip, || format!("server {id}: weir does not compress, so no gzip"))?;
    let proxy = matches!(server.kind, Kind::Nginx | Kind::H2o | Kind::Haproxy);
    must(proxy || server.proxy_burn_us.is_none(), || {
        format!("server {id}: proxy-burn-us is for nginx, h2o and haproxy, which can be proxies")
    })?;
    let burns = server.burn_us.into_iter().chain(server.proxy_burn_us);
    must(burns.max().is_none_or(|us| us <= BURN_US_MAX), || {
        format!("server {id}: a request burns {BURN_US_MAX} µs at most")
    })?;
    must(server.proxy_burn_us != Some(0), || format!("server {id}: proxy-burn-us is 1 or more"))?;
    must(server.backlog != Some(0), || format!("server {id}: a backlog is 1 or more"))?;
    must(server.memory_mib.is_none_or(|mib| mib >= MEMORY_MIB_MIN), || {
        format!("server {id}: memory-mib is {MEMORY_MIB_MIN} or more")
    })?;
    must(server.disk_reads_per_s != Some(0), || {
        format!("server {id}: disk-reads-per-s is 1 or more")
    })?;
    arch::check(server).map_err(|why| format!("server {id}: {why}"))
}
