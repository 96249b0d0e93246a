//! One text for equal JSON: what makes two calls identical, and what a fingerprint is taken of.
//!
//! Numbers are equal by exact value, strings by code points, objects whatever the order of their
//! members; what readers could take in two ways has no canonical text.

use std::ops::Range;

use thiserror::Error;

/// More digits than any reader keeps make a number's value depend on the reader.
pub const MAX_DIGITS: usize = 400;
/// Digits of the largest exponent.
const MAX_EXPONENT_DIGITS: usize = 6;

/// The text is no JSON that every reader reads alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no JSON that every reader reads alike, from byte {position} on")]
pub struct Ambiguous {
    /// Where it was seen.
    pub position: usize,
}

/// One member of an object: its name and value as canonical text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name as a JSON string, quotes included.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// Appends the canonical text of a JSON text to `out`: ASCII, no white space, members sorted by code points.
///
/// # Errors
/// [`Ambiguous`] for duplicate members, anything but UTF-8, numbers of more than [`MAX_DIGITS`] digits or
/// an exponent of more than six, values at `depth` or deeper, and what is no JSON; `out` is then of no use.
pub fn write_canonical(text: &[u8], depth: usize, out: &mut Vec<u8>) -> Result<(), Ambiguous> {
    let mut reader = Reader::new(text)?;
    reader.value(depth, out)?;
    reader.end()
}

/// Reads the members of an object, in canonical order; None for another value.
///
/// # Errors
/// As [`write_canonical`]; the members' values are at one level less than `depth`.
pub fn read_members(text: &[u8], depth: usize) -> Result<Option<Vec<Member>>, Ambiguous> {
    let mut reader = Reader::new(text)?;
    let mut out = Vec::with_capacity(text.len());
    reader.space();
    if reader.peek() != Some(b'{') {
        reader.value(depth, &mut out)?;
        reader.end()?;
        return Ok(None);
    }
    let found = reader.members(depth, &mut out)?;
    reader.end()?;
    let slice = |range: &Range<usize>| out.get(range.clone()).unwrap_or_default().to_vec();
    Ok(Some(found.iter().map(|each| Member { name: slice(&each.name), value: slice(&each.value) }).collect()))
}

/// What one call asks for, as canonical text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallText {
    /// The value of the member `name` of its params; empty where there is none.
    pub name: Vec<u8>,
    /// Its params without `_meta`.
    pub params: Vec<u8>,
    /// The value of `_meta`; empty where there is none.
    pub meta: Vec<u8>,
}

/// Reads a JSON-RPC message; None unless its `method` is this one (a JSON string) and its params an object.
///
/// # Errors
/// As [`write_canonical`]; the params are at `depth`.
pub fn read_call(text: &[u8], method: &[u8], depth: usize) -> Result<Option<CallText>, Ambiguous> {
    let mut reader = Reader::new(text)?;
    let mut message = Vec::with_capacity(text.len());
    reader.space();
    if reader.peek() != Some(b'{') {
        reader.value(depth + 1, &mut message)?;
        reader.end()?;
        return Ok(None);
    }
    let members = reader.members(depth + 1, &mut message)?;
    reader.end()?;
    let params = value_of(&members, &message, b"\"params\"");
    if value_of(&members, &message, b"\"method\"") != method || !params.starts_with(b"{") {
        return Ok(None);
    }
    let mut reader = Reader { text: params, at: 0 };
    let mut out = Vec::with_capacity(params.len());
    let members = reader.members(depth, &mut out)?;
    let mut kept = Vec::with_capacity(params.len());
    for each in members.iter().filter(|each| out.get(each.name.clone()) != Some(b"\"_meta\"")) {
        kept.push(if kept.is_empty() { b'{' } else { b',' });
        kept.extend_from_slice(out.get(each.name.start..each.value.end).unwrap_or_default());
    }
    if kept.is_empty() {
        kept.push(b'{');
    }
    kept.push(b'}');
    let name = value_of(&members, &out, b"\"name\"").to_vec();
    let meta = value_of(&members, &out, b"\"_meta\"").to_vec();
    Ok(Some(CallText { name, params: kept, meta }))
}

fn value_of<'a>(members: &[Found], out: &'a [u8], name: &[u8]) -> &'a [u8] {
    let found = members.iter().find(|each| out.get(each.name.clone()) == Some(name));
    found.and_then(|each| out.get(each.value.clone())).unwrap_or_default()
}

/// Where a member stands in the output, and what it is sorted by.
struct Found {
    points: Vec<u32>,
    name: Range<usize>,
    value: Range<usize>,
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8]) -> Result<Self, Ambiguous> {
        match std::str::from_utf8(text) {
            Ok(_) => Ok(Self { text, at: 0 }),
            Err(error) => Err(Ambiguous { position: error.valid_up_to() }),
        }
    }

    fn fail<T>(&self) -> Result<T, Ambiguous> {
        Err(Ambiguous { position: self.at })
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Result<(), Ambiguous> {
        if self.peek() != Some(byte) {
            return self.fail();
        }
        self.at += 1;
        Ok(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn end(&mut self) -> Result<(), Ambiguous> {
        self.space();
        if self.at == self.text.len() {
            Ok(())
        } else {
            self.fail()
        }
    }

    fn value(&mut self, depth: usize, out: &mut Vec<u8>) -> Result<(), Ambiguous> {
        self.space();
        if depth == 0 {
            return self.fail();
        }
        match self.peek() {
            Some(b'{') => self.object(depth, out),
            Some(b'[') => self.array(depth, out),
            Some(b'"') => self.string(out, None),
            Some(b'-' | b'0'..=b'9') => self.number(out),
            Some(b't') => self.literal(b"true", out),
            Some(b'f') => self.literal(b"false", out),
            Some(b'n') => self.literal(b"null", out),
            _ => self.fail(),
        }
    }

    fn literal(&mut self, word: &[u8], out: &mut Vec<u8>) -> Result<(), Ambiguous> {
        if !self.text.get(self.at..).unwrap_or_default().starts_with(word) {
            return self.fail();
        }
        self.at += word.len();
        out.extend_from_slice(word);
        Ok(())
    }

    fn array(&mut self, depth: usize, out: &mut Vec<u8>) -> Result<(), Ambiguous> {
        self.take(b'[')?;
        out.push(b'[');
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            out.push(b']');
            return Ok(());
        }
        loop {
            self.value(depth - 1, out)?;
            self.space();
            match self.peek() {
                Some(b',') => out.push(b','),
                Some(b']') => break,
                _ => return self.fail(),
            }
            self.at += 1;
        }
        self.at += 1;
        out.push(b']');
        Ok(())
    }

    fn object(&mut self, depth: usize, out: &mut Vec<u8>) -> Result<(), Ambiguous> {
        let begin = out.len();
        let found = self.members(depth, out)?;
        let mut sorted = Vec::with_capacity(out.len() - begin + 2);
        for each in &found {
            sorted.push(if sorted.is_empty() { b'{' } else { b',' });
            // A member lies in one piece: its name, the colon, its value.
            sorted.extend_from_slice(out.get(each.name.start..each.value.end).unwrap_or_default());
        }
        if sorted.is_empty() {
            sorted.push(b'{');
        }
        sorted.push(b'}');
        out.truncate(begin);
        out.extend_from_slice(&sorted);
        Ok(())
    }

    /// Reads an object; its members lie in `out` in the order of the text, and are returned in theirs.
    fn members(&mut self, depth: usize, out: &mut Vec<u8>) -> Result<Vec<Found>, Ambiguous> {
        let mut found: Vec<Found> = Vec::new();
        self.take(b'{')?;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(found);
        }
        loop {
            self.space();
            let (begin, mut points) = (out.len(), Vec::new());
            self.string(out, Some(&mut points))?;
            let name = begin..out.len();
            self.space();
            self.take(b':')?;
            out.push(b':');
            let begin = out.len();
            self.value(depth.saturating_sub(1), out)?;
            found.push(Found { points, name, value: begin..out.len() });
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return self.fail(),
            }
        }
        self.at += 1;
        found.sort_by(|one, other| one.points.cmp(&other.points));
        if found.windows(2).any(|pair| matches!(pair, [one, other] if one.points == other.points)) {
            return self.fail();
        }
        Ok(found)
    }

    /// Reads a string; `points` also gets its code points, with surrogates that have no partner as they are.
    fn string(&mut self, out: &mut Vec<u8>, mut points: Option<&mut Vec<u32>>) -> Result<(), Ambiguous> {
        self.take(b'"')?;
        out.push(b'"');
        loop {
            let plain = self.plain();
            out.extend_from_slice(plain);
            if let Some(points) = points.as_deref_mut() {
                points.extend(plain.iter().map(|&byte| u32::from(byte)));
            }
            let point = match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(byte) if byte >= 0x7f => self.wide()?,
                _ => return self.fail(),
            };
            write_point(out, point);
            if let Some(points) = points.as_deref_mut() {
                push_point(points, point);
            }
        }
        self.at += 1;
        out.push(b'"');
        Ok(())
    }

    /// Takes the characters that stand for themselves in canonical text too.
    fn plain(&mut self) -> &'a [u8] {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let stands = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        let length = rest.iter().position(|byte| !stands(byte)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    /// Takes one character outside of printable ASCII.
    fn wide(&mut self) -> Result<u32, Ambiguous> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let first = rest.iter().copied().next().unwrap_or_default();
        let length = match first {
            0x7f => 1,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            _ => 4,
        };
        let character = rest.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let Some(character) = character.and_then(|text| text.chars().next()) else { return self.fail() };
        self.at += length;
        Ok(u32::from(character))
    }

    fn escape(&mut self) -> Result<u32, Ambiguous> {
        self.take(b'\\')?;
        let Some(byte) = self.peek() else { return self.fail() };
        let point = match byte {
            b'"' | b'\\' | b'/' => u32::from(byte),
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => 0x0a,
            b'r' => 0x0d,
            b't' => 0x09,
            b'u' => {
                let digits = self.text.get(self.at + 1..self.at + 5).unwrap_or_default();
                if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return self.fail();
                }
                self.at += 4;
                digits.iter().fold(0, |sum, &digit| sum * 16 + char::from(digit).to_digit(16).unwrap_or(0))
            }
            _ => return self.fail(),
        };
        self.at += 1;
        Ok(point)
    }

    fn number(&mut self, out: &mut Vec<u8>) -> Result<(), Ambiguous> {
        let begin = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let whole = self.digits();
        if whole.is_empty() || (whole.len() > 1 && whole.starts_with(b"0")) {
            return self.fail();
        }
        let mut fraction: &[u8] = b"";
        if self.peek() == Some(b'.') {
            self.at += 1;
            fraction = self.digits();
            if fraction.is_empty() {
                return self.fail();
            }
        }
        let exponent = self.exponent()?;
        if self.at - begin > MAX_DIGITS {
            return self.fail();
        }
        let is_negative = self.text.get(begin) == Some(&b'-');
        write_number(out, is_negative, whole, fraction, exponent);
        Ok(())
    }

    fn exponent(&mut self) -> Result<i64, Ambiguous> {
        if !matches!(self.peek(), Some(b'e' | b'E')) {
            return Ok(0);
        }
        self.at += 1;
        let is_negative = self.peek() == Some(b'-');
        if matches!(self.peek(), Some(b'+' | b'-')) {
            self.at += 1;
        }
        let digits = self.digits();
        if digits.is_empty() || digits.len() > MAX_EXPONENT_DIGITS {
            return self.fail();
        }
        let size = digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Ok(if is_negative { -size } else { size })
    }

    fn digits(&mut self) -> &'a [u8] {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }
}

/// Writes `-?digits` without zeros around them, then `e` and the power of ten.
fn write_number(out: &mut Vec<u8>, is_negative: bool, whole: &[u8], fraction: &[u8], exponent: i64) {
    let digits = || whole.iter().chain(fraction).copied();
    let total = whole.len() + fraction.len();
    let Some(first) = digits().position(|digit| digit != b'0') else {
        out.push(b'0');
        return;
    };
    let zeros = digits().rev().take_while(|&digit| digit == b'0').count();
    if is_negative {
        out.push(b'-');
    }
    out.extend(digits().skip(first).take(total - first - zeros));
    let power = exponent - fraction.len() as i64 + zeros as i64;
    if power != 0 {
        out.push(b'e');
        out.extend_from_slice(power.to_string().as_bytes());
    }
}

/// Adds a code point; a low surrogate joins the high one before it.
fn push_point(points: &mut Vec<u32>, point: u32) {
    if let (0xdc00..=0xdfff, Some(high @ 0xd800..=0xdbff)) = (point, points.last().copied()) {
        points.pop();
        points.push(0x1_0000 + ((high - 0xd800) << 10) + (point - 0xdc00));
    } else {
        points.push(point);
    }
}

/// Writes one code point of a string as ASCII.
fn write_point(out: &mut Vec<u8>, point: u32) {
    match point {
        0x22 => out.extend_from_slice(b"\\\""),
        0x5c => out.extend_from_slice(b"\\\\"),
        0x0a => out.extend_from_slice(b"\\n"),
        0x0d => out.extend_from_slice(b"\\r"),
        0x09 => out.extend_from_slice(b"\\t"),
        0x0c => out.extend_from_slice(b"\\f"),
        0x08 => out.extend_from_slice(b"\\b"),
        0x20..=0x7e => out.extend(u8::try_from(point)),
        0x1_0000.. => {
            let rest = point - 0x1_0000;
            write_unit(out, 0xd800 + (rest >> 10));
            write_unit(out, 0xdc00 + (rest & 0x3ff));
        }
        _ => write_unit(out, point),
    }
}

fn write_unit(out: &mut Vec<u8>, unit: u32) {
    out.extend_from_slice(b"\\u");
    for shift in [12, 8, 4, 0] {
        out.extend(char::from_digit((unit >> shift) & 0xf, 16).map(|digit| digit as u8));
    }
}
