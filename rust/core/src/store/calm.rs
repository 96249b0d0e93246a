//! Slows whoever comes back to one stream again and again without getting anything from it.
//!
//! One stock client does so 600 times a second, and another loses its session at any refusal: so it is to be
//! held, never refused, and never when there is something to read.  Holding is for the caller; counting is done
//! here, where every connection of a stream is seen.

use std::collections::HashMap;

use super::arena::Ticket;
use super::Seed;

const WITHIN_MS: u64 = 10_000;
/// So many in that time are free.
const FREE: usize = 3;
const FIRST_MS: u64 = 500;
const LONGEST_MS: u64 = 15_000;
/// Times that are kept of one stream: enough for the longest hold.
const TIMES: usize = 16;
/// Streams that are known at once.
const KNOWN: usize = 10_000;

/// The connections of the last ten seconds that carried no data, by stream.
pub(super) struct Calm {
    times: HashMap<Ticket, Vec<u64>, Seed>,
}

impl Calm {
    pub(super) fn new(seed: Seed) -> Self {
        Self { times: HashMap::with_hasher(seed) }
    }

    /// Notes a connection; how long it is to be held.
    pub(super) fn note(&mut self, stream: Ticket, now_ms: u64) -> u64 {
        if self.times.len() >= KNOWN && !self.times.contains_key(&stream) {
            self.forget_some(now_ms);
        }
        let times = self.times.entry(stream).or_default();
        times.retain(|&at| at + WITHIN_MS >= now_ms);
        if times.len() == TIMES {
            times.remove(0);
        }
        times.push(now_ms);
        match times.len().checked_sub(FREE + 1) {
            None => 0,
            Some(above) => (FIRST_MS << above).min(LONGEST_MS),
        }
    }

    /// A connection of this stream carried data: it makes progress.
    pub(super) fn note_data(&mut self, stream: Ticket) {
        self.times.remove(&stream);
    }

    /// Keeps the later half, whatever it takes.
    fn forget_some(&mut self, now_ms: u64) {
        let mut within_ms = WITHIN_MS;
        while self.times.len() > KNOWN / 2 && within_ms > 0 {
            self.times.retain(|_, times| times.last().is_some_and(|&at| at + within_ms > now_ms));
            within_ms /= 2;
        }
        if self.times.len() > KNOWN / 2 {
            self.times.clear();
        }
        self.times.shrink_to(KNOWN);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::arena::Arena;
    use super::*;

    #[test]
    fn no_more_streams_are_known_than_the_bound_says() {
        let mut calm = Calm::new(Seed(1));
        let mut streams = Arena::default();
        for number in 0..3 * KNOWN as u64 {
            calm.note(streams.insert(number), number / 1000);
        }
        assert!(calm.times.len() <= KNOWN);
        for _ in 0..3 * KNOWN {
            calm.note(streams.insert(0), 50_000);
        }
        assert!(calm.times.len() <= KNOWN);
    }
}
