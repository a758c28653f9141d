//! What a worker's thread or process needs before it begins: its processor, and the content.

use weir_content::Store;
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

/// Opens the content to serve.
///
/// # Errors
/// A message: the root cannot be opened.
pub(crate) fn open_store(config: &Config) -> Result<Store, Error> {
    Store::open(&config.root, config.content.clone())
        .map_err(|error| Error(format!("cannot serve {}: {error}", config.root.display())))
}
