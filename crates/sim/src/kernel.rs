//! The two queues of a listening socket, by the rules of Linux 6.12 to 6.18: the outcome of a SYN
//! and of the ACK that ends the handshake. Has no clock.
//!
//! From `tcp_conn_request`, `tcp_check_req` and `tcp_v4_syn_recv_sock`. Both queues are tested with
//! `>`, so that each holds one more than the backlog.

use std::collections::VecDeque;

use crate::connections::Token;
use crate::rules::Rules;
use crate::statistics::Drops;

/// The reason for dropping a packet, in the papers' terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Dropped by the SYN filter, before anything else is examined.
    Filter,
    /// The SYN queue is full and cookies are off: TCPReqQFullDrop.
    SynQFull,
    /// The accept queue is full at the SYN: ListenOverflows.
    AcceptQFull,
    /// The last quarter of the SYN queue is reserved: ListenDrops only.
    DropRequest,
    /// The accept queue is full at the third ACK: ListenOverflows.
    ListenOverflow,
}

/// Outcome of a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syn {
    /// Queued in the SYN queue and answered.
    Queued,
    /// Answered with a cookie; no state is kept.
    Cookie,
    /// Dropped.
    Dropped(Reason),
}

/// A listening socket with the kernel's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    /// The backlog passed to listen(2). A change takes effect at once; queued connections stay.
    pub backlog: u32,
    /// Number of requests in the SYN queue.
    pub syn_queue: u32,
    /// Requests in the SYN queue whose SYN-ACK has not been retransmitted.
    pub young: u32,
    /// The accept queue.
    pub(crate) accept_queue: VecDeque<Token>,
    /// `sk_drops`: all drops, modulo 2³².
    pub drops: u32,
    /// The kernel's counters; it has none for drops by the filter.
    pub counts: Drops,
}

impl Listener {
    /// Returns the number of connections in the accept queue.
    pub fn queued(&self) -> u32 {
        self.accept_queue.len() as u32
    }

    /// Handles a SYN; `filtered` is true if the socket's filter drops it.
    pub fn syn(&mut self, rules: &Rules, filtered: bool) -> Syn {
        if filtered {
            return self.drop(Reason::Filter);
        }
        let cookie = self.syn_queue > self.backlog;
        if cookie && !rules.syncookies {
            return self.drop(Reason::SynQFull);
        }
        if cookie {
            self.counts.cookies += 1;
        }
        if self.is_full() {
            return self.drop(Reason::AcceptQFull);
        }
        if cookie {
            return Syn::Cookie;
        }
        if !rules.syncookies && !rules.peers_proven && self.is_last_quarter(rules) {
            return self.drop(Reason::DropRequest);
        }
        self.syn_queue += 1;
        self.young += 1;
        Syn::Queued
    }

    /// Handles the third ACK; returns whether the connection is now in the accept queue. Its
    /// request stays in the SYN queue: after success the caller removes it with
    /// [`Listener::forget`].
    pub(crate) fn establish(&mut self, token: Token) -> bool {
        if self.is_full() {
            self.drop(Reason::ListenOverflow);
            return false;
        }
        self.accept_queue.push_back(token);
        true
    }

    /// Removes a request from the SYN queue.
    pub fn forget(&mut self, young: bool) {
        self.syn_queue -= 1;
        self.young -= u32::from(young);
    }

    /// Returns how often a SYN-ACK is retransmitted before its request is discarded: fewer times
    /// while the queue is more than half full of old requests (`reqsk_timer_handler`).
    pub fn synack_retries(&self, rules: &Rules) -> u8 {
        let mut retries = rules.synack_retries;
        if self.syn_queue * 2 > self.backlog.max(8) {
            let mut young = self.young * 2;
            while retries > 2 && self.syn_queue >= young {
                retries -= 1;
                young = young.saturating_mul(2);
            }
        }
        retries
    }

    fn is_full(&self) -> bool {
        self.queued() > self.backlog
    }

    fn is_last_quarter(&self, rules: &Rules) -> bool {
        rules.max_syn_backlog.saturating_sub(self.syn_queue) < rules.max_syn_backlog >> 2
    }

    fn drop(&mut self, why: Reason) -> Syn {
        self.drops = self.drops.wrapping_add(1);
        let counts = &mut self.counts;
        match why {
            Reason::Filter => counts.filtered += 1,
            Reason::SynQFull => counts.request_queue_full_drops += 1,
            Reason::AcceptQFull => counts.overflows += 1,
            Reason::DropRequest => {}
            Reason::ListenOverflow => {
                counts.overflows += 1;
                counts.overflows_ack += 1;
            }
        }
        counts.listen_drops += u64::from(why != Reason::Filter);
        Syn::Dropped(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIES: Rules = Rules {
        syncookies: true,
        max_syn_backlog: 4096,
        peers_proven: false,
        synack_retries: 5,
        syn_retries: 6,
        syn_linear_timeouts: 4,
    };
    const NO_COOKIES: Rules = Rules { syncookies: false, ..COOKIES };

    fn with(backlog: u32, syn_queue: u32, accepted: u32) -> Listener {
        let accept_queue = (0..accepted).map(Token::first).collect();
        Listener { backlog, syn_queue, young: syn_queue, accept_queue, ..Listener::default() }
    }

    /// `[sk_drops, ListenOverflows, ListenDrops, TCPReqQFullDrop, TCPReqQFullDoCookies]`
    fn counts(listener: &Listener) -> [u64; 5] {
        let Drops { overflows, listen_drops, request_queue_full_drops, cookies, .. } =
            listener.counts;
        [listener.drops.into(), overflows, listen_drops, request_queue_full_drops, cookies]
    }

    #[test]
    fn each_queue_holds_one_more_than_the_backlog() {
        let mut listener = with(2, 0, 0);
        let taken = (0..5).filter(|n| listener.establish(Token::first(*n))).count();
        assert_eq!(taken, 3);
        let mut listener = with(2, 0, 0);
        let queued = (0..5).filter(|_| listener.syn(&NO_COOKIES, false) == Syn::Queued).count();
        assert_eq!(queued, 3);
    }

    #[test]
    fn a_full_syn_queue_without_cookies_drops() {
        let mut listener = with(2, 3, 0);
        assert_eq!(listener.syn(&NO_COOKIES, false), Syn::Dropped(Reason::SynQFull));
        assert_eq!(counts(&listener), [1, 0, 1, 1, 0]);
    }

    #[test]
    fn a_full_syn_queue_with_cookies_drops_nothing() {
        let mut listener = with(2, 3, 0);
        assert_eq!(listener.syn(&COOKIES, false), Syn::Cookie);
        assert_eq!(counts(&listener), [0, 0, 0, 0, 1]);
        assert_eq!(listener.syn_queue, 3);
    }

    #[test]
    fn a_full_accept_queue_drops_the_request_cookies_or_not() {
        for rules in [COOKIES, NO_COOKIES] {
            let mut listener = with(2, 0, 3);
            assert_eq!(listener.syn(&rules, false), Syn::Dropped(Reason::AcceptQFull));
            assert_eq!(counts(&listener), [1, 1, 1, 0, 0]);
        }
    }

    #[test]
    fn the_last_quarter_is_for_proven_peers_unless_there_are_cookies() {
        let full = with(8192, 3073, 0);
        let mut listener = full.clone();
        assert_eq!(listener.syn(&NO_COOKIES, false), Syn::Dropped(Reason::DropRequest));
        assert_eq!(counts(&listener), [1, 0, 1, 0, 0]);
        let proven = Rules { peers_proven: true, ..NO_COOKIES };
        assert_eq!(full.clone().syn(&proven, false), Syn::Queued);
        assert_eq!(full.clone().syn(&COOKIES, false), Syn::Queued);
        assert_eq!(with(8192, 3072, 0).syn(&NO_COOKIES, false), Syn::Queued);
    }

    #[test]
    fn a_full_accept_queue_drops_the_third_ack() {
        let mut listener = with(2, 1, 3);
        assert!(!listener.establish(Token::first(9)));
        assert_eq!(counts(&listener), [1, 1, 1, 0, 0]);
        assert_eq!((listener.counts.overflows_ack, listener.syn_queue), (1, 1));
    }

    #[test]
    fn the_filter_moves_no_counter_but_the_sockets() {
        let mut listener = with(2, 3, 3);
        assert_eq!(listener.syn(&NO_COOKIES, true), Syn::Dropped(Reason::Filter));
        assert_eq!(counts(&listener), [1, 0, 0, 0, 0]);
        assert_eq!(listener.counts.filtered, 1);
    }

    #[test]
    fn listening_again_resizes_at_once_and_keeps_what_is_queued() {
        let mut listener = with(100, 0, 50);
        listener.backlog = 10;
        assert_eq!(listener.queued(), 50);
        assert!(!listener.establish(Token::first(99)));
        listener.backlog = 50;
        assert!(listener.establish(Token::first(99)));
    }

    #[test]
    fn old_requests_are_kept_for_a_shorter_time_while_the_queue_is_half_full() {
        let old = |syn_queue| Listener { young: 0, ..with(64, syn_queue, 0) };
        assert_eq!(old(32).synack_retries(&COOKIES), 5);
        assert_eq!(old(33).synack_retries(&COOKIES), 2);
        assert_eq!(with(64, 60, 0).synack_retries(&COOKIES), 5);
    }
}
