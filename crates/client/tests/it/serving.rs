//! Answering.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossway_client::{Client, Command, Failure};
use crossway_harness::{RedisServer, eventually};
use redis::aio::MultiplexedConnection;
use tokio::sync::Semaphore;

use crate::store::{SOON, add, connect, of_type, pending, stream};

async fn echo(command: Command) -> Result<String, Failure> {
    Ok(command.params_text().to_owned())
}

async fn command(store: &mut MultiplexedConnection, id: &str, name: &str) {
    add(
        store,
        &stream("billing"),
        &[
            ("t", "c"),
            ("i", id),
            ("c", name),
            ("p", "1"),
            ("ss", "shop"),
        ],
    )
    .await;
}

async fn answers(
    server: &RedisServer,
    number: usize,
) -> Vec<std::collections::HashMap<String, String>> {
    eventually(SOON, &format!("{number} answers"), async || {
        Some(of_type(server, "billing", "r").await).filter(|answers| answers.len() >= number)
    })
    .await
}

#[tokio::test]
async fn an_answer_names_the_command_it_answers() {
    let server = RedisServer::start().await;
    let mut store = server.client().await;
    // Written before the service was there, and by an old hand.
    let old = [
        ("type", "c"),
        ("request_id", "d1"),
        ("cmd", "echo"),
        ("params", "7"),
        ("ss", "shop"),
    ];
    add(&mut store, &stream("billing"), &old).await;
    let billing = Client::builder()
        .node("b1")
        .connect(&server.url(), "billing", "production")
        .await
        .unwrap();
    let _serving = billing.serve(echo).await.unwrap();

    let answer = &answers(&server, 1).await[0];
    let field = |name: &str| answer[name].as_str();
    assert_eq!(
        (field("ri"), field("st"), field("r")),
        ("d1", "ok", "\"7\"")
    );
    assert_eq!((field("ss"), field("sn")), ("billing", "b1"));
    assert!(answer["ts"].parse::<u64>().unwrap() > 1_600_000_000_000);
}

#[tokio::test]
async fn what_is_not_for_the_service_is_taken_off_its_list_unanswered() {
    let server = RedisServer::start().await;
    let mut store = server.client().await;
    let billing = connect(&server, "billing").await;
    let _serving = billing.serve(echo).await.unwrap();
    add(
        &mut store,
        &stream("billing"),
        &[("t", "c"), ("i", "x"), ("c", "echo"), ("_rt", "shop")],
    )
    .await;
    add(&mut store, &stream("billing"), &[("t", "bogus")]).await;
    command(&mut store, "mine", "echo").await;

    let all = answers(&server, 1).await;

    assert_eq!(
        all.iter()
            .map(|answer| answer["ri"].as_str())
            .collect::<Vec<_>>(),
        ["mine"]
    );
    eventually(SOON, "nothing is pending", async || {
        (pending(&mut store, "billing").await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_panics_is_an_answer_and_not_the_end() {
    let server = RedisServer::start().await;
    let mut store = server.client().await;
    let billing = connect(&server, "billing").await;
    let _serving = billing
        .serve(|command: Command| async move {
            assert_ne!(command.name(), "bad", "as the test wants it");
            Ok::<_, Failure>("fine")
        })
        .await
        .unwrap();
    command(&mut store, "1", "bad").await;
    command(&mut store, "2", "good").await;

    let all = answers(&server, 2).await;

    let of = |id: &str| all.iter().find(|answer| answer["ri"] == id).unwrap();
    assert_eq!(
        (of("1")["st"].as_str(), of("1")["_ec"].as_str()),
        ("error", "INTERNAL")
    );
    assert!(
        !of("1")["e"].contains("as the test wants it"),
        "a panic's text stays here"
    );
    assert_eq!(of("2")["r"], "\"fine\"");
}

#[tokio::test]
async fn no_more_commands_are_worked_on_at_once_than_allowed() {
    let server = RedisServer::start().await;
    let mut store = server.client().await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let billing = connect(&server, "billing").await;
    let handler = {
        let (now, most, gate) = (now.clone(), most.clone(), gate.clone());
        move |_: Command| {
            let (now, most, gate) = (now.clone(), most.clone(), gate.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Failure>(())
            }
        }
    };
    let _serving = billing
        .service()
        .concurrency(3)
        .start(handler)
        .await
        .unwrap();
    for n in 0..10 {
        command(&mut store, &n.to_string(), "wait").await;
    }
    eventually(SOON, "three are at work", async || {
        (now.load(Ordering::SeqCst) == 3).then_some(())
    })
    .await;

    gate.add_permits(10);

    answers(&server, 10).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_stop_answers_what_was_begun_and_leaves_no_trace() {
    let server = RedisServer::start().await;
    let mut store = server.client().await;
    let (begun, mut begins) = tokio::sync::mpsc::channel(1);
    let gate = Arc::new(Semaphore::new(0));
    let billing = connect(&server, "billing").await;
    let handler = {
        let gate = gate.clone();
        move |_: Command| {
            let (begun, gate) = (begun.clone(), gate.clone());
            async move {
                begun.send(()).await.unwrap();
                gate.acquire().await.unwrap().forget();
                Ok::<_, Failure>("done")
            }
        }
    };
    let serving = billing.serve(handler).await.unwrap();
    command(&mut store, "1", "slow").await;
    begins.recv().await.unwrap();

    let stopping = tokio::spawn(serving.stop());
    gate.add_permits(1);
    stopping.await.unwrap();

    let all = of_type(&server, "billing", "r").await;
    assert_eq!(all.len(), 1);
    assert_eq!(all[0]["r"], "\"done\"");
    assert_eq!(pending(&mut store, "billing").await, 0);
    let groups: Vec<std::collections::HashMap<String, redis::Value>> = redis::cmd("XINFO")
        .arg("GROUPS")
        .arg(stream("billing"))
        .query_async(&mut store)
        .await
        .unwrap();
    assert_eq!(
        groups[0]["consumers"],
        redis::Value::Int(0),
        "its name is off the list"
    );
}

#[tokio::test]
async fn what_a_process_had_read_when_it_died_is_taken_up() {
    let server = RedisServer::start().await;
    let mut store = server.client().await;
    let billing = connect(&server, "billing").await;
    billing.serve(echo).await.unwrap().stop().await;
    command(&mut store, "lost", "echo").await;
    let _: redis::Value = redis::cmd("XREADGROUP")
        .arg(&[
            "GROUP",
            "service",
            "dead-process",
            "STREAMS",
            &stream("billing"),
            ">",
        ])
        .query_async(&mut store)
        .await
        .unwrap();
    assert_eq!(pending(&mut store, "billing").await, 1);

    let _serving = billing
        .service()
        .claim_after(Duration::from_millis(200))
        .start(echo)
        .await
        .unwrap();

    let all = answers(&server, 1).await;
    assert_eq!(all[0]["ri"], "lost");
    eventually(SOON, "nothing is pending", async || {
        (pending(&mut store, "billing").await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_stopped_and_the_sender_told() {
    let server = RedisServer::start().await;
    let mut store = server.client().await;
    let billing = connect(&server, "billing").await;
    let _serving = billing
        .service()
        .claim_after(Duration::from_millis(400))
        .start(|_: Command| std::future::pending::<Result<(), Failure>>())
        .await
        .unwrap();
    command(&mut store, "1", "hang").await;

    let all = answers(&server, 1).await;

    assert_eq!(
        (all[0]["ri"].as_str(), all[0]["_ec"].as_str()),
        ("1", "TIMEOUT")
    );
}

#[tokio::test]
async fn a_store_that_was_emptied_is_served_again() {
    let server = RedisServer::start().await;
    let mut store = server.client().await;
    let billing = connect(&server, "billing").await;
    let _serving = billing.serve(echo).await.unwrap();
    server.flush().await;

    command(&mut store, "after", "echo").await;

    assert_eq!(answers(&server, 1).await[0]["ri"], "after");
}
