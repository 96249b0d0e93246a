//! The bounds of a store; every one has a name that errors and statistics repeat.

use crate::ring::{MAX_FRAME_BYTES, PAGE_BYTES};

/// What a store may hold.  Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Events in the window of one stream.
    pub window_events: usize,
    /// Stored bytes in the window of one stream.
    pub window_bytes: usize,
    /// Age at which an event leaves the window.
    pub window_age_ms: u64,
    /// Bytes of one event's data.
    pub event_bytes: usize,
    /// Bytes charged to all streams together.
    pub total_bytes: usize,
    /// Bytes of `total_bytes` that each live stream is sure of, whatever the others do.
    pub reserve_bytes: usize,
    /// How many times what is free of `total_bytes` one tenant's principal may hold.
    pub principal_share: usize,
    /// Live streams, and those in their grace.
    pub streams: usize,
    /// Live streams of one session.
    pub session_streams: usize,
    /// Sessions that are not known to have ended.
    pub sessions: usize,
    /// How long an ended stream can still be read.
    pub grace_ms: u64,
    /// Tombstones of streams whose grace is over.
    pub tombstones: usize,
    /// Age of a tombstone.
    pub tombstone_age_ms: u64,
    /// How long a live stream may be without an append and without a reader.
    pub stream_idle_ms: u64,
    /// How long a session without streams is remembered, and one that has ended.
    pub session_idle_ms: u64,
    /// Sessions that are remembered to have ended.
    pub ended_sessions: usize,
}

/// The smallest reserve: an in-band error must always fit.
pub const MIN_RESERVE_BYTES: usize = 2 * PAGE_BYTES;
/// What a stream is charged beside its pages.
pub const STREAM_BYTES: usize = 512;

/// A bound that no store can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} = {value} is refused: it must be {needed}")]
pub struct LimitError {
    /// The bound.
    pub name: &'static str,
    /// What was asked for.
    pub value: usize,
    /// What is possible.
    pub needed: &'static str,
}

impl StoreLimits {
    /// Refuses what would make a promise impossible.
    ///
    /// # Errors
    /// When a bound is 0, the reserve has no room for an in-band error, or an event exceeds 1 GiB.
    pub fn check(&self) -> Result<(), LimitError> {
        for (name, value) in [
            ("window_events", self.window_events),
            ("window_bytes", self.window_bytes),
            ("event_bytes", self.event_bytes),
            ("principal_share", self.principal_share),
            ("streams", self.streams),
            ("session_streams", self.session_streams),
            ("sessions", self.sessions),
        ] {
            if value == 0 {
                return Err(LimitError { name, value, needed: "at least 1" });
            }
        }
        for (name, value) in [("event_bytes", self.event_bytes), ("window_bytes", self.window_bytes)] {
            // The frame around the data must stay addressable as well.
            if value > MAX_FRAME_BYTES / 2 {
                return Err(LimitError { name, value, needed: "at most 512 MiB" });
            }
        }
        if self.reserve_bytes < MIN_RESERVE_BYTES {
            return Err(LimitError {
                name: "reserve_bytes",
                value: self.reserve_bytes,
                needed: "at least 2 KiB, so that an in-band error always fits",
            });
        }
        if self.total_bytes < self.reserve_bytes + STREAM_BYTES {
            return Err(LimitError {
                name: "total_bytes",
                value: self.total_bytes,
                needed: "at least reserve_bytes + 512, or no stream fits",
            });
        }
        Ok(())
    }
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            window_events: 1024,
            window_bytes: 1 << 20,
            window_age_ms: 900_000,
            event_bytes: 16 << 20,
            total_bytes: 256 << 20,
            reserve_bytes: 8 << 10,
            principal_share: 8,
            streams: 1 << 16,
            session_streams: 32,
            sessions: 20_000,
            grace_ms: 120_000,
            tombstones: 1 << 16,
            tombstone_age_ms: 3_600_000,
            stream_idle_ms: 6 * 3_600_000,
            session_idle_ms: 24 * 3_600_000,
            ended_sessions: 1 << 16,
        }
    }
}
