//! Construction of a testbed: holders, the link and settings, or loopback with its drawbacks.
//!
//! Only the order of the steps is here; each step is in the module of its name.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::Path;

use weir_sys::namespace::PidNamespace;

use super::cpus::{self, Choice};
use super::description::{Description, Mode, RequestedMode, SideDescription, TestbedOptions};
use super::namespace_holder::NamespaceHolder;
use super::{NamespaceHolders, Namespaces, Testbed, enter, holder_main, link, settings};
use crate::environment::Side;
use crate::programs;

/// The reason why there are no namespaces.
enum Failure {
    /// Namespaces are not available here.
    Unavailable(String),
    /// Namespaces are available, but the request cannot be met.
    Wrong(String),
}

impl Testbed {
    /// Builds the requested testbed. `weir` is the program whose `lab-holder` and `lab-enter` run
    /// `holder_main` and `enter_main`.
    ///
    /// # Errors
    /// Returns a sentence for the operator.
    pub fn build(options: &TestbedOptions, weir: &Path) -> Result<Self, String> {
        settings::check_names(&options.sysctl)?;
        if !(1..=link::ADDRESSES_MAX).contains(&options.client_addresses) {
            return Err(format!("a client has 1 to {} addresses", link::ADDRESSES_MAX));
        }
        let allowed = weir_sys::process::allowed_cpus()
            .map_err(|error| format!("which processors may be used is unknown: {error}"))?;
        let (server, client) = (options.server_cpus.as_deref(), options.client_cpus.as_deref());
        let choice = cpus::choose(server, client, &allowed, siblings)?;
        if options.mode == RequestedMode::Loopback {
            return build_loopback(options, weir, choice, "it was asked for");
        }
        match build_namespaces(options, weir, &choice) {
            Ok(testbed) => Ok(testbed),
            Err(Failure::Wrong(why)) => Err(why),
            Err(Failure::Unavailable(why)) if options.mode == RequestedMode::Namespaces => {
                Err(format!("network namespaces cannot be had: {why}"))
            }
            Err(Failure::Unavailable(why)) => {
                let why = format!("network namespaces cannot be had: {why}");
                build_loopback(options, weir, choice, &why)
            }
        }
    }
}

/// Returns the processors on the same core, itself included; only itself if the kernel does not
/// tell.
fn siblings(cpu: usize) -> Vec<usize> {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let list = std::fs::read_to_string(file).map_err(|error| error.to_string());
    list.and_then(|list| cpus::parse_list(&list)).unwrap_or_else(|_| vec![cpu])
}

fn build_namespaces(
    options: &TestbedOptions,
    weir: &Path,
    choice: &Choice,
) -> Result<Testbed, Failure> {
    let ip = programs::find("ip");
    let ip = ip.ok_or("ip(8) is not installed (Debian: iproute2)").map_err(unavailable)?;
    let mut both = start_holders(weir).map_err(Failure::Unavailable)?;
    let sources = link::client_addresses(options.client_addresses);
    let inside = |side, program: &OsStr| {
        let all = weir_sys::process::allowed_cpus().unwrap_or_default();
        enter(weir, Some(both.holder(side)), (&all, &[]), program)
    };
    link::create(&ip, inside, &both.client, &sources).map_err(Failure::Unavailable)?;
    let mut warnings = choice.warnings.clone();
    let mut side = |holder: &mut NamespaceHolder, side, cpus: &[usize], addresses| {
        settings::apply(holder, side, &options.sysctl).map_err(Failure::Wrong)?;
        let (described, warning) = describe(holder, side, cpus, addresses, &options.sysctl);
        warnings.extend(warning);
        Ok(described)
    };
    let server = side(&mut both.server, Side::Server, &choice.server, vec![link::SERVER])?;
    let client = side(&mut both.client, Side::Client, &choice.client, sources)?;
    let mtu = link::mtu(&mut both.server, link::interface(Side::Server));
    let description = Description { mode: Mode::Namespaces, warnings, server, client, mtu };
    Ok(Testbed { weir: weir.to_owned(), holders: NamespaceHolders::Namespaces(both), description })
}

/// Steers a side's packets; returns the description of the side, and a warning if steering failed.
fn describe(
    holder: &mut NamespaceHolder,
    side: Side,
    cpus: &[usize],
    addresses: Vec<IpAddr>,
    asked: &BTreeMap<String, i64>,
) -> (SideDescription, Option<String>) {
    let interface = link::interface(side).to_owned();
    let mask = link::set_packet_cpus(holder, side, cpus);
    let warning = mask.as_ref().err().map(|why| {
        format!(
            "Packets for the {interface} may be handled by the other side's processors: receive \
             packet steering cannot be set: {why}."
        )
    });
    let sysctl = settings::read_back(holder, asked);
    let cpus = cpus.to_vec();
    let side = SideDescription { cpus, addresses, interface, rps_cpus: mask.ok(), sysctl };
    (side, warning)
}

fn unavailable(why: &str) -> Failure {
    Failure::Unavailable(why.to_owned())
}

fn start_holders(weir: &Path) -> Result<Namespaces, String> {
    let (mut server, pids) = PidNamespace::create_with(|| {
        let server = NamespaceHolder::from_child(
            NamespaceHolder::command(weir, &[holder_main::OWN]).spawn()?,
        )?;
        let id = server.id();
        Ok((server, id))
    })
    .map_err(|error| format!("a PID namespace (as root only): {error}"))?;
    server.wait_ready()?;
    let client = NamespaceHolder::start(weir, &[holder_main::OWN, &server.id().to_string()])?;
    Ok(Namespaces { server, client, pids })
}

fn build_loopback(
    options: &TestbedOptions,
    weir: &Path,
    choice: Choice,
    why: &str,
) -> Result<Testbed, String> {
    let run = std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .map_err(|error| format!("a name for the run: {error}"))?;
    let run = run.trim().to_owned();
    let mut holder = NamespaceHolder::start(weir, &[holder_main::RUN, &run])?;
    let mut warnings = loopback_warnings(why, &options.sysctl);
    warnings.extend(choice.warnings);
    let sysctl = settings::read_back(&mut holder, &options.sysctl);
    let side = |cpus, addresses| SideDescription {
        cpus,
        addresses,
        interface: "lo".into(),
        rps_cpus: None,
        sysctl: sysctl.clone(),
    };
    let sources = link::loopback_client_addresses(options.client_addresses);
    let description = Description {
        mode: Mode::Loopback,
        warnings,
        server: side(choice.server, vec![link::LOOPBACK_SERVER]),
        client: side(choice.client, sources),
        mtu: link::mtu(&mut holder, "lo"),
    };
    let holders = NamespaceHolders::Loopback { holder: RefCell::new(holder), run };
    Ok(Testbed { weir: weir.to_owned(), holders, description })
}

fn loopback_warnings(why: &str, asked: &BTreeMap<String, i64>) -> Vec<String> {
    let mut warnings = vec![
        format!("Everything runs over the host's loopback: {why}."),
        "On loopback a packet is handled by the processor that sends it: the client's does part of \
         the server's work, and rates are not comparable with those of namespaces."
            .to_owned(),
        "Both sides, and every other program, share the network's counters and its limits."
            .to_owned(),
        "Packets are larger than on a network, so that fewer are sent.".to_owned(),
    ];
    if !asked.is_empty() {
        let names: Vec<&str> = asked.keys().map(String::as_str).collect();
        warnings.push(format!(
            "Settings of the host's network are left alone, so these were not set: {}.",
            names.join(", ")
        ));
    }
    warnings
}
