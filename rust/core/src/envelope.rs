//! Finds kind, typed id and method of a JSON-RPC message without building it.
//!
//! It is no validator: nested values are skipped by their brackets and strings.  What two readers
//! could understand differently (a member that is there twice, an id that is no id) is `Invalid`.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::{memchr2, memmem};

/// What a JSON-RPC message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Has a method and an id.
    Request,
    /// Has a method and no id.
    Notification,
    /// An answer with a result.
    Result,
    /// An answer with an error.
    Error,
    /// An array of messages (2025-03-26 only).
    Batch,
    /// Not JSON, or no JSON-RPC message.
    Invalid,
}

impl Kind {
    /// Whether it answers a request.
    #[must_use]
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Result | Self::Error)
    }
}

/// A JSON-RPC id with its JSON type: `7`, `"7"` and `7.0` are three ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MessageId<'a> {
    /// An integer of at most 64 bits.
    Integer(i64),
    /// A string, unescaped.
    Text(Cow<'a, str>),
    /// `null`: an error that answers nothing that could be read.
    Null,
    /// Another number, as it stands.
    Number(&'a str),
}

/// One message, as far as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its id, if it has one.
    pub id: Option<MessageId<'a>>,
    /// Its method, if it has one.
    pub method: Option<Cow<'a, str>>,
}

impl Envelope<'_> {
    const fn of(kind: Kind) -> Self {
        Self { kind, id: None, method: None }
    }
}

/// Reads one message.  For a batch only that it is one: see [`scan_each`].
#[must_use]
pub fn scan(data: &[u8]) -> Envelope<'_> {
    let mut scanner = Scanner { data, at: 0 };
    scanner.skip_space();
    match scanner.peek() {
        Some(b'{') => scanner.message().filter(|_| scanner.is_at_end()),
        Some(b'[') => {
            scanner.skip_value().filter(|()| scanner.is_at_end()).map(|()| Envelope::of(Kind::Batch))
        }
        _ => None,
    }
    .unwrap_or(Envelope::of(Kind::Invalid))
}

/// Reads one message, or each message of a batch, and returns whether it was a batch.
pub fn scan_each<'a>(data: &'a [u8], mut visit: impl FnMut(Envelope<'a>)) -> bool {
    let whole = scan(data);
    if whole.kind != Kind::Batch {
        visit(whole);
        return false;
    }
    let mut scanner = Scanner { data, at: 0 };
    scanner.skip_space();
    scanner.at += 1;
    loop {
        scanner.skip_space();
        if matches!(scanner.peek(), Some(b']') | None) {
            return true;
        }
        let start = scanner.at;
        if scanner.skip_value().is_none() {
            return true;
        }
        visit(match scan(&data[start..scanner.at]) {
            // A batch holds messages, not batches.
            inner if inner.kind == Kind::Batch => Envelope::of(Kind::Invalid),
            inner => inner,
        });
        scanner.skip_space();
        if scanner.peek() == Some(b',') {
            scanner.at += 1;
        }
    }
}

#[derive(Default)]
struct Members<'a> {
    id: Option<MessageId<'a>>,
    method: Option<Cow<'a, str>>,
    has_result: bool,
    has_error: bool,
}

impl<'a> Members<'a> {
    fn into_envelope(self) -> Envelope<'a> {
        let kind = match (&self.method, &self.id, self.has_result, self.has_error) {
            (Some(_), Some(MessageId::Null), ..) => Kind::Invalid,
            (Some(_), Some(_), false, false) => Kind::Request,
            (Some(_), None, false, false) => Kind::Notification,
            (None, Some(id), true, false) if *id != MessageId::Null => Kind::Result,
            (None, Some(_), false, true) => Kind::Error,
            _ => Kind::Invalid,
        };
        Envelope { kind, id: self.id, method: self.method }
    }
}

/// The members that say what a message is.
enum Key {
    Id,
    Method,
    Result,
    Error,
    Other,
}

impl Key {
    #[inline]
    fn of(name: &[u8]) -> Self {
        match name {
            b"id" => Self::Id,
            b"method" => Self::Method,
            b"result" => Self::Result,
            b"error" => Self::Error,
            _ => Self::Other,
        }
    }
}

struct Scanner<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.data.get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.data.len()
    }

    fn message(&mut self) -> Option<Envelope<'a>> {
        self.at += 1;
        let mut members = Members::default();
        self.skip_space();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(Envelope::of(Kind::Invalid));
        }
        loop {
            self.skip_space();
            let key = self.key()?;
            self.skip_space();
            if self.peek()? != b':' {
                return None;
            }
            self.at += 1;
            self.skip_space();
            self.member(key, &mut members)?;
            self.skip_space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(members.into_envelope());
                }
                _ => return None,
            }
        }
    }

    /// `None` also for a member that is there twice: readers differ on which one counts.
    fn member(&mut self, key: Key, members: &mut Members<'a>) -> Option<()> {
        match key {
            Key::Id if members.id.is_none() => members.id = Some(self.id()?),
            Key::Method if members.method.is_none() => members.method = Some(self.string()?),
            Key::Result if !members.has_result => {
                members.has_result = true;
                self.skip_value()?;
            }
            Key::Error if !members.has_error => {
                members.has_error = true;
                self.skip_value()?;
            }
            Key::Other => self.skip_value()?,
            _ => return None,
        }
        Some(())
    }

    fn key(&mut self) -> Option<Key> {
        let start = self.at + 1;
        let has_escapes = self.skip_string()?;
        let inside = &self.data[start..self.at - 1];
        if !has_escapes {
            return Some(Key::of(inside));
        }
        let text = unescape(std::str::from_utf8(inside).ok()?)?;
        Some(Key::of(text.as_bytes()))
    }

    fn id(&mut self) -> Option<MessageId<'a>> {
        if self.peek()? == b'"' {
            return self.string().map(MessageId::Text);
        }
        match self.literal()? {
            "null" => Some(MessageId::Null),
            text if is_number(text) => Some(match text.parse() {
                // `-0` is written `0` by every reader that gives it back.
                Ok(number) => MessageId::Integer(number),
                Err(_) => MessageId::Number(text),
            }),
            _ => None,
        }
    }

    /// A string with its quotes; borrowed unless it has escapes.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        let start = self.at + 1;
        let has_escapes = self.skip_string()?;
        let inside = std::str::from_utf8(&self.data[start..self.at - 1]).ok()?;
        if has_escapes {
            unescape(inside).map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(inside))
        }
    }

    /// Moves behind the closing quote, and says whether there was a backslash.
    #[inline]
    fn skip_string(&mut self) -> Option<bool> {
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        let mut has_escapes = false;
        loop {
            self.at += find_quote_or_backslash(&self.data[self.at..])?;
            if self.data[self.at] == b'"' {
                self.at += 1;
                return Some(has_escapes);
            }
            has_escapes = true;
            self.at += 2;
            if self.at > self.data.len() {
                return None;
            }
        }
    }

    /// Moves behind one value of any kind, without recursion.
    fn skip_value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.skip_string().map(|_| ()),
            b'{' | b'[' => self.skip_nested(),
            _ => self.literal().map(|_| ()),
        }
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            self.at += find_structure(&self.data[self.at..])?;
            match self.data[self.at] {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                _ => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return Some(());
                    }
                }
            }
            self.at += 1;
        }
    }

    /// A number, `true`, `false` or `null`, as it stands; not checked further.
    fn literal(&mut self) -> Option<&'a str> {
        let rest = &self.data[self.at..];
        let length = rest
            .iter()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.'))
            .unwrap_or(rest.len());
        if length == 0 {
            return None;
        }
        self.at += length;
        std::str::from_utf8(&rest[..length]).ok()
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// The top bit of each byte of `word` that is `byte`, exact up to the first one.
#[inline]
const fn matches_in(word: u64, byte: u8) -> u64 {
    let zeros = word ^ (ONES * byte as u64);
    zeros.wrapping_sub(ONES) & !zeros & TOPS
}

/// Eight bytes at a time: strings are short as a rule, and a call into the vector search costs more.
#[inline]
fn find_quote_or_backslash(rest: &[u8]) -> Option<usize> {
    const NEAR: usize = 64;
    let mut at = 0;
    while let Some(word) = rest.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        if at == NEAR {
            return memchr2(b'"', b'\\', &rest[at..]).map(|found| at + found);
        }
        let word = u64::from_le_bytes(*word);
        let found = matches_in(word, b'"') | matches_in(word, b'\\');
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    rest[at..].iter().position(|&byte| byte == b'"' || byte == b'\\').map(|found| at + found)
}

/// The next quote or bracket.
#[inline]
fn find_structure(rest: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = rest.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*word);
        // Square and curly brackets differ in one bit.
        let folded = word | (ONES * 0x20);
        let found = matches_in(word, b'"') | matches_in(folded, b'{') | matches_in(folded, b'}');
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let is_structure = |byte: &u8| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']');
    rest[at..].iter().position(is_structure).map(|found| at + found)
}

/// Whether the message can have a member `id` at all; false only if it certainly has none.
/// `has_backslash` is known to callers that have looked for other bytes as well.
#[must_use]
pub fn may_have_id(data: &[u8], has_backslash: bool) -> bool {
    static ID: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b"\"id\""));
    // An `i` or a `d` can also be written as an escape of its number, 0x69 and 0x64.
    ID.find(data).is_some() || (has_backslash && memmem::find(data, b"\\u006").is_some())
}

/// The grammar of RFC 8259, section 6.
fn is_number(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    let digits =
        |at: usize| bytes[at.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(at);
    if whole == 0 || (whole > 1 && bytes[at] == b'0') {
        return false;
    }
    at += whole;
    if bytes.get(at) == Some(&b'.') {
        let part = digits(at + 1);
        if part == 0 {
            return false;
        }
        at += 1 + part;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let part = digits(at);
        if part == 0 {
            return false;
        }
        at += part;
    }
    at == bytes.len()
}

/// The escapes of RFC 8259, section 7; a lone surrogate is no text.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = *rest.as_bytes().get(at + 1)?;
        rest = rest.get(at + 2..)?;
        out.push(match escape {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut unit = hex4(&mut rest)?;
                if (0xD800..0xDC00).contains(&unit) {
                    rest = rest.strip_prefix("\\u")?;
                    let low = hex4(&mut rest)?.checked_sub(0xDC00).filter(|&low| low < 0x400)?;
                    unit = 0x10000 + ((unit - 0xD800) << 10) + low;
                }
                char::from_u32(unit)?
            }
            _ => return None,
        });
    }
    out.push_str(rest);
    Some(out)
}

fn hex4(rest: &mut &str) -> Option<u32> {
    let digits = rest.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    *rest = &rest[4..];
    u32::from_str_radix(digits, 16).ok()
}
