//! A caller that keeps the readiness contract to the letter and does everything it allows, at
//! random, with a mechanism on the fake kernel; and the contract's guarantees, checked at every
//! wait.
//!
//! Independent of mechanisms and of the kernel's families of calls: it uses only the true state of
//! each file.

mod caller;

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use super::super::fake::{
    Descriptor, ERR, HUP, IN, Kind, OUT, PeerAction, SeededRng, Sleep, World, world,
};
use super::super::settings::Settings;
use super::super::{Interest, Mechanism, Token};

const SLOTS: usize = 6;
/// Number of waits in which all ready members must have been reported, once nothing is held back:
/// more than the fake kernel can have queued, for a mechanism that takes one notice per wait.
const SETTLE_WAITS: usize = 100;
/// Number of waits after which nothing is reported any more, once nothing is ready, and number of
/// those at the end that must report nothing.
const CALM_WAITS: usize = 100;
const CALM_AT_LAST: usize = 4;
/// Interests of a connection.
const STREAM_INTERESTS: [Interest; 4] =
    [Interest::Read, Interest::Write, Interest::Either, Interest::Nothing];
/// More than any buffer of the fake kernel.
const ALL: usize = 64;

const NOW: Option<Duration> = Some(Duration::ZERO);
const LONG: Option<Duration> = Some(Duration::from_secs(3600));

/// Error that describes a broken guarantee.
pub(super) type Promise = Result<(), String>;

/// A random history of a mechanism.
pub(super) struct Model<M> {
    mechanism: M,
    rng: SeededRng,
    members: [Option<Member>; SLOTS],
    generations: [u32; SLOTS],
    ready: Vec<Token>,
    /// True to print each step.
    told: bool,
}

#[derive(Clone)]
struct Member {
    descriptor: Descriptor,
    token: Token,
    kind: Kind,
    interest: Interest,
    /// True if the end was read, or our own side was ended: neither is waited for again.
    no_read: bool,
    no_write: bool,
    reported: bool,
}

impl Member {
    fn number(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    fn is_ready(&self) -> bool {
        let wanted = match self.interest {
            Interest::Nothing => return false,
            Interest::Read | Interest::Accept => IN,
            Interest::Write => OUT,
            Interest::Either => IN | OUT,
        };
        world(|w| w.bits(self.number())) & (wanted | ERR | HUP) != 0
    }
}

impl<M: Mechanism> Model<M> {
    /// Creates an empty interest set in a new world.
    pub(super) fn new(settings: &Settings, seed: u64, told: bool) -> Self {
        World::begin(seed);
        Self {
            mechanism: M::open(settings).unwrap(),
            rng: SeededRng::new(!seed),
            members: [const { None }; SLOTS],
            generations: [0; SLOTS],
            ready: Vec::new(),
            told,
        }
    }

    /// Runs a whole history: `steps` random steps, after which everything comes to rest and wakes
    /// once more.
    pub(super) fn live(&mut self, steps: usize) -> Promise {
        for _ in 0..steps {
            self.step()?;
        }
        self.settle()?;
        self.calm()?;
        for slot in 0..SLOTS {
            self.happen(slot);
        }
        self.settle()
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.told {
            println!("  {}", what());
        }
    }

    fn step(&mut self) -> Promise {
        let slot = self.rng.below(SLOTS);
        match self.rng.below(32) {
            0..6 => self.add(slot),
            6..9 => self.change(slot),
            9..11 => self.remove(slot),
            11..20 => self.happen(slot),
            20..22 => self.use_it(slot),
            22..31 => return self.wait(),
            _ => {
                self.settle()?;
                world(|w| w.honest = false);
            }
        }
        Ok(())
    }

    fn add(&mut self, slot: usize) {
        if self.members[slot].is_some() {
            return;
        }
        let kind = self.rng.pick(&[Kind::Stream, Kind::Stream, Kind::Listener, Kind::Waker]);
        let descriptor = world(|w| w.open(kind));
        self.live_unwatched(descriptor.as_raw_fd(), kind);
        self.generations[slot] += 1 + u32::from(self.rng.one_in(4));
        let token = Token { slot: slot as u32, generation: self.generations[slot] };
        let interest = match kind {
            Kind::Stream => self.rng.pick(&STREAM_INTERESTS),
            _ => Interest::Accept,
        };
        self.tell(|| format!("add {kind:?} {} as {token:?}: {interest:?}", descriptor.as_raw_fd()));
        if let Err(error) = self.mechanism.add(descriptor.as_fd(), token, interest) {
            self.tell(|| format!("-> {error}"));
            world(|w| w.close(descriptor.as_raw_fd(), false));
            return;
        }
        let (no_read, no_write, reported) = (false, kind != Kind::Stream, false);
        let member = Member { descriptor, token, kind, interest, no_read, no_write, reported };
        self.members[slot] = Some(member);
    }

    /// Lets a connection live a while before it first has to wait.
    fn live_unwatched(&mut self, number: RawFd, kind: Kind) {
        for _ in 0..self.rng.below(4) {
            if kind == Kind::Stream && self.rng.one_in(4) {
                let put = world(|w| w.put(number, ALL));
                self.tell(|| format!("fill {number}: {put:?}"));
            } else {
                self.befall(number, kind);
            }
        }
    }

    /// Applies a random external event to a descriptor.
    fn befall(&mut self, number: RawFd, kind: Kind) {
        let some = 1 + self.rng.below(5);
        let happening = match (kind, self.rng.below(16)) {
            (Kind::Stream, 0) => PeerAction::End,
            (Kind::Stream, 1) => PeerAction::HangUp,
            (Kind::Stream, 2) => PeerAction::Reset,
            (Kind::Stream, 3..9) => PeerAction::Drain(some),
            _ => PeerAction::Arrival(some),
        };
        self.tell(|| format!("{number}: {happening:?}"));
        world(|w| w.happen(number, happening));
    }

    fn happen(&mut self, slot: usize) {
        if let Some(member) = &self.members[slot] {
            self.befall(member.number(), member.kind);
        }
    }

    fn change(&mut self, slot: usize) {
        let Some(member) = &self.members[slot] else { return };
        let choices: &[Interest] = match (member.kind, member.no_read, member.no_write) {
            (Kind::Listener | Kind::Waker, ..) => &[Interest::Accept, Interest::Nothing],
            (_, false, false) => &STREAM_INTERESTS,
            (_, false, true) => &[Interest::Read, Interest::Nothing],
            (_, true, false) => &[Interest::Write, Interest::Nothing],
            (_, true, true) => &[Interest::Nothing],
        };
        let interest = self.rng.pick(choices);
        self.change_to(slot, interest);
    }

    fn change_to(&mut self, slot: usize, interest: Interest) {
        let Some(member) = self.members[slot].clone() else { return };
        self.tell(|| format!("change {:?} to {interest:?}", member.token));
        let changed = self.mechanism.change(member.descriptor.as_fd(), member.token, interest);
        if let Err(error) = changed {
            self.tell(|| format!("-> {error}"));
            return self.remove(slot);
        }
        if let Some(member) = &mut self.members[slot] {
            member.interest = interest;
        }
    }

    fn remove(&mut self, slot: usize) {
        let Some(member) = self.members[slot].take() else { return };
        // A listening socket may be open in another process too, and continue.
        let held = member.kind == Kind::Listener && self.rng.one_in(2);
        self.tell(|| format!("remove and close {} {:?}", member.number(), member.token));
        let _ = self.mechanism.remove(member.descriptor.as_fd(), member.token);
        let left = world(|w| w.close(member.number(), held));
        if let Some(file) = left {
            world(|w| w.happen_to_file(file, PeerAction::Arrival(1)));
        }
    }

    fn wait(&mut self) -> Promise {
        let timeout = self.rng.pick(&[NOW, NOW, LONG, None]);
        self.wait_for(timeout)?;
        let mut batch = std::mem::take(&mut self.ready);
        self.rng.shuffle(&mut batch);
        for token in batch {
            let slot = token.slot as usize;
            let present = self.members[slot].as_ref().is_some_and(|m| m.token == token);
            // A caller may put a member off, and others' turns may change anything meanwhile.
            if present && !self.rng.one_in(4) {
                self.use_it(slot);
            }
            if self.rng.one_in(8) {
                let other = self.rng.below(SLOTS);
                self.remove(other);
                self.add(other);
            }
        }
        Ok(())
    }

    /// Waits once, and checks the guarantees of every wait.
    fn wait_for(&mut self, timeout: Option<Duration>) -> Promise {
        self.ready.clear();
        world(World::take_slept);
        let waited = self.mechanism.wait(timeout, &mut self.ready);
        let slept = world(World::take_slept);
        self.tell(|| format!("wait {timeout:?}: {waited:?}, {:?}, slept: {slept:?}", self.ready));
        waited.map_err(|error| format!("a wait failed: {error}"))?;
        for index in 0..self.ready.len() {
            self.check(index)?;
        }
        if slept.is_some() && timeout == NOW {
            return Err("it slept though it was told not to".to_owned());
        }
        let lost = self.members.iter().flatten().find(|member| member.is_ready());
        match lost {
            Some(Member { token, .. }) if slept == Some(Sleep::Deep) => {
                Err(format!("LOST EVENT: asleep, but ready: {token:?}"))
            }
            _ => Ok(()),
        }
    }

    fn check(&mut self, index: usize) -> Promise {
        let token = self.ready[index];
        if self.ready[..index].contains(&token) {
            return Err(format!("reported twice in one wait: {token:?}"));
        }
        let member = self.members.get_mut(token.slot as usize).and_then(Option::as_mut);
        match member {
            Some(member) if member.token == token && member.interest != Interest::Nothing => {
                member.reported = true;
                Ok(())
            }
            Some(member) if member.token == token => {
                Err(format!("reported, though it waits for nothing: {token:?}"))
            }
            _ => Err(format!("reported, though it has gone: {token:?}")),
        }
    }

    /// Checks that, with nothing held back, all ready members are reported before long.
    fn settle(&mut self) -> Promise {
        self.tell(|| "settle".to_owned());
        world(|w| w.honest = true);
        self.members.iter_mut().flatten().for_each(|member| member.reported = false);
        for _ in 0..SETTLE_WAITS {
            let mut members = self.members.iter().flatten();
            if members.all(|member| member.reported || !member.is_ready()) {
                return self.wait_for(None);
            }
            self.wait_for(None)?;
        }
        let unheard = self.members.iter().flatten().find(|m| !m.reported && m.is_ready());
        Err(format!("NEVER REPORTED, but ready: {:?}", unheard.map(|member| member.token)))
    }

    /// Checks that, when no member is ready and `blocked` was called for all, reports cease before
    /// long.
    fn calm(&mut self) -> Promise {
        self.tell(|| "calm".to_owned());
        for slot in 0..SLOTS {
            self.exhaust(slot);
        }
        for round in 0..CALM_WAITS {
            self.wait_for(NOW)?;
            if round + CALM_AT_LAST >= CALM_WAITS && !self.ready.is_empty() {
                return Err(format!("nobody is ready, yet reported: {:?}", self.ready));
            }
            // Each reported member is tried, and blocks.
            for index in 0..self.ready.len() {
                self.exhaust(self.ready[index].slot as usize);
            }
        }
        self.wait_for(None)
    }
}
