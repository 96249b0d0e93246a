//! What a ring remembers of one event beside its bytes, in sixteen of them.
//!
//! The digest stands in the frame as well; here it is found without touching memory that is cold.

use crate::ids::Digest;

/// What the store must know of an event without reading it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// A notification, or anything else that nobody waits for.
    Plain,
    /// A request of the server to the client.
    Request,
    /// The answer to the call of this stream, or to one of a batch.
    Answer,
}

const MARK_BITS: u32 = 2;
/// Set where the event is one line of data and nothing else.
const IS_LINE: u32 = 1 << MARK_BITS;
const FLAG_BITS: u32 = MARK_BITS + 1;
/// Seconds that fit beside the flags: 17 years of one store.
const MAX_STORED_S: u64 = (1 << (32 - FLAG_BITS)) - 1;

/// Digest, end position (wrapping) and, in one word, mark, shape and age.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) digest: Digest,
    pub(super) end: u32,
    word: u32,
}

impl Slot {
    pub(super) fn new(digest: Digest, end: u32, mark: Mark, is_line: bool, stored_s: u64) -> Self {
        // Bounded by the constant, so the cast keeps the value.
        #[allow(clippy::cast_possible_truncation)]
        let stored = stored_s.min(MAX_STORED_S) as u32;
        let line = if is_line { IS_LINE } else { 0 };
        Self { digest, end, word: (stored << FLAG_BITS) | line | mark as u32 }
    }

    pub(super) fn mark(self) -> Mark {
        match self.word & ((1 << MARK_BITS) - 1) {
            0 => Mark::Plain,
            1 => Mark::Request,
            _ => Mark::Answer,
        }
    }

    pub(super) fn is_line(self) -> bool {
        self.word & IS_LINE != 0
    }

    pub(super) fn stored_s(self) -> u64 {
        u64::from(self.word >> FLAG_BITS)
    }
}
