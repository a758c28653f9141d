//! What a worker's thread or process needs before it begins: its processor.

use weir_sys::process;

use crate::config::{Config, Error};

/// Pins the calling thread to the processor of the worker with this index, if processors are
/// configured.
///
/// # Errors
/// A message: the processor is not there, or not allowed.
pub(crate) fn pin(index: usize, config: &Config) -> Result<(), Error> {
    let Some(&cpu) = config.cpus.get(index % config.cpus.len().max(1)) else { return Ok(()) };
    process::pin_thread(cpu)
        .map_err(|error| Error(format!("cannot run on processor {cpu}: {error}")))
}
