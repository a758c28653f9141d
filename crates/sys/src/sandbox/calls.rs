//! The system calls that a confined thread may make: a table of groups, each with its reason, and
//! which groups a task needs. What is not here fails with EPERM.
//!
//! Absent on purpose, whatever the task: execve, ptrace, kill, mount, setns, unshare, setuid and
//! all else that changes who a thread is or what it may do; and bpf but where the privileges are
//! kept.

use libc::c_long;

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Serving connections, with the threads that a loop starts.
    Serve,
    /// Writing the access log.
    Log,
    /// Asking upstreams whether they are well.
    Check,
    /// Answering the operator.
    Observe,
    /// Keeping privileges for those who have none.
    Privileged,
}

/// What a task needs besides its own groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Connections to other servers.
    pub forwards: bool,
    /// Unix sockets among those servers' addresses.
    pub forwards_to_unix: bool,
    /// Rings of io_uring.
    pub rings: bool,
    /// To write the log.
    pub logs: bool,
    /// The system's loggers, for the log.
    pub tells_loggers: bool,
    /// To ask the process that keeps the privileges.
    pub asks: bool,
    /// To open rings, until [`Sandbox::seal`](super::Sandbox::seal).
    pub opens_rings: bool,
    /// To fork, until [`Sandbox::seal`](super::Sandbox::seal).
    pub forks: bool,
}

impl Needs {
    /// Returns whether some are over once a thread has sealed itself.
    pub(super) fn are_sealed(self) -> bool {
        self.opens_rings || self.forks
    }

    /// Returns those of a thread that has sealed itself.
    pub(super) fn sealed(self) -> Self {
        Self { opens_rings: false, forks: false, ..self }
    }
}

/// Calls that belong together.
pub(super) struct Group {
    /// Reason for which they are allowed.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "it is for the reader, and checked by a test")
    )]
    pub why: &'static str,
    pub calls: &'static [Call],
}

/// An allowed call.
pub(super) struct Call {
    pub number: c_long,
    /// Alternatives, in each of which all conditions hold; none: with any arguments.
    pub only: &'static [&'static [Argument]],
}

/// A condition on the lower 32 bits of an argument.
pub(super) struct Argument {
    pub index: u8,
    pub mask: u32,
    pub value: Value,
}

/// What a masked argument is compared with.
pub(super) enum Value {
    Is(u32),
    /// Anything else; there is no mask.
    Not(u32),
    /// The process that the filter is made in.
    OwnProcess,
}

const fn any(number: c_long) -> Call {
    Call { number, only: &[] }
}

const fn only(number: c_long, only: &'static [&'static [Argument]]) -> Call {
    Call { number, only }
}

const fn is(index: u8, value: i64) -> Argument {
    Argument { index, mask: u32::MAX, value: Value::Is(value as u32) }
}

const fn not(index: u8, value: i64) -> Argument {
    Argument { index, mask: u32::MAX, value: Value::Not(value as u32) }
}

/// `value` is all that an argument has of `mask`.
const fn has(index: u8, mask: i32, value: i32) -> Argument {
    Argument { index, mask: mask as u32, value: Value::Is(value as u32) }
}

/// Sending, but not with the flag by which a message opens the connection that it goes by
/// (MSG_FASTOPEN, tcp(7)): Landlock does not look at it.
const SENDTO: Call = only(libc::SYS_sendto, &[&[has(3, libc::MSG_FASTOPEN, 0)]]);
const SENDMSG: Call = only(libc::SYS_sendmsg, &[&[has(2, libc::MSG_FASTOPEN, 0)]]);

/// Setting any option, but not that by which a socket of TCP becomes one of another protocol
/// (TCP_ULP, with the name of SMC): Landlock does not look at its connections.
const SETSOCKOPT: Call = only(
    libc::SYS_setsockopt,
    &[&[not(1, libc::IPPROTO_TCP as i64)], &[not(2, libc::TCP_ULP as i64)]],
);

const MEMORY: Group = Group {
    why: "memory, none of which may be executed",
    calls: &[
        only(libc::SYS_mmap, &[&[has(2, libc::PROT_EXEC, 0)]]),
        only(libc::SYS_mprotect, &[&[has(2, libc::PROT_EXEC, 0)]]),
        any(libc::SYS_munmap),
        any(libc::SYS_mremap),
        any(libc::SYS_madvise),
        any(libc::SYS_brk),
        any(libc::SYS_getrandom),
    ],
};

const TIME: Group = Group {
    why: "clocks, sleeping, and what the C library asks of either",
    calls: &[
        any(libc::SYS_clock_gettime),
        any(libc::SYS_clock_getres),
        any(libc::SYS_clock_nanosleep),
        any(libc::SYS_nanosleep),
        any(libc::SYS_gettimeofday),
        any(libc::SYS_restart_syscall),
        any(libc::SYS_getrusage),
        any(libc::SYS_getcpu),
    ],
};

const THREAD: Group = Group {
    why: "locks, signals and the end of a thread; a panic ends this very process",
    calls: &[
        any(libc::SYS_futex),
        any(libc::SYS_set_robust_list),
        any(libc::SYS_rseq),
        any(libc::SYS_gettid),
        any(libc::SYS_getpid),
        any(libc::SYS_getppid),
        any(libc::SYS_sched_yield),
        any(libc::SYS_sched_getaffinity),
        any(libc::SYS_rt_sigaction),
        any(libc::SYS_rt_sigprocmask),
        any(libc::SYS_rt_sigreturn),
        any(libc::SYS_sigaltstack),
        any(libc::SYS_exit),
        any(libc::SYS_exit_group),
        only(
            libc::SYS_tgkill,
            &[&[
                Argument { index: 0, mask: u32::MAX, value: Value::OwnProcess },
                is(2, libc::SIGABRT as i64),
            ]],
        ),
        only(libc::SYS_prctl, &[&[is(0, libc::PR_SET_NAME as i64)]]),
    ],
};

const THREADS: Group = Group {
    why: "threads that a task starts later, with the flags of glibc and musl; no process",
    calls: &[
        // Answered by ENOSYS, so that the C library falls back to clone, whose flags can be seen.
        any(libc::SYS_clone3),
        only(libc::SYS_clone, &[&[is(0, 0x003d_0f00)], &[is(0, 0x007d_0f00)]]),
        // Of the calling thread alone.
        only(libc::SYS_sched_setaffinity, &[&[is(0, 0)]]),
        only(libc::SYS_sched_setscheduler, &[&[is(0, 0), is(1, libc::SCHED_IDLE as i64)]]),
        only(libc::SYS_prctl, &[&[is(0, libc::PR_SET_TIMERSLACK as i64)]]),
    ],
};

const BYTES: Group = Group {
    why: "reading from and writing to what is open",
    calls: &[
        any(libc::SYS_read),
        any(libc::SYS_readv),
        any(libc::SYS_write),
        any(libc::SYS_writev),
        any(libc::SYS_close),
        any(libc::SYS_fcntl),
        any(libc::SYS_eventfd2),
        any(libc::SYS_ppoll),
    ],
};

const WAITING: Group = Group {
    why: "the event mechanisms, and the ioctls by which they and sockets are asked and set",
    calls: &[
        any(libc::SYS_epoll_create1),
        any(libc::SYS_epoll_ctl),
        any(libc::SYS_epoll_pwait),
        any(libc::SYS_epoll_pwait2),
        any(libc::SYS_pselect6),
        any(libc::SYS_signalfd4),
        any(libc::SYS_rt_sigtimedwait),
        // The limit of pending signals, of this process alone.
        only(libc::SYS_prlimit64, &[&[is(0, 0)]]),
        only(
            libc::SYS_ioctl,
            &[
                &[is(1, libc::FIONREAD as i64)],
                &[is(1, libc::FIONBIO as i64)],
                &[is(1, libc::FIOASYNC as i64)],
                &[is(1, libc::TIOCOUTQ as i64)],
                &[is(1, libc::EPIOCSPARAMS as i64)],
                &[is(1, libc::EPIOCGPARAMS as i64)],
            ],
        ),
    ],
};

const CONNECTIONS: Group = Group {
    why: "connections that clients make: accepting, bounding the queue and filtering SYNs, serving",
    calls: &[
        any(libc::SYS_accept4),
        any(libc::SYS_listen),
        any(libc::SYS_getsockopt),
        SETSOCKOPT,
        any(libc::SYS_getsockname),
        any(libc::SYS_getpeername),
        any(libc::SYS_recvfrom),
        any(libc::SYS_recvmsg),
        SENDTO,
        SENDMSG,
        any(libc::SYS_sendfile),
        any(libc::SYS_splice),
        any(libc::SYS_pipe2),
        any(libc::SYS_shutdown),
    ],
};

const FILES: Group = Group {
    why: "files below the roots, and what of them is in memory; which, Landlock says",
    calls: &[
        any(libc::SYS_openat2),
        only(libc::SYS_openat, &[&[has(2, NOT_READ, 0)]]),
        any(libc::SYS_fstat),
        any(libc::SYS_newfstatat),
        any(libc::SYS_statx),
        any(libc::SYS_fstatfs),
        any(libc::SYS_readlinkat),
        any(libc::SYS_getdents64),
        any(libc::SYS_lseek),
        any(libc::SYS_pread64),
        any(libc::SYS_preadv2),
        any(libc::SYS_fadvise64),
        any(CACHESTAT),
    ],
};

const UPSTREAMS: Group = Group {
    why: "connections to upstreams, which are streams of TCP",
    calls: &[
        only(
            libc::SYS_socket,
            &[
                &[is(0, libc::AF_INET as i64), has(1, TYPES, libc::SOCK_STREAM), USUAL_PROTOCOL],
                &[is(0, libc::AF_INET6 as i64), has(1, TYPES, libc::SOCK_STREAM), USUAL_PROTOCOL],
            ],
        ),
        any(libc::SYS_connect),
    ],
};

/// Sockets apart from those of [`UPSTREAMS`]: Landlock does not look at connections to a path.
const UNIX_UPSTREAMS: Group = Group {
    why: "connections to upstreams that are Unix sockets",
    calls: &[
        only(
            libc::SYS_socket,
            &[&[is(0, libc::AF_UNIX as i64), has(1, TYPES, libc::SOCK_STREAM), USUAL_PROTOCOL]],
        ),
        any(libc::SYS_connect),
    ],
};

const LOG: Group = Group {
    why: "the log's file, opened anew",
    calls: &[any(libc::SYS_openat), any(libc::SYS_statx)],
};

/// Sockets apart from what [`LOG`] has: Landlock does not look at connections to a path.
const LOGGERS: Group = Group {
    why: "the datagram sockets of the system's loggers, and the name of this host for them",
    calls: &[
        only(
            libc::SYS_socket,
            &[&[is(0, libc::AF_UNIX as i64), has(1, TYPES, libc::SOCK_DGRAM), USUAL_PROTOCOL]],
        ),
        any(libc::SYS_connect),
        SENDTO,
        any(libc::SYS_uname),
    ],
};

const RINGS: Group = Group {
    why: "rings, each of which takes only the operations that it is for",
    calls: &[any(libc::SYS_io_uring_enter), any(libc::SYS_io_uring_register)],
};

const OPENING: Group = Group { why: "opening a ring", calls: &[any(libc::SYS_io_uring_setup)] };

const SEALING: Group = Group {
    why: "another filter, by which a thread gives up what it needed at its start",
    calls: &[
        any(libc::SYS_seccomp),
        only(libc::SYS_prctl, &[&[is(0, libc::PR_SET_NO_NEW_PRIVS as i64)]]),
    ],
};

const PROCESSES: Group = Group {
    why: "children by fork(2), which run the same program, and their end",
    calls: &[
        only(
            libc::SYS_clone,
            &[&[is(0, (CLONE_OF_FORK | libc::SIGCHLD) as i64)], &[is(0, libc::SIGCHLD as i64)]],
        ),
        any(libc::SYS_wait4),
        any(libc::SYS_waitid),
        any(libc::SYS_socketpair),
        only(libc::SYS_prctl, &[&[is(0, libc::PR_SET_PDEATHSIG as i64)]]),
    ],
};

const ASKING: Group = Group {
    why: "questions to the process that keeps the privileges, and a channel for each answer",
    calls: &[
        // Of two that are connected for good: a pair of datagrams could be sent to any socket.
        only(
            libc::SYS_socketpair,
            &[&[is(0, libc::AF_UNIX as i64), has(1, TYPES, libc::SOCK_SEQPACKET)]],
        ),
        SENDMSG,
        any(libc::SYS_recvmsg),
    ],
};

const PRIVILEGED: Group = Group {
    why: "answers; files read and logs appended to; filters of SYNs, made and attached to sockets",
    calls: &[
        SENDMSG,
        any(libc::SYS_recvmsg),
        any(libc::SYS_getsockopt),
        only(
            libc::SYS_setsockopt,
            &[
                &[is(1, libc::SOL_SOCKET as i64), is(2, libc::SO_ATTACH_FILTER as i64)],
                &[is(1, libc::SOL_SOCKET as i64), is(2, libc::SO_ATTACH_BPF as i64)],
            ],
        ),
        only(
            libc::SYS_bpf,
            &[&[is(0, BPF_MAP_CREATE)], &[is(0, BPF_PROG_LOAD)], &[is(0, BPF_OBJ_GET_INFO_BY_FD)]],
        ),
        only(
            libc::SYS_openat,
            &[
                &[has(2, NOT_READ, 0)],
                &[has(2, NOT_READ | libc::O_APPEND | libc::O_NOFOLLOW, APPENDED)],
            ],
        ),
        any(libc::SYS_readlinkat),
        any(libc::SYS_fstat),
        any(libc::SYS_newfstatat),
        any(libc::SYS_statx),
    ],
};

/// Calls by which the C library does on x86-64 what it does elsewhere by newer ones.
#[cfg(target_arch = "x86_64")]
const OLD: Group = Group {
    why: "older forms of calls that are in other groups",
    calls: &[
        any(libc::SYS_epoll_wait),
        any(libc::SYS_poll),
        any(libc::SYS_select),
        any(libc::SYS_readlink),
        only(libc::SYS_open, &[&[has(1, NOT_READ, 0)]]),
        any(libc::SYS_time),
    ],
};
#[cfg(not(target_arch = "x86_64"))]
const OLD: Group = Group { why: "there are none", calls: &[] };

/// fork(2) of musl on x86-64.
#[cfg(target_arch = "x86_64")]
const OLD_FORK: Group = Group { why: "fork(2) itself", calls: &[any(libc::SYS_fork)] };
#[cfg(not(target_arch = "x86_64"))]
const OLD_FORK: Group = Group { why: "there is none", calls: &[] };

/// cachestat(2), for which libc has no number on every architecture; it is the same on all.
const CACHESTAT: c_long = 451;

/// Flags with which a file is opened for more than reading.
const NOT_READ: i32 = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;

/// Those of them with which a log is opened.
const APPENDED: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_NOFOLLOW;

/// Commands of bpf(2) (linux/bpf.h).
const BPF_MAP_CREATE: i64 = 0;
const BPF_PROG_LOAD: i64 = 5;
const BPF_OBJ_GET_INFO_BY_FD: i64 = 15;

/// Bits of a socket's type that are no flags (SOCK_TYPE_MASK, linux/net.h).
const TYPES: i32 = 0xf;

/// Protocol of a socket: the usual one of its family and type. Landlock looks at connections of TCP
/// alone, and there are others beside it that reach the same ports: MPTCP, SMC.
const USUAL_PROTOCOL: Argument = is(2, 0);

/// Flags of glibc's fork(2) besides the signal.
const CLONE_OF_FORK: i32 = libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;

/// Returns the groups of a task.
pub(super) fn groups(task: Task, needs: Needs) -> Vec<&'static Group> {
    let mut all = vec![&MEMORY, &TIME, &THREAD, &BYTES, &OLD];
    match task {
        Task::Serve => all.extend([&THREADS, &WAITING, &CONNECTIONS, &FILES]),
        Task::Log => all.push(&LOG),
        Task::Check => all.extend([&CONNECTIONS, &WAITING, &UPSTREAMS]),
        Task::Observe => all.extend([&THREADS, &WAITING, &CONNECTIONS, &FILES]),
        Task::Privileged => all.push(&PRIVILEGED),
    }
    let wanted: [(bool, &[&Group]); 9] = [
        (needs.forwards, &[&UPSTREAMS]),
        (needs.forwards_to_unix, &[&UNIX_UPSTREAMS]),
        (needs.rings, &[&RINGS]),
        (needs.logs, &[&LOG]),
        (needs.tells_loggers, &[&LOGGERS]),
        (needs.asks, &[&ASKING]),
        (needs.opens_rings, &[&OPENING]),
        (needs.forks, &[&PROCESSES, &OLD_FORK]),
        (needs.are_sealed(), &[&SEALING]),
    ];
    let needed = wanted.into_iter().filter(|(is_needed, _)| *is_needed);
    all.extend(needed.flat_map(|(_, groups)| groups));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: [c_long; 12] = [
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_ptrace,
        libc::SYS_kill,
        libc::SYS_bpf,
        libc::SYS_mount,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_setuid,
        libc::SYS_setresuid,
        libc::SYS_perf_event_open,
        libc::SYS_process_vm_writev,
    ];

    const ALL: Needs = Needs {
        forwards: true,
        forwards_to_unix: true,
        rings: true,
        logs: true,
        tells_loggers: true,
        asks: true,
        opens_rings: true,
        forks: true,
    };

    #[test]
    fn every_group_has_a_reason_and_none_what_an_intruder_wants() {
        for task in [Task::Serve, Task::Log, Task::Check, Task::Observe] {
            for group in groups(task, ALL) {
                assert!(!group.why.is_empty());
                assert!(group.calls.iter().all(|call| !NEVER.contains(&call.number)));
            }
        }
    }

    /// Groups add up: what one allows, the conditions of another do not forbid.
    #[test]
    fn no_group_opens_a_connection_that_landlock_does_not_see() {
        let asks = |call: &Call, index: u8, mask: u32| {
            let is_asked = |arguments: &&[Argument]| {
                arguments.iter().any(|argument| {
                    let is_zero = matches!(argument.value, Value::Is(0));
                    argument.index == index && argument.mask & mask == mask && is_zero
                })
            };
            !call.only.is_empty() && call.only.iter().all(is_asked)
        };
        let fast_open = libc::MSG_FASTOPEN as u32;
        for task in [Task::Serve, Task::Log, Task::Check, Task::Observe, Task::Privileged] {
            for call in groups(task, ALL).into_iter().flat_map(|group| group.calls) {
                match call.number {
                    libc::SYS_socket => assert!(asks(call, 2, u32::MAX), "{task:?}"),
                    libc::SYS_sendto => assert!(asks(call, 3, fast_open), "{task:?}"),
                    libc::SYS_sendmsg => assert!(asks(call, 2, fast_open), "{task:?}"),
                    number => assert_ne!(number, libc::SYS_sendmmsg, "{task:?}"),
                }
            }
        }
    }

    /// Returns whether a task may make a call that has these arguments first.
    fn allows(task: Task, needs: Needs, number: c_long, arguments: [i32; 3]) -> bool {
        let holds = |argument: &Argument| {
            let given = arguments[usize::from(argument.index)] as u32;
            match argument.value {
                Value::Is(value) => given & argument.mask == value,
                Value::Not(value) => given != value,
                Value::OwnProcess => given == std::process::id(),
            }
        };
        let calls = groups(task, needs).into_iter().flat_map(|group| group.calls);
        calls
            .filter(|call| call.number == number)
            .any(|call| call.only.is_empty() || call.only.iter().any(|all| all.iter().all(holds)))
    }

    #[test]
    fn unix_sockets_are_made_only_for_upstreams_and_loggers_that_have_them() {
        let none = Needs { forwards_to_unix: false, tells_loggers: false, ..ALL };
        for (kind, needs) in [
            (libc::SOCK_STREAM, Needs { forwards_to_unix: true, ..none }),
            (libc::SOCK_DGRAM, Needs { tells_loggers: true, ..none }),
        ] {
            let arguments = [libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0];
            for task in [Task::Serve, Task::Log, Task::Check, Task::Observe] {
                assert!(!allows(task, none, libc::SYS_socket, arguments), "{task:?}");
                assert!(allows(task, needs, libc::SYS_socket, arguments), "{task:?}");
            }
        }
        let asks = Needs { asks: true, ..Needs::default() };
        let pairs = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET]
            .map(|kind| allows(Task::Serve, asks, libc::SYS_socketpair, [libc::AF_UNIX, kind, 0]));
        assert_eq!(pairs, [false, false, true]);
    }

    #[test]
    fn no_socket_of_tcp_becomes_another_and_no_other_thread_is_scheduled_anew() {
        let (tcp, ulp, idle) = (libc::IPPROTO_TCP, libc::TCP_ULP, libc::SCHED_IDLE);
        for task in [Task::Serve, Task::Log, Task::Check, Task::Observe, Task::Privileged] {
            assert!(!allows(task, ALL, libc::SYS_setsockopt, [9, tcp, ulp]), "{task:?}");
            for pid in [1, std::process::id() as i32] {
                assert!(!allows(task, ALL, libc::SYS_sched_setaffinity, [pid, 8, 0]));
                assert!(!allows(task, ALL, libc::SYS_sched_setscheduler, [pid, idle, 0]));
            }
        }
        let serves = |number, arguments| allows(Task::Serve, Needs::default(), number, arguments);
        assert!(serves(libc::SYS_setsockopt, [9, tcp, libc::TCP_NODELAY]));
        assert!(serves(libc::SYS_setsockopt, [9, libc::SOL_SOCKET, ulp]));
        assert!(serves(libc::SYS_sched_setaffinity, [0, 8, 0]));
        assert!(serves(libc::SYS_sched_setscheduler, [0, idle, 0]));
    }

    #[test]
    fn a_server_that_forwards_nothing_makes_no_socket() {
        let groups = groups(Task::Serve, Needs::default());
        let numbers: Vec<_> = groups.iter().flat_map(|group| group.calls).collect();
        assert!(numbers.iter().all(|call| {
            ![libc::SYS_socket, libc::SYS_connect, libc::SYS_io_uring_setup].contains(&call.number)
        }));
    }
}
