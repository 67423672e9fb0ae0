//! A disk without room.

use std::os::unix::fs::PermissionsExt;

use crossway_harness::store::{PATIENCE as SOON, connect};
use crossway_harness::{Daemon, eventually};
use redis::RedisResult;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crossway");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_whose_disk_is_full_is_not_ready_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let limited = folder.path().join("crossway");
    // The system's own limit on the size of a file stands for a full disk.
    let script = format!("#!/bin/sh\ntrap '' XFSZ\nulimit -S -f 64\nexec {PROGRAM} \"$@\"\n");
    std::fs::write(&limited, script).unwrap();
    std::fs::set_permissions(&limited, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut daemon = Daemon::new(limited.to_str().unwrap(), "embedded");
    daemon.start_ready().await;
    let mut connection = connect(&daemon.embedded_url()).await;
    let large = "x".repeat(4096);
    let refused = loop {
        let written: RedisResult<String> = redis::cmd("XADD")
            .arg(&["own", "*", "value", &large])
            .query_async(&mut connection)
            .await;
        if let Err(refused) = written {
            break refused;
        }
    };
    assert!(refused.to_string().contains("MISCONF"), "{refused}");
    let page = eventually(SOON, "the daemon to say that it isn't ready", || async {
        let page = daemon.page("/readyz").await?;
        page.starts_with("HTTP/1.1 503").then_some(page)
    })
    .await;
    assert!(page.contains("can't be written"), "{page}");

    let process = Pid::from_raw(daemon.process_id().try_into().unwrap());
    let room = Rlimit {
        current: None,
        maximum: None,
    };
    prlimit(process, Resource::Fsize, room).unwrap();
    daemon.ready().await;
}
