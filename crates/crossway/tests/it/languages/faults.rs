//! What may happen to a service, and what the examples make of it.

use std::time::Duration;

use crossway_harness::store::{add, connect, entries, entry_with, unified_stream as stream};
use crossway_harness::{Daemon, RedisServer, eventually};

use super::speaker::{Language, Service};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crossway");
/// The examples try again after a second.
const PATIENCE: Duration = Duration::from_secs(30);

async fn is_answered(url: &str, language: Language) {
    let (site, what) = (language.site(), format!("an answer in {language:?}"));
    eventually(PATIENCE, &what, || async {
        let asked = Language::Rust
            .asks(url, "shop", &[&site, "echo", "7"])
            .await;
        (asked.out == format!("{site} answered: 7\n")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_starts_again_answers_first_what_it_had_in_hand() {
    let daemon = Daemon::up(PROGRAM, "embedded").await;
    let url = daemon.embedded_url();
    let mut store = connect(&url).await;
    for language in Language::at_hand(&Language::BY_HAND) {
        let site = language.site();
        let _: () = redis::cmd("XGROUP")
            .arg(&["CREATE", &*stream(&site), "service", "0", "MKSTREAM"])
            .query_async(&mut store)
            .await
            .unwrap();
        for id in ["old", "new"] {
            let id = format!("{site}-{id}");
            let command = [("t", "c"), ("i", &*id), ("c", "ticket"), ("_rt", &site)];
            add(&mut store, &stream("shop"), &command).await;
            entry_with(&mut store, &stream(&site), &[("_oi", &id)]).await;
        }
        // The process that it was read one of the two, and died.
        let read: redis::Value = redis::cmd("XREADGROUP")
            .arg(&["GROUP", "service", "one", "COUNT", "1"])
            .arg(&["STREAMS", &*stream(&site), ">"])
            .query_async(&mut store)
            .await
            .unwrap();
        assert_ne!(read, redis::Value::Nil);

        let _service = Service::start(language, &url, "one");
        for (id, ticket) in [("old", 1), ("new", 2)] {
            let wanted = [("ri", &*format!("{site}-{id}")), ("ss", &site)];
            let answer = entry_with(&mut store, &stream("shop"), &wanted).await;
            let ticket = serde_json::json!({ "ticket": ticket });
            let given: serde_json::Value = serde_json::from_str(&answer["r"]).unwrap();
            assert_eq!(given, ticket, "{language:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_command_is_answered_as_before_and_not_worked_on_again() {
    let daemon = Daemon::up(PROGRAM, "embedded").await;
    let url = daemon.embedded_url();
    let mut store = connect(&url).await;
    for language in Language::at_hand(&Language::BY_HAND) {
        let site = language.site();
        let command = [("t", "c"), ("i", "1"), ("c", "ticket"), ("_rt", &site)];
        let _service = Service::start(language, &url, "one");
        add(&mut store, &stream("shop"), &command).await;
        let arrived = entry_with(&mut store, &stream(&site), &[("t", "c")]).await;
        let copy: Vec<(&str, &str)> = arrived.iter().map(|(n, v)| (&**n, &**v)).collect();
        add(&mut store, &stream(&site), &copy).await;

        let what = format!("both copies are answered in {language:?}");
        let answers = eventually(PATIENCE, &what, async || {
            let answers: Vec<String> = entries(&mut store, &stream(&site))
                .await
                .into_iter()
                .map(|(_, fields)| fields)
                .filter(|fields| fields.get("ri") == Some(&arrived["i"]))
                .map(|fields| fields["r"].clone())
                .collect();
            (answers.len() == 2).then_some(answers)
        })
        .await;
        assert_eq!(answers[0], answers[1], "{language:?}");
        let next = language.asks(&url, "shop", &[&site, "ticket"]).await;
        assert!(next.out.contains("2}"), "{language:?}: {next:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_go_on_when_their_store_was_killed_and_came_back() {
    let mut daemon = Daemon::up(PROGRAM, "embedded").await;
    let url = daemon.embedded_url();
    let languages = Language::at_hand(&Language::ALL);
    let services = languages
        .iter()
        .map(|language| Service::start(*language, &url, "one"));
    let _services: Vec<Service> = services.collect();
    for language in &languages {
        is_answered(&url, *language).await;
    }
    daemon.kill();
    daemon.start_ready().await;
    for language in &languages {
        is_answered(&url, *language).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_make_their_group_again_when_the_server_was_flushed() {
    let server = RedisServer::start().await;
    let url = server.url();
    let _daemon = Daemon::up(PROGRAM, &url).await;
    let languages = Language::at_hand(&Language::ALL);
    let services = languages
        .iter()
        .map(|language| Service::start(*language, &url, "one"));
    let _services: Vec<Service> = services.collect();
    for language in &languages {
        is_answered(&url, *language).await;
    }
    server.flush().await;
    for language in &languages {
        is_answered(&url, *language).await;
    }
}
