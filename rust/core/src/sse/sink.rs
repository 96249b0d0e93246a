//! What the parser hands out, borrowed for the length of one call.

/// One complete event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRef<'a> {
    /// The event type; empty when the stream named none, which the standard reads as `message`.
    pub event: &'a [u8],
    /// The values of the block's `data` lines, joined with LF.  May be empty: `data:` alone is an event.
    pub data: &'a [u8],
    /// The block's own `id` field: absent, empty and present are three different things.
    pub id: Option<&'a [u8]>,
    /// The last event ID after this block; it sticks until another `id` field changes it.
    pub last_event_id: &'a [u8],
    /// The block's own `retry` field in milliseconds, at most [`crate::sse::RETRY_CAP_MS`].
    pub retry: Option<u64>,
    /// How many `data` lines the block had: with one of them there is no LF in `data`.
    pub data_lines: usize,
}

/// A block that ended without a `data` line: no event, but its `id` has moved the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRef<'a> {
    /// The event type that the block named; empty when it named none.
    pub event: &'a [u8],
    /// The block's own `id` field.
    pub id: Option<&'a [u8]>,
    /// The last event ID after this block.
    pub last_event_id: &'a [u8],
    /// The block's own `retry` field in milliseconds.
    pub retry: Option<u64>,
}

/// Receives what a chunk completes, in the order of the stream.
pub trait Sink {
    /// An event is complete.
    fn event(&mut self, event: EventRef<'_>);

    /// A comment line is complete; `text` is what follows the colon, less one leading space.
    fn comment(&mut self, text: &[u8]) {
        let _ = text;
    }

    /// A block ended that had fields but no `data`; the standard makes no event of it.
    fn block_without_data(&mut self, block: BlockRef<'_>) {
        let _ = block;
    }
}
