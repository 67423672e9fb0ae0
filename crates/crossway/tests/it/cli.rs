//! What needs no store.

use serde_json::json;

use crate::program::{run, run_with};

#[test]
fn a_wrong_usage_is_one_line_on_standard_error() {
    for arguments in [
        &[][..],
        &["fly"],
        &["check"],
        &["--nonsense"],
        &["policy", "explain", "--source", "a"],
        &["policy", "set", "a", "b", "maybe"],
        &[
            "send",
            "billing",
            "charge",
            "--from",
            "shop",
            "--timeout",
            "1h",
        ],
        &["tail", "--count", "x"],
        &["fly\nhigh\x1b[2J"],
    ] {
        run(arguments).refused();
        let mut with_json = arguments.to_vec();
        with_json.push("--json");
        run(&with_json).refused();
    }
}

#[test]
fn help_and_version_are_answers() {
    for arguments in [&["--help"][..], &["help"], &["policy", "explain", "--help"]] {
        let ran = run(arguments);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
        assert!(ran.out.contains("Usage:"), "{ran:?}");
    }
    assert_eq!(
        run(&["--version"]).out,
        format!("crossway {}\n", env!("CARGO_PKG_VERSION"))
    );
}

const RULES: &str = r#"{"*:*":{"action":"deny","reason":"closed","commands":["*"]},"a:b":{"action":"allow","commands":["read*"]}}"#;

fn explain<'a>(rules: &'a str, command: &'a str) -> Vec<&'a str> {
    vec![
        "policy",
        "explain",
        "--rules",
        rules,
        "--source",
        "a",
        "--target",
        "b",
        "--command",
        command,
        "--json",
    ]
}

#[test]
fn explain_names_the_rule_that_decides() {
    let allowed = run(&explain(RULES, "read_all"));
    assert_eq!(allowed.status, 0);
    assert_eq!(
        allowed.object(),
        json!({"action": "allow", "rule": "a:b", "reason": ""})
    );

    let denied = run(&explain(RULES, "write"));
    assert_eq!(denied.status, 1);
    assert_eq!(
        denied.object(),
        json!({"action": "deny", "rule": "*:*", "reason": "closed"})
    );

    let mut closed = explain("{}", "write");
    closed.extend(["--default", "deny"]);
    let by_default = run(&closed);
    assert_eq!(
        (
            by_default.status,
            by_default.object()["rule"].as_str().unwrap()
        ),
        (1, "default")
    );
}

#[test]
fn rules_come_from_a_file_or_standard_input_as_well() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, RULES).unwrap();
    let at = format!("@{}", file.path().display());
    assert_eq!(run(&explain(&at, "write")).object()["rule"], "*:*");
    assert_eq!(
        run_with(&explain("-", "write"), RULES).object()["rule"],
        "*:*"
    );
    let missing = run(&explain("@/nonexistent", "write"));
    assert!(missing.refused().contains("/nonexistent"));
}

#[test]
fn rules_that_can_not_be_read_are_refused_and_named() {
    for (rules, named) in [
        ("[]", "--rules"),
        ("{", "--rules"),
        (r#"{"a":{"action":"deny"}}"#, "\"a\""),
        (r#"{"a:b":{"action":"maybe"}}"#, "maybe"),
        (
            r#"{"a:b":{"action":"deny"},"c:d":{"action":"deny"},"a:b":{"action":"allow"}}"#,
            "\"a:b\" is there twice",
        ),
        (r#"{"a:b":{"action":"deny","action":"allow"}}"#, "action"),
        (r#"{"a:b":{"action":"deny","commands":["x*y"]}}"#, "x*y"),
    ] {
        let ran = run(&explain(rules, "x"));
        assert!(ran.refused().contains(named), "{ran:?}");
    }
    let bad_site = [
        "policy",
        "explain",
        "--rules",
        "{}",
        "--source",
        "a b",
        "--target",
        "b",
        "--command",
        "c",
    ];
    assert!(run(&bad_site).refused().contains("--source"));
}

#[test]
fn a_manifest_shows_what_it_would_register() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        &file,
        "services:\n  - id: billing\n    environments: [staging]\n    entities: [ledger]\n",
    )
    .unwrap();
    let name = file.path().to_str().unwrap();
    let shown = run(&["inspect", "manifest", name, "--json"]).object();
    assert_eq!(shown["sites"][0]["id"], "billing");
    assert_eq!(shown["sites"][0]["environments"], json!(["staging"]));
    assert_eq!(shown["sites"][0]["entities"][0]["id"], "ledger");

    let wrong = run_with(
        &["inspect", "manifest", "-", "--json"],
        "services:\n  - id: 'a:b'\n",
    );
    assert!(wrong.refused().contains("a:b"), "{wrong:?}");
}

#[test]
fn the_schema_describes_every_key_with_its_default() {
    let ran = run(&["schema", "--json"]);
    let schema = ran.object();
    assert_eq!(ran.status, 0);
    assert_eq!(schema["additionalProperties"], json!(false));
    let relay = &schema["$defs"]["Relay"]["properties"];
    assert_eq!(relay["reply_ttl_ms"]["default"], json!(30_000));
    assert_eq!(relay["store"]["default"], json!("embedded"));
    for (section, keys) in [("Relay", 20), ("Embedded", 3), ("Admin", 1), ("Log", 2)] {
        let properties = schema["$defs"][section]["properties"].as_object().unwrap();
        assert_eq!(properties.len(), keys, "{section}");
        for (key, described) in properties {
            assert!(described["description"].is_string(), "{section}.{key}");
        }
    }
}

#[test]
fn what_formats_make_of_data_can_be_seen() {
    let inspect = |arguments: &[&str]| {
        let all = [&["inspect", "format"][..], arguments, &["--json"]].concat();
        run(&all)
    };
    let convert = |from, to, data| inspect(&["convert", "--from", from, "--to", to, data]);
    let found = inspect(&["detect", r#"{"id":"1","command":"x"}"#]);
    assert_eq!(found.status, 0);
    assert_eq!(found.object()["format"], "standard_json");
    let found = inspect(&["detect", "-5"]);
    assert_eq!(found.status, 1);
    assert_eq!(found.object()["format"], serde_json::Value::Null);
    let message = r#"{"i":1234567890123456789012345678901234567890.10}"#;
    let done = convert("resp3", "standard_json", message);
    let expected = r#"{"data":{"id":1234567890123456789012345678901234567890.10}}"#;
    assert_eq!((done.status, done.out.trim_end()), (0, expected));
    let done = convert("standard_json", "msgpack", r#"{"id":"1"}"#);
    assert_eq!(done.status, 0);
    assert_eq!(done.object()["data"], "gaJpZKEx");
    let failed = convert("standard_json", "resp3", r#"{"timestamp":"x"}"#);
    assert_eq!(failed.status, 1);
    convert("standard_json", "resp3", "x").refused();
    convert("standard_json", "nope", "{}").refused();
}

#[test]
fn a_cluster_is_refused_by_the_command_line_with_the_reason() {
    let url = "redis+cluster://:s3cret@127.0.0.1:1,127.0.0.1:2";
    let ran = run(&["--url", url, "policy", "list"]);
    let said = ran.refused();
    assert!(
        said.contains("redis-cli -c") && !said.contains("s3cret"),
        "{said}"
    );
}
