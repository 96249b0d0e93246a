//! Event IDs: `cf1.<stream>.<epoch>.<tag>.<sequence>.<digest>`, their MAC, and the digest chain.
//!
//! Specified byte by byte in `docs/wire.md`. Nothing here draws random bytes or reads a file:
//! callers pass both in.

mod digest;
mod epoch;
mod event_id;
mod key_file;
mod key_ring;
mod malformed;
mod scope;
mod sequence;
mod stream_token;
mod text;

pub use digest::{Digest, DigestChain, LongSecret};
pub use epoch::{Epoch, EPOCH_CHARS};
pub(crate) use event_id::Position;
pub use event_id::{write_id, EventId, IdPrefix, MAX_ID_BYTES};
pub use key_file::{parse_key_file, write_key_file, KeyFileError, KEY_FILE_VERSION, MAX_KEY_FILE_BYTES};
pub use key_ring::{
    Check, Key, KeyId, KeyRing, KeyRingError, Tag, KEY_BYTES, KEY_ID_CHARS, MAX_KEYS, TAG_CHARS,
};
pub use malformed::{IdError, Malformed, Part};
pub use scope::{Scope, ScopeError, MAX_SCOPE_PART_BYTES};
pub use sequence::Sequence;
pub use stream_token::{
    RequestId, StreamKind, StreamToken, StreamTokenError, MAX_REQUEST_INTEGER, MAX_REQUEST_TEXT_CHARS,
    MAX_STREAM_CHARS,
};
