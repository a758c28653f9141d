//! Measures: what /proc, the servers and strace say of a point, and whether it fits together. Knows
//! where things are counted; not how a server is run or a load is made.
//!
//! A [`Sample`] is taken where the measured stretch begins and where it ends. It is some small
//! files of /proc, read in the lab's own process: cheap enough to be taken while the load runs.

pub mod calls;
pub mod cores;
pub mod identity;
pub mod kernel;
#[cfg(test)]
pub(crate) mod made_up;
pub mod processes;
pub mod weir_stats;

use std::time::Instant;

use crate::ground::{Ground, Side};
use crate::record::{Cores, Kernel};
use cores::CoreTimes;
use processes::Processes;

/// What the kernel says of both sides and of the server at an instant.
#[derive(Clone, Debug)]
pub struct Sample {
    at: Instant,
    counters: kernel::Counters,
    shared: bool,
    server: CoreTimes,
    client: CoreTimes,
    processes: Processes,
}

/// A server's processes over a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerProcesses {
    /// Their user time, seconds.
    pub cpu_user_s: f64,
    /// Their system time, seconds.
    pub cpu_system_s: f64,
    /// What they have resident at the end, bytes, summed.
    pub rss_bytes: u64,
    /// The most each had resident since it began, bytes, summed.
    pub rss_max_bytes: u64,
    /// How many there are at the end.
    pub processes: u32,
    /// Bytes fetched from disks for them; none where the kernel does not tell.
    pub disk_read_bytes: Option<u64>,
}

impl Sample {
    /// Takes one; `pids` are the processes that all of the server's come from.
    ///
    /// # Errors
    /// The server is gone, or /proc cannot be read or is not understood.
    pub fn take(ground: &dyn Ground, pids: &[u32]) -> Result<Self, String> {
        let stat = std::fs::read_to_string("/proc/stat")
            .map_err(|error| format!("cannot read /proc/stat: {error}"))?;
        Ok(Self {
            at: Instant::now(),
            counters: kernel::read(&ground.proc_net(Side::Server))?,
            shared: ground.shared(),
            server: CoreTimes::parse(&stat, ground.cpus(Side::Server))?,
            client: CoreTimes::parse(&stat, ground.cpus(Side::Client))?,
            processes: Processes::take(pids)?,
        })
    }
}

/// What happened between two samples of the same ground and server.
pub fn between(before: &Sample, after: &Sample) -> (Kernel, Cores, ServerProcesses) {
    let ticks_per_s = rustix::param::clock_ticks_per_second().max(1) as f64;
    let kernel = Kernel {
        window_s: after.at.duration_since(before.at).as_secs_f64(),
        moved: kernel::moved(&before.counters, &after.counters),
        shared: after.shared,
    };
    let cores = Cores {
        server: after.server.since(&before.server, ticks_per_s),
        client: after.client.since(&before.client, ticks_per_s),
    };
    let (user, system) = after.processes.since(&before.processes);
    let processes = ServerProcesses {
        cpu_user_s: user as f64 / ticks_per_s,
        cpu_system_s: system as f64 / ticks_per_s,
        rss_bytes: after.processes.rss_bytes,
        rss_max_bytes: after.processes.rss_max_bytes,
        processes: after.processes.count(),
        disk_read_bytes: after.processes.disk_read_since(&before.processes),
    };
    (kernel, cores, processes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
    use std::path::PathBuf;
    use std::process::Command;

    /// This machine as it is.
    struct Here(Vec<usize>);

    impl Ground for Here {
        fn command_in(&self, _: Side, program: &OsStr, _: &[PathBuf]) -> Command {
            Command::new(program)
        }
        fn server_address(&self) -> IpAddr {
            Ipv4Addr::LOCALHOST.into()
        }
        fn client_sources(&self) -> Vec<IpAddr> {
            Vec::new()
        }
        fn proc_net(&self, _: Side) -> PathBuf {
            "/proc/self/net".into()
        }
        fn cpus(&self, _: Side) -> &[usize] {
            &self.0
        }
        fn shared(&self) -> bool {
            true
        }
    }

    #[test]
    fn what_happens_between_two_samples_is_in_their_difference() {
        let ground = Here(weir_sys::process::allowed_cpus().unwrap());
        let me = [std::process::id()];
        let before = Sample::take(&ground, &me).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let accepted: Vec<_> = (0..3)
            .map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap()))
            .collect();
        let after = Sample::take(&ground, &me).unwrap();
        drop(accepted);
        let (kernel, cores, server) = between(&before, &after);
        assert!(kernel::count(&kernel, "Tcp.PassiveOpens") >= 3, "{kernel:?}");
        assert!(kernel.window_s > 0.0 && kernel.shared);
        assert!(cores.server.total_s() >= 0.0);
        assert!(server.processes >= 1 && server.rss_max_bytes > 0);
    }

    #[test]
    fn a_sample_says_what_is_missing() {
        let me = [std::process::id()];
        let error = Sample::take(&Here(vec![100_000]), &me).unwrap_err();
        assert!(error.contains("processor 100000"), "{error}");
    }
}
