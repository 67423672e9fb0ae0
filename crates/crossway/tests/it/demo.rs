//! What the demonstration says is so, and it says so only when it is.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crossway_harness::eventually;
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{Ran, finish, program, run};

const TITLES: [&str; 9] = [
    "1. a daemon with everything embedded",
    "2. a command is answered",
    "3. a service in Python, with the package `redis` alone",
    "4. three services, three formats",
    "5. a rule refuses one command",
    "6. a forged source gets nowhere",
    "7. a forged reply gets nowhere",
    "8. what crossed",
    "9. kill -9 in the middle of 2000 commands",
];

fn says_all(ran: &Ran) {
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(ran.err, "");
    let titles: Vec<&str> = ran
        .out
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert_eq!(titles, TITLES);
    for said in [
        "billing answered: {\"charged\":1250}, after ",
        "the daemon refused: RELAY.DENIED, denied by rule shop:billing: refunds need a person, after ",
        "the daemon refused mallory: RELAY.DENIED, denied by rule mallory:billing: no customer of ours, after ",
        "billing answered: {\"cents\":300}, after ",
        "shop     ledger        1        0           1",
        "shop     till          1        0           1",
        "2000 delivered once each, 2000 acknowledged once each, 2000 answered once each",
        "All as promised.\n",
    ] {
        assert!(ran.out.contains(said), "{said}\n{}", ran.out);
    }
}

#[test]
fn the_demonstration_ends_well_and_names_what_it_showed() {
    let ran = run(&["demo", "--once"]);
    says_all(&ran);
    assert!(ran.out.ends_with("All as promised.\n"), "{}", ran.out);
}

#[test]
fn without_python_the_demonstration_says_how_to_get_it_and_goes_on() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = program(&["demo", "--once"]);
    command.env("PATH", empty.path());
    let ran = finish(command, "");
    says_all(&ran);
    assert!(
        ran.out.contains("left out: it needs python3") && ran.out.contains("make tools"),
        "{}",
        ran.out
    );
}

#[test]
fn with_json_the_demonstration_is_one_object() {
    let shown = run(&["demo", "--once", "--json"]).object();
    assert_eq!(shown["ok"], true);
    assert_eq!(shown["scenes"].as_array().unwrap().len(), TITLES.len());
}

#[test]
fn the_demonstration_takes_no_store_of_others() {
    run(&["demo", "--once", "--url", "redis://127.0.0.1:1"]).refused();
}

#[tokio::test]
async fn the_demonstration_stays_up_until_it_is_told_to_end() {
    let mut command = program(&["demo"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let next = tokio::task::spawn_blocking(move || {
        let ask = lines.by_ref().find(|line| {
            line.as_ref()
                .is_ok_and(|line| line.contains(" send billing "))
        });
        // The pipe stays open for as long as the lines do.
        (ask.expect("it says what to type next").unwrap(), lines)
    });
    let (ask, _lines) = next.await.unwrap();
    let typed = ask.split_once("ask").unwrap().1.trim();
    let answer = Command::new("sh").args(["-c", typed]).output().unwrap();
    assert_eq!(
        String::from_utf8(answer.stdout).unwrap(),
        "{\"charged\":5}\n"
    );

    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    let status = eventually(Duration::from_secs(60), "the demonstration ends", || {
        let status = demo.try_wait().unwrap();
        async move { status }
    })
    .await;
    assert!(status.success(), "{status}");
    let again = Command::new("sh").args(["-c", typed]).output().unwrap();
    assert_eq!(again.status.code(), Some(2), "its store is gone as well");
}
