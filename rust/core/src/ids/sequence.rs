//! The number of an event within one stream and epoch.

use std::fmt;

use super::malformed::{Malformed, Part};

/// A sequence: starts at 1, adds 1, is never reused and has no holes.
///
/// 0 is legal in an ID and means "before the first event": the echo of a new stream carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(u64);

impl Sequence {
    /// Before the first event.
    pub const ZERO: Self = Self(0);
    /// The first event.
    pub const FIRST: Self = Self(1);
    /// The largest sequence there is, 2^63 - 1.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The sequence `number`, or `None` above 2^63 - 1.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next sequence, or `None` after the largest.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// Reads digits only: no sign, no leading zero, no overflow. `start` is where `text` stands in the ID.
    pub(super) fn parse(text: &[u8], start: usize) -> Result<Self, Malformed> {
        if text.is_empty() {
            return Err(Malformed::Empty { part: Part::Sequence, position: start });
        }
        if text.len() > 1 && text[0] == b'0' {
            return Err(Malformed::LeadingZero { part: Part::Sequence, position: start });
        }
        let mut number: u64 = 0;
        for (index, &byte) in text.iter().enumerate() {
            if !byte.is_ascii_digit() {
                return Err(Malformed::Character { part: Part::Sequence, position: start + index });
            }
            number = number
                .checked_mul(10)
                .and_then(|tens| tens.checked_add(u64::from(byte - b'0')))
                .filter(|&value| value <= Self::MAX.0)
                .ok_or(Malformed::TooLarge { part: Part::Sequence, position: start + index })?;
        }
        Ok(Self(number))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
