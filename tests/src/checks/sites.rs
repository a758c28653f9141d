//! The route of a request, whatever its host and path: what a file is served for is what its route
//! was chosen by.

use std::sync::LazyLock;

use weir_server::Status;
use weir_server::content::path::decode;
use weir_server::sites::hosts::{AllowedHosts, HostPattern};
use weir_server::sites::paths::PathPattern;
use weir_server::sites::{Action, Route, Rule, Site, Sites};

/// Statuses that stand for the rules.
const OPEN: Status = Status::OK;
const PROTECTED: Status = Status::FORBIDDEN;
const EXACT: Status = Status::GONE;

static SITES: LazyLock<Sites> = LazyLock::new(|| {
    let site = |hosts: &[&str]| Site {
        hosts: hosts.iter().map(|host| HostPattern::parse(host).unwrap()).collect(),
        routes: vec![
            route("/admin", false, PROTECTED),
            route("/a/b", false, PROTECTED),
            route("/exact", true, EXACT),
        ],
        otherwise: rule(OPEN),
    };
    let named = site(&["a.example", "*.b.example", "192.0.2.1", "::1"]);
    Sites::new(site(&[]), vec![named]).unwrap()
});

fn rule(status: Status) -> Rule {
    Rule { action: Action::Status(status), ..Rule::files() }
}

fn route(path: &str, is_exact: bool, status: Status) -> Route {
    let pattern = PathPattern::parse(path, is_exact).unwrap();
    Route { pattern, rule: rule(status), is_fallback: false }
}

/// Checks a host, a newline and a path: however the path is written, a file below a route's path is
/// for that route, and the case and port of a host do not matter.
pub fn sites(data: &[u8]) {
    let (host, path) = super::split_at_newline(data);
    let found = find(host, path);
    let mut room = Vec::new();
    if let Ok(decoded) = decode(path, true, &mut room) {
        // Names of files have no parameters, but other servers may see some.
        let has_parameters = decoded.key().contains(&b';');
        let is_below = |own: &[u8]| {
            let rest = decoded.key().strip_prefix(own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let wanted = match () {
            () if is_below(b"admin") || is_below(b"a/b") => PROTECTED,
            () if decoded.key() == b"exact" => EXACT,
            () => OPEN,
        };
        assert!(found == Ok(wanted) || has_parameters && found == Err(Status::BAD_REQUEST));
    }
    assert_eq!(find(&host.to_ascii_uppercase(), path), found);
    let encoded: Vec<u8> =
        path.iter().flat_map(|byte| format!("%{byte:02x}").into_bytes()).collect();
    if let Some(plain) = path.strip_prefix(b"/").filter(|plain| !plain.contains(&b'%')) {
        assert_eq!(find(host, &[b"/", &encoded[3..]].concat()), found, "{}", plain.escape_ascii());
    }
    let allowed = AllowedHosts::new(&[]);
    assert_eq!(allowed.allows(Some(host)), allowed.allows(Some(&host.to_ascii_uppercase())));
}

/// Returns the status of the rule, or of the refusal.
fn find(host: &[u8], path: &[u8]) -> Result<Status, Status> {
    let index = SITES.find(Some(host), path, &mut Vec::new())?;
    match SITES.rule(index).unwrap().action {
        Action::Status(status) => Ok(status),
        _ => unreachable!(),
    }
}
