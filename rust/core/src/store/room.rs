//! Room for one event: the window and the budget of its stream, and what leaves to make it.

use crate::envelope::{self, Kind};
use crate::ring::{Mark, Slabs, StoredEvent};

use super::limits::StoreLimits;
use super::statistics::Statistics;
use super::stream::{OwnedId, Pinned, Rare, Stream, MAX_LOST_ID_BYTES, MAX_LOST_REQUESTS};

/// Which bound makes room.
#[derive(Clone, Copy)]
enum Bound {
    Events,
    Bytes,
    Age,
    Budget,
}

/// One stream with what trimming it needs.
pub(super) struct Room<'a> {
    pub(super) stream: &'a mut Stream,
    pub(super) slabs: &'a mut Slabs,
    pub(super) counts: &'a mut Statistics,
    pub(super) limits: &'a StoreLimits,
    pub(super) now_ms: u64,
}

impl Room<'_> {
    /// Trims until `length` more bytes fit, within `allowed` charged bytes; false if they never will.
    pub(super) fn make(&mut self, length: usize, data_bytes: usize, allowed: usize) -> bool {
        self.trim_old();
        if data_bytes > self.limits.event_bytes {
            while self.stream.ring.len() >= self.limits.window_events && self.trim_one(Bound::Events) {}
            while self.trim_one(Bound::Bytes) {}
            return false;
        }
        self.fit(length, allowed)
    }

    /// As `make`, for an event of a legal size where nothing is too old.
    #[inline(always)]
    pub(super) fn fit(&mut self, length: usize, allowed: usize) -> bool {
        let limits = self.limits;
        while self.stream.ring.len() >= limits.window_events && self.trim_one(Bound::Events) {}
        while self.stream.ring.bytes() + length > limits.window_bytes && self.trim_one(Bound::Bytes) {}
        loop {
            let pages = self.stream.ring.pages_after(length);
            if self.stream.charge_with(pages, limits) <= allowed {
                return true;
            }
            if !self.trim_one(Bound::Budget) {
                return false;
            }
        }
    }

    /// Trims what is older than the window's age, two seconds late at most, never early.
    #[inline]
    pub(super) fn trim_old(&mut self) {
        let horizon = self.now_ms.saturating_sub(self.limits.window_age_ms.saturating_add(1000));
        while self.stream.ring.oldest_s().is_some_and(|oldest_s| oldest_s * 1000 < horizon) {
            if !self.trim_one(Bound::Age) {
                return;
            }
        }
    }

    /// Drops the oldest event; false if there is none, or it is the terminal answer, which only the
    /// end of its grace drops.
    #[inline(always)]
    fn trim_one(&mut self, bound: Bound) -> bool {
        let is_plain = self.stream.ring.oldest_mark() == Some(Mark::Plain) && self.stream.rare.is_none();
        if !is_plain && !self.keep_of_oldest() {
            return false;
        }
        self.stream.ring.trim_oldest(self.slabs);
        *match bound {
            Bound::Events => &mut self.counts.trimmed_events,
            Bound::Bytes => &mut self.counts.trimmed_bytes,
            Bound::Age => &mut self.counts.trimmed_age,
            Bound::Budget => &mut self.counts.trimmed_budget,
        } += 1;
        true
    }

    /// Keeps what must outlive the oldest event; false if the event itself must stay, or there is none.
    #[cold]
    fn keep_of_oldest(&mut self) -> bool {
        let stream = &mut *self.stream;
        let sequence = stream.ring.first_sequence();
        match stream.ring.oldest_mark() {
            None => return false,
            Some(Mark::Answer) if stream.ring.len() == 1 && !stream.is_live() => return false,
            Some(mark @ (Mark::Answer | Mark::Request)) => {
                let Some(stored) = stream.ring.stored(self.slabs, sequence) else { return false };
                let digest = stored.digest;
                let mut frame = Vec::with_capacity(stream.ring.length_of(sequence).unwrap_or(0));
                stored.put(&mut frame);
                if mark == Mark::Answer {
                    stream.rare().pinned.push(Pinned { sequence, digest, frame: frame.into_boxed_slice() });
                } else {
                    remember_requests(stream.rare(), sequence, &StoredEvent::of(&frame).data);
                }
            }
            Some(Mark::Plain) => {}
        }
        if let Some(rare) = &mut stream.rare {
            rare.forget_prefixes(sequence);
        }
        true
    }
}

impl Rare {
    /// A prefix goes with the last event that was signed under it, unless an answer under it is pinned.
    fn forget_prefixes(&mut self, trimmed: u64) {
        let oldest = self.pinned.iter().map(|pinned| pinned.sequence).min().unwrap_or(trimmed + 1);
        self.older.retain(|(last, _)| *last >= oldest.min(trimmed + 1));
    }
}

/// Keeps the ids of requests that leave the window: somebody may still wait for their answers.
pub(super) fn remember_requests(rare: &mut Rare, sequence: u64, data: &[u8]) {
    envelope::scan_each(data, |message| {
        let id = message.id.as_ref().filter(|_| message.kind == Kind::Request).and_then(OwnedId::of);
        let Some(id) = id.filter(|id| id.bytes() <= MAX_LOST_ID_BYTES) else { return };
        if rare.lost_requests.len() == MAX_LOST_REQUESTS {
            rare.lost_requests.remove(0);
        }
        rare.lost_requests.push((sequence, id));
    });
}
