//! The stupid twin: the whole input at once, in the order in which the standard states its steps.
//!
//! It shares no code and no idea with the parser: it rewrites all line ends first, then walks lines.

use counterfoil_core::sse::{End, RETRY_CAP_MS};

use super::kept::{Item, Outcome};

#[derive(Default)]
struct Buffers {
    data: Option<Vec<u8>>,
    event: Vec<u8>,
    id: Option<Vec<u8>>,
    retry: Option<u64>,
    has_fields: bool,
}

/// What a conforming parser without bounds must make of `stream`.
pub fn parse(stream: &[u8], seed: &[u8]) -> Outcome {
    let text = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let mut unified = Vec::new();
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'\r' => unified.push(b'\n'),
            b'\n' if at > 0 && text[at - 1] == b'\r' => {}
            other => unified.push(*other),
        }
    }
    let mut lines: Vec<&[u8]> = unified.split(|byte| *byte == b'\n').collect();
    let unfinished = lines.pop().unwrap_or_default();

    let mut outcome = Outcome {
        items: Vec::new(),
        end: Ok(End::Complete),
        last_event_id: seed.to_vec(),
        reconnection_time_ms: None,
    };
    let mut buffers = Buffers::default();
    for line in lines {
        if line.is_empty() {
            dispatch(std::mem::take(&mut buffers), &mut outcome);
        } else if line[0] == b':' {
            outcome.items.push(Item::Comment(after_space(&line[1..])));
        } else {
            let (name, value) = match line.iter().position(|byte| *byte == b':') {
                Some(at) => (&line[..at], after_space(&line[at + 1..])),
                None => (line, Vec::new()),
            };
            take_field(name, value, &mut buffers, &mut outcome);
        }
    }
    let cut_line = !unfinished.is_empty() && unfinished[0] != b':';
    if buffers.has_fields || cut_line {
        outcome.end = Ok(End::Truncated);
    }
    outcome
}

fn after_space(value: &[u8]) -> Vec<u8> {
    if value.first() == Some(&b' ') {
        value[1..].to_vec()
    } else {
        value.to_vec()
    }
}

fn take_field(name: &[u8], value: Vec<u8>, buffers: &mut Buffers, outcome: &mut Outcome) {
    buffers.has_fields = true;
    match name {
        b"event" => buffers.event = value,
        b"data" => {
            let data = buffers.data.get_or_insert_with(Vec::new);
            data.extend(value);
            data.push(b'\n');
        }
        b"id" if !value.contains(&0) => buffers.id = Some(value),
        b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
            let digits = String::from_utf8(value).unwrap();
            let significant = digits.trim_start_matches('0');
            let number = if significant.len() > 19 { u64::MAX } else { significant.parse().unwrap_or(0) };
            buffers.retry = Some(number.min(RETRY_CAP_MS));
            outcome.reconnection_time_ms = buffers.retry;
        }
        _ => {}
    }
}

fn dispatch(buffers: Buffers, outcome: &mut Outcome) {
    if let Some(id) = &buffers.id {
        outcome.last_event_id.clone_from(id);
    }
    let Buffers { data, event, id, retry, .. } = buffers;
    let last_event_id = outcome.last_event_id.clone();
    if let Some(mut data) = data {
        data.pop();
        outcome.items.push(Item::Event { event, data, id, last_event_id, retry });
    } else if id.is_some() || retry.is_some() || !event.is_empty() {
        outcome.items.push(Item::Block { event, id, last_event_id, retry });
    }
}
