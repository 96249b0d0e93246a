//! The running digest over what was sent on one leg: it detects a lost and rewritten tail.
//!
//! It detects accidents, not adversaries, and is opaque to clients. Definition: `docs/wire.md`, section 4.

use std::fmt;

use twox_hash::XxHash3_64;

use super::epoch::Epoch;
use super::key_ring::KeyRing;
use super::malformed::{Malformed, Part};
use super::scope::Scope;
use super::sequence::Sequence;
use super::stream_token::StreamToken;
use super::text;

/// The 64-bit state of a digest chain after one event; compared only for equality.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub u64);

impl Digest {
    /// Reads a digest as it stands in an ID.
    ///
    /// # Errors
    /// When `text` is not 11 characters of canonical base64url.
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        Self::parse_at(text, 0)
    }

    pub(super) fn parse_at(text: &[u8], start: usize) -> Result<Self, Malformed> {
        text::decode(text, Part::Digest, start).map(|bytes| Self(u64::from_be_bytes(bytes)))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&text::encode(&self.0.to_be_bytes()))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

/// The chain of one stream and epoch. Its key is fixed here, so a rotation in mid-epoch changes nothing.
#[derive(Clone)]
pub struct DigestChain {
    seed: u64,
    hash_of_message: u64,
    current: Digest,
}

impl DigestChain {
    /// The chain of an epoch that is being minted, keyed by the ring's signing key.
    #[must_use]
    pub fn start(ring: &KeyRing, scope: &Scope, stream: &StreamToken, epoch: &Epoch) -> Self {
        let (start, seed) = ring.digest_key(scope, stream, epoch);
        Self { seed, hash_of_message: XxHash3_64::oneshot_with_seed(seed, b""), current: Digest(start) }
    }

    /// The digest after the last event; before the first one, the one that the echo with 0 carries.
    #[must_use]
    pub fn current(&self) -> Digest {
        self.current
    }

    /// Moves on by one event as it is sent: `data` is the value with its lines joined by LF.
    ///
    /// An absent event type, an empty one and `message` hash alike, because every reader takes them
    /// for the same thing (WHATWG HTML 9.2.6): a re-framing that drops the line rewrites no history.
    pub fn append(&mut self, sequence: Sequence, event: &[u8], data: &[u8]) -> Digest {
        let event = match event {
            b"" | b"message" => self.hash_of_message,
            other => XxHash3_64::oneshot_with_seed(self.seed, other),
        };
        let data = XxHash3_64::oneshot_with_seed(self.seed, data);
        // Four fields of fixed width: no two series of events share a frame.
        let mut frame = [0; 32];
        frame[..8].copy_from_slice(&self.current.0.to_le_bytes());
        frame[8..16].copy_from_slice(&sequence.get().to_le_bytes());
        frame[16..24].copy_from_slice(&event.to_le_bytes());
        frame[24..].copy_from_slice(&data.to_le_bytes());
        self.current = Digest(XxHash3_64::oneshot_with_seed(self.seed, &frame));
        self.current
    }
}

/// The seed is derived from a secret, so it is not shown.
impl fmt::Debug for DigestChain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DigestChain").field("current", &self.current).finish_non_exhaustive()
    }
}
