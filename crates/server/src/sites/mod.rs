//! Sites and routes: which rule a request is answered by, by its host, then by its path; and what a
//! rule says. All that can be decided at the start is: a rule holds finished field lines, and
//! finding it allocates nothing. A server without sites and routes has none of this.
//!
//! Nothing here knows of sockets or files: `http/gate.rs` applies a rule to a request, and
//! `http/response.rs` answers by it.

pub mod access;
pub mod client;
pub mod cors;
pub mod hosts;
pub mod paths;
pub(crate) mod ruling;
pub mod template;
pub mod users;
pub(crate) mod verifier;

use std::sync::Arc;

use weir_http1::Status;

use access::AccessList;
use cors::Cors;
use hosts::{AllowedHosts, HostPattern, HostTable};
use paths::{PathPattern, Plain, cut_parameters, plain, separate_at_backslashes};
use template::Template;
use users::Users;
use verifier::Verifier;

/// Body to send instead of the built-in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// Status it is for.
    pub code: u16,
    /// Its Content-Type.
    pub content_type: String,
    /// The body itself.
    pub body: Vec<u8>,
}

/// What a request is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Files.
    Files(Files),
    /// The reply of an upstream, by its index.
    Upstream(usize),
    /// A redirect to a target.
    Redirect(Status, Template),
    /// A status, with its page.
    Status(Status),
}

/// Files below a root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The root: 0 for that of the server, or else one more than the index among those of sites.
    pub root: usize,
    /// True if the route's path is not part of a file's.
    pub strips: bool,
    /// Paths that are tried, in order, when there is nothing at the request's own.
    pub tried: Vec<Template>,
}

/// A rule by which requests are answered.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What they are answered with.
    pub action: Action,
    /// Path of the route, in its plain form; empty for the rest of a site.
    pub path: Box<[u8]>,
    /// Field lines of every reply, each ended by CRLF.
    pub fields: Vec<u8>,
    /// Those of every reply with TLS.
    pub tls_fields: Vec<u8>,
    /// Names of fields of an upstream that are not passed on, in lower case.
    pub removed: Vec<Box<[u8]>>,
    /// The Cache-Control line of every reply that is no error, in the place of any in `fields`,
    /// ended by CRLF; or empty.
    pub cache_control: Vec<u8>,
    /// Bodies for error statuses.
    pub error_pages: Vec<ErrorPage>,
    /// Clients that may ask; `None` for all.
    pub access: Option<AccessList>,
    /// Users who may ask, if they are asked for their password.
    pub users: Option<Arc<Users>>,
    /// Pages of other origins that may read replies.
    pub cors: Option<Cors>,
    /// Maximum size of a request's body, bytes; `None` for that of the server, which an upstream's
    /// requests do not have.
    pub body_bytes_max: Option<u64>,
    /// Maximum size of a request's head, bytes; `None` for that of the server.
    pub head_bytes_max: Option<u64>,
}

impl Rule {
    /// Creates a rule for files of the server's root, with nothing else said.
    #[must_use]
    pub fn files() -> Self {
        Self {
            action: Action::Files(Files::default()),
            path: Box::default(),
            fields: Vec::new(),
            tls_fields: Vec::new(),
            removed: Vec::new(),
            cache_control: Vec::new(),
            error_pages: Vec::new(),
            access: None,
            users: None,
            cors: None,
            body_bytes_max: None,
            head_bytes_max: None,
        }
    }

    /// Returns the files that it serves.
    #[must_use]
    pub fn served_files(&self) -> Option<&Files> {
        if let Action::Files(files) = &self.action { Some(files) } else { None }
    }

    /// Returns the upstream that it leads to.
    #[must_use]
    pub fn upstream(&self) -> Option<usize> {
        if let Action::Upstream(index) = self.action { Some(index) } else { None }
    }
}

/// A part of a site, and the rule for it.
#[derive(Clone, Debug)]
pub struct Route {
    /// The requests that it is for.
    pub pattern: PathPattern,
    /// The rule.
    pub rule: Rule,
    /// True if it counts only where no other matches, however long it is.
    pub is_fallback: bool,
}

/// A site: its hosts, its routes, and the rule for what no route is for.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its hosts; the default site has none.
    pub hosts: Vec<HostPattern>,
    /// Its routes: an exact one counts before others, and then the longest.
    pub routes: Vec<Route>,
    /// The rule otherwise.
    pub otherwise: Rule,
}

/// Answer to a request for a host that no site has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownHost {
    /// The default site's.
    #[default]
    DefaultSite,
    /// A status.
    Status(Status),
}

/// Index of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleIndex(u16);

/// All sites of a server.
#[derive(Clone, Debug)]
pub struct Sites {
    rules: Vec<Rule>,
    /// The sites, the default one first.
    sites: Vec<SiteRoutes>,
    hosts: HostTable<usize>,
    unknown_host: UnknownHost,
    allowed_hosts: Option<AllowedHosts>,
    verifier: Arc<Verifier>,
}

#[derive(Clone, Debug)]
struct SiteRoutes {
    /// In the order in which they are tried.
    routes: Vec<(PathPattern, RuleIndex)>,
    otherwise: RuleIndex,
}

impl SiteRoutes {
    /// Returns the rule for a path in its plain form.
    fn route(&self, path: &[u8]) -> RuleIndex {
        let found = self.routes.iter().find(|(pattern, _)| pattern.matches(path));
        found.map_or(self.otherwise, |(_, index)| *index)
    }
}

impl Sites {
    /// Creates the sites of a server: the default one, and others by their hosts.
    ///
    /// # Errors
    /// A sentence: two sites have the same host, or there are too many routes.
    pub fn new(default: Site, others: Vec<Site>) -> Result<Self, String> {
        let mut all = Self {
            rules: Vec::new(),
            sites: Vec::new(),
            hosts: HostTable::default(),
            unknown_host: UnknownHost::default(),
            allowed_hosts: None,
            verifier: Arc::default(),
        };
        for site in std::iter::once(default).chain(others) {
            all.add(site)?;
        }
        Ok(all)
    }

    fn add(&mut self, site: Site) -> Result<(), String> {
        let Site { hosts, mut routes, otherwise } = site;
        if let Some(twice) = hosts.iter().find(|host| !self.hosts.add(host, self.sites.len())) {
            return Err(format!("the host {twice} is that of another site"));
        }
        let (mut sorted, mut rest) = (Vec::new(), self.add_rule(otherwise)?);
        routes.sort_by_key(|route| (route.is_fallback, route.pattern.rank()));
        for Route { pattern, rule, .. } in routes {
            let index = self.add_rule(Rule { path: pattern.path().into(), ..rule })?;
            if pattern.is_whole() {
                // Nothing comes to those behind it.
                rest = index;
                break;
            }
            sorted.push((pattern, index));
        }
        self.sites.push(SiteRoutes { routes: sorted, otherwise: rest });
        Ok(())
    }

    fn add_rule(&mut self, rule: Rule) -> Result<RuleIndex, String> {
        let index = u16::try_from(self.rules.len()).map_err(|_| "there are too many routes")?;
        self.rules.push(rule);
        Ok(RuleIndex(index))
    }

    /// Sets what a request for another host is answered with.
    pub fn set_unknown_host(&mut self, answer: UnknownHost) {
        self.unknown_host = answer;
    }

    /// Returns whether a site has a host.
    pub(crate) fn has(&self, host: &[u8]) -> bool {
        self.hosts.find(host).is_some()
    }

    /// Returns whether any rule is not for all clients.
    pub(crate) fn restricts(&self) -> bool {
        self.rules.iter().any(|rule| rule.access.is_some() || rule.users.is_some())
    }

    /// Sets the hosts that a connection to a loopback address may name; `None` for any.
    pub fn set_allowed_hosts(&mut self, hosts: Option<AllowedHosts>) {
        self.allowed_hosts = hosts;
    }

    /// Returns whether a request over loopback may name this host.
    #[must_use]
    pub fn allows_over_loopback(&self, host: Option<&[u8]>) -> bool {
        self.allowed_hosts.as_ref().is_none_or(|allowed| allowed.allows(host))
    }

    /// Finds the rule for a request. `room`: a buffer for the path's plain form.
    ///
    /// # Errors
    /// The status of the answer: no site has the host; or the path has `.` or `..` where routes
    /// differ by path, or parameters or backslashes by which they differ.
    pub fn find(
        &self,
        host: Option<&[u8]>,
        path: &[u8],
        room: &mut Vec<u8>,
    ) -> Result<RuleIndex, Status> {
        let known = host.map(|host| self.hosts.find(host));
        let site = match (known, self.unknown_host) {
            (Some(Some(site)), _) => site,
            (Some(None), UnknownHost::Status(status)) => return Err(status),
            // HTTP/1.0 knows of no host.
            (Some(None), UnknownHost::DefaultSite) | (None, _) => 0,
        };
        let site = self.sites.get(site).ok_or(Status::NOT_FOUND)?;
        if site.routes.is_empty() {
            return Ok(site.otherwise);
        }
        let Plain { path: own, has_dots, has_parameters, has_backslashes } = plain(path, room);
        let found = site.route(own);
        let mut is_for_none = has_dots;
        if has_parameters {
            cut_parameters(room);
            is_for_none |= site.route(room) != found;
        }
        if has_backslashes {
            // Builds it anew: its parameters are cut off by now.
            plain(path, room);
            is_for_none |= separate_at_backslashes(room) || site.route(room) != found;
            cut_parameters(room);
            is_for_none |= site.route(room) != found;
        }
        if is_for_none { Err(Status::BAD_REQUEST) } else { Ok(found) }
    }

    /// Returns a rule.
    #[must_use]
    pub fn rule(&self, index: RuleIndex) -> Option<&Rule> {
        self.rules.get(usize::from(index.0))
    }

    /// Iterates over all rules.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// Returns the upstream that every request is for; `None` if one may be for something else, or
    /// have an answer of its own: for lack of a password, or to a page that asks first (CORS).
    pub(crate) fn sole_upstream(&self) -> Option<usize> {
        let of_site = |site: &SiteRoutes| {
            let others = site.routes.iter().map(|(_, index)| *index);
            others.chain([site.otherwise]).collect::<Vec<_>>()
        };
        let leads_to = |index: RuleIndex| {
            let rule = self.rule(index).filter(|rule| rule.users.is_none() && rule.cors.is_none());
            rule.and_then(Rule::upstream)
        };
        let mut all = self.sites.iter().flat_map(of_site).map(leads_to);
        let first = all.next().flatten()?;
        all.all(|each| each == Some(first)).then_some(first)
    }

    /// Returns the thread that verifies passwords.
    pub(crate) fn verifier(&self) -> &Verifier {
        &self.verifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(status: Status) -> Rule {
        Rule { action: Action::Status(status), ..Rule::files() }
    }

    fn route(path: &str, is_exact: bool, status: Status) -> Route {
        let pattern = PathPattern::parse(path, is_exact).unwrap();
        Route { pattern, rule: rule(status), is_fallback: false }
    }

    fn sites() -> Sites {
        let default = Site {
            hosts: Vec::new(),
            routes: vec![route("/a", false, Status::FORBIDDEN)],
            otherwise: rule(Status::OK),
        };
        let other = Site {
            hosts: vec![HostPattern::parse("b.example").unwrap()],
            routes: vec![
                route("/", false, Status::GONE),
                route("/a", false, Status::NOT_FOUND),
                route("/a/b", false, Status::BAD_REQUEST),
                route("/a/b", true, Status::CONTENT_TOO_LARGE),
            ],
            otherwise: rule(Status::OK),
        };
        Sites::new(default, vec![other]).unwrap()
    }

    fn found(sites: &Sites, host: Option<&str>, path: &str) -> Status {
        let index = sites.find(host.map(str::as_bytes), path.as_bytes(), &mut Vec::new());
        match index.map(|index| &sites.rule(index).unwrap().action) {
            Ok(Action::Status(status)) => *status,
            other => other.err().unwrap(),
        }
    }

    #[test]
    fn the_host_decides_and_then_the_exact_path_and_then_the_longest() {
        let sites = sites();
        let b = Some("b.example:80");
        for (host, path, wanted) in [
            (None, "/", Status::OK),
            (None, "/a/b", Status::FORBIDDEN),
            (Some("c.example"), "/a", Status::FORBIDDEN),
            (b, "/", Status::GONE),
            (b, "/ab", Status::GONE),
            (b, "/a/c", Status::NOT_FOUND),
            (b, "/a/b", Status::CONTENT_TOO_LARGE),
            (b, "/%61//b", Status::CONTENT_TOO_LARGE),
            (b, "/a/b/", Status::BAD_REQUEST),
        ] {
            assert_eq!(found(&sites, host, path), wanted, "{host:?} {path}");
        }
    }

    #[test]
    fn an_upstream_is_the_only_one_if_every_request_that_can_come_is_for_it() {
        let to = |upstream| Rule { action: Action::Upstream(upstream), ..Rule::files() };
        let route = |path: &str, rule| Route {
            pattern: PathPattern::parse(path, false).unwrap(),
            rule,
            is_fallback: false,
        };
        let sole = |routes, otherwise| {
            let site = Site { hosts: Vec::new(), routes, otherwise };
            Sites::new(site, Vec::new()).unwrap().sole_upstream()
        };
        // Nothing comes to what is behind a route for all paths.
        assert_eq!(sole(vec![route("/", to(1))], Rule::files()), Some(1));
        assert_eq!(sole(vec![route("/a", to(1))], to(1)), Some(1));
        assert_eq!(sole(vec![route("/a", to(1))], Rule::files()), None);
        assert_eq!(sole(vec![route("/a", to(0))], to(1)), None);
        assert_eq!(sole(vec![route("/a", rule(Status::GONE))], to(1)), None);
        let other = |upstream| {
            let site = Site { hosts: Vec::new(), routes: Vec::new(), otherwise: to(1) };
            let hosts = vec![HostPattern::parse("b.example").unwrap()];
            let other = Site { hosts, routes: Vec::new(), otherwise: to(upstream) };
            Sites::new(site, vec![other]).unwrap().sole_upstream()
        };
        assert_eq!([other(1), other(0)], [Some(1), None]);
        let cors =
            Cors::new(&cors::CorsOptions { origins: vec!["*".into()], ..Default::default() });
        let asked_first = Rule { cors: cors.unwrap(), ..to(1) };
        assert_eq!(sole(vec![route("/a", asked_first)], to(1)), None);
    }

    #[test]
    fn a_path_with_dots_is_for_no_route_and_an_unknown_host_for_no_site() {
        let mut sites = sites();
        assert_eq!(found(&sites, None, "/x/../a"), Status::BAD_REQUEST);
        sites.set_unknown_host(UnknownHost::Status(Status::MISDIRECTED_REQUEST));
        assert_eq!(found(&sites, Some("c.example"), "/"), Status::MISDIRECTED_REQUEST);
        assert_eq!(found(&sites, Some("B.example"), "/"), Status::GONE);
        assert_eq!(found(&sites, None, "/"), Status::OK);
        let plain = Site { hosts: Vec::new(), routes: Vec::new(), otherwise: rule(Status::OK) };
        let plain = Sites::new(plain, Vec::new()).unwrap();
        assert_eq!(found(&plain, None, "/x/../a"), Status::OK);
    }

    #[test]
    fn a_path_that_takes_another_route_without_its_parameters_takes_none() {
        let (sites, b) = (sites(), Some("b.example"));
        for path in ["/a;x", "/a;x/b", "/;x/a", "/a/b;x", "/a/b%3bx/", "/%61;/b"] {
            assert_eq!(found(&sites, b, path), Status::BAD_REQUEST, "{path}");
        }
        for (path, wanted) in [
            ("/x;y", Status::GONE),
            ("/ab;x/a", Status::GONE),
            ("/a/c;x", Status::NOT_FOUND),
            ("/a/c/;x=/b", Status::NOT_FOUND),
        ] {
            assert_eq!(found(&sites, b, path), wanted, "{path}");
        }
        let whole = Site { hosts: Vec::new(), routes: Vec::new(), otherwise: rule(Status::OK) };
        let whole = Sites::new(whole, Vec::new()).unwrap();
        assert_eq!(found(&whole, None, "/a;x"), Status::OK);
    }

    #[test]
    fn a_path_that_takes_another_route_with_slashes_for_its_backslashes_takes_none() {
        let routes = ["/admin", "/public"].map(|path| route(path, false, Status::FORBIDDEN));
        let site = Site { hosts: Vec::new(), routes: routes.into(), otherwise: rule(Status::OK) };
        let sites = Sites::new(site, Vec::new()).unwrap();
        for path in [
            "/admin\\x",
            "/admin%5cx",
            "/admin%5C",
            "\\admin",
            "/\\admin/x",
            "/public/..\\admin",
            "/public\\..\\admin",
            "/x\\..\\admin",
            "/x\\..",
            "/x;y\\..\\admin",
            "/;x\\admin",
            "/admin;x\\y",
        ] {
            assert_eq!(found(&sites, None, path), Status::BAD_REQUEST, "{path}");
        }
        for (path, wanted) in [
            ("/x\\admin", Status::OK),
            ("/x;y\\z", Status::OK),
            ("/admins\\x", Status::OK),
            ("/admin/x\\y", Status::FORBIDDEN),
        ] {
            assert_eq!(found(&sites, None, path), wanted, "{path}");
        }
        let whole = Site { hosts: Vec::new(), routes: Vec::new(), otherwise: rule(Status::OK) };
        let whole = Sites::new(whole, Vec::new()).unwrap();
        assert_eq!(found(&whole, None, "/x\\..\\admin"), Status::OK);
    }

    #[test]
    fn a_fallback_counts_where_no_other_matches() {
        let fallback = Route { is_fallback: true, ..route("/a/b", false, Status::GONE) };
        let routes = vec![fallback, route("/a", false, Status::FORBIDDEN)];
        let site = |routes| Site { hosts: Vec::new(), routes, otherwise: rule(Status::OK) };
        let sites = Sites::new(site(routes.clone()), Vec::new()).unwrap();
        assert_eq!(found(&sites, None, "/a/b"), Status::FORBIDDEN);
        assert_eq!(found(&sites, None, "/b"), Status::OK);
        let sites = Sites::new(site(routes[..1].to_vec()), Vec::new()).unwrap();
        assert_eq!(found(&sites, None, "/a/b"), Status::GONE);
    }

    #[test]
    fn a_host_is_that_of_one_site() {
        let site = |host: &str| Site {
            hosts: vec![HostPattern::parse(host).unwrap()],
            routes: Vec::new(),
            otherwise: Rule::files(),
        };
        let default = Site { hosts: Vec::new(), routes: Vec::new(), otherwise: Rule::files() };
        let error = Sites::new(default, vec![site("*.a.example"), site("*.A.example")]);
        assert_eq!(error.unwrap_err(), "the host *.a.example is that of another site");
    }
}
