//! From the start of the program to its first reply, with each architecture: the time, and the
//! memory that is resident then. Every start is of a new process, and its file is in the kernel's
//! cache.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_lab::{machine, setup_summary, time};

use crate::tree;

/// The options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct StartArgs {
    /// How often the server is started with each architecture
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// The program to start [default: this tree's, built with the profile of packages]
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
    /// The folder to write to [default: results/DATE-start]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Options of the servers, by what they are called in the table.
const SERVERS: [(&str, &[&str]); 7] = [
    ("nothing set", &[]),
    ("`--arch helpers`", &["--arch", "helpers"]),
    ("`--arch ring`", &["--arch", "ring"]),
    ("`--arch fiber`", &["--arch", "fiber"]),
    ("`--arch threads`", &["--arch", "threads"]),
    ("`--arch processes`", &["--arch", "processes"]),
    ("`--sandbox=off`", &["--sandbox=off"]),
];

/// Time between two attempts to connect.
const INTERVAL: Duration = Duration::from_micros(100);

/// Time within which a server must have replied.
const REPLY_MAX: Duration = Duration::from_secs(10);

/// A start: time to the first reply, and resident memory then.
#[derive(Clone, Copy, Debug)]
struct Start {
    ms: f64,
    resident_kib: u64,
}

/// Measures, and writes the page.
pub(crate) fn run(args: &StartArgs) -> Result<()> {
    let weir = match &args.weir {
        Some(weir) => weir.clone(),
        None => tree::build(tree::cargo(), &["--profile", "dist", "--package", "weir"], "weir")?,
    };
    let scratch = tempfile::Builder::new().prefix("weir-start-").tempdir()?;
    fs::write(scratch.path().join("file"), "hello")?;
    let mut starts = SERVERS.map(|_| Vec::new());
    // In turn, so that what changes with time changes for all. The first is not counted.
    for round in 0..=args.starts {
        for ((_, options), starts) in SERVERS.iter().zip(&mut starts) {
            let start = start(&weir, scratch.path(), options)?;
            starts.extend((round > 0).then_some(start));
        }
    }
    let page = page(&starts, fs::metadata(&weir)?.len());
    print!("{page}");
    let dated = || tree::root().join(format!("results/{}-start", time::utc_today()));
    let out = args.out.clone().unwrap_or_else(dated);
    fs::create_dir_all(&out)?;
    fs::write(out.join("summary.md"), page)?;
    Ok(())
}

fn start(weir: &Path, root: &Path, options: &[&str]) -> Result<Start> {
    let address = free_address()?;
    let mut command = Command::new(weir);
    command.arg("serve").arg(root).args(["--listen", &address.to_string()]).args(options);
    command.env("WEIR_RUN_DIR", root).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let mut server = command.spawn().context("weir does not start")?;
    let measured = first_reply(&mut server, address, began);
    // SIGKILL: how it ends is not asked, and its children go with it.
    let ended = server.kill().and_then(|()| server.wait());
    let start = measured?;
    ended?;
    Ok(start)
}

/// Returns an address that nobody listens on now.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn first_reply(server: &mut Child, address: SocketAddr, began: Instant) -> Result<Start> {
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => {
                let waits = error.kind() == ErrorKind::ConnectionRefused;
                let is_late = began.elapsed() > REPLY_MAX || server.try_wait()?.is_some();
                ensure!(waits && !is_late, "the server does not serve: {error}");
            }
        }
        thread::sleep(INTERVAL);
    };
    stream.set_read_timeout(Some(REPLY_MAX))?;
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut first = [0; 12];
    stream.read_exact(&mut first).context("no reply")?;
    let ms = began.elapsed().as_secs_f64() * 1e3;
    ensure!(first == *b"HTTP/1.1 200", "not a 200: {}", String::from_utf8_lossy(&first));
    let status = fs::read_to_string(format!("/proc/{}/status", server.id()))?;
    let resident_kib = resident_kib(&status).context("no VmRSS in /proc")?;
    Ok(Start { ms, resident_kib })
}

/// Returns the resident memory of a `status` file, KiB (proc_pid_status(5)).
fn resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim_end().parse().ok()
}

fn page(all: &[Vec<Start>], program_bytes: u64) -> String {
    let mut page = "\
# From the start to the first reply

How long after its start does the program reply to a request, and what does it take then? A new
process each time, in turn with the others; a client that tries to connect every 0.1 ms.

| server | n | first reply, median, ms | least | most | resident then, median, MiB |
|---|---:|---:|---:|---:|---:|
"
    .to_owned();
    for ((name, _), starts) in SERVERS.iter().zip(all) {
        let ms = sorted(starts.iter().map(|start| start.ms));
        let mib = sorted(starts.iter().map(|start| start.resident_kib as f64 / 1024.0));
        let (Some(least), Some(most)) = (ms.first(), ms.last()) else { continue };
        let [ms_median, mib_median] = [&ms, &mib].map(|values| values[values.len() / 2]);
        let n = ms.len();
        // Writing into a String cannot fail.
        let _ = writeln!(
            page,
            "| {name} | {n} | {ms_median:.1} | {least:.1} | {most:.1} | {mib_median:.1} |"
        );
    }
    let _ = writeln!(page, "\n## Set-up\n\n- the program has {program_bytes} bytes");
    for (name, value) in setup_summary::machine(&machine::machine()) {
        let _ = writeln!(page, "- {name}: {value}");
    }
    page
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_row_for_each_server() {
        let starts = [3.0, 1.0, 2.0].map(|ms| Start { ms, resident_kib: 2048 }).to_vec();
        let page = page(&[starts.clone(), starts], 1000);
        assert!(page.contains("| nothing set | 3 | 2.0 | 1.0 | 3.0 | 2.0 |\n| `--arch helpers` |"));
        assert!(page.contains("- the program has 1000 bytes\n"));
    }

    #[test]
    fn resident_memory_is_read() {
        assert_eq!(resident_kib("Name:\tweir\nVmRSS:\t    5120 kB\n"), Some(5120));
        assert_eq!(resident_kib("Name:\tweir\n"), None);
    }
}
