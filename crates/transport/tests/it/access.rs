//! Who is let in to a server, and by which way.

use crossway_harness::RedisServer;
use crossway_transport::streams::valkey::{StoreUrl, Valkey};
use crossway_transport::streams::{Settled, StoreError};

use crate::store::{Store, connect, fields, forward, keys, read, read_until, settle};

async fn refused(url: &str) -> String {
    let url: StoreUrl = url.parse().expect("a URL");
    Valkey::connect(&url)
        .await
        .expect_err("nobody is let in")
        .to_string()
}

#[tokio::test]
async fn a_wrong_password_is_told_and_not_shown() {
    let server = RedisServer::builder()
        .config("requirepass", "right")
        .start()
        .await;
    let at = format!("127.0.0.1:{}", server.port());
    let error = refused(&format!("redis://:wr0ng@{at}")).await;
    assert!(
        error.contains("WRONGPASS") && error.contains(&at) && !error.contains("wr0ng"),
        "{error}"
    );
    let error = refused(&format!("redis://{at}")).await;
    assert!(error.contains("NOAUTH"), "{error}");
    let store = connect(&format!("redis://:right@{at}")).await;
    store.hash_set("h", "f", "1").await.expect("a change");
}

#[tokio::test]
async fn nobody_there_is_told_with_where_and_why() {
    let mut server = RedisServer::start().await;
    let url = server.url();
    server.kill();
    let error = refused(&url).await;
    assert!(error.contains(&url) && error.contains("refused"), "{error}");
}

#[tokio::test]
async fn a_cluster_is_refused_with_the_reason() {
    let server = RedisServer::builder()
        .config("cluster-enabled", "yes")
        .start()
        .await;
    for url in [
        server.url(),
        server.url().replace("redis://", "redis+cluster://"),
    ] {
        let error = refused(&url).await;
        assert!(error.contains("redis+cluster://HOST1,HOST2"), "{error}");
    }
}

/// One crossing and one change: what every way to the store must be able to do.
async fn works(url: &str, server: &RedisServer) {
    let store = Store::by(url, server).await;
    store.add("a", "1").await;
    store
        .streams
        .hash_update("h", &mut |_| Vec::new())
        .await
        .expect("an update");
    let mut reader = store.reader_with(&["a"], |options| options.watched = keys(&["h"]));
    let batch = read(&mut *reader, 1).await;
    let long = "x".repeat(1_000_000);
    assert_eq!(
        settle(&mut *reader, vec![forward(&batch.entries[0], "b", &long)])
            .await
            .expect("an answer"),
        [Settled::Done]
    );
    assert_eq!(store.values("b").await, [long]);
}

#[tokio::test]
async fn a_unix_socket_leads_to_the_store() {
    let server = RedisServer::builder().unix_socket(true).start().await;
    works(&server.unix_url(), &server).await;
}

#[tokio::test]
async fn tls_leads_to_the_store_when_its_authority_is_trusted() {
    let server = RedisServer::builder().tls(true).start().await;
    works(
        &format!("{}?ca={}", server.tls_url(), server.authority().display()),
        &server,
    )
    .await;
    let error = refused(&server.tls_url()).await;
    assert!(
        error.contains("ertificate") || error.contains("authority"),
        "{error}"
    );
    let error = refused(&format!("{}?ca=/nowhere.pem", server.tls_url())).await;
    assert!(error.contains("/nowhere.pem"), "{error}");
}

#[tokio::test]
async fn a_user_needs_no_more_than_the_keys_and_commands_it_uses() {
    let commands = "-@all +hello +auth +client +ping +info +select +script|load +evalsha +xreadgroup +xgroup|create \
                    +xack +xadd +xdel +xclaim +xrange +xtrim +type +exists +set +mget +del +hget +hgetall +hset +hsetnx +hdel \
                    +watch +unwatch +multi +exec +scan";
    let rule = format!("user daemon on >p%w ~a ~b ~h ~members {commands}");
    let server = RedisServer::builder().acl_line(&rule).start().await;
    let url = server.url().replace("://", "://daemon:p%25w@");
    works(&url, &server).await;
    let store = connect(&url).await;
    let refused = store.append("elsewhere", fields(&[("v", "1")])).await;
    assert!(
        matches!(&refused, Err(StoreError::Refused { key, reason, .. }) if key == "elsewhere" && reason.starts_with("NOPERM")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_database_is_chosen() {
    let server = RedisServer::start().await;
    let store = connect(&format!("{}/3", server.url())).await;
    store.hash_set("h", "f", "1").await.expect("a change");
    store
        .hash_update("h", &mut |hash| {
            assert_eq!(hash.len(), 1);
            Vec::new()
        })
        .await
        .expect("an update");
    let mut client = server.client().await;
    redis::cmd("SELECT")
        .arg(3)
        .exec_async(&mut client)
        .await
        .expect("database 3");
    let there: bool = redis::cmd("EXISTS")
        .arg("h")
        .query_async(&mut client)
        .await
        .expect("an answer");
    assert!(there);
}

#[tokio::test]
async fn a_server_that_cannot_tell_of_changes_is_assumed_to_have_them() {
    // Without the right to CLIENT TRACKING.
    let server = RedisServer::builder()
        .acl_line("user daemon on >pw ~* +@all -client|tracking")
        .start()
        .await;
    let store = Store::by(&server.url().replace("://", "://daemon:pw@"), &server).await;
    let mut reader = store.reader_with(&["a"], |options| options.watched = keys(&["rules"]));
    assert!(reader.read().await.expect("a read").changed);
    assert!(!reader.read().await.expect("a read").changed);
    read_until(&mut *reader, "change", |batch| batch.changed).await;
}
