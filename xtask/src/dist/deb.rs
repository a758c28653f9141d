//! The Debian package (deb(5)): the program, its unit, its configuration, and what makes and
//! unmakes its user.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use md5::{Digest, Md5};

use super::archive::{gz, tar_gz};
use super::files::{PackedFile, Release, hex};
use crate::tree;

/// Folders of files that an operator copies and changes.
const EXAMPLES: [&str; 3] = ["contrib/fail2ban/", "contrib/grafana/", "contrib/prometheus/"];

/// Files that the administrator changes, which an upgrade leaves as they are.
const CONFFILES: [&str; 2] = ["/etc/logrotate.d/weir", "/etc/weir/weir.toml"];

/// Who is asked about the package. The project has no address for mail.
const MAINTAINER: &str = "The weir authors <noreply@weir.invalid>";

/// Returns Debian's name of a target's architecture; `None`: there is none.
pub(super) fn architecture(target: &str) -> Option<&'static str> {
    match target.split('-').next() {
        Some("x86_64") => Some("amd64"),
        Some("aarch64") => Some("arm64"),
        _ => None,
    }
}

/// Makes the package.
pub(super) fn make(root: &Path, release: &Release, architecture: &str) -> Result<Vec<u8>> {
    let data = data(root, release)?;
    let bytes: u64 = data.iter().map(|file| file.bytes.len() as u64).sum();
    let mut control = vec![
        PackedFile::text("control", control(release, architecture, bytes)),
        PackedFile::text("conffiles", CONFFILES.map(|path| format!("{path}\n")).concat()),
        PackedFile::text("md5sums", md5sums(&data)),
    ];
    for script in ["postinst", "prerm", "postrm"] {
        let file = PackedFile::read(root, &format!("contrib/debian/{script}"), script)?;
        control.push(PackedFile { mode: 0o755, ..file });
    }
    let mut package = ar::Builder::new(Vec::new());
    for (name, bytes) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", tar_gz(&control, "", release.time_s)?),
        ("data.tar.gz", tar_gz(&data, "", release.time_s)?),
    ] {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
        header.set_mtime(release.time_s);
        header.set_mode(0o100_644);
        package.append(&header, &bytes[..])?;
    }
    Ok(package.into_inner()?)
}

/// Collects what is installed.
fn data(root: &Path, release: &Release) -> Result<Vec<PackedFile>> {
    let read = |from: &str, path: &str| PackedFile::read(root, from, path);
    let mut files = vec![
        PackedFile::program("usr/bin/weir", release.program.clone()),
        read("contrib/debian/weir.toml", "etc/weir/weir.toml")?,
        read("contrib/debian/logrotate", "etc/logrotate.d/weir")?,
        read("contrib/debian/index.html", "usr/share/weir/www/index.html")?,
        read("contrib/systemd/weir.service", "lib/systemd/system/weir.service")?,
        read("contrib/debian/10-debian.conf", "lib/systemd/system/weir.service.d/10-debian.conf")?,
        read("contrib/systemd/weir.socket", "usr/share/doc/weir/examples/weir.socket")?,
        PackedFile::text("usr/share/doc/weir/sbom.cdx.json", release.sbom.clone()),
        PackedFile::text("usr/share/doc/weir/copyright", copyright(root)?),
    ];
    let changes = read("CHANGELOG.md", "")?.bytes;
    files.push(PackedFile::text("usr/share/doc/weir/CHANGELOG.md.gz", gz(&changes)?));
    let changes = gz(changelog(release).as_bytes())?;
    files.push(PackedFile::text("usr/share/doc/weir/changelog.gz", changes));
    for path in tree::files(root)? {
        let name = path.rsplit('/').next().unwrap_or(&path);
        if path.starts_with("docs/") && path.ends_with(".md") {
            let within = path.trim_start_matches("docs/");
            files.push(read(&path, &format!("usr/share/doc/weir/{within}"))?);
        } else if EXAMPLES.iter().any(|folder| path.starts_with(folder)) {
            files.push(read(&path, &format!("usr/share/doc/weir/examples/{name}"))?);
        }
    }
    for (path, text) in &release.pages {
        let file = match path.rsplit('/').next() {
            Some(page) if page.ends_with(".1") => {
                PackedFile::text(&format!("usr/share/man/man1/{page}.gz"), gz(text.as_bytes())?)
            }
            Some("weir.bash") => {
                PackedFile::text("usr/share/bash-completion/completions/weir", text.clone())
            }
            Some("_weir") => {
                PackedFile::text("usr/share/zsh/vendor-completions/_weir", text.clone())
            }
            Some("weir.fish") => {
                PackedFile::text("usr/share/fish/vendor_completions.d/weir.fish", text.clone())
            }
            _ => continue,
        };
        files.push(file);
    }
    Ok(files)
}

fn control(release: &Release, architecture: &str, bytes: u64) -> String {
    let mut depends = vec!["adduser".to_owned(), "init-system-helpers (>= 1.52)".to_owned()];
    if let Some((major, minor)) = libc_version(&release.program) {
        depends.push(format!("libc6 (>= {major}.{minor})"));
        depends.push("libgcc-s1".to_owned());
    }
    format!(
        "Package: weir\n\
         Version: {}\n\
         Architecture: {architecture}\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {}\n\
         Depends: {}\n\
         Recommends: logrotate\n\
         Section: httpd\n\
         Priority: optional\n\
         Description: HTTP server that keeps its peak throughput when it is overloaded\n \
         weir serves files and stands in front of other servers. It accepts what it\n \
         can answer in time and leaves the rest to the kernel, so that a flood costs\n \
         those who are answered nothing. With it come an open-loop load generator and\n \
         experiments that run servers side by side.\n",
        release.version,
        bytes.div_ceil(1024),
        depends.join(", ")
    )
}

/// Returns the package's own list of changes (deb-changelog(5)), which leads to the program's.
fn changelog(release: &Release) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(release.time_s);
    let date = httpdate::fmt_http_date(time).replace("GMT", "+0000");
    let version = &release.version;
    let changes = format!("weir ({version}) stable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n");
    format!("{changes}\n -- {MAINTAINER}  {date}\n")
}

/// Returns the oldest version of the C library that a program can do with: that of the newest
/// symbol it asks for, or the one that knows its packed relocations. `None`: it needs no library.
fn libc_version(program: &[u8]) -> Option<(u32, u32)> {
    const NAME: &[u8] = b"GLIBC_";
    const PACKED_RELOCATIONS: &[u8] = b"ABI_DT_RELR\0";
    let places = program.windows(NAME.len()).enumerate().filter(|(_, part)| *part == NAME);
    let versions = places.filter_map(|(at, _)| {
        let rest = &program[at + NAME.len()..];
        if rest.starts_with(PACKED_RELOCATIONS) {
            return Some((2, 36));
        }
        let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        let mut numbers = text.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

fn copyright(root: &Path) -> Result<String> {
    let text = String::from_utf8(PackedFile::read(root, "contrib/debian/copyright", "")?.bytes)?;
    let licence = String::from_utf8(PackedFile::read(root, "LICENSE-MIT", "")?.bytes)?;
    // Further lines of a field begin with a space, and empty ones are a dot (deb822(5)).
    let lines: Vec<String> = licence
        .lines()
        .map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") })
        .collect();
    Ok(text.replace(" @MIT@", &lines.join("\n")))
}

fn md5sums(files: &[PackedFile]) -> String {
    let installed =
        files.iter().filter(|file| !CONFFILES.contains(&format!("/{}", file.path).as_str()));
    installed.map(|file| format!("{}  {}\n", hex(&Md5::digest(&file.bytes)), file.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_says_which_library_is_needed() {
        let program = b"..GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0";
        assert_eq!(libc_version(program), Some((2, 34)));
        assert_eq!(libc_version(b"GLIBC_2.34\0GLIBC_ABI_DT_RELR\0"), Some((2, 36)));
        assert_eq!(libc_version(b"no library"), None);
    }

    #[test]
    fn a_package_has_the_parts_that_dpkg_wants_in_their_order() {
        let release = Release {
            version: "1.2.3".to_owned(),
            target: "x86_64-unknown-linux-gnu".to_owned(),
            time_s: 7,
            sbom: "{}".to_owned(),
            program: b"GLIBC_2.36\0".to_vec(),
            pages: ["weir.1", "weir-serve.1"]
                .map(|page| (format!("man/{page}"), format!(".TH {page}\n")))
                .to_vec(),
        };
        let root = tree::root();
        let bytes = make(&root, &release, "amd64").unwrap();
        assert_eq!(bytes, make(&root, &release, "amd64").unwrap());
        let mut archive = ar::Archive::new(&bytes[..]);
        let mut names = Vec::new();
        while let Some(entry) = archive.next_entry() {
            names.push(String::from_utf8(entry.unwrap().header().identifier().to_vec()).unwrap());
        }
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
        let control = control(&release, "amd64", 2048);
        assert!(control.contains("Version: 1.2.3\n") && control.contains("libc6 (>= 2.36)"));
        assert!(control.contains("Installed-Size: 2\n"));
        let files = data(&root, &release).unwrap();
        for (path, _) in &release.pages {
            let installed = format!("usr/share/man/man1/{}.gz", path.trim_start_matches("man/"));
            assert!(files.iter().any(|file| file.path == installed), "{installed}");
        }
        for conffile in CONFFILES {
            assert!(files.iter().any(|file| format!("/{}", file.path) == conffile), "{conffile}");
        }
        assert!(copyright(&root).unwrap().contains("\n ."));
    }
}
