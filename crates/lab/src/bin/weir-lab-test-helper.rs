//! A helper program for this crate's tests: the hidden commands of `weir` that a testbed starts,
//! and the test roles, namely a lab that waits to be killed, a server and a client. Knows nothing
//! of experiments.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use weir_lab::environment::{Environment, Side};
use weir_lab::testbed::{RequestedMode, Testbed, TestbedOptions, enter_main, holder_main};

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let part = args.next().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    if part == "lab-holder" {
        return holder_main(rest);
    }
    if part == "lab-enter" {
        return enter_main(rest);
    }
    let words: Vec<String> = rest.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let done = match (part.to_str(), words.as_slice()) {
        (Some("lab"), [mode, mark, tools]) => lab(mode, mark, tools == "tools"),
        (Some("greet"), [address]) => greet(address),
        (Some("call"), [address]) => call(address),
        _ => Err("no such part".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-lab-test-helper: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds a testbed, starts processes that are hard to find again, says so, and waits to be killed.
/// All of them sleep for `mark` seconds. With `tools`, some are started directly, outside the PID
/// namespace.
fn lab(mode: &str, mark: &str, tools: bool) -> TestResult {
    let mode = if mode == "loopback" { RequestedMode::Loopback } else { RequestedMode::Namespaces };
    let options = TestbedOptions { mode, ..TestbedOptions::default() };
    let testbed = Testbed::build(&options, &std::env::current_exe()?)?;
    let script = format!(
        "sleep {mark} & setsid sleep {mark} & env -i sleep {mark} & \
         (trap '' TERM INT HUP; sleep {mark} & wait) & sleep {mark}"
    );
    let shell = OsStr::new("sh");
    let command = |side| {
        let mut command = testbed.command(side, shell);
        command.args(["-c", &script]);
        command
    };
    let _server = testbed.spawn(&mut command(Side::Server))?;
    let _client = testbed.spawn(&mut command(Side::Client))?;
    let mut tool = command(Side::Server);
    let _tool = match (tools, mode) {
        (false, _) => None,
        // On loopback there is no PID namespace for a tool to stay out of.
        (true, RequestedMode::Loopback) => Some(testbed.spawn(&mut tool)?),
        (true, _) => Some(tool.spawn()?),
    };
    println!("started");
    loop {
        std::thread::park();
    }
}

/// Listens on any free port, prints its address, and sends the first client its source address.
fn greet(address: &str) -> TestResult {
    let listener = TcpListener::bind((address, 0))?;
    println!("{}", listener.local_addr()?);
    let (mut stream, peer) = listener.accept()?;
    write!(stream, "{}", peer.ip())?;
    Ok(())
}

/// Connects to a server and prints what it sends.
fn call(address: &str) -> TestResult {
    let mut said = String::new();
    TcpStream::connect(address)?.read_to_string(&mut said)?;
    println!("{said}");
    Ok(())
}
