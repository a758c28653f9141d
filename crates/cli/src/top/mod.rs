//! `weir top`: the state of a running server in a terminal, each second. The server is not asked:
//! it is read as `weir stat` reads it, and what is shown is derived as for the live page.

mod options;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use weir_observe::ServerPage;
use weir_stats::live::{History, Reading};

pub(crate) use options::TopOptions;
use view::{Range, View};

use crate::print::say;
use crate::signals::Stop;
use crate::stat;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for a key before a signal is noticed.
const NAP: Duration = Duration::from_millis(100);

/// Shows the state of a server until the operator quits or the server ends.
///
/// # Errors
/// A sentence: there is no such server, its statistics cannot be read, or there is no terminal.
pub(crate) fn top(options: &TopOptions) -> Result<ExitCode, String> {
    let page = stat::one_server(options.pid)?;
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err("weir top needs a terminal; `weir stat --watch` prints lines".into());
    }
    let stop = Stop::listen()?;
    // It is restored if the program panics, too.
    let mut terminal =
        ratatui::try_init().map_err(|error| format!("the terminal cannot be used: {error}"))?;
    let end = watch(&page, &mut terminal, &stop);
    ratatui::restore();
    if end? == End::Server {
        say(&format!("the server {} has ended", page.pid()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reason for which the display ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The operator wanted it.
    Operator,
    /// The server has ended.
    Server,
}

fn watch(page: &ServerPage, terminal: &mut DefaultTerminal, stop: &Stop) -> Result<End, String> {
    let (mut history, mut range) = (History::default(), Range::default());
    let mut about = String::new();
    let mut next = Instant::now();
    loop {
        if next <= Instant::now() {
            let snapshot = stat::snapshot(page)?;
            if page.has_ended() {
                return Ok(End::Server);
            }
            history.add(Reading::of(&snapshot));
            about = stat::title(&snapshot);
            next = (next + INTERVAL).max(Instant::now());
        }
        let view = View { history: &history, about: &about, range };
        terminal.draw(|frame| view.draw(frame)).map_err(|error| cannot_draw(&error))?;
        match wait_for_key(next, stop)? {
            Some(Key::Quit) => return Ok(End::Operator),
            Some(Key::Range) => range = range.next(),
            None => {}
        }
    }
}

/// Keys that do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Range,
}

/// Waits for a key or another size of the terminal, until `until`. A signal quits.
fn wait_for_key(until: Instant, stop: &Stop) -> Result<Option<Key>, String> {
    loop {
        if stop.is_wanted() {
            return Ok(Some(Key::Quit));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        if !event::poll(left.min(NAP)).map_err(|error| cannot_draw(&error))? {
            continue;
        }
        match event::read().map_err(|error| cannot_draw(&error))? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                if let Some(key) = meaning(key) {
                    return Ok(Some(key));
                }
            }
            Event::Resize(..) => return Ok(None),
            _ => {}
        }
    }
}

fn meaning(key: KeyEvent) -> Option<Key> {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('r' | 'R') => Some(Key::Range),
        _ => None,
    }
}

fn cannot_draw(error: &io::Error) -> String {
    format!("the terminal cannot be used: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_and_control_c_quit_and_other_keys_do_nothing() {
        let of = |code, modifiers| meaning(KeyEvent::new(code, modifiers));
        let plain = KeyModifiers::NONE;
        assert_eq!(of(KeyCode::Char('q'), plain), Some(Key::Quit));
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(of(KeyCode::Char('r'), plain), Some(Key::Range));
        assert_eq!(of(KeyCode::Char('c'), plain), None);
    }
}
