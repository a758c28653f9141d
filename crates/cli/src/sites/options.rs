//! What the tables of sites and routes in the configuration file may say, each defined once: name,
//! help, parser.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use weir_server::sites::template::Template;
use weir_server::{IpNet, Status};

use crate::forwarding::options::network;
use crate::values::{self, OnOff};

/// Headings of the reference.
const SITE: &str = "A site";
const ROUTE: &str = "A route";
const ACTION: &str = "Sites and routes: what answers";
const FILES: &str = "Sites and routes: files";
const FIELDS: &str = "Sites and routes: header fields";
const ACCESS: &str = "Sites and routes: who may ask";
const LIMITS: &str = "Sites and routes: limits and pages";

/// Keys of a site only.
#[derive(Args, Clone, Debug)]
pub(crate) struct SiteKeys {
    /// The hosts that it is for: a name, `*.` and a name for all below that, or an IP address,
    /// without a port
    #[arg(long, value_name = "LIST", help_heading = SITE)]
    pub hosts: Vec<String>,
}

/// Keys of a route only.
#[derive(Args, Clone, Debug)]
pub(crate) struct RouteKeys {
    /// The path that it is for, with all below it; of several the longest counts. The whole site,
    /// if there is neither this nor exact
    #[arg(long, value_name = "PATH", help_heading = ROUTE)]
    pub path: Option<String>,

    /// The path that it is for, alone; it counts before any longer path
    #[arg(long, value_name = "PATH", help_heading = ROUTE)]
    pub exact: Option<String>,

    /// The host that it is for, if it stands outside of a site
    #[arg(long, value_name = "HOST", help_heading = ROUTE)]
    pub host: Option<String>,
}

/// Keys of a site and of a route, which has those of its site unless it says otherwise; but none of
/// its `try-files`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Settings {
    /// The upstream that requests are forwarded to, or `files`
    #[arg(long, value_name = "NAME", help_heading = ACTION)]
    pub upstream: Option<String>,

    /// A redirect to a path or URL, in which {path} stands for the request's path, {tail} for its
    /// part below the route's, {query} for the query with its question mark
    #[arg(long, value_name = "TARGET", value_parser = Template::redirect, help_heading = ACTION)]
    pub redirect: Option<Template>,

    /// The status of the redirect: 301 (if none is given), 302, 303, 307 or 308; or of every reply,
    /// without a redirect: 200, 204 or an error
    #[arg(long, value_name = "CODE", value_parser = status, help_heading = ACTION)]
    pub status: Option<Status>,

    /// The directory of files, below which the whole path of a request is looked up
    #[arg(long, value_name = "DIR", help_heading = FILES)]
    pub root: Option<PathBuf>,

    /// Names tried for a directory, in order
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = values::index_name,
          help_heading = FILES)]
    pub index: Option<Vec<String>>,

    /// List directories that have no index file
    #[arg(long, value_name = "on|off", action = ArgAction::Set, hide_possible_values = true,
          help_heading = FILES)]
    pub listing: Option<OnOff>,

    /// Look up the path below the route's only
    #[arg(long, value_name = "on|off", action = ArgAction::Set, hide_possible_values = true,
          help_heading = FILES)]
    pub strip: Option<OnOff>,

    /// Paths tried, in order, when there is nothing at the request's own; {path} stands for that.
    /// An application of one page has /index.html. A route has its own only, and none of its site's
    #[arg(long, value_name = "LIST", value_parser = Template::file, help_heading = FILES)]
    pub try_files: Option<Vec<Template>>,

    /// Fields of every reply, in the place of others of the name, an upstream's too
    #[arg(long, value_name = "NAME: VALUE", value_parser = values::field, help_heading = FIELDS)]
    pub set_header: Option<Vec<(String, String)>>,

    /// Fields of every reply, besides others of the name
    #[arg(long, value_name = "NAME: VALUE", value_parser = values::field, help_heading = FIELDS)]
    pub add_header: Option<Vec<(String, String)>>,

    /// Names of fields that no reply has, an upstream's neither
    #[arg(long, value_name = "NAME", value_parser = values::removed_field, help_heading = FIELDS)]
    pub remove_header: Option<Vec<String>>,

    /// The Cache-Control of every reply that is no error, in the place of any other
    #[arg(long, value_name = "VALUE", value_parser = values::field_value, help_heading = FIELDS)]
    pub cache_control: Option<String>,

    /// Origins whose pages may read replies, such as https://app.example; or `*` for any
    #[arg(long, value_name = "LIST", help_heading = FIELDS)]
    pub cors_origins: Option<Vec<String>>,

    /// Methods that such pages may use besides GET, HEAD and POST
    #[arg(long, value_name = "LIST", value_parser = values::token, help_heading = FIELDS)]
    pub cors_methods: Option<Vec<String>>,

    /// Header fields that requests of such pages may have besides the simple ones
    #[arg(long, value_name = "LIST", value_parser = values::token, help_heading = FIELDS)]
    pub cors_headers: Option<Vec<String>>,

    /// Header fields of replies that such pages may read besides the simple ones
    #[arg(long, value_name = "LIST", value_parser = values::token, help_heading = FIELDS)]
    pub cors_expose: Option<Vec<String>>,

    /// Whether requests of such pages may carry cookies and passwords
    #[arg(long, value_name = "on|off", action = ArgAction::Set, hide_possible_values = true,
          help_heading = FIELDS)]
    pub cors_credentials: Option<OnOff>,

    /// Time for which a browser may keep what it was told of this; 1h if none is given
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = FIELDS)]
    pub cors_max_age: Option<std::time::Duration>,

    /// Networks of clients that may ask; all others may not. The smallest network counts that a
    /// client is in
    #[arg(long, value_name = "CIDR", value_parser = network, help_heading = ACCESS)]
    pub allow: Option<Vec<IpNet>>,

    /// Networks of clients that may not ask
    #[arg(long, value_name = "CIDR", value_parser = network, help_heading = ACCESS)]
    pub deny: Option<Vec<IpNet>>,

    /// A file of users, one of whom a client must be (basic authentication): lines NAME:HASH as of
    /// `htpasswd -B` or `openssl passwd -6`, read at the start and at a reload
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    pub auth_file: Option<PathBuf>,

    /// The name of what the password is for; `weir` if none is given
    #[arg(long, value_name = "TEXT", help_heading = ACCESS)]
    pub auth_realm: Option<String>,

    /// Requests with a body larger than this are refused, forwarded ones too
    #[arg(long, value_name = "BYTES", value_parser = values::size, help_heading = LIMITS)]
    pub max_body: Option<u64>,

    /// Requests with a head larger than this are refused; 64k is the most in any case
    #[arg(long, value_name = "BYTES", value_parser = values::size, help_heading = LIMITS)]
    pub max_head: Option<u64>,

    /// A page for an error status, read at the start and at a reload
    #[arg(long, value_name = "CODE=FILE", value_parser = values::pair, help_heading = LIMITS)]
    pub error_page: Option<Vec<(String, String)>>,
}

impl Settings {
    /// Returns whether no reply has a field of this name.
    pub(crate) fn removes(&self, name: &str) -> bool {
        self.remove_header.iter().flatten().any(|each| each.eq_ignore_ascii_case(name))
    }

    /// Returns whether a key is a switch that is off, which says nothing where it has no effect.
    pub(crate) fn is_off(&self, key: &str) -> bool {
        let switch = match key {
            "listing" => self.listing,
            "strip" => self.strip,
            "cors-credentials" => self.cors_credentials,
            _ => None,
        };
        switch == Some(OnOff::Off)
    }
}

/// Keys that say what answers. A route that has one of them has none of its site's.
pub(crate) const ACTIONS: [&str; 4] = ["upstream", "redirect", "status", "root"];

/// Keys that say which files answer, and how.
pub(crate) const OF_FILES: [&str; 5] = ["root", "index", "listing", "strip", "try-files"];

/// Keys that say more of what another key says, each with that key.
pub(crate) const COMPANIONS: [(&str, &str); 6] = [
    ("cors-methods", "cors-origins"),
    ("cors-headers", "cors-origins"),
    ("cors-expose", "cors-origins"),
    ("cors-credentials", "cors-origins"),
    ("cors-max-age", "cors-origins"),
    ("auth-realm", "auth-file"),
];

fn status(text: &str) -> Result<Status, String> {
    let code = text.parse().ok().and_then(Status::of);
    code.ok_or_else(|| "it is no status that weir replies with".into())
}
