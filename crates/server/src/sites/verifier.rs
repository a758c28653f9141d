//! A thread that verifies passwords, so that no loop waits for it: a hash takes longer than
//! thousands of requests. It is started by the process that first needs it. What waits for it is
//! bounded, so that guesses cost their sender's patience and not the server's memory.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use super::users::Users;

/// Maximum number of passwords that wait to be verified.
const WAITING_MAX: usize = 64;

const PENDING: u8 = 0;
const RIGHT: u8 = 1;
const WRONG: u8 = 2;

/// A password that is being verified.
#[derive(Clone, Debug)]
pub(crate) struct Verification(Arc<AtomicU8>);

impl Verification {
    /// Returns whether the password is right; `None` while that is not known.
    pub(crate) fn outcome(&self) -> Option<bool> {
        match self.0.load(Ordering::Acquire) {
            PENDING => None,
            outcome => Some(outcome == RIGHT),
        }
    }
}

struct Job {
    users: Arc<Users>,
    authorization: Vec<u8>,
    outcome: Arc<AtomicU8>,
}

impl Job {
    fn run(&self) {
        // Its client may have gone.
        if Arc::strong_count(&self.outcome) > 1 {
            let is_right = self.users.verify(&self.authorization);
            self.outcome.store(if is_right { RIGHT } else { WRONG }, Ordering::Release);
        }
    }
}

/// The thread, once there is one.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    jobs: OnceLock<Option<SyncSender<Job>>>,
}

impl Verifier {
    /// Has a password verified; `None` if too many wait already, or there is no thread.
    pub(crate) fn submit(&self, users: &Arc<Users>, authorization: &[u8]) -> Option<Verification> {
        let jobs = self.jobs.get_or_init(start).as_ref()?;
        let outcome = Arc::new(AtomicU8::new(PENDING));
        let job = Job {
            users: Arc::clone(users),
            authorization: authorization.to_vec(),
            outcome: Arc::clone(&outcome),
        };
        jobs.try_send(job).ok()?;
        Some(Verification(outcome))
    }
}

/// Starts the thread, which ends with the last sender.
fn start() -> Option<SyncSender<Job>> {
    let (sender, jobs) = sync_channel::<Job>(WAITING_MAX);
    let thread = thread::Builder::new().name("weir-passwords".into());
    thread.spawn(move || jobs.iter().for_each(|job| job.run())).ok()?;
    Some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_waits() {
        let hash = "$2y$04$vKRXkql.bdkV4Qq.4L6Adu2xBNxLNyVOVnVoU/S/VqNBLPSFCZuca";
        let users = Arc::new(Users::parse(&format!("a:{hash}"), "r").unwrap());
        let verifier = Verifier::default();
        let submitted: Vec<_> =
            (0..WAITING_MAX * 20).map(|_| verifier.submit(&users, b"Basic YTpi")).collect();
        assert!(submitted.iter().any(Option::is_none));
        for verification in submitted.into_iter().flatten() {
            while verification.outcome().is_none() {
                thread::yield_now();
            }
            assert_eq!(verification.outcome(), Some(false));
        }
    }
}
