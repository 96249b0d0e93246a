//! The running digest over what was sent on one leg: it detects a lost and rewritten tail.
//!
//! It detects accidents, not adversaries, and is opaque to clients. Definition: `docs/wire.md`, section 4.

use std::fmt;
use std::sync::LazyLock;

use twox_hash::{xxhash3_64::Hasher, XxHash3_64};

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
        self.link(sequence, event, XxHash3_64::oneshot_with_seed(self.seed, data))
    }

    /// As [`DigestChain::append`] for a message, with what `secret` remembers of the chain that it served last.
    #[inline]
    pub fn append_message(&mut self, secret: &mut LongSecret, sequence: Sequence, data: &[u8]) -> Digest {
        let data = secret.hash(self.seed, data);
        self.link(sequence, self.hash_of_message, data)
    }

    #[inline]
    fn link(&mut self, sequence: Sequence, event: u64, data: u64) -> Digest {
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

/// What XXH3 derives from a seed to hash anything longer than 240 bytes with: 192 bytes, which take a quarter
/// of the time that an event of 500 bytes takes, and are the same for all events of a chain.
pub struct LongSecret {
    seed: u64,
    secret: [u8; SECRET_BYTES],
}

const SECRET_BYTES: usize = 192;

impl LongSecret {
    #[inline]
    fn hash(&mut self, seed: u64, data: &[u8]) -> u64 {
        if self.seed != seed {
            *self = Self::of(seed);
        }
        // The secret is never too short for it; if it were, the long way gives the same.
        Hasher::oneshot_with_seed_and_secret(seed, &self.secret, data)
            .unwrap_or_else(|_| XxHash3_64::oneshot_with_seed(seed, data))
    }

    /// As `XXH3_generateSecret_fromSeed` does: the seed is added to one half of each 16 bytes, and taken off the other.
    fn of(seed: u64) -> Self {
        let mut secret = Self::default().secret;
        for (place, word) in secret.chunks_exact_mut(8).enumerate() {
            let mut plain = [0; 8];
            plain.copy_from_slice(word);
            let plain = u64::from_le_bytes(plain);
            let mixed = if place % 2 == 0 { plain.wrapping_add(seed) } else { plain.wrapping_sub(seed) };
            word.copy_from_slice(&mixed.to_le_bytes());
        }
        Self { seed, secret }
    }
}

/// That of the seed 0.
impl Default for LongSecret {
    fn default() -> Self {
        static PLAIN: LazyLock<[u8; SECRET_BYTES]> = LazyLock::new(|| {
            let mut plain = [0; SECRET_BYTES];
            for (byte, of_hasher) in plain.iter_mut().zip(Hasher::new().into_secret()) {
                *byte = of_hasher;
            }
            plain
        });
        Self { seed: 0, secret: *PLAIN }
    }
}

/// Derived from a secret, so not shown.
impl fmt::Debug for LongSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LongSecret").finish_non_exhaustive()
    }
}

/// The seed is derived from a secret, so it is not shown.
impl fmt::Debug for DigestChain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DigestChain").field("current", &self.current).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_secret_hashes_as_one_that_is_derived_anew() {
        let bytes: Vec<u8> = (0..2_000_u32).map(|number| (number * 7 % 251) as u8).collect();
        let mut secret = LongSecret::default();
        for seed in [0, 1, u64::MAX, 0x9E37_79B9_7F4A_7C15, 1, 0] {
            for length in [0, 1, 16, 17, 128, 129, 239, 240, 241, 256, 500, 1024, 1025, 2_000] {
                let data = &bytes[..length];
                assert_eq!(secret.hash(seed, data), XxHash3_64::oneshot_with_seed(seed, data), "{length}");
            }
        }
    }
}
