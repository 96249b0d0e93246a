//! Appending: the next sequence, room for it, and what an answer changes.

use memchr::{memchr2, memchr3};

use crate::envelope::{self, Envelope, Kind};
use crate::ids::{write_id, Digest, IdPrefix, Scope, Sequence, StreamToken};
use crate::ring::{has_next, Mark};
use crate::sse::{write_frame, EncodeError, Frame};

use super::readers::Mode;
use super::stream::{OwnedId, Pinned, State, MAX_LOST_REQUESTS};
use super::{EndWhy, Store, StoreError};

/// An event that is to be appended.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    /// The event type; empty for `message`.
    pub event: &'a [u8],
    /// The data: one JSON-RPC message, or a batch.
    pub data: &'a [u8],
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its sequence.
    pub sequence: u64,
    /// The digest after it.
    pub digest: Digest,
    /// Whether it is in the window; if not, its sequence is a declared gap.
    pub is_kept: bool,
    /// Whether the stream has all its answers now.
    pub has_ended: bool,
}

/// Which bound makes room.
#[derive(Clone, Copy)]
enum Bound {
    Events,
    Bytes,
    Age,
    Budget,
}

impl<W> Store<W> {
    /// Appends one event and writes its ID into `id` (cleared first).
    ///
    /// The event is refused only if it is an answer that cannot be kept; anything else that finds no
    /// room takes its sequence and leaves the window at once, with everything before it.
    ///
    /// # Errors
    /// See [`StoreError`]; nothing was appended then.
    pub fn append(
        &mut self,
        scope: &Scope,
        token: &StreamToken,
        new: NewEvent<'_>,
        now_ms: u64,
        id: &mut Vec<u8>,
        woken: &mut Vec<W>,
    ) -> Result<Appended, StoreError> {
        self.tick(now_ms, woken);
        let index = self.find(scope, token)?;
        self.append_at(index, new, &envelope::scan(new.data), id, woken)
    }

    /// Appends the error that settles a call whose stream ended without an answer.
    /// Returns `None` if the stream has a terminal event already; it is then not stored a second time.
    ///
    /// # Errors
    /// [`StoreError::UnknownStream`], or what [`Store::append`] refuses.
    pub fn settle(
        &mut self,
        scope: &Scope,
        token: &StreamToken,
        data: &[u8],
        now_ms: u64,
        id: &mut Vec<u8>,
        woken: &mut Vec<W>,
    ) -> Result<Option<Appended>, StoreError> {
        self.tick(now_ms, woken);
        let index = self.find(scope, token)?;
        let Some(stream) = self.streams.get_mut(index) else { return Err(StoreError::UnknownStream) };
        match stream.state {
            State::Ended { .. } if !stream.has_answer => {}
            State::Live => {}
            _ => return Ok(None),
        }
        let why = stream.end_why();
        if why.is_some() {
            self.revive(index);
        }
        let new = NewEvent { event: b"", data };
        let result = self.append_at(index, new, &envelope::scan(data), id, woken);
        if let Some(why) = why {
            // Unless the error answered every request, in which case it has ended by that.
            self.end_at(index, why, woken);
        }
        result.map(Some)
    }

    /// An ended stream takes its terminal event.
    fn revive(&mut self, index: u32) {
        let limits = self.limits;
        let Some(stream) = self.streams.get_mut(index) else { return };
        let before = stream.charge(&limits);
        stream.state = State::Live;
        let after = stream.charge(&limits);
        let session = stream.session;
        self.charged = self.charged + after - before;
        self.counts.live_streams += 1;
        self.counts.ended_streams -= 1;
        if let Some(session) = self.sessions.get_mut(session) {
            session.live_streams += 1;
        }
    }

    /// Appends to a stream that was found, with the envelope of `new.data` at hand.
    pub(crate) fn append_at(
        &mut self,
        index: u32,
        new: NewEvent<'_>,
        envelope: &Envelope<'_>,
        id: &mut Vec<u8>,
        woken: &mut Vec<W>,
    ) -> Result<Appended, StoreError> {
        if new.data.is_empty() {
            return Err(StoreError::NoData);
        }
        if let Some(position) = memchr3(b'\r', b'\n', 0, new.event) {
            return Err(EncodeError::Event { position }.into());
        }
        let Some(stream) = self.streams.get(index) else { return Err(StoreError::UnknownStream) };
        if let Some(why) = stream.end_why() {
            return Err(StoreError::StreamEnded(why.as_str()));
        }
        if !has_next(stream.ring.last_sequence()) {
            return Err(StoreError::LastSequence);
        }
        if stream.key_turn != self.key_turn {
            self.sign_anew(index);
        }
        let lines = Lines::of(new.data);
        let length = MAX_HEAD + new.event.len() + lines.framed_bytes();
        let mark = self.mark_of(index, new.data, envelope);
        let fits = self.make_room(index, length, new.data.len());
        if !fits && mark == Mark::Answer {
            self.counts.too_large += 1;
            let limits = self.limits;
            let (name, limit) = if new.data.len() > limits.event_bytes {
                ("event_bytes", limits.event_bytes)
            } else {
                ("total_bytes", limits.total_bytes)
            };
            return Err(StoreError::AnswerTooLarge { bytes: new.data.len(), name, limit });
        }
        let appended = self.write(index, new, &lines, mark, fits, id);
        if mark == Mark::Answer {
            self.settle_answers(index, new.data, envelope, woken);
        }
        self.wake_for(index, mark, woken);
        let has_ended = self.streams.get(index).is_some_and(|stream| !stream.is_live());
        Ok(Appended { has_ended, ..appended })
    }

    /// Writes the event; it has its room, or is trimmed at birth.
    fn write(
        &mut self,
        index: u32,
        new: NewEvent<'_>,
        lines: &Lines<'_>,
        mark: Mark,
        fits: bool,
        id: &mut Vec<u8>,
    ) -> Appended {
        id.clear();
        let limits = self.limits;
        let stored_s = self.now_ms / 1000;
        let Some(stream) = self.streams.get_mut(index) else {
            return Appended { sequence: 0, digest: Digest(0), is_kept: false, has_ended: true };
        };
        let number = stream.ring.last_sequence() + 1;
        let sequence = Sequence::new(number).unwrap_or(Sequence::MAX);
        let digest = stream.chain.append(sequence, new.event, lines.joined());
        write_id(id, &stream.prefix, sequence, digest);
        let shared = stream.prefix.as_bytes().len();
        stream.touched_ms = self.now_ms;
        if !fits {
            if mark == Mark::Request {
                remember_request(stream.rare(), number, new.data);
            }
            stream.ring.skip(&mut self.slabs, digest);
            self.counts.trimmed_at_birth += 1;
            return Appended { sequence: number, digest, is_kept: false, has_ended: false };
        }
        let id_length = id.len();
        id.push(b'\n');
        if !matches!(new.event, b"" | b"message") {
            id.extend_from_slice(b"event: ");
            id.extend_from_slice(new.event);
            id.push(b'\n');
        }
        let before = stream.charge(&limits);
        match lines {
            Lines::One(data) => {
                id.extend_from_slice(b"data: ");
                let pieces = [&id[shared..], data, b"\n\n"];
                stream.ring.append(&mut self.slabs, &pieces, mark, stored_s);
            }
            Lines::Many { framed, .. } => {
                stream.ring.append(&mut self.slabs, &[&id[shared..], framed], mark, stored_s);
            }
        }
        let after = stream.charge(&limits);
        id.truncate(id_length);
        self.counts.appended += 1;
        self.charged = self.charged + after - before;
        Appended { sequence: number, digest, is_kept: true, has_ended: false }
    }

    /// Trims this stream until `length` more bytes fit; false if they never will.
    fn make_room(&mut self, index: u32, length: usize, data_bytes: usize) -> bool {
        let limits = self.limits;
        self.trim_old(index);
        let Some(stream) = self.streams.get(index) else { return false };
        let mut excess = (stream.ring.len() + 1).saturating_sub(limits.window_events);
        while excess > 0 && self.trim_one(index, Bound::Events) {
            excess -= 1;
        }
        let too_large = data_bytes > limits.event_bytes;
        loop {
            let Some(stream) = self.streams.get(index) else { return false };
            let is_full = stream.ring.bytes() + length > limits.window_bytes;
            if (!is_full && !too_large) || stream.ring.is_empty() || !self.trim_one(index, Bound::Bytes) {
                break;
            }
        }
        loop {
            let Some(stream) = self.streams.get(index) else { return false };
            // What the others are sure of is in `charged` already, so what is free belongs to nobody.
            let free = limits.total_bytes.saturating_sub(self.charged);
            let allowed = stream.charge(&limits) + free;
            let needed = stream.charge_with(stream.ring.pages_after(length), &limits);
            if needed <= allowed && !too_large {
                return true;
            }
            if stream.ring.is_empty() || !self.trim_one(index, Bound::Budget) {
                return false;
            }
        }
    }

    /// Trims what is older than the window's age, a whole second late at most, never early.
    pub(super) fn trim_old(&mut self, index: u32) {
        let horizon = self.now_ms.saturating_sub(self.limits.window_age_ms.saturating_add(1000));
        loop {
            let Some(stream) = self.streams.get(index) else { return };
            match stream.ring.oldest_s() {
                Some(oldest_s) if oldest_s * 1000 < horizon => {}
                _ => return,
            }
            if !self.trim_one(index, Bound::Age) {
                return;
            }
        }
    }

    /// Drops the oldest event; false if it is the terminal answer, which only its grace ends.
    fn trim_one(&mut self, index: u32, bound: Bound) -> bool {
        let limits = self.limits;
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let before = stream.charge(&limits);
        let sequence = stream.ring.first_sequence();
        match stream.ring.oldest_mark() {
            None => return false,
            Some(Mark::Answer) => {
                if stream.ring.len() == 1 && !stream.is_live() {
                    return false;
                }
                let mut frame = Vec::with_capacity(stream.ring.length_of(sequence).unwrap_or(0));
                stream.ring.put(&self.slabs, sequence, &mut frame);
                stream.rare().pinned.push(Pinned { sequence, frame: frame.into_boxed_slice() });
            }
            Some(Mark::Request) => {
                let mut frame = Vec::new();
                stream.ring.put(&self.slabs, sequence, &mut frame);
                remember_request(stream.rare(), sequence, &data_of(&frame));
            }
            Some(Mark::Plain) => {}
        }
        stream.ring.trim_oldest(&mut self.slabs);
        if let Some(rare) = stream.rare.as_mut().filter(|rare| !rare.older.is_empty()) {
            // A prefix goes with the last event that was signed under it.
            rare.older.retain(|(last, _)| *last > sequence);
        }
        let after = stream.charge(&limits);
        *match bound {
            Bound::Events => &mut self.counts.trimmed_events,
            Bound::Bytes => &mut self.counts.trimmed_bytes,
            Bound::Age => &mut self.counts.trimmed_age,
            Bound::Budget => &mut self.counts.trimmed_budget,
        } += 1;
        self.charged = self.charged + after - before;
        true
    }

    /// The prefix of new appends is signed by the ring that signs now.
    fn sign_anew(&mut self, index: u32) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let Some(token) = stream.token() else { return };
        let Some(session) = self.sessions.get(stream.session) else { return };
        let tag = self.keys.tag(&session.scope, &token, &stream.epoch);
        let prefix = IdPrefix::new(&token, &stream.epoch, &tag);
        stream.key_turn = self.key_turn;
        if prefix == stream.prefix {
            return;
        }
        let last = stream.ring.last_sequence();
        let earlier = std::mem::replace(&mut stream.prefix, prefix);
        if !stream.ring.is_empty() || stream.rare.as_ref().is_some_and(|rare| !rare.pinned.is_empty()) {
            stream.rare().older.push((last, earlier));
        }
    }

    fn mark_of(&self, index: u32, data: &[u8], envelope: &Envelope<'_>) -> Mark {
        let Some(stream) = self.streams.get(index) else { return Mark::Plain };
        match envelope.kind {
            Kind::Request => Mark::Request,
            Kind::Result | Kind::Error if stream.expects(envelope) => Mark::Answer,
            Kind::Batch => {
                let mut mark = Mark::Plain;
                envelope::scan_each(data, |inner| match inner.kind {
                    Kind::Result | Kind::Error if stream.expects(&inner) => mark = Mark::Answer,
                    Kind::Request if mark == Mark::Plain => mark = Mark::Request,
                    _ => {}
                });
                mark
            }
            _ => Mark::Plain,
        }
    }

    fn settle_answers(&mut self, index: u32, data: &[u8], envelope: &Envelope<'_>, woken: &mut Vec<W>) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let mut settle = |answer: &Envelope<'_>| {
            if let Some(id) = answer.id.as_ref().filter(|_| answer.kind.is_answer()) {
                stream.settle(id);
            }
        };
        if envelope.kind == Kind::Batch {
            envelope::scan_each(data, |inner| settle(&inner));
        } else {
            settle(envelope);
        }
        if !stream.owes() {
            stream.has_answer = true;
            self.end_at(index, EndWhy::Answered, woken);
        }
    }

    fn wake_for(&mut self, index: u32, mark: Mark, woken: &mut Vec<W>) {
        let Some(ticket) = self.streams.get(index).and_then(|stream| stream.reader) else { return };
        let Some(reader) = self.readers.get_mut(ticket.index) else { return };
        if mark == Mark::Plain && matches!(reader.mode, Mode::Answers { .. }) {
            return;
        }
        woken.extend(reader.waiter.take());
    }
}

impl super::stream::Stream {
    /// Whether `answer` answers a request that this stream still owes an answer.
    fn expects(&self, answer: &Envelope<'_>) -> bool {
        let Some(id) = &answer.id else { return false };
        if self.owes_token {
            return self
                .token()
                .is_some_and(|token| token.request_id().map(OwnedId::from).is_some_and(|ours| ours.is(id)));
        }
        self.rare.as_ref().is_some_and(|rare| rare.open.iter().any(|open| open.is(id)))
    }
}

/// Sequence, digest, line names and line ends of a frame, all at their longest.
const MAX_HEAD: usize = 19 + 1 + 11 + 1 + 8 + 6 + 2;

/// The data of an event, cut into its lines.
enum Lines<'a> {
    One(&'a [u8]),
    /// The lines joined by LF, as every reader gets them, and as they are framed.
    Many {
        joined: Vec<u8>,
        framed: Vec<u8>,
    },
}

impl<'a> Lines<'a> {
    fn of(data: &'a [u8]) -> Self {
        if memchr2(b'\r', b'\n', data).is_none() {
            return Self::One(data);
        }
        let mut joined = Vec::with_capacity(data.len());
        let mut rest = data;
        while let Some(at) = memchr2(b'\r', b'\n', rest) {
            joined.extend_from_slice(&rest[..at]);
            joined.push(b'\n');
            rest = &rest[at + if rest[at..].starts_with(b"\r\n") { 2 } else { 1 }..];
        }
        joined.extend_from_slice(rest);
        let mut framed = Vec::new();
        // Only an event type or an id can be refused, and there is neither.
        let _ = write_frame(&mut framed, &Frame { data: Some(&joined), ..Frame::default() });
        Self::Many { joined, framed }
    }

    fn joined(&self) -> &[u8] {
        match self {
            Self::One(data) => data,
            Self::Many { joined, .. } => joined,
        }
    }

    fn framed_bytes(&self) -> usize {
        match self {
            Self::One(data) => data.len(),
            Self::Many { framed, .. } => framed.len(),
        }
    }
}

/// The data of a stored frame, its lines joined by LF.
pub(super) fn data_of(frame: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(frame.len());
    for line in frame.split(|&byte| byte == b'\n') {
        if let Some(value) = line.strip_prefix(b"data:") {
            if !data.is_empty() {
                data.push(b'\n');
            }
            data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
    }
    data
}

fn remember_request(rare: &mut super::stream::Rare, sequence: u64, data: &[u8]) {
    envelope::scan_each(data, |message| {
        let id = message.id.as_ref().filter(|_| message.kind == Kind::Request).and_then(OwnedId::of);
        let Some(id) = id else { return };
        if rare.lost_requests.len() == MAX_LOST_REQUESTS {
            rare.lost_requests.remove(0);
        }
        rare.lost_requests.push((sequence, id));
    });
}
