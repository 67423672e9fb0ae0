//! The relay beside the bare loop, on one server, in one run; `make bench`.
//!
//! Both are processes of their own on one core, the server is on the other one. What is measured
//! is a ratio: absolute figures say more about the machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark stops at the first surprise and prints what it found"
)]

use std::collections::HashMap;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crossway_harness::{Daemon, RedisServer, eventually};
use crossway_transport::streams::valkey::bare;
use crossway_transport::streams::{Key, ReaderOptions};
use hdrhistogram::Histogram;
use redis::aio::MultiplexedConnection;
use rustix::process::{Pid, Signal, kill_process};

/// Commands moved in one measurement of throughput.
const BACKLOG: usize = 40_000;
/// Senders, and as many receivers.
const PAIRS: usize = 4;
/// Measurements of each kind; the median is shown.
const ROUNDS: usize = 5;
/// Messages timed one by one.
const SAMPLES: usize = 3_000;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let what = arguments.next();
    if what.as_deref() == Some("translation") {
        return translation();
    }
    if what.as_deref() == Some("bare-loop") {
        runtime.block_on(loop_bare(&arguments.next().unwrap(), arguments.collect()));
    } else {
        runtime.block_on(measure(what.as_deref()));
    }
}

/// The other process: the bare loop over the given pairs of sites.
async fn loop_bare(url: &str, pairs: Vec<String>) {
    let routes: HashMap<Key, Key> = pairs
        .iter()
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(from, to)| (stream(from).into(), stream(to).into()))
        .collect();
    let options = ReaderOptions {
        group: "bare".into(),
        consumer: "one".into(),
        count: 256,
        block: Duration::from_secs(1),
        max_entry_bytes: 8 << 20,
        max_fields: 512,
        watched: Vec::new(),
    };
    // It ends when it is killed, or when the server is gone.
    let _ = bare::run(&url.parse().unwrap(), &routes, &options).await;
}

fn stream(site: &str) -> String {
    format!("{site}:gnode:unified:production")
}

/// Something that moves entries: the relay or the bare loop.
struct Mover(Child);

impl Mover {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pin(pid: u32, core: usize) {
    let done = Command::new("taskset")
        .args(["-a", "-p", "-c", &core.to_string(), &pid.to_string()])
        .output();
    assert!(
        done.is_ok_and(|done| done.status.success()),
        "taskset is needed"
    );
}

/// A message of about 1 KiB translated, beside the same bytes parsed and serialised as a `Value`.
fn translation() {
    let formats = crossway_core::format::Formats::builtin();
    let lines: Vec<String> = (0..12)
        .map(|n| {
            format!(r#"{{"sku":"item-{n:04}","amount":{n},"price":{n}.25,"note":"keep dry"}}"#)
        })
        .collect();
    let message = format!(
        r#"{{"id":"7f3a9c","command":"order.place","parameters":{{"customer":"c-1","urgent":false,"lines":[{}]}},"site_id":"shop","node_id":"n1","timestamp":1711900800.123}}"#,
        lines.join(",")
    );
    let message = message.as_bytes();
    let time = |work: &dyn Fn()| {
        let start = Instant::now();
        (0..20_000).for_each(|_| work());
        start.elapsed().as_secs_f64() / 20_000.0 * 1e6
    };
    let mut rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|_| {
            let translated = time(&|| {
                let to = "compact_json";
                let done = formats.convert("standard_json", to, std::hint::black_box(message));
                std::hint::black_box(done.unwrap());
            });
            let parsed = time(&|| {
                let value: serde_json::Value =
                    serde_json::from_slice(std::hint::black_box(message)).unwrap();
                std::hint::black_box(serde_json::to_vec(&value).unwrap());
            });
            (translated, parsed)
        })
        .collect();
    rounds.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let (translated, parsed) = rounds[ROUNDS / 2];
    println!(
        "translation of {} bytes: {translated:.2} µs; parsed and serialised: {parsed:.2} µs; ratio {:.2}, wanted at least 1.0",
        message.len(),
        parsed / translated
    );
}

async fn measure(what: Option<&str>) {
    let server = RedisServer::builder().config("save", "").start().await;
    let mut client = server.client().await;
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut client)
        .await
        .unwrap();
    let pid = info
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    pin(pid, 0);
    let mut table = Vec::new();
    if what != Some("latency") {
        let ratio = throughput(&server, pid, &mut client).await;
        table.push(("relayed/s against the bare loop", ratio, "at least 0.6"));
    }
    if what != Some("throughput") {
        let few = latencies(&server, 10, 10).await;
        table.push((
            "latency p50 against append and read",
            few.p50_ratio,
            "at most 2.0",
        ));
        table.push((
            "latency p99 against append and read",
            few.p99_ratio,
            "at most 3.0",
        ));
        let many = latencies(&server, 10_000, 100).await;
        table.push((
            "latency p50, 10,000 sites against 10",
            many.p50 / few.p50,
            "at most 1.5",
        ));
    }
    println!("{:<44} {:>6}   wanted", "what", "ratio");
    for (what, ratio, wanted) in table {
        println!("{what:<44} {ratio:>6.2}   {wanted}");
    }
}

/// One measurement of throughput.
struct Moved {
    per_second: f64,
    /// Microseconds of processor time for each command, of the mover and of the server.
    mover: f64,
    server: f64,
}

/// Lets both move the same backlog in turn; relayed per second over moved per second.
async fn throughput(server: &RedisServer, pid: u32, client: &mut MultiplexedConnection) -> f64 {
    println!("{BACKLOG} commands of 256 bytes, {PAIRS} pairs, batches of 256, median of {ROUNDS}");
    let (mut relayed, mut moved) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The order alternates, so that neither profits from what the other left behind.
        for relay in [round % 2 == 0, round % 2 != 0] {
            flush(client).await;
            let (name, of, into) = if relay {
                ("relay", relay_once(server, pid, client).await, &mut relayed)
            } else {
                (
                    "bare loop",
                    bare_once(server, pid, client).await,
                    &mut moved,
                )
            };
            println!(
                "  {name:<9} {:>7.0}/s; processor time for each: {:>4.1} µs, of the server {:>4.1} µs",
                of.per_second, of.mover, of.server
            );
            into.push(of.per_second);
        }
    }
    median(&mut relayed) / median(&mut moved)
}

/// Processor time that a process has used, in microseconds.
fn processor_time(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    // In hundredths of a second: time in the program, time in the system.
    [fields[11], fields[12]]
        .iter()
        .map(|ticks| ticks.parse::<f64>().unwrap() * 10_000.0)
        .sum()
}

/// Lets a stopped process go on, until the backlog has arrived.
async fn run_down(
    mover: u32,
    server: u32,
    go: impl FnOnce(),
    client: &mut MultiplexedConnection,
) -> Moved {
    let before = (processor_time(mover), processor_time(server));
    let start = Instant::now();
    go();
    arrived(client, PAIRS + BACKLOG).await;
    let count = BACKLOG as f64;
    Moved {
        per_second: count / start.elapsed().as_secs_f64(),
        mover: (processor_time(mover) - before.0) / count,
        server: (processor_time(server) - before.1) / count,
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn flush(client: &mut MultiplexedConnection) {
    let _: () = redis::cmd("FLUSHALL").query_async(client).await.unwrap();
    let _: () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(client)
        .await
        .unwrap();
}

fn daemon(server: &RedisServer) -> Daemon {
    let mut daemon = Daemon::new(env!("CARGO_BIN_EXE_crossway"), &server.url());
    daemon.set("CROSSWAY_LOG__LEVEL", "warn");
    // A backlog may wait longer than a reply usually may.
    daemon.set("CROSSWAY_RELAY__REPLY_TTL_MS", "600000");
    daemon
}

async fn register(client: &mut MultiplexedConnection, sites: impl Iterator<Item = String>) {
    let mut pipe = redis::pipe();
    for site in sites {
        pipe.cmd("HSET")
            .arg("gnode:gnode:sites")
            .arg(site)
            .arg(r#"{"environments":["production"]}"#)
            .ignore();
    }
    let _: () = pipe.query_async(client).await.unwrap();
}

async fn relay_once(server: &RedisServer, pid: u32, client: &mut MultiplexedConnection) -> Moved {
    register(
        client,
        (0..PAIRS).flat_map(|n| [format!("source-{n}"), format!("target-{n}")]),
    )
    .await;
    let mut daemon = daemon(server);
    daemon.start_ready().await;
    pin(daemon.process_id(), 1);
    // Its readers are on their places once a command of each source has come through.
    load(client, PAIRS).await;
    arrived(client, PAIRS).await;
    daemon.signal(Signal::STOP);
    load(client, BACKLOG).await;
    let id = daemon.process_id();
    run_down(id, pid, || daemon.signal(Signal::CONT), client).await
}

async fn bare_once(server: &RedisServer, pid: u32, client: &mut MultiplexedConnection) -> Moved {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .arg("bare-loop")
        .arg(server.url())
        .args((0..PAIRS).map(|n| format!("source-{n}=target-{n}")));
    let mover = Mover(command.spawn().unwrap());
    pin(mover.0.id(), 1);
    load(client, PAIRS).await;
    arrived(client, PAIRS).await;
    mover.signal(Signal::STOP);
    load(client, BACKLOG).await;
    run_down(mover.0.id(), pid, || mover.signal(Signal::CONT), client).await
}

async fn load(client: &mut MultiplexedConnection, count: usize) {
    let params = format!("{{\"data\":\"{}\"}}", "x".repeat(256 - 11));
    let mut number = 0;
    while number < count {
        let mut pipe = redis::pipe();
        for _ in 0..(count - number).min(1000) {
            let pair = number % PAIRS;
            pipe.cmd("XADD")
                .arg(stream(&format!("source-{pair}")))
                .arg("*");
            pipe.arg("t")
                .arg("c")
                .arg("i")
                .arg(number)
                .arg("c")
                .arg("get")
                .arg("p")
                .arg(&params);
            pipe.arg("ss")
                .arg(format!("source-{pair}"))
                .arg("sn")
                .arg("n1")
                .arg("ts")
                .arg(1_700_000_000_000_u64);
            pipe.arg("_rt").arg(format!("target-{pair}")).ignore();
            number += 1;
        }
        let _: () = pipe.query_async(client).await.unwrap();
    }
}

async fn arrived(client: &mut MultiplexedConnection, count: usize) {
    loop {
        let mut pipe = redis::pipe();
        for pair in 0..PAIRS {
            pipe.cmd("XLEN").arg(stream(&format!("target-{pair}")));
        }
        let lengths: Vec<usize> = pipe.query_async(client).await.unwrap();
        if lengths.iter().sum::<usize>() >= count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

struct Latency {
    p50: f64,
    p50_ratio: f64,
    p99_ratio: f64,
}

/// Times single messages, directly and through the relay in turn.
async fn latencies(server: &RedisServer, sites: usize, active: usize) -> Latency {
    let mut client = server.client().await;
    flush(&mut client).await;
    register(&mut client, (0..sites).map(|n| format!("site-{n}"))).await;
    let mut daemon = daemon(server);
    daemon.start_ready().await;
    let mut waiting = server.client().await;
    let mut direct = Histogram::<u64>::new(3).unwrap();
    let mut relayed = Histogram::<u64>::new(3).unwrap();
    // Every active site has been heard once before anything is timed.
    for n in 0..active {
        hop(
            &mut client,
            &mut waiting,
            &format!("site-{n}"),
            Some(&format!("site-{}", (n + 1) % active)),
        )
        .await;
    }
    for sample in 0..SAMPLES {
        let (from, to) = (
            format!("site-{}", sample % active),
            format!("site-{}", (sample + 1) % active),
        );
        direct
            .record(hop(&mut client, &mut waiting, "nobody", None).await)
            .unwrap();
        relayed
            .record(hop(&mut client, &mut waiting, &from, Some(&to)).await)
            .unwrap();
    }
    let micros = |histogram: &Histogram<u64>, q| histogram.value_at_quantile(q) as f64 / 1000.0;
    println!(
        "  {sites} sites: relay p50 {:.0} µs, p99 {:.0} µs; direct p50 {:.0} µs, p99 {:.0} µs",
        micros(&relayed, 0.5),
        micros(&relayed, 0.99),
        micros(&direct, 0.5),
        micros(&direct, 0.99)
    );
    Latency {
        p50: micros(&relayed, 0.5),
        p50_ratio: micros(&relayed, 0.5) / micros(&direct, 0.5),
        p99_ratio: micros(&relayed, 0.99) / micros(&direct, 0.99),
    }
}

/// Nanoseconds from sending an entry until a blocked read at its destination has it.
async fn hop(
    client: &mut MultiplexedConnection,
    waiting: &mut MultiplexedConnection,
    from: &str,
    to: Option<&str>,
) -> u64 {
    let destination = stream(to.unwrap_or(from));
    let mut reader = waiting.clone();
    let key = destination.clone();
    let last: Vec<(String, Vec<String>)> = redis::cmd("XREVRANGE")
        .arg(&destination)
        .arg("+")
        .arg("-")
        .arg("COUNT")
        .arg(1)
        .query_async(client)
        .await
        .unwrap();
    let last = last
        .first()
        .map_or_else(|| "0-0".to_owned(), |entry| entry.0.clone());
    let read = tokio::spawn(async move {
        let _: redis::Value = redis::cmd("XREAD")
            .arg("BLOCK")
            .arg(5000)
            .arg("STREAMS")
            .arg(key)
            .arg(last)
            .query_async(&mut reader)
            .await
            .unwrap();
        Instant::now()
    });
    eventually(Duration::from_secs(5), "the read to wait", async || {
        let list: String = redis::cmd("CLIENT")
            .arg("LIST")
            .query_async(client)
            .await
            .unwrap();
        list.lines()
            .any(|line| line.contains("cmd=xread ") && line.contains("flags=b"))
            .then_some(())
    })
    .await;
    let mut command = redis::cmd("XADD");
    command
        .arg(stream(from))
        .arg("*")
        .arg("t")
        .arg("c")
        .arg("i")
        .arg("1")
        .arg("c")
        .arg("get")
        .arg("p")
        .arg("{}");
    if let Some(to) = to {
        command.arg("_rt").arg(to);
    }
    let start = Instant::now();
    let _: String = command.query_async(client).await.unwrap();
    let end = read.await.unwrap();
    u64::try_from(end.duration_since(start).as_nanos()).unwrap()
}
