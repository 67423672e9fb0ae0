//! A wait on the embedded store is use for as long as it lasts.

use std::time::{Duration, Instant};

use crossway_harness::eventually;

use crate::store::{DEADLINE, Store};

const IDLE: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_somebody_waits_on_is_in_use_however_long() {
    let store = Store::embedded().await;
    store.streams.make_group("s", "g").await.expect("a group");
    let began = Instant::now();
    let waiting = async {
        let wait = [
            "XREADGROUP",
            "GROUP",
            "g",
            "me",
            "BLOCK",
            "1500",
            "STREAMS",
            "s",
            ">",
        ];
        let given: redis::Value = store.raw(&wait).await;
        assert_eq!(given, redis::Value::Nil);
        assert!(began.elapsed() > IDLE * 3);
        // It ended just now, so it counts as used until now.
        store
            .streams
            .delete_idle("s", IDLE)
            .await
            .expect("an answer")
    };
    let looking = eventually(DEADLINE, "the wait to be long", async || {
        let unused = store
            .streams
            .delete_idle("s", IDLE)
            .await
            .expect("an answer");
        assert!(unused.is_some(), "after {:?}", began.elapsed());
        (began.elapsed() > IDLE * 3).then_some(())
    });
    let (after, ()) = tokio::join!(waiting, looking);
    assert!(after.is_some());
    eventually(DEADLINE, "the stream to go", async || {
        let unused = store
            .streams
            .delete_idle("s", IDLE)
            .await
            .expect("an answer");
        unused.is_none().then_some(())
    })
    .await;
}
