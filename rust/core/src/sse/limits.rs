//! The bounds of the parser, and the error that names the one that was passed.

use thiserror::Error;

/// What one stream may make the parser hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParserLimits {
    /// Bytes of one line without its line end, comments and ignored fields included.
    pub line_bytes: usize,
    /// Bytes of one block from its first field to the end of its last line: names, line ends and
    /// the comments in between count, not only payload.  A comment outside a block holds nothing.
    pub event_bytes: usize,
    /// Lines of one block, counted likewise.
    pub event_lines: usize,
}

impl ParserLimits {
    /// No bound at all, for a caller that has bounded the whole input.
    pub const UNBOUNDED: Self =
        Self { line_bytes: usize::MAX, event_bytes: usize::MAX, event_lines: usize::MAX };
}

impl Default for ParserLimits {
    fn default() -> Self {
        Self { line_bytes: 16 << 20, event_bytes: 16 << 20, event_lines: 1 << 16 }
    }
}

/// Why a parser accepts no more bytes.  Everything handed out before it stays valid.
///
/// `position` is the number of bytes of the stream before the first one that is too many; it does
/// not depend on how the bytes were cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ParseError {
    /// A line is longer than [`ParserLimits::line_bytes`].
    #[error("the line is longer than line_bytes = {limit}, at byte {position} of the stream")]
    LineBytes {
        /// The bound.
        limit: usize,
        /// The first byte too many.
        position: u64,
    },
    /// A block is longer than [`ParserLimits::event_bytes`].
    #[error("the event is longer than event_bytes = {limit}, at byte {position} of the stream")]
    EventBytes {
        /// The bound.
        limit: usize,
        /// The first byte too many.
        position: u64,
    },
    /// A block has more lines than [`ParserLimits::event_lines`].
    #[error("the event has more lines than event_lines = {limit}, at byte {position} of the stream")]
    EventLines {
        /// The bound.
        limit: usize,
        /// The first byte of the line too many.
        position: u64,
    },
    /// Bytes came after [`crate::sse::Parser::end`].
    #[error("the stream has ended: a connection that follows needs a parser of its own")]
    Ended,
}

impl ParseError {
    /// The field of [`ParserLimits`] that was passed, its value and the byte position.
    #[must_use]
    pub fn bound(&self) -> Option<(&'static str, usize, u64)> {
        match *self {
            Self::LineBytes { limit, position } => Some(("line_bytes", limit, position)),
            Self::EventBytes { limit, position } => Some(("event_bytes", limit, position)),
            Self::EventLines { limit, position } => Some(("event_lines", limit, position)),
            Self::Ended => None,
        }
    }
}
