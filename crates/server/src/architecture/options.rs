//! Options of the architectures, with their defaults and ranges.

use weir_dispatch::readiness::settings::Tunable;

/// Threads that wait for disks in the loop's place, by default and with AMPED.
pub(crate) const HELPERS: Tunable = Tunable {
    name: "helpers",
    help: "threads that bring files from a disk, for a loop; 0: the loop waits for the disk itself",
    default: 0,
    min: 0,
    max: 256,
};
pub(crate) const AMPED_HELPERS: Tunable = Tunable { default: 8, min: 1, ..HELPERS };

/// Options of [`Name::Ring`](super::Name::Ring).
pub(crate) mod ring {
    use super::Tunable;

    pub(crate) const ALL: &[Tunable] =
        &[ENTRIES, BUFFERS, GATHER, FETCHES, ZERO_COPY, SQPOLL, SPIN];

    pub(crate) const ENTRIES: Tunable = Tunable {
        name: "entries",
        help: "operations handed over by one call, at most",
        default: 4096,
        min: 64,
        max: 32_768,
    };
    pub(crate) const BUFFERS: Tunable = Tunable {
        name: "buffers",
        help: "buffers of 4 KiB to receive into, for a loop; rounded up to a power of two",
        default: 1024,
        min: 16,
        max: 32_768,
    };
    pub(crate) const GATHER: Tunable = Tunable {
        name: "gather-us",
        help: "how long the loop sleeps for more completions than one while they come thick and \
               fast, microseconds; 0: it wakes for the first",
        default: 0,
        min: 0,
        max: 10_000,
    };
    pub(crate) const FETCHES: Tunable = Tunable {
        name: "fetches",
        help: "connections for which something is brought from a disk at a time, for a loop; the \
               others wait their turn",
        default: 8,
        min: 1,
        max: 4096,
    };
    pub(crate) const ZERO_COPY: Tunable = Tunable {
        name: "zero-copy-from",
        help: "bytes from which a reply in memory is sent without a copy; 0: none is",
        default: 0,
        min: 0,
        max: 1 << 40,
    };
    pub(crate) const SQPOLL: Tunable = Tunable {
        name: "sqpoll",
        help: "1: a thread of the kernel's takes what is queued; it needs a processor of its own",
        default: 0,
        min: 0,
        max: 1,
    };
    pub(crate) const SPIN: Tunable = Tunable {
        name: "spin-us",
        help: "with sqpoll, how long the loop looks for completions before it sleeps, microseconds",
        default: 200,
        min: 0,
        max: 1_000_000,
    };
}

/// Options of [`Name::Fiber`](super::Name::Fiber).
pub(crate) mod fiber {
    use super::{HELPERS, Tunable};

    /// Option: number of fibers per loop.
    pub(crate) const POOL: Tunable = Tunable {
        name: "pool",
        help: "fibers of a loop, each serving all it accepted before it accepts again (Knot-C); \
               0: one for each connection (Knot-A)",
        default: 0,
        min: 0,
        max: 100_000,
    };

    pub(crate) const STACK_KIB: Tunable = Tunable {
        name: "stack-kib",
        help: "size of a fiber's stack; what is never touched costs no memory",
        default: 64,
        min: 32,
        max: 1024,
    };

    /// Options of this architecture.
    pub(crate) const ALL: &[Tunable] = &[POOL, STACK_KIB, HELPERS];
}

/// Options of [`Name::Threads`](super::Name::Threads).
pub(crate) mod threads {
    use super::Tunable;

    pub(crate) const POOL: Tunable = Tunable {
        name: "pool",
        help: "threads of each worker, made at the start; 0 is one for each connection, on demand",
        default: 0,
        min: 0,
        max: 10_000,
    };

    pub(crate) const STACK_KIB: Tunable = Tunable {
        name: "stack-kib",
        help: "stack of each thread, KiB; memory is used as far as it is touched",
        default: 256,
        min: 64,
        max: 65_536,
    };

    /// Options of this architecture.
    pub(crate) const ALL: &[Tunable] = &[POOL, STACK_KIB];
}

/// Options of [`Name::Processes`](super::Name::Processes).
pub(crate) mod processes {
    use super::Tunable;

    pub(crate) const POOL: Tunable = Tunable {
        name: "pool",
        help: "child processes of each worker, made at the start",
        default: 16,
        min: 1,
        max: 4096,
    };

    /// Options of this architecture.
    pub(crate) const ALL: &[Tunable] = &[POOL];
}
