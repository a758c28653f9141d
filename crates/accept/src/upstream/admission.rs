//! Places at one server, and the queue for them.

use super::departed::{Departure, Departures};
use super::policy::{Completion, InFlightPolicy, Outcome};
use super::queue::{Queue, Serial};
use super::queue_policy::{Asked, Class, QueuePolicy};
use super::table::UpstreamConfig;

/// Number of places of which one is a normal request's, while both classes wait; and of those that
/// may wait.
const NORMAL_EACH: u32 = 8;

/// Part of a request's time in which another must have waited for the limit to have counted.
const RECENT_PART: u64 = 20;

/// Completions over which their rate is averaged.
const RATE_COMPLETIONS: f64 = 64.0;

/// A request's place in the queue, by which it is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(Class, Serial);

/// What becomes of a request that has just come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// It has a place: it is sent now.
    Granted,
    /// It waits.
    Waits(Ticket),
    /// It is refused at once.
    Refused(Reason),
}

/// Reason for refusing a request that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has waited for longer than the delay target.
    Stale,
    /// More wait than can be served within the delay target.
    Excess,
}

/// End of the wait of a request, or of the place of one whose client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted<T> {
    /// It has a place.
    Place(T),
    /// It is refused.
    Refusal(T, Reason),
    /// It has one no longer: its client has gone, and the server passes it over. It is to be given
    /// up, and completed as [`Outcome::Abandoned`]; or, if another waits for its reply, to depart
    /// anew.
    Recall(T),
}

impl<T> Granted<T> {
    /// Returns whose request it is.
    pub const fn whose(&self) -> &T {
        match self {
            Self::Place(whose) | Self::Refusal(whose, _) | Self::Recall(whose) => whose,
        }
    }
}

/// Counts of what comes to an upstream and what it does with it, since the start, and the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that have left it, and with that a place to another.
    pub ended: u64,
    /// Requests refused, for whatever reason.
    pub refused: u64,
    /// Requests that wait now.
    pub waiting: usize,
    /// Requests that may wait.
    pub waiting_allowed: usize,
    /// Requests that may be in flight beside those that are.
    pub free_places: usize,
}

/// Admission of requests to one server, for all loops together. `T` says whose a request is.
///
/// Each loop reads the clock once per iteration, so that one may come with an earlier time than
/// another did before it. Here no time passes twice: an earlier one is taken for the latest.
pub struct Admission<T> {
    policy: Box<dyn InFlightPolicy>,
    queue_policy: Box<dyn QueuePolicy>,
    target_ns: u64,
    /// The latest time that a loop has come with.
    latest_ns: u64,
    in_flight: usize,
    /// Requests that wait, by class.
    queues: [Queue<T>; 2],
    /// Requests that have a place though their clients have gone.
    departures: Departures<T>,
    /// Places given to the high class, while both waited, since the last one to the normal.
    high_places: u32,
    /// Time at which a request last waited, as far as completions have shown.
    contended_ns: Option<u64>,
    /// Mean time between completions while requests wait, nanoseconds; 0 before the first.
    interval_ns: f64,
    /// Time of the last completion that left requests waiting.
    completed_ns: Option<u64>,
    /// Requests refused since the start: stale ones, and excess ones.
    refused: [u64; 2],
    /// Requests completed since the start.
    ended: u64,
    waiting_max: usize,
}

impl<T> Admission<T> {
    /// Creates the admission.
    #[must_use]
    pub fn new(config: &UpstreamConfig) -> Self {
        Self {
            policy: config.policy(),
            queue_policy: config.queue_policy(),
            target_ns: config.target_ns,
            latest_ns: 0,
            in_flight: 0,
            queues: [Queue::new(), Queue::new()],
            departures: Departures::new(),
            high_places: 0,
            contended_ns: None,
            interval_ns: 0.0,
            completed_ns: None,
            refused: [0; 2],
            ended: 0,
            waiting_max: 0,
        }
    }

    /// Admits a request, queues it or refuses it. [`Admission::next`] must follow.
    pub fn arrive(&mut self, now_ns: u64, asked: Asked, whose: T) -> Arrived {
        let now_ns = self.advance(now_ns);
        let waiting = self.waiting();
        if !self.queue_policy.admits(now_ns, asked, waiting) {
            self.refused[1] += 1;
            return Arrived::Refused(Reason::Excess);
        }
        if self.in_flight < self.policy.limit() && waiting == 0 {
            self.in_flight += 1;
            self.queue_policy.note_sent_at_once();
            return Arrived::Granted;
        }
        let class = asked.class;
        let ticket = Ticket(class, self.queues[class as usize].push(now_ns, whose));
        self.waiting_max = self.waiting_max.max(waiting + 1);
        Arrived::Waits(ticket)
    }

    /// Withdraws a request that waits, because its client has gone; returns whether it waited.
    pub fn withdraw(&mut self, ticket: Ticket) -> bool {
        self.queues[ticket.0 as usize].withdraw(ticket.1)
    }

    /// Has a request keep its place whose client has gone, after a wait of `waited_ns` in all,
    /// because the server is at work for it. [`Admission::next`] must follow.
    pub fn depart(&mut self, now_ns: u64, waited_ns: u64, whose: T) -> Departure {
        let now_ns = self.advance(now_ns);
        self.departures.add(now_ns, waited_ns, whose)
    }

    /// Records that a request whose client had gone is to lose its place no longer: it ends, and
    /// [`Admission::complete`] follows; its reply has begun; or it departs anew.
    pub fn end_departure(&mut self, departure: Departure) {
        self.departures.remove(departure);
    }

    /// Records the end of a request that had a place. [`Admission::next`] must follow.
    pub fn complete(&mut self, now_ns: u64, took_ns: u64, outcome: Outcome) {
        let now_ns = self.advance(now_ns);
        let (in_flight, waiting) = (self.in_flight, self.waiting());
        if waiting > 0 {
            self.contended_ns = Some(now_ns);
        }
        let recently_ns = now_ns.saturating_sub(took_ns / RECENT_PART);
        let is_contended = self.contended_ns.is_some_and(|at_ns| at_ns >= recently_ns);
        self.in_flight = in_flight.saturating_sub(1);
        self.ended += 1;
        if outcome != Outcome::Abandoned {
            self.departures.note_ended(now_ns);
        }
        self.note_rate(now_ns, waiting, outcome);
        self.policy.completed(now_ns, &Completion { took_ns, outcome, in_flight, is_contended });
    }

    /// Returns a request whose wait is over: it has a place, or is refused; or one that loses its
    /// place. To be called until it returns `None`, after every other call that changes anything,
    /// and at [`Admission::due_ns`].
    pub fn next(&mut self, now_ns: u64) -> Option<Granted<T>> {
        let now_ns = self.advance(now_ns);
        if let Some(whose) = self.departures.take_excess(now_ns, self.policy.limit()) {
            return Some(Granted::Recall(whose));
        }
        if self.in_flight < self.policy.limit() {
            return self.give_place(now_ns);
        }
        let stale_ns = now_ns.checked_sub(self.target_ns);
        let oldest = |queue: &mut Queue<T>| queue.oldest_ns();
        let is_stale = |queue| oldest(queue).zip(stale_ns).is_some_and(|(since, at)| since <= at);
        let [high, normal] = &mut self.queues;
        let (queue, reason) = if is_stale(normal) {
            (normal, Reason::Stale)
        } else if is_stale(high) {
            (high, Reason::Stale)
        } else if self.waiting() > self.waiting_allowed() {
            let normal_max = (self.waiting_allowed() / NORMAL_EACH as usize).max(1);
            let [high, normal] = &mut self.queues;
            let is_in_excess = normal.len() > normal_max || high.len() == 0;
            (if is_in_excess { normal } else { high }, Reason::Excess)
        } else {
            return None;
        };
        let (whose, _) = queue.pop_oldest()?;
        self.refused[usize::from(reason == Reason::Excess)] += 1;
        Some(Granted::Refusal(whose, reason))
    }

    /// Returns the time of a call by a loop whose clock is at `now_ns`.
    fn advance(&mut self, now_ns: u64) -> u64 {
        self.latest_ns = self.latest_ns.max(now_ns);
        self.latest_ns
    }

    /// Gives a place to one of those that wait.
    fn give_place(&mut self, now_ns: u64) -> Option<Granted<T>> {
        let class = self.next_class();
        let queue = &mut self.queues[class as usize];
        let oldest_waited_ns = now_ns.saturating_sub(queue.oldest_ns()?);
        let taken = if self.queue_policy.takes_newest(oldest_waited_ns) {
            queue.pop_newest()
        } else {
            queue.pop_oldest()
        };
        let (whose, since_ns) = taken?;
        if self.queue_policy.drops(now_ns, now_ns.saturating_sub(since_ns)) {
            self.refused[0] += 1;
            return Some(Granted::Refusal(whose, Reason::Stale));
        }
        self.in_flight += 1;
        Some(Granted::Place(whose))
    }

    /// Returns the class whose turn it is.
    fn next_class(&mut self) -> Class {
        let [high, normal] = [&self.queues[0], &self.queues[1]].map(|queue| queue.len() > 0);
        if high && normal {
            self.high_places = (self.high_places + 1) % NORMAL_EACH;
            return if self.high_places == 0 { Class::Normal } else { Class::High };
        }
        if high { Class::High } else { Class::Normal }
    }

    /// Returns when the oldest request becomes stale, or one is to lose its place.
    pub fn due_ns(&mut self) -> Option<u64> {
        let since_ns = self.queues.iter_mut().filter_map(Queue::oldest_ns).min();
        let stale_ns = since_ns.map(|since_ns| since_ns.saturating_add(self.target_ns));
        stale_ns.into_iter().chain(self.recall_ns()).min()
    }

    /// Returns when a request whose client has gone is to lose its place if nothing ends before. To
    /// be asked once [`Admission::next`] has returned `None`: the limit may have sunk.
    #[must_use]
    pub fn recall_ns(&self) -> Option<u64> {
        self.departures.due_ns(self.policy.limit())
    }

    /// Number of requests that have a place.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Number of requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(Queue::len).sum()
    }

    /// Maximum number of requests that have waited at a time.
    #[must_use]
    pub fn waiting_max(&self) -> usize {
        self.waiting_max
    }

    /// Maximum number of requests in flight, as of now.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.policy.limit()
    }

    /// Number of requests refused: stale ones, and those in excess of what can be served.
    #[must_use]
    pub fn refused(&self) -> [u64; 2] {
        self.refused
    }

    /// Returns what comes, and what is done with it.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            ended: self.ended,
            refused: self.refused.iter().sum(),
            waiting: self.waiting(),
            waiting_allowed: self.waiting_allowed(),
            free_places: self.policy.limit().saturating_sub(self.in_flight),
        }
    }

    /// Number of requests that may wait: what is completed within the delay target, and never less
    /// than keeps the server busy.
    fn waiting_allowed(&self) -> usize {
        if self.interval_ns == 0.0 {
            return usize::MAX;
        }
        let within_target = (self.target_ns as f64 / self.interval_ns) as usize;
        self.queue_policy.waiting_max(within_target.max(self.policy.limit()))
    }

    /// Averages the time between completions, while there is always one to be completed.
    fn note_rate(&mut self, now_ns: u64, waiting: usize, outcome: Outcome) {
        if waiting == 0 {
            self.completed_ns = None;
            return;
        }
        if !matches!(outcome, Outcome::Answered | Outcome::Departed) {
            return;
        }
        if let Some(last_ns) = self.completed_ns.replace(now_ns) {
            let interval_ns = now_ns.saturating_sub(last_ns) as f64;
            self.interval_ns = if self.interval_ns == 0.0 {
                interval_ns.max(1.0)
            } else {
                self.interval_ns + (interval_ns - self.interval_ns) / RATE_COMPLETIONS
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limit;

    const MS: u64 = 1_000_000;

    fn admission(limit: u64) -> Admission<u32> {
        let limit = Limit::Count(limit);
        Admission::new(&UpstreamConfig { limit, target_ns: 100 * MS, ..UpstreamConfig::default() })
    }

    fn waits(arrived: Arrived) -> Ticket {
        let Arrived::Waits(ticket) = arrived else { panic!("it has a place") };
        ticket
    }

    #[test]
    fn nothing_waits_while_a_place_is_free() {
        let mut admission = admission(2);
        assert_eq!(admission.arrive(0, Asked::default(), 1), Arrived::Granted);
        assert_eq!(admission.arrive(0, Asked::default(), 2), Arrived::Granted);
        waits(admission.arrive(0, Asked::default(), 3));
        assert_eq!(admission.next(0), None);
        admission.complete(MS, MS, Outcome::Answered);
        assert_eq!(admission.next(MS), Some(Granted::Place(3)));
        assert_eq!((admission.in_flight(), admission.waiting()), (2, 0));
    }

    #[test]
    fn the_oldest_goes_first_until_it_has_waited_for_half_the_target() {
        let mut admission = admission(1);
        admission.arrive(0, Asked::default(), 0);
        for whose in 1..4 {
            waits(admission.arrive(0, Asked::default(), whose));
        }
        admission.complete(MS, MS, Outcome::Answered);
        assert_eq!(admission.next(MS), Some(Granted::Place(1)));
        admission.complete(51 * MS, MS, Outcome::Answered);
        assert_eq!(admission.next(51 * MS), Some(Granted::Place(3)));
        assert_eq!(admission.next(51 * MS), None);
        assert_eq!(admission.due_ns(), Some(100 * MS));
        let stale = Some(Granted::Refusal(2, Reason::Stale));
        assert_eq!(admission.next(100 * MS), stale);
        assert_eq!(admission.refused(), [1, 0]);
    }

    #[test]
    fn a_stale_request_is_served_if_a_place_is_free() {
        let mut admission = admission(1);
        admission.arrive(0, Asked::default(), 0);
        waits(admission.arrive(0, Asked::default(), 1));
        admission.complete(500 * MS, MS, Outcome::Answered);
        assert_eq!(admission.next(500 * MS), Some(Granted::Place(1)));
    }

    #[test]
    fn more_than_can_be_served_in_time_are_refused_oldest_first() {
        let mut admission = admission(1);
        admission.arrive(0, Asked::default(), 0);
        let mut now_ns = 0;
        // One every 25 ms: four within the target.
        for whose in 1..=100 {
            waits(admission.arrive(now_ns, Asked::default(), whose));
            while admission.next(now_ns).is_some() {}
            now_ns += 25 * MS;
            admission.complete(now_ns, 25 * MS, Outcome::Answered);
            while admission.next(now_ns).is_some() {}
        }
        for whose in 200..220 {
            waits(admission.arrive(now_ns, Asked::default(), whose));
        }
        let mut refused = Vec::new();
        while let Some(granted) = admission.next(now_ns) {
            if let Granted::Refusal(whose, reason) = granted {
                assert_eq!(reason, Reason::Excess);
                refused.push(whose);
            }
        }
        assert!(refused.is_sorted() && refused[0] == 200, "{refused:?}");
        assert!((3..=6).contains(&admission.waiting()), "{}", admission.waiting());
    }

    /// Number of requests that may wait after a second in which each of some loops completes one
    /// request per millisecond, by clocks that are behind by this many milliseconds.
    fn waiting_allowed_of_loops(behind_ms: &[u64]) -> usize {
        let mut admission = admission(1);
        admission.arrive(0, Asked::default(), 0);
        waits(admission.arrive(0, Asked::default(), 1));
        for ms in 100..1100 {
            for behind_ms in behind_ms {
                let now_ns = (ms - behind_ms) * MS;
                admission.arrive(now_ns, Asked::default(), 1);
                admission.complete(now_ns, MS, Outcome::Answered);
                while admission.next(now_ns).is_some() {}
            }
        }
        admission.waiting_allowed()
    }

    #[test]
    fn the_rate_is_that_of_all_loops_however_far_their_clocks_are_apart() {
        for behind_ms in [&[0; 4], &[0, 1, 2, 3], &[3, 0, 2, 1], &[0, 9, 0, 9]] {
            let allowed = waiting_allowed_of_loops(behind_ms);
            // Four per millisecond, for a hundred milliseconds.
            assert!((380..=420).contains(&allowed), "{behind_ms:?}: {allowed}");
        }
        assert!((95..=105).contains(&waiting_allowed_of_loops(&[0])));
    }

    #[test]
    fn a_client_that_has_gone_is_taken_out() {
        let mut admission = admission(1);
        admission.arrive(0, Asked::default(), 0);
        let tickets = [1, 2, 3].map(|whose| waits(admission.arrive(0, Asked::default(), whose)));
        assert!(admission.withdraw(tickets[0]) && admission.withdraw(tickets[2]));
        assert!(!admission.withdraw(tickets[0]));
        assert_eq!(admission.waiting(), 1);
        admission.complete(60 * MS, MS, Outcome::Abandoned);
        assert_eq!(admission.next(60 * MS), Some(Granted::Place(2)));
        assert_eq!(admission.due_ns(), None);
        assert!(!admission.withdraw(tickets[1]));
    }

    #[test]
    fn requests_whose_clients_have_gone_leave_half_of_the_places_to_others() {
        let mut admission = admission(4);
        for whose in 0..4 {
            admission.arrive(0, Asked::default(), whose);
            admission.depart(10 * MS, 10 * MS, whose);
        }
        waits(admission.arrive(20 * MS, Asked::default(), 4));
        assert_eq!((admission.next(49 * MS), admission.due_ns()), (None, Some(50 * MS)));
        for whose in [0, 1] {
            assert_eq!(admission.next(50 * MS), Some(Granted::Recall(whose)));
        }
        assert_eq!(admission.next(50 * MS), None);
        admission.complete(50 * MS, 50 * MS, Outcome::Abandoned);
        assert_eq!(admission.next(50 * MS), Some(Granted::Place(4)));
        assert_eq!((admission.next(50 * MS), admission.due_ns()), (None, None));
    }

    #[test]
    fn a_request_that_has_ended_is_not_given_up() {
        let mut admission = admission(2);
        admission.arrive(0, Asked::default(), 0);
        admission.arrive(0, Asked::default(), 1);
        let departures = [0, 1].map(|whose| admission.depart(MS, MS, whose));
        admission.end_departure(departures[0]);
        admission.complete(2 * MS, 2 * MS, Outcome::Departed);
        assert_eq!((admission.next(900 * MS), admission.in_flight()), (None, 1));
    }

    #[test]
    fn a_request_is_to_lose_its_place_once_the_limit_has_sunk_to_less_than_twice_as_many() {
        let config = UpstreamConfig { policy: "aimd", ..UpstreamConfig::default() };
        let mut admission = Admission::new(&config);
        let limit = admission.limit();
        for whose in 0..limit {
            admission.arrive(0, Asked::default(), whose);
        }
        for whose in 0..limit / 2 {
            admission.depart(10 * MS, 10 * MS, whose);
        }
        assert_eq!((admission.recall_ns(), admission.due_ns()), (None, None));
        admission.complete(20 * MS, 20 * MS, Outcome::Failed);
        assert!(admission.limit() < limit);
        let due_ns = Some(60 * MS);
        assert_eq!((admission.recall_ns(), admission.due_ns()), (due_ns, due_ns));
        assert_eq!(admission.next(60 * MS), Some(Granted::Recall(0)));
        assert_eq!((admission.next(60 * MS), admission.recall_ns()), (None, None));
    }

    #[test]
    fn dagor_is_told_of_those_that_are_sent_at_once() {
        let (limit, queue_policy) = (Limit::Count(1), "dagor");
        let config = UpstreamConfig { limit, queue_policy, ..UpstreamConfig::default() };
        let mut admission = Admission::new(&config);
        let mut users = 0..;
        let mut arrive = |admission: &mut Admission<u32>, now_ns| {
            let asked = Asked { user: users.next().unwrap(), ..Asked::default() };
            admission.arrive(now_ns, asked, 0)
        };
        // Every eleventh waits, for 30 ms: less than 3 ms on average.
        for ms in (0..900).step_by(30) {
            for _ in 0..9 {
                assert_eq!(arrive(&mut admission, ms * MS), Arrived::Granted);
                admission.complete(ms * MS, 0, Outcome::Answered);
            }
            assert_eq!(arrive(&mut admission, ms * MS), Arrived::Granted);
            waits(arrive(&mut admission, ms * MS));
            let now_ns = (ms + 30) * MS;
            admission.complete(now_ns, 30 * MS, Outcome::Answered);
            assert_eq!(admission.next(now_ns), Some(Granted::Place(0)));
            admission.complete(now_ns, 0, Outcome::Answered);
        }
        // A window later, of as many users as there are levels none is refused.
        for _ in 0..256 {
            assert_eq!(arrive(&mut admission, 1000 * MS), Arrived::Granted);
            admission.complete(1000 * MS, 0, Outcome::Answered);
        }
    }

    #[test]
    fn the_high_class_goes_first_but_for_every_eighth_place() {
        let mut admission = admission(1);
        let high = Asked { class: Class::High, ..Asked::default() };
        admission.arrive(0, high, 0);
        for _ in 0..20 {
            waits(admission.arrive(0, Asked::default(), 1));
            waits(admission.arrive(0, high, 2));
        }
        let served: Vec<u32> = (0..16)
            .map(|_| {
                admission.complete(MS, MS, Outcome::Answered);
                let Some(Granted::Place(whose)) = admission.next(MS) else { panic!("no place") };
                whose
            })
            .collect();
        assert_eq!(served.iter().filter(|whose| **whose == 1).count(), 2, "{served:?}");
        assert_eq!((served[0], served[7], served[15]), (2, 1, 1));
    }

    #[test]
    fn the_normal_class_is_refused_first_but_for_its_eighth() {
        let mut admission = admission(1);
        let high = Asked { class: Class::High, ..Asked::default() };
        admission.arrive(0, high, 0);
        waits(admission.arrive(0, high, 2));
        for _ in 0..3 {
            waits(admission.arrive(0, Asked::default(), 1));
        }
        // One every 50 ms: two within the target.
        admission.interval_ns = 50.0 * MS as f64;
        for _ in 0..2 {
            assert_eq!(admission.next(MS), Some(Granted::Refusal(1, Reason::Excess)));
        }
        assert_eq!(admission.next(MS), None);
        for _ in 0..2 {
            waits(admission.arrive(0, high, 2));
        }
        for _ in 0..2 {
            assert_eq!(admission.next(MS), Some(Granted::Refusal(2, Reason::Excess)));
        }
        assert_eq!(admission.next(MS), None);
    }
}
