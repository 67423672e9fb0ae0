//! Services and callers of different languages speak to each other.

use crossway_harness::store::{add, connect, entry_with, registered, unified_stream as stream};
use crossway_harness::{Daemon, RedisServer};
use serde_json::{Value, json};

use super::speaker::{Language, Service};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crossway");
const TEXT: &str = r#"{"line":"one\r\ntwo \"three\" \\ ü","deep":[[["$(true)"]]]}"#;

/// Every caller asks every service, on a store where nobody is registered.
async fn all_pairs(url: &str) {
    let languages = Language::at_hand(&Language::ALL);
    let mut services = Vec::new();
    for language in &languages {
        services.push(Service::start(*language, url, "one"));
    }
    for language in &languages {
        registered(&mut connect(url).await, &language.site()).await;
    }
    let pairs = languages.iter().map(|caller| {
        let (services, url) = (languages.clone(), url.to_owned());
        let caller = *caller;
        tokio::spawn(async move {
            asks_nobody(caller, &url).await;
            for service in &services {
                asks_for_an_echo(caller, *service, &url).await;
            }
            // Each caller with another service, so that each of them fails once.
            let mut other = services.iter().cycle().skip_while(|each| **each != caller);
            asks_for_more(caller, *other.nth(1).unwrap(), &url).await;
        })
    });
    for pair in pairs.collect::<Vec<_>>() {
        pair.await.unwrap();
    }
}

/// A target that isn't there is told apart from one that fails.
async fn asks_nobody(caller: Language, url: &str) {
    let refused = caller.asks(url, "asks-nobody", &["nobody", "sum"]).await;
    assert!(
        refused.err.contains("RELAY.TARGET_NOT_FOUND"),
        "{refused:?}"
    );
    assert_eq!((refused.status, &*refused.out), (1, ""), "{refused:?}");
}

async fn asks_for_an_echo(caller: Language, service: Language, url: &str) {
    let (from, to) = (format!("asks-in-{}", caller.site()), service.site());
    let answered = caller.asks(url, &from, &[&to, "echo", TEXT]).await;
    let result = answered.out.strip_prefix(&format!("{to} answered: "));
    let result = result.unwrap_or_else(|| panic!("{caller:?} of {service:?}: {answered:?}"));
    let (result, text): (Value, Value) = (
        serde_json::from_str(result).unwrap(),
        serde_json::from_str(TEXT).unwrap(),
    );
    assert_eq!(result, text, "{caller:?} of {service:?}");
    assert_eq!(answered.status, 0, "{answered:?}");
}

async fn asks_for_more(caller: Language, service: Language, url: &str) {
    let (from, to) = (format!("asks-in-{}", caller.site()), service.site());
    let ask = async |words: &[&str]| caller.asks(url, &from, words).await;
    let (yes, no) = (format!("{to} answered: "), format!("{to} couldn't: "));

    let sum = ask(&[&to, "sum", "[1, -2, 43]"]).await;
    let result: Value = serde_json::from_str(sum.out.strip_prefix(&yes).unwrap()).unwrap();
    assert_eq!(result["sum"].as_f64(), Some(42.0), "{sum:?}");

    for (command, params) in [("nope", "{}"), ("sum", r#"{"not":"a list"}"#)] {
        let failed = ask(&[&to, command, params]).await;
        assert!(failed.err.starts_with(&no), "{caller:?}: {failed:?}");
        assert_eq!((failed.status, &*failed.out), (1, ""), "{failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_language_is_answered_by_every_other_on_the_embedded_store() {
    let daemon = Daemon::up(PROGRAM, "embedded").await;
    all_pairs(&daemon.embedded_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_language_is_answered_by_every_other_on_a_server() {
    let server = RedisServer::start().await;
    let _daemon = Daemon::up(PROGRAM, &server.url()).await;
    all_pairs(&server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_answered_in_one_or_refused_in_one() {
    let daemon = Daemon::up(PROGRAM, "embedded").await;
    let url = daemon.embedded_url();
    let mut shop = connect(&url).await;
    let p = r#"[{"c":"sum","p":[1,2],"i":"x"},{"c":"nope"}]"#;
    for language in Language::at_hand(&Language::BY_HAND) {
        let _service = Service::start(language, &url, "one");
        let site = language.site();
        let batch = [("t", "bc"), ("i", &site), ("p", p), ("_rt", &site)];
        add(&mut shop, &stream("shop"), &batch).await;
        let wanted = [("t", "br"), ("ri", &*site)];
        let answer = entry_with(&mut shop, &stream("shop"), &wanted).await;
        if language == Language::Bash {
            assert_eq!(
                answer["_ec"], "UNKNOWN_COMMAND",
                "it takes none, and says so"
            );
            continue;
        }
        let results: Value = serde_json::from_str(&answer["r"]).unwrap();
        assert_eq!(results[0], json!({"ri": "x", "st": "ok", "r": {"sum": 3}}));
        assert_eq!(
            (&results[1]["st"], &results[1]["_ec"]),
            (&json!("error"), &json!("UNKNOWN_COMMAND")),
            "{language:?}"
        );
    }
}
