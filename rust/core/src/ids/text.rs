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
