//! The options of compression on the fly, each defined once.

use clap::{ArgAction, Args};
use weir_server::PRESETS;
use weir_server::content::CompressionOptions;

use crate::values::{self, OnOff};

/// Compression on the fly.
#[derive(Debug, Args)]
pub(crate) struct CompressOptions {
    /// Compress files on the fly that have no precompressed variant, by br, zstd or gzip, as a
    /// client prefers. Default: on, but off under a preset of the papers
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, hide_possible_values = true)]
    pub compress: Option<OnOff>,

    /// Memory for files compressed on the fly, all loops together
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = values::size)]
    pub compress_cache: u64,

    /// Files larger than this are not compressed on the fly, and neither are those for which
    /// --compress-cache has no room in each loop
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = values::size)]
    pub compress_max: u64,
}

impl CompressOptions {
    /// Returns what is compressed under a preset; `None` for nothing. Without caching that is only
    /// what was asked for, which the server says it does not do.
    pub(crate) fn compression(&self, preset: &str, caching: bool) -> Option<CompressionOptions> {
        // The papers' servers send files as they are.
        let is_usual = caching && preset == PRESETS[0].name;
        let is_on = self.compress.map_or(is_usual, |on| on == OnOff::On);
        is_on.then_some(CompressionOptions {
            cache_bytes_max: self.compress_cache,
            // The share of this is fixed when it is known how many loops there are.
            unclaimed_bytes_max: 0,
            file_bytes_max: self.compress_max,
        })
    }
}
