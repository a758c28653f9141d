//! The way of a request to the rule that answers it, where there are sites: whether its host, its
//! client, its password and its size are as the rule says.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::sync::Arc;

use weir_http1::{Framing, Method, Request, Status, forward, parse_destination};

use super::bench;
use super::course::told;
use super::head_fields::Head;
use crate::config::Config;
use crate::context::WorkerContext;
use crate::context::logins::Logins;
use crate::sites::client::Client;
use crate::sites::cors::OriginIndex;
use crate::sites::hosts::without_port;
use crate::sites::ruling::{Ruling, Verdict};
use crate::sites::users::{AUTHORIZATION_BYTES_MAX, Users, is_basic};
use crate::sites::verifier::Verification;
use crate::sites::{Rule, Sites};

/// Result of asking for a ruling.
pub(super) enum Gate {
    /// It is there.
    Ruled(Ruling),
    /// A password is being verified.
    Waits(Verification),
}

/// A wait for a password to be verified.
#[derive(Debug)]
pub(super) struct PasswordWait {
    pub verification: Verification,
    /// Outcome, once it is known: true if the password is right.
    pub verified: Option<bool>,
    /// Time at which the client last sent anything, or its request was complete, nanoseconds.
    pub received_ns: u64,
    /// True once the client has ended its side, and waits for the reply.
    pub has_client_ended: bool,
}

/// Fields that a rule may need, besides those that every request is asked for.
#[derive(Default)]
struct Asks<'b> {
    origin: Option<&'b [u8]>,
    /// True if it asks for a method, which only a preflight does.
    requests_method: bool,
    authorization: Option<&'b [u8]>,
    /// True if there is more than one Authorization field.
    is_ambiguous: bool,
}

impl<'b> Asks<'b> {
    fn of(head: &'b [u8]) -> Self {
        let mut asks = Self::default();
        for (name, value) in forward::lines(head) {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            match name.len() {
                6 if is(b"origin") => asks.origin = Some(value),
                13 if is(b"authorization") => {
                    asks.is_ambiguous |= asks.authorization.is_some();
                    asks.authorization = Some(value);
                }
                29 if is(b"access-control-request-method") => asks.requests_method = true,
                _ => {}
            }
        }
        asks
    }
}

/// A request before the gate.
pub(super) struct Arriving<'r, 'b> {
    pub request: &'r Request<'b>,
    /// Its head, which it was parsed from.
    pub head: &'b [u8],
    pub peer: SocketAddr,
    /// Its client, once it was asked for.
    pub client: &'r OnceCell<Client>,
    /// Whether its password was found right, if it was verified.
    pub verified: Option<bool>,
}

/// The parts of a worker's context that a ruling needs.
pub(super) struct Desk<'a> {
    pub config: &'a Config,
    pub sites: &'a Sites,
    /// Buffer for the plain form of a path.
    pub room: &'a mut Vec<u8>,
    pub logins: &'a mut Logins,
}

impl<'a> Desk<'a> {
    /// Returns them; `None` if there are no sites.
    pub(super) fn of(context: &'a mut WorkerContext) -> Option<Self> {
        let WorkerContext { config, path_room: room, logins, .. } = context;
        let sites = config.sites.as_ref()?;
        Some(Self { config, sites, room, logins })
    }
}

impl Arriving<'_, '_> {
    /// Finds the rule for the request, and judges the request by it. Allocates nothing, but to have
    /// a password verified, and to read what trusted proxies say.
    pub(super) fn judge(&self, desk: Desk<'_>) -> Gate {
        let Desk { config, sites, room, logins } = desk;
        let Request { host, target, .. } = *self.request;
        let refuse = |status| {
            let verdict = Verdict::Refuse(status);
            Gate::Ruled(Ruling { rule: None, origin: OriginIndex::Other, verdict })
        };
        if self.peer.ip().to_canonical().is_loopback() && !sites.allows_over_loopback(host) {
            return refuse(Status::MISDIRECTED_REQUEST);
        }
        let index = match sites.find(host, target.path(), room) {
            Ok(index) => index,
            Err(status) => return refuse(status),
        };
        let Some(rule) = sites.rule(index) else { return refuse(Status::NOT_FOUND) };
        // A file behind the prefix of an endpoint for measurements has the rule of its own path.
        if config.bench_endpoints
            && rule.served_files().is_some()
            && let Some(left) = bench::path_left(target.path())
            && sites.find(host, left, room) != Ok(index)
        {
            return refuse(Status::BAD_REQUEST);
        }
        let needs_fields = rule.cors.is_some() || rule.users.is_some();
        let asks = if needs_fields { Asks::of(self.head) } else { Asks::default() };
        // A page that may read replies may read refusals too.
        let origin = rule.cors.as_ref().map_or(OriginIndex::Other, |cors| cors.find(asks.origin));
        let ruled = |verdict| Gate::Ruled(Ruling { rule: Some(index), origin, verdict });
        if !self.is_allowed(rule, || config.client(self.peer, self.head)) {
            return ruled(Verdict::Refuse(Status::FORBIDDEN));
        }
        // It comes without a password (Fetch Living Standard section 4.8).
        if rule.cors.is_some() && self.is_preflight(&asks) {
            return ruled(Verdict::Preflight);
        }
        let mut verdict = Verdict::Pass;
        if let Some(users) = &rule.users {
            match self.check_password(users, &asks, sites, logins) {
                Ok(judged) => verdict = judged,
                Err(waits) => return Gate::Waits(waits),
            }
        }
        if verdict == Verdict::Pass {
            verdict = self.check_size(rule);
        }
        // Only another server does something with it.
        if verdict == Verdict::Pass && rule.upstream().is_some() {
            let is_trusted = config.trusts_peer(self.peer);
            let client = || self.client(|| config.client(self.peer, self.head));
            verdict = self.check_destination(rule, client, is_trusted, sites, room);
        }
        ruled(verdict)
    }

    /// Judges a request by the second resource that it changes, which COPY and MOVE name (RFC 4918
    /// section 10.3): what may be asked of that is for its own rule to say. `is_trusted`: the other
    /// end of the connection is a proxy whose word on where requests come from counts.
    fn check_destination(
        &self,
        rule: &Rule,
        client: impl FnOnce() -> Client,
        is_trusted: bool,
        sites: &Sites,
        room: &mut Vec<u8>,
    ) -> Verdict {
        if !matches!(self.request.method.as_str(), "COPY" | "MOVE") || !sites.restricts() {
            return Verdict::Pass;
        }
        let is_it = |name: &[u8]| name.eq_ignore_ascii_case(b"destination");
        let mut values = forward::lines(self.head).filter(|(name, _)| is_it(name));
        let Some((_, value)) = values.next() else { return Verdict::Pass };
        let malformed = Verdict::Refuse(Status::BAD_REQUEST);
        let Some((named, target)) = parse_destination(value).filter(|_| values.next().is_none())
        else {
            return malformed;
        };
        // A proxy in front may have given the host another name on its way here.
        let told = told(&Head { head: self.head, is_trusted });
        let is_told = |host: &&[u8]| {
            let mut names = told.hosts().map(without_port);
            !sites.has(host) && names.any(|told| told.eq_ignore_ascii_case(without_port(host)))
        };
        let host = named.filter(|host| !is_told(host)).or(self.request.host);
        let there = match sites.find(host, target.path(), room) {
            Ok(index) => sites.rule(index),
            Err(Status::BAD_REQUEST) => return malformed,
            Err(_) => None,
        };
        match there {
            Some(there) if may_change(client(), there, rule) => Verdict::Pass,
            _ => Verdict::Refuse(Status::FORBIDDEN),
        }
    }

    fn is_allowed(&self, rule: &Rule, find: impl FnOnce() -> Client) -> bool {
        let Some(list) = &rule.access else { return true };
        list.admits(self.client(find))
    }

    /// Returns its client, which `find` reads from the head, once.
    fn client(&self, find: impl FnOnce() -> Client) -> Client {
        *self.client.get_or_init(find)
    }

    fn is_preflight(&self, asks: &Asks<'_>) -> bool {
        self.request.method == Method::Options && asks.origin.is_some() && asks.requests_method
    }

    /// Judges a request by its password, or has that verified.
    fn check_password(
        &self,
        users: &Arc<Users>,
        asks: &Asks<'_>,
        sites: &Sites,
        logins: &mut Logins,
    ) -> Result<Verdict, Verification> {
        let refused = Verdict::Refuse(Status::UNAUTHORIZED);
        let Some(authorization) = asks.authorization else { return Ok(refused) };
        // What is too long to be right does not get to the thread that verifies.
        let is_too_long = authorization.len() > AUTHORIZATION_BYTES_MAX;
        if asks.is_ambiguous || !is_basic(authorization) || is_too_long {
            return Ok(refused);
        }
        if logins.knows(users, authorization) {
            return Ok(Verdict::Pass);
        }
        match self.verified {
            Some(true) => {
                logins.keep(users, authorization);
                Ok(Verdict::Pass)
            }
            Some(false) => Ok(refused),
            None => match sites.verifier().submit(users, authorization) {
                Some(verification) => Err(verification),
                None => Ok(Verdict::Refuse(Status::SERVICE_UNAVAILABLE)),
            },
        }
    }

    fn check_size(&self, rule: &Rule) -> Verdict {
        let is_above = |max: Option<u64>, size: u64| max.is_some_and(|max| size > max);
        if is_above(rule.head_bytes_max, self.request.head_len as u64) {
            return Verdict::Refuse(Status::HEADER_FIELDS_TOO_LARGE);
        }
        match self.request.framing {
            Framing::Length(length) if is_above(rule.body_bytes_max, length) => {
                Verdict::Refuse(Status::CONTENT_TOO_LARGE)
            }
            _ => Verdict::Pass,
        }
    }
}

/// Returns whether a client whose request its own rule lets pass may change what is under another.
fn may_change(client: Client, there: &Rule, own: &Rule) -> bool {
    let are_users_known = match (&there.users, &own.users) {
        (None, _) => true,
        (Some(there), Some(own)) => Arc::ptr_eq(there, own),
        (Some(_), None) => false,
    };
    let is_allowed = there.access.as_ref().is_none_or(|list| list.admits(client));
    there.upstream() == own.upstream() && are_users_known && is_allowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::access::AccessList;
    use crate::sites::hosts::HostPattern;
    use crate::sites::paths::PathPattern;
    use crate::sites::{Route, Site};
    use std::cell::Cell;
    use weir_http1::{HeadParser, Limits, Parse};

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn a_value_too_long_to_be_right_is_refused_and_not_verified() {
        let hash = "$2y$04$vKRXkql.bdkV4Qq.4L6Adu2xBNxLNyVOVnVoU/S/VqNBLPSFCZuca";
        let users = Arc::new(Users::parse(&format!("a:{hash}"), "r").unwrap());
        let site = Site { hosts: Vec::new(), routes: Vec::new(), otherwise: Rule::files() };
        let sites = Sites::new(site, Vec::new()).unwrap();
        let mut parser = HeadParser::default();
        let Parse::Complete(request) = parser.parse(HEAD, &Limits::default()) else {
            panic!("a whole head");
        };
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let client = &OnceCell::new();
        let arriving = Arriving { request: &request, head: HEAD, peer, client, verified: None };
        let judge = |bytes: usize| {
            let authorization = format!("Basic {}", "A".repeat(bytes - 6)).into_bytes();
            let asks = Asks { authorization: Some(&authorization), ..Asks::default() };
            arriving.check_password(&users, &asks, &sites, &mut Logins::default())
        };
        assert!(judge(AUTHORIZATION_BYTES_MAX).is_err(), "it is verified");
        for bytes in [AUTHORIZATION_BYTES_MAX + 1, 60_000] {
            let refused = Verdict::Refuse(Status::UNAUTHORIZED);
            assert_eq!(judge(bytes).ok(), Some(refused), "{bytes}");
        }
    }

    #[test]
    fn the_client_is_found_once_if_it_is_asked_for() {
        let mut parser = HeadParser::default();
        let Parse::Complete(request) = parser.parse(HEAD, &Limits::default()) else {
            panic!("a whole head");
        };
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let (client, found) = (OnceCell::new(), Cell::new(0));
        let arriving =
            Arriving { request: &request, head: HEAD, peer, client: &client, verified: None };
        let find = || {
            found.set(found.get() + 1);
            Client::Address([192, 0, 2, 1].into())
        };
        assert!(arriving.is_allowed(&Rule::files(), find) && client.get().is_none());
        let access = AccessList::new(Vec::new(), vec!["192.0.2.0/24".parse().unwrap()]);
        let shut = Rule { access, ..Rule::files() };
        assert!(!(arriving.is_allowed(&shut, find) || arriving.is_allowed(&shut, find)));
        assert_eq!((found.get(), client.get().copied()), (1, Some(find())));
    }

    fn sites_of(shut: &Rule) -> Sites {
        let route = |path, rule: &Rule| {
            let pattern = PathPattern::parse(path, false).unwrap();
            Route { pattern, rule: rule.clone(), is_fallback: false }
        };
        let site = |hosts, routes| Site { hosts, routes, otherwise: Rule::files() };
        let routes = vec![route("/shut", shut), route("/large", &Rule::files())];
        let other = Site {
            otherwise: shut.clone(),
            ..site(vec![HostPattern::parse("b").unwrap()], Vec::new())
        };
        Sites::new(site(Vec::new(), routes), vec![other]).unwrap()
    }

    /// Judges a request by its destination, where what is below `/shut` and on the host `b` is
    /// denied.
    fn judge(head: &str, is_trusted: bool) -> Verdict {
        let access = AccessList::new(Vec::new(), vec!["127.0.0.0/8".parse().unwrap()]);
        judge_in(&sites_of(&Rule { access, ..Rule::files() }), head, is_trusted)
    }

    fn judge_in(sites: &Sites, head: &str, is_trusted: bool) -> Verdict {
        let head = format!("{head}\r\n\r\n").into_bytes();
        let mut parser = HeadParser::default();
        let Parse::Complete(request) = parser.parse(&head, &Limits::default()) else {
            panic!("a whole head");
        };
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let client = &OnceCell::new();
        let arriving = Arriving { request: &request, head: &head, peer, client, verified: None };
        let (rule, client) = (Rule::files(), || Client::Address(peer.ip()));
        arriving.check_destination(&rule, client, is_trusted, sites, &mut Vec::new())
    }

    #[test]
    fn the_destination_of_a_change_is_judged_as_well() {
        let forbidden = Verdict::Refuse(Status::FORBIDDEN);
        let malformed = Verdict::Refuse(Status::BAD_REQUEST);
        for (destination, expected) in [
            ("/open/b", Verdict::Pass),
            ("/large/b", Verdict::Pass),
            ("http://a/open/b", Verdict::Pass),
            ("http://user@a/open/b", Verdict::Pass),
            ("https://a:1/b?c", Verdict::Pass),
            ("/shut/b", forbidden),
            ("/%73hut", forbidden),
            ("http://a/shut", forbidden),
            ("http://a@b/open/b", forbidden),
            ("/open/../shut", malformed),
            ("/open/..\\shut", malformed),
            ("/shut\\b", malformed),
            ("/shut%5cb", malformed),
            ("//a/open", malformed),
            ("shut", malformed),
            ("/open/b\r\nDestination: /open/b", malformed),
        ] {
            let request = |method| {
                format!("{method} /open/a HTTP/1.1\r\nHost: a\r\nDestination: {destination}")
            };
            for method in ["COPY", "MOVE"] {
                assert_eq!(judge(&request(method), false), expected, "{method} {destination}");
            }
            // Where it is no field of WebDAV's.
            for method in ["GET", "POST"] {
                assert_eq!(judge(&request(method), false), Verdict::Pass, "{destination}");
            }
            let open = sites_of(&Rule::files());
            assert_eq!(judge_in(&open, &request("COPY"), false), Verdict::Pass);
        }
        assert_eq!(judge("COPY /open/a HTTP/1.1\r\nHost: a", false), Verdict::Pass);
    }

    #[test]
    fn a_destination_may_have_the_host_s_name_at_a_trusted_proxy() {
        let judge = |told: &str, named: &str, is_trusted| {
            let head = "MOVE /open/a HTTP/1.1\r\nHost: b\r\nX-Forwarded-Host";
            judge(&format!("{head}: {told}\r\nDestination: https://{named}"), is_trusted)
        };
        let forbidden = Verdict::Refuse(Status::FORBIDDEN);
        // As the host `b`, which is denied, for the default site of other names.
        for (told, named) in [("c", "c/open/b"), ("c:443", "c/open/b"), ("c", "c:8443/open/b")] {
            assert_eq!(judge(told, named, true), forbidden, "{told} {named}");
            assert_eq!(judge(told, named, false), Verdict::Pass, "{told} {named}");
        }
        // The name of another site is that site's.
        assert_eq!(judge("b", "b/open/b", true), forbidden);
    }
}
