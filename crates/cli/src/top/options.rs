//! Options of `weir top`.

#[derive(Debug, clap::Args)]
pub(crate) struct TopOptions {
    /// Process id of a server. Without it, the only one that runs is shown
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
}
