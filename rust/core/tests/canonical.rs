//! The canonical texts that Python reads too, and what holds for every text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use std::path::Path;

use counterfoil_core::canonical::{read_call, read_members, write_canonical, Ambiguous, CallText};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    given: Vec<String>,
    expect: Option<String>,
}

fn canonical(text: &[u8], depth: usize) -> Result<String, Ambiguous> {
    let mut out = Vec::new();
    write_canonical(text, depth, &mut out).map(|()| String::from_utf8(out).unwrap())
}

#[test]
fn equal_json_has_the_text_of_the_vectors() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/canonical/json.json");
    let cases: Vec<Case> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for case in cases {
        for text in case.given {
            assert_eq!(canonical(text.as_bytes(), 64).ok(), case.expect, "{}: {text}", case.name);
        }
    }
}

#[test]
fn a_call_is_its_name_and_its_params_without_meta() {
    let method = br#""tools/call""#;
    let body =
        br#"{"id": 1, "params": {"_meta": {"b": 1}, "x": 1.0, "name": "order", "arguments": {"_meta": {}}},
        "method": "tools\/call", "jsonrpc": "2.0"}"#;
    let call = CallText {
        name: br#""order""#.to_vec(),
        params: br#"{"arguments":{"_meta":{}},"name":"order","x":1}"#.to_vec(),
        meta: br#"{"b":1}"#.to_vec(),
    };
    assert_eq!(read_call(body, method, 64), Ok(Some(call)));
    let empty = CallText { name: Vec::new(), params: b"{}".to_vec(), meta: Vec::new() };
    assert_eq!(read_call(br#"{"method": "tools/call", "params": {}}"#, method, 64), Ok(Some(empty)));
    let others: [&[u8]; 5] = [
        b"[]",
        br#"{"method": "tools/list", "params": {}}"#,
        br#"{"method": "tools/call"}"#,
        br#"{"method": "tools/call", "params": []}"#,
        br#"{"method": {}, "params": {}}"#,
    ];
    for other in others {
        assert_eq!(read_call(other, method, 64), Ok(None));
    }
    assert!(read_call(br#"{"method": "tools/call", "params": {"a": 1, "a": 1}}"#, method, 64).is_err());
    assert!(read_call(br#"{"id": 1, "id": 1, "method": "tools/call", "params": {}}"#, method, 64).is_err());
    let nested = br#"{"method": "tools/call", "params": {"a": [[1]]}}"#;
    assert!(read_call(nested, method, 4).is_ok());
    assert!(read_call(nested, method, 3).is_err());
}

#[test]
fn members_come_in_canonical_order_and_an_array_has_none() {
    let members = read_members(br#"{"b" : 1.0, "a": [ {} ]}"#, 64).unwrap().unwrap();
    let texts: Vec<_> = members.iter().map(|each| (each.name.as_slice(), each.value.as_slice())).collect();
    assert_eq!(texts, [(&b"\"a\""[..], &b"[{}]"[..]), (b"\"b\"", b"1")]);
    assert_eq!(read_members(b"[]", 64), Ok(None));
}

#[test]
fn a_value_at_the_depth_is_refused_where_it_stands() {
    assert_eq!(canonical(b"[[]]", 2).as_deref(), Ok("[[]]"));
    assert_eq!(canonical(b"[[1]]", 2), Err(Ambiguous { position: 2 }));
    assert_eq!(read_members(b"{\"a\":1}", 1), Err(Ambiguous { position: 5 }));
    assert_eq!(read_members(b"{\"a\":1}", 2).unwrap().unwrap().len(), 1);
}

proptest! {
    #[test]
    fn any_bytes_end_without_a_panic_and_a_canonical_text_is_its_own(text in ".{0,60}") {
        if let Ok(once) = canonical(text.as_bytes(), 16) {
            prop_assert!(once.is_ascii());
            prop_assert_eq!(canonical(once.as_bytes(), 16).ok(), Some(once));
        }
    }

    #[test]
    fn what_serde_reads_back_is_the_same_value(value in json(3)) {
        let text = serde_json::to_string(&value).unwrap();
        let ours = canonical(text.as_bytes(), 64).unwrap();
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&ours).unwrap(), value);
    }
}

fn json(depth: u32) -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        (-999..999i32).prop_filter("trailing zeros get an exponent", |n| n % 10 != 0).prop_map(Into::into),
        ".{0,8}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(depth, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::hash_map(".{0,4}", inner, 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}
