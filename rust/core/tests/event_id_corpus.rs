//! Replays the corpus of the fuzz target `event_id` without libFuzzer.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;

mod checks;

#[test]
fn every_input_of_the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/event_id");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        checks::event_id(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 40, "the corpus has {inputs} inputs");
}
