//! `checks::event_id` on any bytes; `rust/core/tests/event_id_corpus.rs` replays the corpus without libFuzzer.
#![no_main]

#[path = "../../core/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::event_id(input));
