//! Canonical base64url without padding, for parts of fixed length.

use data_encoding::{DecodeKind, BASE64URL_NOPAD};

use super::malformed::{Malformed, Part};

/// Writes `bytes` as base64url.
pub(super) fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + BASE64URL_NOPAD.encode_len(bytes.len()), 0);
    BASE64URL_NOPAD.encode_mut(bytes, &mut out[start..]);
}

/// `bytes` as base64url.
pub(super) fn encode(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}

/// `word` in big-endian order as base64url, as [`append`] writes it; once for every event.
///
/// The characters are put together in registers: what is stored byte by byte cannot be read as a whole soon.
#[inline]
pub(super) fn encode_word(word: u64) -> ([u8; 8], [u8; 3]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let character = |bits: u64| u64::from(ALPHABET[(bits & 63) as usize]);
    let mut eight = 0;
    for place in 0..8 {
        eight |= character(word >> (58 - 6 * place)) << (8 * place);
    }
    // Eleven characters hold 66 bits; the last two bits are zero.
    let three = [character(word >> 10) as u8, character(word >> 4) as u8, character(word << 2) as u8];
    (eight.to_le_bytes(), three)
}

/// Whether `byte` is in the alphabet `A-Z a-z 0-9 - _`.
pub(super) const fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// Reads exactly `N` bytes; refuses any other length, a foreign character, and unused bits that are not zero.
pub(super) fn decode<const N: usize>(text: &[u8], part: Part, start: usize) -> Result<[u8; N], Malformed> {
    if text.is_empty() {
        return Err(Malformed::Empty { part, position: start });
    }
    if text.len() != BASE64URL_NOPAD.encode_len(N) {
        return Err(Malformed::Length { part, position: start });
    }
    let mut bytes = [0; N];
    match BASE64URL_NOPAD.decode_mut(text, &mut bytes) {
        Ok(_) => Ok(bytes),
        Err(partial) => {
            let position = start + partial.error.position;
            Err(match partial.error.kind {
                DecodeKind::Trailing => Malformed::TrailingBits { part, position: start + text.len() - 1 },
                _ => Malformed::Character { part, position },
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_written_as_its_bytes_are() {
        for word in [0, 1, 63, 64, u64::MAX, 0x0123_4567_89AB_CDEF, 1 << 63, 0xF0F0_F0F0_F0F0_F0F0] {
            let (eight, three) = encode_word(word);
            assert_eq!([&eight[..], &three].concat(), encode(&word.to_be_bytes()).as_bytes());
        }
    }
}
