//! The connection machine and the calls it makes, under any bytes, in any order of readiness and at
//! any time. The input is a script; client, kernel and loop are simulated here.
//!
//! The promises of a loop are kept: a connection that yielded continues in a later round or not at
//! all, a deadline is not reported before it has passed, and only idle connections are turned away.
//! Everything else is up to the script. Nothing here opens a socket or depends on the server's
//! stages.

mod expected;
mod guest;
mod replies;
mod requests;
mod script;
mod site;
mod wire;

use weir_server::stats::{Counters, TABLE};
use weir_server::test_support::{Action, Connection, Shared};

use guest::Guest;
use script::{Event, Script};
use site::{Choices, Site};
use wire::{End, Wire};

/// Maximum number of open connections.
const OPEN_MAX: usize = 4;

/// Rounds within which unobstructed connections must come to rest.
const ROUNDS_MAX: usize = 20_000;

/// Number of deadlines after which a silent client's connection must be over: that of what it waits
/// for, of the reply that says so, of the client's last bytes.
const DEADLINES_MAX: usize = 8;

/// Time for which a client that has not sent anything yet may delay the shutdown of the server.
const SILENCE_NS: u64 = 500_000_000;

thread_local! {
    static SITE: Site = Site::new();
}

/// Runs a script: the server's choices, its clock and how it ends, then events.
pub fn connection(data: &[u8]) {
    SITE.with(|site| {
        let mut script = Script(data);
        let choices = Choices(script.byte());
        let manner = script.byte();
        let mut play = Play::new(site, choices, [0, 1, 30_000, 300_000][usize::from(manner & 3)]);
        while let Some((index, event)) = script.event() {
            play.happen(index, event, &mut script);
        }
        play.come_to_rest();
        if manner & 4 == 0 {
            play.outwait();
        } else {
            play.shut();
        }
        play.end();
    });
}

/// A server, its clients, and their environment.
struct Play<'a> {
    site: &'a Site,
    choices: Choices,
    shared: Shared,
    guests: [Option<Guest>; OPEN_MAX],
    pressure: bool,
    stops: bool,
    /// Number of connections so far.
    opened: u64,
    /// Number of complete replies on closed connections.
    replies: u64,
}

impl<'a> Play<'a> {
    fn new(site: &'a Site, choices: Choices, step_ns: u64) -> Self {
        let age_ns = if choices.is_fresh() { 1_000_000 } else { 3600 * 1_000_000_000 };
        let shared = Shared::open(site.config(choices), site.made_ns + age_ns, step_ns).unwrap();
        let guests = [const { None }; OPEN_MAX];
        Play { site, choices, shared, guests, pressure: false, stops: false, opened: 0, replies: 0 }
    }

    fn happen(&mut self, index: usize, event: Event, script: &mut Script<'_>) {
        match event {
            Event::Round { later_ns, backwards } => return self.round(later_ns, backwards),
            Event::Pass { ns } => return self.pass(ns),
            Event::Pressure => return self.set_pressure(!self.pressure),
            Event::Drain => return self.drain(),
            Event::Forget { file } => return self.site.forget(file.into()),
            _ => {}
        }
        let Some(guest) = self.guest(index) else { return };
        match event {
            Event::Arrive { bytes, serve } => {
                guest.arrive(bytes);
                if serve {
                    self.serve_if_ready(index);
                }
            }
            Event::Serve { always } => {
                if always {
                    self.serve(index);
                } else {
                    self.serve_if_ready(index);
                }
            }
            Event::Resume => {
                self.shared.begin_round(1);
                self.resume(index);
            }
            Event::Fetched { really } => self.bring(index, really),
            Event::PassDeadline { early } => self.pass_deadline(index, early),
            Event::Evict => self.evict(index),
            Event::TurnAway => self.turn_away(index),
            event => guest.happen(event, script),
        }
    }

    /// Returns the connection in a slot; opens one if there is none, unless the server is stopping.
    fn guest(&mut self, index: usize) -> Option<&mut Guest> {
        if self.guests[index].is_none() && !self.stops {
            self.opened += 1;
            let closing = self.pressure;
            self.guests[index] = Some(Guest::new(self.opened, closing, &self.shared));
        }
        self.guests[index].as_mut()
    }

    /// Makes a connection act, and checks the result.
    fn act(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Connection<Wire>, &mut Shared) -> Action,
    ) -> Option<Action> {
        let guest = self.guests[index].as_mut()?;
        let next = guest.act(&mut self.shared, act);
        guest.check(self.site);
        guest.next = next;
        match next {
            Action::Close(_) => self.close(index),
            Action::Fetch => {
                guest.fetch = Some(guest.connection.fetch().expect("something to fetch"));
            }
            Action::Yield => guest.has_yielded = true,
            Action::Read | Action::Write => {}
            Action::Shutdown | Action::Discard => panic!("it does these on its socket itself"),
        }
        Some(next)
    }

    fn serve(&mut self, index: usize) {
        if self.guests[index].as_ref().is_none_or(|guest| guest.has_yielded) {
            return;
        }
        let next = self.act(index, Connection::proceed);
        if let Some(guest) = &mut self.guests[index] {
            guest.check_rest();
            let is_stuck = guest.kernel.room.get() == 0 || guest.blocked.1;
            assert!(next != Some(Action::Write) || is_stuck || !self.choices.is_eager());
        }
    }

    fn serve_if_ready(&mut self, index: usize) {
        if self.guests[index].as_ref().is_some_and(Guest::is_ready) {
            self.serve(index);
        }
    }

    fn resume(&mut self, index: usize) {
        let is_over = self.shared.write_budget_is_spent();
        if let Some(guest) =
            self.guests[index].as_mut().filter(|guest| guest.has_yielded && !is_over)
        {
            guest.has_yielded = false;
            self.serve(index);
        }
    }

    /// Completes a disk read of a connection, successfully or, unless `really`, with a failure.
    fn bring(&mut self, index: usize, really: bool) {
        let fetch = self.guests[index].as_mut().and_then(|guest| guest.fetch.take());
        if let Some(fetch) = fetch {
            if really {
                fetch.run();
            }
            self.serve(index);
        }
    }

    fn round(&mut self, later_ns: u64, backwards: bool) {
        self.shared.begin_round(later_ns);
        let order = |i| if backwards { OPEN_MAX - 1 - i } else { i };
        (0..OPEN_MAX).map(order).for_each(|index| self.resume(index));
        (0..OPEN_MAX).map(order).for_each(|index| self.serve_if_ready(index));
        self.expire_due();
    }

    fn pass(&mut self, ns: u64) {
        self.shared.begin_round(ns);
        self.expire_due();
    }

    fn pass_deadline(&mut self, index: usize, early: bool) {
        let Some(guest) = &self.guests[index] else { return };
        let deadline_ns = guest.connection.deadline_ns();
        if deadline_ns < u64::MAX {
            let left_ns = deadline_ns.saturating_sub(self.shared.now_ns());
            self.pass(left_ns.saturating_sub(early.into()));
        }
    }

    fn expire_due(&mut self) {
        for index in 0..OPEN_MAX {
            // A deadline that lies in the past at once is due in the next round, and again.
            for _ in 0..4 {
                self.expire_if_due(index);
            }
            assert!(!self.is_due(index), "it is always due");
        }
    }

    fn is_due(&self, index: usize) -> bool {
        let now_ns = self.shared.now_ns();
        self.guests[index].as_ref().is_some_and(|guest| guest.connection.deadline_ns() <= now_ns)
    }

    fn expire_if_due(&mut self, index: usize) {
        if !self.is_due(index) {
            return;
        }
        let Some(guest) = &mut self.guests[index] else { return };
        let was_lost = std::mem::replace(&mut guest.so.lost, true);
        guest.so.expired = true;
        self.act(index, Connection::expire);
        if let Some(guest) = &mut self.guests[index] {
            guest.so.lost = was_lost;
        }
    }

    fn set_pressure(&mut self, on: bool) {
        self.pressure = on;
        self.shared.set_pressure(on);
        if on {
            self.guests.iter_mut().flatten().for_each(|guest| guest.so.closing = true);
        }
    }

    fn drain(&mut self) {
        self.stops = true;
        self.shared.drain();
        self.guests.iter_mut().flatten().for_each(|guest| guest.so.closing = true);
        let soon_ns = self.shared.now_ns() + SILENCE_NS;
        for index in 0..OPEN_MAX {
            match &mut self.guests[index] {
                Some(guest) if !guest.connection.is_idle() => {}
                Some(guest) if !guest.connection.has_received_bytes() => {
                    guest.connection.shorten_deadline(soon_ns);
                }
                _ => self.dismiss(index),
            }
        }
    }

    /// Closes an idle connection, unless its next request has arrived.
    fn dismiss(&mut self, index: usize) {
        self.serve(index);
        if let Some(guest) = self.guests[index].as_mut().filter(|guest| guest.connection.is_idle())
        {
            guest.so.lost = true;
            self.close(index);
        }
    }

    fn evict(&mut self, index: usize) {
        let Some(guest) = &mut self.guests[index] else { return };
        if !guest.connection.can_be_spared(&self.shared) {
            return;
        }
        let waits = guest.next == Action::Write;
        assert!(waits || guest.is_between_replies(), "spared in the middle of a reply");
        if guest.connection.is_idle() && guest.connection.has_received_bytes() {
            return self.dismiss(index);
        }
        guest.so.lost = true;
        self.close(index);
    }

    fn turn_away(&mut self, index: usize) {
        let guest = self.guests[index].as_mut().filter(|guest| guest.connection.is_idle());
        if let Some(guest) = guest {
            guest.so.turned_away = true;
            self.act(index, Connection::refuse_with_503);
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(guest) = self.guests[index].take() {
            self.replies += guest.close(&mut self.shared, self.site);
        }
    }

    /// Lets every client send and receive without limits, until no connection can make progress.
    fn come_to_rest(&mut self) {
        self.guests.iter_mut().flatten().for_each(Guest::unbind);
        for _ in 0..ROUNDS_MAX {
            self.shared.begin_round(1);
            let mut busy = false;
            for index in 0..OPEN_MAX {
                busy |= self.guests[index].as_ref().is_some_and(Guest::is_busy);
                self.resume(index);
                self.bring(index, true);
                self.serve_if_ready(index);
            }
            if !busy {
                return self
                    .guests
                    .iter()
                    .flatten()
                    .for_each(|guest| guest.check_silence(self.site));
            }
        }
        panic!("somebody never comes to rest");
    }

    /// Ends all connections by their deadlines.
    fn outwait(&mut self) {
        for _ in 0..DEADLINES_MAX {
            for index in 0..OPEN_MAX {
                self.pass_deadline(index, false);
            }
            self.come_to_rest();
        }
    }

    /// Ends all connections from the clients' side.
    fn shut(&mut self) {
        self.guests.iter().flatten().for_each(|guest| guest.kernel.end.set(Some(End::Shut)));
        self.come_to_rest();
    }

    fn end(self) {
        assert!(self.guests.iter().all(Option::is_none), "somebody stays for ever");
        let counters = self.shared.counters();
        assert_eq!(counters.closed.get(), self.opened);
        assert_eq!(reasons(&counters), self.opened);
        let (whole, cut) = (counters.replies.get(), counters.replies_cut.get());
        assert!((whole..=whole + cut).contains(&self.replies), "{whole} + {cut}: {}", self.replies);
    }
}

/// Returns the number of connections closed for a counted reason.
fn reasons(counters: &Counters) -> u64 {
    let names_a_reason = |name: &str| name.starts_with("end_") || name.starts_with("timeout_");
    TABLE
        .iter()
        .zip(counters.values())
        .filter(|(row, _)| names_a_reason(row.name))
        .map(|(_, value)| value)
        .sum()
}
