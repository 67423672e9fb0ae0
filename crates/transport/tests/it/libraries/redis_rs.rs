//! The library `redis` for Rust.

use crate::wire::Served;

/// A stream's name, with ids and fields.
type Read = (String, Vec<(String, Vec<String>)>);

#[tokio::test]
async fn the_common_client_library_works_unchanged() {
    let ours = Served::plain().await;
    let client = redis::Client::open(format!("{}/?protocol=resp3", ours.url())).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let id: String = redis::cmd("XADD")
        .arg("s")
        .arg("*")
        .arg("f")
        .arg("v")
        .query_async(&mut connection)
        .await
        .unwrap();
    let read: Vec<Read> = redis::cmd("XREAD")
        .arg("STREAMS")
        .arg("s")
        .arg("0")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(
        read,
        [(
            "s".to_owned(),
            vec![(id, vec!["f".to_owned(), "v".to_owned()])]
        )]
    );
    let set: bool = redis::cmd("SET")
        .arg("k")
        .arg("v")
        .arg("EX")
        .arg(10)
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(set);
    ours.stop().await;
}
