//! Validation of spikes, additional clients and figures over time. Each error is one sentence that
//! names the place.

use super::references::drawn;
use super::rules::must;
use crate::experiment::{
    At, Axis, BackgroundLoadKind, BackgroundLoadSpec, Experiment, LoadSpec, Position, SpikeSpec,
    Sweep, TimelineFigure,
};
use crate::file_set::FileSet;
use crate::workload::file_of;

/// Maximum number of bins per point; each is stored on disk and in the page.
const BINS_MAX: f64 = 2000.0;

/// Validates the overload settings of a sweep.
pub(super) fn sweep(sweep: &Sweep) -> Result<(), String> {
    let id = &sweep.id;
    if let Some(spike) = &sweep.spike {
        self::spike(sweep, spike).map_err(|why| format!("sweep {id}: {why}"))?;
    }
    if let Some(bin_ms) = sweep.timeline_ms {
        timeline(sweep, *bin_ms).map_err(|why| format!("sweep {id}: timeline-ms {why}"))?;
    }
    must(sweep.x != Axis::BackgroundLoad || sweep.background_load.is_some(), || {
        format!("sweep {id}: x is how many begin beside the load, and no beside says what they do")
    })?;
    if let Some(background_load) = &sweep.background_load {
        self::background_load(sweep, background_load)
            .map_err(|why| format!("sweep {id}: {why}"))?;
    }
    must(sweep.neighbour.is_none() || sweep.probe.is_none(), || {
        format!("sweep {id}: neighbour needs a server to be the neighbour of")
    })
}

fn timeline(sweep: &Sweep, bin_ms: u32) -> Result<(), String> {
    open_loop_of_weir(sweep)?;
    let bins = 1e3 * sweep.duration_s() / f64::from(bin_ms);
    must((3.0..=BINS_MAX).contains(&bins), || {
        format!("cuts a point into {bins:.0} bins, and 3 to {BINS_MAX} are of use")
    })
}

fn open_loop_of_weir(sweep: &Sweep) -> Result<(), String> {
    let Sweep { load, rate, x, .. } = sweep;
    must(load.generator.is_weir(), || "needs weir load to make the load".to_owned())?;
    must(*x == Axis::Rate || rate.is_some(), || {
        "needs a schedule, and a closed loop has none".to_owned()
    })
}

fn spike(sweep: &Sweep, spike: &SpikeSpec) -> Result<(), String> {
    let load = &sweep.load;
    open_loop_of_weir(sweep).map_err(|why| format!("a spike {why}"))?;
    must(sweep.x == Axis::Rate, || "x is the rate of the spike, so it is the rate".to_owned())?;
    must(load.arrivals.is_none(), || {
        "a spike is a law of arrivals, so load.arrivals is not given".to_owned()
    })?;
    must(*load.cooldown_s == 0.0, || {
        "a spike says what comes after it, so load.cooldown-s is not given".to_owned()
    })?;
    // An absent field is indistinguishable from one set to its default.
    must(load.duration_s == LoadSpec::default().duration_s, || {
        "a spike says how long it lasts, so load.duration-s is not given".to_owned()
    })?;
    let low = sweep.values.iter().find(|value| **value <= *spike.base);
    low.map_or(Ok(()), |value| {
        Err(format!("a spike of {value} is not above spike.base, {}", *spike.base))
    })
}

fn background_load(sweep: &Sweep, background_load: &BackgroundLoadSpec) -> Result<(), String> {
    open_loop_of_weir(sweep).map_err(|why| format!("beside {why}"))?;
    must(sweep.spike.is_none(), || {
        "beside is a multiple of one rate, and a spike has two".to_owned()
    })?;
    must(!sweep.calls, || {
        "system calls are counted for each reply, so not with clients beside the load".to_owned()
    })?;
    match (sweep.x, background_load.factor) {
        (Axis::BackgroundLoad, None) => Ok(()),
        (Axis::BackgroundLoad, Some(_)) => {
            Err("x is how many begin beside the load, so beside.factor is not given".to_owned())
        }
        (_, Some(_)) => Ok(()),
        (_, None) => Err("beside.factor is not given".to_owned()),
    }?;
    must(sweep.load.mix.is_empty(), || {
        "the clients beside the load ask for one thing, and load.mix has several".to_owned()
    })?;
    set(sweep, background_load)?;
    let workload = &sweep.load.workload;
    must(
        background_load.kind != BackgroundLoadKind::KeepAlive || file_of(workload).is_some(),
        || format!("beside.kind keep-alive asks for one file, and workload {workload} has more"),
    )
}

/// Checks that cold files are a set different from the load's, which must be a set as well: all
/// sets lie below one document root, the files of other workloads below their own.
fn set(sweep: &Sweep, background_load: &BackgroundLoadSpec) -> Result<(), String> {
    let Some(cold) = &background_load.workload else {
        return must(background_load.kind != BackgroundLoadKind::Cold, || {
            "beside.kind cold needs a beside.workload, such as files-2000x256k".to_owned()
        });
    };
    must(background_load.kind == BackgroundLoadKind::Cold, || {
        "beside.workload is for kind cold; the others ask for what the load does".to_owned()
    })?;
    must(FileSet::named(cold).is_some(), || {
        format!("beside.workload {cold} is no set: files-COUNTxKIBk")
    })?;
    let hot = &sweep.load.workload;
    must(FileSet::named(hot).is_some() && hot != cold, || {
        format!("beside cold files the load asks for another set, such as files-16x8k, not {hot}")
    })
}

/// Validates a pair of figures over time.
pub(super) fn figure(experiment: &Experiment, figure: &TimelineFigure) -> Result<(), String> {
    let place = format!("timeline {}", figure.id);
    let sweep = drawn(experiment, &place, &figure.sweep, &figure.servers)?;
    must(sweep.timeline_ms.is_some(), || {
        format!("{place}: sweep {} keeps no timeline: give it timeline-ms", sweep.id)
    })?;
    match figure.at {
        At::Value(x) => must(sweep.index_of(x).is_some(), || {
            format!("{place}: {x} is not a value of sweep {}", sweep.id)
        }),
        At::Named(named) => must(named != Position::Peak, || {
            format!("{place}: each server has its peak elsewhere: give a value, first or last")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::one_weir;
    use crate::validation::tests::{refuses, said_of};

    const GOOD: &str = one_weir!(
        r#"
[[sweep]]
id = "up"
x = "rate"
values = [2, 5]
rate-unit = "own"
timeline-ms = 100
spike = { base = 0.5, before-s = 1, for-s = 2, after-s = 1.5 }
load.workload = "2k"
[[sweep]]
id = "mute"
x = "rate"
values = [0.5]
rate-unit = "own"
beside = { kind = "mute", factor = 10 }
[[timeline]]
id = "t"
title = "T"
sweep = "up"
at = 5
"#
    );

    fn said(from: &str, to: &str) -> String {
        said_of(GOOD, from, to)
    }

    #[test]
    fn a_good_file_is_taken_and_a_spike_says_how_long_it_lasts() {
        let experiment = Experiment::parse(GOOD).unwrap();
        assert_eq!(experiment.sweep[0].duration_s(), 4.5);
        assert_eq!(experiment.sweep[1].duration_s(), 3.0);
        assert_eq!(experiment.timeline[0].ids(), ["t-replies", "t-response"]);
        assert_eq!(said("at = 5", ""), "");
    }

    #[test]
    fn errors_in_a_timeline_are_reported() {
        let cases = [
            ("timeline-ms = 100", "timeline-ms = 5", "timeline-ms: 5 is not 10 to 10000"),
            ("timeline-ms = 100", "timeline-ms = 5000", "cuts a point into 1 bins"),
            ("timeline-ms = 100", "", "timeline t: sweep up keeps no timeline"),
            ("at = 5", "at = 4", "timeline t: 4 is not a value of sweep up"),
            ("at = 5", "at = \"peak\"", "timeline t: each server has its peak elsewhere"),
            ("sweep = \"up\"", "sweep = \"x\"", "timeline t: there is no sweep x"),
            ("at = 5", "servers = [\"x\"]", "timeline t: there is no server x"),
            (
                "values = [0.5]\nrate-unit = \"own\"",
                "values = [1]\ntimeline-ms = 100\nload.generator = \"httperf\"",
                "sweep mute: timeline-ms needs weir load",
            ),
            (
                "x = \"rate\"\nvalues = [0.5]",
                "x = \"idle\"\ntimeline-ms = 100\nload.closed = 5\nvalues = [1]",
                "sweep mute: timeline-ms needs a schedule",
            ),
            (
                "at = 5",
                "[[table]]\nid = \"t-replies\"\ntitle = \"T\"\nsweep = \"up\"\n\
                 columns = [\"c_avg\"]",
                "t-replies: two have this id",
            ),
        ];
        refuses(GOOD, &cases);
    }

    #[test]
    fn errors_in_a_spike_are_reported() {
        let cases = [
            ("base = 0.5", "base = 2", "sweep up: a spike of 2 is not above spike.base, 2"),
            ("base = 0.5", "base = 0", "base: 0 is not positive"),
            ("before-s = 1", "before-s = 0", "before-s: 0 is not a positive time"),
            ("after-s = 1.5", "after-s = inf", "after-s: inf is not a positive time"),
            ("workload = \"2k\"", "duration-s = 5", "so load.duration-s is not given"),
            ("workload = \"2k\"", "arrivals = \"poisson\"", "so load.arrivals is not given"),
            ("before-s = 1", "height = 5, before-s = 1", "unknown field `height`"),
        ];
        refuses(GOOD, &cases);
        let along_idle = "x = \"idle\"\nrate = 1";
        assert!(said("x = \"rate\"", along_idle).contains("x is the rate of the spike"));
    }

    #[test]
    fn errors_in_a_background_load_of_cold_files_are_reported() {
        let cold = "x = \"beside\"\nvalues = [0, 40]\nrate = 5\nrate-unit = \"own\"\n\
                    beside = { kind = \"cold\", workload = \"files-9x64k\" }\n\
                    load.workload = \"files-2x8k\"";
        let mute = "x = \"rate\"\nvalues = [0.5]\nrate-unit = \"own\"\n\
                    beside = { kind = \"mute\", factor = 10 }";
        assert_eq!(said(mute, cold), "");
        let cases = [
            ("kind = \"cold\"", "kind = \"cold\", factor = 2", "so beside.factor is not given"),
            ("\"beside\"\nvalues = [0, 40]\nrate = 5", "\"rate\"\nvalues = [1]", "is not given"),
            (", workload = \"files-9x64k\"", "", "kind cold needs a beside.workload"),
            ("files-9x64k", "files-9x64", "beside.workload files-9x64 is no set"),
            ("files-2x8k", "2k", "the load asks for another set, such as files-16x8k, not 2k"),
            ("files-2x8k", "files-9x64k", "the load asks for another set"),
            ("files-2x8k", "files-2x", "load.workload files-2x is no set"),
            ("\"cold\"", "\"mute\"", "beside.workload is for kind cold"),
            ("rate = 5\n", "load.closed = 5\n", "beside needs a schedule"),
            ("beside = { kind", "timeline-ms = 100 #", "and no beside says what they do"),
        ];
        for (from, to, expected) in cases {
            assert!(cold.contains(from), "{from}");
            let error = said(mute, &cold.replacen(from, to, 1));
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn errors_in_a_background_load_are_reported() {
        let cases = [
            ("factor = 10", "factor = 0", "factor: 0 is not positive"),
            ("factor = 10", "factor = 1, hold-s = -1", "hold-s: -1 is not a positive time"),
            ("kind = \"mute\"", "kind = \"loud\"", "unknown variant `loud`"),
            ("factor = 10 }", "factor = 1 }\ncalls = true", "system calls are counted"),
            (
                "factor = 10 }",
                "factor = 1 }\nload.workload = \"2k\"\nload.mix = [{ share = 0.5, burn-us = 6 }, \
                 { share = 0.5, burn-us = 5 }]",
                "ask for one thing, and load.mix has several",
            ),
            (
                "beside = {",
                "spike = { base = 0.1, before-s = 1, for-s = 1, after-s = 1 }\nbeside = {",
                "sweep mute: beside is a multiple of one rate",
            ),
            (
                "\"mute\", factor = 10 }",
                "\"keep-alive\", factor = 1 }\nload.workload = \"specweb99\"",
                "keep-alive asks for one file, and workload specweb99 has more",
            ),
        ];
        refuses(GOOD, &cases);
    }
}
