//! Bandwidth by iperf3(1): more datagrams than the path lets through, and what arrives of them. TCP
//! would measure how it answers loss.

use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::estimate::Estimate;
use super::spaces::{SERVER, Side, Spaces};

/// Data of a datagram, bytes; with the heads of UDP and IP it fills a packet of 1500.
const DATA_BYTES: u32 = 1472;
const PACKET_BYTES: u32 = DATA_BYTES + 8 + 20;

/// Rate that is sent, as a multiple of the path's.
const SURPLUS: f64 = 1.1;

/// Time that is left out at the beginning, seconds: longer than a round trip and a full queue.
const LEFT_OUT_S: u32 = 2;

/// Time for connections, the last results and the end of iperf3, seconds.
const SPARE_S: u32 = 20;

/// A way of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the clients to the servers.
    Up,
    /// From the servers to the clients.
    Down,
}

impl Way {
    pub(super) fn quantity(self) -> &'static str {
        match self {
            Self::Up => "bandwidth up",
            Self::Down => "bandwidth down",
        }
    }
}

/// Measures what arrives, Mbit/s of IP packets; each second is a value.
pub(super) fn run(
    spaces: &Spaces,
    way: Way,
    mbit_per_s: f64,
    seconds: u32,
) -> Result<Option<Estimate>> {
    let life_s = LEFT_OUT_S + seconds + SPARE_S;
    let server = piped(spaces.command(Side::Servers, "iperf3", life_s).args(["-s", "-1", "-J"]))?;
    // It says nothing while it writes JSON; a connection would be its only one.
    thread::sleep(Duration::from_millis(500));
    let rate =
        (mbit_per_s * SURPLUS * f64::from(DATA_BYTES) / f64::from(PACKET_BYTES) * 1e6) as u64;
    let mut client = spaces.command(Side::Clients, "iperf3", life_s);
    client.args(["-c", SERVER, "-J", "-u", "-l", &DATA_BYTES.to_string(), "-b"]);
    client.args([rate.to_string(), "-t".into(), (LEFT_OUT_S + seconds + 1).to_string()]);
    client.args(if way == Way::Down { &["-R"][..] } else { &[] });
    let [client, server] = [piped(&mut client)?, server].map(Child::wait_with_output);
    let receiver = if way == Way::Down { client? } else { server? };
    arrived(&receiver, seconds).with_context(|| way.quantity())
}

fn piped(command: &mut Command) -> Result<Child> {
    Ok(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?)
}

fn arrived(receiver: &Output, count: u32) -> Result<Option<Estimate>> {
    ensure!(receiver.status.success(), "iperf3: {}", receiver.status);
    let report: Value = serde_json::from_slice(&receiver.stdout)?;
    let factor = f64::from(PACKET_BYTES) / f64::from(DATA_BYTES) / 1e6;
    Ok(Estimate::of(&seconds(&report, count)?).map(|data| data.times(factor)))
}

/// Returns the bits of data per second of `count` seconds, those left out before them. iperf3 can
/// leave them out itself (`-O`), but then counts a second in parts now and then.
fn seconds(report: &Value, count: u32) -> Result<Vec<f64>> {
    let intervals = report["intervals"].as_array().context("iperf3 told of no intervals")?;
    let counting = intervals.iter().skip(LEFT_OUT_S as usize).take(count as usize);
    let bits = |interval: &Value| interval["sum"]["bits_per_second"].as_f64();
    let all: Option<Vec<f64>> = counting.map(bits).collect();
    let all = all.filter(|all| all.len() == count as usize);
    all.context("iperf3 told of fewer seconds than it was to run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_seconds_and_the_last_do_not_count() {
        let interval = |bits: f64| serde_json::json!({ "sum": { "bits_per_second": bits } });
        let report = |all: &[f64]| {
            let all: Vec<Value> = all.iter().map(|bits| interval(*bits)).collect();
            serde_json::json!({ "intervals": all })
        };
        assert_eq!(seconds(&report(&[9.0, 9.0, 5.0, 7.0, 1.0]), 2).unwrap(), [5.0, 7.0]);
        assert!(seconds(&report(&[9.0, 9.0, 5.0]), 2).is_err());
        assert!(seconds(&Value::Null, 2).is_err());
    }
}
