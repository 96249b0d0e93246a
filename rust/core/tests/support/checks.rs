//! One function for each fuzz target; plain tests replay the committed corpus through them.

use counterfoil_core::sse::{write_frame, End, Frame, ParserLimits};

use super::kept::{parse, Item};
use super::naive;

/// `sse_bytes`: any bytes, small bounds; nothing panics, and the same bound is named whole or byte by byte.
pub fn sse_bytes(input: &[u8]) {
    let limits = ParserLimits { line_bytes: 48, event_bytes: 96, event_lines: 6 };
    let whole = parse([input], limits, b"");
    assert_eq!(parse(input.chunks(1), limits, b""), whole);
    if let Err(error) = whole.end {
        let (_, _, position) = error.bound().expect("the input was not ended before");
        // What came before the bad byte is what that part of the stream gives by itself.
        let position = usize::try_from(position).unwrap();
        let before = parse([&input[..position]], ParserLimits::UNBOUNDED, b"");
        assert_eq!(whole.items, before.items);
        assert_eq!(whole.last_event_id, before.last_event_id);
    }
}

/// `sse_chunks`: the first byte says how many of the next ones are chunk lengths, used in turn.
pub fn sse_chunks(input: &[u8]) {
    let Some((&count, rest)) = input.split_first() else { return };
    let (lengths, stream) = rest.split_at(usize::from(count % 16).min(rest.len()));
    let whole = parse([stream], ParserLimits::default(), b"seed");
    let mut pieces = Vec::new();
    let mut left = stream;
    for length in lengths.iter().cycle().take(if lengths.is_empty() { 0 } else { stream.len() }) {
        let (piece, later) = left.split_at(usize::from(*length).min(left.len()));
        pieces.push(piece);
        left = later;
    }
    pieces.push(left);
    assert_eq!(parse(pieces, ParserLimits::default(), b"seed"), whole);
}

/// `sse_diff`: the parser against its stupid twin.
pub fn sse_diff(input: &[u8]) {
    let expected = naive::parse(input, b"41");
    assert_eq!(parse([input], ParserLimits::UNBOUNDED, b"41"), expected);
    assert_eq!(parse(input.chunks(3), ParserLimits::UNBOUNDED, b"41"), expected);
}

/// `sse_roundtrip`: three fields, parted by 0xFF, and flags in the first byte.
pub fn sse_roundtrip(input: &[u8]) {
    let Some((&flags, rest)) = input.split_first() else { return };
    let mut fields = rest.splitn(3, |byte| *byte == 0xFF);
    let mut next = || fields.next().unwrap_or_default();
    let (event, id, data) = (next(), next(), next());
    let frame = Frame {
        event,
        id: (flags & 1 != 0).then_some(id),
        retry: (flags & 2 != 0).then_some(u64::from(flags) << 20),
        data: (flags & 4 != 0).then_some(data),
    };
    let mut out = b"data: before\n\n".to_vec();
    let before = out.len();
    let breaks = |field: &[u8]| field.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if write_frame(&mut out, &frame).is_err() {
        assert!(breaks(event) || frame.id.is_some_and(breaks));
        assert_eq!(out.len(), before);
        return;
    }
    assert!(!breaks(event) && !frame.id.is_some_and(breaks));
    out.extend_from_slice(b"data: after\n\n");

    let outcome = parse([out.as_slice()], ParserLimits::UNBOUNDED, b"");
    assert_eq!(outcome.end, Ok(End::Complete));
    let last_event_id = frame.id.unwrap_or_default().to_vec();
    let plain = |text: &[u8], last: &[u8]| Item::Event {
        event: Vec::new(),
        data: text.to_vec(),
        id: None,
        last_event_id: last.to_vec(),
        retry: None,
    };
    let mut expected = vec![plain(b"before", b"")];
    let id = frame.id.map(<[u8]>::to_vec);
    if let Some(data) = frame.data {
        let data = unify(data);
        let last_event_id = last_event_id.clone();
        expected.push(Item::Event { event: event.to_vec(), data, id, last_event_id, retry: frame.retry });
    } else if id.is_some() || frame.retry.is_some() || !event.is_empty() {
        let last_event_id = last_event_id.clone();
        expected.push(Item::Block { event: event.to_vec(), id, last_event_id, retry: frame.retry });
    }
    expected.push(plain(b"after", &last_event_id));
    assert_eq!(outcome.items, expected);
}

/// CR, LF and CRLF, each as one LF.
fn unify(data: &[u8]) -> Vec<u8> {
    let text: Vec<u8> = data.to_vec();
    let mut out = Vec::new();
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'\r' => out.push(b'\n'),
            b'\n' if at > 0 && text[at - 1] == b'\r' => {}
            other => out.push(*other),
        }
    }
    out
}
