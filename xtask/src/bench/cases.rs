//! What is compared with what: each case names its contestants and the load they get. Knows nothing
//! of how a run is made or measured.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::peers::Server;
use super::programs::Programs;
use super::wrk::Load;
use crate::docs;

/// The cases, in the order they are run.
pub(super) const NAMES: [&str; 11] = [
    "one-packet",
    "keepalive-1k",
    "file-1m",
    "idle",
    "mechanisms",
    "batched",
    "architectures",
    "ring-bodies",
    "presets",
    "counters",
    "sendfile",
];

/// The sizes of the files that are served, in bytes.
pub(super) const FILE_SIZES: [u64; 14] = [
    0,
    1024,
    1200,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
];

/// The file idle connections ask for.
pub(super) const EMPTY_FILE: &str = "/0.bin";

const IDLE_CONNECTIONS: usize = 10_000;

/// What the server's time is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Per {
    /// A request.
    Request,
    /// A byte, where what counts is how fast the bytes go.
    Byte,
}

/// A comparison.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// What is compared, in a sentence or two.
    pub(super) about: String,
    /// The contestant the others of its group are divided by.
    pub(super) baseline: String,
    pub(super) per: Per,
    pub(super) contestants: Vec<Contestant>,
}

/// One of those compared. Within a group the load is the same.
pub(super) struct Contestant {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) server: Server,
    pub(super) load: Load,
    /// Connections that are open and silent meanwhile.
    pub(super) idle: usize,
}

/// The case called `name`.
pub(super) fn case(name: &str, programs: &Programs) -> Result<Case> {
    match name {
        "one-packet" => Ok(one_packet(programs)),
        "keepalive-1k" => Ok(keepalive_1k(programs)),
        "file-1m" => Ok(file_1m(programs)),
        "idle" => idle(programs),
        "mechanisms" => mechanisms(programs),
        "batched" => Ok(batched(programs)),
        "architectures" => architectures(programs),
        "ring-bodies" => Ok(ring_bodies(programs)),
        "presets" => presets(programs),
        "counters" => counters(programs),
        "sendfile" => Ok(sendfile(programs)),
        _ => bail!("no case is called {name}"),
    }
}

fn close_1200() -> Load {
    Load { path: "/1200.bin".to_owned(), connections: 64, close: true }
}

fn keep_1024() -> Load {
    Load { path: "/1024.bin".to_owned(), connections: 64, close: false }
}

fn one_packet(programs: &Programs) -> Case {
    Case {
        name: "one-packet",
        about: "A connection for each request, 64 at a time; every server sends a file of 1200 \
                bytes, which with its head fits one packet of 1448 bytes."
            .to_owned(),
        baseline: "weir".to_owned(),
        per: Per::Request,
        contestants: everybody(programs, 1200, &close_1200()),
    }
}

fn keepalive_1k(programs: &Programs) -> Case {
    Case {
        name: "keepalive-1k",
        about: "64 connections, kept open; a file of 1024 bytes.".to_owned(),
        baseline: "weir".to_owned(),
        per: Per::Request,
        contestants: everybody(programs, 1024, &keep_1024()),
    }
}

fn file_1m(programs: &Programs) -> Case {
    let load = Load { path: "/1048576.bin".to_owned(), connections: 16, close: false };
    Case {
        name: "file-1m",
        about: "16 connections, kept open; a file of 1,048,576 bytes. The bare loop writes from \
                memory, the others may use sendfile."
            .to_owned(),
        baseline: "weir".to_owned(),
        per: Per::Byte,
        contestants: everybody(programs, 1 << 20, &load),
    }
}

fn everybody(programs: &Programs, size: u64, load: &Load) -> Vec<Contestant> {
    let bare = Server::Bare { program: programs.bare.clone(), reply_bytes: size };
    let ours = [("weir", weir(&programs.weir, &[])), ("bare loop", bare)];
    let all = ours.into_iter().chain(programs.peers.iter().cloned());
    all.map(|(name, server)| contestant(name, "", server, load)).collect()
}

fn idle(programs: &Programs) -> Result<Case> {
    let mut contestants = Vec::new();
    for mechanism in names(&programs.weir, "mechanisms")? {
        for idle in [0, IDLE_CONNECTIONS] {
            let options =
                ["--mechanism", &mechanism, "--max-conns", "16000", "--idle-timeout", "60m"];
            let server = weir(&programs.weir, &options);
            let name = format!("{mechanism}, {idle} idle");
            contestants.push(Contestant { idle, ..contestant(&name, "", server, &keep_1024()) });
        }
    }
    Ok(Case {
        name: "idle",
        about: format!(
            "Each mechanism with no and with {IDLE_CONNECTIONS} idle connections, each of which \
             has had one reply; meanwhile 64 others, kept open, ask for a file of 1024 bytes."
        ),
        baseline: "epoll-et, 0 idle".to_owned(),
        per: Per::Request,
        contestants,
    })
}

fn mechanisms(programs: &Programs) -> Result<Case> {
    Ok(Case {
        name: "mechanisms",
        about: "Each mechanism; 64 connections, kept open; a file of 1024 bytes.".to_owned(),
        baseline: "epoll-et".to_owned(),
        per: Per::Request,
        contestants: each(programs, "mechanisms", "--mechanism", &keep_1024())?,
    })
}

fn batched(programs: &Programs) -> Case {
    let mut contestants = Vec::new();
    for (group, load) in [("one-packet", close_1200()), ("keepalive-1k", keep_1024())] {
        for mechanism in ["epoll-lt", "epoll-ctlv", "epoll-et", "uring-poll"] {
            let options = ["--mechanism", mechanism, "--preset", "acceptinf", "--caching=on"];
            contestants.push(contestant(mechanism, group, weir(&programs.weir, &options), &load));
        }
    }
    Case {
        name: "batched",
        about: "Changes of interest one by one and many at a time: the preset acceptinf with a \
                cache, which reads in one phase and writes in the next; 64 connections."
            .to_owned(),
        baseline: "epoll-lt".to_owned(),
        per: Per::Request,
        contestants,
    }
}

fn architectures(programs: &Programs) -> Result<Case> {
    let mut contestants = Vec::new();
    for (group, load) in [("one-packet", close_1200()), ("keepalive-1k", keep_1024())] {
        for arch in names(&programs.weir, "architectures")? {
            // A child serves one connection at a time, and there are 64.
            let pool: &[&str] =
                if arch == "processes" { &["--arch-option", "pool=64"] } else { &[] };
            let options = [&["--arch", arch.as_str()], pool].concat();
            contestants.push(contestant(&arch, group, weir(&programs.weir, &options), &load));
        }
        for (name, option) in [("ring, gather", "gather-us=50"), ("ring, sqpoll", "sqpoll=1")] {
            let server = weir(&programs.weir, &["--arch", "ring", "--arch-option", option]);
            contestants.push(contestant(name, group, server, &load));
        }
    }
    Ok(Case {
        name: "architectures",
        about: "Each architecture, with the default policy; 64 connections, one for each request \
                (1200 bytes) or kept open (1024 bytes). With `gather` the ring sleeps for several \
                completions, for 50 us at most. The kernel's thread of `sqpoll` has the server's \
                processor, and its time is the server's."
            .to_owned(),
        baseline: "loop".to_owned(),
        per: Per::Request,
        contestants,
    })
}

/// How the ring sends a body: from memory with a copy and without, from a file by reading it.
fn ring_bodies(programs: &Programs) -> Case {
    let mut contestants = Vec::new();
    for size in FILE_SIZES.into_iter().filter(|size| *size >= 8 << 10) {
        let load = Load { path: format!("/{size}.bin"), connections: 16, close: false };
        let ways: [(&str, &[&str]); 5] = [
            ("loop, sendfile", &["--sendfile-above", "0"]),
            ("loop, memory", &["--sendfile-above", "1G"]),
            ("ring, read", &["--arch", "ring", "--sendfile-above", "0"]),
            ("ring, memory", &["--arch", "ring", "--sendfile-above", "1G"]),
            (
                "ring, no copy",
                &["--arch", "ring", "--sendfile-above", "1G", "--arch-option", "zero-copy-from=1"],
            ),
        ];
        for (name, options) in ways {
            let options = [options, &["--cache-size", "64M"]].concat();
            let server = weir(&programs.weir, &options);
            contestants.push(contestant(name, &format!("{} KiB", size >> 10), server, &load));
        }
    }
    Case {
        name: "ring-bodies",
        about: "How bodies are sent: the loop with sendfile and from memory; the ring by reading \
                the file, from memory, and from memory without a copy; 16 connections, kept open."
            .to_owned(),
        baseline: "loop, sendfile".to_owned(),
        per: Per::Byte,
        contestants,
    }
}

fn presets(programs: &Programs) -> Result<Case> {
    Ok(Case {
        name: "presets",
        about: "Each preset; a connection for each request, 64 at a time; a file of 1200 bytes."
            .to_owned(),
        baseline: "default".to_owned(),
        per: Per::Request,
        contestants: each(programs, "presets", "--preset", &close_1200())?,
    })
}

/// `weir` with `option` set to each of the names that its table `table` lists.
fn each(programs: &Programs, table: &str, option: &str, load: &Load) -> Result<Vec<Contestant>> {
    let names = names(&programs.weir, table)?;
    let make =
        |name: &String| contestant(name, "", weir(&programs.weir, &[option, name.as_str()]), load);
    Ok(names.iter().map(make).collect())
}

/// The names that the table `table` of the executable `weir` lists.
pub(super) fn names(weir: &Path, table: &str) -> Result<Vec<String>> {
    let names = docs::first_cells(&docs::table(weir, table)?);
    if names.is_empty() { bail!("weir docs-table {table} lists nothing") } else { Ok(names) }
}

fn counters(programs: &Programs) -> Result<Case> {
    let without =
        programs.counters_off.as_deref().context("weir was not built without counters")?;
    let mut contestants = Vec::new();
    for (group, load) in [("one-packet", close_1200()), ("keepalive-1k", keep_1024())] {
        contestants.push(contestant("counters on", group, weir(&programs.weir, &[]), &load));
        contestants.push(contestant("counters off", group, weir(without, &[]), &load));
    }
    Ok(Case {
        name: "counters",
        about: "What the counters cost: weir as it is, and built without them.".to_owned(),
        baseline: "counters off".to_owned(),
        per: Per::Request,
        contestants,
    })
}

fn sendfile(programs: &Programs) -> Case {
    let mut contestants = Vec::new();
    for size in FILE_SIZES.into_iter().filter(|size| *size >= 4096) {
        let load = Load { path: format!("/{size}.bin"), connections: 16, close: false };
        for (name, above) in [("sendfile", "0"), ("memory", "1G")] {
            let options = ["--sendfile-above", above, "--cache-size", "64M"];
            let server = weir(&programs.weir, &options);
            contestants.push(contestant(name, &format!("{} KiB", size >> 10), server, &load));
        }
    }
    Case {
        name: "sendfile",
        about: "From which size on sendfile is the cheaper way: weir sending every file so, and \
                sending every file from its cache; 16 connections, kept open."
            .to_owned(),
        baseline: "sendfile".to_owned(),
        per: Per::Byte,
        contestants,
    }
}

fn weir(program: &Path, options: &[&str]) -> Server {
    let options = options.iter().map(|option| (*option).to_owned()).collect();
    Server::Weir { program: program.to_owned(), options }
}

fn contestant(name: &str, group: &str, server: Server, load: &Load) -> Contestant {
    let (name, group) = (name.to_owned(), group.to_owned());
    Contestant { group, name, server, load: load.clone(), idle: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const TABLES: &str = "#!/bin/sh\necho '| name | help |'\necho '|---|---|'\n\
                          echo '| `epoll-et` | x |'\necho '| `default` | y |'\n\
                          echo '| `loop` | z |'\n";

    fn programs(weir: &Path) -> Programs {
        Programs {
            weir: weir.to_owned(),
            counters_off: Some("weir-off".into()),
            bare: "bare".into(),
            peers: vec![("nginx", Server::Nginx("nginx".into()))],
            skipped: vec!["h2o"],
            versions: BTreeMap::new(),
        }
    }

    #[test]
    fn every_case_has_its_baseline_in_every_group_and_asks_for_files_that_exist() {
        let folder = tempfile::tempdir().unwrap();
        let weir = folder.path().join("weir");
        fs::write(&weir, TABLES).unwrap();
        fs::set_permissions(&weir, fs::Permissions::from_mode(0o755)).unwrap();
        for name in NAMES {
            let case = case(name, &programs(&weir)).unwrap();
            assert_eq!(case.name, name);
            let names: BTreeSet<_> = case.contestants.iter().map(|c| (&c.group, &c.name)).collect();
            assert_eq!(names.len(), case.contestants.len(), "{name}: two of one name");
            for contestant in &case.contestants {
                assert!(names.contains(&(&contestant.group, &case.baseline)), "{name}");
                let size = contestant.load.path.trim_matches(|c: char| !c.is_ascii_digit());
                assert!(FILE_SIZES.contains(&size.parse().unwrap()), "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_case_is_an_error() {
        assert!(case("none", &programs(Path::new("weir"))).is_err());
    }
}
