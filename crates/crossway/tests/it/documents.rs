//! What is written about the program is true of it.

use std::path::PathBuf;
use std::time::Duration;

use crossway_client::Client;
use crossway_harness::store::connect;
use crossway_harness::{Daemon, RedisServer, eventually};
use redis::RedisResult;

use crate::program::run;

const PROGRAM: &str = env!("CARGO_BIN_EXE_crossway");

fn document(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of all tables that begin with a name in code.
fn rows(text: &str) -> Vec<(&str, &str)> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .collect()
}

#[test]
fn every_key_of_the_configuration_is_documented_with_its_default_and_no_other() {
    let text = document("docs/configuration.md");
    let rows = rows(&text);
    let schema = run(&["schema", "--json"]).object();
    let mut keys = Vec::new();
    for (key, described) in schema["properties"].as_object().unwrap() {
        let section = described["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix("#/$defs/"))
            .map(|name| &schema["$defs"][name]["properties"]);
        match section.and_then(|section| section.as_object()) {
            Some(section) => keys.extend(
                section
                    .iter()
                    .map(|(inner, described)| (format!("{key}.{inner}"), described)),
            ),
            None => keys.push((key.clone(), described)),
        }
    }
    for (key, described) in &keys {
        let row = rows.iter().find(|(name, _)| name == key);
        let (_, rest) = row.unwrap_or_else(|| panic!("{key} has no row"));
        let default = match &described["default"] {
            serde_json::Value::Null => "none".to_owned(),
            value => format!("`{value}`"),
        };
        assert!(
            rest.starts_with(&format!("{default} | ")),
            "{key} is {default}, and the row says {rest}"
        );
    }
    let documented: Vec<&str> = rows.iter().map(|(key, _)| *key).collect();
    let known: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
    let unknown: Vec<&&str> = documented
        .iter()
        .filter(|key| !known.contains(*key))
        .collect();
    assert!(unknown.is_empty(), "no such keys: {unknown:?}");
    assert_eq!(documented.len(), known.len(), "a key has two rows");
}

#[test]
fn every_command_stands_in_the_readme() {
    let readme = document("README.md");
    let help = run(&["--help"]).out;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    assert!(commands.len() > 5, "{help}");
    for command in commands {
        assert!(
            readme.contains(&format!("| `crossway {command}")),
            "{command}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_and_keep_services_apart() {
    let server = RedisServer::start().await;
    let mut operator = server.client().await;
    let text = document("docs/access-control.md");
    let users: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("ACL SETUSER "))
        .collect();
    // What the page shows is what the program derives.
    let arguments = ["acl", "show", "--site", "billing", "--daemon"];
    let shown = run(&[&arguments[..], &["--url", &server.url()]].concat()).out;
    let shown: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.strip_prefix("ACL SETUSER "))
        .collect();
    assert_eq!(users, shown);
    // A second service has what the first has, for its own name.
    let shop = users[0].replace("billing", "shop");
    for user in [users[0], users[1], &shop] {
        let mut set = redis::cmd("ACL");
        set.arg("SETUSER");
        for rule in user.split_whitespace().chain(["on", ">secret"]) {
            set.arg(rule);
        }
        let _: () = set.query_async(&mut operator).await.unwrap();
    }
    let url = |user: &str| {
        server
            .url()
            .replace("redis://", &format!("redis://{user}:secret@"))
    };

    let mut daemon = Daemon::new(PROGRAM, &url("crossway"));
    daemon.set("CROSSWAY_RELAY__DISCOVERY", "scan");
    daemon.start_ready().await;
    for site in ["billing", "shop"] {
        let added = run(&["sites", "add", site, "--url", &server.url()]);
        assert_eq!(added.status, 0, "{added:?}");
        // The daemon makes its group on the site's stream, and the stream with it.
        crossway_harness::eventually(
            Duration::from_secs(20),
            "the site to be known",
            async || {
                let mut exists = redis::cmd("EXISTS");
                exists.arg(format!("{site}:gnode:unified:production"));
                let there: bool = exists
                    .query_async(&mut server.client().await)
                    .await
                    .unwrap();
                there.then_some(())
            },
        )
        .await;
    }
    let billing = Client::connect(&url("billing"), "billing", "production")
        .await
        .unwrap();
    let serving = billing
        .serve(|command| async move { command.params::<i64>() })
        .await
        .unwrap();
    let asking = Client::connect(&url("shop"), "shop", "production")
        .await
        .unwrap();
    let timeout = Duration::from_secs(20);
    let reply = asking.call("billing", "double", &21, timeout).await;
    assert_eq!(reply.unwrap().text(), "21");
    let _: () = redis::cmd("SET")
        .arg("odd:gnode:unified:production")
        .arg("no stream")
        .query_async(&mut operator)
        .await
        .unwrap();
    let refused = asking
        .call("odd:gnode:unified:production", "double", &21, timeout)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Some("RELAY.UNDELIVERABLE"), "{refused}");
    serving.stop().await;
    assert!(daemon.terminate().await, "{}", daemon.log());
    let denied: Vec<redis::Value> = redis::cmd("ACL")
        .arg("LOG")
        .query_async(&mut operator)
        .await
        .unwrap();
    assert!(denied.is_empty(), "{denied:?}");

    let mut billing = connect(&url("billing")).await;
    for words in [
        &["XADD", "shop:gnode:unified:production", "*", "t", "c"][..],
        &["XRANGE", "shop:gnode:unified:production", "-", "+"],
        &["XRANGE", "gnode:gnode:register", "-", "+"],
        &["HSET", "gnode:gnode:relay:policy", "*:*", "{}"],
        &["GET", "shop:res:1"],
        &["FLUSHALL"],
    ] {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let ended: RedisResult<redis::Value> = command.query_async(&mut billing).await;
        assert_eq!(ended.unwrap_err().code(), Some("NOPERM"), "{words:?}");
    }
}

/// The lines of a text without their indentation.
fn bare(text: &str) -> String {
    text.lines()
        .map(|line| line.trim().to_owned() + "\n")
        .collect()
}

#[test]
fn the_code_on_the_page_for_services_stands_in_the_tested_examples() {
    let page = document("docs/services.md");
    let linked: Vec<&str> = page
        .split("](../")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .collect();
    let examples: Vec<(&str, String)> = linked
        .iter()
        .filter(|path| path.contains("examples/"))
        .map(|path| (*path, bare(&document(path))))
        .collect();
    let mut shown = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, code) = block.split_once('\n').unwrap();
        let ending = match language {
            "python" => ".py",
            "js" => ".mjs",
            "rust" => ".rs",
            "bash" => ".sh",
            other => panic!("an unknown kind of code: {other}"),
        };
        assert!(
            examples
                .iter()
                .any(|(path, text)| path.ends_with(ending) && text.contains(&bare(code))),
            "no example has this:\n{code}"
        );
        shown.push(language);
    }
    assert_eq!(shown, ["python", "js", "python", "rust"]);
    assert_eq!(examples.len(), 9, "{linked:?}");
}

/// All of the source, tests aside.
fn source() -> String {
    let mut folders = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")];
    let mut text = String::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            if path.is_dir()
                && !["tests", "target", "benches"]
                    .iter()
                    .any(|not| name == *not)
            {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                text += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    text
}

#[test]
fn what_an_operator_is_told_to_look_for_is_what_the_program_says() {
    let page = document("docs/failure-modes.md");
    let (_, seen) = page.split_once("## What you see").unwrap();
    let source = source();
    let rows = rows(seen);
    assert!(rows.len() > 15, "{rows:?}");
    for (words, _) in rows {
        // The metrics' names are checked below, against the page that a daemon gives.
        let said = words.starts_with("crossway_") || source.contains(words);
        assert!(said, "the program never says {words}");
    }
    let states = seen.rsplit("for each part what it waits for: ").next();
    for state in states.unwrap().split('`').skip(1).step_by(2) {
        assert!(source.contains(&format!("\"{state}\"")), "{state}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_that_the_documents_name_is_on_the_page() {
    let daemon = Daemon::up(PROGRAM, "embedded").await;
    let url = daemon.embedded_url();
    let shop = Client::connect(&url, "shop", "production").await.unwrap();
    // What has a label is on the page once it has happened.
    let refused = shop.call("nobody", "x", &(), Duration::from_secs(20)).await;
    assert!(refused.is_err());
    let pages = [
        "docs/failure-modes.md",
        "docs/stores.md",
        "docs/configuration.md",
    ];
    let text = pages.map(document).concat();
    let mut named: Vec<&str> = text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("crossway_"))
        .collect();
    named.sort_unstable();
    named.dedup();
    assert!(named.len() > 10, "{named:?}");
    eventually(Duration::from_secs(20), "every metric", async || {
        let page = daemon.page("/metrics").await?;
        let missing: Vec<&&str> = named.iter().filter(|name| !page.contains(**name)).collect();
        missing.is_empty().then_some(())
    })
    .await;
}
