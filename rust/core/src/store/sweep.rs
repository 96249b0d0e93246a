//! What is due: ages, graces, idle streams and sessions, swept by the calls that come.

use super::stream::{EndWhy, State};
use super::Store;

/// Who is looked at next: a stream, or a session with the highest bit set.  There are many of these.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due(u32);

const SESSION: u32 = 1 << 31;

/// The longest that a live stream is not looked at: bounds the entries that calls leave behind.
const MOST_MS: u64 = 600_000;
/// A tombstone is not charged; it names its requests only where they are short.
const MAX_TOMBSTONE_IDS_BYTES: usize = 1024;
/// How many due entries one call looks at, so that no call pays for a crowd.
const PER_CALL: usize = 4;
/// As so many calls a batch counts at most.
const MOST_AT_ONCE: usize = 64;

impl<W> Store<W> {
    /// Takes note of the time and sweeps a little.
    #[inline]
    pub(crate) fn tick(&mut self, now_ms: u64, woken: &mut Vec<W>) {
        self.now_ms = self.now_ms.max(now_ms);
        if self.next_due_ms <= self.now_ms {
            self.sweep_some(PER_CALL, woken);
        }
    }

    /// As `tick`, for a call that does the work of `calls`: it sweeps as much as they would.
    pub(super) fn tick_for(&mut self, calls: usize, now_ms: u64, woken: &mut Vec<W>) {
        self.now_ms = self.now_ms.max(now_ms);
        if self.next_due_ms <= self.now_ms {
            self.sweep_some(PER_CALL * calls.clamp(1, MOST_AT_ONCE), woken);
        }
    }

    /// Whoever would be refused at a bound waits for whatever is due.
    pub(super) fn sweep_due_now(&mut self, woken: &mut Vec<W>) {
        if self.next_due_ms <= self.now_ms {
            self.sweep_some(usize::MAX, woken);
        }
    }

    /// Sweeps everything that is due.
    pub fn sweep(&mut self, now_ms: u64, woken: &mut Vec<W>) {
        self.now_ms = self.now_ms.max(now_ms);
        self.sweep_some(usize::MAX, woken);
    }

    #[cold]
    fn sweep_some(&mut self, most: usize, woken: &mut Vec<W>) {
        self.sweep_due(most, woken);
        self.next_due_ms = self.due.first_key_value().map_or(u64::MAX, |(&due_s, _)| u64::from(due_s) * 1000);
    }

    /// There is something due at `due_s`.
    fn note_due(&mut self, due_s: u32, due: Due) {
        self.next_due_ms = self.next_due_ms.min(u64::from(due_s) * 1000);
        self.due.entry(due_s).or_default().push(due);
    }

    fn sweep_due(&mut self, most: usize, woken: &mut Vec<W>) {
        for _ in 0..most {
            let Some(mut first) = self.due.first_entry() else { return };
            let due_s = *first.key();
            if u64::from(due_s) * 1000 > self.now_ms {
                return;
            }
            match first.get_mut().pop() {
                None => drop(first.remove()),
                Some(Due(entry)) if entry & SESSION == 0 => self.visit_stream(entry, due_s, woken),
                Some(Due(entry)) => self.visit_session(entry & !SESSION, due_s, woken),
            }
        }
    }

    fn visit_stream(&mut self, index: u32, due_s: u32, woken: &mut Vec<W>) {
        if self.streams.get(index).is_none_or(|stream| stream.due_s != due_s) {
            return;
        }
        self.trim_old(index);
        let Some(stream) = self.streams.get(index) else { return };
        let limits = self.limits;
        match stream.state {
            State::Live => {
                let is_idle = stream.touched_ms.saturating_add(limits.stream_idle_ms) <= self.now_ms;
                if is_idle && stream.reader.is_none() {
                    self.counts.idle_ends += 1;
                    self.end_at(index, EndWhy::Idle, woken);
                    return;
                }
            }
            State::Ended(why) => {
                if stream.touched_ms.saturating_add(limits.grace_ms) <= self.now_ms {
                    self.bury(index, why, woken);
                    return;
                }
            }
            State::Tombstone(why) => {
                if stream.touched_ms.saturating_add(limits.tombstone_age_ms) <= self.now_ms {
                    self.purge(index, why, woken);
                    return;
                }
            }
        }
        self.schedule_stream(index);
    }

    /// The grace is over: only where the stream ended is left.
    fn bury(&mut self, index: u32, why: EndWhy, woken: &mut Vec<W>) {
        if self.streams.get(index).is_some_and(|stream| stream.is_kept) || self.limits.tombstones == 0 {
            self.purge(index, why, woken);
            return;
        }
        self.end_readers_of_gone(index, why, woken);
        let Some(stream) = self.streams.get_mut(index) else { return };
        let charge = stream.charge(&self.limits);
        let digest = stream.digest();
        stream.ring.forget(&mut self.slabs, digest);
        if let Some(rare) = &mut stream.rare {
            rare.pinned = Vec::new();
            rare.older = Vec::new();
            rare.lost_requests = Vec::new();
            rare.open = Vec::new();
            if std::mem::take(&mut rare.listed_bytes) > MAX_TOMBSTONE_IDS_BYTES {
                rare.requests = Vec::new();
            }
        }
        stream.state = State::Tombstone(why);
        stream.touched_ms = self.now_ms;
        let session = stream.session;
        self.recharge(session, charge, 0);
        self.let_go_of_stream(session);
        self.counts.ended_streams -= 1;
        self.counts.tombstones += 1;
        if let Some(ticket) = self.streams.ticket(index) {
            self.tombstones.push_back(ticket);
        }
        self.schedule_stream(index);
        while self.counts.tombstones > self.limits.tombstones {
            let Some(oldest) = self.tombstones.pop_front() else { return };
            if let Some(oldest) = self.streams.find(oldest) {
                self.purge(oldest, why, woken);
            }
        }
        self.drop_stale_tombstones();
    }

    /// Entries of streams that are gone must not pile up in front of long-lived ones.
    fn drop_stale_tombstones(&mut self) {
        if self.tombstones.len() > 2 * self.counts.tombstones + 64 {
            let streams = &self.streams;
            self.tombstones.retain(|&ticket| streams.find(ticket).is_some());
        }
    }

    pub(super) fn schedule_stream(&mut self, index: u32) {
        let limits = self.limits;
        let now_ms = self.now_ms;
        let Some(stream) = self.streams.get_mut(index) else { return };
        // An event that comes later is younger, so looking after one whole age is early enough.
        let aged = now_ms.saturating_add(limits.window_age_ms.min(MOST_MS)).saturating_add(2000);
        let due_ms = match stream.state {
            State::Live => {
                let idle = stream.touched_ms.saturating_add(limits.stream_idle_ms);
                // What is past and still live is being read.
                if idle <= now_ms {
                    aged
                } else {
                    idle.min(aged)
                }
            }
            State::Ended(_) => stream.touched_ms.saturating_add(limits.grace_ms).min(aged),
            State::Tombstone(_) => stream.touched_ms.saturating_add(limits.tombstone_age_ms),
        };
        let due_s = seconds(due_ms);
        stream.due_s = due_s;
        self.note_due(due_s, Due(index));
    }

    fn visit_session(&mut self, index: u32, due_s: u32, woken: &mut Vec<W>) {
        let Some(session) = self.sessions.get(index).filter(|session| session.due_s == due_s) else { return };
        let is_old = session.touched_ms.saturating_add(self.limits.session_idle_ms) <= self.now_ms;
        if is_old && (session.is_empty() || session.has_ended) {
            self.forget_session(index, woken);
        } else {
            self.schedule_session(index);
        }
    }

    pub(super) fn schedule_session(&mut self, index: u32) {
        let idle_ms = self.limits.session_idle_ms.max(1);
        let now_ms = self.now_ms;
        let Some(session) = self.sessions.get_mut(index) else { return };
        let idle = session.touched_ms.saturating_add(idle_ms);
        let due_ms = if idle <= now_ms { now_ms.saturating_add(idle_ms) } else { idle };
        let due_s = seconds(due_ms);
        session.due_s = due_s;
        self.note_due(due_s, Due(index | SESSION));
    }
}

/// Up, so that what is due is due when it is looked at; what is more than a century away stays there.
fn seconds(due_ms: u64) -> u32 {
    u32::try_from(due_ms.div_ceil(1000)).unwrap_or(u32::MAX)
}
