//! Readers: they pull by sequence, wait for "grown", and end with a type.

use crate::ids::{write_id, IdPrefix, Scope, Sequence, StreamToken, MAX_ID_BYTES};
use crate::ring::{Frames, Mark, Most, Out, Slabs, Stored};

use super::arena::Ticket;
use super::stream::Stream;
use super::{EndWhy, Store, StoreError};

/// The largest piece that a read hands out: every page of a larger one would be new to the caches.
pub const MAX_PIECE_BYTES: usize = 256 << 10;
/// Older standalone connections of unaware clients that stay open for a while.
const MAX_PARKED: usize = 2;

/// What a reader is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Every event after its position.
    All,
    /// Answers, and requests of the server that came after it was attached: the rest is lost to it.
    Answers {
        /// Requests after this sequence.
        requests_after: u64,
    },
    /// Nothing: a newer connection reads, and closing this one would set off a fight between the two.
    Parked,
}

/// Why a reader gets nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReaderEnd {
    /// The stream ended and everything of it was read.
    Ended(EndWhy),
    /// A newer reader of the same stream took over.
    TakenOver,
    /// The window moved past this reader; the sequences from `first` to `last` are lost to it.
    TooSlow {
        /// The first one that it did not get.
        first: u64,
        /// The last one that left the window.
        last: u64,
    },
    /// The reader was closed by its owner.
    Closed,
}

pub(super) struct Reader<W> {
    /// Its stream; meaningless once it has an end.
    pub(super) stream: u32,
    pub(super) mode: Mode,
    pub(super) is_aware: bool,
    /// The last sequence that it was given.
    pub(super) position: u64,
    /// Bytes that it was given of a later event, which is larger than a piece, and that event.
    pub(super) given: usize,
    pub(super) given_of: u64,
    /// Its stream is known to be calm or not by it, until it is given something.
    pub(super) is_noted: bool,
    pub(super) end: Option<ReaderEnd>,
    pub(super) waiter: Option<W>,
}

/// Where a reader starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) mode: Mode,
    pub(crate) position: u64,
    pub(crate) is_aware: bool,
}

/// What one read will hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    from: u64,
    to: u64,
    /// The one event that a part of is handed out; 0 where it is whole ones.
    part_of: u64,
    /// Bytes of it that were handed out before.
    given: usize,
    /// How many bytes it is.
    pub bytes: usize,
}

/// What became of a request to be woken.
#[derive(Debug)]
pub enum Armed<W> {
    /// The waker is kept, and handed out at the next append or end.
    Waiting,
    /// There is something to read already, or the reader has ended: the waker comes back.
    Ready(W),
    /// Somebody waits on this reader already: the waker comes back.
    Busy(W),
}

impl<W> Store<W> {
    /// Attaches a reader to a stream without a cursor: the connection that the stream was opened for,
    /// or an adopter's.  It starts after `after`; what of that has left the window ends it at its first read.
    ///
    /// # Errors
    /// [`StoreError::UnknownStream`], or [`StoreError::AheadOfEnd`]: such a reader would pass over events.
    pub fn attach(
        &mut self,
        scope: &Scope,
        token: &StreamToken,
        after: u64,
        is_aware: bool,
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<Ticket, StoreError> {
        self.tick(now_ms, woken);
        let index = self.find(scope, token)?;
        self.trim_old(index);
        if after > self.window(index).1 {
            return Err(StoreError::AheadOfEnd);
        }
        let start = Start { mode: Mode::All, position: after, is_aware };
        Ok(self.attach_at(index, start, woken))
    }

    /// Attaches a reader and lets it take over from the one before, in one step.
    pub(crate) fn attach_at(&mut self, index: u32, start: Start, woken: &mut Vec<W>) -> Ticket {
        let older = self.streams.get(index).and_then(|stream| stream.reader);
        if let Some(older) = older {
            self.displace(index, older, woken);
        }
        let Start { mode, position, is_aware } = start;
        let reader = Reader {
            stream: index,
            mode,
            is_aware,
            position,
            given: 0,
            given_of: 0,
            is_noted: false,
            end: None,
            waiter: None,
        };
        let ticket = self.readers.insert(reader);
        if let Some(stream) = self.streams.get_mut(index) {
            stream.reader = Some(ticket);
            stream.touch(self.now_ms);
        }
        ticket
    }

    /// How many bytes one read would hand out; at most `max_bytes`, but one event at least, unless it is
    /// larger than [`MAX_PIECE_BYTES`] and is handed out in several pieces.
    ///
    /// # Errors
    /// The reader's end, for good.
    pub fn plan(
        &mut self,
        reader: Ticket,
        max_bytes: usize,
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<Plan, ReaderEnd> {
        self.tick(now_ms, woken);
        self.plan_at_most(reader, Most::bytes(max_bytes), MAX_PIECE_BYTES)
    }

    /// As `plan`; only an event above `largest` bytes is handed out in several pieces.
    fn plan_at_most(&mut self, reader: Ticket, most: Most, largest: usize) -> Result<Plan, ReaderEnd> {
        let (index, mode, position, given) = match self.reader(reader) {
            Some(Reader { end: Some(end), .. }) => return Err(*end),
            Some(reader) => (reader.stream, reader.mode, reader.position, (reader.given, reader.given_of)),
            None => return Err(ReaderEnd::Closed),
        };
        self.trim_old(index);
        let Some(stream) = self.streams.get(index) else { return Err(ReaderEnd::Ended(EndWhy::Session)) };
        let lead = LEAD.len() + stream.prefix.as_bytes().len();
        let next = match mode {
            Mode::Parked => None,
            Mode::All => stream.ring.length_of(position + 1).map(|length| (position + 1, length)),
            Mode::Answers { requests_after } => next_answer(stream, position, requests_after),
        };
        let lost = match mode {
            Mode::All if position + 1 < stream.ring.first_sequence() => {
                Some((position + 1, stream.ring.first_sequence() - 1))
            }
            // What a part was handed out of has left the window.
            _ if given.0 > 0 && next.is_none_or(|(sequence, _)| sequence != given.1) => {
                Some((given.1, given.1))
            }
            _ => None,
        };
        if let Some((first, last)) = lost {
            self.counts.too_slow += 1;
            return Err(self.end_reader(reader, ReaderEnd::TooSlow { first, last }));
        }
        let plan = match next {
            None => {
                // A reader of answers moves over what it is not given.
                let last = stream.ring.last_sequence();
                let to = if matches!(mode, Mode::Answers { .. }) { last.max(position) } else { position };
                Plan { from: position, to, part_of: 0, given: 0, bytes: 0 }
            }
            Some((sequence, length)) if lead + length > largest => {
                let left = lead + length - given.0;
                let bytes = left.min(most.bytes.clamp(1, largest));
                let to = if bytes == left { sequence } else { position };
                Plan { from: position, to, part_of: sequence, given: given.0, bytes }
            }
            Some(_) => {
                let (to, bytes) = match mode {
                    Mode::Answers { requests_after } => {
                        measure_answers(stream, position, requests_after, lead, most)
                    }
                    Mode::All | Mode::Parked => stream.ring.measure_after(position, lead, most),
                };
                Plan { from: position, to, part_of: 0, given: 0, bytes }
            }
        };
        if plan.bytes == 0 && mode != Mode::Parked {
            if let Some(why) = stream.end_why() {
                return Err(self.end_reader(reader, ReaderEnd::Ended(why)));
            }
        }
        Ok(plan)
    }

    /// Hands out what was planned; false if the window has moved meanwhile, and `out` is then of no use.
    pub fn fill(&mut self, reader: Ticket, plan: &Plan, out: &mut impl Out) -> bool {
        if plan.part_of == 0 {
            return self.fill_frames(reader, plan, out);
        }
        let mut part = Part { skip: plan.given, take: plan.bytes, out };
        let Some((index, _)) = self.planned(reader, plan) else { return false };
        let Some(stream) = self.streams.get(index) else { return false };
        put_one(stream, &self.slabs, plan.part_of, &mut part);
        if part.take > 0 {
            return false;
        }
        self.note_read(reader, index, plan);
        true
    }

    /// As `fill`, where every event is handed out whole.
    fn fill_frames(&mut self, reader: Ticket, plan: &Plan, out: &mut impl Frames) -> bool {
        let Some((index, mode)) = self.planned(reader, plan) else { return false };
        let Some(stream) = self.streams.get(index) else { return false };
        match mode {
            Mode::Parked => return true,
            Mode::All
                if plan.from + 1 < stream.ring.first_sequence() || plan.to > stream.ring.last_sequence() =>
            {
                return false;
            }
            Mode::All => put_frames(stream, &self.slabs, plan.from + 1, plan.to, out),
            Mode::Answers { requests_after } => {
                let wanted = |sequence| is_wanted(stream, sequence, requests_after);
                for pinned in stream.pinned_after(plan.from).filter(|pinned| pinned.sequence <= plan.to) {
                    put_one(stream, &self.slabs, pinned.sequence, out);
                }
                let first = stream.ring.first_sequence().max(plan.from + 1);
                for sequence in (first..=plan.to).filter(|&sequence| wanted(sequence)) {
                    put_one(stream, &self.slabs, sequence, out);
                }
            }
        }
        self.note_read(reader, index, plan);
        true
    }

    /// The stream and the mode of a reader that still stands where a plan was made for it.
    fn planned(&self, reader: Ticket, plan: &Plan) -> Option<(u32, Mode)> {
        self.reader(reader)
            .filter(|reader| reader.end.is_none() && reader.position == plan.from)
            .map(|reader| (reader.stream, reader.mode))
    }

    /// Moves a reader over what it was handed.
    fn note_read(&mut self, reader: Ticket, index: u32, plan: &Plan) {
        if plan.to > plan.from && plan.bytes > 0 {
            if let Some(stream) = self.streams.get_mut(index) {
                stream.written = stream.written.max(plan.to);
                stream.was_written = true;
            }
        }
        let is_part = plan.part_of > 0 && plan.to == plan.from;
        let mut makes_progress = false;
        if let Some(reader) = self.readers.get_mut(reader.index) {
            reader.given = if is_part { plan.given + plan.bytes } else { 0 };
            reader.given_of = if is_part { plan.part_of } else { 0 };
            reader.position = plan.to;
            makes_progress = plan.bytes > 0 && std::mem::take(&mut reader.is_noted);
        }
        if makes_progress {
            if let Some(stream) = self.streams.ticket(index) {
                self.calm.note_data(stream);
            }
        }
    }

    /// Reads frames into `out` and returns how many bytes: at most `max_bytes`, but one event at least.
    ///
    /// # Errors
    /// The reader's end, for good.
    pub fn read(
        &mut self,
        reader: Ticket,
        max_bytes: usize,
        out: &mut Vec<u8>,
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<usize, ReaderEnd> {
        let plan = self.plan(reader, max_bytes, now_ms, woken)?;
        out.reserve(plan.bytes);
        // Nobody comes in between.
        self.fill(reader, &plan, out);
        Ok(plan.bytes)
    }

    /// Reads events into `out`, every one whole: at most `most`, but one at least.  One that `read` has handed out
    /// a part of comes whole again.
    ///
    /// # Errors
    /// The reader's end, for good.
    pub fn read_events(
        &mut self,
        reader: Ticket,
        most: Most,
        out: &mut impl Frames,
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<(), ReaderEnd> {
        self.tick(now_ms, woken);
        let plan = self.plan_at_most(reader, most, usize::MAX)?;
        // Of answers there may be fewer.
        out.expect((plan.to - plan.from) as usize);
        // Nobody comes in between.
        self.fill_frames(reader, &plan, out);
        Ok(())
    }

    /// Notes that a connection came back to a stream; how long it is to be held, if it has nothing to read.
    pub(crate) fn hold_ms(&mut self, index: u32, reader: Ticket) -> u64 {
        let Some(stream) = self.streams.ticket(index) else { return 0 };
        let hold_ms = self.calm.note(stream, self.now_ms);
        let Some(found) = self.readers.get_mut(reader.index) else { return 0 };
        found.is_noted = true;
        if self.has_caught_up(reader) {
            hold_ms
        } else {
            0
        }
    }

    /// Keeps `waker` until there is something to read or the reader ends.
    pub fn arm(&mut self, ticket: Ticket, waker: W) -> Armed<W> {
        let Some(reader) = self.reader(ticket) else { return Armed::Ready(waker) };
        if reader.waiter.is_some() {
            return Armed::Busy(waker);
        }
        if reader.end.is_some() || self.is_ready(reader.stream, reader.mode, reader.position) {
            return Armed::Ready(waker);
        }
        if let Some(reader) = self.readers.get_mut(ticket.index) {
            reader.waiter = Some(waker);
        }
        Armed::Waiting
    }

    /// Takes a waker back, if it was not handed out yet.
    pub fn disarm(&mut self, ticket: Ticket) -> Option<W> {
        let index = self.readers.find(ticket)?;
        self.readers.get_mut(index)?.waiter.take()
    }

    /// Closes a reader: its connection is gone.  The stream goes on.
    pub fn detach(&mut self, ticket: Ticket) -> Option<W> {
        let index = self.readers.find(ticket)?;
        let reader = self.readers.remove(index)?;
        if let Some(stream) = self.streams.get_mut(reader.stream) {
            if stream.reader == Some(ticket) {
                stream.reader = None;
                stream.touch(self.now_ms);
            }
            if let Some(rare) = &mut stream.rare {
                rare.parked.retain(|&parked| parked != ticket);
            }
        }
        reader.waiter
    }

    /// The last sequence handed to this reader.
    #[must_use]
    pub fn position(&self, ticket: Ticket) -> Option<u64> {
        self.reader(ticket).map(|reader| reader.position)
    }

    /// The ID of a position in this reader's stream, in the window or just before it: what an echo carries.
    #[must_use]
    pub fn id_at(&self, ticket: Ticket, sequence: u64) -> Option<Vec<u8>> {
        let stream = self.streams.get(self.reader(ticket)?.stream)?;
        let digest = stream.ring.digest_at(sequence)?;
        let mut id = Vec::with_capacity(MAX_ID_BYTES);
        write_id(&mut id, stream.prefix_at(sequence).0, Sequence::new(sequence)?, digest);
        Some(id)
    }

    /// Whether this reader has everything there is for it now, so that a `live` comment may be sent.
    #[must_use]
    pub fn has_caught_up(&self, ticket: Ticket) -> bool {
        self.reader(ticket).is_some_and(|reader| !self.is_ready(reader.stream, reader.mode, reader.position))
    }

    /// Whether this reader was given all there is of a stream whose requests have their answers.
    #[must_use]
    pub fn has_read_answer(&self, ticket: Ticket) -> bool {
        let Some(reader) = self.reader(ticket) else { return false };
        if let Some(end) = reader.end {
            return end == ReaderEnd::Ended(EndWhy::Answered);
        }
        let Some(stream) = self.streams.get(reader.stream) else { return false };
        stream.end_why() == Some(EndWhy::Answered)
            && match reader.mode {
                Mode::Parked => false,
                Mode::All => stream.ring.last_sequence() <= reader.position,
                Mode::Answers { requests_after } => {
                    measure_answers(stream, reader.position, requests_after, 0, Most::bytes(1)).1 == 0
                }
            }
    }

    /// Whether this reader is only kept open, because a newer one reads.
    #[must_use]
    pub fn is_parked(&self, ticket: Ticket) -> bool {
        self.reader(ticket).is_some_and(|reader| reader.mode == Mode::Parked)
    }

    fn reader(&self, ticket: Ticket) -> Option<&Reader<W>> {
        self.readers.get(self.readers.find(ticket)?)
    }

    fn is_ready(&self, index: u32, mode: Mode, position: u64) -> bool {
        let Some(stream) = self.streams.get(index) else { return true };
        match mode {
            Mode::Parked => !stream.is_live(),
            Mode::All => !stream.is_live() || stream.ring.last_sequence() > position,
            Mode::Answers { requests_after } => {
                !stream.is_live()
                    || measure_answers(stream, position, requests_after, 0, Most::bytes(1)).1 > 0
            }
        }
    }

    fn end_reader(&mut self, ticket: Ticket, end: ReaderEnd) -> ReaderEnd {
        let Some(reader) = self.readers.find(ticket).and_then(|index| self.readers.get_mut(index)) else {
            return end;
        };
        reader.end = Some(end);
        let index = reader.stream;
        if let Some(stream) = self.streams.get_mut(index).filter(|stream| stream.reader == Some(ticket)) {
            stream.reader = None;
        }
        end
    }

    /// Every reader of a stream ends; parked ones as well.
    pub(super) fn end_readers(&mut self, index: u32, end: ReaderEnd, woken: &mut Vec<W>) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let attached = stream.reader.take();
        let parked = stream.rare.as_mut().map(|rare| std::mem::take(&mut rare.parked)).unwrap_or_default();
        for ticket in attached.into_iter().chain(parked) {
            self.end_reader(ticket, end);
            woken.extend(self.disarm(ticket));
        }
    }

    /// The events of a stream go away: whoever is in mid-replay gets a typed end, never a hole.
    pub(super) fn end_readers_of_gone(&mut self, index: u32, why: EndWhy, woken: &mut Vec<W>) {
        let unread = self.streams.get(index).map(|stream| (stream.reader, stream.ring.last_sequence()));
        if let (Some((Some(ticket), last)), false) = (unread, why == EndWhy::Session) {
            let behind =
                self.reader(ticket).filter(|reader| reader.mode == Mode::All && reader.position < last);
            if let Some(first) = behind.map(|reader| reader.position + 1) {
                self.end_readers(index, ReaderEnd::TooSlow { first, last }, woken);
            }
        }
        self.end_readers(index, ReaderEnd::Ended(why), woken);
    }

    /// Wakes the reader and the parked ones.
    pub(super) fn wake(&mut self, index: u32, woken: &mut Vec<W>) {
        let Some(stream) = self.streams.get(index) else { return };
        let attached = stream.reader;
        let parked = stream.rare.as_ref().map(|rare| rare.parked.clone()).unwrap_or_default();
        for ticket in attached.into_iter().chain(parked) {
            woken.extend(self.disarm(ticket));
        }
    }

    /// The older reader gives way: an unaware client's standalone connection is parked, any other one ends.
    fn displace(&mut self, index: u32, older: Ticket, woken: &mut Vec<W>) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        stream.reader = None;
        self.counts.taken_over += 1;
        let is_standalone = stream.is_standalone;
        let Some(reader) = self.readers.find(older).and_then(|place| self.readers.get_mut(place)) else {
            return;
        };
        if !is_standalone || reader.is_aware {
            reader.end = Some(ReaderEnd::TakenOver);
            woken.extend(reader.waiter.take());
            return;
        }
        reader.mode = Mode::Parked;
        let Some(stream) = self.streams.get_mut(index) else { return };
        let parked = &mut stream.rare().parked;
        parked.push(older);
        if parked.len() > MAX_PARKED {
            let oldest = parked.remove(0);
            self.end_reader(oldest, ReaderEnd::TakenOver);
            woken.extend(self.disarm(oldest));
        }
    }

    /// After a new epoch: aware readers end, unaware ones read on from its start.
    pub(super) fn carry_into_new_epoch(&mut self, reader: Option<Ticket>, woken: &mut Vec<W>) {
        let Some(ticket) = reader else { return };
        let Some(reader) = self.readers.find(ticket).and_then(|place| self.readers.get_mut(place)) else {
            return;
        };
        if reader.is_aware {
            self.end_reader(ticket, ReaderEnd::Ended(EndWhy::Epoch));
            woken.extend(self.disarm(ticket));
        } else {
            reader.position = 0;
            reader.given = 0;
            reader.mode = Mode::All;
        }
    }
}

/// A part of what is put: the bytes after `skip`, `take` of them.
struct Part<'a, O> {
    skip: usize,
    take: usize,
    out: &'a mut O,
}

impl<O: Out> Out for Part<'_, O> {
    fn put(&mut self, bytes: &[u8]) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let taken = self.take.min(bytes.len() - skipped);
        self.take -= taken;
        self.out.put(&bytes[skipped..skipped + taken]);
    }
}

/// What stands before the ID in a frame.
pub const LEAD: &[u8] = b"id: ";

/// Writes the frame of one event, in the window or pinned.
fn put_one(stream: &Stream, slabs: &Slabs, sequence: u64, out: &mut impl Frames) {
    match stream.pinned_after(sequence - 1).find(|pinned| pinned.sequence == sequence) {
        None => put_frames(stream, slabs, sequence, sequence, out),
        Some(pinned) => {
            let lead = Lead::of(stream.prefix_at(sequence).0);
            out.frame(lead.bytes(), Stored::copied(sequence, pinned.digest, &pinned.frame));
        }
    }
}

/// Hands out the frames `from ..= to`, each with the prefix that was signed for it.
fn put_frames(stream: &Stream, slabs: &Slabs, from: u64, to: u64, out: &mut impl Frames) {
    let mut next = from;
    while next <= to {
        let (prefix, last) = stream.prefix_at(next);
        let until = last.min(to);
        stream.ring.put_frames(slabs, next, until, Lead::of(prefix).bytes(), out);
        next = until + 1;
    }
}

/// What the frames of a stream and epoch begin with.
struct Lead {
    bytes: [u8; LEAD.len() + MAX_ID_BYTES],
    length: usize,
}

impl Lead {
    fn of(prefix: &IdPrefix) -> Self {
        let mut bytes = [0; LEAD.len() + MAX_ID_BYTES];
        let length = LEAD.len() + prefix.as_bytes().len();
        bytes[..LEAD.len()].copy_from_slice(LEAD);
        bytes[LEAD.len()..length].copy_from_slice(prefix.as_bytes());
        Self { bytes, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

fn is_wanted(stream: &Stream, sequence: u64, requests_after: u64) -> bool {
    match stream.ring.mark(sequence) {
        Some(Mark::Answer) => true,
        Some(Mark::Request) => sequence > requests_after,
        _ => false,
    }
}

/// The next event that a reader of answers is given, and the bytes stored of it.
fn next_answer(stream: &Stream, position: u64, requests_after: u64) -> Option<(u64, usize)> {
    if let Some(pinned) = stream.pinned_after(position).next() {
        return Some((pinned.sequence, pinned.frame.len()));
    }
    let first = stream.ring.first_sequence().max(position + 1);
    let sequence = (first..=stream.ring.last_sequence())
        .find(|&sequence| is_wanted(stream, sequence, requests_after))?;
    Some((sequence, stream.ring.length_of(sequence)?))
}

/// As `Ring::measure_after`, for a reader of answers; its position moves over what it is not given.
fn measure_answers(
    stream: &Stream,
    position: u64,
    requests_after: u64,
    lead: usize,
    most: Most,
) -> (u64, usize) {
    let (mut events, mut bytes) = (0, 0);
    for pinned in stream.pinned_after(position) {
        let next = bytes + lead + pinned.frame.len();
        if bytes > 0 && most.is_passed_by(events + 1, next) {
            return (pinned.sequence - 1, bytes);
        }
        (events, bytes) = (events + 1, next);
    }
    let first = stream.ring.first_sequence().max(position + 1);
    for sequence in first..=stream.ring.last_sequence() {
        if !is_wanted(stream, sequence, requests_after) {
            continue;
        }
        let next = bytes + lead + stream.ring.length_of(sequence).unwrap_or(0);
        if bytes > 0 && most.is_passed_by(events + 1, next) {
            return (sequence - 1, bytes);
        }
        (events, bytes) = (events + 1, next);
    }
    (stream.ring.last_sequence().max(position), bytes)
}
