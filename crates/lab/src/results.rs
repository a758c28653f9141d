//! The outcome of a run: the findings from its folder, and the report drawn from them. Reads what
//! was measured and measures nothing.

use std::collections::BTreeSet;
use std::path::Path;

use crate::analysis::{self, Input};
use crate::catalogue;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::journal::{self, RunSetup, Session};
use crate::machine::Machine;
use crate::plan::{self, Task};
use crate::record::{Key, Line};
use crate::report;
use crate::run;
use crate::setup_summary;
use crate::testbed::{Description, SideDescription};

/// Analyses the run in a folder and returns its findings.
///
/// # Errors
/// Returns a sentence if the folder holds no run, or if the run cannot be read.
pub fn findings(dir: &Path) -> Result<Findings, String> {
    let (set_up, lines) = journal::read(dir)?;
    let request = &set_up.request;
    let experiments = run::experiments(request)?;
    let key = request.paper.as_deref();
    let paper = match (key, &request.paper_text) {
        (Some(key), Some(text)) => Some((key, catalogue::paper(key, text)?)),
        _ => None,
    };
    let mut planned: Vec<_> = plan::steps(&experiments, request.scale, request.seed)
        .into_iter()
        .filter(|step| step.task == Task::Point)
        .map(|step| step.key)
        .collect();
    planned.extend(further(&experiments, request.scale, &lines));
    Ok(analysis::findings(&Input {
        name: &request.name,
        title: &title(request.name.as_str(), &experiments, paper.as_ref()),
        paper: paper.as_ref().map(|(key, paper)| (*key, paper)),
        experiments: &experiments,
        lines: &lines,
        set_up: rows(&set_up, &lines),
        warnings: warnings(&set_up, &lines, &planned),
        planned: &planned,
        scale: request.scale,
    }))
}

/// Returns the points of rounds beyond the planned ones, which were measured for a precision: a run
/// that goes on without it has them all the same.
fn further(experiments: &[(String, Experiment)], scale: f64, lines: &[Line]) -> Vec<Key> {
    let is_further = |key: &&Key| {
        let experiment = experiments.iter().find(|(id, _)| *id == key.experiment);
        let mut sweeps = experiment.iter().flat_map(|(_, experiment)| &experiment.sweep);
        sweeps.any(|sweep| sweep.id == key.sweep && key.round >= plan::scaled(sweep, scale).0)
    };
    let keys = lines.iter().filter_map(|line| match line {
        Line::Point(point) => Some(&point.key),
        Line::Failed(failed) => Some(&failed.key),
        Line::Capacity(_) | Line::Calls(_) => None,
    });
    let mut further: Vec<Key> = Vec::new();
    for key in keys.filter(is_further) {
        if !further.contains(key) {
            further.push(key.clone());
        }
    }
    further
}

/// Draws the report of the run in a folder, writes it to the folder, and returns the findings
/// shown.
///
/// # Errors
/// Returns a sentence if the folder holds no run, or if the report cannot be written.
pub fn draw(dir: &Path) -> Result<Findings, String> {
    let findings = findings(dir)?;
    report::write(&findings, dir)?;
    Ok(findings)
}

fn title(
    name: &str,
    experiments: &[(String, Experiment)],
    paper: Option<&(&str, crate::paper::Paper)>,
) -> String {
    match (paper, experiments) {
        (Some((key, paper)), _) if *key == name => format!("{}, measured again", paper.title),
        (_, [(_, experiment), ..]) => experiment.title.clone(),
        (_, []) => name.to_owned(),
    }
}

/// Collects the warnings that a reader must see first.
fn warnings(set_up: &RunSetup, lines: &[Line], planned: &[Key]) -> Vec<String> {
    let described = described(&set_up.sessions, lines);
    let of_testbeds = described.iter().flat_map(|session| &session.testbed.warnings);
    // Each session looks for its programs anew: what one lacked, a later one may have measured.
    let missing = described.last().into_iter().flat_map(|session| &session.missing);
    let mut known = BTreeSet::new();
    let mut warnings: Vec<String> =
        of_testbeds.chain(missing).filter(|warning| known.insert(*warning)).cloned().collect();
    warnings.extend(changed(&set_up.sessions, lines));
    if !set_up.complete {
        let has_line = |key: &&Key| {
            lines.iter().any(|line| match line {
                Line::Point(point) => point.key == **key,
                Line::Failed(failed) => failed.key == **key,
                Line::Capacity(_) | Line::Calls(_) => false,
            })
        };
        let measured = planned.iter().filter(has_line).count();
        let planned = planned.len();
        warnings.push(format!(
            "The run is not complete: {measured} of {planned} points were measured. The same \
             command goes on with it."
        ));
    }
    warnings
}

/// Says what changed between the sessions in which a run was measured; `None` if nothing did.
fn changed(sessions: &[Session], lines: &[Line]) -> Option<String> {
    type Fact = fn(&Session) -> Option<String>;
    let facts: [(&str, Fact); 8] = [
        ("the version of weir", |session| Some(session.version.clone())),
        ("the build of weir", |session| session.build.clone()),
        ("the build of weir that it is compared with, or the access log", |session| {
            session.inputs.as_ref().map(|inputs| format!("{inputs:?}"))
        }),
        ("the other programs", |session| Some(format!("{:?}", session.programs))),
        ("the kind of testbed", |session| Some(format!("{:?}", session.testbed.mode))),
        ("the processors or addresses of a side", |Session { testbed, .. }| {
            let side = |side: &SideDescription| format!("{:?} {:?}", side.cpus, side.addresses);
            Some(format!("{} {}", side(&testbed.server), side(&testbed.client)))
        }),
        ("the settings of the testbed", |Session { testbed, .. }| {
            let side = |side: &SideDescription| {
                format!("{} {:?} {:?}", side.interface, side.rps_cpus, side.sysctl)
            };
            let Description { mtu, server, client, .. } = testbed;
            Some(format!("{mtu:?} {} {}", side(server), side(client)))
        }),
        ("the machine, its kernel or its settings", |Session { machine, .. }| {
            // The load of a machine is another one each time.
            Some(format!("{:?}", Machine { load_average: None, ..machine.clone() }))
        }),
    ];
    let used = used(sessions, lines);
    let differs = |(_, fact): &&(&str, Fact)| {
        let known: Vec<String> = used.iter().filter_map(|session| fact(session)).collect();
        known.windows(2).any(|pair| pair[0] != pair[1])
    };
    let names: Vec<&str> = facts.iter().filter(differs).map(|(name, _)| *name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "The run was measured in {} parts, and between them changed: {}. Medians and ratios \
             are of both.",
            used.len(),
            names.join(", ")
        )
    })
}

/// Returns the sessions that a run is described by: those in which something was measured, or the
/// last one if nothing was in any.
fn described<'a>(sessions: &'a [Session], lines: &[Line]) -> Vec<&'a Session> {
    let used = used(sessions, lines);
    if used.is_empty() { sessions.last().into_iter().collect() } else { used }
}

/// Returns the sessions in which something was measured. Times are UTC and of one form, so that
/// their texts are in their order.
fn used<'a>(sessions: &'a [Session], lines: &[Line]) -> Vec<&'a Session> {
    let began = |line: &Line| match line {
        Line::Point(point) => Some(point.began.clone()),
        Line::Capacity(capacity) => capacity.began.clone(),
        Line::Calls(run) => run.began.clone(),
        Line::Failed(_) => None,
    };
    let times: Vec<String> = lines.iter().filter_map(began).collect();
    let ends = sessions.iter().skip(1).map(|next| Some(&next.began)).chain([None]);
    let spans = sessions.iter().zip(ends);
    let has_point = |(session, end): &(&Session, Option<&String>)| {
        times.iter().any(|at| *at >= session.began && end.is_none_or(|end| at < end))
    };
    spans.filter(has_point).map(|(session, _)| session).collect()
}

/// Returns the set-up, as names and values.
fn rows(run: &RunSetup, lines: &[Line]) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            rows.push((name.to_owned(), value));
        }
    };
    let sessions = described(&run.sessions, lines);
    let when: Vec<String> = sessions
        .iter()
        .map(|session| match &session.ended {
            Some(ended) => format!("{} to {ended}", session.began),
            None => format!("{} until it was cut off", session.began),
        })
        .collect();
    row("measured", when.join("; "));
    let Some(last) = sessions.last() else { return rows };
    row("command", last.command.clone());
    row("weir", last.version.clone());
    row("scale", run.request.scale.to_string());
    row("seed", run.request.seed.to_string());
    for (program, version) in last.programs.iter().filter(|(program, _)| program != "weir") {
        row(program, version.clone());
    }
    rows.extend(setup_summary::machine(&last.machine));
    rows.extend(setup_summary::testbed(&last.testbed));
    rows.extend(setup_summary::traces(lines));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::one_weir;
    use crate::journal::Request;
    use crate::record::Point;
    use crate::testbed::Mode;

    fn session(began: &str, build: Option<&str>) -> Session {
        let side = || SideDescription {
            cpus: vec![0],
            addresses: Vec::new(),
            interface: "lo".to_owned(),
            rps_cpus: None,
            sysctl: std::collections::BTreeMap::new(),
        };
        Session {
            began: began.to_owned(),
            ended: None,
            command: "weir lab run x".to_owned(),
            version: "1.0.0".to_owned(),
            build: build.map(str::to_owned),
            inputs: None,
            machine: Machine::default(),
            testbed: Description {
                mode: Mode::Loopback,
                warnings: Vec::new(),
                server: side(),
                client: side(),
                mtu: None,
            },
            programs: Vec::new(),
            missing: Vec::new(),
        }
    }

    fn point(began: &str) -> Line {
        Line::Point(Box::new(Point { began: began.to_owned(), ..Point::default() }))
    }

    #[test]
    fn a_run_of_two_builds_or_testbeds_says_so() {
        let lines = [point("2026-01-01T10:01:00Z"), point("2026-01-01T12:01:00Z")];
        let first = session("2026-01-01T10:00:00Z", Some("a"));
        let with = |second: Session| changed(&[first.clone(), second], &lines);
        let same = session("2026-01-01T12:00:00Z", Some("a"));
        assert_eq!(with(same.clone()), None);
        assert_eq!(with(Session { build: None, ..same.clone() }), None, "it is not known");
        let mut other = Session { build: Some("b".to_owned()), ..same.clone() };
        other.testbed.mode = Mode::Namespaces;
        let said = with(other.clone()).unwrap();
        let expected = "in 2 parts, and between them changed: the build of weir, the kind of \
                        testbed. ";
        assert!(said.contains(expected), "{said}");
        // Nothing was measured in a part that began after the last point.
        let after = Session { began: "2026-01-01T13:00:00Z".to_owned(), ..other };
        assert_eq!(changed(&[first.clone(), same, after], &lines), None);
    }

    #[test]
    fn a_run_on_a_machine_or_a_testbed_with_other_settings_says_so() {
        let lines = [point("2026-01-01T10:01:00Z"), point("2026-01-01T12:01:00Z")];
        let after = |change: fn(&mut Session)| {
            let first = session("2026-01-01T10:00:00Z", None);
            let mut second = session("2026-01-01T12:00:00Z", None);
            change(&mut second);
            changed(&[first, second], &lines)
        };
        let itself: [fn(&mut Session); 2] = [
            |session| session.machine.load_average = Some([1.0, 0.5, 0.1]),
            |session| session.testbed.warnings.push("slow".to_owned()),
        ];
        assert_eq!(itself.map(after), [None, None], "that changes by itself");
        let of_machine: [fn(&mut Session); 3] = [
            |session| session.machine.cpus_online = Some(4),
            |session| session.machine.cpufreq_governor = Some("powersave".to_owned()),
            |session| set_somaxconn(&mut session.machine.sysctl),
        ];
        for said in of_machine.map(after) {
            let said = said.unwrap();
            assert!(said.contains("changed: the machine, its kernel or its settings."), "{said}");
        }
        let of_testbed: [fn(&mut Session); 3] = [
            |session| session.testbed.mtu = Some(9000),
            |session| session.testbed.server.rps_cpus = Some("1".to_owned()),
            |session| set_somaxconn(&mut session.testbed.client.sysctl),
        ];
        for said in of_testbed.map(after) {
            let said = said.unwrap();
            assert!(said.contains("changed: the settings of the testbed."), "{said}");
        }
    }

    fn set_somaxconn(sysctl: &mut std::collections::BTreeMap<String, String>) {
        sysctl.insert("net.core.somaxconn".to_owned(), "1".to_owned());
    }

    fn set_up(sessions: Vec<Session>) -> RunSetup {
        RunSetup { request: Request::of("x", Vec::new()), sessions, complete: true }
    }

    fn said(mut session: Session, warning: &str, missing: &str) -> Session {
        session.testbed.warnings = vec!["both".to_owned(), warning.to_owned()];
        session.missing = vec![missing.to_owned()];
        session
    }

    #[test]
    fn a_session_in_which_nothing_was_measured_describes_nothing() {
        let lines = [point("2026-01-01T12:01:00Z")];
        let idle = said(session("2026-01-01T10:00:00Z", None), "loopback", "no nginx");
        let measured = said(session("2026-01-01T12:00:00Z", None), "slow", "no h2o");
        let mut again = said(session("2026-01-01T13:00:00Z", None), "busy", "no wrk");
        again.version = "2.0.0".to_owned();
        let run = set_up(vec![idle.clone(), measured, again.clone()]);
        assert_eq!(warnings(&run, &lines, &[]), ["both", "slow", "no h2o"]);
        let value = |run: &RunSetup, lines: &[Line], name: &str| {
            let rows = rows(run, lines);
            rows.into_iter().find(|(one, _)| one == name).map(|(_, value)| value)
        };
        assert_eq!(value(&run, &lines, "weir").as_deref(), Some("1.0.0"));
        let when = "2026-01-01T12:00:00Z until it was cut off";
        assert_eq!(value(&run, &lines, "measured").as_deref(), Some(when));
        // Before the first point the last one is what is known.
        let run = set_up(vec![idle, again]);
        assert_eq!(warnings(&run, &[], &[]), ["both", "busy", "no wrk"]);
        assert_eq!(value(&run, &[], "weir").as_deref(), Some("2.0.0"));
        assert_eq!(value(&set_up(Vec::new()), &[], "weir"), None);
    }

    #[test]
    fn a_warning_of_several_sessions_is_told_once_and_of_missing_programs_the_last_tells() {
        let lines = [point("2026-01-01T10:01:00Z"), point("2026-01-01T12:01:00Z")];
        let first = said(session("2026-01-01T10:00:00Z", None), "loopback", "no nginx");
        let second = said(session("2026-01-01T12:00:00Z", None), "loopback", "no h2o");
        let run = set_up(vec![first, second]);
        assert_eq!(warnings(&run, &lines, &[]), ["both", "loopback", "no h2o"]);
    }

    const TEXT: &str = one_weir!(
        r#"
[[sweep]]
id = "load"
x = "rate"
values = [1]
repetitions = 3
"#
    );

    #[test]
    fn rounds_of_a_precision_that_is_no_longer_asked_for_are_points_of_the_run() {
        let experiments = [("e".to_owned(), Experiment::parse(TEXT).unwrap())];
        let line = |(sweep, round): (&str, u32)| {
            let [experiment, sweep, server] = ["e", sweep, "one"].map(str::to_owned);
            let key = Key { experiment, sweep, server, x: 1.0, round };
            Line::Point(Box::new(Point { key, ..Point::default() }))
        };
        let measured = (0..6).map(|round| ("load", round)).chain([("gone", 7), ("load", 5)]);
        let lines: Vec<Line> = measured.map(line).collect();
        let found = further(&experiments, 1.0, &lines);
        assert_eq!(found.iter().map(|key| key.round).collect::<Vec<_>>(), [3, 4, 5]);
    }
}
