//! `weir stat`: shows the statistics of a running server, which is not asked for them.

mod options;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_observe::{ServerPage, servers, successor_of_all};
use weir_stats::page::Snapshot;

pub(crate) use options::StatOptions;
use table::View;

use crate::print::say;
use crate::screen::Screen;
use crate::signals::Stop;

const NONE_RUNS: &str = "no weir server runs that publishes its statistics";
const SEVERAL_RUN: &str = "several weir servers run: name the process id of the one to watch";

/// Longest sleep before a signal is noticed.
const NAP: Duration = Duration::from_millis(20);

/// Shows the statistics of a server, or a list of servers.
///
/// # Errors
/// A sentence: there is no such server, or its statistics cannot be read.
pub(crate) fn stat(options: &StatOptions) -> Result<ExitCode, String> {
    let page = match options.pid {
        Some(pid) => ServerPage::of_process(pid).map_err(|error| error.to_string())?,
        None => {
            let mut pages = running()?;
            match pages.pop() {
                None => return Err(NONE_RUNS.into()),
                Some(only) if pages.is_empty() => only,
                Some(last) => {
                    pages.push(last);
                    return show_list(&pages, options);
                }
            }
        }
    };
    let stop = Stop::listen()?;
    match options.watch {
        Some(every) => watch(&page, every, options, stop.flag()),
        None => done(write_all(&text(&view(&snapshot(&page)?, None, options), options))),
    }
}

/// Opens the page of a server: the one with this process id, or that has taken its place, or the
/// only one that runs, besides those whose place it has taken.
///
/// # Errors
/// A sentence: there is no such server, its statistics cannot be read, or several run.
pub(crate) fn one_server(pid: Option<u32>) -> Result<ServerPage, String> {
    if let Some(pid) = pid {
        return ServerPage::of_process(pid).map_err(|error| error.to_string());
    }
    match running()? {
        none if none.is_empty() => Err(NONE_RUNS.into()),
        pages => successor_of_all(pages).ok_or_else(|| SEVERAL_RUN.into()),
    }
}

/// Returns a line about a server.
pub(crate) fn title(snapshot: &Snapshot) -> String {
    table::title(snapshot)
}

/// Opens the pages of all servers; one that ends meanwhile is left out.
fn running() -> Result<Vec<ServerPage>, String> {
    let pages: Vec<_> = servers().into_iter().map(ServerPage::open).collect();
    match pages.iter().find_map(|page| page.as_ref().err()) {
        // A single page that cannot be read is worth its reason.
        Some(error) if pages.iter().all(Result::is_err) => Err(error.to_string()),
        _ => Ok(pages.into_iter().flatten().collect()),
    }
}

fn show_list(pages: &[ServerPage], options: &StatOptions) -> Result<ExitCode, String> {
    if options.watch.is_some() {
        return Err(SEVERAL_RUN.into());
    }
    let snapshots = pages.iter().map(snapshot).collect::<Result<Vec<_>, _>>()?;
    if !options.json {
        return done(write_all(&joined(&table::list(&snapshots))));
    }
    let row = |snapshot: &Snapshot| {
        let whole = snapshot.to_json();
        json!({
            "pid": whole["pid"],
            "addresses": whole["addresses"],
            "started_unix_s": whole["started_unix_s"],
        })
    };
    let rows: Vec<_> = snapshots.iter().map(row).collect();
    done(write_all(&format!("{:#}\n", json!(rows))))
}

/// Shows the statistics until a signal comes, the reader goes or the server ends.
fn watch(
    page: &ServerPage,
    every: Duration,
    options: &StatOptions,
    stop: &AtomicBool,
) -> Result<ExitCode, String> {
    let mut screen = Screen::on_stdout();
    let (mut before, mut next) = (None, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let now = snapshot(page)?;
        if page.has_ended() {
            say(&format!("the server {} has ended", page.pid()));
            return Ok(ExitCode::SUCCESS);
        }
        let view = view(&now, before.as_ref(), options);
        let shown = if screen.is_live() && !options.json {
            screen.draw(&table::lines(&view));
            Ok(())
        } else {
            write_all(&text(&view, options))
        };
        if shown.is_err() {
            return done(shown);
        }
        before = Some(now);
        next = (next + every).max(Instant::now());
        sleep_until(next, stop);
    }
    Ok(ExitCode::SUCCESS)
}

fn sleep_until(until: Instant, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return,
            left => thread::sleep(left.min(NAP)),
        }
    }
}

/// Copies the page of a server.
///
/// # Errors
/// A sentence: the server stands still as it publishes.
pub(crate) fn snapshot(page: &ServerPage) -> Result<Snapshot, String> {
    let blame = |error| format!("the statistics of {} cannot be read: {error}", page.pid());
    page.snapshot().map_err(blame)
}

fn view<'a>(now: &'a Snapshot, before: Option<&'a Snapshot>, options: &StatOptions) -> View<'a> {
    View { now, before, all: options.all }
}

/// Returns what is printed at once: JSON, on one line if there is more to come, or a table.
fn text(view: &View<'_>, options: &StatOptions) -> String {
    match (options.json, options.watch) {
        (true, Some(_)) => format!("{}\n", view.now.to_json()),
        (true, None) => format!("{:#}\n", view.now.to_json()),
        (false, Some(_)) => joined(&table::lines(view)) + "\n",
        (false, None) => joined(&table::lines(view)),
    }
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn write_all(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Returns the exit code; a reader that has read enough is no error.
fn done(written: io::Result<()>) -> Result<ExitCode, String> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot print: {error}"))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_goes_is_no_error() {
        assert!(done(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        assert!(done(Err(io::ErrorKind::StorageFull.into())).is_err());
    }

    #[test]
    fn a_sleep_ends_with_a_signal() {
        sleep_until(Instant::now() + Duration::from_secs(1000), &AtomicBool::new(true));
    }
}
