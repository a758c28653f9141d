//! Ring polls: per direction of a member, a multishot poll (`MANY`), or one-shot polls.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::ring::Completion;

use super::super::super::fake::{Fake, IN, OUT, RDHUP};
use super::super::super::kernel::{Kernel, PollRing};
use super::super::super::settings::Settings;
use super::super::super::{Interest, Mechanism, Token};
use super::Book;

// Faults that can be built in.
pub(in super::super) const NONE: u8 = 0;
pub(in super::super) const FORGETS_THE_GENERATION: u8 = 1;
pub(in super::super) const TRUSTS_THE_POLL_TO_GO_ON: u8 = 2;

/// Bit that distinguishes a member's two polls; no generation of the model is that high.
const FOR_WRITING: u64 = 1 << 63;

pub(in super::super) struct RingReference<const FAULT: u8, const MANY: bool> {
    ring: <Fake as Kernel>::Ring,
    book: Book,
    polls: BTreeMap<u64, Poll>,
    completions: Vec<Completion>,
}

/// A poll, keyed by its user data.
struct Poll {
    fd: RawFd,
    asked: u32,
    is_armed: bool,
}

/// Returns the token of a poll, and whether it is the one for writing.
fn read(data: u64) -> (Token, bool) {
    (Token::unpack(data & !FOR_WRITING), data & FOR_WRITING != 0)
}

impl<const FAULT: u8, const MANY: bool> RingReference<FAULT, MANY> {
    /// Arms missing polls: multishot polls at once, one-shot polls when they are waited for.
    fn arm(&mut self) -> io::Result<()> {
        for (&data, poll) in &mut self.polls {
            let (token, writes) = read(data);
            let Some(member) = self.book.at(token) else { continue };
            let mine = if writes { OUT } else { IN };
            let waits = super::bit(member.interest) & mine & !member.known != 0;
            if (MANY || waits) && !poll.is_armed {
                self.ring.arm(poll.fd, data, poll.asked, MANY)?;
                poll.is_armed = true;
            }
        }
        Ok(())
    }

    fn learn(&mut self, completion: Completion, ready: &mut Vec<Token>) {
        let (token, _) = read(completion.data);
        let Some(poll) = self.polls.get_mut(&completion.data) else {
            if FAULT == FORGETS_THE_GENERATION && !ready.contains(&token) {
                ready.push(token);
            }
            return;
        };
        if FAULT != TRUSTS_THE_POLL_TO_GO_ON {
            poll.is_armed = completion.more;
        }
        self.book.learn(token, u32::try_from(completion.result).unwrap_or(0));
    }
}

impl<const FAULT: u8, const MANY: bool> Mechanism for RingReference<FAULT, MANY> {
    fn open(_: &Settings) -> io::Result<Self> {
        Ok(Self {
            ring: PollRing::open(64)?,
            book: Book::default(),
            polls: BTreeMap::new(),
            completions: Vec::new(),
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        for (data, asked) in [(token.pack(), IN | RDHUP), (token.pack() | FOR_WRITING, OUT)] {
            self.polls.insert(data, Poll { fd: fd.as_raw_fd(), asked, is_armed: false });
        }
        self.book.add(token, interest);
        Ok(())
    }

    fn change(&mut self, _: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.book.change(token, interest);
        Ok(())
    }

    fn remove(&mut self, _: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        for data in [token.pack(), token.pack() | FOR_WRITING] {
            if self.polls.remove(&data).is_some_and(|poll| poll.is_armed) {
                self.ring.disarm(data)?;
            }
        }
        self.book.remove(token);
        self.ring.submit()
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        self.book.blocked(token, direction);
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        self.arm()?;
        let timeout = if self.book.any_ready() { Some(Duration::ZERO) } else { timeout };
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.wait(&mut completions, timeout)?;
        let mut stale = Vec::new();
        for completion in &completions {
            self.learn(*completion, &mut stale);
        }
        let count = completions.len();
        completions.clear();
        self.completions = completions;
        self.book.report(ready);
        ready.extend(stale);
        Ok(count)
    }
}
