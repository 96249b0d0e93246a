//! Everything that a parser hands out, owned.

use counterfoil_core::sse::{BlockRef, End, EventRef, ParseError, Parser, ParserLimits, Sink};

/// An event, a comment, or a block without data, in the order of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Event { event: Vec<u8>, data: Vec<u8>, id: Option<Vec<u8>>, last_event_id: Vec<u8>, retry: Option<u64> },
    Comment(Vec<u8>),
    Block { event: Vec<u8>, id: Option<Vec<u8>>, last_event_id: Vec<u8>, retry: Option<u64> },
}

/// What one stream gave, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub items: Vec<Item>,
    pub end: Result<End, ParseError>,
    pub last_event_id: Vec<u8>,
    pub reconnection_time_ms: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Keep(pub Vec<Item>);

impl Sink for Keep {
    fn event(&mut self, event: EventRef<'_>) {
        self.0.push(Item::Event {
            event: event.event.to_vec(),
            data: event.data.to_vec(),
            id: event.id.map(<[u8]>::to_vec),
            last_event_id: event.last_event_id.to_vec(),
            retry: event.retry,
        });
    }

    fn comment(&mut self, text: &[u8]) {
        self.0.push(Item::Comment(text.to_vec()));
    }

    fn block_without_data(&mut self, block: BlockRef<'_>) {
        self.0.push(Item::Block {
            event: block.event.to_vec(),
            id: block.id.map(<[u8]>::to_vec),
            last_event_id: block.last_event_id.to_vec(),
            retry: block.retry,
        });
    }
}

/// Feeds the pieces one after the other, and ends.
pub fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: ParserLimits, seed: &[u8]) -> Outcome {
    let mut keep = Keep::default();
    let mut parser = Parser::with_last_event_id(limits, seed);
    let mut failed = None;
    for piece in pieces {
        if let Err(error) = parser.feed(piece, &mut keep) {
            failed = Some(error);
            break;
        }
    }
    let end = parser.end();
    Outcome {
        items: keep.0,
        end: failed.map_or(Ok(end), Err),
        last_event_id: parser.last_event_id().to_vec(),
        reconnection_time_ms: parser.reconnection_time_ms(),
    }
}

/// Every class of cutting: whole, 1, 7 and 1024 bytes, and (for short streams) in two at every place.
pub fn cuttings(stream: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut all: Vec<Vec<&[u8]>> = vec![vec![stream]];
    all.extend([1, 7, 1024].map(|size| stream.chunks(size).collect()));
    if stream.len() <= 1024 {
        all.extend((0..=stream.len()).map(|at| vec![&stream[..at], b"", &stream[at..]]));
    }
    all
}
