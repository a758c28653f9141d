//! Drops of the server's listening sockets, by the kernel's reason. Begins the trace and says why
//! there is none; what follows from the counts, beside those of the namespace, is in
//! [`kernel`](super::kernel).

use std::os::unix::fs::MetadataExt;

use weir_sys::drop_trace::{Counts, DropTrace, Listeners};

use crate::environment::{Environment, Side};
use crate::record::TracedDrops;

/// Begins to trace the sockets that listen on a port of the server's side.
///
/// # Errors
/// A sentence that says why this is not possible.
pub fn begin(environment: &dyn Environment, port: u16) -> Result<DropTrace, String> {
    let network = environment.proc_net(Side::Server).with_file_name("ns").join("net");
    let inode = std::fs::metadata(&network)
        .map_err(|error| format!("cannot read {}: {error}", network.display()))?
        .ino();
    // Inodes of namespaces are numbers of 32 bits (struct ns_common of Linux).
    trace(Listeners { network: inode as u32, port })
}

/// Returns whether drops can be traced on this machine, or why not.
///
/// # Errors
/// A sentence that says why this is not possible.
pub fn available() -> Result<(), String> {
    trace(Listeners { network: 0, port: 0 }).map(drop)
}

fn trace(listeners: Listeners) -> Result<DropTrace, String> {
    DropTrace::begin(listeners).map_err(|error| error.to_string())
}

/// Returns the drops between two readings of one trace.
pub(super) fn between(before: &Counts, after: &Counts) -> TracedDrops {
    TracedDrops {
        overflow: after.overflow - before.overflow,
        overflow_of_cookie: after.overflow_of_cookie - before.overflow_of_cookie,
        filter: after.filter - before.filter,
        other: after.other - before.other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::Loopback;
    use crate::measure::{Sample, between};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;
    use weir_sys::syn_filter::random;

    #[test]
    fn a_drop_between_two_samples_is_in_the_difference_and_none_without_a_trace() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let me = [std::process::id()];
        let sample = |trace| Sample::take(&Loopback, &me, None, trace).unwrap();
        assert_eq!(between(&sample(None), &sample(None)).kernel.traced, None);
        let trace = match begin(&Loopback, address.port()) {
            Ok(trace) => trace,
            Err(why) => return println!("skipped: {why}"),
        };
        random::attach(listener.as_fd(), 1.0).unwrap();
        let before = sample(Some(&trace));
        TcpStream::connect_timeout(&address, Duration::from_millis(1)).unwrap_err();
        let traced = between(&before, &sample(Some(&trace))).kernel.traced.unwrap();
        assert!(traced.filter > 0);
        assert_eq!(traced, TracedDrops { filter: traced.filter, ..TracedDrops::default() });
    }
}
