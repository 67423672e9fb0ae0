//! Asking and telling.

use std::time::Duration;

use crossway_client::{CallError, Client, Command, Failure};
use crossway_harness::{RedisServer, eventually};
use serde_json::{Value, json};

use crate::relay::Relay;
use crate::store::{SOON, connect, entries, of_type, stream};

async fn double(command: Command) -> Result<Value, Failure> {
    match command.name() {
        "double" => Ok(json!(command.params::<i64>()? * 2)),
        other => Err(Failure::new(
            "UNKNOWN_COMMAND",
            format!("{other} isn't known"),
        )),
    }
}

#[tokio::test]
async fn a_call_is_answered_by_the_site_it_names() {
    let server = RedisServer::start().await;
    let _relay = Relay::start(&server, &["shop", "billing"]).await;
    let billing = Client::builder()
        .node("b1")
        .connect(&server.url(), "billing", "production")
        .await
        .unwrap();
    let _serving = billing.serve(double).await.unwrap();
    let shop = connect(&server, "shop").await;

    let reply = shop.call("billing", "double", &21, SOON).await.unwrap();

    assert_eq!(reply.json::<i64>().unwrap(), 42);
    assert_eq!((reply.site(), reply.node()), ("billing", "b1"));
    let sent = &of_type(&server, "shop", "c").await[0];
    assert_eq!(
        (sent["c"].as_str(), sent["p"].as_str(), sent["ss"].as_str()),
        ("double", "21", "shop")
    );
    assert_eq!(sent["i"].len(), 32, "128 bits in hexadecimal");
}

#[tokio::test]
async fn a_refusal_and_a_failure_are_told_apart_and_carry_their_code() {
    let server = RedisServer::start().await;
    let _relay = Relay::start(&server, &["shop", "billing"]).await;
    let billing = connect(&server, "billing").await;
    let _serving = billing.serve(double).await.unwrap();
    let shop = connect(&server, "shop").await;

    let refused = shop.call("nobody", "double", &1, SOON).await.unwrap_err();
    assert!(
        matches!(&refused, CallError::Refused { code, .. } if code == "RELAY.TARGET_NOT_FOUND"),
        "{refused:?}"
    );

    let failed = shop.call("billing", "halve", &1, SOON).await.unwrap_err();
    assert!(
        matches!(&failed, CallError::Failed { code: Some(code), .. } if code == "UNKNOWN_COMMAND"),
        "{failed:?}"
    );
    let unfit = shop
        .call("billing", "double", &"x", SOON)
        .await
        .unwrap_err();
    assert_eq!(unfit.code(), Some("INVALID_PARAMS"));
}

#[tokio::test]
async fn a_timeout_says_whether_the_target_has_the_command() {
    let server = RedisServer::start().await;
    let shop = connect(&server, "shop").await;
    let short = Duration::from_millis(300);

    let nobody_relays = shop.call("billing", "double", &1, short).await.unwrap_err();
    assert!(
        matches!(nobody_relays, CallError::Timeout { relayed: false }),
        "{nobody_relays:?}"
    );

    let _relay = Relay::start(&server, &["shop", "billing"]).await;
    // Long enough for the relay, which has an older command before it; nobody serves.
    let nobody_serves = shop
        .call("billing", "double", &1, Duration::from_secs(3))
        .await
        .unwrap_err();
    assert!(
        matches!(nobody_serves, CallError::Timeout { relayed: true }),
        "{nobody_serves:?}"
    );
}

#[tokio::test]
async fn an_event_waits_for_the_daemon_and_not_for_an_answer() {
    let server = RedisServer::start().await;
    let _relay = Relay::start(&server, &["shop", "billing"]).await;
    let (told, mut hears) = tokio::sync::mpsc::channel(1);
    let billing = connect(&server, "billing").await;
    let serving = billing
        .serve(move |command: Command| {
            let told = told.clone();
            async move {
                told.send((command.name().to_owned(), command.is_event()))
                    .await
                    .unwrap();
                Ok::<_, Failure>(())
            }
        })
        .await
        .unwrap();
    let shop = connect(&server, "shop").await;

    shop.notify("billing", "paid", &json!({"order": 7}))
        .await
        .unwrap();

    assert_eq!(hears.recv().await, Some(("paid".to_owned(), true)));
    serving.stop().await;
    assert!(
        of_type(&server, "billing", "r").await.is_empty(),
        "an event isn't answered"
    );
    let refused = shop.notify("nobody", "paid", &()).await.unwrap_err();
    assert_eq!(refused.code(), Some("RELAY.TARGET_NOT_FOUND"));
}

#[tokio::test]
async fn processes_of_one_site_each_see_their_own_answers() {
    let server = RedisServer::start().await;
    let _relay = Relay::start(&server, &["shop", "billing"]).await;
    let billing = connect(&server, "billing").await;
    let _serving = billing.serve(double).await.unwrap();
    let url = server.url();
    let connect = || Client::connect(&url, "shop", "production");
    let (one, two) = (connect().await.unwrap(), connect().await.unwrap());

    let mut calls = tokio::task::JoinSet::new();
    for n in 0..50_i64 {
        let client = if n % 2 == 0 { one.clone() } else { two.clone() };
        calls.spawn(async move {
            (
                n,
                client
                    .call("billing", "double", &n, SOON)
                    .await
                    .unwrap()
                    .json::<i64>()
                    .unwrap(),
            )
        });
    }
    let answers = calls.join_all().await;

    assert_eq!(answers.len(), 50);
    for (asked, answer) in answers {
        assert_eq!(answer, asked * 2);
    }
}

#[tokio::test]
async fn a_site_registers_only_while_its_stream_does_not_exist() {
    let server = RedisServer::start().await;
    let mut store = server.client().await;
    let _first = Client::connect(&server.url(), "shop", "staging")
        .await
        .unwrap();

    let registered = entries(&mut store, "gnode:gnode:register").await;
    assert_eq!(registered.len(), 1);
    let (_, fields) = &registered[0];
    assert_eq!(
        (fields["t"].as_str(), fields["c"].as_str()),
        ("c", "register_service")
    );
    let params: Value = serde_json::from_str(&fields["p"]).unwrap();
    assert_eq!(
        params,
        json!({"id": "shop", "environments": ["staging"], "metadata": {}})
    );

    crate::store::add(&mut store, &stream("known"), &[("t", "e")]).await;
    let _known = connect(&server, "known").await;
    assert_eq!(entries(&mut store, "gnode:gnode:register").await.len(), 1);
}

#[tokio::test]
async fn a_write_without_an_answer_is_told_as_unknown_and_not_repeated() {
    let server = RedisServer::start().await;
    let shop = Client::builder()
        .response_timeout(Duration::from_millis(200))
        .connect(&server.url(), "shop", "production")
        .await
        .unwrap();
    server.pause();

    let ended = shop
        .call("billing", "charge", &1, Duration::from_secs(1))
        .await
        .unwrap_err();
    server.resume();

    assert!(matches!(ended, CallError::Unknown(_)), "{ended:?}");
    // A later command that certainly was written stands behind whatever was written before.
    let again = eventually(SOON, "the connection is back", async || {
        match shop
            .call("billing", "later", &1, Duration::from_millis(300))
            .await
        {
            Err(CallError::Timeout { relayed: false }) => Some(()),
            _ => None,
        }
    });
    again.await;
    let charges = of_type(&server, "shop", "c")
        .await
        .into_iter()
        .filter(|sent| sent["c"] == "charge")
        .count();
    assert!(charges <= 1, "sent {charges} times");
}

#[tokio::test]
async fn a_store_that_is_down_is_told_as_such_and_used_again_when_it_is_back() {
    let mut server = RedisServer::builder().append_only(true).start().await;
    let billing = connect(&server, "billing").await;
    let _serving = billing.serve(double).await.unwrap();
    let shop = connect(&server, "shop").await;
    server.kill();

    let down = eventually(
        SOON,
        "a call that was certainly not sent",
        async || match shop
            .call("billing", "double", &1, Duration::from_millis(200))
            .await
        {
            Err(CallError::Store(error)) => Some(error.to_string()),
            _ => None,
        },
    )
    .await;
    assert!(down.contains(&server.port().to_string()), "{down}");

    server.restart().await;
    let _relay = Relay::start(&server, &["shop", "billing"]).await;
    let answer = eventually(SOON, "an answer over new connections", async || {
        shop.call("billing", "double", &4, SOON).await.ok()
    })
    .await;
    assert_eq!(answer.json::<i64>().unwrap(), 8);
}

#[tokio::test]
async fn calls_beyond_the_bound_wait_for_their_turn_within_their_time() {
    let server = RedisServer::start().await;
    let shop = Client::builder()
        .max_waiting(1)
        .connect(&server.url(), "shop", "production")
        .await
        .unwrap();
    let waiting = tokio::spawn({
        let shop = shop.clone();
        async move { shop.call("billing", "first", &1, SOON).await }
    });
    eventually(SOON, "the first call is written", async || {
        (!of_type(&server, "shop", "c").await.is_empty()).then_some(())
    })
    .await;

    let second = shop
        .call("billing", "second", &1, Duration::from_millis(100))
        .await
        .unwrap_err();
    assert!(matches!(second, CallError::Busy { limit: 1 }), "{second:?}");

    // A call that is given up makes room.
    waiting.abort();
    let third = shop
        .call("billing", "third", &1, Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(
        matches!(third, CallError::Timeout { relayed: false }),
        "{third:?}"
    );
}

#[tokio::test]
async fn closing_ends_the_calls_that_wait() {
    let server = RedisServer::start().await;
    let shop = connect(&server, "shop").await;
    let waiting = tokio::spawn({
        let shop = shop.clone();
        async move { shop.call("billing", "charge", &1, SOON).await }
    });
    eventually(SOON, "the call is written", async || {
        (!of_type(&server, "shop", "c").await.is_empty()).then_some(())
    })
    .await;

    shop.close().await;

    assert!(matches!(waiting.await.unwrap(), Err(CallError::Closed)));
}

#[tokio::test]
async fn a_client_that_can_not_be_says_why_without_the_password() {
    let nowhere = Client::connect("redis://:hunter2@127.0.0.1:1", "shop", "production")
        .await
        .unwrap_err();
    let text = format!("{nowhere} {nowhere:?}");
    assert!(text.contains("127.0.0.1:1"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let url = Client::connect("http://:hunter2@x", "shop", "production")
        .await
        .unwrap_err();
    assert!(!format!("{url} {url:?}").contains("hunter2"));
    let name = Client::connect("redis://127.0.0.1:1", "a:b", "production")
        .await
        .unwrap_err();
    assert!(name.to_string().contains("a:b"), "{name}");
}

#[tokio::test]
async fn over_tls_the_authority_that_the_url_names_is_the_one_that_is_believed() {
    let server = RedisServer::builder().tls(true).start().await;
    let authority = server.authority().display().to_string();
    let connect = async |url: String| Client::connect(&url, "shop", "production").await;
    let trusting = format!("{}?ca={authority}", server.tls_url());
    assert!(connect(trusting).await.is_ok());
    assert!(connect(server.tls_url()).await.is_err());
    let absent = connect(format!("{}?ca=/nowhere.pem", server.tls_url())).await;
    let told = absent.unwrap_err().to_string();
    assert!(told.contains("/nowhere.pem"), "{told}");
}
