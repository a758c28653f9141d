//! Namespaces, and related process attributes: parent-death signals and processor affinity.
//!
//! A namespace lives as long as a process is in it (namespaces(7)); nothing here keeps one alive.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, LinkNameSpaceType, UnshareFlags};

/// Moves the calling process to a new network namespace, which has only a loopback interface, down,
/// and to a new mount namespace in which /sys shows that network. Mounts made here are not visible
/// elsewhere.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN: unshare(2), mount(2).
pub fn unshare_network() -> io::Result<()> {
    let flags = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    // SAFETY: the table of descriptors stays shared: CLONE_FILES is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount("weir", "/sys", "sysfs", flags, None)?)
}

/// Moves the calling thread into the network namespace `net`, a link in `/proc/PID/ns`.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, ENOENT when the process is gone: setns(2).
pub fn enter_network(net: &Path) -> io::Result<()> {
    enter(net, LinkNameSpaceType::Network)
}

/// Moves the calling process, which must have one thread, into the mount namespace `mnt`, a link in
/// `/proc/PID/ns`. Its working directory becomes the root.
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

/// A PID namespace. When its first process ends, the kernel kills all others (pid_namespaces(7)).
#[derive(Debug)]
pub struct PidNamespace {
    link: File,
}

impl PidNamespace {
    /// Creates a PID namespace and runs `start` to start its first process. `start` must start
    /// exactly one process and return its ID as seen from here.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN: unshare(2); and the errors of `start`.
    pub fn create_with<T>(start: impl FnOnce() -> io::Result<(T, u32)>) -> io::Result<(T, Self)> {
        let back = SavedNamespace::current()?;
        // SAFETY: the table of descriptors stays shared: CLONE_FILES is not among the flags.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }?;
        let started = start();
        drop(back);
        let (first, pid) = started?;
        Ok((first, Self { link: File::open(format!("/proc/{pid}/ns/pid"))? }))
    }

    /// Runs `start` so that processes it starts from this thread are in the namespace. `start` must
    /// start no thread: the kernel refuses to create one meanwhile.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN: setns(2). ENOMEM from `start` once the first process has ended.
    pub fn spawn_inside<T>(&self, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _back = SavedNamespace::current()?;
        rustix::thread::move_into_link_name_space(
            self.link.as_fd(),
            Some(LinkNameSpaceType::ProcessID),
        )?;
        start()
    }
}

/// Restores the PID namespace of this thread's future children when dropped.
struct SavedNamespace(File);

impl SavedNamespace {
    fn current() -> io::Result<Self> {
        Ok(Self(File::open("/proc/thread-self/ns/pid")?))
    }
}

impl Drop for SavedNamespace {
    fn drop(&mut self) {
        // A thread may always return to the namespace it is in itself: pidns_install() of the
        // kernel asks for no more than leaving it did.
        let kind = Some(LinkNameSpaceType::ProcessID);
        let _ = rustix::thread::move_into_link_name_space(self.0.as_fd(), kind);
    }
}

/// Makes the kernel kill this process (SIGKILL) when the thread that started it ends. Returns
/// whether the parent is still `parent`, or a process outside this PID namespace. The setting
/// survives execve unless that changes the user (PR_SET_PDEATHSIG, prctl(2)).
///
/// # Errors
/// None that prctl(2) documents for this.
pub fn die_with(parent: u32) -> io::Result<bool> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent outside has no ID here: getppid(2) returns 0.
    let now = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    Ok(now == 0 || u32::try_from(now) == Ok(parent))
}

/// Restricts the calling thread, and threads and processes it starts, to these processors.
///
/// # Errors
/// EINVAL when none of them exists or is allowed, or when one exceeds the kernel's maximum.
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

/// Kills a process with SIGKILL.
///
/// # Errors
/// EPERM, ESRCH: kill(2).
pub fn kill(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(rustix::process::kill_process(pid, Signal::KILL)?)
}

/// Ignores SIGHUP, SIGINT and SIGTERM from now on, so that the process outlives its terminal. Also
/// ignores SIGCHLD, so that children that end, its own or orphans of the PID namespace, leave no
/// zombies (wait(2)).
pub fn ignore_signals() {
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
        let first = PidNamespace::create_with(|| {
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
        let mut second = pids.spawn_inside(sleep).unwrap();
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
