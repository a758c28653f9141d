//! Confinement of a thread and of all that it starts from then on: which files it may open, by
//! Landlock (landlock(7)), which calls it may make, by a filter (seccomp(2)), and that no program
//! it runs gains a privilege (PR_SET_NO_NEW_PRIVS, prctl(2)). A thread that has entered cannot
//! leave. Other threads of the process are not confined by it.
//!
//! The calls are a table (`calls.rs`); the files and ports are the caller's to name ([`Reach`]).

mod calls;
#[cfg(debug_assertions)]
pub mod intruder;

use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use calls::{Argument, Call, Group, Value};
pub use calls::{Needs, Task};

/// Files and ports that a confined thread may reach. Paths that are not there are passed over, and
/// so are pipes and sockets that /proc/self/fd leads to.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Directories below which everything may be read and listed.
    pub read: Vec<PathBuf>,
    /// Directories below which files may be created and written to, or such files.
    pub write: Vec<PathBuf>,
    /// TCP ports that may be connected to (Linux 6.7).
    pub ports: Vec<u16>,
}

/// Parts of the confinement that this kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Version of Landlock; 0 for none.
    pub landlock: u32,
    /// True if filters of calls can fail a call, and one can be made for this instruction set.
    pub seccomp: bool,
}

impl Support {
    /// Asks the kernel.
    pub fn find() -> Self {
        let errno: u32 = libc::SECCOMP_RET_ERRNO;
        let at = &raw const errno;
        // SAFETY: the kernel reads the number that `at` points to, which outlives the call.
        let filters =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0_u32, at) };
        // SAFETY: with this flag the call takes no memory (landlock_create_ruleset(2)).
        let version = unsafe {
            let nothing = std::ptr::null::<libc::c_void>();
            libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION)
        };
        let seccomp = filters == 0 && target(std::env::consts::ARCH).is_ok();
        Self { landlock: u32::try_from(version).unwrap_or(0), seccomp }
    }
}

/// LANDLOCK_CREATE_RULESET_VERSION, linux/landlock.h.
const VERSION: u32 = 1;

/// A confinement that threads can enter.
pub struct Sandbox {
    files: Option<RulesetCreated>,
    /// What may be read, held open: the kernel forgets a directory of /proc that nobody has open,
    /// and has another when it is asked again, for which there is no rule.
    _read: Vec<PathFd>,
    /// In the order in which they are installed.
    filters: Vec<BpfProgram>,
    seal: Option<BpfProgram>,
}

impl Sandbox {
    /// Prepares the confinement of a task, as far as `support` says.
    ///
    /// # Errors
    /// EMFILE, ENOMEM: a path cannot be opened, or a rule cannot be made.
    pub fn new(task: Task, needs: Needs, reach: &Reach, support: Support) -> io::Result<Self> {
        // What the kernel told the process at its start is read once, from where a confined thread
        // does not reach (proc_pid_auxv(5)).
        let _ = rustix::param::page_size();
        let files = (support.landlock > 0).then(|| files(reach)).transpose()?;
        let read = reach.read.iter().filter_map(|path| open(path)).collect();
        if !support.seccomp {
            return Ok(Self { files, _read: read, filters: Vec::new(), seal: None });
        }
        let hidden = absence(libc::SYS_clone3)?;
        let allowed = allowance(&calls::groups(task, needs))?;
        let less = || allowance(&calls::groups(task, needs.sealed()));
        let seal = needs.are_sealed().then(less).transpose()?;
        Ok(Self { files, _read: read, filters: vec![hidden, allowed], seal })
    }

    /// Confines the calling thread, and those that it starts from now on.
    ///
    /// # Errors
    /// Those of landlock_restrict_self(2) and seccomp(2): none on a kernel that supports them.
    pub fn enter(&self) -> io::Result<()> {
        rustix::thread::set_no_new_privs(true)?;
        if let Some(files) = &self.files {
            files.try_clone()?.restrict_self().map_err(io::Error::other)?;
        }
        self.filters.iter().try_for_each(install)
    }

    /// Takes from the calling thread, which has entered, what it needed at its start.
    ///
    /// # Errors
    /// Those of seccomp(2).
    pub fn seal(&self) -> io::Result<()> {
        self.seal.iter().try_for_each(install)
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("filters", &self.filters.len()).finish_non_exhaustive()
    }
}

fn install(filter: &BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(filter).map_err(io::Error::other)
}

/// Makes the rules for files, ports, and processes outside.
fn files(reach: &Reach) -> io::Result<RulesetCreated> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::WriteFile | AccessFs::MakeReg;
    let of_dir = |path: &PathBuf| Some((open(path)?, read));
    let written = |path: &PathBuf| {
        let (fd, is_dir) = (open(path)?, path.is_dir());
        Some((fd, if is_dir { write } else { AccessFs::WriteFile.into() }))
    };
    let reached = reach.read.iter().filter_map(of_dir);
    let reached: Vec<(PathFd, BitFlags<AccessFs>)> =
        reached.chain(reach.write.iter().filter_map(written)).collect();
    let make = || -> Result<RulesetCreated, RulesetError> {
        let mut rules = Ruleset::default()
            .handle_access(AccessFs::from_all(ABI::V5))?
            .handle_access(AccessNet::from_all(ABI::V4))?
            .scope(Scope::from_all(ABI::V6))?
            .create()?;
        for (fd, access) in reached {
            match (&mut rules).add_rule(PathBeneath::new(fd, access)) {
                Err(error) if !is_of_no_path(&error) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        for port in &reach.ports {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
        Ok(rules)
    };
    make().map_err(io::Error::other)
}

fn open(path: &Path) -> Option<PathFd> {
    PathFd::new(path).ok()
}

/// Returns whether a rule was refused because its file has no path of its own, as a pipe or a
/// socket that /proc/self/fd leads to: Landlock restricts none of these (landlock_add_rule(2),
/// EBADFD).
fn is_of_no_path(error: &RulesetError) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.and_then(io::Error::raw_os_error) == Some(libc::EBADFD)
}

/// Makes a filter that lets the calls of these groups pass, and no other.
fn allowance(groups: &[&Group]) -> io::Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for Call { number, only } in groups.iter().flat_map(|group| group.calls) {
        let known = rules.get(number).is_some_and(Vec::is_empty);
        // Any arguments are more than some.
        if only.is_empty() || known {
            rules.insert(*number, Vec::new());
            continue;
        }
        let made: io::Result<Vec<_>> = only.iter().map(|arguments| rule(arguments)).collect();
        rules.entry(*number).or_default().extend(made?);
    }
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    compile(rules, refused, SeccompAction::Allow)
}

/// Makes a filter by which this kernel has no such call, and lets all others pass.
fn absence(number: libc::c_long) -> io::Result<BpfProgram> {
    let rules = BTreeMap::from([(number, Vec::new())]);
    compile(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))
}

fn rule(arguments: &[Argument]) -> io::Result<SeccompRule> {
    let condition = |argument: &Argument| {
        let equal = SeccompCmpOp::MaskedEq(argument.mask.into());
        let (how, wanted) = match argument.value {
            Value::Is(value) => (equal, value),
            Value::Not(value) => (SeccompCmpOp::Ne, value),
            Value::OwnProcess => (equal, std::process::id()),
        };
        SeccompCondition::new(argument.index, SeccompCmpArgLen::Dword, how, wanted.into())
    };
    let conditions = arguments.iter().map(condition).collect::<Result<_, _>>();
    conditions.and_then(SeccompRule::new).map_err(io::Error::other)
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> io::Result<BpfProgram> {
    let arch = target(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, otherwise, matched, arch)
        .and_then(TryInto::try_into)
        .map_err(io::Error::other)
}

/// Returns the instruction set of this name, if filters can be made for it.
fn target(arch: &str) -> io::Result<TargetArch> {
    TargetArch::try_from(arch).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_pipe_and_a_socket_that_are_named_need_no_rule() {
        let support = Support::find();
        if support.landlock == 0 {
            println!("SKIPPED: this kernel has no Landlock");
            return;
        }
        let (_reader, writer) = io::pipe().unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let path = |number: i32| PathBuf::from(format!("/proc/self/fd/{number}"));
        let write = vec![path(writer.as_raw_fd()), path(socket.as_raw_fd())];
        let reach = Reach { write, ..Reach::default() };
        Sandbox::new(Task::Log, Needs::default(), &reach, support).unwrap();
    }

    #[test]
    fn calls_are_filtered_where_a_filter_can_be_made() {
        assert!(target("x86_64").is_ok() && target("aarch64").is_ok() && target("riscv64").is_ok());
        assert!(target("s390x").is_err());
    }
}
