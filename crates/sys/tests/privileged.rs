//! Answers that a process which has become another user gets from the one that keeps its
//! privileges, and refusals, whatever it asks. Runs as a process of its own with one thread, as
//! fork(2) requires. Needs root.

#![allow(clippy::unwrap_used, reason = "a broken expectation is a failed test")]

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use weir_sys::privileged::{self, Duties};
use weir_sys::sandbox::Support;
use weir_sys::syn_filter::tokens::Rules;
use weir_sys::user::{User, may_change};
use weir_sys::{fork, socket};

const RULES: Rules = Rules { burst: 1, addresses_counted_max: 1, epoch_bits: 30, dropped_max: 16 };

fn main() {
    let user = User::find("nobody", None);
    let (Ok(user), true) = (user, may_change()) else {
        return eprintln!("SKIPPED: this takes root, and a user nobody");
    };
    let dir = std::env::temp_dir().join(format!("weir-privileged-{}", std::process::id()));
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    let parent = fork::fork().unwrap();
    if parent == 0 {
        become_user(&user, &dir);
        std::process::exit(0);
    }
    // The other user can remove nothing.
    let end = fork::wait_child(parent);
    let log = fs::read_to_string(dir.join("log"));
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(end.unwrap(), fork::ExitStatus::Status(0));
    assert_eq!(log.unwrap(), "line\n");
}

fn become_user(user: &User, dir: &Path) {
    let (key, secret, log) = (dir.join("key"), dir.join("secret"), dir.join("log"));
    fs::write(&key, "key").unwrap();
    fs::write(&secret, "secret").unwrap();
    assert_eq!(privileged::read(&key).unwrap(), b"key");
    let support = Support::find();
    let has_filters = privileged::token_filter(RULES).is_ok();
    privileged::start(Duties { logs: vec![log.clone()], rules: RULES, support }).unwrap();
    user.become_for_good().unwrap();
    assert!(user.is_current() && !may_change() && user.become_for_good().is_ok());

    // What was named before.
    fs::read(&key).unwrap_err();
    assert_eq!(privileged::read(&key).unwrap(), b"key");
    privileged::append(&log).unwrap().write_all(b"line\n").unwrap();
    // And nothing else, however it is named.
    let roundabout = dir.join("../").join(dir.file_name().unwrap()).join("secret");
    for path in [&secret, &log, &roundabout, Path::new("/etc/shadow")] {
        let error = privileged::open(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", path.display());
    }
    for path in [&secret, &key, Path::new("/etc/passwd")] {
        let error = privileged::append(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", path.display());
    }
    filters(has_filters);
    // What is no question is none, and the next one is answered.
    let channel = privileged::channel().unwrap();
    for noise in [&[][..], &[0], &[1; 16], &[0xff; 5000], &[]] {
        fork::send(channel.as_fd(), noise, true).unwrap();
    }
    assert_eq!(privileged::read(&key).unwrap(), b"key");
    // It is closed for good, and who asks the kernel gets the kernel's answer.
    privileged::close();
    assert!(!privileged::is_there());
    assert_eq!(privileged::read(&key).unwrap_err().kind(), ErrorKind::PermissionDenied);
}

/// Filters are made and attached to sockets of TCP, and to nothing else.
fn filters(are_possible: bool) {
    if !are_possible {
        return eprintln!("SKIPPED in part: no eBPF here");
    }
    let tcp = socket::bind_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let filter = privileged::token_filter(RULES).unwrap();
    privileged::attach(&filter, tcp.as_fd()).unwrap();
    privileged::attach_random(tcp.as_fd(), 0.5).unwrap();
    assert_eq!(filter.counts().dropped, 0);
    for share in [f64::NAN, 7.0] {
        privileged::attach_random(tcp.as_fd(), share).unwrap();
    }
}
