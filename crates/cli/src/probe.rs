//! `weir probe`: turns options into a plan, starts a child that holds the far ends of the
//! connections, and prints the results. The measurement itself is in `weir-dispatch`.

mod options;
mod show;

use std::io::{self, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};

use weir_dispatch::probe::{self, Amount, CellError, CellResult, ConnectionPool, Plan, Rendezvous};
use weir_dispatch::readiness::settings::{Settings, Tunable};
use weir_dispatch::readiness::{MechanismName, Row, TABLE};

use options::Kind;
pub(crate) use options::ProbeOptions;

use crate::print::print_text;

/// Exit code if a measurement failed.
const FAILED: u8 = 1;

/// Runs the requested measurements and prints the results.
///
/// # Errors
/// A sentence: the options ask for something that cannot be provided.
pub(crate) fn probe(options: &ProbeOptions) -> Result<ExitCode, String> {
    let open_files = probe::open_limit();
    if let Some(place) = &options.hold {
        return hold(place);
    }
    let plan = plan(options)?;
    check_room(&plan, open_files)?;
    let (mut pool, child) = pool(&plan, options.kind)?;
    if let Some(cpu) = options.cpu {
        probe::pin(cpu).map_err(|error| format!("--cpu {cpu}: {error}"))?;
    }
    let outcomes = probe::run(&plan, &mut pool);
    drop((pool, child));
    let text = match (options.json, options.kind) {
        (false, _) => show::table(&outcomes),
        (true, Kind::Tcp) => show::json_lines(&outcomes, "tcp"),
        (true, Kind::Unix) => show::json_lines(&outcomes, "unix"),
    };
    let printed = print_text(&text)?;
    let failed = |one: &CellResult| matches!(one.found, Err(CellError::Failed(_)));
    Ok(if outcomes.iter().any(failed) { ExitCode::from(FAILED) } else { printed })
}

fn plan(options: &ProbeOptions) -> Result<Plan, String> {
    let numbers = |of: &[u32]| {
        let mut numbers: Vec<usize> = of.iter().map(|number| *number as usize).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    Ok(Plan {
        mechanisms: mechanisms(&options.mechanism, &options.mechanism_option)
            .map_err(|why| format!("--mechanism-option: {why}"))?,
        idle: numbers(&options.idle),
        active: numbers(&options.active),
        repetitions: options.repetitions,
        amount: match options.rounds {
            Some(rounds) => Amount::Rounds(rounds),
            None => Amount::Time(options.seconds / options.repetitions),
        },
    })
}

/// Returns the named mechanisms, or all, each with the settings that apply to it.
fn mechanisms(
    named: &[String],
    choices: &[String],
) -> Result<Vec<(MechanismName, Settings)>, String> {
    let wanted = |row: &&Row| named.is_empty() || named.iter().any(|name| name == row.spelling);
    let rows: Vec<&Row> = TABLE.iter().filter(wanted).collect();
    let tunable_of =
        |choice: &str| choice.split_once('=').map_or_else(String::new, |of| of.0.into());
    let has = |tunables: &[Tunable], choice: &String| {
        let name = tunable_of(choice);
        tunables.iter().any(|tunable| tunable.name == name)
    };
    if let Some(stray) = choices.iter().find(|one| !rows.iter().any(|row| has(row.tunables, one))) {
        return Err(format!("`{stray}` is nothing that can be set about any of these mechanisms"));
    }
    let of = |row: &&Row| {
        let own: Vec<String> =
            choices.iter().filter(|one| has(row.tunables, one)).cloned().collect();
        Ok((row.name, Settings::parse(row.tunables, &own)?))
    };
    rows.iter().map(of).collect()
}

fn check_room(plan: &Plan, open_files: u64) -> Result<(), String> {
    let most = |of: &[usize]| of.iter().copied().max().unwrap_or(0);
    let (idle, active) = (most(&plan.idle), most(&plan.active));
    let possible = probe::idle_max(open_files, active);
    if idle <= possible {
        return Ok(());
    }
    Err(format!(
        "--idle {idle}: with {open_files} open files and {active} active members {possible} idle \
         ones are possible"
    ))
}

/// Opens a pool of connections; returns it and the process that holds their far ends.
fn pool(plan: &Plan, kind: Kind) -> Result<(ConnectionPool, Holder), String> {
    let kind = match kind {
        Kind::Tcp => probe::Kind::Tcp,
        Kind::Unix => probe::Kind::Unix,
    };
    let said = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => "who held the connections' far ends has gone".to_owned(),
        _ => format!("no connections to measure with: {error}"),
    };
    let rendezvous = Rendezvous::open(kind).map_err(said)?;
    let mut holder = Holder::start(&rendezvous).map_err(said)?;
    let (Some(orders), Some(answers)) = (&holder.0.stdin, holder.0.stdout.take()) else {
        return Err("no connections to measure with: the child cannot be heard".to_owned());
    };
    let filled =
        ConnectionPool::fill(rendezvous, plan.connections(), orders, BufReader::new(answers));
    filled.map(|pool| (pool, holder)).map_err(said)
}

/// A child process that holds the far ends until its standard input is closed.
struct Holder(Child);

impl Holder {
    fn start(rendezvous: &Rendezvous) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["probe", "--hold", &rendezvous.place()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(Self)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends by itself; its exit status has no meaning.
        let _ = self.0.wait();
    }
}

/// Runs the child process.
fn hold(place: &str) -> Result<ExitCode, String> {
    probe::hold(place, io::stdin().lock(), io::stdout().lock())
        .map(|()| ExitCode::SUCCESS)
        .map_err(|error| format!("cannot hold the far ends of a probe's connections: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_mechanisms_are_measured_when_none_is_named() {
        assert_eq!(mechanisms(&[], &[]).unwrap().len(), TABLE.len());
        let named = mechanisms(&strings(&["poll", "select", "poll"]), &[]).unwrap();
        let names: Vec<MechanismName> = named.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [MechanismName::Select, MechanismName::Poll]);
    }

    #[test]
    fn a_choice_is_for_those_that_have_it_and_one_that_is_for_none_is_refused() {
        for row in TABLE {
            for tunable in row.tunables {
                let choice = [format!("{}={}", tunable.name, tunable.max)];
                for (name, settings) in mechanisms(&[], &choice).unwrap() {
                    let own = name.row().tunables.iter().find(|own| own.name == tunable.name);
                    let wanted = own.map_or(Settings::default().get(tunable), |_| tunable.max);
                    assert_eq!(settings.get(tunable), wanted, "{choice:?}");
                }
            }
        }
        for stray in ["no-such=1", "no-such", "=", ""] {
            assert!(mechanisms(&[], &strings(&[stray])).is_err(), "{stray}");
            assert!(mechanisms(&strings(&["select"]), &strings(&[stray])).is_err(), "{stray}");
        }
    }

    #[test]
    fn more_idle_members_than_there_is_room_for_are_refused_with_how_many_there_is() {
        let plan = Plan {
            mechanisms: Vec::new(),
            idle: vec![0, 5000],
            active: vec![1],
            repetitions: 1,
            amount: Amount::Rounds(1),
        };
        assert_eq!(check_room(&plan, 20_000), Ok(()));
        let possible = probe::idle_max(1024, 1);
        let refused = check_room(&plan, 1024).unwrap_err();
        assert!(refused.contains("--idle 5000") && refused.contains(&possible.to_string()));
    }
}
