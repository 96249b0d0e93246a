//! Finds line ends sixty-four bytes at a time; the portable vectors of `wide` need no `unsafe` of ours.

use memchr::memchr2;
use wide::{i8x16, CmpEq};

/// Bytes that one mask covers.
pub(super) const BLOCK_BYTES: usize = 64;

/// One bit for each byte of the block that is CR or LF, the lowest for the first byte.
#[inline]
pub(super) fn line_ends(block: &[u8; BLOCK_BYTES]) -> u64 {
    let cr = i8x16::splat(b'\r' as i8);
    let lf = i8x16::splat(b'\n' as i8);
    let mut mask = 0;
    for (part, bytes) in block.chunks_exact(16).enumerate() {
        let mut lanes = [0_i8; 16];
        for (lane, byte) in lanes.iter_mut().zip(bytes) {
            *lane = *byte as i8;
        }
        let lanes = i8x16::new(lanes);
        let found = lanes.cmp_eq(cr) | lanes.cmp_eq(lf);
        mask |= u64::from(found.move_mask() as u16) << (16 * part);
    }
    mask
}

/// The first line end; a loop where the call of a vector search would cost more than the search.
#[inline]
pub(super) fn first_line_end(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < 16 {
        bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'))
    } else {
        memchr2(b'\r', b'\n', bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place_is_told_apart() {
        for byte in 0..=u8::MAX {
            for place in 0..BLOCK_BYTES {
                let mut block = [b'x'; BLOCK_BYTES];
                block[place] = byte;
                let expected = if matches!(byte, b'\r' | b'\n') { 1 << place } else { 0 };
                assert_eq!(line_ends(&block), expected, "{byte} at {place}");
            }
        }
    }
}
