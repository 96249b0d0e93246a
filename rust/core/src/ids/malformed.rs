//! Why a text is no event ID of version 1, and where.

use std::fmt;

use thiserror::Error;

/// A part of an event ID, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The stream token.
    Stream,
    /// The JSON-RPC request id inside the stream token.
    RequestId,
    /// The epoch.
    Epoch,
    /// Key id and MAC.
    Tag,
    /// The sequence.
    Sequence,
    /// The digest.
    Digest,
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Stream => "stream",
            Self::RequestId => "request id",
            Self::Epoch => "epoch",
            Self::Tag => "tag",
            Self::Sequence => "sequence",
            Self::Digest => "digest",
        })
    }
}

/// The ways in which a `cf1` ID can be malformed; `position` counts bytes from the start of the ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Longer than any ID we write.
    #[error("longer than 128 bytes")]
    TooLong {
        /// The first byte beyond the bound.
        position: usize,
    },
    /// A part is missing: the text ends too early.
    #[error("the text ends before the {part}")]
    Missing {
        /// The first part that is missing.
        part: Part,
        /// The end of the text.
        position: usize,
    },
    /// A dot after the digest.
    #[error("more than six parts")]
    ExtraPart {
        /// Where the seventh part's dot stands.
        position: usize,
    },
    /// A part without any character.
    #[error("the {part} is empty")]
    Empty {
        /// Which part.
        part: Part,
        /// Where it should begin.
        position: usize,
    },
    /// A part of fixed length has another one, or a bounded one is over its bound.
    #[error("the {part} has the wrong length")]
    Length {
        /// Which part.
        part: Part,
        /// Where it begins.
        position: usize,
    },
    /// A character that this part cannot have.
    #[error("a character that the {part} cannot have")]
    Character {
        /// Which part.
        part: Part,
        /// The character.
        position: usize,
    },
    /// Base64url whose unused bits are not zero: a second spelling of the same bytes.
    #[error("the {part} is not in canonical base64url (unused bits are set)")]
    TrailingBits {
        /// Which part.
        part: Part,
        /// The last character of the part.
        position: usize,
    },
    /// A number with a zero before its first digit, or minus zero.
    #[error("the {part} has a leading zero")]
    LeadingZero {
        /// Which part.
        part: Part,
        /// Where the number begins.
        position: usize,
    },
    /// A number above its bound.
    #[error("the {part} is too large")]
    TooLarge {
        /// Which part.
        part: Part,
        /// The digit that went over.
        position: usize,
    },
}

impl Malformed {
    /// The byte of the ID at which reading stopped.
    #[must_use]
    pub fn position(&self) -> usize {
        match *self {
            Self::TooLong { position }
            | Self::Missing { position, .. }
            | Self::ExtraPart { position }
            | Self::Empty { position, .. }
            | Self::Length { position, .. }
            | Self::Character { position, .. }
            | Self::TrailingBits { position, .. }
            | Self::LeadingZero { position, .. }
            | Self::TooLarge { position, .. } => position,
        }
    }
}

/// Why a text was not read as an event ID. The three ways are answered differently, so they are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum IdError {
    /// Not a `cf` id at all: another scheme, opaque to us.
    #[error("not a counterfoil event ID (it does not begin with `cf1.`)")]
    Foreign,
    /// A `cf` ID of another version, whatever follows; nothing but the number was read.
    #[error("event ID of format version {version}; this release reads version 1")]
    Version {
        /// The version that the id names.
        version: u32,
    },
    /// Claims to be version 1 and is not.
    #[error("malformed event ID at byte {position}: {reason}")]
    Malformed {
        /// What is wrong.
        reason: Malformed,
        /// The byte of the ID at which reading stopped.
        position: usize,
    },
}

impl From<Malformed> for IdError {
    fn from(reason: Malformed) -> Self {
        Self::Malformed { reason, position: reason.position() }
    }
}
