//! The keys of session tickets (RFC 8446 section 4.6.1, RFC 5077): one sequence of keys for all
//! loops and processes of a server, each key derived from the one before it. So all of them change
//! to the same key at the same time without a word between them, and a key that has passed cannot
//! be found from what a process still knows. A server passes them to its successor, so that its
//! clients need not begin anew.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::rand;
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use parking_lot::RwLock;
use rustls::server::ProducesTickets;

/// Time for which a key encrypts tickets, seconds. For as long again it still decrypts them.
const KEY_S: u32 = 6 * 3600;

/// Maximum number of keys that are derived at once; a server that slept longer begins anew.
const STEPS_MAX: u64 = 10_000;

type Secret = [u8; SECRET_LEN];

const SECRET_LEN: usize = 32;

/// The keys as of now, and the secret that leads to the next ones.
pub(crate) struct TicketKeys {
    keys: RwLock<Keys>,
}

/// Two keys of the sequence.
struct Keys {
    /// Time since which the first key has encrypted.
    start: Instant,
    /// Number of the current key.
    number: u64,
    secret: Secret,
    current: Key,
    previous: Option<Key>,
}

/// A key, and the bytes from which a successor makes the same.
struct Key {
    bytes: Secret,
    cipher: RandomizedNonceKey,
}

impl TicketKeys {
    /// Creates a sequence with a random start.
    pub(crate) fn new() -> Result<Self, Unspecified> {
        Ok(Self { keys: RwLock::new(Keys::random()?) })
    }

    /// Returns the keys for a successor: for how many seconds the current one has been used, its
    /// secret and the previous one.
    pub(crate) fn to_text(&self) -> Result<String, Unspecified> {
        self.advance_to(self.age_s())?;
        let keys = self.keys.read();
        let used_s = keys.age_s().saturating_sub(keys.number * u64::from(KEY_S));
        let previous = keys.previous.as_ref().map_or(&[][..], |key| &key.bytes);
        let encoded = BASE64_STANDARD_NO_PAD.encode([&keys.secret[..], previous].concat());
        Ok(format!("{used_s} {encoded}"))
    }

    /// Goes on with the keys that a predecessor has passed.
    pub(crate) fn take_over(&self, text: &str) -> Result<(), Unspecified> {
        let keys = Keys::from_text(text).ok_or(Unspecified)?;
        *self.keys.write() = keys;
        Ok(())
    }

    /// Begins another sequence, which nothing leads to that a process has which was forked before.
    pub(crate) fn begin_anew(&self) -> Result<(), Unspecified> {
        *self.keys.write() = Keys::random()?;
        Ok(())
    }

    fn age_s(&self) -> u64 {
        self.keys.read().age_s()
    }

    fn encrypt_at(&self, age_s: u64, context: &[u8], plain: &[u8]) -> Result<Vec<u8>, Unspecified> {
        self.advance_to(age_s)?;
        let mut sealed = plain.to_vec();
        let cipher = &self.keys.read().current.cipher;
        let nonce = cipher.seal_in_place_append_tag(Aad::from(context), &mut sealed)?;
        let mut ticket = nonce.as_ref().to_vec();
        ticket.append(&mut sealed);
        Ok(ticket)
    }

    fn decrypt_at(
        &self,
        age_s: u64,
        context: &[u8],
        ticket: &[u8],
    ) -> Result<Vec<u8>, Unspecified> {
        self.advance_to(age_s)?;
        let keys = self.keys.read();
        let by_current = keys.current.open(context, ticket);
        by_current.or_else(|error| {
            keys.previous.as_ref().map_or(Err(error), |key| key.open(context, ticket))
        })
    }

    /// Forgets the keys that have passed by now. Returns the time until the next one has passed.
    pub(crate) fn forget_passed(&self) -> Duration {
        let age = self.keys.read().start.elapsed();
        // A key that cannot be derived is asked for again with the next ticket.
        let _ = self.advance_to(age.as_secs());
        let key_s = u64::from(KEY_S);
        let next = Duration::from_secs((age.as_secs() / key_s + 1) * key_s);
        next.saturating_sub(age)
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
    /// Creates the first key of a sequence that begins at random, and now.
    fn random() -> Result<Self, Unspecified> {
        let mut secret = [0; SECRET_LEN];
        rand::fill(&mut secret)?;
        Self::first(Instant::now(), secret)
    }

    fn first(start: Instant, secret: Secret) -> Result<Self, Unspecified> {
        Ok(Self { start, number: 0, secret, current: Key::of(&secret)?, previous: None })
    }

    fn from_text(text: &str) -> Option<Self> {
        let (used_s, encoded) = text.split_once(' ')?;
        let start = Instant::now().checked_sub(Duration::from_secs(used_s.parse().ok()?))?;
        let bytes = BASE64_STANDARD_NO_PAD.decode(encoded).ok()?;
        let (secret, previous) = bytes.split_first_chunk()?;
        let mut keys = Self::first(start, *secret).ok()?;
        if !previous.is_empty() {
            keys.previous = Some(Key::new(previous.try_into().ok()?).ok()?);
        }
        Some(keys)
    }

    fn age_s(&self) -> u64 {
        self.start.elapsed().as_secs()
    }

    fn advance(&mut self) -> Result<(), Unspecified> {
        self.secret = derive(&self.secret, b"weir: the next secret")?;
        let next = Key::of(&self.secret)?;
        self.previous = Some(std::mem::replace(&mut self.current, next));
        self.number += 1;
        Ok(())
    }
}

impl Key {
    /// Creates the key of a secret.
    fn of(secret: &Secret) -> Result<Self, Unspecified> {
        Self::new(derive(secret, b"weir: a key of tickets")?)
    }

    fn new(bytes: Secret) -> Result<Self, Unspecified> {
        Ok(Self { bytes, cipher: RandomizedNonceKey::new(&AES_256_GCM, &bytes)? })
    }

    fn open(&self, context: &[u8], ticket: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let (nonce, sealed) = ticket.split_at_checked(NONCE_LEN).ok_or(Unspecified)?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce)?;
        let bytes = self.cipher.open_in_place(nonce, Aad::from(context), &mut plain)?.len();
        plain.truncate(bytes);
        Ok(plain)
    }
}

/// Derives 32 bytes for a purpose: HKDF-Expand, RFC 5869.
fn derive(secret: &Secret, purpose: &[u8]) -> Result<Secret, Unspecified> {
    let mut derived = [0; 32];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    prk.expand(&[purpose], HKDF_SHA256)?.fill(&mut derived)?;
    Ok(derived)
}

/// Maker of the tickets of one configuration.
pub(crate) struct Ticketer {
    keys: Arc<TicketKeys>,
    /// What a ticket is bound to: it is taken under no configuration that differs in this.
    context: Vec<u8>,
}

impl Ticketer {
    pub(crate) fn new(keys: &Arc<TicketKeys>, context: Vec<u8>) -> Self {
        Self { keys: Arc::clone(keys), context }
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        KEY_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys.encrypt_at(self.keys.age_s(), &self.context, plain).ok()
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.keys.decrypt_at(self.keys.age_s(), &self.context, cipher).ok()
    }
}

/// Shows no secret.
impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

/// Shows no secret.
impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticketer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same_secret() -> TicketKeys {
        TicketKeys { keys: RwLock::new(Keys::first(Instant::now(), [7; 32]).unwrap()) }
    }

    #[test]
    fn a_ticket_is_good_for_its_key_and_the_next_and_no_longer() {
        let keys = same_secret();
        let step = u64::from(KEY_S);
        let ticket = keys.encrypt_at(step - 1, b"", b"state").unwrap();
        assert_eq!(keys.decrypt_at(step - 1, b"", &ticket).unwrap(), b"state");
        assert_eq!(keys.decrypt_at(2 * step - 1, b"", &ticket).unwrap(), b"state");
        assert!(keys.decrypt_at(2 * step, b"", &ticket).is_err());
    }

    #[test]
    fn processes_that_were_forked_come_to_the_same_keys_without_a_word() {
        let (one, other) = (same_secret(), same_secret());
        let later_s = 5 * u64::from(KEY_S) + 3;
        for age_s in [0, u64::from(KEY_S)] {
            one.encrypt_at(age_s, b"", b"before").unwrap();
        }
        let ticket = one.encrypt_at(later_s, b"", b"state").unwrap();
        assert_eq!(other.decrypt_at(later_s, b"", &ticket).unwrap(), b"state");
    }

    #[test]
    fn no_ticket_that_was_changed_or_cut_is_taken() {
        let keys = TicketKeys::new().unwrap();
        let ticket = keys.encrypt_at(0, b"", b"state").unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert!(keys.decrypt_at(0, b"", &changed).is_err(), "byte {at}");
            assert!(keys.decrypt_at(0, b"", &ticket[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_ticket_is_bound_to_its_configuration() {
        let keys = Arc::new(TicketKeys::new().unwrap());
        let [one, other] = [b"one", b"two"].map(|word| Ticketer::new(&keys, word.to_vec()));
        let ticket = one.encrypt(b"state").unwrap();
        assert_eq!(one.decrypt(&ticket).unwrap(), b"state");
        assert_eq!(other.decrypt(&ticket), None);
    }

    #[test]
    fn a_key_that_has_passed_is_forgotten_though_no_session_asks_for_one() {
        let step = u64::from(KEY_S);
        let [old, new] =
            [0, 1].map(|number| same_secret().encrypt_at(number * step, b"", b"state").unwrap());
        let start = Instant::now().checked_sub(Duration::from_secs(2 * step + 1000)).unwrap();
        let idle = TicketKeys { keys: RwLock::new(Keys::first(start, [7; 32]).unwrap()) };
        let left = idle.forget_passed();
        assert!(left > Duration::ZERO && left <= Duration::from_secs(step - 1000), "{left:?}");
        assert_eq!(idle.keys.read().number, 2);
        // Nothing is derived at a time that is past.
        assert!(idle.decrypt_at(0, b"", &old).is_err());
        assert_eq!(idle.decrypt_at(0, b"", &new).unwrap(), b"state");
        // A process that has slept until then, and one forked from it now, come to the same keys.
        let ticket = idle.encrypt_at(2 * step, b"", b"forked").unwrap();
        assert_eq!(same_secret().decrypt_at(2 * step, b"", &ticket).unwrap(), b"forked");
    }

    #[test]
    fn nothing_leads_from_an_earlier_sequence_to_one_begun_anew() {
        let (keys, forked) = (same_secret(), same_secret());
        let before = keys.encrypt_at(0, b"", b"state").unwrap();
        keys.begin_anew().unwrap();
        assert!(keys.decrypt_at(0, b"", &before).is_err());
        let after = keys.encrypt_at(0, b"", b"state").unwrap();
        assert_eq!(keys.decrypt_at(0, b"", &after).unwrap(), b"state");
        assert!((0..3).all(|nth| forked.decrypt_at(nth * u64::from(KEY_S), b"", &after).is_err()));
    }

    #[test]
    fn a_successor_takes_the_tickets_of_both_keys_and_changes_to_the_same_next_one() {
        let step = u64::from(KEY_S);
        let used = Duration::from_secs(step + 1000);
        let start = Instant::now().checked_sub(used).unwrap();
        let last = TicketKeys { keys: RwLock::new(Keys::first(start, [7; 32]).unwrap()) };
        let old = last.encrypt_at(step - 1, b"", b"old").unwrap();
        let new = last.encrypt_at(step, b"", b"new").unwrap();
        let next = TicketKeys::new().unwrap();
        let text = last.to_text().unwrap();
        next.take_over(&text).unwrap();
        assert!((1000..1010).contains(&next.age_s()), "{}", next.age_s());
        assert_eq!(next.decrypt_at(next.age_s(), b"", &old).unwrap(), b"old");
        assert_eq!(next.decrypt_at(next.age_s(), b"", &new).unwrap(), b"new");
        let later = next.encrypt_at(step, b"", b"later").unwrap();
        assert_eq!(last.decrypt_at(2 * step, b"", &later).unwrap(), b"later");
        assert!(next.decrypt_at(step, b"", &old).is_err());
    }

    #[test]
    fn what_is_no_key_changes_nothing() {
        let keys = TicketKeys::new().unwrap();
        let ticket = keys.encrypt_at(0, b"", b"state").unwrap();
        let text = keys.to_text().unwrap();
        let wrong = ["", "1", "x AAAA", "1 AAAA", &text[..text.len() - 1], &format!("{text}AAAA")];
        for text in wrong {
            assert!(keys.take_over(text).is_err(), "{text}");
        }
        assert_eq!(keys.decrypt_at(0, b"", &ticket).unwrap(), b"state");
    }
}
