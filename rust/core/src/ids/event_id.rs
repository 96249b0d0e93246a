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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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

    /// What [`IdPrefix::as_bytes`] gave of another one.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// The prefix as bytes, its last dot included.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends one ID to `out`; at most [`MAX_ID_BYTES`].
#[inline]
pub fn write_id(out: &mut Vec<u8>, prefix: &IdPrefix, sequence: Sequence, digest: Digest) {
    let start = out.len();
    let position = Position::new(sequence, digest);
    // More than is needed, so that its length is known beforehand; it is written where it stays.
    out.resize(start + MAX_ID_BYTES, 0);
    if let Some((front, back)) = out[start..].split_at_mut_checked(prefix.0.len()) {
        front.copy_from_slice(&prefix.0);
        position.write(back);
    }
    out.truncate(start + prefix.0.len() + position.len());
}

const DIGEST_CHARS: usize = 11;

/// Numbers below have at most eight digits, and are turned into them without a loop.
const SMALL: u64 = 100_000_000;

/// The part of an ID that differs from event to event: `<sequence>.<digest>`.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    pub(crate) sequence: Sequence,
    pub(crate) digest: Digest,
    /// The digits of a small sequence, and zeros behind them.
    small: [u8; 8],
    digits: usize,
}

impl Position {
    /// The longest one.
    pub(crate) const MAX_CHARS: usize = 19 + 1 + DIGEST_CHARS;

    #[inline]
    pub(crate) fn new(sequence: Sequence, digest: Digest) -> Self {
        let number = sequence.get();
        let (small, digits) = if number < SMALL {
            small_digits(number)
        } else {
            ([0; 8], number.checked_ilog10().map_or(1, |power| power as usize + 1))
        };
        Self { sequence, digest, small, digits }
    }

    /// How many characters it has.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.digits + 1 + DIGEST_CHARS
    }

    /// Writes it to the front of `room`, where it stays, and gives back what is behind it.
    #[inline]
    pub(crate) fn write<'a>(&self, room: &'a mut [u8]) -> Option<&'a mut [u8]> {
        if self.sequence.get() < SMALL {
            // The digest covers the zeros behind the digits.
            *room.first_chunk_mut()? = self.small;
        } else {
            let mut number = self.sequence.get();
            for digit in room.get_mut(..self.digits)?.iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        let (dot, room) = room.get_mut(self.digits..)?.split_first_mut()?;
        *dot = b'.';
        let (eight, three) = text::encode_word(self.digest.0);
        let (front, room) = room.split_first_chunk_mut()?;
        *front = eight;
        let (back, room) = room.split_first_chunk_mut()?;
        *back = three;
        Some(room)
    }
}

/// The digits of a number below `SMALL`, in parallel within one word, and how many there are.
#[inline]
fn small_digits(number: u64) -> ([u8; 8], usize) {
    // Two numbers of four digits, then four of two, then eight of one, the first digit in the lowest byte.
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = (fours.wrapping_mul(10_486) >> 20) & 0x0000_007F_0000_007F;
    let twos = hundreds | (fours.wrapping_sub(hundreds.wrapping_mul(100)) << 16);
    let tens = (twos.wrapping_mul(103) >> 10) & 0x000F_000F_000F_000F;
    let ones = tens | (twos.wrapping_sub(tens.wrapping_mul(10)) << 8);
    // Seven leading zeros at most: 0 has one digit.
    let zeros = (ones.trailing_zeros() / 8).min(7);
    let text = (ones | 0x3030_3030_3030_3030) >> (8 * zeros);
    (text.to_le_bytes(), 8 - zeros as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_written_as_its_parts_are() {
        let round =
            (0..19).flat_map(|power| [10_u64.pow(power) - 1, 10_u64.pow(power), 10_u64.pow(power) + 7]);
        for number in (0..20_000).chain(round).chain([99_999_999, 12_345_678, Sequence::MAX.get()]) {
            let sequence = Sequence::new(number).unwrap_or(Sequence::MAX);
            let position = Position::new(sequence, Digest(number));
            let text = format!("{number}.{}", Digest(number));
            let mut room = [b'x'; Position::MAX_CHARS + 1];
            let left = position.write(&mut room).map_or(0, |rest| rest.len());
            assert_eq!(room.len() - left, text.len());
            assert_eq!(position.len(), text.len());
            assert_eq!(&room[..text.len()], text.as_bytes());
            assert!(room[text.len()..].iter().all(|&byte| byte == b'x'));
        }
    }
}
