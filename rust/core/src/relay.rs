//! The relay step of a gateway: an upstream chunk in, its events appended under our IDs, one call per chunk.
//!
//! It judges no continuity: whether the upstream's stream goes on is decided by whoever feeds it, on
//! what a [`Report`] says was seen.  What is not ours to store (echoes, comments, events of another
//! name, data that is no JSON-RPC) is reported and not appended.

use std::ops::Range;

use crate::envelope::{self, Envelope, Kind, MessageId};
use crate::ids::{Scope, StreamToken};
use crate::sse::{BlockRef, End, EventRef, ParseError, Parser, ParserLimits, Sink};
use crate::store::{Run, Store, StoreError};

/// What one thing in a chunk was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// An event that was appended.
    Appended,
    /// An event that took its sequence and was trimmed at birth.
    Trimmed,
    /// An event that the stream does not take: an answer without room, or anything after its end.
    Refused,
    /// An event with empty data.
    Echo,
    /// A comment line.
    Comment,
    /// An event of another name than `message`, or with the data `{}`.
    Dropped,
    /// An event whose data is no JSON-RPC message.  Nothing behind it is taken, and the cursor stays
    /// before it: the upstream breaks its own rules there, and is asked again from our position.
    Invalid,
    /// A block without data: its id has moved the upstream's cursor.
    Block,
}

/// A span of [`Report::text`].
type Span = Range<u32>;

/// An id in a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeenId {
    /// The message has none.
    None,
    /// `null`.
    Null,
    /// An integer.
    Integer(i64),
    /// A string.
    Text(Span),
    /// Another number.
    Number(Span),
}

/// One thing that was seen, in the order of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it was.
    pub what: What,
    /// What the message is; `Invalid` where there is none.
    pub kind: Kind,
    /// The message's id.
    pub id: SeenId,
    /// The message's method, the comment's text, or the name of a dropped event.
    pub text: Span,
    /// Its sequence in our stream; 0 where it has none.
    pub sequence: u64,
}

/// What one chunk held.
#[derive(Debug, Default)]
pub struct Report {
    /// Everything that was seen, in order.
    pub seen: Vec<Seen>,
    /// What the spans of `seen` point into.
    pub text: Vec<u8>,
    /// Why an event was refused, if one was.
    pub refused: Option<StoreError>,
    /// Why the upstream's bytes are read no further.
    pub failed: Option<ParseError>,
    /// The upstream's last `retry`, if this chunk had one.
    pub retry_ms: Option<u64>,
    /// The stream has all its answers now.
    pub has_ended: bool,
}

impl Report {
    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        self.seen.clear();
        self.text.clear();
        (self.refused, self.failed, self.retry_ms, self.has_ended) = (None, None, None, false);
    }

    /// The text of a span.
    #[must_use]
    pub fn text_of(&self, span: &Span) -> &[u8] {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    fn keep(&mut self, text: &[u8]) -> Span {
        let start = self.text.len() as u32;
        self.text.extend_from_slice(text);
        // A chunk's texts are bounded by the parser, far below 4 GiB.
        start..self.text.len() as u32
    }

    fn note(&mut self, what: What, envelope: &Envelope<'_>, sequence: u64) {
        let id = match &envelope.id {
            None => SeenId::None,
            Some(MessageId::Null) => SeenId::Null,
            Some(MessageId::Integer(number)) => SeenId::Integer(*number),
            Some(MessageId::Text(text)) => SeenId::Text(self.keep(text.as_bytes())),
            Some(MessageId::Number(text)) => SeenId::Number(self.keep(text.as_bytes())),
        };
        let text = match &envelope.method {
            Some(method) => self.keep(method.as_bytes()),
            None => 0..0,
        };
        self.seen.push(Seen { what, kind: envelope.kind, id, text, sequence });
    }

    fn note_text(&mut self, what: What, text: &[u8]) {
        let text = self.keep(text);
        self.seen.push(Seen { what, kind: Kind::Invalid, id: SeenId::None, text, sequence: 0 });
    }
}

/// The relay of one upstream connection into one stream.
pub struct Relay {
    parser: Parser,
    stream: StreamToken,
    /// Append whatever has data, JSON-RPC or not.
    takes_anything: bool,
    /// The upstream's id of the last event that was appended or dropped: what its next connection asks with.
    cursor: Vec<u8>,
    /// Met something invalid.
    is_stopped: bool,
}

impl Relay {
    /// A relay into `stream`; `last_event_id` is what the upstream connection was opened with.
    #[must_use]
    pub fn new(
        limits: ParserLimits,
        stream: StreamToken,
        last_event_id: &[u8],
        takes_anything: bool,
    ) -> Self {
        Self {
            parser: Parser::with_last_event_id(limits, last_event_id),
            stream,
            takes_anything,
            cursor: last_event_id.to_vec(),
            is_stopped: false,
        }
    }

    /// The stream that is appended to.
    #[must_use]
    pub fn stream(&self) -> &StreamToken {
        &self.stream
    }

    /// The upstream's last event ID as of the last thing that was taken; it moves with the append.
    #[must_use]
    pub fn cursor(&self) -> &[u8] {
        &self.cursor
    }

    /// Takes a chunk; what was in it stands in `report` (cleared first).
    ///
    /// An event that is refused stops nothing: the others are appended, and the report says so.
    ///
    /// # Errors
    /// [`StoreError::UnknownStream`] or [`StoreError::SessionEnded`]: nothing was taken.
    pub fn feed<W>(
        &mut self,
        store: &mut Store<W>,
        scope: &Scope,
        chunk: &[u8],
        now_ms: u64,
        report: &mut Report,
        woken: &mut Vec<W>,
    ) -> Result<(), StoreError> {
        report.clear();
        store.tick(now_ms, woken);
        let index = store.find(scope, &self.stream)?;
        let mut sink = Appending {
            run: None,
            store,
            index,
            takes_anything: self.takes_anything,
            cursor: &mut self.cursor,
            is_stopped: &mut self.is_stopped,
            report,
            woken,
        };
        let fed = self.parser.feed(chunk, &mut sink);
        sink.end_run();
        report.failed = fed.err();
        Ok(())
    }

    /// The upstream's connection is over; an unfinished event is discarded.
    pub fn end(&mut self) -> End {
        self.parser.end()
    }
}

struct Appending<'a, W> {
    store: &'a mut Store<W>,
    index: u32,
    takes_anything: bool,
    cursor: &'a mut Vec<u8>,
    is_stopped: &'a mut bool,
    report: &'a mut Report,
    woken: &'a mut Vec<W>,
    run: Option<Run>,
}

impl<W> Appending<'_, W> {
    /// Whether a notification (or what is taken unread) was appended the short way.
    fn take_plain(&mut self, event: &EventRef<'_>, envelope: &Envelope<'_>) -> bool {
        if event.data_lines != 1 || !matches!(envelope.kind, Kind::Notification | Kind::Invalid) {
            return false;
        }
        if self.run.is_none() {
            self.run = self.store.begin_run(self.index);
        }
        let Some(run) = &mut self.run else { return false };
        let Some((sequence, _)) = self.store.append_plain(run, event.data) else { return false };
        self.report.note(What::Appended, envelope, sequence.get());
        true
    }

    fn end_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.store.end_run(run, self.woken);
        }
    }

    fn take(&mut self, event: &EventRef<'_>) {
        let is_message = matches!(event.event, b"" | b"message");
        if event.data.is_empty() {
            self.report.note_text(What::Echo, event.id.unwrap_or_default());
            return;
        }
        if !is_message || event.data == b"{}" {
            self.report.note_text(What::Dropped, event.event);
            return;
        }
        let envelope = envelope::scan_briefly(event.data);
        if envelope.kind == Kind::Invalid && !self.takes_anything {
            self.report.note(What::Invalid, &envelope, 0);
            *self.is_stopped = true;
            return;
        }
        if self.take_plain(event, &envelope) {
            return;
        }
        self.end_run();
        match self.store.append_event(self.index, event, &envelope, self.woken) {
            Ok(appended) => {
                let what = if appended.is_kept { What::Appended } else { What::Trimmed };
                self.report.note(what, &envelope, appended.sequence);
                self.report.has_ended |= appended.has_ended;
            }
            Err(error) => {
                self.report.note(What::Refused, &envelope, 0);
                self.report.refused = Some(error);
            }
        }
    }

    fn move_cursor(&mut self, id: Option<&[u8]>, retry: Option<u64>) {
        if let Some(id) = id {
            self.cursor.clear();
            self.cursor.extend_from_slice(id);
        }
        if retry.is_some() {
            self.report.retry_ms = retry;
        }
    }
}

impl<W> Sink for Appending<'_, W> {
    fn event(&mut self, event: EventRef<'_>) {
        if *self.is_stopped {
            return;
        }
        self.take(&event);
        if !*self.is_stopped {
            self.move_cursor(event.id, event.retry);
        }
    }

    fn comment(&mut self, text: &[u8]) {
        self.report.note_text(What::Comment, text);
    }

    fn block_without_data(&mut self, block: BlockRef<'_>) {
        if *self.is_stopped {
            return;
        }
        self.report.note_text(What::Block, block.id.unwrap_or_default());
        self.move_cursor(block.id, block.retry);
    }
}
