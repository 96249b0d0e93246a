//! Promises of the parser that are not rows of a vector file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use counterfoil_core::sse::{BlockRef, End, EventRef, ParseError, Parser, ParserLimits, Sink, RETRY_CAP_MS};

/// Type, data, own id, last event ID, retry.
type Event = (Vec<u8>, Vec<u8>, Option<Vec<u8>>, Vec<u8>, Option<u64>);

/// Keeps everything that a parser hands out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kept {
    events: Vec<Event>,
    comments: Vec<Vec<u8>>,
    blocks: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Sink for Kept {
    fn event(&mut self, event: EventRef<'_>) {
        self.events.push((
            event.event.to_vec(),
            event.data.to_vec(),
            event.id.map(<[u8]>::to_vec),
            event.last_event_id.to_vec(),
            event.retry,
        ));
    }

    fn comment(&mut self, text: &[u8]) {
        self.comments.push(text.to_vec());
    }

    fn block_without_data(&mut self, block: BlockRef<'_>) {
        self.blocks.push((block.event.to_vec(), block.id.map(<[u8]>::to_vec)));
    }
}

fn parse(stream: &[u8], size: usize, limits: ParserLimits) -> (Kept, Result<End, ParseError>, Vec<u8>) {
    let mut kept = Kept::default();
    let mut parser = Parser::new(limits);
    for chunk in stream.chunks(size) {
        if let Err(error) = parser.feed(chunk, &mut kept) {
            return (kept, Err(error), parser.last_event_id().to_vec());
        }
    }
    let end = parser.end();
    (kept, Ok(end), parser.last_event_id().to_vec())
}

fn data_of(kept: &Kept) -> Vec<&str> {
    kept.events.iter().map(|event| std::str::from_utf8(&event.1).unwrap()).collect()
}

#[test]
fn absent_empty_and_present_ids_are_three_things() {
    let (kept, _, last) = parse(b"id: 9\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", 3, ParserLimits::default());
    let ids: Vec<_> = kept.events.iter().map(|event| event.2.as_deref()).collect();
    assert_eq!(ids, [Some(&b"9"[..]), None, Some(&b""[..])]);
    let sticky: Vec<_> = kept.events.iter().map(|event| event.3.as_slice()).collect();
    assert_eq!(sticky, [&b"9"[..], b"9", b""]);
    assert_eq!(last, b"");
}

#[test]
fn a_block_without_data_moves_the_cursor_and_is_seen_by_the_hook_only() {
    let (kept, end, last) = parse(b"event: reset\nid: 50\n\n: hi\n\n", 1, ParserLimits::default());
    assert_eq!((kept.events.len(), end, last), (0, Ok(End::Complete), b"50".to_vec()));
    assert_eq!(kept.blocks, [(b"reset".to_vec(), Some(b"50".to_vec()))]);
    assert_eq!(kept.comments, [b"hi".to_vec()]);
}

#[test]
fn an_unfinished_event_is_discarded_reported_and_its_id_moves_nothing() {
    for size in 1..30 {
        let stream = b"id: 1\ndata: a\n\nid: 2\ndata: last\n";
        let (kept, end, last) = parse(stream, size, ParserLimits::default());
        assert_eq!((data_of(&kept), end, last), (vec!["a"], Ok(End::Truncated), b"1".to_vec()));
    }
}

#[test]
fn the_lenient_end_gives_the_unfinished_event_and_still_moves_nothing() {
    let mut kept = Kept::default();
    let mut parser = Parser::new(ParserLimits::default());
    parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: la", &mut kept).unwrap();
    assert_eq!(parser.end_leniently(&mut kept), End::Truncated);
    let expected = (Vec::new(), b"la".to_vec(), Some(b"2".to_vec()), b"1".to_vec(), None);
    assert_eq!(kept.events.last(), Some(&expected));
    assert_eq!(parser.last_event_id(), b"1");
    assert_eq!(parser.feed(b"data: b\n\n", &mut kept), Err(ParseError::Ended));
}

#[test]
fn a_seeded_last_event_id_sticks_until_the_stream_changes_it() {
    let mut kept = Kept::default();
    let mut parser = Parser::with_last_event_id(ParserLimits::default(), b"41");
    parser.feed(b"data: a\n\nid: 42\ndata: b\n\n", &mut kept).unwrap();
    let sticky: Vec<_> = kept.events.iter().map(|event| event.3.as_slice()).collect();
    assert_eq!(sticky, [&b"41"[..], b"42"]);
}

#[test]
fn a_retry_of_thousands_of_digits_is_the_cap() {
    let stream = [b"retry: ".as_slice(), &b"9".repeat(5_000), b"\ndata: x\n\n"].concat();
    let (kept, _, _) = parse(&stream, 7, ParserLimits::default());
    assert_eq!(kept.events[0].4, Some(RETRY_CAP_MS));
}

#[test]
fn cursor_and_delay_are_known_as_soon_as_the_blank_line_is_there() {
    let mut kept = Kept::default();
    let mut parser = Parser::new(ParserLimits::default());
    for byte in b"id: 7\nretry: 25\ndata:\n\n" {
        assert!(kept.events.is_empty());
        parser.feed(&[*byte], &mut kept).unwrap();
    }
    assert_eq!(kept.events.len(), 1);
    assert_eq!((parser.last_event_id(), parser.reconnection_time_ms()), (&b"7"[..], Some(25)));
}

#[test]
fn a_bound_is_named_with_the_same_byte_at_every_cut_and_nothing_before_it_is_lost() {
    let limits = ParserLimits { line_bytes: 20, event_bytes: 40, event_lines: 4 };
    let good = b"\xef\xbb\xbfdata: good\nid: 1\n\n";
    let at = good.len() as u64;
    let line = ParseError::LineBytes { limit: 20, position: at + 20 };
    let event = ParseError::EventBytes { limit: 40, position: at + 40 };
    let lines = ParseError::EventLines { limit: 4, position: at + 28 };
    let cases: [(&[u8], ParseError); 9] = [
        (b"data: 345678901234567890", line),
        (b"id: 56789012345678901", line),
        (b":23456789012345678901", line),
        (b"unknown: 012345678901", line),
        (b"data: 6789012345\r\ndata: 6789012345\r\ndata: 6789", event),
        (b"data: 6789012345\n: 3456789012345678\ndata: 6789", event),
        (b"id: 567890123456\r\nid: 5678901234567\r\nid: 67890", event),
        (b"data:x\ndata:x\ndata:x\ndata:x\n\n", lines),
        (b"data:x\n:ata:x\nid  :x\n:ata:x\n:\n\n", lines),
    ];
    for (bad, expected) in cases {
        let stream = [good.as_slice(), bad].concat();
        if stream.len() < 60 && expected == lines && bad.len() < 30 {
            // Exactly at the bound: four lines are allowed.
            assert_eq!(parse(&stream, 5, limits).1, Ok(End::Complete));
            continue;
        }
        for size in 1..=stream.len() {
            let (kept, error, last) = parse(&stream, size, limits);
            assert_eq!(
                (error, data_of(&kept), last),
                (Err(expected), vec!["good"], b"1".to_vec()),
                "{bad:?} by {size}"
            );
        }
    }
}

#[test]
fn after_an_error_the_parser_says_so_for_ever_after() {
    let mut kept = Kept::default();
    let mut parser = Parser::new(ParserLimits { line_bytes: 4, ..ParserLimits::default() });
    let error = parser.feed(b"data: x\n\n", &mut kept).unwrap_err();
    assert_eq!(error.bound(), Some(("line_bytes", 4, 4)));
    assert_eq!(parser.feed(b"\n", &mut kept), Err(error));
    assert_eq!(parser.feed(b"", &mut kept), Err(error));
    parser.end();
    assert_eq!(parser.error(), Some(error));
    assert_eq!(parser.held_bytes(), 0);
}

#[test]
fn floods_without_payload_are_bounded() {
    let limits = ParserLimits::default();
    let (_, error, _) = parse(&b"data\n".repeat(1_000_000), 65_536, limits);
    assert_eq!(error, Err(ParseError::EventLines { limit: 1 << 16, position: 5 << 16 }));
    let inside = [b"data\n".as_slice(), &b":\n".repeat(1_000_000)].concat();
    let (_, error, _) = parse(&inside, 65_536, limits);
    assert_eq!(error, Err(ParseError::EventLines { limit: 1 << 16, position: 3 + (2 << 16) }));
    let id = [b"id: ".as_slice(), &vec![b'x'; 32 << 20]].concat();
    assert_eq!(
        parse(&id, 65_536, limits).1,
        Err(ParseError::LineBytes { limit: 16 << 20, position: 16 << 20 })
    );
    // Comments outside a block hold nothing, so a keep-alive that runs for a year is no flood.
    let mut kept = Kept::default();
    let mut parser = Parser::new(limits);
    parser.feed(&b":\n".repeat(1_000_000), &mut kept).unwrap();
    assert_eq!(parser.held_bytes(), 0);
}

#[test]
fn empty_chunks_do_not_use_up_the_bom() {
    let mut kept = Kept::default();
    let mut parser = Parser::new(ParserLimits::default());
    for chunk in [b"".as_slice(), b"", b"", b"\xef", b"", b"\xbb", b"\xbf", b"data: x\n\n"] {
        parser.feed(chunk, &mut kept).unwrap();
    }
    assert_eq!(data_of(&kept), ["x"]);
}
