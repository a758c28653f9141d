//! Traces of the kernel while a point is measured: the drops of the server's listening sockets and
//! the SYNs that reach its link. Each is there or says why not; neither needs the other. What
//! follows from the drops, beside the counters of the namespace, is in [`kernel`](super::kernel).

use std::os::unix::fs::MetadataExt;

use weir_sys::drop_trace::{Counts, DropTrace, Listeners};
use weir_sys::syn_trace::SynTrace;

use crate::environment::{Environment, Side};
use crate::record::{Kernel, TracedDrops};

/// Reason for which SYNs are not counted where they could be.
const NOT_SHOWN: &str = "no figure or table shows them";

/// The traces of a point, or the reasons why there are none.
pub struct Traces {
    drops: Result<DropTrace, String>,
    syns: Result<SynTrace, String>,
}

/// The counts of the traces at an instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceReading {
    drops: Option<Counts>,
    syns: Option<u64>,
}

impl Traces {
    /// Begins to trace the server's side, whose server listens on a port. SYNs are counted on
    /// request.
    pub fn begin(environment: &dyn Environment, port: u16, counts_syns: bool) -> Self {
        let listeners = listeners(environment, port);
        let drops = listeners.clone().and_then(drops_of);
        let syns = if counts_syns { listeners.and_then(syns_of) } else { Err(NOT_SHOWN.into()) };
        Self { drops, syns }
    }

    /// Returns the counts so far: memory reads, no call.
    pub fn read(&self) -> TraceReading {
        TraceReading {
            drops: self.drops.as_ref().ok().map(DropTrace::counts),
            syns: self.syns.as_ref().ok().map(SynTrace::count),
        }
    }

    /// Ends the traces, and notes why some were not there.
    pub fn end(self, kernel: &mut Kernel) {
        (kernel.untraced, kernel.syns_uncounted) = (self.drops.err(), self.syns.err());
    }
}

/// Notes the growth between two readings of the same traces.
pub(super) fn note(before: TraceReading, after: TraceReading, kernel: &mut Kernel) {
    let counts = before.drops.zip(after.drops);
    kernel.traced = counts.map(|(before, after)| drops_between(&before, &after));
    kernel.syns = before.syns.zip(after.syns).map(|(before, after)| after - before);
}

/// Returns the drops between two readings of one trace.
fn drops_between(before: &Counts, after: &Counts) -> TracedDrops {
    TracedDrops {
        overflow: after.overflow - before.overflow,
        overflow_of_cookie: after.overflow_of_cookie - before.overflow_of_cookie,
        filter: after.filter - before.filter,
        other: after.other - before.other,
    }
}

/// Returns whether drops can be traced on this machine, or why not.
///
/// # Errors
/// A sentence that says why this is not possible.
pub fn drops_available() -> Result<(), String> {
    drops_of(NOBODY).map(drop)
}

/// Returns whether SYNs can be counted on this machine, or why not.
///
/// # Errors
/// A sentence that says why this is not possible.
pub fn syns_available() -> Result<(), String> {
    syns_of(NOBODY).map(drop)
}

const NOBODY: Listeners = Listeners { network: 0, port: 0 };

fn drops_of(listeners: Listeners) -> Result<DropTrace, String> {
    DropTrace::begin(listeners).map_err(|error| error.to_string())
}

fn syns_of(listeners: Listeners) -> Result<SynTrace, String> {
    SynTrace::begin(listeners).map_err(|error| error.to_string())
}

fn listeners(environment: &dyn Environment, port: u16) -> Result<Listeners, String> {
    let network = environment.proc_net(Side::Server).with_file_name("ns").join("net");
    let inode = std::fs::metadata(&network)
        .map_err(|error| format!("cannot read {}: {error}", network.display()))?
        .ino();
    // Inodes of namespaces are numbers of 32 bits (struct ns_common of Linux).
    Ok(Listeners { network: inode as u32, port })
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
    fn what_is_traced_between_two_samples_is_in_the_difference_and_nothing_without_a_trace() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let me = [std::process::id()];
        let sample = |traces| Sample::take(&Loopback, &me, None, traces).unwrap();
        let untraced = between(&sample(None), &sample(None)).kernel;
        assert_eq!((untraced.traced, untraced.syns), (None, None));
        let traces = Traces::begin(&Loopback, address.port(), true);
        let before = sample(Some(&traces));
        let is_filtered = random::attach(listener.as_fd(), 1.0).is_ok();
        let _ = TcpStream::connect_timeout(&address, Duration::from_millis(1));
        let mut kernel = between(&before, &sample(Some(&traces))).kernel;
        traces.end(&mut kernel);
        match (kernel.syns, &kernel.syns_uncounted) {
            (Some(syns), None) => assert!(syns > 0),
            (None, Some(why)) => println!("skipped: {why}"),
            both => panic!("{both:?}"),
        }
        match (kernel.traced, &kernel.untraced) {
            (Some(traced), None) => {
                assert_eq!(traced.filter > 0, is_filtered);
                assert_eq!(traced, TracedDrops { filter: traced.filter, ..TracedDrops::default() });
            }
            (None, Some(why)) => println!("skipped: {why}"),
            both => panic!("{both:?}"),
        }
    }

    #[test]
    fn syns_are_counted_on_request() {
        let mut kernel = Kernel::default();
        Traces::begin(&Loopback, 1, false).end(&mut kernel);
        assert_eq!(kernel.syns_uncounted.as_deref(), Some(NOT_SHOWN));
    }
}
