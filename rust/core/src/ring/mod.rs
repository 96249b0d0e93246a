//! The replay window of one stream: dense sequences, encoded once, looked up by arithmetic.
//!
//! The part of a frame's ID that all events share is not stored but written in front of each frame
//! as it is read.  A ring owns no memory of its own beyond its slots: bytes are pages of a [`Slabs`].

mod slabs;
mod slot;
mod stored;

use std::collections::VecDeque;

use crate::ids::{Digest, Position, Sequence};

use slabs::Page;
pub use slabs::{Slabs, PAGE_BYTES};
pub use slot::Mark;
use slot::Slot;
pub use stored::{Stored, StoredEvent};

const PAGE: u32 = PAGE_BYTES as u32;
/// The longest stored frame: positions wrap at 2^32 and must stay comparable.
pub const MAX_FRAME_BYTES: usize = 1 << 30;

const BEFORE_DATA: &[u8; 7] = b"\ndata: ";
const AFTER_DATA: &[u8; 2] = b"\n\n";

/// An event that left the window from the old end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// Its sequence.
    pub sequence: u64,
    /// Its mark.
    pub mark: Mark,
}

/// The window of one stream.
///
/// What is stored of an event is everything behind the shared part of its ID:
/// `<sequence>.<digest>` LF, an `event` line if it has a type, its `data` lines, and the blank line.
pub struct Ring {
    /// The oldest sequence kept; one more than the last when nothing is.  Only rises.
    first: u64,
    /// The digest at `first - 1`.
    before: Digest,
    slots: VecDeque<Slot>,
    pages: VecDeque<Page>,
    /// Position (wrapping) of the first byte of the oldest event; it is on the first page, always.
    start: u32,
    /// Position (wrapping) behind the newest event; that of `start` when there is none.
    end: u32,
}

/// How much one read hands out at most, but one event at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Events.
    pub events: u64,
    /// Bytes of their frames.
    pub bytes: usize,
}

impl Most {
    /// As many bytes, whatever the number of events.
    #[must_use]
    pub const fn bytes(bytes: usize) -> Self {
        Self { events: u64::MAX, bytes }
    }

    #[inline]
    pub(crate) fn is_passed_by(self, events: u64, bytes: usize) -> bool {
        events > self.events || bytes > self.bytes
    }
}

/// Receives the bytes of frames.
pub trait Out {
    /// Appends `bytes`.
    fn put(&mut self, bytes: &[u8]);
}

impl Out for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Receives frames.
pub trait Frames {
    /// So many will come.
    fn expect(&mut self, _frames: usize) {}

    /// Takes one frame: `lead`, and what is stored behind it.
    fn frame(&mut self, lead: &[u8], stored: Stored<'_>);
}

impl<O: Out> Frames for O {
    #[inline]
    fn frame(&mut self, lead: &[u8], stored: Stored<'_>) {
        self.put(lead);
        stored.put(self);
    }
}

impl Ring {
    /// An empty window of a new epoch; `start` is the digest before the first event.
    #[must_use]
    pub fn new(start: Digest) -> Self {
        Self { first: 1, before: start, slots: VecDeque::new(), pages: VecDeque::new(), start: 0, end: 0 }
    }

    /// The oldest sequence that can be read; `last_sequence() + 1` when there is none.
    #[inline]
    #[must_use]
    pub fn first_sequence(&self) -> u64 {
        self.first
    }

    /// The newest sequence that was ever appended; 0 before the first.
    #[inline]
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.first + self.slots.len() as u64 - 1
    }

    /// Events in the window.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the window holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Stored bytes of the events in the window.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.end.wrapping_sub(self.start) as usize
    }

    /// Pages that the window holds.
    #[inline]
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Pages that it would hold after an append of `length` bytes.
    #[inline]
    #[must_use]
    pub fn pages_after(&self, length: usize) -> usize {
        (self.end.wrapping_sub(self.origin()) as usize + length).div_ceil(PAGE_BYTES)
    }

    /// When the oldest event was stored, in the store's seconds.
    #[inline]
    #[must_use]
    pub fn oldest_s(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.stored_s())
    }

    /// The mark of the oldest event.
    #[inline]
    #[must_use]
    pub fn oldest_mark(&self) -> Option<Mark> {
        self.slots.front().map(|slot| slot.mark())
    }

    /// The mark of an event in the window.
    #[must_use]
    pub fn mark(&self, sequence: u64) -> Option<Mark> {
        self.slots.get(self.place(sequence)?).map(|slot| slot.mark())
    }

    /// Appends the event made of `pieces`, at most [`MAX_FRAME_BYTES`] together, and returns its sequence;
    /// `digest` is the one after it.
    pub fn append(
        &mut self,
        slabs: &mut Slabs,
        pieces: &[&[u8]],
        digest: Digest,
        mark: Mark,
        stored_s: u64,
    ) -> u64 {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        let inside = self.reserve(slabs, length);
        self.write(slabs, inside, length, pieces);
        self.push(length, digest, mark, false, stored_s)
    }

    /// As [`Ring::append`] for what nearly every event is: one line of data, and no type.
    #[inline]
    pub(crate) fn append_line(
        &mut self,
        slabs: &mut Slabs,
        position: Position,
        data: &[u8],
        mark: Mark,
        stored_s: u64,
    ) -> u64 {
        let length = position.len() + BEFORE_DATA.len() + data.len() + AFTER_DATA.len();
        let inside = self.reserve(slabs, length);
        match self.room(slabs, inside, length) {
            Some(room) => {
                if let Some((before, room)) = position.write(room).and_then(<[u8]>::split_first_chunk_mut) {
                    *before = *BEFORE_DATA;
                    if let Some((line, after)) = room.split_at_mut_checked(data.len()) {
                        line.copy_from_slice(data);
                        after.copy_from_slice(AFTER_DATA);
                    }
                }
            }
            None => {
                let mut front = [0; Position::MAX_CHARS];
                position.write(&mut front);
                let pieces = [&front[..position.len()], BEFORE_DATA, data, AFTER_DATA];
                self.write(slabs, inside, length, &pieces);
            }
        }
        self.push(length, position.digest, mark, true, stored_s)
    }

    /// Takes the pages that `length` more bytes need; where those bytes begin, counted from the origin.
    #[inline]
    fn reserve(&mut self, slabs: &mut Slabs, length: usize) -> usize {
        let inside = self.end.wrapping_sub(self.origin()) as usize;
        while self.pages.len() * PAGE_BYTES < inside + length {
            self.pages.push_back(slabs.take());
        }
        inside
    }

    #[inline]
    fn push(&mut self, length: usize, digest: Digest, mark: Mark, is_line: bool, stored_s: u64) -> u64 {
        self.end = self.end.wrapping_add(length as u32);
        if self.slots.len() == self.slots.capacity() {
            // By quarters, not by doubling: most streams stay short, and there are many.
            self.slots.reserve_exact((self.slots.len() / 4).max(2));
        }
        self.slots.push_back(Slot::new(digest, self.end, mark, is_line, stored_s));
        self.last_sequence()
    }

    /// Gives the next sequence to an event that is not kept; everything before it leaves the window.
    pub fn skip(&mut self, slabs: &mut Slabs, digest: Digest) -> u64 {
        let sequence = self.last_sequence() + 1;
        self.forget(slabs, digest);
        self.first = sequence + 1;
        sequence
    }

    /// Drops the oldest event.
    #[inline(always)]
    pub fn trim_oldest(&mut self, slabs: &mut Slabs) -> Option<Trimmed> {
        let slot = *self.slots.front()?;
        let sequence = self.first;
        self.before = slot.digest;
        self.slots.pop_front();
        self.first += 1;
        let mut origin = self.origin();
        self.start = slot.end;
        if self.slots.is_empty() {
            self.release(slabs);
        } else {
            while self.start.wrapping_sub(origin) >= PAGE {
                if let Some(page) = self.pages.pop_front() {
                    slabs.give(page);
                }
                origin = origin.wrapping_add(PAGE);
            }
        }
        Some(Trimmed { sequence, mark: slot.mark() })
    }

    /// Drops every event and gives all memory back; `digest` is the one at the last sequence.
    pub fn forget(&mut self, slabs: &mut Slabs, digest: Digest) {
        self.first = self.last_sequence() + 1;
        self.before = digest;
        self.slots = VecDeque::new();
        self.release(slabs);
        self.pages = VecDeque::new();
    }

    /// The digest after `sequence`, for `first - 1` and every event of the window.
    #[must_use]
    pub fn digest_at(&self, sequence: u64) -> Option<Digest> {
        if sequence.checked_add(1)? == self.first {
            return Some(self.before);
        }
        self.slots.get(self.place(sequence)?).map(|slot| slot.digest)
    }

    /// Bytes stored of one event.
    #[inline]
    #[must_use]
    pub fn length_of(&self, sequence: u64) -> Option<usize> {
        let (start, end) = self.span(self.place(sequence)?);
        Some(end.wrapping_sub(start) as usize)
    }

    /// What is stored of one event: its frame without the shared part of the ID.
    #[must_use]
    pub fn stored<'a>(&'a self, slabs: &'a Slabs, sequence: u64) -> Option<Stored<'a>> {
        let place = self.place(sequence)?;
        Some(Stored::on_pages(self, slabs, sequence, &self.slots[place], self.span(place)))
    }

    /// The last of the events after `sequence` that fit into `most` when `lead` bytes go in front of each,
    /// but at least one if there is one; and the bytes they take.
    #[must_use]
    pub fn measure_after(&self, sequence: u64, lead: usize, most: Most) -> (u64, usize) {
        let Some(mut place) = self.place(sequence + 1) else { return (sequence, 0) };
        let mut bytes = 0;
        let mut last = sequence;
        let (mut start, _) = self.span(place);
        while let Some(slot) = self.slots.get(place) {
            let next = bytes + lead + slot.end.wrapping_sub(start) as usize;
            if bytes > 0 && most.is_passed_by(last + 1 - sequence, next) {
                break;
            }
            bytes = next;
            last += 1;
            place += 1;
            start = slot.end;
        }
        (last, bytes)
    }

    /// Hands out the frames `from ..= to`, each with `lead` in front.
    pub fn put_frames(&self, slabs: &Slabs, from: u64, to: u64, lead: &[u8], out: &mut impl Frames) {
        let Some(place) = self.place(from) else { return };
        let (mut start, _) = self.span(place);
        for (sequence, slot) in (from..=to).zip(self.slots.range(place..)) {
            out.frame(lead, Stored::on_pages(self, slabs, sequence, slot, (start, slot.end)));
            start = slot.end;
        }
    }

    /// Writes `pieces`, `length` bytes together, at `inside` bytes from the origin; the pages are there.
    fn write(&self, slabs: &mut Slabs, inside: usize, length: usize, pieces: &[&[u8]]) {
        if let Some(mut room) = self.room(slabs, inside, length) {
            for piece in pieces {
                let (front, rest) = room.split_at_mut(piece.len());
                front.copy_from_slice(piece);
                room = rest;
            }
            return;
        }
        let mut inside = inside;
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let Some(&page) = self.pages.get(inside / PAGE_BYTES) else { return };
                let at = inside % PAGE_BYTES;
                let count = rest.len().min(PAGE_BYTES - at);
                slabs.bytes_mut(page)[at..at + count].copy_from_slice(&rest[..count]);
                inside += count;
                rest = &rest[count..];
            }
        }
    }

    /// The memory of a span, if its pages follow each other there.
    #[inline]
    fn room<'a>(&self, slabs: &'a mut Slabs, inside: usize, length: usize) -> Option<&'a mut [u8]> {
        slabs.run_mut(self.run(inside, length)?, inside % PAGE_BYTES, length)
    }

    /// The first page of a span whose pages follow each other in memory: nearly all do.
    #[inline]
    fn run(&self, inside: usize, length: usize) -> Option<Page> {
        let first = inside / PAGE_BYTES;
        let page = *self.pages.get(first)?;
        let mut before = page;
        for place in first + 1..(inside + length).div_ceil(PAGE_BYTES) {
            let next = *self.pages.get(place)?;
            if !before.is_before(next) {
                return None;
            }
            before = next;
        }
        Some(page)
    }

    /// The bytes of a span that lies in one piece.
    #[inline]
    fn whole_span<'a>(&self, slabs: &'a Slabs, start: u32, end: u32) -> Option<&'a [u8]> {
        let inside = start.wrapping_sub(self.origin());
        let length = end.wrapping_sub(start) as usize;
        let page = self.run(inside as usize, length)?;
        Some(slabs.run_of(page, (inside % PAGE) as usize, length))
    }

    /// Writes the bytes of a span piece by piece.
    fn put_spread(&self, slabs: &Slabs, start: u32, end: u32, out: &mut impl Out) {
        let mut inside = start.wrapping_sub(self.origin());
        let stop = end.wrapping_sub(self.origin());
        while inside < stop {
            let at = inside % PAGE;
            let count = (PAGE - at).min(stop - inside);
            let Some(&page) = self.pages.get((inside / PAGE) as usize) else { return };
            out.put(&slabs.bytes(page)[at as usize..(at + count) as usize]);
            inside += count;
        }
    }

    /// Position (wrapping) of the first byte of `pages[0]`.
    #[inline]
    fn origin(&self) -> u32 {
        self.start & !(PAGE - 1)
    }

    fn release(&mut self, slabs: &mut Slabs) {
        for page in self.pages.drain(..) {
            slabs.give(page);
        }
        (self.start, self.end) = (0, 0);
    }

    #[inline]
    fn place(&self, sequence: u64) -> Option<usize> {
        let place = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        (place < self.slots.len()).then_some(place)
    }

    #[inline]
    fn span(&self, place: usize) -> (u32, u32) {
        let start = match place.checked_sub(1) {
            Some(previous) => self.slots[previous].end,
            None => self.start,
        };
        (start, self.slots[place].end)
    }
}

/// Whether another sequence can be given after `sequence`.
#[must_use]
pub(crate) fn has_next(sequence: u64) -> bool {
    Sequence::new(sequence).is_some_and(|sequence| sequence.next().is_some())
}
