//! The server configurations that every suite runs for. They derive from the tables of
//! architectures and of mechanisms, so that a new entry joins the suites without a test of its own.
//! Tests that do not apply to a configuration are listed in one table here.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use weir_dispatch::readiness::settings::Settings;
use weir_dispatch::readiness::{self, MechanismName};
use weir_server::accept;
use weir_server::architecture::{self, Choice};
use weir_server::{PRESETS, Preset};

use crate::Server;
use crate::server::{Attempt, UNHURRIED, attempt};

/// Mechanisms that represent all of them under the architectures without a loop: one
/// edge-triggered, one level-triggered, and one whose set is a bitmap.
const KINDS: [&str; 3] = ["epoll-et", "poll", "select"];

/// Name of the architectures' option for the number of connections served to completion at the same
/// time. Where it may be 0, that means no limit.
const POOL_TUNABLE: &str = "pool";

/// Pool size of a set-up: more connections than most tests hold open.
const POOL: u64 = 64;

/// Architectures that depend on a feature that a kernel may lack or forbid.
const OF_THE_KERNEL: [&str; 1] = ["ring"];

/// Tests that do not apply to some set-ups.
struct Omission {
    tests: &'static [&'static str],
    applies: fn(&Setup) -> bool,
    why: &'static str,
}

/// Returns whether each connection occupies one of a few fibers, threads or processes until it
/// ends.
fn has_a_pool(setup: &Setup) -> bool {
    setup.at_once.is_some()
}

/// Table of all tests that do not apply to some set-ups.
const OMISSIONS: &[Omission] = &[
    Omission {
        tests: &["a_cached_file_that_was_replaced_is_seen_and_never_unseen"],
        applies: |setup| setup.arch.spelling == "processes",
        why: "each child has a cache of its own, and looks at the file in its own time",
    },
    Omission {
        tests: &["three_hundred_connections_at_once_get_every_byte"],
        applies: has_a_pool,
        why: "its pool serves fewer at a time, and each to its end",
    },
    Omission {
        tests: &["a_flood_is_noticed_and_refused_by_the_kernel"],
        applies: |setup| setup.arch.spelling != architecture::TABLE[0].spelling,
        why: "only the loop guarantees the length of its queue under overload",
    },
    Omission {
        tests: &["a_flood_for_the_only_upstream_is_refused_by_the_kernel_in_the_end"],
        applies: has_a_pool,
        why: "it has no overload control (--accept-policy limit)",
    },
    Omission {
        tests: &["a_long_work_phase_is_cut_to_accept_others"],
        applies: |setup| has_a_pool(setup) || setup.arch.spelling == "threads",
        why: "its connections are served to their end, or each by a thread: it has no work-phase",
    },
    Omission {
        tests: &[
            "connections_with_half_a_request_are_evicted",
            "silent_connections_are_evicted",
            "silent_connections_at_one_of_two_listeners_are_evicted",
            "connections_with_an_incomplete_body_are_evicted",
            "connections_whose_client_reads_nothing_are_evicted",
            "connections_that_pause_for_their_clients_bandwidth_are_evicted",
            "half_done_handshakes_are_evicted_first",
            "idle_connections_are_evicted_before_young_handshakes",
            "a_server_that_is_full_refuses_and_serves_again",
        ],
        applies: has_a_pool,
        why: "a silent client occupies a fiber, thread or process until its deadline",
    },
    Omission {
        tests: &["handshakes_that_wait_when_the_server_stops_are_not_reset"],
        applies: has_a_pool,
        why: "what it accepts may wait there for the end of another connection",
    },
];

/// A server configuration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name in messages: `poll`, `fiber over select, pool=64`.
    pub name: String,
    /// Number of connections each loop serves to completion at the same time; `None` where only
    /// descriptors and memory limit it.
    pub at_once: Option<usize>,
    /// The architecture.
    pub arch: &'static architecture::Row,
    /// Name in the ready line.
    shown: String,
    options: Vec<String>,
    /// Settings of the architecture.
    settings: Settings,
    weir: &'static str,
}

impl Setup {
    /// Starts a server on `root` with `options` besides those of the set-up; see [`Server::start`].
    ///
    /// # Panics
    /// As there, and when the ready line names another set-up.
    pub fn serve(&self, root: impl AsRef<Path>, options: &[&str]) -> Server {
        let server = Server::start(self.weir, &self.with(options), root);
        let shown = format!("({},", self.shown);
        assert!(server.ready.contains(&shown), "{}: {}", self.name, server.ready);
        server
    }

    /// Starts `weir proxy` in front of the servers at `urls`, with `options` besides those of the
    /// set-up; see [`Server::proxy`].
    ///
    /// # Panics
    /// As there.
    pub fn proxy(&self, urls: &[&str], options: &[&str]) -> Server {
        Server::proxy(self.weir, urls, &self.with(options))
    }

    /// Returns the options of the set-up followed by `options`. Nobody is refused for having waited
    /// ([`UNHURRIED`]), unless `options` say for how long clients may. Where the default accept
    /// policy does not apply, connections are accepted one by one, unless `options` choose
    /// otherwise: a server that accepts several and serves each to completion keeps the second
    /// waiting for the first.
    pub fn with<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        let mut all: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let chooses =
            |option: &&str| ["--preset", "--accept-policy", "--accept-limit"].contains(option);
        if !self.takes_policies() && !options.iter().any(chooses) {
            all.extend(["--accept-limit", "1"]);
        }
        if !options.contains(&UNHURRIED[0]) {
            all.extend(UNHURRIED);
        }
        [&all[..], options].concat()
    }

    /// Returns the choice in a preset that does not apply here; `None` if all do.
    pub fn excludes(&self, preset: &Preset) -> Option<Choice> {
        self.arch.excludes(&preset.strategy, &self.settings).map(|exclusion| exclusion.choice)
    }

    /// Returns whether accept policies other than the limit apply here.
    pub fn takes_policies(&self) -> bool {
        let chooses = |preset: &&Preset| preset.strategy.accept_policy != accept::PolicyName::Limit;
        PRESETS.iter().filter(chooses).all(|preset| self.excludes(preset).is_none())
    }

    /// Returns whether clients can speak TLS here.
    fn speaks_tls(&self) -> bool {
        self.arch.tls_not.is_none()
    }

    /// Returns whether requests can be forwarded here.
    fn forwards(&self) -> bool {
        self.arch.forwards_not.is_none()
    }

    /// Returns whether a test applies here; prints the reason if not.
    fn takes(&self, test: &str) -> bool {
        let omission =
            OMISSIONS.iter().find(|each| each.tests.contains(&test) && (each.applies)(self));
        if let Some(omission) = omission {
            println!("SKIPPED: {test} with {}: {}", self.name, omission.why);
        }
        omission.is_none()
    }

    /// Creates a set-up for an architecture and its settings.
    fn new(weir: &'static str, arch: &'static architecture::Row, pool: Option<u64>) -> Self {
        let is_usual = arch.spelling == architecture::TABLE[0].spelling;
        let shown = if is_usual { String::new() } else { arch.spelling.to_owned() };
        let mut options = Vec::new();
        if !is_usual {
            options.extend(["--arch".to_owned(), arch.spelling.to_owned()]);
        }
        let chosen: Vec<_> = pool.iter().map(|pool| format!("{POOL_TUNABLE}={pool}")).collect();
        for choice in &chosen {
            options.extend(["--arch-option".to_owned(), choice.clone()]);
        }
        let settings = Settings::parse(arch.tunables, &chosen).unwrap_or_default();
        let at_once = pool.filter(|&pool| pool > 0).map(|pool| pool as usize);
        Self { name: String::new(), at_once, arch, shown, options, settings, weir }
    }

    /// Returns the set-up with a mechanism under it.
    fn over(mut self, mechanism: &'static str) -> Self {
        let over = if self.shown.is_empty() { "" } else { " over " };
        self.shown = format!("{}{over}{mechanism}", self.shown);
        self.options.extend(["--mechanism".to_owned(), mechanism.to_owned()]);
        self
    }

    fn named(mut self) -> Self {
        let pool = self.at_once.map(|pool| format!(", {POOL_TUNABLE}={pool}"));
        self.name = format!("{}{}", self.shown, pool.unwrap_or_default());
        self
    }

    /// Returns whether this kernel supports the set-up; prints what it lacks.
    ///
    /// # Panics
    /// When it does not start, and depends on nothing that a kernel may lack.
    fn is_possible(&self) -> bool {
        if self.arch.takes_mechanism {
            return true;
        }
        let mut command = Command::new(self.weir);
        command.args(["serve", "/", "--listen", "127.0.0.1:0"]).args(self.with(&[]));
        let Attempt::Refused(stopped) = attempt(command.stdin(Stdio::null())) else {
            return true;
        };
        let (status, said) = (stopped.status.code(), stopped.stderr.trim_end());
        let may_lack = OF_THE_KERNEL.contains(&self.arch.spelling);
        let in_a_sentence = status == Some(2) && said.lines().count() == 1;
        assert!(may_lack && in_a_sentence, "{} ends with {status:?}: {said}", self.name);
        eprintln!("SKIPPED: {} is not possible here: {said}", self.name);
        false
    }
}

/// Returns every value of `--mechanism` that this kernel supports and allows; prints those it
/// skips.
pub fn mechanisms() -> Vec<&'static str> {
    let possible = |row: &&readiness::Row| {
        let opened = MechanismName::try_open(row.name);
        if let Err(error) = &opened {
            eprintln!("SKIPPED: {} is not possible here: {error}", row.spelling);
        }
        opened.is_ok()
    };
    readiness::TABLE.iter().filter(possible).map(|row| row.spelling).collect()
}

/// Returns the pools to try with an architecture: `None` where it has none.
fn pools(row: &architecture::Row) -> Vec<Option<u64>> {
    match row.tunables.iter().find(|tunable| tunable.name == POOL_TUNABLE) {
        None => vec![None],
        Some(tunable) if tunable.min == 0 => vec![Some(0), Some(POOL.min(tunable.max))],
        Some(tunable) => vec![Some(POOL.clamp(tunable.min, tunable.max))],
    }
}

/// Returns the set-ups of one architecture, over these mechanisms where it takes one; a pool is
/// tried over the first of them.
fn of_row(
    weir: &'static str,
    row: &'static architecture::Row,
    over: &[&'static str],
) -> Vec<Setup> {
    let mut all = Vec::new();
    for (index, pool) in pools(row).into_iter().enumerate() {
        let made = || Setup::new(weir, row, pool);
        match over {
            _ if !row.takes_mechanism => all.push(made()),
            [first, ..] if index > 0 => all.push(made().over(first)),
            _ => all.extend(over.iter().map(|mechanism| made().over(mechanism))),
        }
    }
    all.into_iter().map(Setup::named).filter(Setup::is_possible).collect()
}

/// Returns the loop over every mechanism, and every other architecture over some.
fn all_setups(weir: &'static str) -> Vec<Setup> {
    let every = mechanisms();
    let some: Vec<_> = KINDS.into_iter().filter(|kind| every.contains(kind)).collect();
    let mut setups = Vec::new();
    for (index, row) in architecture::TABLE.iter().enumerate() {
        setups.extend(of_row(weir, row, if index == 0 { &every } else { &some }));
    }
    setups
}

/// Returns all set-ups: the loop over every mechanism, and every other architecture over some.
/// `weir` is the program.
pub fn setups(weir: &'static str) -> &'static [Setup] {
    static SETUPS: OnceLock<Vec<Setup>> = OnceLock::new();
    SETUPS.get_or_init(|| all_setups(weir))
}

/// Returns a set-up for each architecture and pool, over the usual mechanism.
pub fn architectures(weir: &'static str) -> &'static [Setup] {
    static ARCHITECTURES: OnceLock<Vec<Setup>> = OnceLock::new();
    let usual = &KINDS[..1];
    ARCHITECTURES.get_or_init(|| {
        architecture::TABLE.iter().flat_map(|row| of_row(weir, row, usual)).collect()
    })
}

/// Returns a set-up for each architecture and pool that forwards requests, over the usual
/// mechanism.
pub fn forwarders(weir: &'static str) -> &'static [Setup] {
    static FORWARDERS: OnceLock<Vec<Setup>> = OnceLock::new();
    FORWARDERS.get_or_init(|| {
        architectures(weir).iter().filter(|setup| setup.forwards()).cloned().collect()
    })
}

/// Returns all set-ups that speak TLS.
pub fn tls_setups(weir: &'static str) -> &'static [Setup] {
    static SPEAKING: OnceLock<Vec<Setup>> = OnceLock::new();
    SPEAKING
        .get_or_init(|| setups(weir).iter().filter(|setup| setup.speaks_tls()).cloned().collect())
}

/// Returns a set-up for each architecture and pool that speaks TLS, over the usual mechanism.
pub fn tls_architectures(weir: &'static str) -> &'static [Setup] {
    static SPEAKING: OnceLock<Vec<Setup>> = OnceLock::new();
    let all = || architectures(weir).iter().filter(|setup| setup.speaks_tls());
    SPEAKING.get_or_init(|| all().cloned().collect())
}

/// Returns a set-up for each architecture and pool that speaks TLS and forwards requests, over the
/// usual mechanism.
pub fn tls_forwarders(weir: &'static str) -> &'static [Setup] {
    static SPEAKING: OnceLock<Vec<Setup>> = OnceLock::new();
    let all = || forwarders(weir).iter().filter(|setup| setup.speaks_tls());
    SPEAKING.get_or_init(|| all().cloned().collect())
}

/// Returns all set-ups that forward requests.
pub fn forwarding_setups(weir: &'static str) -> &'static [Setup] {
    static FORWARDING: OnceLock<Vec<Setup>> = OnceLock::new();
    FORWARDING
        .get_or_init(|| setups(weir).iter().filter(|setup| setup.forwards()).cloned().collect())
}

/// Runs a test for each of `setups` it applies to, one after the other.
pub fn one_by_one(setups: &'static [Setup], test: &str, run: fn(&Setup)) {
    for setup in setups.iter().filter(|setup| setup.takes(test)) {
        println!("{}", setup.name);
        run(setup);
    }
}

/// Runs a test for all of `setups` it applies to at the same time: for tests that wait.
pub fn at_once(setups: &'static [Setup], test: &str, run: fn(&Setup)) {
    thread::scope(|scope| {
        for setup in setups.iter().filter(|setup| setup.takes(test)) {
            let named = thread::Builder::new().name(setup.name.clone());
            // A panic says the thread's name, and the scope passes it on.
            named.spawn_scoped(scope, || run(setup)).unwrap();
        }
    });
}

/// Defines a test for each function named, which takes a [`Setup`], in a module named for the
/// set-ups it runs for. `WEIR` is the program.
#[macro_export]
macro_rules! suite {
    (every_setup: $($test:ident,)+) => {
        $crate::suite! { @each every_setup one_by_one setups $($test)+ }
    };
    (every_setup_at_once: $($test:ident,)+) => {
        $crate::suite! { @each every_setup_at_once at_once setups $($test)+ }
    };
    (every_architecture: $($test:ident,)+) => {
        $crate::suite! { @each every_architecture one_by_one architectures $($test)+ }
    };
    (every_architecture_at_once: $($test:ident,)+) => {
        $crate::suite! { @each every_architecture_at_once at_once architectures $($test)+ }
    };
    (every_forwarding_architecture: $($test:ident,)+) => {
        $crate::suite! { @each every_forwarding_architecture one_by_one forwarders $($test)+ }
    };
    (every_forwarding_architecture_at_once: $($test:ident,)+) => {
        $crate::suite! { @each every_forwarding_architecture_at_once at_once forwarders $($test)+ }
    };
    (every_forwarding_setup: $($test:ident,)+) => {
        $crate::suite! { @each every_forwarding_setup one_by_one forwarding_setups $($test)+ }
    };
    (every_tls_setup: $($test:ident,)+) => {
        $crate::suite! { @each every_tls_setup one_by_one tls_setups $($test)+ }
    };
    (every_tls_architecture: $($test:ident,)+) => {
        $crate::suite! { @each every_tls_architecture one_by_one tls_architectures $($test)+ }
    };
    (every_tls_forwarder: $($test:ident,)+) => {
        $crate::suite! { @each every_tls_forwarder one_by_one tls_forwarders $($test)+ }
    };
    (@each $module:ident $order:ident $setups:ident $($test:ident)+) => {
        mod $module {
            $(#[test]
            fn $test() {
                use $crate::setups::{$order, $setups};
                $order($setups(super::WEIR), stringify!($test), super::$test);
            })+
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_test_that_is_left_out_somewhere_is_there() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let inside = |dir: &Path| {
            let entries = fs::read_dir(dir).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        let files = inside(&dir).into_iter().flat_map(|binary| inside(&binary));
        let texts: Vec<_> = files.map(|path| fs::read_to_string(path).unwrap()).collect();
        for Omission { tests, why, .. } in OMISSIONS {
            assert!(!tests.is_empty() && !why.is_empty(), "{tests:?}");
            for test in *tests {
                let there = texts.iter().any(|text| text.contains(&format!("\n    {test},")));
                assert!(there, "{test}");
            }
        }
    }

    #[test]
    fn a_set_up_says_what_it_is_and_asks_for_it() {
        let usual = of_row("weir", &architecture::TABLE[0], &["poll", "select"]);
        assert_eq!(usual[1].name, "select");
        let own = ["--mechanism", "select"];
        assert_eq!(usual[1].with(&["--listing"]), [&own[..], &UNHURRIED, &["--listing"]].concat());
        let hurried = ["--delay-target", "1ms"];
        assert_eq!(usual[1].with(&hurried), [own, hurried].concat());
        assert!(usual.iter().all(|setup| setup.at_once.is_none()));
    }
}
