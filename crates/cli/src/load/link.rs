//! `weir load link`: builds the link, says where it is, and prints what passed it.

use std::io::Write;
use std::process::ExitCode;

use weir_load::link::{Link, LinkConfig, LinkSummary, WayCounts};
use weir_load::packet_setup::laboratory_network;

use super::options::LinkOptions;
use super::output;
use super::run::INVALID;
use crate::print::{USAGE, say};
use crate::signals::Stop;

/// Builds a link, and carries its packets until the operator stops it.
///
/// # Errors
/// A sentence: the link cannot be had.
pub(crate) fn link(options: &LinkOptions) -> Result<ExitCode, String> {
    let network = laboratory_network(&options.network)
        .map_err(|why| format!("--network {}: {why}", options.network))?;
    let (shown, []) = output::open(options.json.as_deref(), [])?;
    let link = Link::open(LinkConfig {
        clients: options.clients.clone(),
        servers: options.servers.clone(),
        network,
        interface: options.interface.clone(),
        law: options.path.clone(),
        seed: options.seed,
    })?;
    let stop = Stop::listen()?;
    let [clients, servers] = link.addresses();
    say(&format!(
        "clients at {clients}, servers at {servers}, on {} in their namespaces; path {}, seed {}",
        options.interface, options.path, options.seed
    ));
    let summary = link.run(stop.flag(), options.duration)?;
    let failures = shown.show(&text(&summary), |out| {
        serde_json::to_writer_pretty(&mut *out, &summary)?;
        writeln!(out)
    });
    failures.iter().for_each(|sentence| say(sentence));
    Ok(match () {
        () if !failures.is_empty() => USAGE.into(),
        () if !summary.reasons.is_empty() => INVALID.into(),
        () => ExitCode::SUCCESS,
    })
}

/// Formats a summary.
fn text(summary: &LinkSummary) -> String {
    let way = |name: &str, counts: &WayCounts| {
        let WayCounts { sent, arrived, lost, refused, .. } = counts;
        let refused =
            if *refused > 0 { format!(", {refused} refused by the kernel") } else { String::new() };
        format!("{name}: {sent} packets, {arrived} arrived, {lost} lost on their paths{refused}\n")
    };
    let mut text = format!("Clients: {}\n", summary.clients);
    text += &way("To the servers", &summary.up);
    text += &way("To the clients", &summary.down);
    text += &format!(
        "Late by: {:.0} us (median), {:.0} us (99th percentile)\n",
        summary.late_p50_ns as f64 / 1e3,
        summary.late_p99_ns as f64 / 1e3
    );
    for reason in &summary.reasons {
        text += &format!("INVALID: {reason}\n");
    }
    text
}
