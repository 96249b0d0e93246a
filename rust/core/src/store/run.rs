//! Runs of plain events: what most appends are, with everything that stays the same looked at once.
//!
//! A plain event is one line without a type that nobody waits for.  Whatever else there is (an answer, a request,
//! several lines, no room) takes the long way, `Store::append_lines`, between two runs.

use crate::ids::{Digest, LongSecret, Position, Sequence};
use crate::ring::{has_next, Mark};

use super::append::{Lines, MAX_HEAD};
use super::readers::Mode;
use super::room::Room;
use super::Store;

/// A run that goes on; it must be ended by [`Store::end_run`].
pub(crate) struct Run {
    index: u32,
    /// What the stream was charged when the run began, and what it may be charged.
    before: usize,
    allowed: usize,
    appended: u64,
}

/// Inlined: what is handed back through memory is written in halves and read as a whole, and that waits.
impl<W> Store<W> {
    /// Begins a run; `None` where the next append has more to do than to append.
    #[inline(always)]
    pub(crate) fn begin_run(&mut self, index: u32) -> Option<Run> {
        let stream = self.streams.get_mut(index)?;
        if !stream.is_live() || stream.key_turn != self.key_turn {
            return None;
        }
        let (before, session) = (stream.charge(&self.limits), stream.session);
        // A window, and one event that is larger.
        let most = 2 * (self.limits.window_bytes + self.limits.event_bytes);
        let allowed = before + self.room_for(session, most);
        let stream = self.streams.get_mut(index)?;
        let counts = &mut self.counts;
        Room { stream, slabs: &mut self.slabs, counts, limits: &self.limits, now_ms: self.now_ms }.trim_old();
        Some(Run { index, before, allowed, appended: 0 })
    }

    /// Appends a plain event; `None` if it needs the long way, and nothing has happened then but trimming.
    #[inline(always)]
    pub(crate) fn append_plain(&mut self, run: &mut Run, data: &[u8]) -> Option<(Sequence, Digest)> {
        let stream = self.streams.get_mut(run.index)?;
        let counts = &mut self.counts;
        let mut room =
            Room { stream, slabs: &mut self.slabs, counts, limits: &self.limits, now_ms: self.now_ms };
        let position = room.append_plain(&mut self.secret, data, run.allowed)?;
        run.appended += 1;
        Some(position)
    }

    /// Appends plain events as long as there are some, with where they are; the first one that needs the long way.
    #[inline(always)]
    pub(super) fn append_plains<'a>(
        &mut self,
        run: &mut Run,
        events: &mut impl Iterator<Item = &'a [u8]>,
        positions: &mut Vec<(Sequence, Digest)>,
    ) -> Option<(&'a [u8], Lines<'a>)> {
        let Some(stream) = self.streams.get_mut(run.index) else { return next_of(events) };
        let counts = &mut self.counts;
        let mut room =
            Room { stream, slabs: &mut self.slabs, counts, limits: &self.limits, now_ms: self.now_ms };
        for data in events {
            let lines = Lines::of(data);
            if !lines.is_plain() {
                return Some((data, lines));
            }
            let Some(position) = room.append_plain(&mut self.secret, data, run.allowed) else {
                return Some((data, lines));
            };
            positions.push(position);
            run.appended += 1;
        }
        None
    }

    /// Ends a run: charges what it took, and wakes the reader once.
    #[inline(always)]
    pub(crate) fn end_run(&mut self, run: Run, woken: &mut Vec<W>) {
        let Some(stream) = self.streams.get_mut(run.index) else { return };
        let after = stream.charge(&self.limits);
        let (reader, session) = (stream.reader, stream.session);
        if run.appended > 0 {
            stream.touched_ms = self.now_ms;
        }
        self.recharge(session, run.before, after);
        self.counts.appended += run.appended;
        let Some(reader) = reader.and_then(|ticket| self.readers.get_mut(ticket.index)) else { return };
        if run.appended > 0 && !matches!(reader.mode, Mode::Answers { .. }) {
            woken.extend(reader.waiter.take());
        }
    }
}

impl Room<'_> {
    /// Appends a plain event that may be charged for within `allowed`.
    #[inline(always)]
    fn append_plain(
        &mut self,
        secret: &mut LongSecret,
        data: &[u8],
        allowed: usize,
    ) -> Option<(Sequence, Digest)> {
        let last = self.stream.ring.last_sequence();
        if data.is_empty() || data.len() > self.limits.event_bytes || !has_next(last) {
            return None;
        }
        let sequence = Sequence::new(last + 1).unwrap_or(Sequence::MAX);
        if !self.fit(MAX_HEAD + data.len(), allowed) {
            return None;
        }
        let digest = self.stream.chain.append_message(secret, sequence, data);
        let position = Position::new(sequence, digest);
        self.stream.ring.append_line(self.slabs, position, data, Mark::Plain, self.now_ms / 1000);
        Some((sequence, digest))
    }
}

/// The next of `events`, whatever it is.
pub(super) fn next_of<'a>(events: &mut impl Iterator<Item = &'a [u8]>) -> Option<(&'a [u8], Lines<'a>)> {
    events.next().map(|data| (data, Lines::of(data)))
}
