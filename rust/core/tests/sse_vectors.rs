//! The vectors that Python reads too, under every class of cutting.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::path::{Path, PathBuf};

use counterfoil_core::sse::{write_frame, End, Frame, Parser, ParserLimits};
use serde::Deserialize;
use serde_json::Value;
use support::kept::{cuttings, parse, Item, Keep, Outcome};
use support::naive;

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    given: Value,
    expect: Value,
}

fn cases_in(folder: &str) -> Vec<(String, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        let parsed: File = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        all.extend(parsed.cases.into_iter().map(|case| (stem.clone(), case)));
    }
    all
}

/// One character for each byte.
fn stream_of(case: &Case) -> Vec<u8> {
    case.given["stream"].as_str().unwrap().chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

fn limits_of(case: &Case) -> ParserLimits {
    let Some(limits) = case.given.get("limits") else { return ParserLimits::default() };
    let read = |name: &str| usize::try_from(limits[name].as_u64().unwrap()).unwrap();
    ParserLimits {
        line_bytes: read("line_bytes"),
        event_bytes: read("event_bytes"),
        event_lines: read("event_lines"),
    }
}

fn text(bytes: &[u8]) -> Value {
    Value::from(String::from_utf8_lossy(bytes))
}

fn type_of(event: &[u8]) -> Value {
    if event.is_empty() {
        Value::from("message")
    } else {
        text(event)
    }
}

fn event_value(item: &Item) -> Option<Value> {
    let Item::Event { event, data, id, last_event_id, retry } = item else { return None };
    Some(serde_json::json!({
        "event": type_of(event), "data": text(data), "id": id.as_deref().map(text),
        "last_event_id": text(last_event_id), "retry_ms": retry,
    }))
}

fn check(name: &str, case: &Case, outcome: &Outcome) {
    let expect = &case.expect;
    let events: Vec<Value> = outcome.items.iter().filter_map(event_value).collect();
    assert_eq!(Value::from(events), expect["events"], "{name}: events");
    assert_eq!(text(&outcome.last_event_id), expect["last_event_id"], "{name}: last event ID");
    assert_eq!(Value::from(outcome.reconnection_time_ms), expect["reconnection_time_ms"], "{name}: retry");
    match outcome.end {
        Ok(end) => assert_eq!(Value::from(end == End::Truncated), expect["truncated"], "{name}: truncated"),
        Err(error) => {
            let (bound, limit, position) = error.bound().unwrap();
            let found = serde_json::json!({"bound": bound, "limit": limit, "position": position});
            assert_eq!(found, expect["error"], "{name}: error");
        }
    }
    if let Some(comments) = expect.get("comments") {
        let found: Vec<Value> = outcome
            .items
            .iter()
            .filter_map(|i| if let Item::Comment(t) = i { Some(text(t)) } else { None })
            .collect();
        assert_eq!(&Value::from(found), comments, "{name}: comments");
    }
    if let Some(blocks) = expect.get("blocks") {
        let block = |item: &Item| match item {
            Item::Block { event, id, .. } => {
                Some(serde_json::json!({"event": type_of(event), "id": id.as_deref().map(text)}))
            }
            _ => None,
        };
        let found: Vec<Value> = outcome.items.iter().filter_map(block).collect();
        assert_eq!(&Value::from(found), blocks, "{name}: blocks");
    }
}

#[test]
fn every_vector_holds_under_every_cutting() {
    let cases = cases_in("sse");
    assert!(cases.len() >= 130, "{}", cases.len());
    for (file, case) in &cases {
        let stream = stream_of(case);
        let seed = case.given.get("last_event_id").and_then(Value::as_str).unwrap_or_default();
        for pieces in cuttings(&stream) {
            let name = format!("{file}::{} in {} pieces", case.name, pieces.len());
            check(&name, case, &parse(pieces, limits_of(case), seed.as_bytes()));
        }
        if case.given.get("limits").is_none() {
            check(
                &format!("{file}::{} by the twin", case.name),
                case,
                &naive::parse(&stream, seed.as_bytes()),
            );
        }
    }
}

#[test]
fn an_unfinished_event_is_given_by_the_lenient_end_only() {
    for (file, case) in &cases_in("sse") {
        let Some(incomplete) = case.expect.get("incomplete") else { continue };
        let stream = stream_of(case);
        for pieces in cuttings(&stream) {
            let mut keep = Keep::default();
            let mut parser = Parser::new(ParserLimits::default());
            for piece in pieces {
                parser.feed(piece, &mut keep).unwrap();
            }
            assert_eq!(parser.end_leniently(&mut keep), End::Truncated);
            let events: Vec<Value> = keep.0.iter().filter_map(event_value).collect();
            assert_eq!(events.last(), Some(incomplete), "{file}::{}", case.name);
            assert_eq!(text(parser.last_event_id()), case.expect["last_event_id"]);
        }
    }
}

#[test]
fn the_encoder_writes_what_the_vectors_say() {
    let cases = cases_in("sse_encoder");
    assert!(cases.len() >= 20);
    for (_, case) in &cases {
        let field = |name: &str| case.given.get(name).and_then(Value::as_str).map(str::as_bytes);
        let retry = case.given.get("retry").and_then(Value::as_u64);
        let frame =
            Frame { event: field("event").unwrap_or_default(), id: field("id"), retry, data: field("data") };
        let mut out = b"x".to_vec();
        let result = write_frame(&mut out, &frame);
        match case.expect.get("frame").and_then(Value::as_str) {
            Some(written) => assert_eq!(out, [b"x", written.as_bytes()].concat(), "{}", case.name),
            None => {
                let error = result.unwrap_err().to_string();
                let word = if case.expect["refused"] == "id" { "the id" } else { "the event type" };
                assert!(error.starts_with(word), "{}: {error}", case.name);
                assert_eq!(out, b"x");
            }
        }
    }
}
