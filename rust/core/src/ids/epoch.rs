//! The identity of one unbroken life of a stream's history.

use std::fmt;

use super::malformed::{Malformed, Part};
use super::text;

/// Characters of an epoch in an ID.
pub const EPOCH_CHARS: usize = 11;

/// 64 random bits, compared only for equality: an epoch has no order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch(pub [u8; 8]);

impl Epoch {
    /// Reads an epoch as it stands in an ID.
    ///
    /// # Errors
    /// When `text` is not 11 characters of canonical base64url.
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        Self::parse_at(text, 0)
    }

    pub(super) fn parse_at(text: &[u8], start: usize) -> Result<Self, Malformed> {
        text::decode(text, Part::Epoch, start).map(Self)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&text::encode(&self.0))
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Epoch({self})")
    }
}
