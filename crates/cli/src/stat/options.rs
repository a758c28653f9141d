//! Options of `weir stat`.

use std::time::Duration;

/// Allowed range of the interval, seconds.
const INTERVALS: std::ops::RangeInclusive<f64> = 0.001..=3600.0;

#[derive(Debug, clap::Args)]
pub(crate) struct StatOptions {
    /// Process id of a server. Without it, the only one that runs is shown, or a list of all
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,

    /// Print JSON, with the keys of `weir serve --stats-json`
    #[arg(long)]
    pub json: bool,

    /// Show the statistics again every SECONDS, with rates over that time [without a value: 1]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = interval)]
    pub watch: Option<Duration>,

    /// Show statistics that are 0 as well
    #[arg(long)]
    pub all: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| INTERVALS.contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        "an interval is a number of seconds from 0.001 to 3600; a process id comes before --watch"
            .into()
    })
}
