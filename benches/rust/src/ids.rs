//! Event IDs: what an ID and a digest add to the append of a small event.

use std::hint::black_box;
use std::time::Instant;

use counterfoil_core::ids::{
    write_id, Check, Digest, DigestChain, Epoch, EventId, IdPrefix, KeyRing, RequestId, Scope, Sequence,
    StreamKind, StreamToken,
};
use counterfoil_core::sse::{write_frame, Frame};

const ROUNDS: u64 = 200_000;
const REPEATS: usize = 9;
/// Short runs in turn: on a shared machine some of them are left alone.
const PAIR_ROUNDS: u64 = 20_000;
const PAIRS: usize = 100;

/// Prints one JSON object: nanoseconds per operation, the best of several runs.
pub(crate) fn time_all() {
    let ring = KeyRing::ephemeral([7; 32], 0);
    let Ok(scope) = Scope::new(Some("tenant"), Some("principal"), Some("session")) else { return };
    let Ok(stream) = StreamToken::mint(StreamKind::Call, Some(RequestId::Integer(7)), 1, [9; 12]) else {
        return;
    };
    let epoch = Epoch([3; 8]);
    let tag = ring.tag(&scope, &stream, &epoch);
    let prefix = IdPrefix::new(&stream, &epoch, &tag);
    let chain = DigestChain::start(&ring, &scope, &stream, &epoch);
    let id = EventId { stream, epoch, tag, sequence: Sequence::FIRST, digest: chain.current() };
    let text = id.to_string();

    let mut results = Vec::new();
    for bytes in [20_usize, 120, 500, 2_000, 65_536] {
        let data = vec![b'x'; bytes];
        let rounds = ROUNDS / (1 + bytes as u64 / 500);
        let mut moving = chain.clone();
        results.push((
            format!("digest_{bytes}_ns"),
            best(rounds, |n| {
                black_box(moving.append(sequence(n), b"", black_box(&data)));
            }),
        ));
    }
    let (without, with) = best_pair(&prefix, &chain);
    results.push(("append_120_ns".to_owned(), without));
    results.push(("append_with_digest_120_ns".to_owned(), with));
    let mut out = Vec::with_capacity(256);
    results.push((
        "write_id_ns".to_owned(),
        best(ROUNDS, |n| {
            out.clear();
            write_id(&mut out, &prefix, sequence(n), black_box(Digest(n)));
            black_box(&out);
        }),
    ));
    results.push((
        "parse_id_ns".to_owned(),
        best(ROUNDS, |_| {
            let _ = black_box(EventId::parse(black_box(text.as_bytes())));
        }),
    ));
    results.push((
        "tag_ns".to_owned(),
        best(ROUNDS / 10, |_| {
            black_box(ring.tag(black_box(&scope), &stream, &epoch));
        }),
    ));
    results.push((
        "check_ns".to_owned(),
        best(ROUNDS / 10, |_| {
            black_box(ring.check(black_box(&scope), &id) == Check::Verified);
        }),
    ));
    let members: Vec<_> = results.iter().map(|(name, value)| format!("\"{name}\": {value:.2}")).collect();
    println!("{{\"bench\": \"ids\", {}}}", members.join(", "));
}

/// The same append without and with the digest, in turn, so that both meet the same machine.
fn best_pair(prefix: &IdPrefix, chain: &DigestChain) -> (f64, f64) {
    let data = [b'x'; 120];
    let fixed = chain.current();
    let mut moving = chain.clone();
    let mut without = append(prefix, &data, |_, _| fixed);
    let mut with = append(prefix, &data, |n, data| moving.append(n, b"", data));
    (0..PAIRS).fold((f64::MAX, f64::MAX), |(a, b), _| {
        (a.min(time_once(PAIR_ROUNDS, &mut without)), b.min(time_once(PAIR_ROUNDS, &mut with)))
    })
}

/// One step of a relay after parsing: digest, id, and the frame in a buffer that is kept.
fn append<'a>(
    prefix: &'a IdPrefix,
    data: &'a [u8],
    mut digest: impl FnMut(Sequence, &[u8]) -> Digest + 'a,
) -> impl FnMut(u64) + 'a {
    let mut id = Vec::with_capacity(128);
    let mut out = Vec::with_capacity(1 << 20);
    move |n| {
        let data = black_box(data);
        let sequence = sequence(n);
        let digest = digest(sequence, data);
        id.clear();
        write_id(&mut id, prefix, sequence, digest);
        if out.len() > (1 << 20) - 512 {
            out.clear();
        }
        let frame = Frame { event: b"", id: Some(&id), retry: None, data: Some(data) };
        let _ = black_box(write_frame(&mut out, &frame));
    }
}

fn sequence(n: u64) -> Sequence {
    Sequence::new(n).unwrap_or(Sequence::MAX)
}

fn best(rounds: u64, mut operation: impl FnMut(u64)) -> f64 {
    (0..REPEATS).map(|_| time_once(rounds, &mut operation)).fold(f64::MAX, f64::min)
}

fn time_once(rounds: u64, operation: &mut impl FnMut(u64)) -> f64 {
    let began = Instant::now();
    for n in 1..=rounds {
        operation(n);
    }
    began.elapsed().as_nanos() as f64 / rounds as f64
}
