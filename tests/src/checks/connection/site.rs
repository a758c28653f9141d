//! The served files and the servers' configurations: files that differ in length and content, and
//! configurations that differ where the connection machine does.

use std::fs::File;

use rustix::fs::{Advice, fadvise};
use weir_server::accept::{Controls, Limit, PolicyConfig, Refusal, SynFilter};
use weir_server::content::Options;
use weir_server::readiness::settings::Settings;
use weir_server::{
    Config, ErrorLog, ErrorLogOptions, LogLevel, LogTarget, MemoryLimit, OutputPath, PRESETS,
    SandboxMode, Strategy, SynFilterPlace, Timeouts, architecture, readiness, slots,
};

use crate::files::{Root, noise};

const SECOND_NS: u64 = 1_000_000_000;

/// Lengths of the files `/n/0` to `/n/15`, which all differ.
const LENGTHS: [usize; 16] = [
    0, 1, 2, 33, 100, 999, 4095, 4096, 4097, 9_000, 16_384, 16_385, 65_535, 65_536, 70_001, 150_007,
];

/// Maximum size of a request body that is read and discarded, bytes.
pub(super) const BODY_BYTES_MAX: u64 = 1000;

/// Choices of a server, one bit each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choices(pub u8);

impl Choices {
    fn has(self, bit: u8) -> bool {
        self.0 & 1 << bit != 0
    }

    /// Returns whether replies are written as soon as they are ready.
    pub(super) fn is_eager(self) -> bool {
        self.has(0)
    }

    /// Returns the output path: a cork is one more choice where nothing is cached.
    fn output(self) -> OutputPath {
        let corks = self.has(1) && !self.has(2) && !self.has(3);
        if corks { OutputPath::Cork } else { OutputPath::Gather }
    }

    fn memory_file_bytes_max(self) -> u64 {
        match self.output() {
            OutputPath::Cork => 0,
            OutputPath::Gather if self.has(3) => 1 << 20,
            OutputPath::Gather => 8 << 10,
        }
    }

    /// Returns whether files changed a moment ago, by the server's clock.
    pub(super) fn is_fresh(self) -> bool {
        self.has(6)
    }

    /// Returns whether there is a minimum rate, so high that every client is slow.
    fn has_rate(self) -> bool {
        self.has(5)
    }
}

/// The served directory.
pub(super) struct Site {
    root: Root,
    /// The files by number.
    pub files: Vec<Vec<u8>>,
    /// Time at which the last file was created, nanoseconds since 1970.
    pub made_ns: u64,
}

impl Site {
    /// Creates the files, in a directory of their own.
    pub(super) fn new() -> Self {
        let root = Root::new();
        let files: Vec<_> =
            LENGTHS.iter().enumerate().map(|(i, &length)| noise(i as u64 + 1, length)).collect();
        for (number, bytes) in files.iter().enumerate() {
            let path = root.write(&format!("n/{number}"), bytes);
            // Only what is on the disk can be dropped from memory.
            File::open(path).unwrap().sync_all().unwrap();
        }
        for number in 0..40 {
            root.write(&format!("dir/entry-{number}"), "");
        }
        let made = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        Self { root, files, made_ns: made.as_nanos() as u64 }
    }

    /// Drops a file from the page cache, where the file system supports that.
    pub(super) fn forget(&self, number: usize) {
        let path = self.root.path().join(format!("n/{number}"));
        let file = File::open(path).unwrap();
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }

    /// Returns the configuration of a server for these files.
    pub(super) fn config(&self, choices: Choices) -> Config {
        let eager = choices.is_eager();
        let strategy = Strategy {
            eager_read: eager,
            eager_write: eager,
            full_read: choices.has(1),
            caching: choices.has(2),
            output: choices.output(),
            ..PRESETS[0].strategy
        };
        let content = Options {
            listing: true,
            codings: Vec::new(),
            caching: strategy.caching,
            memory_file_bytes_max: choices.memory_file_bytes_max(),
            waits: !choices.has(4),
            ..Options::default()
        };
        Config {
            root: Some(self.root.path().to_owned()),
            strategy,
            content,
            timeouts: Timeouts {
                request_ns: if choices.has(7) { 15 * SECOND_NS } else { 0 },
                ..TIMEOUTS
            },
            rate_min: if choices.has_rate() { 100 } else { 0 },
            ..plain()
        }
    }
}

const TIMEOUTS: Timeouts = Timeouts {
    header_ns: 10 * SECOND_NS,
    body_ns: 8 * SECOND_NS,
    idle_ns: 5 * SECOND_NS,
    request_ns: 0,
    linger_ns: 2 * SECOND_NS,
    drain_ns: 6 * SECOND_NS,
    rate_grace_ns: 3 * SECOND_NS,
    stall_ns: 4 * SECOND_NS,
    user_ns: 0,
};

/// Returns a configuration without options that concern the connection machine.
fn plain() -> Config {
    let strategy = PRESETS[0].strategy;
    Config {
        root: Some("/".into()),
        listen: Vec::new(),
        tls: None,
        redirects_to_tls: false,
        tls_port: 0,
        inherited: 0,
        share_listener: false,
        arch: architecture::ArchitectureName::Loop,
        arch_settings: Settings::default(),
        mechanism: readiness::TABLE[0].name,
        slots: slots::TABLE[0].search,
        mechanism_settings: Settings::default(),
        strategy,
        policy: PolicyConfig {
            name: strategy.accept_policy,
            limit: Limit::Inf,
            target_ns: 0,
            controls: Controls::default(),
            refusal: Refusal::default(),
            backlog: 0,
            syn_filter: SynFilter::None,
            eager: false,
        },
        syn_filter: None,
        syn_filter_at: SynFilterPlace::Auto,
        conns_max: 0,
        memory: MemoryLimit::None,
        client_limits: None,
        listenq: 0,
        content: Options::default(),
        fields: b"X-Served: here\r\n".to_vec(),
        tls_fields: Vec::new(),
        upstreams: Vec::new(),
        sites: None,
        site_roots: Vec::new(),
        high_priority: Vec::new(),
        buffers_bytes_max: 0,
        cache: None,
        trusted: Vec::new(),
        proxy_protocol_in: false,
        error_pages: Vec::new(),
        workers: 1,
        cpus: Vec::new(),
        timeouts: TIMEOUTS,
        rate_min: 0,
        body_bytes_max: BODY_BYTES_MAX,
        access_log: None,
        request_ids: false,
        stat_page: false,
        accept_queue_times: false,
        phase_times: false,
        profile_calls: false,
        bench_endpoints: false,
        requests_max: u32::MAX,
        sandbox: SandboxMode::Off,
        user: None,
        admin_socket: None,
        errors: ErrorLog::new(
            ErrorLogOptions { target: LogTarget::Stderr, level: LogLevel::Error, refusals: 0 },
            |_| {},
        ),
    }
}
