//! A connection's turn: its thread's work with the group, and what it waits for afterwards. Knows
//! neither how the connection was accepted nor how its thread waits.

use std::os::fd::AsRawFd;
use std::time::Duration;

use weir_dispatch::readiness::{Interest, Token};
use weir_sys::poll::{POLLIN, POLLOUT};
use weir_sys::socket;

use super::group::Group;
use super::wait::{News, Rest, Wait};
use crate::arch::Architecture;
use crate::arch::accepting::Accepting;
use crate::conn::Want;
use crate::link::Next;

impl Group {
    /// Gives a connection its turn: it makes what progress it can without waiting. Returns what it
    /// does next.
    pub(crate) fn take_turn(&mut self, token: Token, news: News) -> Rest {
        self.note_turn(news);
        self.fresh.remove(&token);
        if !self.floor.table.is_current(token) {
            self.let_go(token);
            return Rest::Gone;
        }
        self.turn = Some(token.slot);
        if let Some(link) = self.floor.table.conn(token.slot) {
            link.registered = None;
        }
        let serves = match news {
            News::First | News::Ready | News::Fetched => self.is_worth_serving(token),
            News::Resumed => true,
            News::Tried | News::Late => false,
        };
        if serves {
            self.serve(token.slot);
        }
        let rest = self.rest_of(token);
        self.turn = None;
        self.call_timekeeper();
        rest
    }

    /// Counts a turn, and the wait before it, for one descriptor, as a getevents-phase.
    fn note_turn(&mut self, news: News) {
        let counters = &mut self.floor.service.counters;
        counters.getevents_calls.add(matches!(news, News::Ready | News::Late).into());
        counters.getevents_ready.add((news == News::Ready).into());
        self.turns += 1;
    }

    /// Returns what the connection does after its turn, once its deadline has been handled.
    fn rest_of(&mut self, token: Token) -> Rest {
        let now_ns = self.floor.service.now_ns();
        self.expire_if_late(token, now_ns);
        if !self.floor.table.is_current(token) {
            return Rest::Gone;
        }
        let Some(link) = self.floor.table.conn(token.slot) else { return Rest::Gone };
        if let Some(fetch) = link.fetch() {
            return Rest::Fetch(fetch);
        }
        if link.want() == Want::Yield {
            return Rest::Yield;
        }
        let writes = link.want() == Want::Write;
        // After a whole turn's worth it was not asked whether there is room for more.
        if let Some(output) = link.output().filter(|_| writes) {
            output.full_since_ns.get_or_insert(now_ns);
        }
        let (interest, events) =
            if writes { (Interest::Write, POLLOUT) } else { (Interest::Read, POLLIN) };
        link.registered = Some(interest);
        let left_ns = link.deadline_ns().saturating_sub(now_ns);
        let timeout = (link.deadline_ns() < u64::MAX).then(|| Duration::from_nanos(left_ns));
        Rest::Wait(Wait::new(link.fd().as_raw_fd(), events, timeout))
    }

    fn expire_if_late(&mut self, token: Token, now_ns: u64) {
        if !self.floor.table.is_current(token) {
            return;
        }
        let Some(link) = self.floor.table.conn(token.slot) else { return };
        let is_late = link.deadline_ns() <= now_ns;
        if is_late && link.expire(&mut self.floor.service) == Next::Close {
            self.close(token.slot);
        }
    }

    /// Closes the socket of a connection that was closed while its thread waited.
    fn let_go(&mut self, token: Token) {
        if let Some(fd) = self.estate.remove(&token) {
            socket::close(fd);
        }
    }
}
