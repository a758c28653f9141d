//! What a path's law promises to a program that measures it.

use anyhow::{Context, Error, Result};
use weir_packet::path::{OneLaw, PathLaw};

use super::stream::Way;

/// The law of one kind of path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked(OneLaw);

impl Asked {
    /// Reads a law.
    ///
    /// # Errors
    /// It is none, or one of several kinds.
    pub(super) fn of(path: &str) -> Result<Self> {
        let law: PathLaw = path.parse().map_err(Error::msg)?;
        Ok(Self(law.only().context("a law of several kinds")?))
    }

    /// Returns the mean round trip of packets of `bytes` that find no queue, milliseconds: the time
    /// that they take of the bandwidth is part of it.
    pub(super) fn rtt_ms(&self, bytes: u32) -> f64 {
        let middle_ns = (self.0.rtt.from_ns + self.0.rtt.to_ns) as f64 / 2.0;
        let takes_ms = |bits_per_s: u64| match bits_per_s {
            0 => 0.0,
            some => f64::from(bytes) * 8e3 / some as f64,
        };
        middle_ns / 1e6 + takes_ms(self.0.up_bits_per_s) + takes_ms(self.0.down_bits_per_s)
    }

    /// Returns the standard deviation of a path's round trips, milliseconds.
    pub(super) fn jitter_ms(&self) -> f64 {
        self.0.jitter_ns as f64 / 1e6
    }

    /// Returns the loss of round trips, percent: each way loses a packet by itself.
    pub(super) fn loss_percent(&self) -> f64 {
        let kept = 1.0 - self.0.loss.share;
        100.0 * (1.0 - kept * kept)
    }

    /// Returns a bandwidth, in Mbit/s of IP packets; `None` without a limit.
    pub(super) fn mbit_per_s(&self, way: Way) -> Option<f64> {
        let bits = match way {
            Way::Up => self.0.up_bits_per_s,
            Way::Down => self.0.down_bits_per_s,
        };
        (bits > 0).then_some(bits as f64 / 1e6)
    }

    /// Returns what arrives of a bandwidth that is in full use: packets are lost behind it.
    pub(super) fn arriving(&self, mbit_per_s: f64) -> f64 {
        mbit_per_s * (1.0 - self.0.loss.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_promises_its_means() {
        let asked = Asked::of("rtt=10ms..30ms,jitter=3ms,loss=10%,down=8m,up=1m").unwrap();
        assert!((asked.rtt_ms(1000) - 29.0).abs() < 1e-9, "{}", asked.rtt_ms(1000));
        assert!((asked.loss_percent() - 19.0).abs() < 1e-9);
        assert_eq!((asked.jitter_ms(), asked.mbit_per_s(Way::Down)), (3.0, Some(8.0)));
        assert!((asked.arriving(8.0) - 7.2).abs() < 1e-9);
        let nothing = Asked::of("rtt=0s").unwrap();
        assert_eq!((nothing.rtt_ms(1000), nothing.mbit_per_s(Way::Up)), (0.0, None));
        assert!(Asked::of("mix").is_err() && Asked::of("none").is_err());
    }
}
