//! Promises of the event-ID codec, for generated values: one spelling, bounded, bound to its scope.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use counterfoil_core::ids::{
    parse_key_file, write_id, write_key_file, Check, DigestChain, Epoch, EventId, IdError, Key, KeyFileError,
    KeyRing, Malformed, RequestId, Scope, Sequence, StreamKind, StreamToken, MAX_ID_BYTES,
    MAX_REQUEST_INTEGER, MAX_SCOPE_PART_BYTES,
};
use proptest::prelude::*;

/// The longest ID that the grammar allows, as `docs/wire.md` works it out.
const LONGEST: usize = 118;

fn ring() -> KeyRing {
    KeyRing::new(Key::new([7; 32], 1, None), vec![]).unwrap()
}

fn request_id() -> impl Strategy<Value = Option<RequestId<'static>>> {
    prop_oneof![
        Just(None),
        (-MAX_REQUEST_INTEGER..=MAX_REQUEST_INTEGER).prop_map(|number| Some(RequestId::Integer(number))),
        "[A-Za-z0-9_-]{0,24}".prop_map(|text| Some(RequestId::Text(Box::leak(text.into_boxed_str())))),
    ]
}

fn stream() -> impl Strategy<Value = StreamToken> {
    (any::<bool>(), request_id(), any::<u32>(), any::<[u8; 12]>()).prop_map(|(alone, id, owner, random)| {
        let (kind, id) = if alone { (StreamKind::Standalone, None) } else { (StreamKind::Call, id) };
        StreamToken::mint(kind, id, owner, random).unwrap()
    })
}

fn scope() -> impl Strategy<Value = Scope> {
    let part = || proptest::option::of("[ab\u{e9}.]{0,3}");
    (part(), part(), part()).prop_map(|(tenant, principal, session)| {
        Scope::new(tenant.as_deref(), principal.as_deref(), session.as_deref()).unwrap()
    })
}

fn sequence() -> impl Strategy<Value = Sequence> {
    prop_oneof![
        Just(Sequence::ZERO),
        Just(Sequence::MAX),
        (0..=Sequence::MAX.get()).prop_map(|n| Sequence::new(n).unwrap())
    ]
}

fn id_of(scope: &Scope, stream: StreamToken, epoch: Epoch, sequence: Sequence) -> EventId {
    let ring = ring();
    let digest = DigestChain::start(&ring, scope, &stream, &epoch).current();
    EventId { stream, epoch, tag: ring.tag(scope, &stream, &epoch), sequence, digest }
}

proptest! {
    #[test]
    fn an_id_survives_the_round_trip(
        scope in scope(), stream in stream(), epoch in any::<[u8; 8]>(), sequence in sequence(),
    ) {
        let id = id_of(&scope, stream, Epoch(epoch), sequence);
        let text = id.to_string();
        prop_assert!(text.len() <= LONGEST);
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
        prop_assert_eq!(EventId::parse(text.as_bytes()), Ok(id));
        let mut written = Vec::new();
        write_id(&mut written, &id.prefix(), sequence, id.digest);
        prop_assert_eq!(written, text.into_bytes());
    }

    #[test]
    fn whatever_parses_is_written_back_to_the_same_bytes(
        stream in stream(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let id = id_of(&Scope::default(), stream, Epoch([3; 8]), Sequence::FIRST);
        let mut text = id.to_string().into_bytes();
        let at = at.index(text.len());
        if cut { text.truncate(at); } else { text[at] = byte; }
        match EventId::parse(&text) {
            Ok(read) => prop_assert_eq!(read.to_string().into_bytes(), text),
            Err(IdError::Malformed { position, .. }) => prop_assert!(position <= text.len()),
            Err(_) => prop_assert!(at < 4),
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut prefixed = b"cf1.".to_vec();
        prefixed.extend(&text);
        for text in [&text, &prefixed] {
            if let Ok(id) = EventId::parse(text) {
                prop_assert_eq!(&id.to_string().into_bytes(), text);
            }
        }
    }

    #[test]
    fn an_id_is_verified_in_its_own_scope_and_in_no_other(
        own in scope(), other in scope(), stream in stream(), epoch in any::<[u8; 8]>(),
    ) {
        let id = id_of(&own, stream, Epoch(epoch), Sequence::FIRST);
        prop_assert_eq!(ring().check(&own, &id), Check::Verified);
        let expected = if own == other { Check::Verified } else { Check::Forged };
        prop_assert_eq!(ring().check(&other, &id), expected);
    }

    #[test]
    fn an_id_of_another_stream_or_epoch_does_not_pass(
        scope in scope(), stream in stream(), other in stream(), epoch in any::<[u8; 8]>(), bit in 0..64_usize,
    ) {
        let id = id_of(&scope, stream, Epoch(epoch), Sequence::FIRST);
        prop_assume!(stream != other);
        prop_assert_eq!(ring().check(&scope, &EventId { stream: other, ..id }), Check::Forged);
        let mut changed = epoch;
        changed[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(ring().check(&scope, &EventId { epoch: Epoch(changed), ..id }), Check::Forged);
    }

    #[test]
    fn the_request_id_comes_back_with_its_type(id in request_id(), owner in any::<u32>()) {
        let stream = StreamToken::mint(StreamKind::Call, id, owner, [9; 12]).unwrap();
        let read = StreamToken::parse(stream.as_bytes()).unwrap();
        prop_assert_eq!((read.request_id(), read.owner(), read.kind()), (id, owner, StreamKind::Call));
    }

    #[test]
    fn a_changed_event_changes_every_digest_after_it(
        events in prop::collection::vec(("[a-c]{0,2}", prop::collection::vec(any::<u8>(), 0..300)), 1..6),
        at in any::<prop::sample::Index>(),
    ) {
        let stream = StreamToken::mint(StreamKind::Standalone, None, 0, [1; 12]).unwrap();
        let mut chain = DigestChain::start(&ring(), &Scope::default(), &stream, &Epoch([2; 8]));
        let mut twin = chain.clone();
        let at = at.index(events.len());
        for (index, (event, data)) in events.iter().enumerate() {
            let sequence = Sequence::new(index as u64 + 1).unwrap();
            let mut other = data.clone();
            if index == at { other.push(b'x'); }
            let same = chain.append(sequence, event.as_bytes(), data) == twin.append(sequence, event.as_bytes(), &other);
            prop_assert_eq!(same, index < at);
        }
    }
}

#[test]
fn every_flipped_bit_of_the_tag_is_found() {
    let scope = Scope::new(Some("t"), None, Some("s")).unwrap();
    let stream = StreamToken::mint(StreamKind::Call, Some(RequestId::Integer(1)), 0, [1; 12]).unwrap();
    let id = id_of(&scope, stream, Epoch([2; 8]), Sequence::FIRST);
    let text = id.to_string();
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let tag_at = text.len() - text.rsplitn(4, '.').collect::<Vec<_>>()[..3].join(".").len();
    let mut flipped = 0;
    for at in tag_at..tag_at + 22 {
        for bit in 0..6 {
            let mut forged = text.clone().into_bytes();
            let value = alphabet.iter().position(|&c| c == forged[at]).unwrap();
            forged[at] = alphabet[value ^ (1 << bit)];
            let expected = if at < tag_at + 6 { Check::UnknownKey } else { Check::Forged };
            assert_eq!(
                ring().check(&scope, &EventId::parse(&forged).unwrap()),
                expected,
                "byte {at} bit {bit}"
            );
            flipped += 1;
        }
    }
    assert_eq!(flipped, 132);
}

#[test]
fn no_byte_moves_from_one_part_of_a_scope_into_the_next() {
    let stream = StreamToken::mint(StreamKind::Standalone, None, 0, [1; 12]).unwrap();
    let scopes = [
        (Some("ab"), Some("c"), None),
        (Some("a"), Some("bc"), None),
        (Some("abc"), None, None),
        (None, Some("abc"), None),
        (None, None, Some("abc")),
        (Some("abc"), Some(""), None),
        (Some("abc"), None, Some("")),
        (None, None, None),
        (Some(""), None, None),
        (None, Some(""), None),
        (Some(""), Some(""), Some("")),
    ];
    let mut tags = std::collections::HashSet::new();
    for (tenant, principal, session) in scopes {
        let scope = Scope::new(tenant, principal, session).unwrap();
        tags.insert(ring().tag(&scope, &stream, &Epoch([2; 8])));
    }
    assert_eq!(tags.len(), scopes.len());
}

#[test]
fn after_a_rotation_old_ids_verify_until_their_key_is_dropped() {
    let scope = Scope::default();
    let stream = StreamToken::mint(StreamKind::Standalone, None, 0, [1; 12]).unwrap();
    let old = ring();
    let id = id_of(&scope, stream, Epoch([2; 8]), Sequence::FIRST);
    let new = old.rotated([8; 32], 100).unwrap();
    assert_eq!(new.check(&scope, &id), Check::Verified);
    let tag = new.tag(&scope, &stream, &Epoch([2; 8]));
    assert_ne!(tag, id.tag);
    assert_eq!(old.check(&scope, &EventId { tag, ..id }), Check::UnknownKey);
    let dropped = new.without(id.tag.key_id()).unwrap();
    assert_eq!(dropped.check(&scope, &id), Check::UnknownKey);
    assert!(new.without(tag.key_id()).is_err(), "the signing key cannot be dropped");
}

#[test]
fn a_seal_holds_for_its_message_and_no_other_bit_of_it_or_of_the_seal() {
    let (ring, message) = (ring(), b"peer\n1.00\nbody".as_slice());
    let seal = ring.seal(message);
    assert_eq!(seal, ring.seal(message));
    assert_eq!(ring.check_seal(message, seal.as_bytes()), Check::Verified);
    for bit in 0..message.len() * 8 {
        let mut other = message.to_vec();
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(ring.check_seal(&other, seal.as_bytes()), Check::Forged, "message bit {bit}");
    }
    assert_eq!(ring.check_seal(&[message, b"x"].concat(), seal.as_bytes()), Check::Forged);
    assert_eq!(ring.check_seal(b"", seal.as_bytes()), Check::Forged);
    for bit in 0..seal.len() * 8 {
        let mut other = seal.as_bytes().to_vec();
        other[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(ring.check_seal(message, &other), Check::Verified, "seal bit {bit}");
    }
}

#[test]
fn text_that_is_no_seal_is_refused() {
    let ring = ring();
    let seal = ring.seal(b"message");
    for cut in 0..seal.len() {
        assert_eq!(ring.check_seal(b"message", &seal.as_bytes()[..cut]), Check::Forged, "{cut} bytes");
    }
    assert_eq!(ring.check_seal(b"message", format!("{seal}A").as_bytes()), Check::Forged);
    assert_eq!(ring.check_seal(b"message", format!("{seal}\n").as_bytes()), Check::Forged);
}

#[test]
fn a_seal_of_an_older_key_holds_until_the_key_is_dropped_and_no_other_ring_knows_it() {
    let seal = ring().seal(b"message");
    let rotated = ring().rotated([8; 32], 2).unwrap();
    assert_eq!(rotated.check_seal(b"message", seal.as_bytes()), Check::Verified);
    assert_eq!(ring().check_seal(b"message", rotated.seal(b"message").as_bytes()), Check::UnknownKey);
    let dropped = rotated.without(ring().signing().id()).unwrap();
    assert_eq!(dropped.check_seal(b"message", seal.as_bytes()), Check::UnknownKey);
}

proptest! {
    #[test]
    fn any_message_has_one_seal_and_no_two_share_it(one in any::<Vec<u8>>(), two in any::<Vec<u8>>()) {
        let ring = ring();
        let seal = ring.seal(&one);
        prop_assert_eq!(ring.check_seal(&one, seal.as_bytes()), Check::Verified);
        prop_assert_eq!(ring.check_seal(&two, seal.as_bytes()) == Check::Verified, one == two);
    }
}

#[test]
fn the_digest_keeps_its_key_when_the_ring_rotates() {
    let stream = StreamToken::mint(StreamKind::Standalone, None, 0, [1; 12]).unwrap();
    let mut before = DigestChain::start(&ring(), &Scope::default(), &stream, &Epoch([2; 8]));
    let mut carried = before.clone();
    let _rotated = ring().rotated([8; 32], 100).unwrap();
    assert_eq!(carried.append(Sequence::FIRST, b"", b"x"), before.append(Sequence::FIRST, b"", b"x"));
}

#[test]
fn absent_empty_and_message_are_one_event_type() {
    let stream = StreamToken::mint(StreamKind::Standalone, None, 0, [1; 12]).unwrap();
    let chain = DigestChain::start(&ring(), &Scope::default(), &stream, &Epoch([2; 8]));
    let digest = |event: &[u8]| chain.clone().append(Sequence::FIRST, event, b"x");
    assert_eq!(digest(b""), digest(b"message"));
    assert_ne!(digest(b""), digest(b"Message"));
    assert_ne!(digest(b"ax"), chain.clone().append(Sequence::FIRST, b"a", b"xx"));
}

#[test]
fn the_longest_id_is_as_long_as_documented() {
    for request_id in [RequestId::Text("abcdefghijklmnopqrstuvwx"), RequestId::Integer(-MAX_REQUEST_INTEGER)]
    {
        let stream = StreamToken::mint(StreamKind::Call, Some(request_id), u32::MAX, [255; 12]).unwrap();
        let id = id_of(&Scope::default(), stream, Epoch([255; 8]), Sequence::MAX).to_string();
        assert_eq!(id.len(), if matches!(request_id, RequestId::Text(_)) { LONGEST } else { LONGEST - 7 });
    }
    const { assert!(LONGEST <= MAX_ID_BYTES) };
}

#[test]
fn another_version_is_told_before_any_grammar() {
    for (text, expected) in [
        ("cf2.", IdError::Version { version: 2 }),
        ("cf2.whatever it says\r\n", IdError::Version { version: 2 }),
        ("cf0.x", IdError::Version { version: 0 }),
        ("cf999999999.x", IdError::Version { version: 999_999_999 }),
        ("cf1234567890.x", IdError::Foreign),
        ("cf01.x", IdError::Foreign),
        ("cf1", IdError::Foreign),
        ("cf.", IdError::Foreign),
        ("CF1.x", IdError::Foreign),
        ("", IdError::Foreign),
        ("13", IdError::Foreign),
        ("cf2", IdError::Foreign),
        ("cf-1.x", IdError::Foreign),
    ] {
        assert_eq!(EventId::parse(text.as_bytes()), Err(expected), "{text:?}");
    }
    let long = format!("cf1.{}", "A".repeat(125));
    let reason = Malformed::TooLong { position: 128 };
    assert_eq!(EventId::parse(long.as_bytes()), Err(IdError::Malformed { reason, position: 128 }));
}

#[test]
fn a_key_file_survives_the_round_trip_and_any_changed_byte_is_refused() {
    let ring = ring().rotated([8; 32], 100).unwrap().rotated([9; 32], 200).unwrap();
    let text = write_key_file(&ring);
    assert_eq!(parse_key_file(&text).unwrap(), ring);
    let keys = text.find("sign ").unwrap();
    for at in keys..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(parse_key_file(&changed).is_err(), "byte {at} of {text}");
    }
}

#[test]
fn a_key_file_with_a_word_too_many_is_refused() {
    let text = write_key_file(&ring());
    for extra in [" retired=2", " x", " "] {
        let changed = text.replace("made=1", &format!("made=1{extra}"));
        assert_eq!(parse_key_file(&changed), Err(KeyFileError::Line(3)), "{extra:?}");
    }
}

#[test]
fn parts_of_a_scope_are_bounded() {
    let longest = "x".repeat(MAX_SCOPE_PART_BYTES);
    assert!(Scope::new(Some(&longest), Some(&longest), Some(&longest)).is_ok());
    let longer = "x".repeat(MAX_SCOPE_PART_BYTES + 1);
    for (part, tenant, principal, session) in [
        ("tenant", Some(&*longer), None, None),
        ("principal", None, Some(&*longer), None),
        ("session", None, None, Some(&*longer)),
    ] {
        let error = Scope::new(tenant, principal, session).unwrap_err();
        assert_eq!((error.part, error.bytes), (part, MAX_SCOPE_PART_BYTES + 1));
    }
}

#[test]
fn secrets_are_not_in_what_is_shown() {
    let ring = ring();
    let chain = DigestChain::start(
        &ring,
        &Scope::default(),
        &StreamToken::parse(b"sAAAAAAAAAAAAAAAAAAAAAA").unwrap(),
        &Epoch([2; 8]),
    );
    let scope = Scope::new(Some("tenant-x"), None, Some("session-y")).unwrap();
    let shown = format!("{ring:?} {:?} {chain:?} {scope:?}", ring.signing());
    for secret in ["7, 7", "BwcHBwcH", "tenant-x", "session-y", "seed"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn vectors_shared_with_python() {
    let text = include_str!("../../../tests/vectors/event_id/parse.json");
    let rows: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    assert!(rows.len() > 60);
    for row in rows {
        let given = row["given"].as_str().unwrap();
        let found = match EventId::parse(given.as_bytes()) {
            Err(IdError::Foreign) => serde_json::json!({"error": "foreign"}),
            Err(IdError::Version { version }) => serde_json::json!({"error": "version", "version": version}),
            Err(IdError::Malformed { reason, position }) => serde_json::json!({
                "error": "malformed", "reason": reason.to_string(), "position": position,
            }),
            Ok(id) => serde_json::json!({
                "stream": id.stream.as_str(),
                "kind": if id.stream.kind() == StreamKind::Call { "call" } else { "standalone" },
                "request_id": match id.stream.request_id() {
                    None => serde_json::Value::Null,
                    Some(RequestId::Integer(number)) => number.into(),
                    Some(RequestId::Text(text)) => text.into(),
                },
                "owner": id.stream.owner(),
                "epoch": id.epoch.to_string(),
                "key_id": id.tag.key_id().to_string(),
                "tag": id.tag.to_string(),
                "sequence": id.sequence.to_string(),
                "digest": id.digest.to_string(),
            }),
        };
        assert_eq!(found, row["expect"], "{}", row["name"]);
    }
}

#[test]
fn released_digests_are_still_computed() {
    let text = include_str!("../../../tests/compat/v1/digests.json");
    let samples: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    let ring = parse_key_file(include_str!("../../../tests/compat/v1/key_file.txt")).unwrap();
    for sample in samples {
        let part = |name: &str| sample["scope"][name].as_str();
        let scope = Scope::new(part("tenant"), part("principal"), part("session")).unwrap();
        let stream = StreamToken::parse(sample["stream"].as_str().unwrap().as_bytes()).unwrap();
        let epoch = Epoch::parse(sample["epoch"].as_str().unwrap().as_bytes()).unwrap();
        let mut chain = DigestChain::start(&ring, &scope, &stream, &epoch);
        let mut found = vec![chain.current().to_string()];
        for (index, event) in sample["events"].as_array().unwrap().iter().enumerate() {
            let sequence = Sequence::new(index as u64 + 1).unwrap();
            let text = |at: usize| event[at].as_str().unwrap().as_bytes();
            found.push(chain.append(sequence, text(0), text(1)).to_string());
        }
        assert_eq!(serde_json::json!(found), sample["digests"], "{}", sample["name"]);
    }
}
