//! Basic authentication (RFC 7617): the users of an htpasswd file, and whether a password is
//! theirs. Pure, and slow on purpose: a hash takes as long as its file says.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha_crypt::{PasswordVerifier, ShaCrypt};

/// Maximum cost of a bcrypt hash: each more doubles the time, which is about 2 s for this one.
const BCRYPT_COST_MAX: u32 = 15;

/// Maximum number of rounds of a SHA-crypt hash; 5000 are usual. So many take about 2 s for a short
/// password, and several times that for one of [`PASSWORD_BYTES_MAX`]. One thread verifies: with
/// such a hash each guess holds up the first logins of all others for as long.
const SHA_ROUNDS_MAX: u32 = 2_000_000;

/// Maximum length of a password, bytes: the time of each round of SHA-crypt grows with it.
/// libxcrypt, which makes such hashes, has the same bound (CRYPT_MAX_PASSPHRASE_SIZE, crypt(3)).
const PASSWORD_BYTES_MAX: usize = 512;

/// Maximum length of a name, bytes, as in htpasswd(1).
const NAME_BYTES_MAX: usize = 255;

/// Maximum length of the value of an Authorization field that may be right, bytes: the scheme, and
/// a name, a colon and a password in base64 (RFC 4648 section 4).
pub(crate) const AUTHORIZATION_BYTES_MAX: usize =
    "Basic ".len() + (NAME_BYTES_MAX + 1 + PASSWORD_BYTES_MAX).div_ceil(3) * 4;

/// The users of a file, each with the hash of a password.
pub struct Users {
    hashes: HashMap<Box<[u8]>, String>,
    /// Hash that is computed for a name that is not there, so that time does not tell.
    some_hash: String,
    /// The WWW-Authenticate line, ended by CRLF.
    challenge: Vec<u8>,
    /// Digest of the file's text and the realm.
    digest: u64,
}

impl fmt::Debug for Users {
    /// Omits names and hashes, and tells by the digest that one has changed: two configurations
    /// are compared by this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users")
            .field("count", &self.hashes.len())
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

/// An error in a file of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsersError {
    /// Number of the line, from 1; 0 for the whole.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.why),
            line => write!(f, "line {line}: {}", self.why),
        }
    }
}

impl Users {
    /// Parses an htpasswd file: lines `NAME:HASH`, with hashes of bcrypt (`$2y$`, `$2b$`, `$2a$`)
    /// or SHA-crypt (`$5$`, `$6$`). `realm`: the name of what the password is for.
    ///
    /// # Errors
    /// A line is malformed, or has another kind of hash, or one that takes seconds or that no
    /// password has; or a name is too long, or there twice; or there is none.
    pub fn parse(text: &str, realm: &str) -> Result<Self, UsersError> {
        let mut hashes = HashMap::new();
        let mut some_hash = None;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: String| UsersError { line: index + 1, why };
            let (name, hash) =
                line.split_once(':').ok_or_else(|| wrong("a line is NAME:HASH".into()))?;
            if name.len() > NAME_BYTES_MAX {
                return Err(wrong(format!("a name has at most {NAME_BYTES_MAX} bytes")));
            }
            check_hash(hash).map_err(wrong)?;
            some_hash.get_or_insert_with(|| hash.to_owned());
            if hashes.insert(name.as_bytes().into(), hash.to_owned()).is_some() {
                return Err(wrong(format!("the user {name} is there twice")));
            }
        }
        let nobody = || UsersError { line: 0, why: "there is no user in it".into() };
        Self::check_realm(realm).map_err(|why| UsersError { line: 0, why })?;
        let challenge = format!("WWW-Authenticate: Basic realm=\"{realm}\", charset=\"UTF-8\"\r\n");
        let some_hash = some_hash.ok_or_else(nobody)?;
        let digest = digest(text, realm);
        Ok(Self { hashes, some_hash, challenge: challenge.into_bytes(), digest })
    }

    /// Checks the name of what a password is for, which is quoted in the line of a 401.
    ///
    /// # Errors
    /// A sentence: it has what cannot be quoted there.
    pub fn check_realm(realm: &str) -> Result<(), String> {
        let is_quotable = |c: char| c == ' ' || c.is_ascii_graphic() && !matches!(c, '"' | '\\');
        let why = "auth-realm is ASCII, without quotation marks and backslashes";
        if realm.chars().all(is_quotable) { Ok(()) } else { Err(why.into()) }
    }

    /// Returns the WWW-Authenticate line of a 401.
    #[must_use]
    pub fn challenge(&self) -> &[u8] {
        &self.challenge
    }

    /// Returns whether the value of an Authorization field is the name and password of a user.
    /// Takes as long as the hash, unless the password is longer than any.
    #[must_use]
    pub fn verify(&self, authorization: &[u8]) -> bool {
        let Some(credentials) = decode(authorization) else { return false };
        let Some(colon) = memchr::memchr(b':', &credentials) else { return false };
        let (name, password) = credentials.split_at(colon);
        let password = password.get(1..).unwrap_or_default();
        // Before the name is looked up, and for all kinds of hashes, so that time tells neither.
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        let hash = self.hashes.get(name);
        matches(password, hash.unwrap_or(&self.some_hash)) && hash.is_some()
    }
}

/// Returns the name in the value of an Authorization field, whether its password is right or not.
#[must_use]
pub(crate) fn name_in(authorization: &[u8]) -> Option<Vec<u8>> {
    let mut credentials = decode(authorization)?;
    credentials.truncate(memchr::memchr(b':', &credentials)?);
    Some(credentials)
}

/// Returns whether the value of an Authorization field is of this scheme.
#[must_use]
pub fn is_basic(authorization: &[u8]) -> bool {
    authorization.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "))
}

/// Returns a digest that is the same each time that the same is read: its key is fixed.
fn digest(text: &str, realm: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (text, realm).hash(&mut hasher);
    hasher.finish()
}

fn decode(authorization: &[u8]) -> Option<Vec<u8>> {
    let encoded = authorization.get(6..).filter(|_| is_basic(authorization))?;
    STANDARD.decode(encoded.trim_ascii()).ok()
}

fn is_bcrypt(hash: &str) -> bool {
    ["$2y$", "$2b$", "$2a$"].iter().any(|kind| hash.starts_with(kind))
}

fn is_sha_crypt(hash: &str) -> bool {
    ["$5$", "$6$"].iter().any(|kind| hash.starts_with(kind))
}

/// Checks that a hash can be verified, and does not take too long.
fn check_hash(hash: &str) -> Result<(), String> {
    if is_bcrypt(hash) {
        let parts: bcrypt::HashParts =
            hash.parse().map_err(|_| "the bcrypt hash is malformed".to_owned())?;
        let cost = parts.get_cost();
        return if cost <= BCRYPT_COST_MAX {
            Ok(())
        } else {
            Err(format!("a bcrypt cost of {cost} takes too long: {BCRYPT_COST_MAX} is the most"))
        };
    }
    if is_sha_crypt(hash) {
        return check_sha_crypt(hash);
    }
    Err("the hash is neither of bcrypt ($2y$) nor of SHA-crypt ($5$, $6$): htpasswd -B, or \
         openssl passwd -6, makes one"
        .into())
}

/// Checks the form `$6$[rounds=N$]SALT$HASH` (Drepper, Unix crypt using SHA-256 and SHA-512).
fn check_sha_crypt(hash: &str) -> Result<(), String> {
    let mut parts = hash.split('$').skip(2).peekable();
    if let Some(rounds) = parts.peek().and_then(|part| part.strip_prefix("rounds=")) {
        let rounds: u32 = rounds.parse().map_err(|_| "rounds= is a number".to_owned())?;
        if !(1000..=SHA_ROUNDS_MAX).contains(&rounds) {
            return Err(format!("rounds= is from 1000 to {SHA_ROUNDS_MAX}"));
        }
        parts.next();
    }
    let (Some(salt), Some(digest), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err("the SHA-crypt hash is malformed".into());
    };
    // The last digit has the bits that are left: four of 256, or two of 512.
    let (digits, last_digits) =
        if hash.starts_with("$5$") { (43, "./0123456789ABCD") } else { (86, "./01") };
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    let is_digest = digest.len() == digits && digest.bytes().all(is_digit);
    if !is_digest || !digest.ends_with(|last: char| last_digits.contains(last)) {
        return Err("the SHA-crypt hash is malformed".into());
    }
    // Those that can be verified. crypt(5) allows others, but no program makes them.
    let is_salted = |byte: u8| is_digit(byte) || matches!(byte, b'+' | b'=' | b',' | b'-');
    if !(1..=16).contains(&salt.len()) || !salt.bytes().all(is_salted) {
        return Err("the salt of a SHA-crypt hash has 1 to 16 characters, of A-Z, a-z, 0-9 and \
                    ./+=,-: openssl passwd -6 makes such a hash"
            .into());
    }
    Ok(())
}

/// Returns whether a hash is that of a password.
fn matches(password: &[u8], hash: &str) -> bool {
    if is_bcrypt(hash) {
        return bcrypt::verify(password, hash).unwrap_or(false);
    }
    ShaCrypt::default().verify_password(password, hash).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `htpasswd -nbBC 4`, `openssl passwd -5` and `-6`.
    const FILE: &str = "# people\n\
        Aladdin:$2y$04$vKRXkql.bdkV4Qq.4L6Adu2xBNxLNyVOVnVoU/S/VqNBLPSFCZuca\n\
        five:$5$saltfive$pNvdRB17wsMiPvkrsJDs07F2tiiNDcUVIIuT1Gu0FS3\n\
        six:$6$saltsix$xXYmwe2MfFsyUcr1AZ0BmeYyCRL14oov0/MmzTVD7RcbcsZNrxptt0BOGyDYhf272MwE\
        /M/pG9yVPqSQEG2oc/\n";

    fn users() -> Users {
        Users::parse(FILE, "here").unwrap()
    }

    fn basic(user: &str, password: &str) -> Vec<u8> {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).into_bytes()
    }

    #[test]
    fn a_password_is_its_users_and_no_others() {
        let users = users();
        for (user, password) in
            [("Aladdin", "open sesame"), ("five", "pass:word"), ("six", "pässword")]
        {
            assert!(users.verify(&basic(user, password)), "{user}");
            assert!(!users.verify(&basic(user, "wrong")), "{user}");
            assert!(!users.verify(&basic(user, "")), "{user}");
        }
        assert!(!users.verify(&basic("nobody", "open sesame")));
        assert!(!users.verify(&basic("five", "open sesame")));
        // RFC 7617 section 2.
        assert!(users.verify(b"bAsIc QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        for malformed in [&b""[..], b"Basic", b"Basic !", b"Basic QQ==", b"Bearer QQ=="] {
            assert!(!users.verify(malformed));
        }
    }

    #[test]
    fn a_password_longer_than_any_is_wrong_before_it_is_hashed() {
        // Hashes of 512 and of 513 times `a`.
        let users = Users::parse(
            "longest:$5$rounds=1000$saltlong$AA9PEsdfm0olDTa9O3rCnRfzdKQG7obvMSnkcPJir6A\n\
             longer:$5$rounds=1000$saltlong$6Z6QnHRHB/MD.G6I8PGz2Vkw5e2SrA7rL1RiO3Rz0c4\n",
            "here",
        )
        .unwrap();
        let longest = "a".repeat(PASSWORD_BYTES_MAX);
        let longer = format!("{longest}a");
        assert!(users.verify(&basic("longest", &longest)));
        assert!(!users.verify(&basic("longer", &longer)), "it was hashed");
        assert!(!users.verify(&basic("nobody", &longer)));
    }

    #[test]
    fn the_longest_name_and_password_have_room() {
        let name = "n".repeat(NAME_BYTES_MAX);
        let hash = FILE.lines().nth(1).and_then(|line| line.split_once(':')).unwrap().1;
        assert!(Users::parse(&format!("{name}:{hash}"), "r").is_ok());
        let longest = basic(&name, &"p".repeat(PASSWORD_BYTES_MAX));
        assert_eq!(longest.len(), AUTHORIZATION_BYTES_MAX);
        let error = Users::parse(&format!("{name}n:{hash}"), "r").unwrap_err();
        assert!(error.line == 1 && error.why.contains("255 bytes"), "{error}");
    }

    #[test]
    fn a_hash_that_no_password_has_is_refused() {
        let with_salt = |salt: &str| FILE.replacen("saltfive", salt, 1);
        for salt in ["", "salt five", "salt:five", "s\u{e4}lt", "salt_five", "seventeenletters7"] {
            let error = Users::parse(&with_salt(salt), "r").unwrap_err();
            assert!(error.line == 3 && error.why.contains("the salt"), "{salt:?}: {error}");
        }
        for (digest, other) in [("0FS3\n", "0FSE\n"), ("2oc/\n", "2oc2\n"), ("$pNvd", "$pN+d")] {
            let error = Users::parse(&FILE.replacen(digest, other, 1), "r").unwrap_err();
            assert!(error.why.contains("malformed"), "{other:?}: {error}");
        }
        // Made by crypt(3).
        let odd = "odd:$5$rounds=1000$A./+=,-z$RDYzjSMCA3.zTpgcyWPjiT/Nu5VFvA3s.VzJjDkVCFD";
        assert!(Users::parse(odd, "r").unwrap().verify(&basic("odd", "pass:word")));
    }

    #[test]
    fn the_challenge_names_the_realm() {
        let challenge = b"WWW-Authenticate: Basic realm=\"here\", charset=\"UTF-8\"\r\n";
        assert_eq!(users().challenge(), challenge);
        assert!(Users::parse(FILE, "a\"b").is_err() && Users::parse(FILE, "a\r\nb").is_err());
    }

    #[test]
    fn another_hash_of_as_many_users_shows_and_no_hash_does() {
        let shown = |text: &str, realm: &str| format!("{:?}", Users::parse(text, realm).unwrap());
        let first = shown(FILE, "here");
        assert_eq!(first, shown(FILE, "here"));
        assert!(first.starts_with("Users { count: 3, "), "{first}");
        let changed = FILE.replacen("$saltfive$p", "$saltfive$q", 1);
        assert_ne!(first, shown(&changed, "here"));
        assert_ne!(first, shown(FILE, "there"));
        for secret in ["Aladdin", "salt", "vKRX", "$2y$"] {
            assert!(!first.contains(secret), "{first}");
        }
    }

    #[test]
    fn an_error_names_its_line() {
        let hash = FILE.lines().nth(1).and_then(|line| line.split_once(':')).unwrap().1;
        let dear = hash.replacen("$04$", "$20$", 1);
        for (text, line, says) in [
            ("", 0, "no user"),
            ("# a\n\nname\n", 3, "NAME:HASH"),
            ("a:$apr1$x$y\n", 1, "htpasswd -B"),
            ("a:plain", 1, "htpasswd -B"),
            ("a:$2y$04$short", 1, "malformed"),
            ("a:$6$salt$short", 1, "malformed"),
            ("a:$6$rounds=9999999$salt$x", 1, "rounds="),
            (&format!("a:{dear}"), 1, "cost of 20"),
            (&format!("a:{hash}\na:{hash}"), 2, "twice"),
        ] {
            let error = Users::parse(text, "r").unwrap_err();
            assert!(error.line == line && error.why.contains(says), "{text:?}: {error}");
        }
    }
}
