//! Validation of loads and of mixes of requests.

use super::rules::must;
use crate::experiment::{Generator, LoadSpec, Pace, RequestClass, ServerSpec, Sweep};
use crate::file_set::FileSet;
use crate::workload::{file_of, file_size, known};

/// Maximum size of the specweb99 file set, in MiB.
const MB_MAX: u32 = 10_000;

/// Tolerance for the sum of a mix's shares, which are written in decimals.
const SHARE_ERROR_MAX: f64 = 1e-6;

pub(super) fn load(id: &str, load: &LoadSpec) -> Result<(), String> {
    let place = |name: &str| format!("sweep {id}: load.{name}");
    let workload = load.workload.as_str();
    must(!workload.trim().is_empty(), || format!("{} is empty", place("workload")))?;
    // The workload also becomes a directory name and a command-line argument.
    must(is_plain(workload), || {
        format!("{} {workload:?} is not letters, digits and dashes", place("workload"))
    })?;
    must(load.mb().is_none_or(is_mib), || {
        format!("{}: --mb is a number of MiB, {MB_MAX} at most", place("options"))
    })?;
    let set = FileSet::named(workload);
    must(set.is_some() || !workload.starts_with("files-"), || {
        format!("{} {workload} is no set: files-COUNTxKIBk", place("workload"))
    })?;
    must(set.is_none() || load.generator.is_weir(), || {
        format!("{} is for weir load alone", place("workload"))
    })?;
    must(file_size(workload).is_some() || !workload.starts_with("file-"), || {
        format!("{} {workload} is no file: file-KIBk", place("workload"))
    })?;
    known(workload).map_err(|why| format!("{}: {why}", place("workload")))?;
    must(load.path.is_none() || load.generator == Generator::Packet, || {
        format!("{} is for generator packet alone", place("path"))
    })?;
    must(load.coalesce_us.is_none() || load.generator == Generator::Packet, || {
        format!("{} is for generator packet alone", place("coalesce-us"))
    })?;
    must(*load.cooldown_s == 0.0 || load.generator.is_weir(), || {
        format!("{} is for weir load alone", place("cooldown-s"))
    })?;
    let kept = load.pace != Pace::Open && load.requests_per_conn.is_none();
    must(!load.keep_alive || kept, || {
        format!("{} needs load.closed, and no requests-per-conn", place("keep-alive"))
    })
}

pub(super) fn mix<'a>(
    sweep: &Sweep,
    servers: impl Iterator<Item = &'a ServerSpec>,
) -> Result<(), String> {
    let place = format!("sweep {}: load.mix", sweep.id);
    let load = &sweep.load;
    must(load.mix.len() >= 2, || format!("{place} has one class, and needs two or more"))?;
    must(*sweep.burn_us == 0, || format!("{place} says what requests burn, so burn-us does not"))?;
    for (index, RequestClass { burn_us, .. }) in load.mix.iter().enumerate() {
        must(load.mix[..index].iter().all(|other| other.burn_us != *burn_us), || {
            format!("{place}: two classes burn {} µs", **burn_us)
        })?;
    }
    let sum: f64 = load.mix.iter().map(|class| *class.share).sum();
    must((sum - 1.0).abs() <= SHARE_ERROR_MAX, || {
        format!("{place}: its shares sum up to {sum}, not to 1")
    })?;
    must(load.generator.is_weir(), || format!("{place} is for weir load alone"))?;
    must(file_of(&load.workload).is_some(), || {
        format!("{place} needs a workload of one file, and {} has several", load.workload)
    })?;
    for server in servers {
        let id = &server.id;
        let weir = server.weir().ok_or_else(|| {
            format!("{place} is for weir servers, no other can burn time, and {id} is none")
        })?;
        must(weir.burn_us.is_none(), || {
            format!("{place} says what requests burn, and so does server {id}")
        })?;
    }
    Ok(())
}

/// Returns whether a name consists of letters, digits and dashes and does not begin with a dash.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.bytes().all(plain) && !name.starts_with('-')
}

fn is_mib(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse().is_ok_and(|mib: u32| mib <= MB_MAX)
}
