//! The store against lists: all missed events in order or none, one budget, and reserves that nobody takes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod store_twin;

use std::path::Path;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        if std::env::var_os("COUNTERFOIL_FULL").is_some() { 20_000 } else { 400 }
    ))]

    #[test]
    fn all_missed_events_in_order_or_none_and_nobody_takes_anothers_reserve(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        store_twin::run(&store_twin::decode(&bytes));
    }
}

#[test]
fn store_ops_corpus_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/store_ops");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        store_twin::run(&store_twin::decode(&bytes));
        count += 1;
    }
    assert!(count >= 10, "store_ops: the corpus has {count} inputs");
}
