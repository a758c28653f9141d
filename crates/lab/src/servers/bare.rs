//! The bare loop (`crates/sys/examples/bare_loop.rs`): the floor that servers are compared with,
//! and a silent server for tests of clients. It is built from source, and looked for beside weir.

use std::path::{Path, PathBuf};

use super::program::{Site, example};
use crate::allow_list::{AllowList, Syntax, ValueShape};

pub(super) const NAME: &str = "bare_loop";

/// Options that an experiment may set: all but the address.
pub(super) const ALLOWED: AllowList = AllowList {
    program: NAME,
    syntax: Syntax::Words,
    options: &[
        ("--eager", ValueShape::Nothing),
        ("--reply", ValueShape::Number),
        ("--silent", ValueShape::OneOf(&["accept", "reply"])),
    ],
};

/// Returns the program.
pub(super) fn find(weir: &Path) -> Result<PathBuf, String> {
    example(weir, "weir-sys", NAME)
}

pub(super) fn arguments(site: &Site<'_>) -> Vec<String> {
    let listen = ["--listen".to_owned(), site.address.to_string()];
    listen.into_iter().chain(site.spec.options.iter().cloned()).collect()
}
