//! Namespaces, and what goes with them: who dies with whom, and where a process may run.
//!
//! Nothing here knows what a namespace is for, or keeps one: a namespace lives as long as a process
//! is in it (namespaces(7)).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, LinkNameSpaceType, UnshareFlags};

/// Gives the calling process a network of its own, with nothing in it but a loopback that is down,
/// and a view of the mounts of its own in which /sys shows that network. Nothing mounted here is
/// seen elsewhere.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN: unshare(2), mount(2).
pub fn leave_network() -> io::Result<()> {
    let flags = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    // SAFETY: the table of descriptors stays shared: CLONE_FILES is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("weir", "/sys", "sysfs", flags, None)?)
}

/// Moves the calling thread into the network of `net`, a link of `/proc/PID/ns`.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOENT when the process is gone: setns(2).
pub fn enter_network(net: &Path) -> io::Result<()> {
    enter(net, LinkNameSpaceType::Network)
}

/// Moves the calling process, which must have one thread, to the mounts of `mnt`, a link of
/// `/proc/PID/ns`. The working directory becomes the root.
///
/// # Errors
/// EINVAL with several threads; EPERM without CAP_SYS_ADMIN and CAP_SYS_CHROOT: setns(2).
pub fn enter_mounts(mnt: &Path) -> io::Result<()> {
    enter(mnt, LinkNameSpaceType::Mount)
}

fn enter(link: &Path, kind: LinkNameSpaceType) -> io::Result<()> {
    let link = File::open(link)?;
    Ok(rustix::thread::move_into_link_name_space(link.as_fd(), Some(kind))?)
}

/// A PID namespace: when its first process ends, the kernel kills every other (pid_namespaces(7)).
#[derive(Debug)]
pub struct Pids {
    link: File,
}

impl Pids {
    /// Starts the first process of a new one. `start` must start one process and tell its id as
    /// seen from here.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN: unshare(2); and what `start` says.
    pub fn with_first<T>(start: impl FnOnce() -> io::Result<(T, u32)>) -> io::Result<(T, Self)> {
        let back = Back::remember()?;
        // SAFETY: the table of descriptors stays shared: CLONE_FILES is not among the flags.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }?;
        let started = start();
        drop(back);
        let (first, pid) = started?;
        Ok((first, Self { link: File::open(format!("/proc/{pid}/ns/pid"))? }))
    }

    /// Runs `start`; the processes it starts from this thread are in the namespace. It must start
    /// no thread: the kernel refuses one meanwhile.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN: setns(2). ENOMEM from `start` once the first process has ended.
    pub fn with_children<T>(&self, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _back = Back::remember()?;
        rustix::thread::move_into_link_name_space(
            self.link.as_fd(),
            Some(LinkNameSpaceType::ProcessID),
        )?;
        start()
    }
}

/// Where this thread's children belong again when it is dropped.
struct Back(File);

impl Back {
    fn remember() -> io::Result<Self> {
        Ok(Self(File::open("/proc/thread-self/ns/pid")?))
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        // A thread may always come back to the namespace it is in itself: pidns_install() of the
        // kernel asks for no more than what going away asked for.
        let kind = Some(LinkNameSpaceType::ProcessID);
        let _ = rustix::thread::move_into_link_name_space(self.0.as_fd(), kind);
    }
}

/// Has the kernel kill this process (SIGKILL) when the thread that started it ends, and says if
/// `parent`, or a process outside of this PID namespace, is the parent still. Holds across execve
/// unless that changes the user (PR_SET_PDEATHSIG, prctl(2)).
///
/// # Errors
/// None that prctl(2) documents for this.
pub fn die_with(parent: u32) -> io::Result<bool> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent outside has no number here: getppid(2) says 0.
    let now = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    Ok(now == 0 || u32::try_from(now) == Ok(parent))
}

/// Lets the calling thread, and what it starts, run on these processors only.
///
/// # Errors
/// EINVAL when none of them is there or allowed, or one is past what the kernel counts.
pub fn run_on(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        set.set(cpu);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Kills a process: SIGKILL.
///
/// # Errors
/// EPERM, ESRCH: kill(2).
pub fn kill(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(rustix::process::kill_process(pid, Signal::KILL)?)
}

/// Outlives a terminal: SIGHUP, SIGINT and SIGTERM do nothing from now on. Children that end, one's
/// own or orphans of the PID namespace, leave nothing to wait for (SIGCHLD ignored, wait(2)).
pub fn keep_calm() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGCHLD] {
        // SAFETY: no handler is installed, so none can run; the previous one is not needed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn all_of_a_pid_namespace_ends_with_its_first_process_and_threads_start_again() {
        let sleep = || Command::new("sleep").arg("1000").spawn();
        let first = Pids::with_first(|| {
            let child = sleep()?;
            let pid = child.id();
            Ok((child, pid))
        });
        let (mut first, pids) = match first {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return eprintln!("skipped: PID namespaces need CAP_SYS_ADMIN");
            }
            other => other.unwrap(),
        };
        let mut second = pids.with_children(sleep).unwrap();
        std::thread::spawn(|| ()).join().unwrap();
        first.kill().unwrap();
        // The first process is gone only once all the others have been waited for.
        assert!(!second.wait().unwrap().success());
        assert!(!first.wait().unwrap().success());
    }

    #[test]
    fn a_processor_that_cannot_be_is_refused() {
        assert!(run_on(&[usize::MAX]).is_err());
        assert!(run_on(&[]).is_err());
    }
}
