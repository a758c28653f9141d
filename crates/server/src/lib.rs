//! The server: one connection machine under every architecture, mechanism and policy.
//!
//! [`Config`] describes a server; [`Server::start`] checks it and starts the loops, which serve
//! from [`Server::serve`] on. Nothing here parses options or prints: messages for the operator go
//! through [`Config::errors`].

pub mod architecture;
mod bind;
mod check;
mod compressor;
mod config;
mod context;
mod control;
pub mod files;
mod helpers;
mod http;
mod limits;
mod models;
mod sandbox;
mod server;
pub mod sites;
mod stat_page;
mod strategy;
mod succession;
#[doc(hidden)]
pub mod test_support;
mod upstream;
mod user;
mod worker;

pub use check::{Unavailable, check, check_root};
pub use config::{
    AccessLog, Address, ClientLimits, Config, Error, ErrorLog, ErrorLogOptions, HealthCheck,
    HighPriority, KeepIdle, LOG_FIELDS, LogField, LogFieldRow, LogFormat, LogLevel, LogPattern,
    LogTarget, MemoryLimit, PatternPart, ReplyCache, SandboxMode, SiteRoot, SynFilterPlace,
    Timeouts, Upstream, UpstreamAddress, UpstreamServer, UpstreamTimeouts, UserName,
};
pub use ipnet::IpNet;
pub use limits::{MEMORY_BYTES_MIN, compression_gap};
pub use sandbox::gap as sandbox_gap;
pub use server::{Server, Signal};
pub use strategy::{OUTPUTS, OutputPath, OutputRow, PRESETS, Preset, Strategy};
pub use succession::{
    FailureReport, PASSED_ON_TO_NOBODY, Predecessor, Program, START_MAX, ask_to_upgrade, follow,
};
pub use weir_accept as accept;
pub use weir_cache::CacheConfig;
pub use weir_content as content;
pub use weir_dispatch::{readiness, slots};
pub use weir_http1::{Status, proxy_protocol};
pub use weir_stats as stats;
pub use weir_sys::descent::{children_of, faults_of_ended_children, runs};
pub use weir_sys::heap::{CountingAllocator, settle_at_end};
pub use weir_tls as tls;
