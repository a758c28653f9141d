//! Link options of a program that is built for size, as the profile `dist` builds it: what it does
//! not need at run time is left out. Other profiles are linked as cargo links them.

use std::process::Command;

/// The first glibc that applies packed relocations (its NEWS, 2.36).
const PACKED_RELOCATIONS: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=dist.ld");
    if env("OPT_LEVEL") != "z" {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{}/dist.ld", env("CARGO_MANIFEST_DIR"));
    if applies_packed_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    // The one target for which rustc links by its own lld, which folds equal functions.
    if env("TARGET") == "x86_64-unknown-linux-gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}

/// Returns whether what starts the program knows packed relocations: the musl that comes with rustc
/// and is in the program does, an older glibc refuses to start it.
fn applies_packed_relocations() -> bool {
    match env("CARGO_CFG_TARGET_ENV").as_str() {
        "musl" => env("CARGO_CFG_TARGET_FEATURE").split(',').any(|one| one == "crt-static"),
        "gnu" if env("TARGET") == env("HOST") => {
            glibc().is_some_and(|version| version >= PACKED_RELOCATIONS)
        }
        _ => false,
    }
}

/// Returns the version of this machine's glibc, from `glibc 2.36`.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns a variable that cargo sets; empty if it does not.
fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
