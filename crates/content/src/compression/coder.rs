//! Compression of a file's bytes in each coding, at each level.

use std::io::{self, Write};

use flate2::write::GzEncoder;

use super::level::Level;
use crate::variants::Coding;

/// Compresses bytes. The result depends on the arguments alone.
///
/// # Errors
/// Those of the coding's library: no memory.
pub(super) fn compress(plain: &[u8], coding: Coding, level: Level) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Gzip => gzip(plain, level),
        Coding::Brotli => brotli(plain, level),
        Coding::Zstd => zstd(plain, level),
    }
}

/// RFC 1952, without a name or a time.
fn gzip(plain: &[u8], level: Level) -> io::Result<Vec<u8>> {
    let level = match level {
        Level::Fast => 1,
        Level::Normal => 6,
        Level::Best => 9,
    };
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(level));
    encoder.write_all(plain)?;
    encoder.finish()
}

/// RFC 7932. The best quality, 11, takes twenty times as long as 9 for a tenth less.
fn brotli(plain: &[u8], level: Level) -> io::Result<Vec<u8>> {
    let quality = match level {
        Level::Fast => 2,
        Level::Normal => 5,
        Level::Best => 9,
    };
    let params = brotli::enc::BrotliEncoderParams {
        quality,
        lgwin: window_bits(plain.len()),
        size_hint: plain.len(),
        ..Default::default()
    };
    let mut coded = Vec::new();
    brotli::BrotliCompress(&mut &*plain, &mut coded, &params)?;
    Ok(coded)
}

/// Returns the logarithm of a window that holds `len` bytes, within what every decoder has
/// (RFC 7932 section 9.1).
fn window_bits(len: usize) -> i32 {
    let bits = usize::BITS - len.leading_zeros();
    i32::try_from(bits).unwrap_or(i32::MAX).clamp(16, 22)
}

/// RFC 8878. The window of a level is within the 8 MiB that every decoder has (RFC 9659).
fn zstd(plain: &[u8], level: Level) -> io::Result<Vec<u8>> {
    let level = match level {
        Level::Fast => 1,
        Level::Normal => 5,
        Level::Best => 15,
    };
    zstd::bulk::compress(plain, level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn decoded(coded: &[u8], coding: Coding) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Gzip => {
                flate2::read::GzDecoder::new(coded).read_to_end(&mut plain).unwrap();
            }
            Coding::Brotli => brotli::BrotliDecompress(&mut &*coded, &mut plain).unwrap(),
            Coding::Zstd => plain = zstd::stream::decode_all(coded).unwrap(),
        }
        plain
    }

    /// Lines of a page, of which a higher level makes more.
    fn text(lines: u64) -> Vec<u8> {
        let word = |n: u64| format!("word{}", n * n % 61 + n % 7);
        let line = |n: u64| {
            let words: Vec<_> = (n..n + 9).map(word).collect();
            format!("<li><a href=\"/item/{n}\">{}</a></li>\n", words.join(" "))
        };
        (0..lines).map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn every_coding_at_every_level_gives_back_the_bytes() {
        for plain in [Vec::new(), b"a".to_vec(), text(1_000)] {
            for coding in Coding::ALL {
                for level in [Level::Fast, Level::Normal, Level::Best] {
                    let coded = compress(&plain, coding, level).unwrap();
                    assert_eq!(decoded(&coded, coding), plain, "{coding:?} {level:?}");
                    assert_eq!(compress(&plain, coding, level).unwrap(), coded);
                }
            }
        }
    }

    #[test]
    fn a_higher_level_makes_a_smaller_form() {
        let plain = text(1_000);
        for coding in Coding::ALL {
            let len = |level| compress(&plain, coding, level).unwrap().len();
            let (fast, best) = (len(Level::Fast), len(Level::Best));
            assert!(best < fast && fast < plain.len(), "{coding:?}: {fast}, {best}");
        }
    }
}
