//! The connection machine and the calls it makes, under any bytes, in any order of readiness and at
//! any time. The input is a script; client, kernel and loop are simulated here.
//!
//! The promises of a loop are kept: a connection that yielded continues in a later iteration or not
//! at all, a deadline is not reported before it has passed, and only idle connections are turned
//! away. Everything else is up to the script. Nothing here opens a socket or depends on the
//! server's stages.

mod expected;
mod fake_socket;
mod replies;
mod requests;
mod script;
mod simulated_client;
mod site;

use weir_server::stats::{Counters, TABLE};
use weir_server::test_support::{Action, Connection, Shared};

use fake_socket::{End, FakeSocket};
use script::{Event, Script};
use simulated_client::SimulatedClient;
use site::{Choices, Site};

/// Maximum number of open connections.
const OPEN_MAX: usize = 4;

/// Iterations within which unobstructed connections must come to rest.
const ITERATIONS_MAX: usize = 20_000;

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
        play.run_until_idle();
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
    clients: [Option<SimulatedClient>; OPEN_MAX],
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
        let clients = [const { None }; OPEN_MAX];
        Play {
            site,
            choices,
            shared,
            clients,
            pressure: false,
            stops: false,
            opened: 0,
            replies: 0,
        }
    }

    fn happen(&mut self, index: usize, event: Event, script: &mut Script<'_>) {
        match event {
            Event::Iteration { later_ns, backwards } => return self.iteration(later_ns, backwards),
            Event::Pass { ns } => return self.pass(ns),
            Event::Pressure => return self.set_pressure(!self.pressure),
            Event::Drain => return self.drain(),
            Event::Forget { file } => return self.site.forget(file.into()),
            _ => {}
        }
        let Some(client) = self.client(index) else { return };
        match event {
            Event::Arrive { bytes, serve } => {
                client.arrive(bytes);
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
                self.shared.begin_iteration(1);
                self.resume(index);
            }
            Event::Fetched { really } => self.bring(index, really),
            Event::PassDeadline { early } => self.pass_deadline(index, early),
            Event::Evict => self.evict(index),
            Event::TurnAway => self.turn_away(index),
            event => client.happen(event, script),
        }
    }

    /// Returns the connection in a slot; opens one if there is none, unless the server is stopping.
    fn client(&mut self, index: usize) -> Option<&mut SimulatedClient> {
        if self.clients[index].is_none() && !self.stops {
            self.opened += 1;
            let closing = self.pressure;
            self.clients[index] = Some(SimulatedClient::new(self.opened, closing, &self.shared));
        }
        self.clients[index].as_mut()
    }

    /// Makes a connection act, and checks the result.
    fn act(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Connection<FakeSocket>, &mut Shared) -> Action,
    ) -> Option<Action> {
        let client = self.clients[index].as_mut()?;
        let next = client.act(&mut self.shared, act);
        client.check(self.site);
        client.next = next;
        match next {
            Action::Close(_) => self.close(index),
            Action::Fetch => {
                client.fetch = Some(client.connection.fetch().expect("something to fetch"));
            }
            Action::Yield => client.has_yielded = true,
            Action::Read | Action::Write => {}
            Action::Forward => panic!("there is no upstream"),
            Action::Pause => panic!("there is no limit of bandwidth"),
            Action::Shutdown | Action::Discard => panic!("it does these on its socket itself"),
        }
        Some(next)
    }

    fn serve(&mut self, index: usize) {
        if self.clients[index].as_ref().is_none_or(|client| client.has_yielded) {
            return;
        }
        let next = self.act(index, Connection::proceed);
        if let Some(client) = &mut self.clients[index] {
            client.check_rest();
            let is_stuck = client.kernel.room.get() == 0 || client.blocked.1;
            assert!(next != Some(Action::Write) || is_stuck || !self.choices.is_eager());
        }
    }

    fn serve_if_ready(&mut self, index: usize) {
        if self.clients[index].as_ref().is_some_and(SimulatedClient::is_ready) {
            self.serve(index);
        }
    }

    fn resume(&mut self, index: usize) {
        let is_over = self.shared.write_budget_is_spent();
        if let Some(client) =
            self.clients[index].as_mut().filter(|client| client.has_yielded && !is_over)
        {
            client.has_yielded = false;
            self.serve(index);
        }
    }

    /// Completes a disk read of a connection, successfully or, unless `really`, with a failure.
    fn bring(&mut self, index: usize, really: bool) {
        let fetch = self.clients[index].as_mut().and_then(|client| client.fetch.take());
        if let Some(fetch) = fetch {
            if really {
                fetch.run();
            }
            self.serve(index);
        }
    }

    fn iteration(&mut self, later_ns: u64, backwards: bool) {
        self.shared.begin_iteration(later_ns);
        let order = |i| if backwards { OPEN_MAX - 1 - i } else { i };
        (0..OPEN_MAX).map(order).for_each(|index| self.resume(index));
        (0..OPEN_MAX).map(order).for_each(|index| self.serve_if_ready(index));
        self.expire_due();
    }

    fn pass(&mut self, ns: u64) {
        self.shared.begin_iteration(ns);
        self.expire_due();
    }

    fn pass_deadline(&mut self, index: usize, early: bool) {
        let Some(client) = &self.clients[index] else { return };
        let deadline_ns = client.connection.deadline_ns();
        if deadline_ns < u64::MAX {
            let left_ns = deadline_ns.saturating_sub(self.shared.now_ns());
            self.pass(left_ns.saturating_sub(early.into()));
        }
    }

    fn expire_due(&mut self) {
        for index in 0..OPEN_MAX {
            // A deadline that lies in the past at once is due in the next iteration, and again.
            for _ in 0..4 {
                self.expire_if_due(index);
            }
            assert!(!self.is_due(index), "it is always due");
        }
    }

    fn is_due(&self, index: usize) -> bool {
        let now_ns = self.shared.now_ns();
        self.clients[index].as_ref().is_some_and(|client| client.connection.deadline_ns() <= now_ns)
    }

    fn expire_if_due(&mut self, index: usize) {
        if !self.is_due(index) {
            return;
        }
        let Some(client) = &mut self.clients[index] else { return };
        let was_lost = std::mem::replace(&mut client.so.lost, true);
        client.so.expired = true;
        self.act(index, Connection::expire);
        if let Some(client) = &mut self.clients[index] {
            client.so.lost = was_lost;
        }
    }

    fn set_pressure(&mut self, on: bool) {
        self.pressure = on;
        self.shared.set_pressure(on);
        if on {
            self.clients.iter_mut().flatten().for_each(|client| client.so.closing = true);
        }
    }

    fn drain(&mut self) {
        self.stops = true;
        self.shared.drain();
        self.clients.iter_mut().flatten().for_each(|client| client.so.closing = true);
        let soon_ns = self.shared.now_ns() + SILENCE_NS;
        for index in 0..OPEN_MAX {
            match &mut self.clients[index] {
                Some(client) if !client.connection.is_idle() => {}
                Some(client) if !client.connection.has_received_bytes() => {
                    client.connection.shorten_deadline(soon_ns);
                }
                _ => self.dismiss(index),
            }
        }
    }

    /// Closes an idle connection, unless its next request has arrived.
    fn dismiss(&mut self, index: usize) {
        self.serve(index);
        if let Some(client) =
            self.clients[index].as_mut().filter(|client| client.connection.is_idle())
        {
            client.so.lost = true;
            self.close(index);
        }
    }

    fn evict(&mut self, index: usize) {
        let Some(client) = &mut self.clients[index] else { return };
        if !client.connection.is_evictable(&self.shared) {
            return;
        }
        let waits = client.next == Action::Write;
        assert!(waits || client.is_between_replies(), "spared in the middle of a reply");
        if client.connection.is_idle() && client.connection.has_received_bytes() {
            return self.dismiss(index);
        }
        client.so.lost = true;
        self.close(index);
    }

    fn turn_away(&mut self, index: usize) {
        let client = self.clients[index].as_mut().filter(|client| client.connection.is_idle());
        if let Some(client) = client {
            client.so.turned_away = true;
            self.act(index, Connection::refuse_with_503);
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(client) = self.clients[index].take() {
            self.replies += client.close(&mut self.shared, self.site);
        }
    }

    /// Lets every client send and receive without limits, until no connection can make progress.
    fn run_until_idle(&mut self) {
        self.clients.iter_mut().flatten().for_each(SimulatedClient::unbind);
        for _ in 0..ITERATIONS_MAX {
            self.shared.begin_iteration(1);
            let mut busy = false;
            for index in 0..OPEN_MAX {
                busy |= self.clients[index].as_ref().is_some_and(SimulatedClient::is_busy);
                self.resume(index);
                self.bring(index, true);
                self.serve_if_ready(index);
            }
            if !busy {
                return self
                    .clients
                    .iter()
                    .flatten()
                    .for_each(|client| client.check_silence(self.site));
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
            self.run_until_idle();
        }
    }

    /// Ends all connections from the clients' side.
    fn shut(&mut self) {
        self.clients.iter().flatten().for_each(|client| client.kernel.end.set(Some(End::Shut)));
        self.run_until_idle();
    }

    fn end(self) {
        assert!(self.clients.iter().all(Option::is_none), "somebody stays for ever");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Root;
    use weir_server::Config;
    use weir_server::sites::hosts::HostPattern;
    use weir_server::sites::{Rule, Sites};

    /// Choices by which replies are written as soon as they are ready.
    const EAGER: Choices = Choices(1);

    /// Opens what connections share, an hour after the site was made.
    fn open(config: Config, site: &Site) -> Shared {
        let mut shared = Shared::open(config, site.made_ns + 3600 * 1_000_000_000, 0).unwrap();
        shared.begin_iteration(1);
        shared
    }

    /// Sends a request; returns what the connection waits for then, and what it has sent.
    fn ask(client: &mut SimulatedClient, shared: &mut Shared, target: &str) -> (Action, String) {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        client.kernel.inbox.borrow_mut().extend(request.bytes());
        let next = client.act(shared, Connection::proceed);
        (next, sent(client))
    }

    /// Takes what the connection has sent since it was last taken.
    fn sent(client: &SimulatedClient) -> String {
        String::from_utf8_lossy(&client.kernel.outbox.take()).into_owned()
    }

    #[test]
    fn the_next_deadline_of_a_connection_whose_reply_is_over_lies_ahead() {
        SITE.with(|site| {
            let mut shared = open(site.config(EAGER), site);
            let mut client = SimulatedClient::new(1, true, &shared);
            let asks = b"GET /n/3 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
            client.kernel.inbox.borrow_mut().extend(asks);
            let next = client.act(&mut shared, Connection::proceed);
            assert!(matches!(next, Action::Close(_)), "{next:?}");
            // Before it is closed, or shut down by a worker of the kernel that has other work.
            for _ in 0..2 {
                let due_ns = client.connection.deadline_ns();
                shared.begin_iteration(due_ns.saturating_sub(shared.now_ns()));
                assert!(shared.now_ns() >= due_ns);
                client.act(&mut shared, Connection::expire);
                assert!(client.connection.deadline_ns() > shared.now_ns());
            }
        });
    }

    #[test]
    fn a_connection_turned_away_has_nothing_of_the_site_of_its_last_request() {
        let of = |hosts, fields: &[u8]| weir_server::sites::Site {
            hosts,
            routes: Vec::new(),
            otherwise: Rule { fields: fields.to_vec(), ..Rule::files() },
        };
        let named = of(vec![HostPattern::parse("a.example").unwrap()], b"X-Site: a\r\n");
        let sites = Sites::new(of(Vec::new(), b""), vec![named]).unwrap();
        SITE.with(|site| {
            let mut shared = open(Config { sites: Some(sites), ..site.config(EAGER) }, site);
            let mut client = SimulatedClient::new(1, false, &shared);
            let (next, reply) = ask(&mut client, &mut shared, "/n/3");
            assert!(next == Action::Read && reply.contains("X-Site: a\r\n"), "{next:?} {reply}");
            client.act(&mut shared, Connection::refuse_with_503);
            let refusal = sent(&client);
            assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
            assert!(refusal.contains("X-Served: here\r\n"), "{refusal}");
            assert!(!refusal.contains("X-Site"), "{refusal}");
        });
    }

    #[test]
    fn a_request_that_waits_for_a_listing_is_counted_once() {
        let root = Root::new();
        for number in 0..500 {
            root.write_fresh(&format!("dir/{number}"), "");
        }
        SITE.with(|site| {
            let config = Config { root: Some(root.path().to_owned()), ..site.config(EAGER) };
            let mut shared = open(config, site);
            shared.set_pressure(true);
            let mut client = SimulatedClient::new(1, true, &shared);
            let (mut next, mut reply) = ask(&mut client, &mut shared, "/dir/");
            let mut waits = 0;
            while matches!(next, Action::Yield | Action::Write) {
                waits += usize::from(next == Action::Yield);
                shared.begin_iteration(1);
                next = client.act(&mut shared, Connection::proceed);
                reply.push_str(&sent(&client));
            }
            assert!(waits > 1 && reply.starts_with("HTTP/1.1 200 OK\r\n"), "{waits}");
            assert_eq!(shared.counters().closed_by_pressure.get(), 1);
        });
    }

    #[test]
    fn the_head_of_the_first_request_has_its_time_from_the_accept() {
        SITE.with(|site| {
            let mut shared = open(site.config(EAGER), site);
            let mut client = SimulatedClient::new(1, false, &shared);
            let deadline_ns = client.connection.deadline_ns();
            let header_ns = deadline_ns - shared.now_ns();
            shared.begin_iteration(header_ns / 2);
            client.kernel.inbox.borrow_mut().extend(b"GET");
            client.act(&mut shared, Connection::proceed);
            assert_eq!(client.connection.deadline_ns(), deadline_ns);
            client.kernel.inbox.borrow_mut().extend(b" /n/3 HTTP/1.1\r\nHost: a\r\n\r\n");
            client.act(&mut shared, Connection::proceed);
            assert!(sent(&client).starts_with("HTTP/1.1 200 "));
            // The next one has it from its first byte.
            shared.begin_iteration(1);
            client.kernel.inbox.borrow_mut().extend(b"GET");
            client.act(&mut shared, Connection::proceed);
            assert_eq!(client.connection.deadline_ns(), shared.now_ns() + header_ns);
        });
    }

    #[test]
    fn a_disk_that_fails_is_not_taken_for_a_client_that_went() {
        SITE.with(|site| {
            let mut shared = open(site.config(EAGER), site);
            let mut client = SimulatedClient::new(1, false, &shared);
            client.kernel.has_disk_failed.set(true);
            let (next, reply) = ask(&mut client, &mut shared, "/n/10");
            assert!(matches!(next, Action::Close(_)), "{next:?} {reply}");
            let counters = shared.counters();
            assert_eq!((counters.replies_changed.get(), counters.gone.get()), (1, 0));
        });
    }
}
