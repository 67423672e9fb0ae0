//! How much a source may send.

use crossway_core::rate::Rate;
use crossway_harness::eventually;

use crate::world::{PATIENCE, World, field, options, site, stream};

on_both_stores!(
    a_source_over_its_rate_is_told_how_long_to_wait_and_others_are_not,
    a_rate_changes_without_a_restart,
    a_batch_counts_its_commands,
    a_long_stream_is_shortened_where_everybody_has_read,
);

/// So slow that no test sees it refill.
fn slow(burst: u32) -> Option<Rate> {
    Some(Rate::new(0.001, burst).unwrap())
}

async fn limited(mut world: World, burst: u32) -> World {
    let mut options = options("one");
    options.rates.per_site = slow(burst);
    world = world.start().await;
    world.relay.as_ref().unwrap().reload(options).await;
    world
}

async fn a_source_over_its_rate_is_told_how_long_to_wait_and_others_are_not(world: World) {
    let world = limited(world, 2).await;
    let passed = [
        world.send("a", "b", "x").await,
        world.send("a", "c", "x").await,
    ];
    let refused = world.send("a", "b", "x").await;
    assert_eq!(world.code("a", &refused).await, "RELAY.RATE_LIMITED");
    let refusal = world.answer("a", &refused).await;
    let wait: u64 = field(&refusal, "retry_after_ms").parse().unwrap();
    assert!((900_000..=1_000_000).contains(&wait), "{wait}");
    for request in &passed {
        assert_eq!(field(&world.answer("a", request).await, "st"), "ok");
    }
    let of_another = world.send("c", "b", "x").await;
    let delivery = field(&world.arrival("b", &of_another).await, "i");
    // An answer is no message of its own: it is carried whatever its writer has sent.
    for _ in 0..3 {
        world.send("b", "a", "x").await;
    }
    world
        .write(
            "b",
            &[("t", "r"), ("ri", &delivery), ("st", "ok"), ("r", "1")],
        )
        .await;
    world
        .wait_for(&stream("c"), &[("ri", &of_another), ("r", "1")])
        .await;
}

async fn a_rate_changes_without_a_restart(world: World) {
    let world = limited(world, 1).await;
    let first = world.send("a", "b", "x").await;
    assert_eq!(field(&world.answer("a", &first).await, "st"), "ok");
    let second = world.send("a", "b", "x").await;
    assert_eq!(world.code("a", &second).await, "RELAY.RATE_LIMITED");
    let mut wider = options("one");
    wider.rates.per_site = slow(1);
    wider
        .rates
        .sites
        .insert(site("a"), Rate::new(1000.0, 1000).unwrap());
    world.relay.as_ref().unwrap().reload(wider).await;
    let third = world.send("a", "b", "x").await;
    assert_eq!(field(&world.answer("a", &third).await, "st"), "ok");
}

async fn a_batch_counts_its_commands(world: World) {
    let world = limited(world, 3).await;
    let batch = async |id: &str, commands: &str| {
        world
            .write(
                "a",
                &[("t", "bc"), ("i", id), ("p", commands), ("_rt", "b")],
            )
            .await;
        world.answer("a", id).await
    };
    let never = batch("four", r#"[{"c":"x"},{"c":"x"},{"c":"x"},{"c":"x"}]"#).await;
    assert_eq!(
        (field(&never, "_ec"), field(&never, "retry_after_ms")),
        ("RELAY.RATE_LIMITED".into(), String::new())
    );
    let two = r#"[{"c":"x"},{"c":"x"}]"#;
    assert_eq!(field(&batch("first", two).await, "st"), "ok");
    assert_eq!(
        field(&batch("second", two).await, "_ec"),
        "RELAY.RATE_LIMITED"
    );
}

async fn a_long_stream_is_shortened_where_everybody_has_read(mut world: World) {
    let mut options = options("one");
    options.max_len = 100;
    world = world.start().await;
    world.relay.as_ref().unwrap().reload(options).await;
    let first = world.write("a", &[("t", "e"), ("c", "mine")]).await;
    for _ in 0..399 {
        world.write("a", &[("t", "e"), ("c", "mine")]).await;
    }
    let left = eventually(PATIENCE, "a shorter stream", async || {
        let left = world.entries(&stream("a")).await;
        (left.len() <= 250).then_some(left)
    })
    .await;
    assert!(left.len() >= 100 && left[0].id > first, "{}", left.len());
    eventually(PATIENCE, "the trimmed entries to be counted", async || {
        (world.counter("crossway_relay_trimmed_entries_total") > 0).then_some(())
    })
    .await;
}
