//! Joins the chunks of an HTTP/1.1 chunked body: however many a piece of the connection holds, one comes out.
//!
//! Where chunks begin and end means nothing (RFC 9112, section 7.1), and a reader behind this one pays per
//! chunk.  It refuses nothing itself: what it cannot read comes out in a form that the reader refuses.

/// A size line with its extensions, beyond which a body is refused.
const LINE_BYTES: usize = 4096;
/// Digits of a size in an outgoing line.
const SIZE_DIGITS: usize = 16;
/// No size line: a reader of chunks refuses it.
const UNREADABLE: &[u8] = b"unreadable\r\n";

/// Where in a body the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a size line.
    Size,
    /// Before this many bytes of a chunk.
    Data(u64),
    /// Behind a chunk, before its line end.
    Cr,
    Lf,
    /// Behind the last chunk, or behind what could not be read: whatever comes passes as it is.
    Behind,
}

/// What a size line says.
enum Line {
    Size(u64),
    Last,
    Unreadable,
}

/// One body on its way from the connection to its reader.
#[derive(Debug)]
pub struct ChunkJoiner {
    place: Place,
    line: Vec<u8>,
}

impl Default for ChunkJoiner {
    fn default() -> Self {
        Self { place: Place::Size, line: Vec::new() }
    }
}

impl ChunkJoiner {
    /// A joiner that stands before the first size line of a body.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the last chunk has come, or something that is none: what follows passes unchanged.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.place == Place::Behind
    }

    /// Take the next bytes of the connection, and append what the reader is to get in their stead.
    ///
    /// That is nothing where they hold no byte of the body.  Linear in `input`; keeps at most a size line.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) {
        out.reserve(input.len().saturating_add(SIZE_DIGITS + 4));
        if self.is_behind() {
            out.extend_from_slice(input);
            return;
        }
        let start = out.len();
        out.extend_from_slice(&[b'0'; SIZE_DIGITS]);
        out.extend_from_slice(b"\r\n");
        let data_start = out.len();
        let tail = self.join(input, out);
        let size = out.len() - data_start;
        if size == 0 {
            out.truncate(start);
        } else {
            write_size(size, &mut out[start..start + SIZE_DIGITS]);
            out.extend_from_slice(b"\r\n");
        }
        if let Some((line, rest)) = tail {
            out.extend_from_slice(line);
            out.extend_from_slice(rest);
        }
    }

    /// Append the data; give what ends the chunks, if something does, and what lies behind it.
    fn join<'a>(&mut self, input: &'a [u8], out: &mut Vec<u8>) -> Option<(&'static [u8], &'a [u8])> {
        let mut rest = input;
        while !rest.is_empty() {
            match self.place {
                Place::Data(left) => {
                    let whole = usize::try_from(left).unwrap_or(usize::MAX);
                    let taken = whole.min(rest.len());
                    let (data, behind) = rest.split_at(taken);
                    out.extend_from_slice(data);
                    rest = behind;
                    let left = left - taken as u64;
                    self.place = if left == 0 { Place::Cr } else { Place::Data(left) };
                }
                Place::Cr | Place::Lf => {
                    let (wanted, next) =
                        if self.place == Place::Cr { (b'\r', Place::Lf) } else { (b'\n', Place::Size) };
                    if rest[0] != wanted {
                        return Some(self.give_up(rest));
                    }
                    self.place = next;
                    rest = &rest[1..];
                }
                Place::Size => {
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    let (part, behind) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
                    if self.line.len() + part.len() > LINE_BYTES {
                        return Some(self.give_up(rest));
                    }
                    rest = behind;
                    if end.is_none() {
                        self.line.extend_from_slice(part);
                        continue;
                    }
                    match self.read_line(part) {
                        Line::Size(size) => self.place = Place::Data(size),
                        Line::Last => {
                            self.place = Place::Behind;
                            return Some((b"0\r\n", rest));
                        }
                        Line::Unreadable => return Some(self.give_up(rest)),
                    }
                }
                Place::Behind => return Some((b"", rest)),
            }
        }
        None
    }

    fn give_up<'a>(&mut self, rest: &'a [u8]) -> (&'static [u8], &'a [u8]) {
        self.place = Place::Behind;
        (UNREADABLE, rest)
    }

    /// Read a size line whose end is `part`.
    fn read_line(&mut self, part: &[u8]) -> Line {
        if self.line.is_empty() {
            return read_size(part);
        }
        self.line.extend_from_slice(part);
        let line = read_size(&self.line);
        self.line.clear();
        line
    }
}

/// Read a size line with its line end: hexadecimal digits, and an extension that says nothing to anybody.
fn read_size(line: &[u8]) -> Line {
    let Some(line) = line.strip_suffix(b"\r\n") else { return Line::Unreadable };
    let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, behind) = line.split_at(digits);
    let is_extension = behind.first() == Some(&b';');
    if digits.is_empty() || !(is_extension || behind.iter().all(|byte| matches!(byte, b' ' | b'\t'))) {
        return Line::Unreadable;
    }
    let mut size: u64 = 0;
    for digit in digits {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => digit - b'A' + 10,
        };
        let Some(shifted) = size.checked_mul(16) else { return Line::Unreadable };
        size = shifted | u64::from(value);
    }
    if size == 0 {
        return Line::Last;
    }
    Line::Size(size)
}

fn write_size(size: usize, digits: &mut [u8]) {
    let mut left = size;
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[left & 15];
        left >>= 4;
    }
}
