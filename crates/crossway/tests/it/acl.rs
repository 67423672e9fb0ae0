//! The store's own users, on a real server: what a site's user can do, and that it can do nothing
//! to anybody else's keys, by any command that the server has.

use std::os::unix::fs::PermissionsExt;

use crossway_harness::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value as Answered};
use serde_json::{Value, json};

use crate::program::{Ran, run};

const A: &str = "a:gnode:unified:testing";

fn on(server: &RedisServer, arguments: &[&str]) -> Ran {
    let url = server.url();
    let mut all = vec!["acl"];
    all.extend(arguments);
    all.extend(["--url", &url, "--json"]);
    run(&all)
}

async fn say<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &[&str],
) -> Result<T, RedisError> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.query_async(connection).await
}

async fn log_in(server: &RedisServer, user: &str, password: &str) -> MultiplexedConnection {
    let url = server
        .url()
        .replace("://", &format!("://{user}:{password}@"));
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// A server on which site `a` has a user with the password `pw`.
async fn with_user_a() -> (RedisServer, MultiplexedConnection) {
    let server = RedisServer::builder()
        .acl_line("user a on >pw")
        .start()
        .await;
    assert_eq!(on(&server, &["apply", "--site", "a"]).status, 0);
    let a = log_in(&server, "a", "pw").await;
    (server, a)
}

/// Every command of the server and of its families that takes keys, each with `key` in every place
/// where it takes one.
async fn commands_on(server: &RedisServer, key: &str) -> Vec<Vec<String>> {
    let listed: Vec<Answered> = say(&mut server.client().await, &["COMMAND"]).await.unwrap();
    let mut commands = Vec::new();
    let mut rest = listed;
    while let Some(command) = rest.pop() {
        let Answered::Array(facts) = command else {
            continue;
        };
        let text = |value: &Answered| redis::from_redis_value::<String>(value.clone()).unwrap();
        let name: Vec<String> = text(&facts[0]).split('|').map(str::to_owned).collect();
        let arity: i64 = redis::from_redis_value(facts[1].clone()).unwrap();
        if let Answered::Array(family) = &facts[9] {
            rest.extend(family.iter().cloned());
        }
        let Answered::Array(specs) = &facts[8] else {
            continue;
        };
        if specs.is_empty() {
            continue;
        }
        let mut words = name.clone();
        words.resize(
            (arity.unsigned_abs() as usize).max(name.len()),
            "1".to_owned(),
        );
        let place = |words: &mut Vec<String>, at: usize, word: &str| {
            if words.len() <= at {
                words.resize(at + 1, "1".to_owned());
            }
            words[at] = word.to_owned();
        };
        for spec in specs {
            let spec = map(spec);
            let (begin, find) = (map(&spec["begin_search"]), map(&spec["find_keys"]));
            let (begins, finds) = (map(&begin["spec"]), map(&find["spec"]));
            let number = |value: &Answered| redis::from_redis_value::<i64>(value.clone()).unwrap();
            let first = match text(&begin["type"]).as_str() {
                "index" => number(&begins["index"]) as usize,
                "keyword" => {
                    // Where the words before it end; from the end where it is counted from there.
                    let from = number(&begins["startfrom"]);
                    let at = if from > 0 { from as usize } else { words.len() };
                    let at = at.max(name.len());
                    place(&mut words, at, &text(&begins["keyword"]));
                    at + 1
                }
                _ => continue,
            };
            if text(&find["type"]) == "keynum" {
                let count = first + number(&finds["keynumidx"]) as usize;
                place(&mut words, count, "1");
                place(&mut words, first + number(&finds["firstkey"]) as usize, key);
            } else {
                place(&mut words, first, key);
            }
        }
        // An id for each stream that is read.
        if name[0].starts_with("xread") {
            words.push("0".to_owned());
        }
        assert!(words.iter().any(|word| word == key), "{words:?}");
        commands.push(words);
    }
    commands
}

fn map(value: &Answered) -> std::collections::HashMap<String, Answered> {
    redis::from_redis_value(value.clone()).unwrap()
}

#[tokio::test]
async fn a_user_reaches_nobody_elses_keys_by_any_command_of_the_server() {
    let (server, mut a) = with_user_a().await;
    let mut admin = server.client().await;
    for key in [
        "b:gnode:unified:testing",
        "{b}:gnode:unified:testing",
        "a.b:gnode:unified:testing",
        "{a}b:gnode:unified:testing",
        "gnode:gnode:register",
        "gnode:gnode:direct:dc_0123456789abcdef0123456789abcdef",
    ] {
        let _: String = say(&mut admin, &["XADD", key, "*", "v", "1"])
            .await
            .unwrap();
        let commands = commands_on(&server, key).await;
        assert!(commands.len() > 180, "{}", commands.len());
        for words in commands {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let refused = say::<Answered>(&mut a, &words).await.unwrap_err();
            assert_eq!(refused.code(), Some("NOPERM"), "{words:?}: {refused}");
        }
        let length: usize = say(&mut admin, &["XLEN", key]).await.unwrap();
        assert_eq!(length, 1);
    }
}

#[tokio::test]
async fn a_user_reaches_nothing_by_what_names_no_key() {
    let (_server, mut a) = with_user_a().await;
    for words in [
        &["KEYS", "*"][..],
        &["SCAN", "0"],
        &["RANDOMKEY"],
        &["FLUSHALL"],
        &["FLUSHDB"],
        &["SWAPDB", "0", "1"],
        &["CONFIG", "GET", "*"],
        &["ACL", "LIST"],
        &["ACL", "SETUSER", "a", "allkeys"],
        &["MONITOR"],
        &["SUBSCRIBE", "x"],
        &["PSUBSCRIBE", "*"],
        &["PUBLISH", "x", "y"],
        &["CLIENT", "LIST"],
        &["CLIENT", "KILL", "ID", "1"],
        &["CLIENT", "TRACKING", "ON"],
        &["SCRIPT", "LOAD", "return 1"],
        &["EVAL", "return redis.call('XLEN', 'b')", "0"],
        &["FUNCTION", "LIST"],
        &["SHUTDOWN"],
        &["SLOWLOG", "GET"],
        &["REPLICAOF", "NO", "ONE"],
        &["SAVE"],
    ] {
        let refused = say::<Answered>(&mut a, words).await.unwrap_err();
        assert_eq!(refused.code(), Some("NOPERM"), "{words:?}: {refused}");
    }
}

#[tokio::test]
async fn one_foreign_stream_among_its_own_is_refused_as_a_whole() {
    let (_server, mut a) = with_user_a().await;
    let b = "b:gnode:unified:testing";
    for words in [
        &["XREAD", "STREAMS", A, b, "0", "0"][..],
        &["XREADGROUP", "GROUP", "g", "c", "STREAMS", A, b, ">", ">"],
        &["EXISTS", A, b],
    ] {
        let refused = say::<Answered>(&mut a, words).await.unwrap_err();
        assert_eq!(refused.code(), Some("NOPERM"), "{words:?}: {refused}");
    }
    let () = say(&mut a, &["MULTI"]).await.unwrap();
    let refused = say::<Answered>(&mut a, &["XADD", b, "*", "v", "1"])
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some("NOPERM"));
}

#[tokio::test]
async fn a_user_does_on_its_own_keys_what_a_service_does_and_no_more() {
    let (server, mut a) = with_user_a().await;
    let mut admin = server.client().await;
    for site in ["a", "{a}"] {
        let key = &format!("{site}:gnode:unified:testing");
        let _: () = say(&mut a, &["XGROUP", "CREATE", key, "g", "0", "MKSTREAM"])
            .await
            .unwrap();
        let id: String = say(&mut a, &["XADD", key, "*", "t", "c"]).await.unwrap();
        for words in [
            &["XGROUP", "CREATECONSUMER", key, "g", "one"][..],
            &[
                "XREADGROUP",
                "GROUP",
                "g",
                "one",
                "BLOCK",
                "10",
                "STREAMS",
                key,
                ">",
            ],
            &["XREAD", "COUNT", "1", "STREAMS", key, "0"],
            &["XRANGE", key, "-", "+"],
            &["XREVRANGE", key, "+", "-"],
            &["XLEN", key],
            &["XPENDING", key, "g"],
            &["XINFO", "STREAM", key],
            &["XINFO", "GROUPS", key],
            &["XINFO", "CONSUMERS", key, "g"],
            &["XCLAIM", key, "g", "two", "0", &id],
            &["XAUTOCLAIM", key, "g", "one", "0", "0"],
            &["XACK", key, "g", &id],
            &["EXISTS", key],
            &["TYPE", key],
            &["TTL", key],
            &["PING"],
            &["ECHO", "x"],
            &["CLIENT", "SETNAME", "service"],
            &["CLIENT", "ID"],
            &["SELECT", "0"],
            &["HELLO", "3"],
        ] {
            say::<Answered>(&mut a, words)
                .await
                .unwrap_or_else(|error| panic!("{words:?}: {error}"));
        }
        let reply = &format!("{site}:res:1");
        let _: () = say(&mut admin, &["SET", reply, "{}", "EX", "60"])
            .await
            .unwrap();
        assert_eq!(say::<String>(&mut a, &["GET", reply]).await.unwrap(), "{}");
        // What would take messages, or a group, from the daemon.
        for words in [
            &["DEL", key][..],
            &["UNLINK", key],
            &["XDEL", key, &id],
            &["XTRIM", key, "MAXLEN", "0"],
            &["XGROUP", "DESTROY", key, "g"],
            &["XGROUP", "SETID", key, "g", "$"],
            &["XGROUP", "DELCONSUMER", key, "g", "one"],
            &["XSETID", key, "9999999999999-0"],
            &["RENAME", key, "a:elsewhere"],
            &["EXPIRE", key, "1"],
            &["SET", reply, "forged"],
        ] {
            let refused = say::<Answered>(&mut a, words).await.unwrap_err();
            assert_eq!(refused.code(), Some("NOPERM"), "{words:?}: {refused}");
        }
    }
}

#[tokio::test]
async fn applying_keeps_passwords_and_makes_new_users_with_passwords_in_a_file() {
    let server = RedisServer::builder()
        .acl_line("user a on >pw ~* &* +@all")
        .start()
        .await;
    let mut admin = server.client().await;
    for site in ["a", "b"] {
        let body =
            json!({"environments": ["testing"], "metadata": {}, "registered_at": 1}).to_string();
        let _: () = say(&mut admin, &["HSET", "gnode:gnode:sites", site, &body])
            .await
            .unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passwords");
    let file = path.to_str().unwrap();

    let asked = on(&server, &["apply"]);
    assert!(asked.refused().contains("--passwords"), "{asked:?}");
    let dry = on(&server, &["apply", "--passwords", file, "--dry-run"]);
    assert_eq!(dry.object()["applied"], false);
    let users: Vec<String> = say(&mut admin, &["ACL", "USERS"]).await.unwrap();
    assert_eq!(users, ["a", "default"]);
    assert!(!path.exists());

    let ran = on(&server, &["apply", "--passwords", file]);
    let object = ran.object();
    let facts = |name: &str| {
        let mut users = object["users"].as_array().unwrap().iter();
        let user = users.find(|user| user["user"] == name).unwrap();
        (user["new"].clone(), user["changed"].clone())
    };
    assert_eq!(facts("a"), (Value::Bool(false), Value::Bool(true)));
    assert_eq!(facts("b"), (Value::Bool(true), Value::Bool(true)));
    assert_eq!(facts("crossway"), (Value::Bool(true), Value::Bool(true)));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    let passwords: Vec<(&str, &str)> = text
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    assert_eq!(
        passwords.iter().map(|(user, _)| *user).collect::<Vec<_>>(),
        ["b", "crossway"]
    );
    for (user, password) in &passwords {
        assert!(password.len() >= 40);
        assert!(!ran.out.contains(password) && !ran.err.contains(password));
        let mut connection = log_in(&server, user, password).await;
        assert_eq!(
            say::<String>(&mut connection, &["PING"]).await.unwrap(),
            "PONG"
        );
    }
    let mut a = log_in(&server, "a", "pw").await;
    let refused =
        say::<Answered>(&mut a, &["XADD", "b:gnode:unified:testing", "*", "v", "1"]).await;
    assert_eq!(refused.unwrap_err().code(), Some("NOPERM"));

    // A second time there is nothing to do, and the file of the first isn't overwritten.
    let again = on(&server, &["apply"]);
    let changed = again.object()["users"]
        .as_array()
        .unwrap()
        .iter()
        .any(|user| user["changed"] == true);
    assert!(!changed, "{again:?}");
    let over = on(&server, &["apply", "--site", "new", "--passwords", file]);
    assert!(over.refused().contains(file), "{over:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn open_channels_are_among_the_rules_and_closed_ones_are_not() {
    let (server, mut a) = with_user_a().await;
    let mut admin = server.client().await;
    let id = "dc_0123456789abcdef0123456789abcdef";
    let (key, meta) = (
        format!("gnode:gnode:direct:{id}"),
        format!("gnode:gnode:direct:{id}:meta"),
    );
    let fields = [
        "source_site",
        "b",
        "target_site",
        "a",
        "environment",
        "testing",
        "mode",
        "persistent",
        "opened_at",
        "1",
        "metadata",
        "{}",
    ];
    let mut set = vec!["HSET", &meta];
    set.extend(fields);
    let _: () = say(&mut admin, &set).await.unwrap();
    let _: () = say(&mut admin, &["SADD", "gnode:gnode:direct:index", id])
        .await
        .unwrap();

    let shown = on(&server, &["show", "--site", "a", "--site", "c"]).object();
    let rules = |at: usize| shown["users"][at]["rules"].as_array().unwrap().clone();
    assert!(rules(0).contains(&json!(format!("~{key}"))));
    assert!(rules(0).contains(&json!(format!("%R~{meta}"))));
    assert!(
        !rules(1)
            .iter()
            .any(|rule| rule.as_str().unwrap().contains("direct"))
    );

    assert_eq!(on(&server, &["apply", "--site", "a"]).status, 0);
    say::<String>(&mut a, &["XADD", &key, "*", "v", "1"])
        .await
        .unwrap();
    let _: () = say(&mut admin, &["SREM", "gnode:gnode:direct:index", id])
        .await
        .unwrap();
    assert_eq!(on(&server, &["apply", "--site", "a"]).status, 0);
    let refused = say::<Answered>(&mut a, &["XADD", &key, "*", "v", "1"])
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some("NOPERM"));
}

#[tokio::test]
async fn what_can_not_be_done_is_refused_with_the_reason() {
    let server = RedisServer::start().await;
    for (arguments, reason) in [
        (&["show", "--site", "default"][..], "store's own user"),
        (&["show", "--site", "gnode"], "daemon itself"),
        (&["show", "--site", "a b"], "--site"),
        (
            &["show", "--daemon", "--daemon-user", "default"],
            "--daemon-user",
        ),
        (&["show", "--site", "crossway", "--daemon"], "--daemon-user"),
    ] {
        let ran = on(&server, arguments);
        assert!(ran.refused().contains(reason), "{ran:?}");
    }
    let embedded = run(&["acl", "show", "--json"]);
    assert!(embedded.refused().contains("embedded"), "{embedded:?}");
    // The server has no file for its users.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("passwords");
    let ran = on(
        &server,
        &[
            "apply",
            "--site",
            "a",
            "--save",
            "--passwords",
            file.to_str().unwrap(),
        ],
    );
    let reason = ran.refused();
    assert!(
        reason.contains("in force") && reason.contains("ACL file"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn saved_users_outlive_a_restart_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users.acl");
    std::fs::write(
        &users,
        "user a on >pw\nuser default on nopass ~* &* +@all\n",
    )
    .unwrap();
    let mut server = RedisServer::builder()
        .config("aclfile", users.to_str().unwrap())
        .start()
        .await;
    let ran = on(&server, &["apply", "--site", "a", "--save"]);
    assert_eq!(ran.object()["saved"], true);
    server.kill();
    server.restart().await;
    let mut a = log_in(&server, "a", "pw").await;
    say::<String>(&mut a, &["XADD", A, "*", "v", "1"])
        .await
        .unwrap();
}
