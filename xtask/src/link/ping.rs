//! Round trips by fping(8), from the servers to many clients at once: each has a path of its own,
//! and its packets are so far apart that one which jitter delays holds up none behind it.

use std::fs::{self, File};
use std::process::Child;

use anyhow::{Context, Result, ensure};

use super::estimate::{Estimate, moments};
use super::spaces::{Side, Spaces};

/// Data of a ping, bytes.
const DATA_BYTES: u32 = 16;

/// Length of a ping, bytes: data behind the heads of IP and ICMP.
pub(super) const PACKET_BYTES: u32 = 20 + 8 + DATA_BYTES;

/// Processes of fping: one tells 65,536 pings of ten seconds apart, and so sends fewer.
const PROCESSES: u32 = 4;

/// Clients of each.
const CLIENTS: u32 = 1000;

/// Time between two pings of a client, milliseconds: more than eight standard deviations of the
/// largest jitter, where jitter is cut off.
const APART_MS: u32 = 200;

/// Time after which a ping is lost, milliseconds: twice the longest round trip.
const LOST_MS: u32 = 1500;

/// How many clients are pinged, and how often.
pub(super) struct PingPlan {
    pub(super) clients: u32,
    pub(super) each: u32,
    pub(super) per_s: u32,
    seconds: u32,
}

impl PingPlan {
    pub(super) fn of(seconds: u32) -> Self {
        let clients = PROCESSES * CLIENTS;
        let (each, per_s) = (seconds * 1000 / APART_MS, clients * 1000 / APART_MS);
        Self { clients, each, per_s, seconds }
    }
}

/// Round trips of each client, milliseconds; `None` for a ping that was lost.
pub(super) struct Pings(Vec<Vec<Option<f64>>>);

/// Pings all clients.
pub(super) fn run(spaces: &Spaces, plan: &PingPlan) -> Result<Pings> {
    let running: Result<Vec<(Child, _)>> = (0..PROCESSES).map(|k| start(spaces, plan, k)).collect();
    let mut clients = Vec::new();
    for (mut child, file) in running? {
        let status = child.wait()?;
        // 1: some could not be reached, as when the path loses packets.
        ensure!(matches!(status.code(), Some(0 | 1)), "fping: {status}");
        let text = fs::read_to_string(&file)?;
        clients.extend(read(&text)?);
    }
    ensure!(clients.len() == plan.clients as usize, "fping told of {} clients", clients.len());
    Ok(Pings(clients))
}

fn start(spaces: &Spaces, plan: &PingPlan, process: u32) -> Result<(Child, std::path::PathBuf)> {
    let targets = spaces.scratch().join(format!("targets-{process}"));
    let results = spaces.scratch().join(format!("fping-{process}"));
    let first = process * CLIENTS;
    let lines: Vec<String> = (first..first + CLIENTS)
        .map(|number| format!("10.79.{}.{}\n", 128 + number / 250, 1 + number % 250))
        .collect();
    fs::write(&targets, lines.concat())?;
    let mut command = spaces.command(Side::Servers, "fping", plan.seconds * 3 + 10);
    let interval_ms = f64::from(APART_MS) / f64::from(CLIENTS);
    command.args(["-q", "-C", &plan.each.to_string(), "-p", &APART_MS.to_string()]);
    command.args(["-i", &interval_ms.to_string(), "-t", &LOST_MS.to_string()]);
    command.args(["-b", &DATA_BYTES.to_string(), "-f"]).arg(&targets);
    // Its results are on standard error.
    let child = command.stdout(std::process::Stdio::null()).stderr(File::create(&results)?);
    Ok((child.spawn()?, results))
}

/// Reads lines such as `10.79.128.1 : 0.20 - 0.21`; others are sentences about packets.
fn read(text: &str) -> Result<Vec<Vec<Option<f64>>>> {
    let lines = text.lines().filter_map(|line| line.split_once(" : "));
    let clients = lines.filter(|(client, _)| client.trim_end().starts_with("10.79."));
    clients.map(|(_, trips)| trips.split_whitespace().map(trip).collect()).collect()
}

fn trip(word: &str) -> Result<Option<f64>> {
    match word {
        "-" => Ok(None),
        word => word.parse().map(Some).with_context(|| format!("fping: {word}")),
    }
}

impl Pings {
    /// Returns mean and variance of each client's round trips.
    fn moments(&self) -> Vec<(f64, f64)> {
        let trips =
            |client: &Vec<Option<f64>>| client.iter().flatten().copied().collect::<Vec<_>>();
        self.0.iter().filter_map(|client| moments(&trips(client))).collect()
    }

    /// Returns the mean over clients of their mean round trips.
    pub(super) fn rtt_ms(&self) -> Option<Estimate> {
        Estimate::of(&self.moments().iter().map(|(mean, _)| *mean).collect::<Vec<_>>())
    }

    /// Returns the standard deviation of a client's round trips around its own mean.
    pub(super) fn jitter_ms(&self) -> Option<Estimate> {
        let variances: Vec<f64> = self.moments().iter().map(|(_, variance)| *variance).collect();
        Estimate::of(&variances).map(Estimate::root)
    }

    /// Returns the share of pings that were lost. Its interval is by how much clients differ, so
    /// that losses in a row widen it.
    pub(super) fn loss_percent(&self) -> Option<Estimate> {
        let lost = |client: &Vec<Option<f64>>| {
            let lost = client.iter().filter(|trip| trip.is_none()).count();
            100.0 * lost as f64 / client.len().max(1) as f64
        };
        Estimate::of(&self.0.iter().map(lost).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_read_and_counted() {
        let text = "ICMP Host Unreachable from 10.79.0.1\n\
                    10.79.128.1   : 10.0 - 14.0 -\n10.79.128.2   : 20.0 24.0 20.0 24.0\n";
        let pings = Pings(read(text).unwrap());
        assert_eq!(pings.0[0], [Some(10.0), None, Some(14.0), None]);
        assert_eq!(pings.rtt_ms().unwrap().mean, 17.0);
        assert_eq!(pings.loss_percent().unwrap().mean, 25.0);
        // Around the clients' own means: 8 and 16 / 3.
        let jitter_ms = pings.jitter_ms().unwrap().mean;
        assert!((jitter_ms - (20.0_f64 / 3.0).sqrt()).abs() < 1e-9, "{jitter_ms}");
        assert!(read("10.79.128.1 : x\n").is_err());
    }

    #[test]
    fn a_plan_has_every_client_pinged_at_its_interval() {
        let PingPlan { clients, each, per_s, .. } = PingPlan::of(25);
        assert_eq!((clients, each, per_s), (4000, 125, 20_000));
    }
}
