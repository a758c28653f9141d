//! The server as its clients see it, under every architecture and mechanism.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken expectation is a failed test"
)]

mod admin;
mod admin_peers;
mod architectures;
mod bad_inputs;
mod behaviour;
mod bench_endpoints;
mod client_limits;
mod compression;
mod content;
mod error_log;
mod fiber;
mod fuzz_corpus;
mod http;
mod instruments;
mod life;
mod logs;
mod memory;
mod memory_pressure;
mod mirror;
mod output;
mod passwords;
mod peers;
mod presets;
mod proxy;
mod proxy_admission;
mod proxy_buffers;
mod proxy_cache;
mod proxy_cache_fronts;
mod proxy_cache_others;
mod proxy_chaos;
mod proxy_faults;
mod proxy_peers;
mod proxy_protocol;
mod proxy_smuggling;
mod proxy_streams;
mod proxy_timeouts;
mod proxy_tls;
mod proxy_upstreams;
mod representations;
mod ring;
mod room;
mod sandbox;
mod signals;
mod site_checks;
mod sites;
mod stat;
mod succession;
mod succession_failures;
mod threads;
mod tls;
mod tls_peers;
mod user;

/// The program under test.
const WEIR: &str = env!("CARGO_BIN_EXE_weir-under-test");
