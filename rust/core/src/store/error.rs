//! Why a store did not do what was asked; nothing was changed then.

use thiserror::Error;

use crate::sse::EncodeError;

/// A refusal of the store.  The texts name no session, no ID and no payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// No such stream in this scope.
    #[error("there is no such stream in this scope: it was never opened here, or is forgotten")]
    UnknownStream,
    /// The stream has ended; it takes no more events.
    #[error("the stream has ended ({0}) and takes no more events")]
    StreamEnded(&'static str),
    /// The session is known to have ended, or belongs to another principal.
    #[error("the session has ended, or belongs to another principal: answer 404")]
    SessionEnded,
    /// Neither session nor principal: nothing of it could ever be resumed.
    #[error("a scope needs a session or a principal: without either there is no resumption")]
    NoScope,
    /// A bound of the store is reached; existing streams are not affected.
    #[error("{name} = {limit} is reached: answer 503 with Retry-After, or raise the bound")]
    Limit {
        /// Which one.
        name: &'static str,
        /// Its value.
        limit: usize,
    },
    /// The answer to a call is larger than can be kept.
    #[error("the answer has {bytes} bytes, {name} leaves room for {limit}: append the in-band error too-large instead")]
    AnswerTooLarge {
        /// Bytes of its data.
        bytes: usize,
        /// The bound.
        name: &'static str,
        /// What there was room for.
        limit: usize,
    },
    /// An event without data is an echo: it takes no sequence and is not stored.
    #[error("an event without data is an echo and is not stored")]
    NoData,
    /// The event type cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Sequences end at 2^63 - 1.
    #[error("the stream has used its last sequence")]
    LastSequence,
    /// A call needs at least one request id.
    #[error("a call stream answers at least one request")]
    NoRequest,
    /// A reader cannot start after an event that there is not.
    #[error("the stream has no such sequence yet: a reader starts after its last event at most")]
    AheadOfEnd,
    /// The random name is taken; draw another one.
    #[error("the random stream name is taken already: draw another one")]
    NameTaken,
}
