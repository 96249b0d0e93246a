//! `support::checks::sse_bytes` on any bytes; `rust/core/tests/fuzz_corpus.rs` replays the corpus without libFuzzer.
#![no_main]

#[path = "../../core/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|input: &[u8]| support::checks::sse_bytes(input));
