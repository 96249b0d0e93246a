//! The incremental parser: bytes in, complete events out, the same for every way of cutting the bytes.
//!
//! It never looks at a byte twice to find a line end, and hands out spans of the chunk wherever an
//! event lies inside one chunk.  It does not decode UTF-8 and does no JSON.

use std::mem;

use memchr::memchr;

use super::limits::{ParseError, ParserLimits};
use super::line_ends::{first_line_end, line_ends, BLOCK_BYTES};
use super::sink::{BlockRef, EventRef, Sink};

const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// A `retry` with more digits than this number is read as this number (292 million years).
pub const RETRY_CAP_MS: u64 = i64::MAX as u64;

/// How the input ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// After a blank line, or between comments.
    Complete,
    /// Inside an event: what was there of it is discarded, and its `id` has moved nothing.
    Truncated,
}

/// An incremental event-stream parser for one connection.
#[derive(Debug)]
pub struct Parser {
    limits: ParserLimits,
    /// Why no more bytes are accepted.
    failed: Option<ParseError>,
    /// Bytes of the stream before the next chunk.
    position: u64,
    /// Bytes of a BOM seen at the start of the stream; `BOM.len()` when that question is settled.
    bom: usize,
    /// The last byte was a CR that ended a line: an LF that follows belongs to it.
    after_cr: bool,
    /// A line that the end of a chunk has cut.
    line: Vec<u8>,
    block: Block,
    /// The last event ID as of the last blank line.
    last_event_id: Vec<u8>,
    reconnection_time_ms: Option<u64>,
}

/// The block that is open, as far as it had to be copied.
#[derive(Debug, Default)]
struct Block {
    /// A field line (of any name) has been seen since the last blank line.
    open: bool,
    /// Position of the first field's first byte.
    start: u64,
    lines: usize,
    data: Vec<u8>,
    data_lines: usize,
    event: Vec<u8>,
    id: Vec<u8>,
    has_id: bool,
    retry: Option<u64>,
}

/// Parts of the open block that still lie in the chunk and were not copied.
#[derive(Default, Clone, Copy)]
struct Spans<'c> {
    /// The only `data` line so far.
    data: Option<&'c [u8]>,
    event: Option<&'c [u8]>,
    id: Option<&'c [u8]>,
}

impl Parser {
    /// A parser whose last event ID is empty.
    #[must_use]
    pub fn new(limits: ParserLimits) -> Self {
        Self::with_last_event_id(limits, b"")
    }

    /// A parser for a connection that resumes after `last_event_id`.
    #[must_use]
    pub fn with_last_event_id(limits: ParserLimits, last_event_id: &[u8]) -> Self {
        Self {
            limits,
            failed: None,
            position: 0,
            bom: 0,
            after_cr: false,
            line: Vec::new(),
            block: Block::default(),
            last_event_id: last_event_id.to_vec(),
            reconnection_time_ms: None,
        }
    }

    /// The last event ID as of the last blank line; what a reconnection would send.
    #[must_use]
    pub fn last_event_id(&self) -> &[u8] {
        &self.last_event_id
    }

    /// The value of the last valid `retry` field, at most [`RETRY_CAP_MS`].
    #[must_use]
    pub fn reconnection_time_ms(&self) -> Option<u64> {
        self.reconnection_time_ms
    }

    /// Bytes of the stream that were accepted so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The error that ended this parser.
    #[must_use]
    pub fn error(&self) -> Option<ParseError> {
        self.failed
    }

    /// Bytes held for what is not complete yet.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.line.len() + self.block.data.len() + self.block.event.len() + self.block.id.len()
    }

    /// Takes the next bytes of the stream and hands every completed event to `sink`.
    ///
    /// # Errors
    /// [`ParseError`] when a bound is passed, now and at every later call.  What was complete before
    /// the bad byte has been handed out by then.
    pub fn feed<S: Sink>(&mut self, chunk: &[u8], sink: &mut S) -> Result<(), ParseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.scan(chunk, sink);
        match result {
            Ok(()) => self.position += chunk.len() as u64,
            Err(error) => self.close(error),
        }
        result
    }

    /// Ends the input.  An unfinished event is discarded, as the standard asks.
    pub fn end(&mut self) -> End {
        let end = self.how_it_ends();
        self.close(ParseError::Ended);
        end
    }

    /// Ends the input, but hands out an unfinished event that has data, for servers that leave out
    /// the last blank line.  Its `id` still moves nothing: `last_event_id` is the one before it.
    pub fn end_leniently<S: Sink>(&mut self, sink: &mut S) -> End {
        let end = self.how_it_ends();
        if end == End::Truncated && self.failed.is_none() {
            let line = mem::take(&mut self.line);
            let mut spans = Spans::default();
            if !line.is_empty() {
                self.take_line(&line, 0, &mut spans, sink);
            }
            self.keep(spans);
            if self.block.data_lines > 0 {
                sink.event(EventRef {
                    event: &self.block.event,
                    data: &self.block.data,
                    id: self.block.has_id.then_some(&self.block.id),
                    last_event_id: &self.last_event_id,
                    retry: self.block.retry,
                    data_lines: self.block.data_lines,
                });
            }
        }
        self.close(ParseError::Ended);
        end
    }

    fn how_it_ends(&self) -> End {
        let cut_bom = (1..BOM.len()).contains(&self.bom);
        let cut_field = self.line.first().is_some_and(|&first| first != b':');
        if self.block.open || cut_bom || cut_field {
            End::Truncated
        } else {
            End::Complete
        }
    }

    /// Accepts nothing more, and gives the memory back.
    fn close(&mut self, error: ParseError) {
        self.failed.get_or_insert(error);
        self.line = Vec::new();
        self.block = Block::default();
        self.bom = BOM.len();
    }

    fn scan<S: Sink>(&mut self, chunk: &[u8], sink: &mut S) -> Result<(), ParseError> {
        if let [byte] = chunk {
            // Byte by byte, nearly every byte only makes a cut line longer.
            if !self.line.is_empty() && !matches!(byte, b'\r' | b'\n') {
                self.line.push(*byte);
                return self.check(&self.line, self.position + 1 - self.line.len() as u64);
            }
        }
        let mut start = self.skip_bom(chunk);
        if start == chunk.len() {
            return Ok(());
        }
        if self.after_cr {
            self.after_cr = false;
            start += usize::from(chunk[start] == b'\n');
        }
        let mut cut = mem::take(&mut self.line);
        let mut spans = Spans::default();
        if !cut.is_empty() {
            let from = self.position + start as u64 - cut.len() as u64;
            let Some(length) = first_line_end(&chunk[start..]) else {
                cut.extend_from_slice(&chunk[start..]);
                self.check(&cut, from)?;
                self.line = cut;
                return Ok(());
            };
            cut.extend_from_slice(&chunk[start..start + length]);
            self.check(&cut, from)?;
            self.take_line(&cut, from, &mut spans, sink);
            start = self.skip_line_end(chunk, start + length);
        }
        start = self.take_lines(chunk, start, &mut spans, sink)?;
        self.keep(spans);
        if start < chunk.len() {
            self.check(&chunk[start..], self.position + start as u64)?;
            cut.clear();
            cut.extend_from_slice(&chunk[start..]);
            self.line = cut;
        } else if cut.capacity() > 0 {
            cut.clear();
            self.line = cut;
        }
        Ok(())
    }

    /// Reads every line that ends in `chunk`, from `start` on; gives back where the rest starts.
    #[inline]
    fn take_lines<'c, S: Sink>(
        &mut self,
        chunk: &'c [u8],
        mut start: usize,
        spans: &mut Spans<'c>,
        sink: &mut S,
    ) -> Result<usize, ParseError> {
        let mut at = start;
        let mut quiet_blocks = 0;
        while let Some(block) = chunk.get(at..).and_then(|rest| rest.first_chunk::<BLOCK_BYTES>()) {
            let mut mask = line_ends(block);
            if mask == 0 {
                at += BLOCK_BYTES;
                quiet_blocks += 1;
                if quiet_blocks > 1 {
                    // A long line: what is made for searching far is faster than block after block.
                    quiet_blocks = 0;
                    at += first_line_end(&chunk[at..]).unwrap_or(chunk.len() - at);
                }
                continue;
            }
            quiet_blocks = 0;
            while mask != 0 {
                let end = at + mask.trailing_zeros() as usize;
                mask &= mask - 1;
                if end >= start {
                    start = self.take_up_to(chunk, start, end, spans, sink)?;
                }
            }
            at += BLOCK_BYTES;
        }
        at = at.max(start);
        while let Some(length) = first_line_end(&chunk[at..]) {
            start = self.take_up_to(chunk, start, at + length, spans, sink)?;
            at = start;
        }
        Ok(start)
    }

    /// Reads the line `start..end`; gives back where the next one starts (behind both bytes of a CRLF).
    #[inline(always)]
    fn take_up_to<'c, S: Sink>(
        &mut self,
        chunk: &'c [u8],
        start: usize,
        end: usize,
        spans: &mut Spans<'c>,
        sink: &mut S,
    ) -> Result<usize, ParseError> {
        let line = &chunk[start..end];
        if line.is_empty() {
            self.dispatch(spans, sink);
        } else {
            let from = self.position + start as u64;
            self.check(line, from)?;
            self.take_line(line, from, spans, sink);
        }
        Ok(self.skip_line_end(chunk, end))
    }

    /// Removes one leading BOM, however it is cut; gives back where the text starts.
    #[inline]
    fn skip_bom(&mut self, chunk: &[u8]) -> usize {
        let mut at = 0;
        while self.bom < BOM.len() {
            match chunk.get(at) {
                None => return at,
                Some(&byte) if byte == BOM[self.bom] => {
                    self.bom += 1;
                    at += 1;
                }
                Some(_) => {
                    // It was none: its bytes are text (and malformed).
                    self.line.extend_from_slice(&BOM[..self.bom]);
                    self.bom = BOM.len();
                }
            }
        }
        at
    }

    #[inline]
    fn skip_line_end(&mut self, chunk: &[u8], at: usize) -> usize {
        if chunk[at] == b'\r' {
            match chunk.get(at + 1) {
                Some(b'\n') => return at + 2,
                Some(_) => {}
                None => self.after_cr = true,
            }
        }
        at + 1
    }

    /// Refuses a line (or the part of it that has come) that passes a bound; the earliest byte wins.
    #[inline]
    fn check(&self, line: &[u8], from: u64) -> Result<(), ParseError> {
        let inside = self.block.open;
        let block_start = if inside { self.block.start } else { from };
        let block_bytes = from - block_start + line.len() as u64;
        let is_too_long = line.len() > self.limits.line_bytes;
        if is_too_long
            || block_bytes > self.limits.event_bytes as u64
            || self.block.lines >= self.limits.event_lines
        {
            return self.refuse(line, from, block_start);
        }
        Ok(())
    }

    #[cold]
    fn refuse(&self, line: &[u8], from: u64, block_start: u64) -> Result<(), ParseError> {
        let ParserLimits { line_bytes, event_bytes, event_lines } = self.limits;
        let to = from + line.len() as u64;
        let counts = self.block.open || line.first() != Some(&b':');
        let line_end = from.saturating_add(line_bytes as u64);
        // A line end that is one byte too many is only told by the line after it.
        let event_end = block_start.saturating_add(event_bytes as u64).max(from);
        let mut found: Option<(u64, ParseError)> = None;
        let mut consider = |is_passed: bool, position: u64, error: ParseError| {
            if is_passed && found.is_none_or(|(earliest, _)| position < earliest) {
                found = Some((position, error));
            }
        };
        consider(to > line_end, line_end, ParseError::LineBytes { limit: line_bytes, position: line_end });
        let error = ParseError::EventBytes { limit: event_bytes, position: event_end };
        consider(counts && to > event_end, event_end, error);
        let error = ParseError::EventLines { limit: event_lines, position: from };
        consider(counts && self.block.lines >= event_lines, from, error);
        found.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Reads a complete line that is not empty.
    #[inline]
    fn take_line<'c, S: Sink>(&mut self, line: &'c [u8], from: u64, spans: &mut Spans<'c>, sink: &mut S) {
        // The common field first.  No other name needs a search for the colon either.
        if let Some(rest) = line.strip_prefix(b"data:") {
            self.block.add_data(without_space(rest), spans);
        } else if let Some(text) = line.strip_prefix(b":") {
            sink.comment(without_space(text));
            if !self.block.open {
                return;
            }
        } else {
            self.take_field(line, spans);
        }
        if !self.block.open {
            self.block.open = true;
            self.block.start = from;
        }
        self.block.lines += 1;
    }

    fn take_field<'c>(&mut self, line: &'c [u8], spans: &mut Spans<'c>) {
        match line[0] {
            b'd' => {
                if let Some(value) = value_of(line, b"data") {
                    self.block.add_data(value, spans);
                }
            }
            b'e' => {
                if let Some(value) = value_of(line, b"event") {
                    spans.event = Some(value);
                }
            }
            b'i' => match value_of(line, b"id") {
                Some(value) if memchr(0, value).is_none() => spans.id = Some(value),
                _ => {}
            },
            b'r' => {
                if let Some(retry) = value_of(line, b"retry").and_then(milliseconds) {
                    self.block.retry = Some(retry);
                    self.reconnection_time_ms = Some(retry);
                }
            }
            _ => {}
        }
    }

    /// A blank line: commits the id, and hands out the event if there was a `data` line.
    #[inline]
    fn dispatch<'c, S: Sink>(&mut self, spans: &mut Spans<'c>, sink: &mut S) {
        if !self.block.open {
            return;
        }
        let block = &mut self.block;
        let found = mem::take(spans);
        if let Some(id) = found.id {
            self.last_event_id.clear();
            self.last_event_id.extend_from_slice(id);
        } else if block.has_id {
            mem::swap(&mut self.last_event_id, &mut block.id);
        }
        let last_event_id = self.last_event_id.as_slice();
        let id = (found.id.is_some() || block.has_id).then_some(last_event_id);
        let event = found.event.unwrap_or(&block.event);
        let retry = block.retry;
        if block.data_lines > 0 {
            let data = found.data.unwrap_or(&block.data);
            sink.event(EventRef { event, data, id, last_event_id, retry, data_lines: block.data_lines });
        } else if id.is_some() || retry.is_some() || !event.is_empty() {
            sink.block_without_data(BlockRef { event, id, last_event_id, retry });
        }
        block.clear();
    }

    /// Copies what still lies in a chunk that is about to go.
    fn keep(&mut self, spans: Spans<'_>) {
        if let Some(data) = spans.data {
            self.block.data.extend_from_slice(data);
        }
        if let Some(event) = spans.event {
            self.block.event.clear();
            self.block.event.extend_from_slice(event);
        }
        if let Some(id) = spans.id {
            self.block.id.clear();
            self.block.id.extend_from_slice(id);
            self.block.has_id = true;
        }
    }
}

impl Block {
    #[inline]
    fn add_data<'c>(&mut self, value: &'c [u8], spans: &mut Spans<'c>) {
        self.data_lines += 1;
        if self.data_lines == 1 {
            spans.data = Some(value);
            return;
        }
        if let Some(first) = spans.data.take() {
            self.data.extend_from_slice(first);
        }
        self.data.push(b'\n');
        self.data.extend_from_slice(value);
    }

    #[inline]
    fn clear(&mut self) {
        self.open = false;
        self.lines = 0;
        self.data.clear();
        self.data_lines = 0;
        self.event.clear();
        self.has_id = false;
        self.retry = None;
    }
}

/// The value of a line whose field is exactly `name`.
#[inline]
fn value_of<'c>(line: &'c [u8], name: &[u8]) -> Option<&'c [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(&[]),
        [b':', value @ ..] => Some(without_space(value)),
        _ => None,
    }
}

#[inline]
fn without_space(value: &[u8]) -> &[u8] {
    value.strip_prefix(b" ").unwrap_or(value)
}

/// ASCII digits only; a number above the cap is the cap, however many digits it has.
fn milliseconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    for byte in value {
        if !byte.is_ascii_digit() {
            return None;
        }
        total = total.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
    }
    Some(total.min(RETRY_CAP_MS))
}
