//! Upstreams, and the routes to them that are options, from the options and the tables of the
//! configuration file that name them.

pub(crate) mod options;
mod url;

use weir_server::accept::upstream::{self, UpstreamConfig};
use weir_server::{HealthCheck, HighPriority, IpNet, Upstream, UpstreamServer, UpstreamTimeouts};

use crate::config_file::{Tables, UpstreamTable};
use crate::values::{OnOff, host_and_path, ns, saturated};
use options::{ForwardOptions, HostChoice, RouteOptions, UpstreamOptions};

/// Name of the upstream that `weir proxy` makes.
const ONLY: &str = "default";

/// Name of what no upstream answers.
const FILES: &str = "files";

/// Upstreams, and the routes to them.
#[derive(Debug)]
pub(crate) struct Forwarding {
    pub upstreams: Vec<Upstream>,
    pub routes: Vec<OptionRoute>,
    pub high_priority: Vec<HighPriority>,
    /// Memory for replies and content that wait, bytes.
    pub buffers_bytes_max: usize,
    pub trusted: Vec<IpNet>,
    /// True if connections of trusted networks begin with a header of the PROXY protocol.
    pub proxy_protocol_in: bool,
}

/// A route that is an option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OptionRoute {
    pub host: Option<String>,
    pub path: String,
    /// Upstream by index; `None` for files.
    pub upstream: Option<usize>,
}

/// Returns the one upstream of `weir proxy`, to which everything is forwarded.
///
/// # Errors
/// A sentence: a URL is none of a server.
pub(crate) fn of_proxy(urls: &[String], options: &ForwardOptions) -> Result<Forwarding, String> {
    let upstream = upstream(ONLY, urls.iter().map(String::as_str), &options.each)?;
    let route = OptionRoute { host: None, path: "/".into(), upstream: Some(0) };
    let all = Forwarding::new(options);
    Forwarding { upstreams: vec![upstream], routes: vec![route], ..all }.checked(&options.each)
}

/// Returns the upstreams named by options and by tables of the configuration file, and the routes
/// named by options.
///
/// # Errors
/// A sentence: one of them is malformed, or names what is not there.
pub(crate) fn of_routes(
    named: &RouteOptions,
    tables: &Tables,
    options: &ForwardOptions,
) -> Result<Forwarding, String> {
    let mut all = Forwarding::new(options);
    // An error in another option names that one.
    let of_option = |why: String| {
        if why.starts_with("--") { why } else { format!("--upstream: {why}") }
    };
    for (name, urls) in &named.upstream {
        let made = upstream(name, urls.split(','), &options.each);
        made.and_then(|it| all.add_upstream(it)).map_err(of_option)?;
    }
    for table in &tables.upstreams {
        let upstream = upstream_of_table(table, &options.each)?;
        all.add_upstream(upstream).map_err(|why| table.name.wrong(&why))?;
    }
    for (from, to) in &named.route {
        let wrong = |why: String| format!("--route {from}={to}: {why}");
        let (host, path) = host_and_path(from)
            .ok_or_else(|| wrong("it begins with a path such as /api, or HOST/api".into()))?;
        let upstream = all.find(to).map_err(wrong)?;
        all.routes.push(OptionRoute { host: host.map(str::to_owned), path: path.into(), upstream });
    }
    all.checked(&options.each)
}

impl Forwarding {
    /// Creates one without upstreams.
    fn new(options: &ForwardOptions) -> Self {
        Self {
            upstreams: Vec::new(),
            routes: Vec::new(),
            high_priority: options.high_priority.clone(),
            buffers_bytes_max: saturated(options.buffers_total),
            trusted: options.trusted_proxy.clone(),
            proxy_protocol_in: options.proxy_protocol_in == OnOff::On,
        }
    }

    /// Checks that the options of TLS are for a server that speaks it, and fit the others.
    fn checked(self, each: &UpstreamOptions) -> Result<Self, String> {
        let has_tls = self.upstreams.iter().any(Upstream::has_tls);
        if let Some(option) = each.of_tls().next().filter(|_| !has_tls) {
            return Err(lacks_tls(option));
        }
        let mut both =
            self.upstreams.iter().filter(|each| each.has_tls() && each.proxy_protocol.is_some());
        match both.next() {
            None => Ok(self),
            Some(upstream) => Err(format!(
                "upstream {}: --proxy-protocol-out is for servers without TLS: its header would \
                 stand before the handshake",
                upstream.name
            )),
        }
    }

    fn add_upstream(&mut self, upstream: Upstream) -> Result<(), String> {
        let name = &upstream.name;
        if name == FILES || self.upstreams.iter().any(|known| known.name == *name) {
            return Err(format!("the name {name} is taken"));
        }
        self.upstreams.push(upstream);
        Ok(())
    }

    /// Finds an upstream by its name; `None` for files.
    pub(crate) fn find(&self, name: &str) -> Result<Option<usize>, String> {
        let found = self.upstreams.iter().position(|known| known.name == name);
        if found.is_none() && name != FILES {
            return Err(format!("there is no upstream {name}"));
        }
        Ok(found)
    }
}

/// Returns the upstream of a table, which has the common options but for its own. The common ones
/// of TLS may be for other upstreams; its own are for this one.
fn upstream_of_table(table: &UpstreamTable, common: &UpstreamOptions) -> Result<Upstream, String> {
    let options = table.options(common)?;
    let servers = table.servers.iter().map(|placed| {
        url::server(&placed.value, &options).map_err(|why| table.wrong(placed, &why))
    });
    let made = with_servers(&table.name.value, servers.collect::<Result<_, _>>()?, &options);
    let own_of_tls = options.of_tls().find(|option| table.has(option));
    match own_of_tls.filter(|_| !made.has_tls()) {
        Some(option) => Err(table.wrong(&table.name, &lacks_tls(option))),
        None => Ok(made),
    }
}

/// Says that an option of TLS is given where no server speaks it.
fn lacks_tls(option: &str) -> String {
    format!("--{option} is for servers with https://, and there are none")
}

fn upstream<'a>(
    name: &str,
    urls: impl Iterator<Item = &'a str>,
    options: &UpstreamOptions,
) -> Result<Upstream, String> {
    Ok(with_servers(
        name,
        urls.map(|url| url::server(url, options)).collect::<Result<_, _>>()?,
        options,
    ))
}

fn with_servers(name: &str, servers: Vec<UpstreamServer>, options: &UpstreamOptions) -> Upstream {
    let policy = upstream::TABLE.iter().find(|row| row.spelling == options.in_flight_policy);
    let mut queue_policies = upstream::QUEUE_TABLE.iter();
    let queue_policy = queue_policies.find(|row| row.spelling == options.queue_policy);
    Upstream {
        name: name.into(),
        servers,
        admission: UpstreamConfig {
            policy: policy.unwrap_or(&upstream::TABLE[0]).spelling,
            limit: options.max_in_flight,
            queue_policy: queue_policy.unwrap_or(&upstream::QUEUE_TABLE[0]).spelling,
            target_ns: ns(options.queue_target),
        },
        names_server: options.upstream_host == HostChoice::Server,
        keep_idle: options.keep_idle,
        idle_ns: ns(options.keep_idle_for),
        proxy_protocol: options.proxy_protocol_out.map(Into::into),
        reply_buffer_max: saturated(options.reply_buffer),
        request_buffer_max: saturated(options.request_buffer),
        timeouts: UpstreamTimeouts {
            connect_ns: ns(options.connect_timeout),
            first_byte_ns: ns(options.first_byte_timeout),
            idle_ns: ns(options.upstream_idle_timeout),
            whole_ns: ns(options.upstream_timeout),
        },
        health: options.health_check.clone().map(|path| HealthCheck {
            path,
            interval_ns: ns(options.health_interval),
            timeout_ns: ns(options.health_timeout),
            rise: options.health_rise,
            fall: options.health_fall,
        }),
        slow_start_ns: ns(options.slow_start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, FromArgMatches, Parser};

    /// Options of a command line, without those of a server.
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        routes: RouteOptions,
        #[command(flatten)]
        forward: ForwardOptions,
    }

    fn forwarding(line: &[&str]) -> Result<Forwarding, String> {
        let matches = Line::command().no_binary_name(true).try_get_matches_from(line).unwrap();
        let Line { routes, forward } = Line::from_arg_matches(&matches).unwrap();
        of_routes(&routes, &Tables::default(), &forward)
    }

    #[test]
    fn a_route_is_a_host_or_none_and_a_path() {
        let line = ["--upstream", "a=unix:a", "--route", "/b=files", "--route", "h.example/c=a"];
        let routes = forwarding(&line).unwrap().routes;
        let route = |host: Option<&str>, path: &str, upstream| OptionRoute {
            host: host.map(str::to_owned),
            path: path.into(),
            upstream,
        };
        let wanted = [route(None, "/b", None), route(Some("h.example"), "/c", Some(0))];
        assert_eq!(routes, wanted);
        let nowhere = forwarding(&["--route", "/b=a"]).err().unwrap_or_default();
        assert!(nowhere.contains("there is no upstream a"), "{nowhere}");
    }
}
