//! What works on a store.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

pub(crate) use crossway_harness::store::PATIENCE as SOON;
use crossway_harness::store::add;
use crossway_harness::{RedisServer, eventually};
use serde_json::{Value, json};

use crate::program::{Ran, program, run};

fn on(server: &RedisServer, arguments: &[&str]) -> Ran {
    let url = server.url();
    let mut all = arguments.to_vec();
    all.extend(["--url", &url, "--json"]);
    run(&all)
}

#[tokio::test]
async fn a_rule_that_is_set_is_listed_explained_and_removed() {
    let server = RedisServer::start().await;
    let set = on(
        &server,
        &[
            "policy",
            "set",
            "a",
            "{b}",
            "deny",
            "--reason",
            "no",
            "--commands",
            "write,drop*",
        ],
    );
    assert_eq!(
        (set.status, set.object()["set"].as_str().unwrap()),
        (0, "a:b")
    );

    let stored: HashMap<String, String> = redis::cmd("HGETALL")
        .arg("gnode:gnode:relay:policy")
        .query_async(&mut server.client().await)
        .await
        .unwrap();
    let rule: Value = serde_json::from_str(&stored["a:b"]).unwrap();
    assert_eq!(
        rule,
        json!({"action": "deny", "reason": "no", "commands": ["write", "drop*"]})
    );

    let listed = on(&server, &["policy", "list"]).object();
    assert_eq!(listed["rules"]["a:b"], rule);
    assert_eq!(listed["default"], "allow");

    let explain = |command| {
        on(
            &server,
            &[
                "policy",
                "explain",
                "--source",
                "a",
                "--target",
                "b",
                "--command",
                command,
            ],
        )
    };
    assert_eq!((explain("drop_all").status, explain("read").status), (1, 0));
    assert_eq!(
        explain("write").object(),
        json!({"action": "deny", "rule": "a:b", "reason": "no"})
    );

    let removed = on(&server, &["policy", "remove", "a", "b"]);
    assert_eq!(
        (removed.status, removed.object()["removed"].as_bool()),
        (0, Some(true))
    );
    let again = on(&server, &["policy", "remove", "a", "b"]);
    assert_eq!(
        (again.status, again.object()["removed"].as_bool()),
        (1, Some(false))
    );
    assert_eq!(explain("write").status, 0);
}

#[tokio::test]
async fn a_rule_is_removed_however_its_sites_are_spelled() {
    let server = RedisServer::start().await;
    let rule = r#"{"action":"deny","commands":["*"]}"#;
    let mut connection = server.client().await;
    for (stored, given) in [
        ("{a}:b", ["a", "b"]),
        ("{a}:{b}", ["a", "{b}"]),
        ("a:b", ["{a}", "{b}"]),
        ("*:{b}", ["*", "b"]),
        ("not a site:b", ["not a site", "b"]),
    ] {
        let _: i64 = redis::cmd("HSET")
            .arg(&["gnode:gnode:relay:policy", stored, rule])
            .query_async(&mut connection)
            .await
            .unwrap();
        let removed = on(&server, &["policy", "remove", given[0], given[1]]);
        assert_eq!(removed.status, 0, "{stored}");
        let listed = on(&server, &["policy", "list"]).object();
        assert_eq!(listed["rules"], json!({}), "{stored}");
    }
}

#[tokio::test]
async fn over_tls_the_authority_that_the_url_names_is_the_one_that_is_believed() {
    let server = RedisServer::builder().tls(true).start().await;
    let trusting = format!("{}?ca={}", server.tls_url(), server.authority().display());
    let list = |url: &str| run(&["policy", "list", "--json", "--url", url]);
    assert_eq!(list(&trusting).status, 0);
    assert_ne!(list(&server.tls_url()).status, 0, "nobody vouches for it");
    let elsewhere = list(&format!("{}?ca=/nowhere.pem", server.tls_url()));
    assert_ne!(elsewhere.status, 0);
    assert!(elsewhere.err.contains("/nowhere.pem"), "{}", elsewhere.err);
}

#[tokio::test]
async fn a_stored_rule_that_can_not_be_read_denies_and_is_shown_as_such() {
    let server = RedisServer::start().await;
    let _: i64 = redis::cmd("HSET")
        .arg(&["gnode:gnode:relay:policy", "a:b", "nonsense"])
        .query_async(&mut server.client().await)
        .await
        .unwrap();
    let explained = on(
        &server,
        &[
            "policy",
            "explain",
            "--source",
            "a",
            "--target",
            "b",
            "--command",
            "x",
        ],
    );
    assert_eq!(
        (
            explained.status,
            explained.object()["rule"].as_str().unwrap()
        ),
        (1, "a:b")
    );
    let listed = on(&server, &["policy", "list"]).object();
    assert_eq!(listed["rules"]["a:b"]["action"], "deny");
    assert!(listed["rules"]["a:b"]["fault"].is_string());
}

#[tokio::test]
async fn a_rule_that_could_not_be_read_is_not_stored() {
    let server = RedisServer::start().await;
    for arguments in [
        &["policy", "set", "a b", "c", "deny"][..],
        &["policy", "set", "a", "c", "deny", "--commands", "x*y"],
        &["policy", "set", "a", "c", "deny", "--commands", "x,,y"],
    ] {
        on(&server, arguments).refused();
    }
    let stored: i64 = redis::cmd("EXISTS")
        .arg("gnode:gnode:relay:policy")
        .query_async(&mut server.client().await)
        .await
        .unwrap();
    assert_eq!(stored, 0);
}

#[tokio::test]
async fn sites_are_added_once_listed_and_removed() {
    let server = RedisServer::start().await;
    let add = [
        "sites",
        "add",
        "shop",
        "--env",
        "staging",
        "--env",
        "production",
        "--metadata",
        r#"{"a":1}"#,
    ];
    assert_eq!(
        on(&server, &add).object(),
        json!({"site": "shop", "added": true})
    );
    let again = on(&server, &["sites", "add", "shop"]);
    assert_eq!(
        (again.status, again.object()["added"].as_bool()),
        (1, Some(false))
    );

    let listed = on(&server, &["sites"]).object();
    let shop = &listed["sites"]["shop"];
    assert_eq!(
        shop["environments"],
        json!(["staging", "production"]),
        "adding again changes nothing"
    );
    assert_eq!(shop["metadata"], json!({"a": 1}));
    assert!(shop["registered_at"].as_u64().unwrap() > 1_600_000_000_000);

    assert_eq!(on(&server, &["sites", "remove", "shop"]).status, 0);
    assert_eq!(on(&server, &["sites", "remove", "shop"]).status, 1);
    for wrong in [
        &["sites", "add", "a:b"][..],
        &["sites", "add", "gnode"],
        &["sites", "add", "shop", "--env", "nowhere"],
        &["sites", "add", "shop", "--metadata", "[]"],
    ] {
        on(&server, wrong).refused();
    }
    assert_eq!(
        on(&server, &["sites", "list"]).object(),
        json!({"sites": {}})
    );
}

#[tokio::test]
async fn a_send_that_nobody_relays_says_so() {
    let server = RedisServer::start().await;
    let ran = on(
        &server,
        &[
            "send",
            "billing",
            "charge",
            r#"{"cents":1}"#,
            "--from",
            "shop",
            "--timeout",
            "200ms",
        ],
    );
    assert_eq!(ran.status, 1, "{ran:?}");
    let object = ran.object();
    assert_eq!(
        (
            object["ok"].as_bool(),
            object["code"].as_str(),
            object["relayed"].as_bool()
        ),
        (Some(false), Some("TIMEOUT"), Some(false))
    );
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

#[tokio::test]
async fn a_send_that_can_not_be_is_refused() {
    let server = RedisServer::start().await;
    for (arguments, named) in [
        (
            &["send", "billing", "charge", "{", "--from", "shop"][..],
            "PARAMS",
        ),
        (
            &[
                "send",
                "billing",
                "charge",
                "@/nonexistent",
                "--from",
                "shop",
            ],
            "/nonexistent",
        ),
        (&["send", "billing", "charge", "--from", "a:b"], "a:b"),
        (&["send", "", "charge", "--from", "shop"], "target"),
        (&["send", "billing", "charge", "--from", "gnode"], "gnode"),
        (
            &[
                "send", "billing", "charge", "--from", "shop", "--env", "moon",
            ],
            "moon",
        ),
        (&["send", "billing", "charge"], "--from"),
    ] {
        let ran = on(&server, arguments);
        assert!(ran.refused().contains(named), "{ran:?}");
    }
}

#[test]
fn a_store_that_is_not_there_is_named_without_its_password() {
    let url = "redis://:hunter2@127.0.0.1:1";
    for arguments in [
        &["sites"][..],
        &["policy", "list"],
        &[
            "policy",
            "explain",
            "--source",
            "a",
            "--target",
            "b",
            "--command",
            "c",
        ],
        &["send", "billing", "charge", "--from", "shop"],
        &["tail", "shop"],
    ] {
        let mut all = arguments.to_vec();
        all.extend(["--url", url, "--json"]);
        let ran = run(&all);
        let reason = ran.refused();
        assert!(reason.contains("127.0.0.1:1"), "{ran:?}");
        assert!(!reason.contains("hunter2"), "{ran:?}");
    }
    assert!(
        !run(&["sites", "--url", "http://:hunter2@x"])
            .refused()
            .contains("hunter2")
    );
}

#[tokio::test]
async fn tail_shows_both_spellings_in_the_order_they_were_written() {
    let server = RedisServer::start().await;
    add(
        &mut server.client().await,
        "shop:gnode:unified:production",
        &[("t", "c"), ("p", &"x".repeat(500))],
    )
    .await;
    add(
        &mut server.client().await,
        "{shop}:gnode:unified:production",
        &[("t", "r"), ("e", "a\u{1b}[31mb")],
    )
    .await;

    let arguments = ["tail", "shop", "--from-start", "--count", "2"];
    let ran = on(&server, &arguments);
    assert_eq!(ran.status, 0, "{ran:?}");
    let lines: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["stream"], "shop:gnode:unified:production");
    assert_eq!(
        lines[0]["fields"]["p"].as_str().unwrap().chars().count(),
        121,
        "cut, with an ellipsis"
    );
    assert_eq!(lines[1]["stream"], "{shop}:gnode:unified:production");

    let url = server.url();
    let text = run(&[
        "tail",
        "shop",
        "--from-start",
        "--count",
        "2",
        "--full",
        "--url",
        &url,
    ]);
    assert!(text.out.contains(&"x".repeat(500)), "{text:?}");
    assert!(
        !text.out.contains('\u{1b}'),
        "a value can't draw on the terminal: {text:?}"
    );
}

/// A program that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn tail_follows_sites_that_register_later() {
    let server = RedisServer::start().await;
    let url = server.url();
    let child = program(&["tail", "--count", "1", "--json", "--url", &url])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut tail = Running(child);
    let mut store = server.client().await;
    eventually(SOON, "tail has looked for sites once", async || {
        let clients: String = redis::cmd("CLIENT")
            .arg("LIST")
            .query_async(&mut store)
            .await
            .unwrap();
        clients.contains("cmd=hgetall").then_some(())
    })
    .await;

    add(
        &mut server.client().await,
        "late:gnode:unified:production",
        &[("t", "c"), ("c", "hello")],
    )
    .await;
    assert_eq!(on(&server, &["sites", "add", "late"]).status, 0);

    let out = tail.0.stdout.take().unwrap();
    let line = tokio::task::spawn_blocking(move || BufReader::new(out).lines().next());
    let line = tokio::time::timeout(SOON, line)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .unwrap();
    let seen: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(seen["fields"]["c"], "hello");
}
