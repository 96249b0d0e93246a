//! Walks an object sixty-four bytes at a time: only its own keys are looked at, whatever lies deeper is
//! skipped by masks of quotes and brackets.  The portable vectors of `wide` need no `unsafe` of ours.

use memchr::memchr2;
use wide::{i8x16, CmpEq};

use super::scanner::Scanner;
use super::{Envelope, Members};

const BLOCK_BYTES: usize = 64;

/// One bit for each byte of a block, the lowest for the first one.
#[derive(Clone, Copy, Default)]
struct Masks {
    quotes: u64,
    backslashes: u64,
    brackets: u64,
    /// Bytes that a key which says what the message is may begin with.
    letters: u64,
}

impl Masks {
    #[inline]
    fn of(block: &[u8; BLOCK_BYTES]) -> Self {
        let splat = |byte: u8| i8x16::splat(byte as i8);
        let mut masks = Self::default();
        for (part, bytes) in block.chunks_exact(16).enumerate() {
            let mut lanes = [0_i8; 16];
            for (lane, byte) in lanes.iter_mut().zip(bytes) {
                *lane = *byte as i8;
            }
            let lanes = i8x16::new(lanes);
            // Square and curly brackets differ in one bit, which no other byte shares with them.
            let folded = lanes | splat(0x20);
            let mask = |found: i8x16| u64::from(found.move_mask() as u16) << (16 * part);
            masks.quotes |= mask(lanes.cmp_eq(splat(b'"')));
            masks.backslashes |= mask(lanes.cmp_eq(splat(b'\\')));
            masks.brackets |= mask(folded.cmp_eq(splat(b'{')) | folded.cmp_eq(splat(b'}')));
            let early = lanes.cmp_eq(splat(b'e')) | lanes.cmp_eq(splat(b'i'));
            let late = lanes.cmp_eq(splat(b'm')) | lanes.cmp_eq(splat(b'r'));
            masks.letters |= mask(early | late | lanes.cmp_eq(splat(b'\\')));
        }
        masks
    }
}

/// Which bytes are escaped, and whether the byte after the block is.
#[inline]
fn escaped(backslashes: u64, carried: bool) -> (u64, bool) {
    let mut escaped = u64::from(carried);
    let mut left = backslashes & !escaped;
    while left != 0 {
        let at = left.trailing_zeros();
        if at == 63 {
            return (escaped, true);
        }
        escaped |= 2 << at;
        left &= !(3 << at);
    }
    (escaped, false)
}

/// Each bit is the parity of all bits up to it: from an opening quote on, up to before the closing one.
#[inline]
const fn parity(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^ (bits << 32)
}

/// Reads the object that begins at `start` and is the whole rest of `data`; with `until_method` only up
/// to its method, if it has one.
pub(super) fn scan_object(data: &[u8], start: usize, until_method: bool) -> Option<Envelope<'_>> {
    let mut members = Members::default();
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut is_escaped = false;
    let mut base = start;
    while base < data.len() {
        if in_string && !is_escaped {
            base += memchr2(b'"', b'\\', &data[base..])?;
        }
        let mut padded = [b' '; BLOCK_BYTES];
        let block = match data[base..].first_chunk() {
            Some(block) => block,
            None => {
                padded[..data.len() - base].copy_from_slice(&data[base..]);
                &padded
            }
        };
        let masks = Masks::of(block);
        let mut quotes = masks.quotes;
        if masks.backslashes != 0 || is_escaped {
            let (escaped, carried) = escaped(masks.backslashes, is_escaped);
            quotes &= !escaped;
            is_escaped = carried;
        }
        let inside = parity(quotes) ^ if in_string { u64::MAX } else { 0 };
        in_string = inside >> 63 != 0;
        let brackets = masks.brackets & !inside;
        // What follows the last byte of a block is looked at only where it matters.
        let begins = quotes & inside & ((masks.letters >> 1) | (1 << 63));
        let mut left = u64::MAX;
        loop {
            let looked_at = left & if depth == 1 { brackets | begins } else { brackets };
            if looked_at == 0 {
                break;
            }
            let bit = looked_at & looked_at.wrapping_neg();
            left = !(bit | (bit - 1));
            let at = base + bit.trailing_zeros() as usize;
            match data.get(at)? {
                b'{' | b'[' => depth += 1,
                b'"' => {
                    if may_matter(data, at) {
                        take_member(data, at, &mut members)?;
                        if until_method && members.method.is_some() {
                            return data.trim_ascii_end().ends_with(b"}").then(|| members.into_envelope());
                        }
                    }
                }
                _ => {
                    depth -= 1;
                    if depth == 0 {
                        let mut scanner = Scanner { data, at: at + 1 };
                        return scanner.is_at_end().then(|| members.into_envelope());
                    }
                }
            }
        }
        base += BLOCK_BYTES;
    }
    None
}

/// Whether the string that begins at `at` may be a key that says what the message is: it is no value,
/// and begins like one of them, or with an escape.
#[inline]
fn may_matter(data: &[u8], at: usize) -> bool {
    matches!(data.get(at + 1), Some(b'i' | b'm' | b'r' | b'e' | b'\\'))
        && data[..at].iter().rev().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) != Some(&b':')
}

/// Takes the member whose key begins at `at`.
fn take_member<'a>(data: &'a [u8], at: usize, members: &mut Members<'a>) -> Option<()> {
    let mut scanner = Scanner { data, at };
    let key = scanner.key()?;
    scanner.skip_space();
    if scanner.peek()? != b':' {
        return None;
    }
    scanner.at += 1;
    scanner.skip_space();
    members.take(key, &mut scanner)
}
