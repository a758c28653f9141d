//! Uses of poll(2): to check unsure members, to check all after an overflow, and to sleep in a wait
//! with members that cannot signal. [`super`] defines which members are unsure, and proves that
//! this is enough.

use std::io;
use std::time::Duration;

use weir_sys::poll::{POLLIN, POLLOUT, POLLRDHUP, PollFd};
use weir_sys::rtsig::Notice;

use super::{NOW, Signalled, TROUBLE};
use crate::readiness::Token;
use crate::readiness::edges::Seen;
use crate::readiness::kernel::{Kernel, SignalQueue};

/// Maximum number of reads after an overflow: any signals left are outdated too, and only cost
/// work.
const DISCARDS_MAX: u32 = 1 << 14;

impl<K: Kernel> Signalled<K> {
    /// Recovers from an overflow: discards the queue, and polls all members, or begins to ask
    /// select about them. `before`: the number of members reported by earlier waits.
    pub(super) fn recover(&mut self, ready: &mut Vec<Token>, before: usize) -> io::Result<usize> {
        if !self.overflowed {
            return Ok(0);
        }
        self.discard()?;
        if self.falls_back {
            self.overflowed = false;
            self.begin_fallback();
            // Members that are reported already would be reported twice: select is next then.
            let asks = ready.len() == before;
            return Ok(if asks { self.ask_fallback(ready)?.unwrap_or(0) } else { 0 });
        }
        self.doubt_all();
        let (polled, found) = self.poll_members(true, ready)?;
        self.counts.swept += polled;
        self.overflowed = false;
        Ok(found)
    }

    fn discard(&mut self) -> io::Result<()> {
        let mut notices = Vec::new();
        for _ in 0..DISCARDS_MAX {
            notices.clear();
            self.queue.take_many(&mut notices, NOW)?;
            self.count_taken(notices.len());
            let overflows = notices.iter().filter(|notice| **notice == Notice::Overflow).count();
            self.counts.overflows += overflows as u64;
            self.counts.notices += (notices.len() - overflows) as u64;
            self.counts.discarded += (notices.len() - overflows) as u64;
            if notices.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Polls the unsure members, and those that cannot signal if `with_mute`. Returns the number of
    /// members ready for something.
    pub(super) fn check(&mut self, with_mute: bool, ready: &mut Vec<Token>) -> io::Result<usize> {
        let (polled, found) = self.poll_members(with_mute, ready)?;
        self.counts.checked += polled;
        Ok(found)
    }

    /// Calls poll(2) once. Returns the number of unsure members polled, and the number of all
    /// members that were ready for something.
    fn poll_members(
        &mut self,
        with_mute: bool,
        ready: &mut Vec<Token>,
    ) -> io::Result<(u64, usize)> {
        self.collect_unsure();
        let listed = self.polled.len();
        if with_mute {
            self.collect_mute();
        }
        if self.polled.is_empty() {
            return Ok((0, 0));
        }
        let found = K::poll(&mut self.polled, NOW).inspect_err(|_| {
            // They are still unsure.
            (0..listed).for_each(|index| self.list(self.polled_tokens[index]));
        })?;
        for index in 0..self.polled.len() {
            let (token, revents) = (self.polled_tokens[index], self.polled[index].revents);
            self.handle_result(token, revents, ready);
        }
        Ok((listed as u64, found))
    }

    /// Collects the unsure members. Those known to be ready leave the list until they no longer
    /// are; level-triggered members reported in this wait stay in it for the next.
    fn collect_unsure(&mut self) {
        self.polled.clear();
        self.polled_tokens.clear();
        let now = self.waits;
        let mut unsure = std::mem::take(&mut self.unsure);
        unsure.retain(|&token| {
            let is_ready = self.edges.is_ready(token);
            let Some(member) = self.member(token) else { return false };
            let due = member.unsure && member.waits() && !is_ready;
            let keep = due && member.level && member.reported_at == now;
            member.listed = keep;
            if due && !keep {
                let entry = member.poll_fd();
                self.polled.push(entry);
                self.polled_tokens.push(token);
            }
            keep
        });
        self.unsure = unsure;
    }

    fn collect_mute(&mut self) {
        for index in 0..self.mute.len() {
            let token = self.mute[index];
            let Some(member) = self.member(token).filter(|member| member.waits()) else { continue };
            let entry = member.poll_fd();
            self.polled.push(entry);
            self.polled_tokens.push(token);
        }
    }

    /// Processes the poll(2) result of a member.
    fn handle_result(&mut self, token: Token, revents: i16, ready: &mut Vec<Token>) {
        let Some(member) = self.member(token) else { return };
        let doubted = std::mem::take(&mut member.doubted);
        member.unsure = false;
        member.read_notices = u8::from(revents & POLLIN != 0);
        let level = member.level;
        if doubted != 0 && revents & (doubted | TROUBLE) == 0 {
            self.counts.stale += 1;
        }
        if !level {
            let seen = Seen {
                read: revents & POLLIN != 0,
                write: revents & POLLOUT != 0,
                end: revents & POLLRDHUP != 0,
                trouble: revents & TROUBLE != 0,
            };
            self.edges.learn(token, seen, ready);
        } else if revents != 0 {
            self.report(token, ready);
        }
    }

    /// Sleeps until a signal is queued, or a member that cannot signal is ready. Returns whether a
    /// signal is queued, and the number of such members ready.
    pub(super) fn sleep(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<Token>,
    ) -> io::Result<(bool, usize)> {
        self.polled.clear();
        self.polled_tokens.clear();
        self.collect_mute();
        self.polled.push(PollFd { fd: self.queue.poll_fd(), events: POLLIN, revents: 0 });
        let found = K::poll(&mut self.polled, timeout)?;
        for index in 0..self.polled_tokens.len() {
            let revents = self.polled[index].revents;
            if revents != 0 {
                self.report(self.polled_tokens[index], ready);
            }
        }
        let signalled = self.polled.last().is_some_and(|queue| queue.revents != 0);
        Ok((signalled, found - usize::from(signalled)))
    }
}
