//! What formats promise.

use proptest::prelude::*;

use super::decimal::Decimal;
use super::json::{self, Document};
use super::transform::Transform;
use super::{ConvertError, Definition, FormatError, Formats, cbor, msgpack, resp};

fn convert(from: &str, to: &str, data: &str) -> String {
    let converted = Formats::builtin().convert(from, to, data.as_bytes());
    String::from_utf8(converted.unwrap()).unwrap()
}

fn refused(from: &str, to: &str, data: &str) -> ConvertError {
    let converted = Formats::builtin().convert(from, to, data.as_bytes());
    converted.unwrap_err()
}

#[test]
fn every_format_that_ships_is_there_in_the_order_of_ties() {
    let formats = Formats::builtin();
    let names: Vec<&str> = formats.iter().map(super::Format::name).collect();
    assert_eq!(
        names,
        [
            "standard_json",
            "resp3",
            "resp3_wire",
            "compact_json",
            "cloudevents_json",
            "json_rpc2",
            "msgpack",
            "cbor"
        ]
    );
}

#[test]
fn fields_are_renamed_and_everything_else_stays_byte_for_byte() {
    assert_eq!(
        convert(
            "standard_json",
            "compact_json",
            r#" {"id":"1","x" : [1.50, 12345678901234567890123456789012345678901234567890],"parameters":{"b" :1,"a":"\u00e9"},"timestamp":1711900800} "#
        ),
        r#"{"i":"1","x":[1.50, 12345678901234567890123456789012345678901234567890],"p":{"b" :1,"a":"\u00e9"},"t":1711900800}"#
    );
    assert_eq!(
        convert(
            "resp3",
            "standard_json",
            r#"{"\u0069":1,"ts":1711900800123}"#
        ),
        r#"{"id":1,"timestamp":1711900800.123}"#
    );
    assert_eq!(convert("resp3", "compact_json", "[1, 2]"), "[1, 2]");
    assert_eq!(
        convert("resp3", "standard_json", "*1\r\n$4\r\nPING\r\n"),
        r#"["PING"]"#
    );
    assert_eq!(
        convert(
            "standard_json",
            "cloudevents_json",
            r#"{"id":"1","timestamp":0.5}"#
        ),
        r#"{"id":"1","time":"1970-01-01T00:00:00.5Z","specversion":"1.0"}"#
    );
}

#[test]
fn two_fields_that_would_become_one_are_a_failure() {
    for (from, to, data) in [
        ("resp3", "standard_json", r#"{"i":"1","id":"2"}"#),
        ("standard_json", "compact_json", r#"{"id":"1","i":"2"}"#),
        ("resp3", "standard_json", r#"{"ts":"secret"}"#),
        (
            "standard_json",
            "msgpack",
            r#"{"id":12345678901234567890123}"#,
        ),
        ("standard_json", "cbor", r#"{"id":0.10000000000000000001}"#),
    ] {
        let error = refused(from, to, data);
        assert!(matches!(error, ConvertError::Translation { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn what_is_not_in_the_format_is_told_apart_from_what_cannot_be_translated() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for data in [
        "",
        "hello",
        "{",
        r#"{"a":1,"a":2}"#,
        r#"{"x":{"a":1,"\u0061":2}}"#,
        "{}x",
        "01",
        "[1,]",
        r#""\ud800""#,
        "\"\n\"",
        &deep,
    ] {
        let error = refused("standard_json", "resp3", data);
        assert!(
            matches!(error, ConvertError::NotInFormat { .. }),
            "{data}: {error}"
        );
    }
    let unknown = refused("nope", "resp3", "{}");
    assert!(matches!(unknown, ConvertError::UnknownFormat { .. }));
}

#[test]
fn formats_are_known_by_what_they_look_like() {
    let msgpack = Formats::builtin()
        .convert("standard_json", "msgpack", br#"{"id":"1"}"#)
        .unwrap();
    let cbor = Formats::builtin()
        .convert("standard_json", "cbor", br#"{"command":"1"}"#)
        .unwrap();
    for (data, expected) in [
        (&br#"{"id":"1","command":"x"}"#[..], Some("standard_json")),
        (br#"{"i":"1","c":"x","t":1}"#, Some("compact_json")),
        (br#"{"i":"1","c":"x","ts":1}"#, Some("resp3")),
        (br#"{"c":"x","i":"1"}"#, Some("resp3")),
        (br#"{"i":"1","id":"x"}"#, Some("standard_json")),
        (b"*1\r\n$4\r\nPING\r\n", Some("resp3")),
        (b"*1\r\n$5\r\nPING\r\n", None),
        (b"-5", None),
        (
            br#"{"jsonrpc":"2.0","method":"x","id":1}"#,
            Some("json_rpc2"),
        ),
        (
            br#"{"specversion":"1.0","type":"x","source":"s","id":"1"}"#,
            Some("cloudevents_json"),
        ),
        (&msgpack, Some("msgpack")),
        (&cbor, Some("cbor")),
        (b"hello", None),
        (b"", None),
        (br#"{"id":"1""#, None),
        (br#"{"x":{"id":1}}"#, None),
    ] {
        let formats = Formats::builtin();
        let found = formats.detect(data);
        let name = found.best.map(super::Format::name);
        assert_eq!(name, expected, "{}", String::from_utf8_lossy(data));
        assert_eq!(found.confidence >= 0.5, expected.is_some());
    }
}

#[test]
fn transforms_do_what_their_table_says() {
    use Transform::{Boolean, IsoDate, Json, Number, String, TimestampMs, TimestampS};
    let forward = [
        (String, "5", Some("\"5\"")),
        (String, "true", Some("\"true\"")),
        (String, "\"x\"", Some("\"x\"")),
        (String, "[1]", None),
        (Number, "\"123\"", Some("123")),
        (Number, "\"1e400\"", Some("1e400")),
        (Number, "\"-0\"", Some("-0")),
        (Number, "\"0123\"", None),
        (Number, "\" 12\"", None),
        (Number, "\"\"", None),
        (Boolean, "1", Some("true")),
        (Boolean, "\"1\"", Some("true")),
        (Boolean, "\"false\"", Some("false")),
        (Boolean, "\"yes\"", None),
        (Boolean, "2", None),
        (TimestampMs, "5", Some("0.005")),
        (TimestampMs, "-5", Some("-0.005")),
        (TimestampMs, "1.5e12", Some("1500000000")),
        (TimestampMs, "0", Some("0")),
        (TimestampMs, "1e400", Some("1e397")),
        (TimestampMs, "null", Some("null")),
        (TimestampMs, "\"5\"", None),
        (TimestampS, "1711900800.999", Some("1711900800")),
        (IsoDate, "1711900800", Some("\"2024-03-31T16:00:00Z\"")),
        (IsoDate, "-0.25", Some("\"1969-12-31T23:59:59.75Z\"")),
        (IsoDate, "951782400", Some("\"2000-02-29T00:00:00Z\"")),
        (IsoDate, "253402300800", None),
        (Json, r#""{\"a\": 1}""#, Some(r#"{"a": 1}"#)),
        (Json, r#""{""#, None),
        (Json, "null", None),
    ];
    for (transform, value, expected) in forward {
        let found = transform.forward(value).ok();
        assert_eq!(found.as_deref(), expected, "{transform:?} {value}");
    }
    let back = [
        (String, "\"5\"", Some("5")),
        (String, "\"true\"", Some("true")),
        (String, "\"05\"", Some("\"05\"")),
        (Number, "1e400", Some("\"1e400\"")),
        (Number, "\"1\"", None),
        (Boolean, "true", Some("\"true\"")),
        (TimestampMs, "1711900800.123", Some("1711900800123")),
        (TimestampMs, "0.005", Some("5")),
        (TimestampMs, "1711900800", Some("1711900800000")),
        (IsoDate, "\"2024-03-31T18:00:00+02:00\"", Some("1711900800")),
        (IsoDate, "\"1969-12-31T23:59:59.75Z\"", Some("-0.25")),
        (IsoDate, "\"2023-02-29T00:00:00Z\"", None),
        (IsoDate, "\"2024-03-31T16:00:60Z\"", None),
        (IsoDate, "\"2024-03-31\"", None),
        (Json, r#"{"a": 1}"#, Some(r#""{\"a\": 1}""#)),
    ];
    for (transform, value, expected) in back {
        let found = transform.back(value).ok();
        assert_eq!(found.as_deref(), expected, "{transform:?} {value}");
    }
}

#[test]
fn a_faulty_definition_is_refused_with_a_pointer_to_the_fault() {
    for (text, pointer) in [
        ("[]", ""),
        ("{", ""),
        ("{}", "/format_name"),
        (r#"{"format_name":"a b"}"#, "/format_name"),
        (r#"{"format_name":"a","mapping":{}}"#, "/mapping"),
        (r#"{"format_name":"a","binary":true}"#, "/binary"),
        (r#"{"format_name":"a","schema":{"type":5}}"#, "/schema"),
        (
            r#"{"format_name":"a","schema":{"$ref":"file:///etc/passwd"}}"#,
            "/schema",
        ),
        (
            r#"{"format_name":"a","field_mapping":{"x/y":{"to":"z","transform":"upper"}}}"#,
            "/field_mapping/x~1y/transform",
        ),
        (
            r#"{"format_name":"a","detection_patterns":[{"pattern_type":"regex","pattern":"(","confidence":1}]}"#,
            "/detection_patterns/0/pattern",
        ),
        (
            r#"{"format_name":"a","detection_patterns":[{"pattern_type":"prefix","pattern":"x","confidence":1.5}]}"#,
            "/detection_patterns/0/confidence",
        ),
    ] {
        let error = Definition::parse_json(text).unwrap_err();
        assert_eq!(error.pointer, pointer, "{text}: {error}");
    }
}

#[test]
fn a_registered_format_is_used_replaced_and_never_in_the_place_of_one_that_ships() {
    let mut formats = Formats::builtin();
    let yaml = "format_name: mine\nfield_mapping:\n  on: {to: flag, transform: boolean}\n  n: {to: count, transform: number}\ndefaults:\n  v: NO\n";
    formats
        .register(Definition::parse_yaml(yaml).unwrap())
        .unwrap();
    let there = br#"{"flag":true,"count":10000000000000000000000}"#;
    let mine = formats.convert("standard_json", "mine", there).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&mine),
        r#"{"on":"true","n":"10000000000000000000000","v":"NO"}"#
    );
    assert_eq!(
        formats.convert("mine", "standard_json", &mine).unwrap(),
        there
    );
    let other = Definition::parse_json(r#"{"format_name":"mine","version":"2"}"#).unwrap();
    formats.register(other).unwrap();
    assert_eq!(formats.get("mine").unwrap().version(), "2");
    let taken = Definition::parse_json(r#"{"format_name":"cbor"}"#).unwrap();
    assert_eq!(
        formats.register(taken).unwrap_err(),
        FormatError::BuiltIn("cbor".to_owned())
    );
}

#[test]
fn a_schema_is_checked_on_reading_on_writing_and_on_detecting() {
    let mut formats = Formats::builtin();
    let yaml = "format_name: strict\ndetection_patterns: [{pattern_type: json_keys, pattern: op, confidence: 1.0}]\nfield_mapping: {op: command}\nschema: {type: object, properties: {op: {type: string}}, required: [op]}\n";
    formats
        .register(Definition::parse_yaml(yaml).unwrap())
        .unwrap();
    let convert = |from, to, data: &str| formats.convert(from, to, data.as_bytes());
    let done = convert("standard_json", "strict", r#"{"command":"x"}"#);
    assert_eq!(done.unwrap(), br#"{"op":"x"}"#);
    let error = convert("strict", "standard_json", r#"{"op":7001}"#).unwrap_err();
    assert!(matches!(error, ConvertError::NotInFormat { .. }), "{error}");
    assert!(error.to_string().contains("/op"), "{error}");
    assert!(!error.to_string().contains("7001"), "{error}");
    let error = convert("standard_json", "strict", r#"{"id":"1"}"#).unwrap_err();
    assert!(matches!(error, ConvertError::Translation { .. }), "{error}");
    let name = |data: &[u8]| {
        formats
            .detect(data)
            .best
            .map(|found| found.name().to_owned())
    };
    assert_eq!(name(br#"{"op":"x"}"#).as_deref(), Some("strict"));
    assert_eq!(name(br#"{"op":1}"#), None);
}

/// JSON values that every format has a form for.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        (-1e9..1e9f64).prop_map(|n| format!("{n:?}")),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(|members| {
                let members: Vec<String> = members
                    .iter()
                    .map(|(key, value)| format!("{}:{value}", serde_json::to_string(key).unwrap()))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn there_and_back_is_the_same_for_every_pair(
        id in value(), parameters in value(), site in value(), ms in 0..4_102_444_800_000i64,
    ) {
        let formats = Formats::builtin();
        let seconds = Transform::TimestampMs.forward(&ms.to_string()).unwrap().into_owned();
        let canonical = format!(
            r#"{{"id":{id},"command":"x","parameters":{parameters},"site_id":{site},"node_id":"n","timestamp":{seconds}}}"#
        );
        for a in formats.iter() {
            let first = formats.convert("standard_json", a.name(), canonical.as_bytes()).unwrap();
            for b in formats.iter() {
                let there = formats.convert(a.name(), b.name(), &first).unwrap();
                let back = formats.convert(b.name(), a.name(), &there).unwrap();
                prop_assert_eq!(&back, &first, "{} {}", a.name(), b.name());
            }
        }
    }

    #[test]
    fn no_bytes_make_anything_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
        let formats = Formats::builtin();
        let _ = formats.detect(&data);
        for from in formats.iter() {
            for to in formats.iter() {
                let _ = formats.convert(from.name(), to.name(), &data);
            }
        }
        let _ = Definition::parse_yaml(&String::from_utf8_lossy(&data));
    }

    #[test]
    fn mutated_messages_never_panic_and_what_is_read_is_read_again(
        value in value(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let node = json::tree(&value).unwrap();
        let mut encoded = [Vec::new(), Vec::new(), Vec::new()];
        resp::encode(&node, &mut encoded[0]);
        msgpack::encode(&node, &mut encoded[1]).unwrap();
        cbor::encode(&node, &mut encoded[2]).unwrap();
        prop_assert_eq!(&resp::decode(&encoded[0]).unwrap(), &node);
        prop_assert_eq!(&msgpack::decode(&encoded[1]).unwrap(), &node);
        prop_assert_eq!(&cbor::decode(&encoded[2]).unwrap(), &node);
        for data in &mut encoded {
            let at = at.index(data.len());
            data[at] = byte;
        }
        let read = [resp::decode(&encoded[0]), msgpack::decode(&encoded[1]), cbor::decode(&encoded[2])];
        for node in read.into_iter().flatten() {
            prop_assert!(Document::read(&node.to_json()).is_ok());
        }
    }

    #[test]
    fn what_serde_json_takes_is_taken_and_nothing_else(text in r#"[\[\]{}",:0-9a-e.\\utrue+ -]{0,12}"#) {
        let ours = Document::read(&text).is_ok();
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        // Beyond its grammar we also refuse repeated keys and halves of surrogate pairs.
        prop_assert!(theirs || !ours, "{}", text);
        if theirs && !text.contains('{') && !text.contains("\\u") {
            prop_assert!(ours, "{}", text);
        }
    }

    #[test]
    fn moving_the_point_is_undone_digit_for_digit(ms in "(0|-?[1-9][0-9]{0,40})") {
        let seconds = Transform::TimestampMs.forward(&ms).unwrap().into_owned();
        prop_assert_eq!(Transform::TimestampMs.back(&seconds).unwrap(), ms.as_str());
        prop_assert!(Decimal::read(&seconds).is_some());
    }

    #[test]
    fn dates_are_undone(seconds in -62_167_219_200i64..253_402_300_800) {
        let date = Transform::IsoDate.forward(&seconds.to_string()).unwrap().into_owned();
        prop_assert_eq!(Transform::IsoDate.back(&date).unwrap(), seconds.to_string());
    }
}
