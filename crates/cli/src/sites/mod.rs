//! Sites and routes, from the options and the tables of the configuration file that name them.

pub(crate) mod options;

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use weir_server::sites::access::AccessList;
use weir_server::sites::cors::{Cors, CorsOptions, NAMES};
use weir_server::sites::hosts::{AllowedHosts, HostPattern};
use weir_server::sites::paths::PathPattern;
use weir_server::sites::users::Users;
use weir_server::sites::{Action, ErrorPage, Files, Route, Rule, Site, Sites, UnknownHost};
use weir_server::{SiteRoot, Status, files};

use crate::config_file::{SettingsTable, SiteTable, Tables};
use crate::forwarding::{Forwarding, OptionRoute};
use crate::values::OnOff;
use options::{COMPANIONS, OF_FILES, RouteKeys, Settings, SiteKeys};

/// Reads the pages of statuses, each with its file.
type ReadPages<'a> = dyn Fn(&[(String, String)]) -> Result<Vec<ErrorPage>, String> + 'a;

/// What sites and routes have from the server.
pub(crate) struct Server<'a> {
    pub forwarding: &'a Forwarding,
    /// The root, with what holds for directories there.
    pub root: SiteRoot,
    /// Field lines of every reply.
    pub fields: &'a [u8],
    /// Those of every reply with TLS.
    pub tls_fields: &'a [u8],
    pub error_pages: &'a [ErrorPage],
    /// Maximum size of the body of a forwarded request whose rule says none, bytes; `None` for any.
    pub body_bytes_max: Option<u64>,
    pub unknown_host: UnknownHost,
    /// Hosts that may be named over loopback; empty for any.
    pub allowed_hosts: &'a [HostPattern],
    /// Reads the pages of error statuses.
    pub read_pages: &'a ReadPages<'a>,
}

/// Returns the sites of a server, `None` if every request is for a file of its root, and the roots
/// of sites.
///
/// # Errors
/// A sentence: a table is wrong, or what it names is not there.
pub(crate) fn build(
    server: &Server<'_>,
    tables: &Tables,
) -> Result<(Option<Sites>, Vec<SiteRoot>), String> {
    let mut builder = Builder { server, roots: Vec::new() };
    let default = Site {
        hosts: Vec::new(),
        routes: Vec::new(),
        otherwise: builder.rule(&Settings::default()).map_err(|it| it.why)?,
    };
    let mut all = All { default, named: Vec::new(), by_route: Vec::new() };
    for table in &tables.sites {
        let site = builder.site(table)?;
        all.add_site(site).map_err(|why| table.own.wrong("hosts", &why))?;
    }
    for option in &server.forwarding.routes {
        let of_option = |why| {
            let OptionRoute { host, path, .. } = option;
            format!("--route {}{path}: {why}", host.as_deref().unwrap_or_default())
        };
        let (host, route) = builder.route_of_option(option).map_err(of_option)?;
        all.add(host, route).map_err(|wrong| of_option(wrong.why))?;
    }
    for table in &tables.routes {
        let keys: RouteKeys = table.keys()?;
        let route = builder.route(table, &keys, &Settings::default())?;
        check_companions(table, |key| table.has(key))?;
        let host = keys.host.as_deref().map(HostPattern::parse).transpose();
        let host = host.map_err(|why| table.wrong("host", &why))?;
        all.add(host, route).map_err(|it| table.wrong(it.key, &it.why))?;
    }
    all.finish(&builder)
}

/// The sites so far.
struct All {
    /// The site of the server's own root.
    default: Site,
    /// Those of tables.
    named: Vec<Site>,
    /// Those that are there because a route outside of any site has their host.
    by_route: Vec<Site>,
}

impl All {
    /// Adds the site of a table.
    fn add_site(&mut self, site: Site) -> Result<(), String> {
        for (index, host) in site.hosts.iter().enumerate() {
            if self.named.iter().any(|other| other.hosts.contains(host)) {
                return Err(format!("the host {host} is that of another site"));
            }
            if site.hosts.iter().take(index).any(|other| other == host) {
                return Err(format!("the host {host} is there twice"));
            }
        }
        self.named.push(site);
        Ok(())
    }

    /// Adds a route that stands outside of a site.
    fn add(&mut self, host: Option<HostPattern>, route: Route) -> Result<(), Wrong> {
        let Some(host) = host else {
            return add_route(&mut self.default.routes, route);
        };
        if self.named.iter().any(|site| site.hosts.contains(&host)) {
            let why = "the host has a [[site]], which its routes belong into";
            return Err(Wrong { key: "host", why: why.into() });
        }
        // The host would be open to clients that the site refuses.
        if let Some(all) = self.restricted_above(&host) {
            let which = format!("the host is one of {all}, which have a [[site]]");
            let why = format!("{which} that is not for all clients: give it its own");
            return Err(Wrong { key: "host", why });
        }
        if let Some(site) = self.by_route.iter_mut().find(|site| site.hosts.contains(&host)) {
            return add_route(&mut site.routes, route);
        }
        let otherwise = self.default.otherwise.clone();
        self.by_route.push(Site { hosts: vec![host], routes: vec![route], otherwise });
        Ok(())
    }

    /// Returns the hosts of the site that would have a host without routes of its own, if that site
    /// is not for all clients.
    fn restricted_above(&self, host: &HostPattern) -> Option<&HostPattern> {
        let of_sites = self.named.iter();
        let hosts = of_sites.flat_map(|site| site.hosts.iter().map(move |each| (each, site)));
        let above = hosts.filter(|(each, _)| each.covers(host));
        let (all, site) = above.max_by_key(|(each, _)| each.to_string().len())?;
        let mut rules = site.routes.iter().map(|route| &route.rule).chain([&site.otherwise]);
        rules.any(is_restricted).then_some(all)
    }

    fn finish(mut self, builder: &Builder<'_>) -> Result<(Option<Sites>, Vec<SiteRoot>), String> {
        let server = builder.server;
        self.add_fallbacks();
        self.named.append(&mut self.by_route);
        let Self { default, named, .. } = self;
        if named.is_empty() && server.unknown_host != UnknownHost::DefaultSite {
            return Err("--unknown-host is for hosts without a [[site]], and there is none".into());
        }
        let has_rules = !(named.is_empty() && default.routes.is_empty());
        let mut sites = Sites::new(default, named)?;
        builder.check_upstreams(&sites)?;
        if !has_rules && server.allowed_hosts.is_empty() {
            return Ok((None, Vec::new()));
        }
        sites.set_unknown_host(server.unknown_host);
        let allowed = (!server.allowed_hosts.is_empty()).then_some(server.allowed_hosts);
        sites.set_allowed_hosts(allowed.map(AllowedHosts::new));
        Ok((Some(sites), builder.roots.clone()))
    }

    /// Gives each host of routes what is for more hosts, where nothing is for it alone: what is for
    /// all names below one, the longest first, and then what is for any host.
    fn add_fallbacks(&mut self) {
        let Self { default, by_route, .. } = self;
        let alone = by_route.clone();
        for site in by_route {
            let is_wider = |other: &&Site| {
                let is_above = |each: &HostPattern| site.hosts.iter().all(|own| each.covers(own));
                other.hosts.iter().any(is_above)
            };
            let mut wider: Vec<&Site> = alone.iter().filter(is_wider).collect();
            let length = |site: &Site| site.hosts.first().map(|host| host.to_string().len());
            wider.sort_by_key(|site| Reverse(length(site)));
            let mut fallbacks = Vec::new();
            for routes in wider.iter().map(|site| &site.routes).chain([&default.routes]) {
                extend_fallbacks(&mut fallbacks, routes);
            }
            site.routes.extend(fallbacks);
        }
    }
}

/// Adds the routes of more hosts to fallbacks, which are of fewer and so come first, whatever the
/// lengths of their paths: those that a fallback hides are left out.
fn extend_fallbacks(fallbacks: &mut Vec<Route>, routes: &[Route]) {
    let is_hidden = |route: &Route| fallbacks.iter().any(|nearer| hides(nearer, route, routes));
    let added = routes.iter().filter(|route| !is_hidden(route));
    let added: Vec<Route> =
        added.map(|route| Route { is_fallback: true, ..route.clone() }).collect();
    fallbacks.extend(added);
}

/// Returns whether a fallback takes the place of one of the routes of more hosts. A fallback for
/// all clients leaves a route that is not, if its path is longer, and the routes below that path:
/// what such a route denies would be open otherwise.
fn hides(nearer: &Route, route: &Route, routes: &[Route]) -> bool {
    let is_left = |each: &Route| {
        let is_longer = nearer.pattern.covers(&each.pattern) && nearer.pattern != each.pattern;
        is_restricted(&each.rule) && is_longer && each.pattern.covers(&route.pattern)
    };
    let is_covered = nearer.pattern.covers(&route.pattern);
    is_covered && (is_restricted(&nearer.rule) || !routes.iter().any(is_left))
}

/// Returns whether a rule is not for all clients.
fn is_restricted(rule: &Rule) -> bool {
    rule.access.is_some() || rule.users.is_some()
}

/// Checks that what a key of a table says more of is said, and not only more of it. `has`: whether
/// a key is there, or in the other tables that count.
fn check_companions(table: &SettingsTable, has: impl Fn(&str) -> bool) -> Result<(), String> {
    let own = table.settings(&Settings::default())?;
    let says = |key: &str| table.has(key) && !own.is_off(key);
    match COMPANIONS.iter().find(|(key, of)| says(key) && !has(of)) {
        Some((key, of)) => Err(table.wrong(key, &format!("{key} means nothing without {of}"))),
        None => Ok(()),
    }
}

/// Adds a route to those of a site. A second one for the same requests would never be asked, and
/// what it denies would be open.
fn add_route(routes: &mut Vec<Route>, route: Route) -> Result<(), Wrong> {
    if routes.iter().any(|other| other.pattern == route.pattern) {
        let path = String::from_utf8_lossy(route.pattern.path());
        let (key, which) = match route.pattern {
            PathPattern::Exact(_) => ("exact", "exactly "),
            PathPattern::Prefix(_) => ("path", ""),
        };
        return Err(Wrong { key, why: format!("the route for {which}{path} is there twice") });
    }
    routes.push(route);
    Ok(())
}

/// A sentence about the value of a key.
struct Wrong {
    key: &'static str,
    why: String,
}

impl Wrong {
    fn of(key: &'static str) -> impl Fn(String) -> Self {
        move |why| Self { key, why }
    }
}

/// Turns tables into sites and routes.
struct Builder<'a> {
    server: &'a Server<'a>,
    /// Roots of sites.
    roots: Vec<SiteRoot>,
}

impl Builder<'_> {
    fn site(&mut self, table: &SiteTable) -> Result<Site, String> {
        let keys: SiteKeys = table.own.keys()?;
        if keys.hosts.is_empty() {
            return Err(table.own.wrong("hosts", "'hosts' is missing"));
        }
        let hosts = keys.hosts.iter().map(|host| HostPattern::parse(host));
        let hosts = hosts.collect::<Result<_, _>>();
        let hosts = hosts.map_err(|why| table.own.wrong("hosts", &why))?;
        let settings = table.own.settings(&Settings::default())?;
        let otherwise = self.rule(&settings);
        let otherwise = otherwise.map_err(|it| table.own.wrong(it.key, &it.why))?;
        // Its routes may have files, with its other keys of them.
        check_files(&table.own, &["try-files"], &otherwise)?;
        let in_routes = |key: &str| table.routes.iter().any(|route| route.has(key));
        check_companions(&table.own, |key| table.own.has(key) || in_routes(key))?;
        let mut routes = Vec::new();
        for route in &table.routes {
            let keys: RouteKeys = route.keys()?;
            if keys.host.is_some() {
                return Err(route.wrong("host", "the hosts are those of the site"));
            }
            let added = self.route(route, &keys, &settings)?;
            check_companions(route, |key| route.has(key) || table.own.has(key))?;
            add_route(&mut routes, added).map_err(|it| route.wrong(it.key, &it.why))?;
        }
        Ok(Site { hosts, routes, otherwise })
    }

    /// Returns the host and the route that an option names.
    fn route_of_option(
        &mut self,
        option: &OptionRoute,
    ) -> Result<(Option<HostPattern>, Route), String> {
        let pattern = PathPattern::parse(&option.path, false)?;
        let mut rule = self.rule(&Settings::default()).map_err(|it| it.why)?;
        if let Some(index) = option.upstream {
            rule.action = Action::Upstream(index);
            rule.body_bytes_max = self.server.body_bytes_max;
        }
        let host = option.host.as_deref().map(HostPattern::parse).transpose()?;
        Ok((host, Route { pattern, rule, is_fallback: false }))
    }

    fn route(
        &mut self,
        table: &SettingsTable,
        keys: &RouteKeys,
        of_site: &Settings,
    ) -> Result<Route, String> {
        let (key, path, is_exact) = match (&keys.path, &keys.exact) {
            (Some(_), Some(_)) => {
                return Err(table.wrong("exact", "a route has a path, or an exact one"));
            }
            (None, Some(path)) => ("exact", path.as_str(), true),
            (Some(path), None) => ("path", path.as_str(), false),
            (None, None) => ("path", "/", false),
        };
        let pattern = PathPattern::parse(path, is_exact).map_err(|why| table.wrong(key, &why))?;
        let settings = table.settings(of_site)?;
        if is_exact && settings.strip == Some(OnOff::On) {
            return Err(table.wrong("strip", "there is no path below an exact one"));
        }
        let rule = self.rule(&settings).map_err(|it| table.wrong(it.key, &it.why))?;
        check_files(table, &OF_FILES, &rule)?;
        Ok(Route { pattern, rule, is_fallback: false })
    }

    /// Returns the rule that settings say.
    fn rule(&mut self, settings: &Settings) -> Result<Rule, Wrong> {
        let action = self.action(settings)?;
        let of_server = self.server.body_bytes_max;
        let of_server = of_server.filter(|_| matches!(action, Action::Upstream(_)));
        let cors = Cors::new(&cors(settings)).map_err(of_cors)?;
        let names = NAMES.iter().filter(|_| cors.is_some());
        let mut removed: Vec<String> = names.map(|&name| name.to_owned()).collect();
        removed.extend(settings.remove_header.iter().flatten().map(|it| it.to_ascii_lowercase()));
        let set = settings.set_header.iter().flatten();
        removed.extend(set.map(|(name, _)| name.to_ascii_lowercase()));
        let mut error_pages = match &settings.error_page {
            Some(pages) => (self.server.read_pages)(pages).map_err(Wrong::of("error-page"))?,
            None => Vec::new(),
        };
        error_pages.extend_from_slice(self.server.error_pages);
        let is_left_out = settings.removes("cache-control");
        let cache_control = settings.cache_control.as_ref().filter(|_| !is_left_out);
        Ok(Rule {
            action,
            fields: fields(self.server.fields, settings, &removed),
            tls_fields: fields(self.server.tls_fields, settings, &removed),
            cache_control: cache_control
                .map(|value| format!("Cache-Control: {value}\r\n").into_bytes())
                .unwrap_or_default(),
            removed: removed.into_iter().map(|name| name.into_bytes().into()).collect(),
            error_pages,
            access: AccessList::new(
                settings.allow.clone().unwrap_or_default(),
                settings.deny.clone().unwrap_or_default(),
            ),
            users: users(settings)?.map(Arc::new),
            cors,
            body_bytes_max: settings.max_body.or(of_server),
            head_bytes_max: settings.max_head,
            ..Rule::files()
        })
    }

    fn action(&mut self, settings: &Settings) -> Result<Action, Wrong> {
        let Settings { upstream, redirect, status, .. } = settings;
        match (upstream.as_deref(), redirect, *status) {
            (Some(_), Some(_), _) | (Some(_), None, Some(_)) => {
                let why = "an upstream answers, or a redirect, or a status: one of them";
                Err(Wrong { key: "upstream", why: why.into() })
            }
            (None, Some(target), status) => {
                let status = status.unwrap_or(Status::MOVED_PERMANENTLY);
                if !matches!(status.code(), 301 | 302 | 303 | 307 | 308) {
                    let why = format!("{} is no status of a redirect", status.code());
                    return Err(Wrong { key: "status", why });
                }
                Ok(Action::Redirect(status, target.clone()))
            }
            (None, None, Some(status)) => match status.code() {
                200 | 204 | 400.. => Ok(Action::Status(status)),
                code => {
                    let why = format!("a reply of status {code} says more than that");
                    Err(Wrong { key: "status", why })
                }
            },
            (upstream, None, None) => {
                let found = upstream.map(|name| self.server.forwarding.find(name)).transpose();
                let index = found.map_err(Wrong::of("upstream"))?;
                if let Some(index) = index.flatten() {
                    return Ok(Action::Upstream(index));
                }
                settings.root.as_deref().map_or(Ok(()), check_root).map_err(Wrong::of("root"))?;
                Ok(Action::Files(self.files(settings)))
            }
        }
    }

    fn files(&mut self, settings: &Settings) -> Files {
        let own = &self.server.root;
        let root = SiteRoot {
            path: settings.root.clone().unwrap_or_else(|| own.path.clone()),
            index: settings.index.clone().unwrap_or_else(|| own.index.clone()),
            listing: settings.listing.map_or(own.listing, |listing| listing == OnOff::On),
        };
        let number = if root == *own {
            0
        } else if let Some(known) = self.roots.iter().position(|known| *known == root) {
            known + 1
        } else {
            self.roots.push(root);
            self.roots.len()
        };
        Files {
            root: number,
            strips: settings.strip == Some(OnOff::On),
            tried: settings.try_files.clone().unwrap_or_default(),
        }
    }

    fn check_upstreams(&self, sites: &Sites) -> Result<(), String> {
        for (index, upstream) in self.server.forwarding.upstreams.iter().enumerate() {
            if !sites.rules().any(|rule| rule.upstream() == Some(index)) {
                return Err(format!("upstream {}: no route leads to it", upstream.name));
            }
        }
        Ok(())
    }
}

/// Checks that a table has none of these keys of files where something else answers.
fn check_files(table: &SettingsTable, keys: &[&str], rule: &Rule) -> Result<(), String> {
    let own = table.settings(&Settings::default())?;
    let found = keys.iter().find(|key| table.has(key) && !own.is_off(key));
    match found.filter(|_| rule.served_files().is_none()) {
        Some(key) => Err(table.wrong(key, &format!("{key} is for files, and others answer"))),
        None => Ok(()),
    }
}

/// Checks that a root is there. What this user may not see is left to the one that serves.
fn check_root(path: &Path) -> Result<(), String> {
    let why = match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "this is no directory".into(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => error.to_string(),
    };
    Err(format!("{}: {why}", path.display()))
}

fn cors(settings: &Settings) -> CorsOptions {
    let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    CorsOptions {
        origins: list(&settings.cors_origins),
        methods: list(&settings.cors_methods),
        headers: list(&settings.cors_headers),
        exposed: list(&settings.cors_expose),
        credentials: settings.cors_credentials == Some(OnOff::On),
        max_age_s: settings.cors_max_age.map_or(CORS_AGE_S, |age| age.as_secs()),
    }
}

/// Time for which a browser keeps the answer to a preflight, seconds.
const CORS_AGE_S: u64 = 3600;

/// Returns an error of [`Cors::new`], with the key that it begins with.
fn of_cors(why: String) -> Wrong {
    let is_of_credentials = why.starts_with("cors-credentials");
    Wrong { key: if is_of_credentials { "cors-credentials" } else { "cors-origins" }, why }
}

fn users(settings: &Settings) -> Result<Option<Users>, Wrong> {
    let realm = settings.auth_realm.as_deref().unwrap_or("weir");
    Users::check_realm(realm).map_err(Wrong::of("auth-realm"))?;
    let Some(path) = &settings.auth_file else { return Ok(None) };
    let wrong = |why: String| Wrong { key: "auth-file", why: format!("{}: {why}", path.display()) };
    let text = files::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Users::parse(&text, realm).map(Some).map_err(|error| wrong(error.to_string()))
}

/// Returns the field lines of every reply: `ours` but for what is `removed`, then those of the
/// settings, which may be a site's that its route removes.
fn fields(ours: &[u8], settings: &Settings, removed: &[String]) -> Vec<u8> {
    let is_kept = |line: &&[u8]| {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        !removed.iter().any(|each| name.eq_ignore_ascii_case(each.as_bytes()))
    };
    let lines = ours.split_inclusive(|&byte| byte == b'\n');
    let mut fields: Vec<u8> = lines.filter(is_kept).flatten().copied().collect();
    let more = settings.set_header.iter().chain(&settings.add_header).flatten();
    for (name, value) in more.filter(|(name, _)| !settings.removes(name)) {
        fields.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    fields
}
