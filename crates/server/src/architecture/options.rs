//! Options of the architectures, with their defaults and ranges.

use weir_dispatch::readiness::settings::Tunable;

/// Helper threads that read from disks, by default and with AMPED.
pub(crate) const HELPERS: Tunable = Tunable {
    name: "helpers",
    help: "helper threads per loop that read files from a disk; 0: the loop waits for the disk",
    default: 0,
    min: 0,
    max: 256,
};
pub(crate) const AMPED_HELPERS: Tunable = Tunable { default: 8, min: 1, ..HELPERS };

/// Options of [`ArchitectureName::Ring`](super::ArchitectureName::Ring).
pub(crate) mod ring {
    use super::Tunable;

    pub(crate) const ALL: &[Tunable] =
        &[ENTRIES, BUFFERS, GATHER, FETCHES, ZERO_COPY, SQPOLL, SPIN];

    pub(crate) const ENTRIES: Tunable = Tunable {
        name: "entries",
        help: "maximum number of operations submitted by one call",
        default: 4096,
        min: 64,
        max: 32_768,
    };
    pub(crate) const BUFFERS: Tunable = Tunable {
        name: "buffers",
        help: "receive buffers of 4 KiB per loop; rounded up to a power of two",
        default: 1024,
        min: 16,
        max: 32_768,
    };
    pub(crate) const GATHER: Tunable = Tunable {
        name: "gather-us",
        help: "how long the loop sleeps for more than one completion while they come in quick \
               succession, microseconds; 0: it wakes at the first",
        default: 0,
        min: 0,
        max: 10_000,
    };
    pub(crate) const FETCHES: Tunable = Tunable {
        name: "fetches",
        help: "connections per loop that may read from a disk at the same time; the others are \
               queued",
        default: 8,
        min: 1,
        max: 4096,
    };
    pub(crate) const ZERO_COPY: Tunable = Tunable {
        name: "zero-copy-from",
        help: "minimum size of a reply in memory sent without a copy, bytes; 0: all are copied",
        default: 0,
        min: 0,
        max: 1 << 40,
    };
    pub(crate) const SQPOLL: Tunable = Tunable {
        name: "sqpoll",
        help: "1: a kernel thread takes queued operations; it needs a processor of its own",
        default: 0,
        min: 0,
        max: 1,
    };
    pub(crate) const SPIN: Tunable = Tunable {
        name: "spin-us",
        help: "with sqpoll, how long the loop polls for completions before it sleeps, microseconds",
        default: 200,
        min: 0,
        max: 1_000_000,
    };
}

/// Options of [`ArchitectureName::Fiber`](super::ArchitectureName::Fiber).
pub(crate) mod fiber {
    use super::{HELPERS, Tunable};

    /// Option: number of fibers per loop.
    pub(crate) const POOL: Tunable = Tunable {
        name: "pool",
        help: "fibers per loop, each serving all it accepted before it accepts again (Knot-C); \
               0: one per connection (Knot-A)",
        default: 0,
        min: 0,
        max: 100_000,
    };

    pub(crate) const STACK_KIB: Tunable = Tunable {
        name: "stack-kib",
        help: "size of a fiber's stack, KiB; pages never touched use no memory",
        default: 64,
        min: 32,
        max: 1024,
    };

    /// Options of this architecture.
    pub(crate) const ALL: &[Tunable] = &[POOL, STACK_KIB, HELPERS];
}

/// Options of [`ArchitectureName::Threads`](super::ArchitectureName::Threads).
pub(crate) mod threads {
    use super::Tunable;

    pub(crate) const POOL: Tunable = Tunable {
        name: "pool",
        help: "threads per worker, started with the server; 0: one per connection, on demand",
        default: 0,
        min: 0,
        max: 10_000,
    };

    pub(crate) const STACK_KIB: Tunable = Tunable {
        name: "stack-kib",
        help: "size of a thread's stack, KiB; pages never touched use no memory",
        default: 256,
        min: 64,
        max: 65_536,
    };

    /// Options of this architecture.
    pub(crate) const ALL: &[Tunable] = &[POOL, STACK_KIB];
}

/// Options of [`ArchitectureName::Processes`](super::ArchitectureName::Processes).
pub(crate) mod processes {
    use super::Tunable;

    pub(crate) const POOL: Tunable = Tunable {
        name: "pool",
        help: "child processes per worker, forked at the start",
        default: 16,
        min: 1,
        max: 4096,
    };

    /// Options of this architecture.
    pub(crate) const ALL: &[Tunable] = &[POOL];
}
