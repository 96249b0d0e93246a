//! Chunks joined: the same body for every way of cutting it, and nothing readable out of what is not.
#![allow(clippy::unwrap_used, clippy::panic)]

use counterfoil_core::chunks::ChunkJoiner;
use proptest::prelude::*;

fn join(pieces: &[&[u8]]) -> Vec<u8> {
    let mut joiner = ChunkJoiner::new();
    let mut out = Vec::new();
    for piece in pieces {
        joiner.feed(piece, &mut out);
    }
    out
}

/// The data of a chunked body and what lies behind it; None where it is malformed.
fn read(mut body: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut data = Vec::new();
    loop {
        let end = body.windows(2).position(|pair| pair == b"\r\n")?;
        let line = std::str::from_utf8(&body[..end]).ok()?;
        let size = usize::from_str_radix(line.split(';').next()?.trim_end(), 16).ok()?;
        body = &body[end + 2..];
        if size == 0 {
            return Some((data, body.to_vec()));
        }
        data.extend_from_slice(body.get(..size)?);
        body = body.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

#[test]
fn chunks_of_one_piece_become_one() {
    let out = join(&[b"3\r\nabc\r\n2;name=\"v\"\r\nde\r\n"]);
    assert_eq!(out, b"0000000000000005\r\nabcde\r\n");
}

#[test]
fn the_last_chunk_its_trailers_and_what_follows_pass_as_they_are() {
    let out = join(&[b"1\r\na\r\n00\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\n", b"3\r\nabc"]);
    assert_eq!(out, b"0000000000000001\r\na\r\n0\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\n3\r\nabc".as_slice());
}

#[test]
fn a_piece_without_a_byte_of_the_body_gives_nothing() {
    let mut joiner = ChunkJoiner::new();
    let mut out = Vec::new();
    joiner.feed(b"1", &mut out);
    joiner.feed(b"0;ext", &mut out);
    assert!(out.is_empty());
    joiner.feed(b"\r\n0123", &mut out);
    assert_eq!(out, b"0000000000000004\r\n0123\r\n");
    assert!(!joiner.is_behind());
}

#[test]
fn what_is_no_chunk_comes_out_unreadable() {
    let long = [b"1;".as_slice(), &[b'x'; 5_000]].concat();
    let cases: [&[u8]; 9] = [
        b"g\r\n",
        b"\r\n",
        b"5\nabcde\r\n",
        b"-1\r\n",
        b"0x5\r\nabcde",
        b"5 6\r\nabcde",
        b"11111111111111111\r\na",
        b"3\r\nabcX\n2\r\nde\r\n0\r\n\r\n",
        &long,
    ];
    for case in cases {
        let out = join(&[case]);
        assert!(out.windows(12).any(|part| part == b"unreadable\r\n"), "{case:?}");
        assert_eq!(read(&out), None, "{case:?}");
    }
}

proptest! {
    #[test]
    fn every_way_of_cutting_gives_the_same_data(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        after in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut body = Vec::new();
        for chunk in &chunks {
            body.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n");
        body.extend_from_slice(&after);
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        places.extend([0, body.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
        prop_assert_eq!(read(&join(&pieces)), Some((chunks.concat(), after)));
    }

    #[test]
    fn no_bytes_make_it_give_what_the_chunks_do_not_say(
        input in prop::collection::vec(prop::sample::select(b"0123aF;\r\n x".to_vec()), 0..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let (first, second) = input.split_at(cut.index(input.len() + 1));
        let out = join(&[first, second]);
        if let Some((data, behind)) = read(&out) {
            prop_assert_eq!(read(&input), Some((data, behind)));
        }
    }
}
