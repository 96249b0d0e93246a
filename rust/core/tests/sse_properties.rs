//! Properties over generated streams: against the twin, under any cutting, through the encoder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use proptest::collection::vec;
use proptest::prelude::*;
use support::checks;

fn config() -> ProptestConfig {
    let full = std::env::var("COUNTERFOIL_FULL").is_ok_and(|value| value == "1");
    ProptestConfig {
        cases: if full { 50_000 } else { 1_500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Pieces of which streams are made; strung together at random they reach every branch.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known: &[&[u8]] = &[
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\r\r",
        b"\r\n\r\n",
        b"data",
        b"data:",
        b"data: ",
        b"data: x",
        b"event",
        b"event: t",
        b"id",
        b"id:",
        b"id: 7",
        b"retry",
        b"retry: 25",
        b"retry: 99999999999999999999",
        b":",
        b": c",
        b" ",
        b"\0",
        b"5",
        b"\xEF\xBB\xBF",
        b"\xEF",
        b"\xBB",
        b"\xF0\x9F",
        b"\x80",
        b"unknown: x",
        b"a longer piece of text, over a block of bytes",
    ];
    prop_oneof![8 => proptest::sample::select(known).prop_map(<[u8]>::to_vec), 1 => vec(any::<u8>(), 0..4)]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_parser_gives_what_its_stupid_twin_gives(stream in stream()) {
        checks::sse_diff(&stream);
    }

    #[test]
    fn no_way_of_cutting_changes_anything(lengths in vec(0_u8..20, 0..16), stream in stream()) {
        let mut input = vec![u8::try_from(lengths.len()).unwrap()];
        input.extend(lengths);
        input.extend(stream);
        checks::sse_chunks(&input);
    }

    #[test]
    fn bounds_are_the_same_at_every_cut_and_lose_nothing_before_them(stream in stream()) {
        checks::sse_bytes(&stream);
    }

    #[test]
    fn what_the_encoder_writes_the_parser_reads(flags in any::<u8>(), stream in vec(prop_oneof![
        4 => proptest::sample::select(vec![b'\n', b'\r', b' ', b':', b'd', 0xFF, 0]), 6 => any::<u8>()], 0..60)) {
        let mut input = vec![flags];
        input.extend(stream);
        checks::sse_roundtrip(&input);
    }
}
