//! The examples do what they say.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use crossway_harness::{RedisServer, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::relay::Relay;
use crate::store::SOON;

/// An example as it was built with these tests.
fn example(name: &str, arguments: &[&str]) -> Command {
    let tests: PathBuf = std::env::current_exe().unwrap();
    let folder = tests.ancestors().nth(2).unwrap();
    let mut command = Command::new(folder.join("examples").join(name));
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

async fn ended(mut child: Child) -> Output {
    eventually(SOON, "the example ends", async || child.try_wait().unwrap()).await;
    child.wait_with_output().unwrap()
}

#[tokio::test]
async fn ask_is_answered_by_answer_which_ends_with_ctrl_c() {
    let server = RedisServer::start().await;
    let _relay = Relay::start(&server, &["shop", "billing"]).await;
    let url = server.url();
    let answer = example("answer", &[&url, "billing"]).spawn().unwrap();

    let ask = |command: &str, params: &str| {
        let child = example("ask", &[&url, "shop", "billing", command, params])
            .spawn()
            .unwrap();
        async move {
            let ended = ended(child).await;
            let said = [ended.stdout, ended.stderr].concat();
            (ended.status.success(), String::from_utf8(said).unwrap())
        }
    };
    assert_eq!(
        ask("echo", r#"{"a":[1]}"#).await,
        (true, "billing answered: {\"a\":[1]}\n".to_owned())
    );
    assert_eq!(
        ask("sum", "[1, 2.5]").await,
        (true, "billing answered: {\"sum\":3.5}\n".to_owned())
    );
    assert_eq!(
        ask("nope", "{}").await,
        (
            false,
            "billing couldn't: nope isn't one of echo, sum\n".to_owned()
        )
    );

    kill_process(Pid::from_child(&answer), Signal::INT).unwrap();
    assert!(ended(answer).await.status.success());
}
