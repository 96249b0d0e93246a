//! Reads the strings and literals of a message one after the other.

use std::borrow::Cow;

use memchr::memchr2;

use super::{Key, MessageId};

/// Reads strings and literals one after the other.
pub(super) struct Scanner<'a> {
    pub(super) data: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Scanner<'a> {
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.data.get(self.at).copied()
    }

    #[inline]
    pub(super) fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.data.len()
    }

    pub(super) fn key(&mut self) -> Option<Key> {
        let start = self.at + 1;
        let has_escapes = self.skip_string()?;
        let inside = &self.data[start..self.at - 1];
        if !has_escapes {
            return Some(Key::of(inside));
        }
        let text = unescape(std::str::from_utf8(inside).ok()?)?;
        Some(Key::of(text.as_bytes()))
    }

    pub(super) fn id(&mut self) -> Option<MessageId<'a>> {
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
    pub(super) fn string(&mut self) -> Option<Cow<'a, str>> {
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
    pub(super) fn skip_value(&mut self) -> Option<()> {
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
