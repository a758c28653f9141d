//! Building and tearing down testbeds on this machine. Tests that need root say that they skip.

#![allow(clippy::unwrap_used)] // lints take a helper of a test for no test

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_lab::cgroup::{ControlGroup, Limits};
use weir_lab::environment::{Environment, Side};
use weir_lab::testbed::{Mode, RequestedMode, Testbed, TestbedOptions};

const HAND: &str = env!("CARGO_BIN_EXE_weir-lab-test-helper");
/// Timeout of every wait: longer than any of them should take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of sleeping processes in each shell of `weir-lab-test-helper lab`.
const SLEEPERS: usize = 5;

/// Builds a testbed with namespaces; returns `None`, with a message on stderr, if the machine does
/// not permit it.
fn namespaces(sysctl: &[(&str, i64)]) -> Option<Testbed> {
    let all = ["--net", "--mount", "--pid", "--fork", "true"];
    if !succeeds(Command::new("unshare").args(all)) || weir_lab::programs::find("ip").is_none() {
        eprintln!("skipped: namespaces need root, and ip(8)");
        return None;
    }
    let sysctl = sysctl.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let wishes =
        TestbedOptions { mode: RequestedMode::Namespaces, sysctl, ..TestbedOptions::default() };
    Some(Testbed::build(&wishes, Path::new(HAND)).unwrap())
}

fn succeeds(command: &mut Command) -> bool {
    command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn loopback(sysctl: BTreeMap<String, i64>) -> Testbed {
    let wishes =
        TestbedOptions { mode: RequestedMode::Loopback, sysctl, ..TestbedOptions::default() };
    Testbed::build(&wishes, Path::new(HAND)).unwrap()
}

fn says(testbed: &Testbed, side: Side, script: &str) -> String {
    let output = testbed.command(side, OsStr::new("sh")).args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn processes() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.join("ns/net").exists()).collect()
}

/// Returns the processes with `word` among their arguments.
fn with_argument(word: &str) -> Vec<PathBuf> {
    let has = |path: &PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|argument| argument == word.as_bytes())
    };
    processes().into_iter().filter(has).collect()
}

fn network(process: &Path) -> Option<PathBuf> {
    process.join("ns/net").read_link().ok()
}

#[test]
fn a_process_on_a_side_sees_its_end_its_settings_and_its_processors_only() {
    let Some(mut testbed) = namespaces(&[("net.ipv4.tcp_syncookies", 0)]) else { return };
    for (side, end) in [(Side::Server, "server"), (Side::Client, "client")] {
        let script = "ls /sys/class/net; sed -n s/Cpus_allowed_list:.//p /proc/self/status; \
                      cat /proc/sys/net/core/somaxconn /proc/sys/net/ipv4/tcp_syncookies";
        let cpus = weir_lab::testbed::format_list(testbed.cpus(side));
        let mut seen: Vec<_> = says(&testbed, side, script).lines().map(str::to_owned).collect();
        seen.sort_unstable_by_key(|line| line.parse::<u32>().is_ok());
        let mut names = seen[..2].to_vec();
        names.sort_unstable();
        let mut expected = [end, "lo"];
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!(seen[2..], [cpus.as_str(), "65535", "0"]);
    }
    let description = testbed.description().clone();
    assert_eq!((description.mode, description.mtu), (Mode::Namespaces, Some(1500)));
    assert_eq!(description.client.sysctl["net.ipv4.ip_local_port_range"], "1024 65535");
    assert_eq!(description.server.sysctl["net.ipv4.tcp_syncookies"], "0");
    let mask = description.server.rps_cpus.unwrap().replace(',', "");
    let expected = description.server.cpus.iter().map(|cpu| 1_u128 << cpu).sum();
    assert_eq!(u128::from_str_radix(&mask, 16), Ok(expected));
    assert!(testbed.proc_net(Side::Server).join("netstat").exists());
    testbed.check_alive().unwrap();
    assert!(!Path::new("/sys/class/net/server").exists());
}

fn greets(testbed: &Testbed) {
    let mut command = testbed.command(Side::Server, OsStr::new(HAND));
    command.args(["greet", &testbed.server_address().to_string()]).stdout(Stdio::piped());
    let mut server = testbed.spawn(&mut command).unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let mut call = testbed.command(Side::Client, OsStr::new(HAND));
    let said = call.args(["call", address.trim()]).output().unwrap();
    assert!(server.wait().unwrap().success());
    let peer = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
    if testbed.shared() {
        assert_eq!(peer, testbed.server_address());
    } else {
        assert!(testbed.client_sources().contains(&peer), "{peer}");
    }
}

#[test]
fn a_client_reaches_the_server_over_the_link() {
    if let Some(testbed) = namespaces(&[]) {
        greets(&testbed);
    }
}

#[test]
fn a_client_reaches_the_server_over_loopback_which_is_said_to_be_one() {
    let asked = BTreeMap::from([("net.ipv4.tcp_syncookies".to_owned(), 0)]);
    let before = std::fs::read("/proc/sys/net/ipv4/tcp_syncookies").ok();
    let testbed = loopback(asked);
    greets(&testbed);
    assert!(testbed.shared());
    let warnings = testbed.description().warnings.join(" ");
    assert!(warnings.contains("loopback") && warnings.contains("net.ipv4.tcp_syncookies"));
    assert_eq!(std::fs::read("/proc/sys/net/ipv4/tcp_syncookies").ok(), before);
    let text = serde_json::to_string(testbed.description()).unwrap();
    assert_eq!(
        &serde_json::from_str::<weir_lab::testbed::Description>(&text).unwrap(),
        testbed.description()
    );
}

#[test]
fn a_setting_no_network_has_is_named() {
    if namespaces(&[]).is_none() {
        return;
    }
    let sysctl = BTreeMap::from([("net.ipv4.no_such_setting".to_owned(), 1)]);
    let wishes = TestbedOptions { sysctl, ..TestbedOptions::default() };
    let error = Testbed::build(&wishes, Path::new(HAND)).unwrap_err();
    assert!(error.contains("net.ipv4.no_such_setting"), "{error}");
}

#[test]
fn a_program_that_cannot_run_ends_with_127_and_a_sentence() {
    let testbed = loopback(BTreeMap::new());
    let output = testbed.command(Side::Server, OsStr::new("/no/such/program")).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/program"));
}

#[test]
fn a_lost_holder_is_noticed() {
    let mut testbed = loopback(BTreeMap::new());
    testbed.check_alive().unwrap();
    // `/proc/PID/net` of the holder.
    let holder = testbed.proc_net(Side::Server).parent().unwrap().to_owned();
    let pid = holder.file_name().unwrap().to_str().unwrap();
    assert!(succeeds(Command::new("kill").args(["-9", pid])));
    until("the holder is gone", || testbed.check_alive().err());
}

/// Drops a testbed while processes are still running on it and have not been waited for.
fn drops_clean(testbed: Testbed) {
    let mark = format!("10000.{}{}", std::process::id(), u8::from(testbed.shared()));
    let mut command = testbed.command(Side::Server, OsStr::new("sh"));
    command.args(["-c", &format!("sleep {mark} & sleep {mark} & sleep {mark}")]);
    let mut child = testbed.spawn(&mut command).unwrap();
    until("three sleep", || (sleepers(&mark).len() == 3).then_some(()));
    drop(testbed);
    let ended = until("the shell has ended", || child.try_wait().unwrap());
    assert!(!ended.success());
    until("none sleeps", || with_argument(&mark).is_empty().then_some(()));
}

fn sleepers(mark: &str) -> Vec<PathBuf> {
    let sleeps =
        |path: &PathBuf| std::fs::read(path.join("comm")).is_ok_and(|name| name == b"sleep\n");
    with_argument(mark).into_iter().filter(sleeps).collect()
}

#[test]
fn dropping_a_testbed_ends_what_still_runs_on_it() {
    drops_clean(loopback(BTreeMap::new()));
    if let Some(testbed) = namespaces(&[]) {
        drops_clean(testbed);
    }
}

/// Starts a lab, kills it, and waits until none of its processes are left.
fn killed_lab_leaves_nothing(mode: &str, tools: &str, kill: impl FnOnce(&mut Child)) {
    let mark = format!("20000.{}{}{}", std::process::id(), mode.len(), tools.len());
    let mut command = Command::new(HAND);
    command.args(["lab", mode, &mark, tools]).stdout(Stdio::piped());
    let mut lab = command.spawn().unwrap();
    // Until then its holder may not know the group of a process that runs already.
    let mut told = String::new();
    BufReader::new(lab.stdout.take().unwrap()).read_line(&mut told).unwrap();
    assert_eq!(told, "started\n");
    let shells = if tools == "tools" { 3 } else { 2 };
    let all = until("all sleep", || {
        assert!(lab.try_wait().unwrap().is_none(), "the lab ended by itself");
        Some(sleepers(&mark)).filter(|all| all.len() == shells * SLEEPERS)
    });
    let own = network(Path::new("/proc/self"));
    let networks: Vec<_> = all.iter().filter_map(|path| network(path)).collect();
    assert_eq!(networks.iter().any(|network| Some(network) == own.as_ref()), mode == "loopback");
    let holders = holders_of(lab.id());
    assert_eq!(holders.len(), if mode == "loopback" { 1 } else { 2 });
    kill(&mut lab);
    lab.wait().unwrap();
    until("nothing sleeps", || with_argument(&mark).is_empty().then_some(()));
    until("no process is in their networks", || {
        let mut in_use = processes().into_iter().filter_map(|path| network(&path));
        let left = in_use.any(|used| Some(&used) != own.as_ref() && networks.contains(&used));
        (!left).then_some(())
    });
    let holders_left = || with_argument("lab-holder").iter().any(|left| holders.contains(left));
    until("no holder is left", || (!holders_left()).then_some(()));
}

fn holders_of(lab: u32) -> Vec<PathBuf> {
    let parent = format!("PPid:\t{lab}");
    let of_lab = |path: &PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        status.lines().any(|line| line == parent)
    };
    with_argument("lab-holder").into_iter().filter(of_lab).collect()
}

#[test]
fn nothing_is_left_of_a_killed_lab_with_namespaces() {
    if namespaces(&[]).is_some() {
        killed_lab_leaves_nothing("namespaces", "tools", |lab| lab.kill().unwrap());
    }
}

#[test]
fn nothing_is_left_of_a_lab_that_is_killed_with_its_holders() {
    if namespaces(&[]).is_none() {
        return;
    }
    killed_lab_leaves_nothing("namespaces", "none", |lab| {
        let pids: Vec<_> = holders_of(lab.id())
            .iter()
            .map(|path| path.file_name().unwrap().to_owned())
            .chain([lab.id().to_string().into()])
            .collect();
        assert!(succeeds(Command::new("kill").arg("-9").args(pids)));
    });
}

#[test]
fn nothing_is_left_of_a_killed_lab_on_loopback() {
    killed_lab_leaves_nothing("loopback", "tools", |lab| lab.kill().unwrap());
}

#[test]
fn a_process_of_a_side_is_in_the_groups_it_is_put_into_and_in_no_others() {
    let limits = Limits { memory_mib: Some(64), ..Limits::default() };
    let confined = match ControlGroup::make(&limits, Path::new("/")) {
        Ok(confined) => confined,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let name = confined.folders()[0].file_name().unwrap().to_str().unwrap();
    let both = [namespaces(&[]), Some(loopback(BTreeMap::new()))];
    for testbed in both.into_iter().flatten() {
        let groups_of = |groups: &[PathBuf]| {
            let mut command = testbed.command_in(Side::Server, OsStr::new("cat"), groups);
            let output = command.arg("/proc/self/cgroup").output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let inside = groups_of(confined.folders());
        assert!(inside.contains(name), "{inside}");
        assert!(!groups_of(&[]).contains(name));
    }
}
