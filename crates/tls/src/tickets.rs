//! The keys of session tickets (RFC 8446 section 4.6.1, RFC 5077): one sequence of keys for all
//! loops and processes of a server, each key derived from the one before it. So all of them change
//! to the same key at the same time without a word between them, and a key that has passed cannot
//! be found from what a process still knows.

use std::fmt;
use std::time::Instant;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::rand;
use parking_lot::RwLock;
use rustls::server::ProducesTickets;

/// Time for which a key encrypts tickets, seconds. For as long again it still decrypts them.
const KEY_S: u32 = 6 * 3600;

/// Maximum number of keys that are derived at once; a server that slept longer begins anew.
const STEPS_MAX: u64 = 10_000;

type Secret = [u8; 32];

/// The keys as of now, and the secret that leads to the next ones.
pub(crate) struct TicketKeys {
    start: Instant,
    keys: RwLock<Keys>,
}

/// Two keys of the sequence.
struct Keys {
    /// Number of the current key.
    number: u64,
    secret: Secret,
    current: RandomizedNonceKey,
    previous: Option<RandomizedNonceKey>,
}

impl TicketKeys {
    /// Creates a sequence with a random start.
    pub(crate) fn new() -> Result<Self, Unspecified> {
        let mut secret = [0; 32];
        rand::fill(&mut secret)?;
        let keys = RwLock::new(Keys::first(secret)?);
        Ok(Self { start: Instant::now(), keys })
    }

    fn encrypt_at(&self, age_s: u64, plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
        self.advance_to(age_s)?;
        let mut sealed = plain.to_vec();
        let nonce = self.keys.read().current.seal_in_place_append_tag(Aad::empty(), &mut sealed)?;
        let mut ticket = nonce.as_ref().to_vec();
        ticket.append(&mut sealed);
        Ok(ticket)
    }

    fn decrypt_at(&self, age_s: u64, ticket: &[u8]) -> Result<Vec<u8>, Unspecified> {
        self.advance_to(age_s)?;
        let keys = self.keys.read();
        let by_current = open(&keys.current, ticket);
        by_current
            .or_else(|error| keys.previous.as_ref().map_or(Err(error), |key| open(key, ticket)))
    }

    /// Moves on to the key of a time, seconds after the start.
    fn advance_to(&self, age_s: u64) -> Result<(), Unspecified> {
        let number = age_s / u64::from(KEY_S);
        if self.keys.read().number >= number {
            return Ok(());
        }
        let mut keys = self.keys.write();
        if number.saturating_sub(keys.number) > STEPS_MAX {
            return Err(Unspecified);
        }
        while keys.number < number {
            keys.advance()?;
        }
        Ok(())
    }
}

impl Keys {
    fn first(secret: Secret) -> Result<Self, Unspecified> {
        Ok(Self { number: 0, secret, current: key_of(&secret)?, previous: None })
    }

    fn advance(&mut self) -> Result<(), Unspecified> {
        self.secret = derive(&self.secret, b"weir: the next secret")?;
        let next = key_of(&self.secret)?;
        self.previous = Some(std::mem::replace(&mut self.current, next));
        self.number += 1;
        Ok(())
    }
}

/// Returns the key of a secret.
fn key_of(secret: &Secret) -> Result<RandomizedNonceKey, Unspecified> {
    RandomizedNonceKey::new(&AES_256_GCM, &derive(secret, b"weir: a key of tickets")?)
}

/// Derives 32 bytes for a purpose: HKDF-Expand, RFC 5869.
fn derive(secret: &Secret, purpose: &[u8]) -> Result<Secret, Unspecified> {
    let mut derived = [0; 32];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    prk.expand(&[purpose], HKDF_SHA256)?.fill(&mut derived)?;
    Ok(derived)
}

fn open(key: &RandomizedNonceKey, ticket: &[u8]) -> Result<Vec<u8>, Unspecified> {
    let (nonce, sealed) = ticket.split_at_checked(NONCE_LEN).ok_or(Unspecified)?;
    let mut plain = sealed.to_vec();
    let nonce = Nonce::try_assume_unique_for_key(nonce)?;
    let bytes = key.open_in_place(nonce, Aad::empty(), &mut plain)?.len();
    plain.truncate(bytes);
    Ok(plain)
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        KEY_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(self.start.elapsed().as_secs(), plain).ok()
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(self.start.elapsed().as_secs(), cipher).ok()
    }
}

/// Shows no secret.
impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same_secret() -> TicketKeys {
        TicketKeys { start: Instant::now(), keys: RwLock::new(Keys::first([7; 32]).unwrap()) }
    }

    #[test]
    fn a_ticket_is_good_for_its_key_and_the_next_and_no_longer() {
        let keys = same_secret();
        let step = u64::from(KEY_S);
        let ticket = keys.encrypt_at(step - 1, b"state").unwrap();
        assert_eq!(keys.decrypt_at(step - 1, &ticket).unwrap(), b"state");
        assert_eq!(keys.decrypt_at(2 * step - 1, &ticket).unwrap(), b"state");
        assert!(keys.decrypt_at(2 * step, &ticket).is_err());
    }

    #[test]
    fn processes_that_were_forked_come_to_the_same_keys_without_a_word() {
        let (one, other) = (same_secret(), same_secret());
        let later_s = 5 * u64::from(KEY_S) + 3;
        for age_s in [0, u64::from(KEY_S)] {
            one.encrypt_at(age_s, b"before").unwrap();
        }
        let ticket = one.encrypt_at(later_s, b"state").unwrap();
        assert_eq!(other.decrypt_at(later_s, &ticket).unwrap(), b"state");
    }

    #[test]
    fn no_ticket_that_was_changed_or_cut_is_taken() {
        let keys = TicketKeys::new().unwrap();
        let ticket = keys.encrypt_at(0, b"state").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert!(keys.decrypt_at(0, &changed).is_err(), "byte {at}");
            assert!(keys.decrypt_at(0, &ticket[..at]).is_err(), "cut at {at}");
        }
    }
}
