//! Deterministic mutations of byte strings: a small fuzzing engine that needs no fuzzer.

/// A xorshift64* generator (Vigna 2016, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled").
pub struct Xorshift(u64);

/// Fragments that often confuse parsers.
const PIECES: [&[u8]; 16] = [
    b"\r\n",
    b"\n",
    b"\0",
    b" ",
    b",",
    b"..",
    b"/",
    b"%2e",
    b"%00",
    b"-",
    b"18446744073709551616",
    b"FFFFFFFFFFFFFFFF",
    b"\xff",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"\"",
];

impl Xorshift {
    /// Creates a generator; equal seeds give equal sequences.
    pub fn new(seed: u64) -> Xorshift {
        Xorshift(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns the next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound.max(1)
    }
}

/// Returns `bytes` with one to four small changes.
pub fn mutate(bytes: &[u8], random: &mut Xorshift) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        mutate_once(&mut bytes, random);
    }
    bytes
}

fn mutate_once(bytes: &mut Vec<u8>, random: &mut Xorshift) {
    let at = random.below(bytes.len() + 1);
    let end = (at + random.below(9)).min(bytes.len());
    match random.below(5) {
        0 => drop(bytes.splice(at..end, [])),
        1 => drop(bytes.splice(at..at, PIECES[random.below(PIECES.len())].iter().copied())),
        2 => drop(bytes.splice(at..end, [random.next() as u8])),
        3 => {
            let copy = bytes[at..end].to_vec();
            drop(bytes.splice(at..at, copy));
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_differ_and_repeat() {
        let two = |seed| {
            let mut random = Xorshift::new(seed);
            [mutate(b"GET / HTTP/1.1", &mut random), mutate(b"GET / HTTP/1.1", &mut random)]
        };
        assert_eq!(two(1), two(1));
        assert_ne!(two(1), two(2));
    }
}
