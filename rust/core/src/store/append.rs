//! Appending: the next sequence, its frame, and what an answer changes.

use memchr::{memchr2, memchr3};

use crate::envelope::{self, Envelope, Kind};
use crate::ids::{write_id, Digest, IdPrefix, Position, Scope, Sequence, StreamToken};
use crate::ring::{has_next, Mark, PAGE_BYTES};
use crate::sse::{write_frame, EncodeError, EventRef, Frame};

use super::readers::Mode;
use super::room::{remember_requests, Room};
use super::run::next_of;
use super::stream::{OwnedId, State, Stream};
use super::{EndWhy, EventIds, Store, StoreError};

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

impl Appended {
    fn position(&self) -> Option<(Sequence, Digest)> {
        Some((Sequence::new(self.sequence)?, self.digest))
    }
}

/// A message that nobody waits for: what most are, found without reading them.
const PLAIN: Envelope<'static> = Envelope { kind: Kind::Notification, id: None, method: None };

impl<W> Store<W> {
    /// Appends one event and writes its ID into `id` (cleared first).
    ///
    /// The event is refused only if it is an answer that cannot be kept; anything else that finds no
    /// room takes its sequence and leaves the window at once, with everything before it.
    ///
    /// # Errors
    /// See [`StoreError`]; nothing was appended then.
    #[inline]
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
        let index = self.find_recent(scope, token)?;
        let lines = Lines::of(new.data);
        if new.event.is_empty() && lines.is_plain() {
            if let Some(mut run) = self.begin_run(index) {
                let position = self.append_plain(&mut run, new.data);
                self.end_run(run, woken);
                if let Some((sequence, digest)) = position {
                    self.write_id_at(index, sequence, digest, id);
                    let sequence = sequence.get();
                    return Ok(Appended { sequence, digest, is_kept: true, has_ended: false });
                }
            }
        }
        let appended = self.append_slowly(index, new, &lines, woken)?;
        if let Some((sequence, digest)) = appended.position() {
            self.write_id_at(index, sequence, digest, id);
        }
        Ok(appended)
    }

    /// Appends several events of no type in one step, in order.
    ///
    /// # Errors
    /// See [`StoreError`]; the events before the one that is refused stay appended.
    pub fn append_all<'a>(
        &mut self,
        scope: &Scope,
        token: &StreamToken,
        events: impl IntoIterator<Item = &'a [u8]>,
        now_ms: u64,
        woken: &mut Vec<W>,
    ) -> Result<EventIds, StoreError> {
        let mut events = events.into_iter();
        let count = events.size_hint().0;
        self.tick_for(count, now_ms, woken);
        let index = self.find_recent(scope, token)?;
        let mut positions = Vec::with_capacity(count);
        loop {
            let other = match self.begin_run(index) {
                None => next_of(&mut events),
                Some(mut run) => {
                    let other = self.append_plains(&mut run, &mut events, &mut positions);
                    self.end_run(run, woken);
                    other
                }
            };
            let Some((data, lines)) = other else { break };
            let new = NewEvent { event: b"", data };
            positions.extend(self.append_slowly(index, new, &lines, woken)?.position());
        }
        // Nothing signs anew within one step.
        let Some(stream) = self.streams.get(index) else { return Err(StoreError::UnknownStream) };
        Ok(EventIds::new(stream.prefix.clone(), positions))
    }

    /// Appends an event whose envelope nobody has looked at, whatever it is.
    fn append_slowly(
        &mut self,
        index: u32,
        new: NewEvent<'_>,
        lines: &Lines<'_>,
        woken: &mut Vec<W>,
    ) -> Result<Appended, StoreError> {
        let envelope = if lines.has_id { envelope::scan(new.data) } else { PLAIN };
        self.append_lines(index, new, lines, &envelope, woken)
    }

    /// Writes the ID of what was appended just now into `id` (cleared first).
    #[inline]
    fn write_id_at(&self, index: u32, sequence: Sequence, digest: Digest, id: &mut Vec<u8>) {
        id.clear();
        if let Some(stream) = self.streams.get(index) {
            write_id(id, &stream.prefix, sequence, digest);
        }
    }

    /// Appends the error that settles a call whose stream ended without an answer, or will.
    /// Returns `None` if the request that it names has its answer already; it is then not stored a second time.
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
        let Some(stream) = self.streams.get(index) else { return Err(StoreError::UnknownStream) };
        match stream.state {
            State::Ended(_) if !stream.has_answer => {}
            State::Live => {}
            _ => return Ok(None),
        }
        let envelope = envelope::scan(data);
        if envelope.id.as_ref().is_some_and(|id| stream.has_answered(id)) {
            return Ok(None); // one of several requests, which the others outlive
        }
        let why = stream.end_why();
        if why.is_some() {
            self.revive(index);
        }
        let new = NewEvent { event: b"", data };
        let result = self.append_lines(index, new, &Lines::of(data), &envelope, woken);
        if let Some((sequence, digest)) = result.as_ref().ok().and_then(Appended::position) {
            self.write_id_at(index, sequence, digest, id);
        }
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
        self.recharge(session, before, after);
        self.counts.live_streams += 1;
        self.counts.ended_streams -= 1;
        if let Some(session) = self.sessions.get_mut(session) {
            session.live_streams += 1;
        }
    }

    /// Appends an event of an upstream to a stream that was found, with its envelope at hand.
    pub(crate) fn append_event(
        &mut self,
        index: u32,
        event: &EventRef<'_>,
        envelope: &Envelope<'_>,
        woken: &mut Vec<W>,
    ) -> Result<Appended, StoreError> {
        let new = NewEvent { event: b"", data: event.data };
        self.append_lines(index, new, &Lines::of_event(event), envelope, woken)
    }

    fn append_lines(
        &mut self,
        index: u32,
        new: NewEvent<'_>,
        lines: &Lines<'_>,
        envelope: &Envelope<'_>,
        woken: &mut Vec<W>,
    ) -> Result<Appended, StoreError> {
        if new.data.is_empty() {
            return Err(StoreError::NoData);
        }
        if !new.event.is_empty() {
            if let Some(position) = memchr3(b'\r', b'\n', 0, new.event) {
                return Err(EncodeError::Event { position }.into());
            }
        }
        let Some(stream) = self.streams.get_mut(index) else { return Err(StoreError::UnknownStream) };
        if let Some(why) = stream.end_why() {
            return Err(StoreError::StreamEnded(why.as_str()));
        }
        if !has_next(stream.ring.last_sequence()) {
            return Err(StoreError::LastSequence);
        }
        if stream.key_turn != self.key_turn {
            let Some(session) = self.sessions.get(stream.session) else {
                return Err(StoreError::UnknownStream);
            };
            stream.sign_anew(&self.keys, &session.scope, self.key_turn);
        }
        let mark = stream.mark_of(new.data, envelope);
        let length = MAX_HEAD + new.event.len() + lines.framed_bytes();
        let (before, session) = (stream.charge(&self.limits), stream.session);
        // An answer may have what the others' shares leave free: it comes once, and is all that its call waits for.
        let room = if mark == Mark::Answer { self.free() } else { self.room_for(session, usize::MAX) };
        let allowed = before + room;
        let Some(stream) = self.streams.get_mut(index) else { return Err(StoreError::UnknownStream) };
        let alone = stream.charge_with(length.div_ceil(PAGE_BYTES), &self.limits);
        if mark == Mark::Answer && (new.data.len() > self.limits.event_bytes || alone > allowed) {
            // Nothing is trimmed for what has no room even then.
            self.counts.too_large += 1;
            return Err(self.too_large(new.data.len()));
        }
        let counts = &mut self.counts;
        let mut room =
            Room { stream, slabs: &mut self.slabs, counts, limits: &self.limits, now_ms: self.now_ms };
        let fits = room.make(length, new.data.len(), allowed);
        if !fits && mark == Mark::Answer {
            self.counts.too_large += 1;
            let after = stream.charge(&self.limits);
            self.recharge(session, before, after);
            return Err(self.too_large(new.data.len()));
        }
        let appended = room.write(new, lines, mark, fits);
        let after = stream.charge(&self.limits);
        let reader = stream.reader;
        self.recharge(session, before, after);
        if mark == Mark::Answer {
            self.settle_answers(index, new.data, envelope, woken);
            let has_ended = self.streams.get(index).is_some_and(|stream| !stream.is_live());
            return Ok(Appended { has_ended, ..appended });
        }
        if let Some(reader) = reader.and_then(|ticket| self.readers.get_mut(ticket.index)) {
            if mark != Mark::Plain || !matches!(reader.mode, Mode::Answers { .. }) {
                woken.extend(reader.waiter.take());
            }
        }
        Ok(appended)
    }

    fn too_large(&self, bytes: usize) -> StoreError {
        let limits = &self.limits;
        let (name, limit) = if bytes > limits.event_bytes {
            ("event_bytes", limits.event_bytes)
        } else {
            ("total_bytes", limits.total_bytes)
        };
        StoreError::AnswerTooLarge { bytes, name, limit }
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
        self.wake(index, woken);
    }
}

impl Room<'_> {
    /// Writes the event; it has its room, or is trimmed at birth.
    #[inline]
    fn write(&mut self, new: NewEvent<'_>, lines: &Lines<'_>, mark: Mark, fits: bool) -> Appended {
        let stream = &mut *self.stream;
        let number = stream.ring.last_sequence() + 1;
        let sequence = Sequence::new(number).unwrap_or(Sequence::MAX);
        let digest = stream.chain.append(sequence, new.event, lines.joined());
        stream.touched_ms = self.now_ms;
        if !fits {
            if mark == Mark::Request {
                remember_requests(stream.rare(), number, new.data);
            }
            stream.ring.skip(self.slabs, digest);
            self.counts.trimmed_at_birth += 1;
            return Appended { sequence: number, digest, is_kept: false, has_ended: false };
        }
        let position = Position::new(sequence, digest);
        let stored_s = self.now_ms / 1000;
        if lines.many.is_none() && matches!(new.event, b"" | b"message") {
            stream.ring.append_line(self.slabs, position, lines.data, mark, stored_s);
        } else {
            let frame = whole_frame(position, new.event, lines);
            stream.ring.append(self.slabs, &[&frame], digest, mark, stored_s);
        }
        self.counts.appended += 1;
        Appended { sequence: number, digest, is_kept: true, has_ended: false }
    }
}

/// The frame of an event with a type, or with several lines.
fn whole_frame(position: Position, event: &[u8], lines: &Lines<'_>) -> Vec<u8> {
    let mut frame = vec![0; position.len()];
    position.write(&mut frame);
    frame.push(b'\n');
    if !matches!(event, b"" | b"message") {
        frame.extend_from_slice(b"event: ");
        frame.extend_from_slice(event);
        frame.push(b'\n');
    }
    match &lines.many {
        None => {
            frame.extend_from_slice(b"data: ");
            frame.extend_from_slice(lines.data);
            frame.extend_from_slice(b"\n\n");
        }
        Some(many) => frame.extend_from_slice(&many.1),
    }
    frame
}

impl Stream {
    /// The prefix of new appends is signed by the ring that signs now.
    fn sign_anew(&mut self, keys: &crate::ids::KeyRing, scope: &Scope, key_turn: u32) {
        let Some(token) = self.token() else { return };
        let Some(epoch) = self.epoch() else { return };
        let prefix = IdPrefix::new(&token, &epoch, &keys.tag(scope, &token, &epoch));
        self.key_turn = key_turn;
        if prefix == self.prefix {
            return;
        }
        let last = self.ring.last_sequence();
        let earlier = std::mem::replace(&mut self.prefix, prefix);
        if !self.ring.is_empty() || self.rare.as_ref().is_some_and(|rare| !rare.pinned.is_empty()) {
            self.rare().older.push((last, earlier));
        }
    }

    #[inline]
    fn mark_of(&self, data: &[u8], envelope: &Envelope<'_>) -> Mark {
        match envelope.kind {
            Kind::Request => Mark::Request,
            Kind::Result | Kind::Error if self.expects(envelope) => Mark::Answer,
            Kind::Batch => {
                let mut mark = Mark::Plain;
                envelope::scan_each(data, |inner| match inner.kind {
                    Kind::Result | Kind::Error if self.expects(&inner) => mark = Mark::Answer,
                    Kind::Request if mark == Mark::Plain => mark = Mark::Request,
                    _ => {}
                });
                mark
            }
            _ => Mark::Plain,
        }
    }

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
pub(super) const MAX_HEAD: usize = 19 + 1 + 11 + 1 + 8 + 6 + 2;

/// The data of an event as lines.
pub(super) struct Lines<'a> {
    data: &'a [u8],
    /// Whether a member `id` may be somewhere in it.
    has_id: bool,
    /// The lines joined by LF, as every reader gets them, and as they are framed; where there are several.
    many: Option<Box<(Vec<u8>, Vec<u8>)>>,
}

impl<'a> Lines<'a> {
    /// What a parser made of `data` lines: there is no CR in it, and no LF if it was one line.
    fn of_event(event: &EventRef<'a>) -> Self {
        let many = if event.data_lines == 1 { None } else { Self::split(event.data) };
        Self { data: event.data, has_id: true, many }
    }

    /// Two passes over nearly every message: JSON has no bare line ends, and few escapes.
    #[inline]
    pub(super) fn of(data: &'a [u8]) -> Self {
        let odd = memchr3(b'\r', b'\n', b'\\', data);
        let has_id = envelope::may_have_id(data, odd.is_some());
        let many = odd.and_then(|_| Self::split(data));
        Self { data, has_id, many }
    }

    /// Nobody waits for it, and it is one line.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        !self.has_id && self.many.is_none()
    }

    #[cold]
    fn split(data: &[u8]) -> Option<Box<(Vec<u8>, Vec<u8>)>> {
        memchr2(b'\r', b'\n', data)?;
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
        Some(Box::new((joined, framed)))
    }

    fn joined(&self) -> &[u8] {
        self.many.as_ref().map_or(self.data, |many| &many.0)
    }

    fn framed_bytes(&self) -> usize {
        self.many.as_ref().map_or(self.data.len(), |many| many.1.len())
    }
}
