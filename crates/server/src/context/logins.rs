//! Passwords that were found right, so that each is hashed once and not at each request. What is
//! kept is a hash under a key of the loop's own, of which nothing can be learnt, and of bounded
//! number: the oldest is forgotten.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::sites::users::Users;

/// Maximum number of passwords that are kept.
const KEPT_MAX: usize = 1024;

/// Right passwords.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    /// Two keys, for 128 bits: no other value is found to have the same.
    keys: (RandomState, RandomState),
    kept: HashSet<(u64, u64)>,
    /// Those kept, the oldest first.
    order: VecDeque<(u64, u64)>,
}

impl Logins {
    /// Returns whether the value of an Authorization field was found right for these users.
    pub(crate) fn knows(&self, users: &Arc<Users>, authorization: &[u8]) -> bool {
        self.kept.contains(&self.hash(users, authorization))
    }

    /// Keeps a value that was found right.
    pub(crate) fn keep(&mut self, users: &Arc<Users>, authorization: &[u8]) {
        let hash = self.hash(users, authorization);
        if !self.kept.insert(hash) {
            return;
        }
        self.order.push_back(hash);
        if self.order.len() > KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.kept.remove(&oldest);
        }
    }

    /// The users are told apart by where they are: they live as long as the server.
    fn hash(&self, users: &Arc<Users>, authorization: &[u8]) -> (u64, u64) {
        let value = (Arc::as_ptr(users), authorization);
        (self.keys.0.hash_one(value), self.keys.1.hash_one(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_kept_for_its_users_until_there_are_too_many() {
        let hash = "$5$saltfive$pNvdRB17wsMiPvkrsJDs07F2tiiNDcUVIIuT1Gu0FS3";
        let users = || Arc::new(Users::parse(&format!("a:{hash}"), "r").unwrap());
        let (some, others) = (users(), users());
        let mut logins = Logins::default();
        assert!(!logins.knows(&some, b"Basic x"));
        logins.keep(&some, b"Basic x");
        logins.keep(&some, b"Basic x");
        assert!(logins.knows(&some, b"Basic x"));
        assert!(!logins.knows(&some, b"Basic y") && !logins.knows(&others, b"Basic x"));
        for nth in 0..KEPT_MAX {
            logins.keep(&others, nth.to_string().as_bytes());
        }
        assert!(!logins.knows(&some, b"Basic x") && logins.knows(&others, b"0"));
        assert_eq!((logins.kept.len(), logins.order.len()), (KEPT_MAX, KEPT_MAX));
    }
}
