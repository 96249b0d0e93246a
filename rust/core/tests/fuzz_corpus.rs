//! Replays the committed corpus of every fuzz target, so that a found input stays found without libFuzzer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use std::path::Path;

use support::checks;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        check(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 10, "{target}: the corpus has {count} inputs");
}

#[test]
fn sse_bytes_corpus_holds() {
    replay("sse_bytes", checks::sse_bytes);
}

#[test]
fn sse_chunks_corpus_holds() {
    replay("sse_chunks", checks::sse_chunks);
}

#[test]
fn sse_diff_corpus_holds() {
    replay("sse_diff", checks::sse_diff);
}

#[test]
fn sse_roundtrip_corpus_holds() {
    replay("sse_roundtrip", checks::sse_roundtrip);
}
