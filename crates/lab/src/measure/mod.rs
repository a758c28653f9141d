//! Measurements of a point: reads /proc, the servers' statistics and strace, and checks them for
//! consistency.
//!
//! A [`Sample`] is taken at the beginning and at the end of the measured window. It reads a few
//! small files of /proc in the lab's own process, which is cheap enough while the load runs.

pub mod calls;
pub mod cores;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod hardware;
pub mod identity;
pub mod idle_counter;
pub mod kernel;
pub mod processes;
mod softnet;
pub mod traces;
pub mod weir_stats;

use std::time::Instant;

use weir_sys::proc::seconds;

use crate::environment::{Environment, Side};
use crate::record::{ClientResult, Kernel, ServerResult};
use processes::Processes;
use softnet::SoftnetReading;
use traces::{TraceReading, Traces};

/// The kernel's view of both sides, of the server and of the load generator at an instant.
#[derive(Clone, Debug)]
pub struct Sample {
    at: Instant,
    counters: kernel::Counters,
    /// The server's processors; `None` where the kernel has no such counts.
    softnet: Option<SoftnetReading>,
    traced: TraceReading,
    shared: bool,
    processes: Processes,
    /// The load generator's; `None` if it has ended.
    client_processes: Option<Processes>,
}

/// The differences between two samples.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Counters of the server's network.
    pub kernel: Kernel,
    /// The server's processes; nothing else of the server is set.
    pub server: ServerResult,
    /// The load generator's processes; `None` if it has ended meanwhile.
    pub client: Option<ClientResult>,
}

impl Sample {
    /// Takes a sample; `pids` are the root processes of the server, `client` is that of the load
    /// generator, and `traces` those of the kernel, if there are any.
    ///
    /// # Errors
    /// The server is gone, or /proc cannot be read or parsed.
    pub fn take(
        environment: &dyn Environment,
        pids: &[u32],
        client: Option<u32>,
        traces: Option<&Traces>,
    ) -> Result<Self, String> {
        let network = environment.proc_net(Side::Server);
        Ok(Self {
            at: Instant::now(),
            counters: kernel::read(&network)?,
            softnet: softnet::read(&network, environment.cpus(Side::Server))?,
            traced: traces.map(Traces::read).unwrap_or_default(),
            shared: environment.shared(),
            processes: Processes::take(pids)?,
            client_processes: client.and_then(|pid| Processes::take(&[pid]).ok()),
        })
    }
}

/// Returns the differences between two samples of the same testbed, server and load.
pub fn between(before: &Sample, after: &Sample) -> Measured {
    let mut kernel = Kernel {
        window_s: after.at.duration_since(before.at).as_secs_f64(),
        moved: kernel::moved(&before.counters, &after.counters),
        shared: after.shared,
        softnet: before.softnet.as_ref().zip(after.softnet.as_ref()).map(softnet::between),
        ..Kernel::default()
    };
    traces::note(before.traced, after.traced, &mut kernel);
    let (user, system) = after.processes.since(&before.processes);
    let server = ServerResult {
        cpu_user_s: seconds(user),
        cpu_system_s: seconds(system),
        rss_max_bytes: after.processes.rss_max_bytes,
        processes: after.processes.count(),
        disk_read_bytes: after.processes.disk_read_since(&before.processes),
        ..ServerResult::default()
    };
    let both = before.client_processes.as_ref().zip(after.client_processes.as_ref());
    let client = both.map(|(before, after)| {
        let (user, system) = after.since(before);
        ClientResult {
            cpu_user_s: seconds(user),
            cpu_system_s: seconds(system),
            rss_begin_bytes: before.rss_bytes,
            rss_end_bytes: after.rss_bytes,
            rss_max_bytes: after.rss_max_bytes,
        }
    });
    Measured { kernel, server, client }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::Loopback;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn a_difference_holds_the_time_between_two_samples() {
        let me = [std::process::id()];
        let before = Sample::take(&Loopback, &me, Some(me[0]), None).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let accepted: Vec<_> = (0..3)
            .map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap()))
            .collect();
        let after = Sample::take(&Loopback, &me, Some(me[0]), None).unwrap();
        drop(accepted);
        let Measured { kernel, server, client } = between(&before, &after);
        assert!(kernel::count(&kernel, "Tcp.PassiveOpens") >= 3, "{kernel:?}");
        assert!(kernel.window_s > 0.0 && kernel.shared);
        assert!(server.processes >= 1 && server.rss_max_bytes > 0);
        assert!(client.unwrap().rss_max_bytes > 0);
    }

    #[test]
    fn a_sample_says_what_is_missing() {
        let error = Sample::take(&Loopback, &[u32::MAX], None, None).unwrap_err();
        assert!(error.contains("the process 4294967295 is gone"), "{error}");
    }
}
