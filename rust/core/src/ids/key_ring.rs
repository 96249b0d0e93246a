//! The keys that sign and verify event IDs: one signs, several verify.

use std::fmt;
use std::hash::{Hash, Hasher};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

use super::epoch::Epoch;
use super::event_id::EventId;
use super::malformed::{Malformed, Part};
use super::scope::Scope;
use super::stream_token::StreamToken;
use super::text;

/// Bytes of a secret.
pub const KEY_BYTES: usize = 32;
/// Characters of a key id.
pub const KEY_ID_CHARS: usize = 6;
/// Characters of a tag: key id and MAC.
pub const TAG_CHARS: usize = KEY_ID_CHARS + MAC_CHARS;
/// The most keys that a ring holds.
pub const MAX_KEYS: usize = 16;

const MAC_BYTES: usize = 12;
const MAC_CHARS: usize = 16;
const VERSION: &[u8] = b"cf1";
/// The length that stands for "absent"; no part of a scope is that long.
const ABSENT: u32 = u32::MAX;

type HmacSha256 = Hmac<Sha256>;

/// Names a key without telling it: derived from the key's bytes, never chosen, so that two
/// processes cannot call two keys by one name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; KEY_ID_CHARS]);

impl KeyId {
    /// Reads six characters of base64url.
    ///
    /// # Errors
    /// On another length or another character.
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        Self::parse_at(text, 0)
    }

    fn parse_at(text: &[u8], start: usize) -> Result<Self, Malformed> {
        let id: [u8; KEY_ID_CHARS] =
            text.try_into().map_err(|_| Malformed::Length { part: Part::Tag, position: start })?;
        match id.iter().position(|&byte| !text::is_base64url(byte)) {
            None => Ok(Self(id)),
            Some(index) => Err(Malformed::Character { part: Part::Tag, position: start + index }),
        }
    }

    /// The six characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // ASCII by construction, so the default is never taken.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyId({self})")
    }
}

/// Key id in clear and 96 bits of HMAC-SHA-256 over version, scope, stream and epoch.
///
/// Equality is for values in tests and caches; a tag that came from outside is judged by
/// [`KeyRing::check`], which compares in constant time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag {
    key_id: KeyId,
    mac: [u8; MAC_BYTES],
}

impl Tag {
    /// Reads a tag as it stands in an ID.
    ///
    /// # Errors
    /// When `text` is not 22 characters of base64url.
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        Self::parse_at(text, 0)
    }

    pub(super) fn parse_at(text: &[u8], start: usize) -> Result<Self, Malformed> {
        if text.is_empty() {
            return Err(Malformed::Empty { part: Part::Tag, position: start });
        }
        if text.len() != TAG_CHARS {
            return Err(Malformed::Length { part: Part::Tag, position: start });
        }
        let (key_id, mac) = text.split_at(KEY_ID_CHARS);
        let key_id = KeyId::parse_at(key_id, start)?;
        let mac = text::decode(mac, Part::Tag, start + KEY_ID_CHARS)?;
        Ok(Self { key_id, mac })
    }

    /// Which key made it.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key_id.0);
        text::append(out, &self.mac);
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.key_id, text::encode(&self.mac))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Tag({self})")
    }
}

/// What the MAC of an ID says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// One of our keys made this tag for this scope, stream and epoch.
    Verified,
    /// We have the key, and it did not make this tag for this scope: forged, or of another scope.
    Forged,
    /// The ring has no key of that id: nothing can be said.
    UnknownKey,
}

/// One secret with its id and dates.
#[derive(Clone)]
pub struct Key {
    secret: [u8; KEY_BYTES],
    mac: HmacSha256,
    fingerprint: [u8; 32],
    id: KeyId,
    /// When it was made, in Unix seconds.
    pub made_s: u64,
    /// When it stopped signing, in Unix seconds; `None` for one that signs.
    pub retired_s: Option<u64>,
}

impl Key {
    /// A key from 32 random bytes.
    #[must_use]
    pub fn new(secret: [u8; KEY_BYTES], made_s: u64, retired_s: Option<u64>) -> Self {
        // HMAC pads a key with zeros to the block of its hash (RFC 2104, section 2).
        let mut block = [0; 64];
        block[..KEY_BYTES].copy_from_slice(&secret);
        let mac = HmacSha256::new(&block.into());
        let mut naming = mac.clone();
        update(&mut naming, Some(VERSION));
        update(&mut naming, Some(b"key-id"));
        let fingerprint: [u8; 32] = naming.finalize().into_bytes().into();
        let mut id = [0; KEY_ID_CHARS];
        id.copy_from_slice(&text::encode(&fingerprint[..9]).as_bytes()[..KEY_ID_CHARS]);
        Self { secret, mac, fingerprint, id: KeyId(id), made_s, retired_s }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The secret, for those who write it to a file or hand it to another process.
    #[must_use]
    pub fn secret(&self) -> &[u8; KEY_BYTES] {
        &self.secret
    }

    fn keyed(&self, label: &[u8], scope: &Scope, stream: &StreamToken, epoch: &Epoch) -> HmacSha256 {
        let mut mac = self.mac.clone();
        update(&mut mac, Some(VERSION));
        update(&mut mac, Some(label));
        for part in [scope.tenant(), scope.principal(), scope.session()] {
            update(&mut mac, part.map(str::as_bytes));
        }
        update(&mut mac, Some(stream.as_bytes()));
        update(&mut mac, Some(&epoch.0));
        mac
    }

    fn sealing(&self, message: &[u8]) -> HmacSha256 {
        let mut mac = self.mac.clone();
        update(&mut mac, Some(VERSION));
        update(&mut mac, Some(b"seal"));
        // Last, so its length need not stand before it.
        mac.update(message);
        mac
    }
}

/// Length first, so that no byte can move from one field into the next.
fn update(mac: &mut HmacSha256, field: Option<&[u8]>) {
    // Every field is bounded far below 2^32 - 1 (scope parts at 4096 bytes), so the length is exact.
    let length = field.map_or(ABSENT, |bytes| u32::try_from(bytes.len()).unwrap_or(ABSENT));
    mac.update(&length.to_be_bytes());
    mac.update(field.unwrap_or_default());
}

/// By the keyed fingerprint, so that no comparison runs over the secret itself.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (self.fingerprint, self.made_s, self.retired_s) == (other.fingerprint, other.made_s, other.retired_s)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.fingerprint, self.made_s, self.retired_s).hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Why keys do not make a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyRingError {
    /// Two keys have one id: the same key twice, or a collision in 36 bits.
    #[error("key {0} is in the ring twice")]
    Duplicate(KeyId),
    /// More keys than a ring holds.
    #[error("a key ring holds at most {MAX_KEYS} keys; drop one that is no longer needed")]
    TooMany,
    /// No key of that id.
    #[error("there is no key {0} in the ring")]
    NoSuchKey(KeyId),
    /// The signing key cannot be dropped.
    #[error("key {0} signs; rotate first, then drop it")]
    Signing(KeyId),
}

/// One key that signs and any number that still verify.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRing {
    signing: Key,
    verifying: Vec<Key>,
    is_ephemeral: bool,
}

impl KeyRing {
    /// A ring of configured keys.
    ///
    /// # Errors
    /// When two keys have one id, or there are more than [`MAX_KEYS`].
    pub fn new(signing: Key, verifying: Vec<Key>) -> Result<Self, KeyRingError> {
        if verifying.len() >= MAX_KEYS {
            return Err(KeyRingError::TooMany);
        }
        let ring = Self { signing, verifying, is_ephemeral: false };
        for (index, key) in ring.keys().enumerate() {
            if ring.keys().skip(index + 1).any(|other| other.id == key.id) {
                return Err(KeyRingError::Duplicate(key.id));
            }
        }
        Ok(ring)
    }

    /// A ring of one random key, for a process that was given none: its cursors die with it.
    #[must_use]
    pub fn ephemeral(secret: [u8; KEY_BYTES], now_s: u64) -> Self {
        Self { signing: Key::new(secret, now_s, None), verifying: Vec::new(), is_ephemeral: true }
    }

    /// Whether the key was drawn at start and is written nowhere.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        self.is_ephemeral
    }

    /// All keys, the signing one first.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.signing).chain(&self.verifying)
    }

    /// The key that signs.
    #[must_use]
    pub fn signing(&self) -> &Key {
        &self.signing
    }

    /// A ring in which a new key signs and every one of these still verifies.
    ///
    /// # Errors
    /// As [`KeyRing::new`].
    pub fn rotated(&self, secret: [u8; KEY_BYTES], now_s: u64) -> Result<Self, KeyRingError> {
        let mut retired = self.signing.clone();
        retired.retired_s = Some(now_s);
        let verifying = std::iter::once(retired).chain(self.verifying.iter().cloned()).collect();
        let mut ring = Self::new(Key::new(secret, now_s, None), verifying)?;
        ring.is_ephemeral = self.is_ephemeral;
        Ok(ring)
    }

    /// A ring without one of the verify keys: cursors that it signed become *unverifiable*.
    ///
    /// # Errors
    /// When there is no such key, or it signs.
    pub fn without(&self, id: KeyId) -> Result<Self, KeyRingError> {
        if self.signing.id == id {
            return Err(KeyRingError::Signing(id));
        }
        let mut ring = self.clone();
        ring.verifying.retain(|key| key.id != id);
        if ring.verifying.len() == self.verifying.len() {
            return Err(KeyRingError::NoSuchKey(id));
        }
        Ok(ring)
    }

    /// The tag of a stream and epoch, by the signing key. Computed once per stream and epoch and cached.
    #[must_use]
    pub fn tag(&self, scope: &Scope, stream: &StreamToken, epoch: &Epoch) -> Tag {
        let whole: [u8; 32] = self.signing.keyed(b"tag", scope, stream, epoch).finalize().into_bytes().into();
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&whole[..MAC_BYTES]);
        Tag { key_id: self.signing.id, mac }
    }

    /// Judges an ID's tag in constant time. Another scope's ID and a forged one are the same answer.
    #[must_use]
    pub fn check(&self, scope: &Scope, id: &EventId) -> Check {
        let Some(key) = self.keys().find(|key| key.id == id.tag.key_id) else {
            return Check::UnknownKey;
        };
        let mac = key.keyed(b"tag", scope, &id.stream, &id.epoch);
        match mac.verify_truncated_left(&id.tag.mac) {
            Ok(()) => Check::Verified,
            Err(_) => Check::Forged,
        }
    }

    /// Seals a message of one process to another that holds the same ring: key id and 256 bits of HMAC.
    ///
    /// The label keeps seals and tags apart, whatever the message is.
    #[must_use]
    pub fn seal(&self, message: &[u8]) -> String {
        let mac: [u8; 32] = self.signing.sealing(message).finalize().into_bytes().into();
        format!("{}{}", self.signing.id, text::encode(&mac))
    }

    /// Judges a seal in constant time; text that is none is forged.
    #[must_use]
    pub fn check_seal(&self, message: &[u8], seal: &[u8]) -> Check {
        let Some((key_id, mac)) = seal.split_at_checked(KEY_ID_CHARS) else {
            return Check::Forged;
        };
        let Ok(mac) = text::decode::<32>(mac, Part::Tag, KEY_ID_CHARS) else {
            return Check::Forged;
        };
        let Some(key) = self.keys().find(|key| key.id.0 == *key_id) else {
            return Check::UnknownKey;
        };
        match key.sealing(message).verify_slice(&mac) {
            Ok(()) => Check::Verified,
            Err(_) => Check::Forged,
        }
    }

    /// First state and seed of an epoch's digest chain.
    pub(super) fn digest_key(&self, scope: &Scope, stream: &StreamToken, epoch: &Epoch) -> (u64, u64) {
        let whole: [u8; 32] =
            self.signing.keyed(b"digest", scope, stream, epoch).finalize().into_bytes().into();
        let word = |from: usize| {
            whole[from..from + 8].iter().rev().fold(0, |word: u64, &byte| (word << 8) | u64::from(byte))
        };
        (word(0), word(8))
    }
}
