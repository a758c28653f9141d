//! From a request to the cache of replies: whether it is answered there, waits for the reply to
//! another, or goes to the upstream, and what the cache then does with the reply.

use std::sync::Arc;

use weir_cache::{Found, Joined, RequestControl, Resource, Reuse, Stored, reuse};
use weir_dispatch::readiness::Token;
use weir_http1::{Framing, Method, Request, Target, forward};

use super::background;
use super::course::{Course, told};
use super::head_fields::Head;
use crate::context::WorkerContext;
use crate::context::forwarded::{CachePart, Why};
use crate::upstream::shared::{Brought, Landing};

/// Result of asking the cache about a request.
#[derive(Debug)]
pub(super) enum Consulted {
    /// A stored reply answers it. What Cache-Status says.
    Stored(Arc<Stored>, &'static str),
    /// It is forwarded.
    Forward(Option<Box<CachePart>>),
    /// It waits for the reply to another.
    Wait(Wait),
    /// The client wants a stored reply only, and there is none.
    NotCached,
    /// Replies to earlier requests are to be sent first; then the cache is asked again.
    Later,
}

/// A wait for the reply to another request.
#[derive(Debug)]
pub(crate) struct Wait {
    key: Box<[u8]>,
    client: Token,
    serial: u64,
    /// The end of the wait.
    pub landing: Option<Landing>,
    /// Time at which the client last sent anything, or its request was complete, nanoseconds.
    pub received_ns: u64,
    /// True once the client has ended its side, and waits for the reply.
    pub has_client_ended: bool,
}

impl Wait {
    /// Records the end of the wait; returns false if it was another request that waited.
    pub(crate) fn end(&mut self, landing: Landing) -> bool {
        let is_it = self.serial == landing.serial && self.landing.is_none();
        if is_it {
            self.landing = Some(landing);
        }
        is_it
    }

    /// Gives up the wait, because the connection is closed.
    pub(super) fn leave(self, context: &WorkerContext) {
        if let (None, Some(upstreams)) = (self.landing, &context.upstreams) {
            upstreams.leave(&self.key, self.client, self.serial);
        }
    }
}

/// What a request says to a cache, read in one pass over its head.
#[derive(Default)]
struct Asks {
    control: RequestControl,
    is_authorized: bool,
    upgrades: bool,
    /// True if the origin is not sent some of its fields, because Connection names them.
    keeps_fields: bool,
}

impl Asks {
    fn of(head: &[u8]) -> Self {
        let mut asks = Self::default();
        let (mut has_control, mut pragma) = (false, None);
        for (name, value) in forward::lines(head) {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            match name.len() {
                6 if is(b"pragma") => pragma = Some(value),
                7 if is(b"upgrade") => asks.upgrades = true,
                10 if is(b"connection") => {
                    asks.keeps_fields = asks.keeps_fields || forward::keeps_fields(head, value);
                }
                13 if is(b"cache-control") => {
                    has_control = true;
                    asks.control.add(value);
                }
                13 if is(b"authorization") => asks.is_authorized = true,
                _ => {}
            }
        }
        if let Some(value) = pragma.filter(|_| !has_control) {
            asks.control.add_pragma(value);
        }
        asks
    }

    /// Returns whether the reply is not for the cache. To a request some of whose fields end here
    /// the reply is not what it would be to one that looks the same (RFC 9111 section 4.1).
    fn is_for_origin(&self) -> bool {
        self.upgrades || self.control.no_store || self.keeps_fields
    }
}

/// A request that the cache is asked about.
struct Asked<'r, 'b> {
    request: &'r Request<'b>,
    head: Head<'b>,
    course: Course,
    key: &'r [u8],
    asks: Asks,
    /// The end of its wait for another, if it has waited.
    landing: Option<Landing>,
}

/// Asks the cache about a request to an upstream. `landing`: the end of its wait for the reply to
/// another. `may_act`: it may be forwarded, or wait, now.
pub(super) fn consult(
    request: &Request<'_>,
    head: &[u8],
    course: Course,
    landing: Option<Landing>,
    may_act: bool,
    context: &mut WorkerContext,
) -> Consulted {
    let Target::Path { path, query } = request.target else { return Consulted::Forward(None) };
    if context.upstreams.as_ref().is_none_or(|upstreams| upstreams.cache().is_none()) {
        return Consulted::Forward(None);
    }
    let mut key = std::mem::take(&mut context.cache_key);
    let Course { upstream, is_tls, peer } = course;
    // The upstream is told that it is https where the target says so (RFC 9110 section 4.2.2).
    let is_tls = is_tls || request.is_https;
    let (asks, head) =
        (Asks::of(head), Head { head, is_trusted: context.config.trusts_peer(peer) });
    let (host, told) = (request.host.unwrap_or_default(), &told(&head));
    Resource { upstream, is_tls, host, told, path, query }.write_key(&mut key);
    let asked = Asked { request, head, course, key: &key, asks, landing };
    let consulted = asked.consult(may_act, context);
    context.cache_key = key;
    consulted
}

impl Asked<'_, '_> {
    fn consult(&self, may_act: bool, context: &mut WorkerContext) -> Consulted {
        if let Some(why) = self.passes() {
            return if may_act { self.forward(why, false, None) } else { Consulted::Later };
        }
        let unix_ns = context.unix_ns();
        let cache = context.upstreams.as_ref().and_then(|upstreams| upstreams.cache());
        let found = cache.map_or(Found::Nothing, |cache| cache.find(self.key, &self.head, unix_ns));
        let (why, stale) = match found {
            Found::Stored(stored) => match self.reuse(&stored, unix_ns) {
                Reuse::Send => return self.send(stored, context),
                // Without its client nothing is asked that is for it alone.
                Reuse::SendAndValidate if self.asks.is_authorized => (Why::Stale, Some(stored)),
                Reuse::SendAndValidate if may_act => {
                    return self.send_and_validate(stored, context);
                }
                Reuse::SendAndValidate => return Consulted::Later,
                Reuse::Validate => (Why::Stale, Some(stored)),
                Reuse::Requested => (Why::Request, Some(stored)),
            },
            Found::OtherVariants => (Why::VaryMiss, None),
            Found::Nothing => (Why::UriMiss, None),
            // The stale one may stand in, unless the client wants none.
            Found::Pass(stored) => {
                let is_wanted =
                    |stale: &Arc<Stored>| self.reuse(stale, unix_ns) != Reuse::Requested;
                (Why::Bypass, stored.filter(is_wanted))
            }
        };
        match () {
            () if !may_act => Consulted::Later,
            () if self.asks.control.only_if_cached => Consulted::NotCached,
            () if why == Why::Bypass => self.forward(why, false, stale),
            () => self.ask_origin(why, stale, context),
        }
    }

    /// Returns the reason for which the cache neither answers it nor stores the reply.
    fn passes(&self) -> Option<Why> {
        let request = self.request;
        let is_known = matches!(request.method, Method::Get | Method::Head);
        // The preconditions are for the origin to evaluate (RFC 9111 section 4.3.2).
        let is_for_origin = !(request.if_match.is_empty() && request.if_unmodified_since.is_none());
        let has_content = request.framing != Framing::None;
        if !is_known {
            Some(Why::Method)
        } else if is_for_origin || has_content || self.asks.is_for_origin() {
            Some(Why::Bypass)
        } else {
            None
        }
    }

    /// Decides about a stored reply. A client that has waited for a request which was not answered
    /// takes a stale one, unless that forbids it: the origin is away (RFC 9111 section 4.2.4). What
    /// was stale when it arrived is validated for each, and if the reply was for another only, what
    /// is stored is of before it.
    fn reuse(&self, stored: &Stored, unix_ns: u64) -> Reuse {
        let takes_stale = self.landing.is_some_and(|landing| landing.brought == Brought::Nothing);
        match reuse(stored, &self.asks.control, unix_ns) {
            Reuse::Validate if takes_stale && stored.replaces_absence(unix_ns) => Reuse::Send,
            decided => decided,
        }
    }

    fn send(&self, stored: Arc<Stored>, context: &mut WorkerContext) -> Consulted {
        if self.landing.is_some_and(|landing| landing.brought == Brought::Stored) {
            return Consulted::Stored(stored, "fwd=miss; collapsed");
        }
        if stored.is_fresh(context.unix_ns()) {
            context.counters.proxy_cache_hits.one();
        } else {
            context.counters.proxy_cache_stale.one();
        }
        Consulted::Stored(stored, "hit")
    }

    /// Sends a stale reply, and has it validated without the client.
    fn send_and_validate(&self, stored: Arc<Stored>, context: &mut WorkerContext) -> Consulted {
        context.counters.proxy_cache_stale.one();
        self.ask_in_background(Why::Stale, Some(Arc::clone(&stored)), context);
        Consulted::Stored(stored, "hit; detail=stale-while-revalidate")
    }

    /// Has it forwarded, or wait for another that was.
    fn ask_origin(
        &self,
        why: Why,
        stale: Option<Arc<Stored>>,
        context: &mut WorkerContext,
    ) -> Consulted {
        context.counters.proxy_cache_misses.one();
        if self.request.method == Method::Head {
            return self.forward(why, false, stale);
        }
        // What is for one client may not be the reply for another; and who wants a new one wants
        // none that was under way.
        let goes_alone = self.landing.is_some() || self.asks.is_authorized || why == Why::Request;
        let is_part = self.request.range.is_some() && stale.is_none();
        if goes_alone {
            // Of a part nothing could be stored.
            let mut part = self.part(why, !is_part, stale);
            let cache = context.upstreams.as_ref().and_then(|upstreams| upstreams.cache());
            part.flight = cache.filter(|_| !is_part).map(|cache| cache.lead_alone(self.key));
            return Consulted::Forward(Some(Box::new(part)));
        }
        if is_part {
            self.ask_in_background(why, None, context);
        }
        let (client, serial) = (context.serving, next_serial(context));
        let upstreams = context.upstreams.as_mut();
        let joined = upstreams.and_then(|all| all.join(self.key, &self.head, client, serial));
        match joined {
            Some(Joined::Follows) => {
                context.counters.proxy_cache_collapsed.one();
                let key = self.key.into();
                Consulted::Wait(Wait {
                    key,
                    client,
                    serial,
                    landing: None,
                    received_ns: context.now_ns(),
                    has_client_ended: false,
                })
            }
            Some(Joined::Leads(flight)) => {
                let mut part = self.part(why, true, stale);
                part.flight = Some(flight);
                Consulted::Forward(Some(Box::new(part)))
            }
            None => Consulted::Forward(None),
        }
    }

    /// Forwards it without a client, unless one like it is under way.
    fn ask_in_background(&self, why: Why, stale: Option<Arc<Stored>>, context: &mut WorkerContext) {
        let serial = next_serial(context);
        let client = context.serving;
        let Some(upstreams) = &mut context.upstreams else { return };
        match upstreams.join(self.key, &self.head, client, serial) {
            Some(Joined::Leads(flight)) => {
                let mut part = self.part(why, true, stale);
                part.flight = Some(flight);
                // What answers a HEAD has no content to be stored (RFC 9110 section 9.3.2).
                let request = Request { method: Method::Get, ..*self.request };
                background::begin(&request, self.head.head, self.course, part, context);
            }
            // Nobody waits in this place.
            Some(Joined::Follows) => upstreams.leave(self.key, client, serial),
            None => {}
        }
    }

    fn forward(&self, why: Why, stores: bool, stale: Option<Arc<Stored>>) -> Consulted {
        Consulted::Forward(Some(Box::new(self.part(why, stores, stale))))
    }

    fn part(&self, why: Why, stores: bool, stale: Option<Arc<Stored>>) -> CachePart {
        CachePart {
            why,
            key: self.key.into(),
            head: self.head.head.into(),
            is_trusted: self.head.is_trusted,
            flight: None,
            stores,
            is_typical: !self.asks.is_authorized,
            stale,
            sent_ns: 0,
            copying: None,
            answer: None,
        }
    }
}

fn next_serial(context: &mut WorkerContext) -> u64 {
    context.upstreams.as_mut().map_or(0, |upstreams| upstreams.next_serial())
}
