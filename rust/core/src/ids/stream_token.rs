//! The identity of a stream, with what a process that never held it must know about it.

use std::fmt;

use thiserror::Error;

use super::malformed::{Malformed, Part};
use super::text;

/// The largest magnitude of an integer request id, 2^53 - 1 (the integers that JSON carries everywhere).
pub const MAX_REQUEST_INTEGER: i64 = (1 << 53) - 1;
/// The longest text request id.
pub const MAX_REQUEST_TEXT_CHARS: usize = 24;
/// The longest stream token.
pub const MAX_STREAM_CHARS: usize = REQUEST_ID_AT + MAX_REQUEST_TEXT_CHARS;

const RANDOM_AT: usize = 1;
const OWNER_AT: usize = RANDOM_AT + 16;
const REQUEST_ID_AT: usize = OWNER_AT + 6;

/// What a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// The answer to one POSTed request.
    Call,
    /// The session's GET stream.
    Standalone,
}

/// The JSON-RPC id of the call, typed: `7` and `"7"` are two ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestId<'a> {
    /// An integer within ±(2^53 - 1).
    Integer(i64),
    /// At most 24 characters of `[A-Za-z0-9_-]`.
    Text(&'a str),
}

impl RequestId<'_> {
    /// Whether an ID has room for this request id; a call whose id does not fit carries none.
    #[must_use]
    pub fn fits(&self) -> bool {
        match *self {
            Self::Integer(number) => number.unsigned_abs() <= MAX_REQUEST_INTEGER.unsigned_abs(),
            Self::Text(text) => text.len() <= MAX_REQUEST_TEXT_CHARS && text.bytes().all(text::is_base64url),
        }
    }
}

/// Why no token was minted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamTokenError {
    /// A standalone stream answers no request.
    #[error("a standalone stream has no request id")]
    StandaloneWithRequestId,
}

/// A stream's random name (96 bits) with kind, owner and typed request id.
///
/// The text is the identity: two tokens are equal if and only if their texts are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamToken {
    text: [u8; MAX_STREAM_CHARS],
    length: u8,
}

impl StreamToken {
    /// A token from 96 random bits. `owner` says which process holds the stream; 0 when there is one.
    /// A request id that does not fit ([`RequestId::fits`]) is left out: it is an attribute, not a key.
    ///
    /// # Errors
    /// When a standalone stream is given a request id.
    pub fn mint(
        kind: StreamKind,
        request_id: Option<RequestId<'_>>,
        owner: u32,
        random: [u8; 12],
    ) -> Result<Self, StreamTokenError> {
        if kind == StreamKind::Standalone && request_id.is_some() {
            return Err(StreamTokenError::StandaloneWithRequestId);
        }
        let request_id = request_id.filter(RequestId::fits);
        let mut written = Vec::with_capacity(MAX_STREAM_CHARS);
        written.push(match (kind, request_id) {
            (StreamKind::Standalone, _) => b's',
            (StreamKind::Call, None) => b'c',
            (StreamKind::Call, Some(RequestId::Integer(_))) => b'n',
            (StreamKind::Call, Some(RequestId::Text(_))) => b't',
        });
        text::append(&mut written, &random);
        text::append(&mut written, &owner.to_be_bytes());
        match request_id {
            None => {}
            Some(RequestId::Text(value)) => written.extend_from_slice(value.as_bytes()),
            Some(RequestId::Integer(number)) => {
                written.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
        }
        Ok(Self::from_checked(&written))
    }

    /// Reads a token as it stands in an ID.
    ///
    /// # Errors
    /// When `text` is not the one spelling of a token.
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        Self::parse_at(text, 0)
    }

    pub(super) fn parse_at(text: &[u8], start: usize) -> Result<Self, Malformed> {
        let Some(&flag) = text.first() else {
            return Err(Malformed::Empty { part: Part::Stream, position: start });
        };
        if !matches!(flag, b's' | b'c' | b'n' | b't') {
            return Err(Malformed::Character { part: Part::Stream, position: start });
        }
        if text.len() < REQUEST_ID_AT {
            return Err(Malformed::Length { part: Part::Stream, position: start });
        }
        text::decode::<12>(&text[RANDOM_AT..OWNER_AT], Part::Stream, start + RANDOM_AT)?;
        text::decode::<4>(&text[OWNER_AT..REQUEST_ID_AT], Part::Stream, start + OWNER_AT)?;
        let rest = &text[REQUEST_ID_AT..];
        let position = start + REQUEST_ID_AT;
        match flag {
            b'n' => check_integer(rest, position)?,
            b't' => check_text(rest, position)?,
            _ if rest.is_empty() => {}
            _ => return Err(Malformed::Length { part: Part::Stream, position }),
        }
        Ok(Self::from_checked(text))
    }

    fn from_checked(written: &[u8]) -> Self {
        let mut text = [0; MAX_STREAM_CHARS];
        let length = written.len().min(MAX_STREAM_CHARS);
        text[..length].copy_from_slice(&written[..length]);
        // MAX_STREAM_CHARS is 47: the cast keeps the value.
        #[allow(clippy::cast_possible_truncation)]
        Self { text, length: length as u8 }
    }

    /// The token as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }

    /// The token as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // ASCII by construction, so the default is never taken.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// What the stream carries.
    #[must_use]
    pub fn kind(&self) -> StreamKind {
        if self.text[0] == b's' {
            StreamKind::Standalone
        } else {
            StreamKind::Call
        }
    }

    /// Which process holds the stream; 0 when there is one.
    #[must_use]
    pub fn owner(&self) -> u32 {
        text::decode::<4>(&self.text[OWNER_AT..REQUEST_ID_AT], Part::Stream, 0).map_or(0, u32::from_be_bytes)
    }

    /// The JSON-RPC id of the call, where the ID carries one.
    #[must_use]
    pub fn request_id(&self) -> Option<RequestId<'_>> {
        let rest = &self.as_str()[REQUEST_ID_AT..];
        match self.text[0] {
            b'n' => rest.parse().ok().map(RequestId::Integer),
            b't' => Some(RequestId::Text(rest)),
            _ => None,
        }
    }
}

fn check_integer(text: &[u8], start: usize) -> Result<(), Malformed> {
    let part = Part::RequestId;
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let position = start + (text.len() - digits.len());
    if digits.is_empty() {
        return Err(Malformed::Empty { part, position });
    }
    // `-0` is a second spelling of `0`, as `007` is of `7`.
    if digits[0] == b'0' && text.len() > 1 {
        return Err(Malformed::LeadingZero { part, position });
    }
    let mut number: i64 = 0;
    for (index, &byte) in digits.iter().enumerate() {
        if !byte.is_ascii_digit() {
            return Err(Malformed::Character { part, position: position + index });
        }
        number = number * 10 + i64::from(byte - b'0');
        if number > MAX_REQUEST_INTEGER {
            return Err(Malformed::TooLarge { part, position: position + index });
        }
    }
    Ok(())
}

fn check_text(text: &[u8], start: usize) -> Result<(), Malformed> {
    if text.len() > MAX_REQUEST_TEXT_CHARS {
        return Err(Malformed::Length { part: Part::RequestId, position: start });
    }
    match text.iter().position(|&byte| !text::is_base64url(byte)) {
        None => Ok(()),
        Some(index) => Err(Malformed::Character { part: Part::RequestId, position: start + index }),
    }
}

impl fmt::Display for StreamToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Debug for StreamToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "StreamToken({self})")
    }
}
