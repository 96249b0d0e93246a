//! The envelope scan against a whole JSON parser, and against what two readers would read differently.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use counterfoil_core::envelope::{may_have_id, scan, scan_briefly, scan_each, Envelope, Kind, MessageId};
use proptest::prelude::*;
use serde_json::{json, Map, Value};

fn kind_of(value: &Value) -> Kind {
    let Some(object) = value.as_object() else {
        return if value.is_array() { Kind::Batch } else { Kind::Invalid };
    };
    let id = object.get("id");
    if id.is_some_and(|id| !(id.is_string() || id.is_number() || id.is_null())) {
        return Kind::Invalid;
    }
    if object.get("method").is_some_and(|method| !method.is_string()) {
        return Kind::Invalid;
    }
    let has_id = id.is_some_and(|id| !id.is_null());
    match (object.contains_key("method"), object.contains_key("result"), object.contains_key("error")) {
        (true, false, false) if id.is_none() => Kind::Notification,
        (true, false, false) if has_id => Kind::Request,
        (false, true, false) if has_id => Kind::Result,
        (false, false, true) if id.is_some() => Kind::Error,
        _ => Kind::Invalid,
    }
}

fn check(text: &str, value: &Value) {
    let found = scan(text.as_bytes());
    assert_eq!(found.kind, kind_of(value), "{text}");
    if matches!(found.kind, Kind::Invalid | Kind::Batch) {
        return;
    }
    assert_eq!(found.method.as_deref(), value.get("method").and_then(Value::as_str), "{text}");
    let id = found.id.as_ref().map(|id| match id {
        MessageId::Integer(number) => json!(number),
        MessageId::Text(text) => json!(text),
        MessageId::Null => Value::Null,
        // As it stood: reading a float and writing it again may change its last digit.
        MessageId::Number(text) => {
            let as_written = |id: &&Value| id.to_string().as_str() == *text;
            value.get("id").filter(as_written).cloned().unwrap_or_default()
        }
    });
    assert_eq!(id.as_ref(), value.get("id"), "{text}");
    if value.get("id").is_some() {
        assert!(may_have_id(text.as_bytes(), text.contains('\\')), "{text}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("id".to_owned()),
        Just("}]\"{[\\".to_owned()),
        "[a-z\"\\\\{}\\[\\]:, \n\u{2028}é😀]{0,20}",
        "[x\\\\\"]{50,150}",
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((any_text(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_message() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        4 => Just("id".to_owned()),
        4 => Just("method".to_owned()),
        2 => Just("result".to_owned()),
        1 => Just("error".to_owned()),
        2 => Just("params".to_owned()),
        2 => Just("jsonrpc".to_owned()),
        1 => any_text(),
    ];
    let value = prop_oneof![2 => any_value(), 1 => any_text().prop_map(Value::from), 1 => any::<i32>().prop_map(Value::from)];
    proptest::collection::vec((key, value), 0..6)
        .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn the_scan_says_what_a_parser_says(message in any_message(), pretty in any::<bool>(), shift in 0..70_usize) {
        let text = if pretty {
            serde_json::to_string_pretty(&message).unwrap()
        } else {
            serde_json::to_string(&message).unwrap()
        };
        // Every place of a block comes first once.
        check(&format!("{}{text}", " ".repeat(shift)), &message);
    }

    #[test]
    fn a_brief_scan_differs_at_most_in_what_follows_a_notifications_method(message in any_message()) {
        let text = serde_json::to_string(&message).unwrap();
        let (whole, brief) = (scan(text.as_bytes()), scan_briefly(text.as_bytes()));
        if message.get("id").is_some() || message.get("method").is_none() {
            prop_assert_eq!(whole, brief);
        } else if whole.kind == Kind::Notification {
            prop_assert_eq!(whole, brief);
        }
    }

    #[test]
    fn any_other_value_is_no_message(value in any_value()) {
        check(&serde_json::to_string(&value).unwrap(), &value);
    }

    #[test]
    fn a_message_cut_short_or_with_a_tail_is_none(message in any_message(), cut in any::<prop::sample::Index>()) {
        let text = serde_json::to_string(&message).unwrap();
        let at = cut.index(text.len());
        prop_assert_eq!(scan(&text.as_bytes()[..at]).kind, Kind::Invalid);
        prop_assert_eq!(scan(format!("{text}x").as_bytes()).kind, Kind::Invalid);
        prop_assert_eq!(scan(format!("{text}{text}").as_bytes()).kind, Kind::Invalid);
    }

    #[test]
    fn any_bytes_end_in_some_kind(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        scan_each(&bytes, |_| {});
        scan_each(&[b"[".as_slice(), &bytes].concat(), |_| {});
        scan_each(&[b"{\"id\":".as_slice(), &bytes].concat(), |_| {});
    }

    #[test]
    fn each_message_of_a_batch_is_read(messages in proptest::collection::vec(any_message(), 0..6)) {
        let text = serde_json::to_string(&messages).unwrap();
        let mut kinds = Vec::new();
        prop_assert!(scan_each(text.as_bytes(), |inner: Envelope<'_>| kinds.push(inner.kind)));
        prop_assert_eq!(kinds, messages.iter().map(kind_of).collect::<Vec<_>>());
    }
}

#[test]
fn what_two_readers_would_read_differently_is_no_message() {
    for text in [
        r#"{"id":1,"id":2,"method":"x"}"#,
        r#"{"method":"x","method":"y"}"#,
        r#"{"id":1,"\u0069d":2,"result":{}}"#,
        r#"{"id":1,"result":1,"result":2}"#,
        r#"{"id":1,"result":1,"error":{}}"#,
        r#"{"id":null,"method":"x"}"#,
        r#"{"id":{},"method":"x"}"#,
        r#"{"id":007,"method":"x"}"#,
        r#"{"id":1.,"method":"x"}"#,
        r#"{"id":"\ud800","method":"x"}"#,
        r#"{"id" 1,"method":"x"}"#,
        "{}",
        "",
        "null",
        "<html>",
    ] {
        assert_eq!(scan(text.as_bytes()).kind, Kind::Invalid, "{text}");
    }
}

#[test]
fn escaped_keys_and_ids_are_the_same_keys_and_ids() {
    let found = scan(br#"{"\u0069\u0064":"\u0061\n\ud83d\ude00","meth\u006fd":"a\/b"}"#);
    assert_eq!(found.kind, Kind::Request);
    assert_eq!(found.id, Some(MessageId::Text("a\n😀".into())));
    assert_eq!(found.method.as_deref(), Some("a/b"));
}

#[test]
fn ids_keep_their_json_type() {
    for (text, id) in [
        ("1", MessageId::Integer(1)),
        ("-1", MessageId::Integer(-1)),
        ("\"1\"", MessageId::Text("1".into())),
        ("1.0", MessageId::Number("1.0")),
        ("1e2", MessageId::Number("1e2")),
        ("123456789012345678901234567890", MessageId::Number("123456789012345678901234567890")),
    ] {
        let message = format!("{{\"id\":{text},\"result\":{{\"id\":2}}}}");
        assert_eq!(scan(message.as_bytes()).id, Some(id), "{text}");
    }
}
