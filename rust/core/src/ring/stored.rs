//! What a ring stores of one event, read back: as bytes for a frame, or as its parts.

use std::borrow::Cow;

use memchr::memchr;

use crate::ids::{Digest, Position, Sequence};

use super::slot::Slot;
use super::{Out, Ring, Slabs, AFTER_DATA, BEFORE_DATA};

/// What is stored of one event: its frame without the shared part of the ID.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    /// Its sequence.
    pub sequence: u64,
    /// The digest after it.
    pub digest: Digest,
    /// It was stored as one line of data and nothing else.
    is_line: bool,
    place: Place<'a>,
}

#[derive(Clone, Copy)]
enum Place<'a> {
    /// In one piece, as nearly all are.
    Whole(&'a [u8]),
    /// On pages that do not follow each other.
    Spread { ring: &'a Ring, slabs: &'a Slabs, start: u32, end: u32 },
}

impl<'a> Stored<'a> {
    /// An event that was copied out of its ring.
    #[must_use]
    pub fn copied(sequence: u64, digest: Digest, bytes: &'a [u8]) -> Self {
        Self { sequence, digest, is_line: false, place: Place::Whole(bytes) }
    }

    #[inline]
    pub(super) fn on_pages(
        ring: &'a Ring,
        slabs: &'a Slabs,
        sequence: u64,
        slot: &Slot,
        (start, end): (u32, u32),
    ) -> Self {
        let place = match ring.whole_span(slabs, start, end) {
            Some(bytes) => Place::Whole(bytes),
            None => Place::Spread { ring, slabs, start, end },
        };
        Self { sequence, digest: slot.digest, is_line: slot.is_line(), place }
    }

    /// Writes the bytes.
    #[inline]
    pub fn put(self, out: &mut impl Out) {
        match self.place {
            Place::Whole(bytes) => out.put(bytes),
            Place::Spread { ring, slabs, start, end } => ring.put_spread(slabs, start, end, out),
        }
    }

    /// The event; `scratch` holds its bytes where they lie in several pieces.
    #[inline]
    pub fn event<'b>(self, scratch: &'b mut Vec<u8>) -> StoredEvent<'b>
    where
        'a: 'b,
    {
        let bytes = match self.place {
            Place::Whole(bytes) => bytes,
            Place::Spread { .. } => {
                scratch.clear();
                self.put(scratch);
                scratch
            }
        };
        let line = if self.is_line { self.line_in(bytes) } else { None };
        line.map_or_else(
            || StoredEvent::of(bytes),
            |data| StoredEvent { event: b"", data: Cow::Borrowed(data) },
        )
    }

    /// The data of an event that was stored as one line.
    #[inline]
    fn line_in(self, bytes: &[u8]) -> Option<&[u8]> {
        let position = Position::new(Sequence::new(self.sequence)?, self.digest);
        bytes.get(position.len() + BEFORE_DATA.len()..bytes.len().checked_sub(AFTER_DATA.len())?)
    }
}

/// The parts of a stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent<'a> {
    /// The event type; empty for `message`.
    pub event: &'a [u8],
    /// The data, its lines joined by LF.
    pub data: Cow<'a, [u8]>,
}

impl<'a> StoredEvent<'a> {
    /// Takes apart what a ring stored of an event.
    #[inline]
    #[must_use]
    pub fn of(stored: &'a [u8]) -> Self {
        // The rest of the ID comes first.
        let (_, mut rest) = line_of(stored);
        let mut event: &[u8] = b"";
        if let Some(named) = rest.strip_prefix(b"event: ") {
            (event, rest) = line_of(named);
        }
        // One line of data, and the blank one: what nearly every event is.
        let only = rest.strip_prefix(b"data: ").and_then(|rest| rest.strip_suffix(b"\n\n"));
        let data = match only.filter(|line| memchr(b'\n', line).is_none()) {
            Some(line) => Cow::Borrowed(line),
            None => Cow::Owned(joined(rest)),
        };
        Self { event, data }
    }
}

/// The first line, and what follows it.
#[inline]
fn line_of(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr(b'\n', bytes).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// The values of all `data` lines.
#[cold]
fn joined(lines: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(lines.len());
    let values = lines.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    for (index, value) in values.enumerate() {
        if index > 0 {
            data.push(b'\n');
        }
        data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_taken_apart_as_it_was_put_together() {
        for (stored, event, data) in [
            (&b"7.abcdefghijk\ndata: {}\n\n"[..], &b""[..], &b"{}"[..]),
            (b"7.abcdefghijk\nevent: other\ndata: {}\n\n", b"other", b"{}"),
            (b"7.abcdefghijk\ndata: a\ndata:\ndata:  b\n\n", b"", b"a\n\n b"),
            (b"7.abcdefghijk\nevent: e\ndata: a\ndata: b\n\n", b"e", b"a\nb"),
            (b"7.abcdefghijk\ndata: \n\n", b"", b""),
            (b"7.abcdefghijk\ndata: \ndata: x\n\n", b"", b"\nx"),
            (b"7.abcdefghijk\ndata: data: x\n\n", b"", b"data: x"),
        ] {
            let found = StoredEvent::of(stored);
            assert_eq!((found.event, &*found.data), (event, data));
        }
    }
}
