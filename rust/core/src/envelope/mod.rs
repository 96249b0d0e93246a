//! Finds kind, typed id and method of a JSON-RPC message without building it.
//!
//! It is no validator: nested values are skipped by their brackets and strings.  What two readers
//! could understand differently (a member that is there twice, an id that is no id) is `Invalid`.

mod blocks;
mod scanner;

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::{memchr, memmem};

use scanner::Scanner;

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
    scan_until(data, false)
}

/// As [`scan`], but a message that has no member `id` anywhere is read up to its method only: nobody waits
/// for a notification, and what follows its method is for whoever gets it.
#[must_use]
pub fn scan_briefly(data: &[u8]) -> Envelope<'_> {
    scan_until(data, !may_have_id(data, memchr(b'\\', data).is_some()))
}

/// How a notification begins, up to the quote before its method.
const USUAL: &[u8] = br#"{"jsonrpc":"2.0","method":""#;

fn scan_until(data: &[u8], until_method: bool) -> Envelope<'_> {
    let mut scanner = Scanner { data, at: 0 };
    if until_method && data.starts_with(USUAL) {
        // As nearly everybody writes them; the same is found below.
        scanner.at = USUAL.len() - 1;
        if let Some(method) = scanner.string().filter(|_| data.trim_ascii_end().ends_with(b"}")) {
            return Envelope { kind: Kind::Notification, id: None, method: Some(method) };
        }
        scanner.at = 0;
    }
    scanner.skip_space();
    match scanner.peek() {
        Some(b'{') => blocks::scan_object(data, scanner.at, until_method),
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
    /// `None` also for a member that is there twice: readers differ on which one counts.
    fn take(&mut self, key: Key, value: &mut Scanner<'a>) -> Option<()> {
        match key {
            Key::Id if self.id.is_none() => self.id = Some(value.id()?),
            Key::Method if self.method.is_none() => self.method = Some(value.string()?),
            Key::Result if !self.has_result => {
                self.has_result = true;
            }
            Key::Error if !self.has_error => {
                self.has_error = true;
            }
            Key::Other => {}
            _ => return None,
        }
        Some(())
    }

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

/// Whether the message can have a member `id` at all; false only if it certainly has none.
/// `has_backslash` is known to callers that have looked for other bytes as well.
#[must_use]
pub fn may_have_id(data: &[u8], has_backslash: bool) -> bool {
    static ID: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b"\"id\""));
    // An `i` or a `d` can also be written as an escape of its number, 0x69 and 0x64.
    ID.find(data).is_some() || (has_backslash && memmem::find(data, b"\\u006").is_some())
}
