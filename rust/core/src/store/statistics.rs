//! Counters of a store; they name no session and no stream.

/// Rows of the table in `resume`, 1 to 14.
pub const ROWS: usize = 15;

/// What a store did and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Live streams.
    pub live_streams: usize,
    /// Ended streams in their grace.
    pub ended_streams: usize,
    /// Tombstones.
    pub tombstones: usize,
    /// Sessions that are not known to have ended.
    pub sessions: usize,
    /// Sessions that are remembered to have ended.
    pub ended_sessions: usize,
    /// Readers, parked ones included.
    pub readers: usize,
    /// Bytes charged, reserves included.
    pub charged_bytes: usize,
    /// Events that can be replayed.
    pub window_events: usize,
    /// Bytes of pages that windows hold.
    pub window_bytes: usize,
    /// Bytes held from the allocator for pages.
    pub held_bytes: usize,
    /// Streams that were looked up for a resume.
    pub lookups: u64,
    /// Events appended.
    pub appended: u64,
    /// Events that left a window because it was full in number.
    pub trimmed_events: u64,
    /// … in bytes.
    pub trimmed_bytes: u64,
    /// … because they were too old.
    pub trimmed_age: u64,
    /// … because the total budget was used up.
    pub trimmed_budget: u64,
    /// Events that got a sequence and were never kept.
    pub trimmed_at_birth: u64,
    /// Answers that were refused as too large.
    pub too_large: u64,
    /// Streams and sessions that were refused at a bound.
    pub refused: u64,
    /// Sessions without streams that were forgotten to make room for others.
    pub forgotten_sessions: u64,
    /// Readers that another one took over.
    pub taken_over: u64,
    /// Readers that fell out of the window.
    pub too_slow: u64,
    /// Streams that were ended because nobody used them.
    pub idle_ends: u64,
    /// Resumes by row of the table.
    pub rows: [u64; ROWS],
}
