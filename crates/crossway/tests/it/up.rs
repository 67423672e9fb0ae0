//! The daemon's life: what it says, its pages, its signals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crossway_harness::{RedisServer, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::{program, run};

const SOON: Duration = Duration::from_secs(20);

/// A daemon that is killed when it is dropped.
struct Daemon {
    child: Child,
    says: Value,
}

impl Daemon {
    /// Starts one and waits for its first word.
    fn start(config: &Path) -> Daemon {
        let mut child = program(&["up", "--json", "--config", config.to_str().unwrap()])
            .current_dir(config.parent().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let says = serde_json::from_str(&line).unwrap();
        Daemon { child, says }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The status and the body of a page.
    fn page(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.says["admin"].as_str().unwrap()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head.split(' ').nth(1).unwrap().parse().unwrap(),
            body.to_owned(),
        )
    }

    async fn reloads(&self, result: &str, number: u32) {
        let line = format!("crossway_config_reloads_total{{result=\"{result}\"}} {number}");
        eventually(SOON, &line, async || {
            self.page("/metrics").1.contains(&line).then_some(())
        })
        .await;
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(folder: &Path, store: &str, rest: &str) -> std::path::PathBuf {
    let file = folder.join("crossway.toml");
    let text = format!("[admin]\nlisten = \"127.0.0.1:0\"\n[relay]\nstore = \"{store}\"\n{rest}");
    std::fs::write(&file, text).unwrap();
    file
}

#[tokio::test]
async fn the_pages_answer_and_a_stop_ends_the_daemon_cleanly() {
    let (server, folder) = (RedisServer::start().await, tempfile::tempdir().unwrap());
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(&config(folder.path(), &server.url(), ""));
        assert_eq!(daemon.says["store"], format!("127.0.0.1:{}", server.port()));
        assert_eq!(daemon.page("/healthz"), (200, "ok\n".to_owned()));
        let (status, metrics) = daemon.page("/metrics");
        assert_eq!(status, 200);
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
        let (_, ready) = daemon.page("/readyz");
        assert!(
            serde_json::from_str::<Value>(&ready).unwrap()["ready"].is_boolean(),
            "{ready}"
        );
        assert_eq!(daemon.page("/nothing").0, 404);

        daemon.signal(signal);

        let status = eventually(SOON, "the daemon has left", async || {
            daemon.child.try_wait().unwrap()
        })
        .await;
        assert_eq!(status.code(), Some(0));
    }
}

#[tokio::test]
async fn a_changed_configuration_is_taken_and_a_faulty_one_refused() {
    let (server, folder) = (RedisServer::start().await, tempfile::tempdir().unwrap());
    let file = config(folder.path(), &server.url(), "");
    let daemon = Daemon::start(&file);

    config(folder.path(), &server.url(), "max_attempts = 0\n");
    daemon.reloads("refused", 1).await;
    assert_eq!(daemon.page("/healthz").0, 200);

    config(folder.path(), &server.url(), "max_attempts = 9\n");
    daemon.reloads("applied", 1).await;

    daemon.signal(Signal::HUP);
    daemon.reloads("unchanged", 1).await;
}

#[tokio::test]
async fn a_format_put_into_the_folder_is_taken_and_a_faulty_one_refused() {
    let (server, folder) = (RedisServer::start().await, tempfile::tempdir().unwrap());
    let formats = tempfile::tempdir().unwrap();
    let named = format!("formats = \"{}\"\n", formats.path().display());
    let daemon = Daemon::start(&config(folder.path(), &server.url(), &named));

    let file = formats.path().join("shouted.yaml");
    std::fs::write(
        &file,
        "format_name: shouted\nversion: '1'\nfield_mapping: {ID: id}\n",
    )
    .unwrap();
    daemon.reloads("applied", 1).await;

    std::fs::write(&file, "format_name: 5\n").unwrap();
    daemon.reloads("refused", 1).await;
}

#[tokio::test]
async fn connections_that_say_nothing_do_not_lock_the_pages_for_others() {
    let server = RedisServer::start().await;
    let (silent, begun, answered) = (
        "",
        "GET /healthz HTTP/1.1\r\nHost: x\r\n",
        "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    // Each waits for some seconds, so they wait together.
    let crowds = [silent, begun, answered].map(|said| {
        let store = server.url();
        tokio::task::spawn_blocking(move || {
            let folder = tempfile::tempdir().unwrap();
            let daemon = Daemon::start(&config(folder.path(), &store, ""));
            let at = daemon.says["admin"].as_str().unwrap();
            // As many as there are places.
            let held = [(); 64].map(|()| {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.write_all(said.as_bytes()).unwrap();
                stream
            });
            assert_eq!(daemon.page("/healthz").0, 200, "{said:?}");
            drop(held);
        })
    });
    for crowd in crowds {
        crowd.await.unwrap();
    }
}

#[test]
fn a_daemon_that_can_not_start_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crossway.toml");
    std::fs::write(&file, "[relay]\nstor = 1\n").unwrap();
    let faulty = run(&["up", "--config", file.to_str().unwrap()]);
    assert!(
        faulty.refused().contains(":2:1: unknown key relay.stor"),
        "{faulty:?}"
    );

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    std::fs::write(
        &file,
        format!("[admin]\nlisten = \"{at}\"\n[relay]\nstore = \"redis://127.0.0.1:1\"\n"),
    )
    .unwrap();
    let ran = run(&["up", "--config", file.to_str().unwrap()]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{ran:?}");
    assert!(ran.err.contains(&at.to_string()), "{ran:?}");
}
