//! Packages of a release: a tarball, a Debian package, the list of what is linked in, checksums.
//! The same commit, toolchain and target make the same bytes, wherever the tree and cargo's folder
//! lie: paths are mapped, times are the commit's, owners are root.

mod archive;
mod deb;
mod files;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use sha2::{Digest, Sha256};

use self::files::{PackedFile, Release, output};
use crate::tree;

/// Options of `cargo xtask dist`.
#[derive(Args)]
pub(crate) struct DistArgs {
    /// The target to build for; x86_64-unknown-linux-musl makes a program without a library
    #[arg(long, value_name = "TRIPLE", default_value = HOST)]
    target: String,
    /// Folder for the packages
    #[arg(long, value_name = "DIR", default_value = "target/packages")]
    out: PathBuf,
    /// Package a tree with changes that are not committed, too
    #[arg(long)]
    allow_dirty: bool,
}

/// The target that is built for unless told.
const HOST: &str = "x86_64-unknown-linux-gnu";

/// Builds the program and its packages.
pub(crate) fn run(args: &DistArgs) -> Result<()> {
    let root = tree::root();
    let changes = output(git(&root, &["status", "--porcelain"]))?;
    ensure!(
        changes.is_empty() || args.allow_dirty,
        "the tree has changes that are not committed, so that no commit could make these packages \
         again; --allow-dirty makes them all the same"
    );
    let time_s = output(git(&root, &["log", "-1", "--format=%ct"]))?;
    let time_s: u64 = time_s.trim().parse().context("the time of the commit")?;
    let program = build(&root, &args.target)?;
    let release = Release {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        target: args.target.clone(),
        time_s,
        sbom: sbom::make(&root, &args.target)?,
        program: fs::read(&program).with_context(|| program.display().to_string())?,
        pages: files::generated(&program)?,
    };
    let out = root.join(&args.out);
    fs::create_dir_all(&out)?;
    let name = format!("weir-{}-{}", release.version, release.target);
    let mut made = vec![
        write(&out, &format!("{name}.tar.gz"), &tarball(&root, &release, &name)?)?,
        write(&out, &format!("{name}.cdx.json"), release.sbom.as_bytes())?,
    ];
    match deb::architecture(&args.target) {
        Some(architecture) => {
            let name = format!("weir_{}_{architecture}.deb", release.version);
            made.push(write(&out, &name, &deb::make(&root, &release, architecture)?)?);
        }
        None => println!("dist: no Debian package for {}", args.target),
    }
    sums(&out, &made)?;
    println!("dist: the program has {} bytes, stripped", release.program.len());
    Ok(())
}

fn git(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(root);
    command
}

/// Builds the program with the profile of packages, and strips it.
fn build(root: &Path, target: &str) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let user = std::env::var_os("HOME")?;
        Some(Path::new(&user).join(".cargo"))
    });
    let mut flags = vec![format!("--remap-path-prefix={}=/weir", root.display())];
    flags.extend(home.map(|home| format!("--remap-path-prefix={}=/cargo", home.display())));
    let folder = root.join("target").join("dist-build");
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--locked", "--profile", "dist", "--package", "weir", "--target", target])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CARGO_PROFILE_DIST_STRIP", "symbols")
        .env("CARGO_TARGET_DIR", &folder)
        .current_dir(root);
    let status = cargo.status().context("cargo")?;
    ensure!(status.success(), "the program could not be built for {target}");
    Ok(folder.join(target).join("dist").join("weir"))
}

/// Makes the tarball: everything below one folder.
fn tarball(root: &Path, release: &Release, name: &str) -> Result<Vec<u8>> {
    let mut files = vec![
        PackedFile::program("weir", release.program.clone()),
        PackedFile::text("sbom.cdx.json", release.sbom.clone()),
    ];
    for (path, text) in &release.pages {
        files.push(PackedFile::text(path, text.clone()));
    }
    for path in tree::files(root)? {
        let is_for_users = path.starts_with("docs/")
            || path.starts_with("contrib/") && !path.starts_with("contrib/debian/")
            || matches!(
                path.as_str(),
                "README.md" | "CHANGELOG.md" | "SECURITY.md" | "LICENSE-MIT" | "LICENSE-APACHE"
            );
        if is_for_users {
            files.push(PackedFile::read(root, &path, &path)?);
        }
    }
    archive::tar_gz(&files, &format!("{name}/"), release.time_s)
}

fn write(out: &Path, name: &str, bytes: &[u8]) -> Result<String> {
    let path = out.join(name);
    fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    println!("dist: {} ({} bytes)", path.display(), bytes.len());
    Ok(name.to_owned())
}

/// Writes the checksums in the form that `sha256sum --check` reads.
fn sums(out: &Path, names: &[String]) -> Result<()> {
    let mut text = String::new();
    for name in names {
        let bytes = fs::read(out.join(name))?;
        text.push_str(&format!("{}  {name}\n", files::hex(&Sha256::digest(&bytes))));
    }
    write(out, "SHA256SUMS", text.as_bytes())?;
    Ok(())
}
