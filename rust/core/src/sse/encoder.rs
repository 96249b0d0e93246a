//! Writes frames that every conforming parser reads back as what was meant.
//!
//! It refuses what could forge a field or an event instead of escaping it: SSE has no escapes.

use memchr::{memchr2, memchr3};
use thiserror::Error;

/// One event to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame<'a> {
    /// The event type; empty writes no `event` line.
    pub event: &'a [u8],
    /// `Some(b"")` writes an empty `id` line, which resets the reader's cursor; `None` writes none.
    pub id: Option<&'a [u8]>,
    /// The reconnection time in milliseconds.
    pub retry: Option<u64>,
    /// `None` writes no `data` line, and a reader makes no event of it.  CR, LF and CRLF all end a
    /// line, so a reader gets each of them back as LF.
    pub data: Option<&'a [u8]>,
}

/// Why a frame was not written.  Nothing was appended to the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The event type holds CR, LF or NUL.
    #[error("the event type holds CR, LF or NUL at byte {position}, which would break the stream")]
    Event {
        /// Where, within the event type.
        position: usize,
    },
    /// The id holds CR, LF or NUL.
    #[error("the id holds CR, LF or NUL at byte {position}, which would break the stream")]
    Id {
        /// Where, within the id.
        position: usize,
    },
}

/// Appends one frame with its blank line to `out`.
///
/// # Errors
/// [`EncodeError`] when the event type or the id holds CR, LF or NUL; `out` is then unchanged.
pub fn write_frame(out: &mut Vec<u8>, frame: &Frame<'_>) -> Result<(), EncodeError> {
    if let Some(position) = memchr3(b'\r', b'\n', 0, frame.event) {
        return Err(EncodeError::Event { position });
    }
    let id = frame.id.unwrap_or_default();
    if let Some(position) = memchr3(b'\r', b'\n', 0, id) {
        return Err(EncodeError::Id { position });
    }
    let data = frame.data.unwrap_or_default();
    // Field names, separators and the digits of a `retry`; more only when data has several lines.
    out.reserve(frame.event.len() + id.len() + data.len() + 64);
    if !frame.event.is_empty() {
        write_field(out, b"event:", frame.event);
    }
    if frame.id.is_some() {
        write_field(out, b"id:", id);
    }
    if let Some(retry) = frame.retry {
        write_field(out, b"retry:", retry.to_string().as_bytes());
    }
    if frame.data.is_some() {
        write_lines(out, b"data:", data);
    }
    out.push(b'\n');
    Ok(())
}

/// Appends a comment with a blank line; text of several lines becomes several comment lines.
pub fn write_comment(out: &mut Vec<u8>, text: &[u8]) {
    write_lines(out, b":", text);
    out.push(b'\n');
}

#[inline]
fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    if !value.is_empty() {
        // The space is always written, so that a value may start with one of its own.
        out.push(b' ');
        out.extend_from_slice(value);
    }
    out.push(b'\n');
}

#[inline]
fn write_lines(out: &mut Vec<u8>, name: &[u8], text: &[u8]) {
    let mut rest = text;
    while let Some(at) = memchr2(b'\r', b'\n', rest) {
        write_field(out, name, &rest[..at]);
        let width = if rest[at..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[at + width..];
    }
    write_field(out, name, rest);
}
