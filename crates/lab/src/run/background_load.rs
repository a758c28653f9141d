//! Clients beside a load: a second `weir load`, from its own address if several are available, for
//! the duration of the load. Their behaviour is defined here by its options.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::resolved_point::ResolvedPoint;
use super::runner::Runner;
use super::sources::sources;
use super::wait::await_end;
use crate::experiment::{Arrivals, BackgroundLoadKind, LoadSpec, Sweep};
use crate::generators::{self, LoadRequest, RunningLoad};
use crate::plan;
use crate::record;

/// Running clients beside a load. Dropping this ends them.
pub(super) struct BackgroundLoad {
    kind: BackgroundLoadKind,
    load: RunningLoad,
}

impl BackgroundLoad {
    /// Waits until all of them have given up or finished, and returns their result.
    ///
    /// # Errors
    /// Returns a message if they failed or left no report, or if `stop` is set.
    pub(super) fn end(
        mut self,
        latest: Instant,
        stop: &AtomicBool,
    ) -> Result<record::BackgroundLoad, String> {
        await_end(&mut self.load, latest, stop)?;
        let load = self.load.wait().map_err(|why| format!("beside the load: {why}"))?;
        Ok(record::BackgroundLoad { kind: self.kind.name().to_owned(), load })
    }
}

impl Runner {
    /// Starts the clients beside the load of a place, if its sweep has any. They measure in the
    /// load's `window`.
    ///
    /// # Errors
    /// Returns a message if they cannot be started.
    pub(super) fn background_load(
        &self,
        resolved: &ResolvedPoint<'_>,
        window: (Duration, Duration),
    ) -> Result<Option<BackgroundLoad>, String> {
        let x = resolved.step.key.x;
        let Some(background_load) = plan::background_load(resolved.sweep, x, resolved.rate) else {
            return Ok(None);
        };
        let dir = self.work().join("beside");
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let load = spec(resolved.sweep, &background_load);
        let main_load = LoadRequest {
            sources: sources(resolved.environment, resolved.sweep).1,
            ..self.load_request(resolved)
        };
        let load_request = load_request(main_load, &load, &background_load, (window, &dir));
        let load =
            generators::start(&load_request).map_err(|why| format!("beside the load: {why}"))?;
        Ok(Some(BackgroundLoad { kind: background_load.kind, load }))
    }
}

/// Returns the spec of their load, except for its rate. Arrivals are random, so that they do not
/// synchronise with the load's. Clients that would close many connections per second reset them
/// instead, which does not exhaust the ports.
fn spec(sweep: &Sweep, background_load: &plan::BackgroundLoad) -> LoadSpec {
    let hold = format!("{}s", background_load.hold_s);
    let options: &[&str] = match background_load.kind {
        BackgroundLoadKind::Mute => &["--send-rate", "0", "--close", "reset"],
        BackgroundLoadKind::Slow => &["--send-rate", "1", "--close", "reset", "--deadline", &hold],
        BackgroundLoadKind::Reconnect | BackgroundLoadKind::Cold | BackgroundLoadKind::Files => &[],
        BackgroundLoadKind::KeepAlive => &["--close", "reset"],
    };
    // A byte per second is progress: the deadline ends such a client.
    let patience_s = match background_load.kind {
        BackgroundLoadKind::Slow => background_load.hold_s.at_least(2.0),
        BackgroundLoadKind::KeepAlive => sweep.load.timeout_s,
        BackgroundLoadKind::Mute
        | BackgroundLoadKind::Reconnect
        | BackgroundLoadKind::Cold
        | BackgroundLoadKind::Files => background_load.hold_s,
    };
    let workload = sweep.background_load.as_ref().and_then(|spec| spec.workload.as_ref());
    LoadSpec {
        workload: workload.unwrap_or(&sweep.load.workload).clone(),
        timeout_s: patience_s,
        arrivals: Some(Arrivals::Poisson),
        options: options.iter().map(|word| (*word).to_owned()).collect(),
        ..LoadSpec::default()
    }
}

/// Returns their order, derived from the load's.
fn load_request<'a>(
    main_load: LoadRequest<'a>,
    load: &'a LoadSpec,
    background_load: &plan::BackgroundLoad,
    (window, dir): ((Duration, Duration), &'a Path),
) -> LoadRequest<'a> {
    let is_plain = background_load.kind == BackgroundLoadKind::Files;
    LoadRequest {
        load,
        warmup_s: window.0.as_secs_f64(),
        duration_s: window.1.saturating_sub(window.0).as_secs_f64(),
        rate: background_load.rate,
        closed: background_load.closed,
        idle: 0,
        conns: None,
        spike: None,
        steps_s: None,
        prefix: if is_plain { "" } else { main_load.prefix },
        twice_s: (background_load.kind == BackgroundLoadKind::KeepAlive)
            .then_some(*background_load.hold_s),
        timeline_ms: None,
        dir,
        seed: main_load.seed + 1,
        ..main_load
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::experiment::{BackgroundLoadSpec, Experiment};
    use crate::loopback::Loopback;

    fn sweep(background_load: &str) -> Sweep {
        let text = format!(
            "title = \"T\"\nquestion = \"Q?\"\n[[server]]\nid = \"a\"\nlabel = \"A\"\n\
             kind = \"weir\"\n[[sweep]]\nid = \"s\"\nx = \"rate\"\nvalues = [10]\n\
             load.workload = \"2k\"\n{background_load}"
        );
        Experiment::parse(&text).unwrap().sweep.remove(0)
    }

    fn options(kind: &str) -> (String, f64) {
        let sweep = sweep(&format!("beside = {{ kind = \"{kind}\", factor = 2, hold-s = 0.5 }}"));
        let background_load = plan::background_load(&sweep, 10.0, Some(10.0)).unwrap();
        let spec = spec(&sweep, &background_load);
        assert_eq!((spec.workload.as_str(), spec.generator), ("2k", sweep.load.generator));
        (spec.options.join(" "), *spec.timeout_s)
    }

    #[test]
    fn each_kind_is_told_what_it_does_and_for_how_long() {
        assert_eq!(options("mute"), ("--send-rate 0 --close reset".to_owned(), 0.5));
        let slow = "--send-rate 1 --close reset --deadline 0.5s".to_owned();
        assert_eq!(options("slow"), (slow, 2.0));
        assert_eq!(options("reconnect"), (String::new(), 0.5));
        assert_eq!(options("keep-alive"), ("--close reset".to_owned(), 1.0));
    }

    #[test]
    fn they_begin_and_end_with_the_load() {
        let sweep = sweep("load.cooldown-s = 2\nbeside = { kind = \"mute\", factor = 2 }");
        let background_load = plan::background_load(&sweep, 10.0, Some(10.0)).unwrap();
        let spec = spec(&sweep, &background_load);
        let main_load = LoadRequest {
            load: &sweep.load,
            duration_s: 3.0,
            warmup_s: 1.0,
            cooldown_s: *sweep.load.cooldown_s,
            rate: Some(10.0),
            closed: None,
            idle: 0,
            conns: None,
            spike: None,
            steps_s: None,
            replay: None,
            twice_s: None,
            timeline_ms: None,
            sources: Vec::new(),
            prefix: "",
            gzip: false,
            tls: false,
            environment: &Loopback,
            weir: Path::new("weir"),
            server: SocketAddr::from(([127, 0, 0, 1], 80)),
            dir: Path::new("/x"),
            seed: 1,
        };
        let window = (Duration::from_secs(1), Duration::from_secs(4));
        let theirs = load_request(main_load, &spec, &background_load, (window, Path::new("/y")));
        assert_eq!((theirs.warmup_s, theirs.duration_s, theirs.cooldown_s), (1.0, 3.0, 2.0));
    }

    #[test]
    fn who_asks_for_cold_files_has_a_set_of_his_own_and_waits_as_long_as_he_holds() {
        let mut sweep = sweep("");
        sweep.background_load = toml::from_str::<BackgroundLoadSpec>(
            "kind = \"cold\"\nfactor = 1\nhold-s = 3\nworkload = \"files-3x2k\"",
        )
        .ok();
        let background_load = plan::background_load(&sweep, 10.0, Some(10.0)).unwrap();
        let spec = spec(&sweep, &background_load);
        assert_eq!((spec.workload.as_str(), *spec.timeout_s), ("files-3x2k", 3.0));
        assert!(spec.options.is_empty());
    }
}
