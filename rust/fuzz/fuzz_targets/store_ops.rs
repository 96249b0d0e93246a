//! Any bytes are steps of a store and of its twin of lists; `rust/core/tests/store_model.rs` replays the corpus.
#![no_main]

#[path = "../../core/tests/store_twin/mod.rs"]
mod store_twin;

libfuzzer_sys::fuzz_target!(|input: &[u8]| store_twin::run(&store_twin::decode(input)));
