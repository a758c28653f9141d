//! Kernel state of a ring: submissions not processed yet, armed polls, and completions.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use weir_sys::ring::Completion;

/// Kernel state of a ring.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) submissions: Vec<Submission>,
    pub(super) polls: Vec<Poll>,
    pub(super) completions: VecDeque<Completion>,
    /// Number of completions above which a multishot poll ends with its next completion; none is
    /// lost.
    pub(super) completions_max: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Submission {
    /// Arms a poll. The number is looked up when the submission is processed.
    Arm {
        number: RawFd,
        data: u64,
        asked: u32,
        many: bool,
    },
    Disarm(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    pub(super) data: u64,
    pub(super) file: usize,
    pub(super) asked: u32,
    pub(super) many: bool,
}

impl Ring {
    pub(super) fn refers_to(&self, file: usize) -> bool {
        self.polls.iter().any(|poll| poll.file == file)
    }

    pub(super) fn complete(&mut self, completion: Completion) {
        self.completions.push_back(completion);
    }
}
