//! The codec of `cf1.<stream>.<epoch>.<tag>.<sequence>.<digest>`.

use std::fmt;

use super::digest::Digest;
use super::epoch::{Epoch, EPOCH_CHARS};
use super::key_ring::{Tag, TAG_CHARS};
use super::malformed::{IdError, Malformed, Part};
use super::sequence::Sequence;
use super::stream_token::{StreamToken, MAX_STREAM_CHARS};
use super::text;

/// No ID is longer. The longest that there can be has 118 bytes.
pub const MAX_ID_BYTES: usize = 128;

const PREFIX: &[u8] = b"cf1.";
/// More digits than that name no version of ours; the text is then foreign.
const MAX_VERSION_DIGITS: usize = 9;

/// One event ID, decoded. Reading it proves nothing: see [`super::KeyRing::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    /// The stream.
    pub stream: StreamToken,
    /// The epoch.
    pub epoch: Epoch,
    /// Key id and MAC.
    pub tag: Tag,
    /// The sequence; outside the MAC.
    pub sequence: Sequence,
    /// The digest at that sequence.
    pub digest: Digest,
}

impl EventId {
    /// Reads the one spelling of an ID. Another version is told before any grammar, so that a
    /// release of ours that was rolled back does not take a newer one's cursor for a forged one.
    ///
    /// # Errors
    /// [`IdError::Foreign`], [`IdError::Version`] or [`IdError::Malformed`].
    pub fn parse(id: &[u8]) -> Result<Self, IdError> {
        check_version(id)?;
        if id.len() > MAX_ID_BYTES {
            return Err(Malformed::TooLong { position: MAX_ID_BYTES }.into());
        }
        let mut parts = Parts { id, start: Some(PREFIX.len()) };
        let (stream, start) = parts.take(Part::Stream)?;
        let stream = StreamToken::parse_at(stream, start)?;
        let (epoch, start) = parts.take(Part::Epoch)?;
        let epoch = Epoch::parse_at(epoch, start)?;
        let (tag, start) = parts.take(Part::Tag)?;
        let tag = Tag::parse_at(tag, start)?;
        let (sequence, start) = parts.take(Part::Sequence)?;
        let sequence = Sequence::parse(sequence, start)?;
        let (digest, start) = parts.take(Part::Digest)?;
        if let Some(next) = parts.start {
            return Err(Malformed::ExtraPart { position: next - 1 }.into());
        }
        let digest = Digest::parse_at(digest, start)?;
        Ok(Self { stream, epoch, tag, sequence, digest })
    }

    /// The part of the ID that all events of this stream, epoch and tag share.
    #[must_use]
    pub fn prefix(&self) -> IdPrefix {
        IdPrefix::new(&self.stream, &self.epoch, &self.tag)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cf1.{}.{}.{}.{}.{}", self.stream, self.epoch, self.tag, self.sequence, self.digest)
    }
}

fn check_version(id: &[u8]) -> Result<(), IdError> {
    if id.starts_with(PREFIX) {
        return Ok(());
    }
    let rest = id.strip_prefix(b"cf").ok_or(IdError::Foreign)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let has_leading_zero = digits > 1 && rest[0] == b'0';
    if digits == 0 || digits > MAX_VERSION_DIGITS || has_leading_zero || rest.get(digits) != Some(&b'.') {
        return Err(IdError::Foreign);
    }
    let version = rest[..digits].iter().fold(0, |number: u32, byte| number * 10 + u32::from(byte - b'0'));
    Err(IdError::Version { version })
}

/// Walks the parts between dots; `start` is `None` once the last one was taken.
struct Parts<'a> {
    id: &'a [u8],
    start: Option<usize>,
}

impl<'a> Parts<'a> {
    fn take(&mut self, part: Part) -> Result<(&'a [u8], usize), Malformed> {
        let start = self.start.ok_or(Malformed::Missing { part, position: self.id.len() })?;
        let rest = &self.id[start..];
        let taken = memchr::memchr(b'.', rest).map_or(rest, |dot| &rest[..dot]);
        self.start = if taken.len() < rest.len() { Some(start + taken.len() + 1) } else { None };
        Ok((taken, start))
    }
}

/// `cf1.<stream>.<epoch>.<tag>.`: computed once per stream and epoch, so that an event costs no MAC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdPrefix(Box<[u8]>);

impl IdPrefix {
    /// The prefix of all IDs with this stream, epoch and tag.
    #[must_use]
    pub fn new(stream: &StreamToken, epoch: &Epoch, tag: &Tag) -> Self {
        let mut out = Vec::with_capacity(PREFIX.len() + MAX_STREAM_CHARS + EPOCH_CHARS + TAG_CHARS + 3);
        out.extend_from_slice(PREFIX);
        out.extend_from_slice(stream.as_bytes());
        out.push(b'.');
        text::append(&mut out, &epoch.0);
        out.push(b'.');
        tag.append_to(&mut out);
        out.push(b'.');
        Self(out.into_boxed_slice())
    }

    /// The prefix as bytes, its last dot included.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends one ID to `out`; at most [`MAX_ID_BYTES`].
pub fn write_id(out: &mut Vec<u8>, prefix: &IdPrefix, sequence: Sequence, digest: Digest) {
    out.extend_from_slice(&prefix.0);
    out.extend_from_slice(Position::new(sequence, digest).as_bytes());
}

/// Digits of the largest sequence.
const MAX_DIGITS: usize = 19;
const DIGEST_CHARS: usize = 11;
const POSITION_END: usize = MAX_DIGITS + 1 + DIGEST_CHARS;
const BEFORE_DATA: &[u8; 7] = b"\ndata: ";

/// The part of an ID that differs from event to event, `<sequence>.<digest>`, and what follows it in a
/// frame: everything but the digits stands at a fixed place, so that no append calls for a copy.
pub(crate) struct Position {
    bytes: [u8; POSITION_END + BEFORE_DATA.len()],
    start: usize,
}

/// Writes `number` so that it ends at `MAX_DIGITS`, two digits at a time; gives back where it begins.
#[inline]
fn write_digits(bytes: &mut [u8], mut number: u64) -> usize {
    const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
        2021222324252627282930313233343536373839\
        4041424344454647484950515253545556575859\
        6061626364656667686970717273747576777879\
        8081828384858687888990919293949596979899";
    let mut start = MAX_DIGITS;
    while number > 9 && start > 1 {
        let pair = (number % 100) as usize * 2;
        number /= 100;
        start -= 2;
        bytes[start..start + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if number > 0 || start == MAX_DIGITS {
        start -= 1;
        bytes[start] = b'0' + number as u8;
    }
    start
}

impl Position {
    #[inline]
    pub(crate) fn new(sequence: Sequence, digest: Digest) -> Self {
        let mut bytes = [0; POSITION_END + BEFORE_DATA.len()];
        bytes[MAX_DIGITS] = b'.';
        bytes[MAX_DIGITS + 1..POSITION_END].copy_from_slice(&text::encode_word(digest.0));
        bytes[POSITION_END..].copy_from_slice(BEFORE_DATA);
        let start = write_digits(&mut bytes, sequence.get());
        Self { bytes, start }
    }

    /// `<sequence>.<digest>`.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..POSITION_END]
    }

    /// The same with the end of its line.
    #[inline]
    pub(crate) fn line(&self) -> &[u8] {
        &self.bytes[self.start..=POSITION_END]
    }

    /// The same up to where the data of one line begins.
    #[inline]
    pub(crate) fn before_data(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_written_as_its_parts_are() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::from(u32::MAX), Sequence::MAX.get()] {
            let sequence = Sequence::new(number).unwrap_or(Sequence::MAX);
            let position = Position::new(sequence, Digest(number));
            let text = format!("{number}.{}", Digest(number));
            assert_eq!(position.as_bytes(), text.as_bytes());
            assert_eq!(position.line(), format!("{text}\n").as_bytes());
            assert_eq!(position.before_data(), format!("{text}\ndata: ").as_bytes());
        }
    }
}
