//! The server as its clients see it, under every architecture and mechanism.

mod architectures;
mod bad_inputs;
mod behaviour;
mod bench_endpoints;
mod content;
mod fiber;
mod fuzz_corpus;
mod http;
mod life;
mod mirror;
mod peers;
mod presets;
mod representations;
mod ring;
mod room;
mod stat;
mod threads;
