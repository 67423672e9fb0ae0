//! Services that speak different formats understand each other.

use bytes::Bytes;
use crossway_core::entry::Fields;
use crossway_core::format::Formats;
use serde_json::{Value, json};

use crate::world::{World, field, options, stream};

on_both_stores!(
    parameters_arrive_in_the_targets_format_and_the_result_comes_home_in_the_senders,
    nothing_is_translated_without_a_declared_and_a_recognised_format_that_differ,
    an_entitys_format_comes_before_its_sites,
    what_cannot_be_translated_goes_on_as_it_came_and_is_counted,
    a_binary_format_arrives_in_bytes_and_is_understood_coming_home,
    formats_are_registered_by_administrators_and_hold_at_once,
    formats_are_listed_detected_and_converted,
    a_restart_keeps_the_registered_formats_and_the_way_home,
);

const SPOKEN: &str = r#"{"id":"7","command":"charge","parameters":{"amount":12345678901234567890.10},"timestamp":1711900800}"#;

impl World {
    /// Registers a site, in testing, and its native format; waits until the daemon knows it.
    async fn speaks(&self, site: &str, format: &str) {
        let about =
            json!({"id": site, "environments": ["testing"], "metadata": {"native_format": format}});
        let id = format!("{site}-speaks-{format}");
        self.daemon(site, &id, "register_service", &about.to_string())
            .await;
    }

    async fn say(&self, id: &str, target: &str, parameters: &str) {
        let command = [
            ("t", "c"),
            ("i", id),
            ("c", "charge"),
            ("p", parameters),
            ("_rt", target),
        ];
        self.write("a", &command).await;
    }

    /// Whether the acknowledgement of a request says that it was translated.
    async fn translated(&self, request: &str) -> bool {
        let acknowledgement = self.answer("a", request).await;
        let result: Value = serde_json::from_str(&field(&acknowledgement, "r")).unwrap();
        result["translated"].as_bool().unwrap()
    }
}

async fn parameters_arrive_in_the_targets_format_and_the_result_comes_home_in_the_senders(
    world: World,
) {
    let world = world.start().await;
    world.speaks("b", "compact_json").await;
    world.say("one", "b", SPOKEN).await;
    let arrived = world.arrival("b", "one").await;
    assert_eq!(
        field(&arrived, "p"),
        r#"{"i":"7","c":"charge","p":{"amount":12345678901234567890.10},"t":1711900800}"#
    );
    assert!(world.translated("one").await);
    let answer = r#"{"i":"7","c":"charged","p":{"left":1e3},"t":1711900801}"#;
    let delivery = field(&arrived, "i");
    world
        .write(
            "b",
            &[("t", "r"), ("ri", &delivery), ("st", "ok"), ("r", answer)],
        )
        .await;
    let home = world
        .wait_for(&stream("a"), &[("ri", "one"), ("_cr", &delivery)])
        .await;
    let wanted =
        r#"{"id":"7","command":"charged","parameters":{"left":1e3},"timestamp":1711900801}"#;
    assert_eq!(field(&home, "r"), wanted);
    let polled = world.store.get_many(&["a:res:one".into()]).await.unwrap();
    let polled = String::from_utf8(polled[0].clone().unwrap().to_vec()).unwrap();
    assert!(polled.contains(wanted), "{polled}");
    world
        .counts("crossway_relay_translations_total{result=\"done\"}", 2)
        .await;
    let stats = world.daemon("a", "stats", "relay_stats", "{}").await;
    let pair = &stats["pairs"][0];
    assert_eq!((&pair["ok"], &pair["translated"]), (&json!(1), &json!(1)));
}

async fn nothing_is_translated_without_a_declared_and_a_recognised_format_that_differ(
    world: World,
) {
    let world = world.start().await;
    world.speaks("c", "standard_json").await;
    let cases = [
        ("undeclared", "b", SPOKEN),
        ("the-same", "c", SPOKEN),
        ("unrecognised", "c", "plain words"),
    ];
    for (id, target, parameters) in cases {
        world.say(id, target, parameters).await;
        assert_eq!(
            field(&world.arrival(target, id).await, "p"),
            parameters,
            "{id}"
        );
        assert!(!world.translated(id).await, "{id}");
    }
    assert_eq!(world.counter("crossway_relay_translations_total"), 0);
}

async fn an_entitys_format_comes_before_its_sites(world: World) {
    let world = world.start().await;
    let about = json!({
        "id": "b",
        "environments": ["testing"],
        "entities": [{"id": "b-desk", "metadata": {"native_format": "resp3"}}],
        "metadata": {"native_format": "compact_json"},
    });
    world
        .daemon("b", "entity", "register_service", &about.to_string())
        .await;
    world.say("one", "b-desk", SPOKEN).await;
    let arrived: Value =
        serde_json::from_str(&field(&world.arrival("b", "one").await, "p")).unwrap();
    assert_eq!(arrived["ts"], json!(1_711_900_800_000_u64));
}

async fn what_cannot_be_translated_goes_on_as_it_came_and_is_counted(world: World) {
    let world = world.start().await;
    world.speaks("b", "compact_json").await;
    world.speaks("c", "a_format_that_nobody_knows").await;
    // `i` is mapped from `id`, and stands there already.
    let clashing = r#"{"id":"7","command":"charge","i":"8"}"#;
    world.say("clash", "b", clashing).await;
    assert_eq!(field(&world.arrival("b", "clash").await, "p"), clashing);
    assert!(!world.translated("clash").await);
    world.say("unknown", "c", SPOKEN).await;
    assert_eq!(field(&world.arrival("c", "unknown").await, "p"), SPOKEN);
    world
        .counts("crossway_relay_translations_total{result=\"failed\"}", 2)
        .await;
}

async fn a_binary_format_arrives_in_bytes_and_is_understood_coming_home(world: World) {
    let world = world.start().await;
    world.speaks("b", "msgpack").await;
    let spoken = r#"{"id":"7","command":"charge"}"#;
    world.say("one", "b", spoken).await;
    let arrived = world.arrival("b", "one").await;
    let packed = arrived.fields.get(b"p").unwrap().clone();
    let formats = Formats::builtin();
    let read = formats
        .convert("msgpack", "standard_json", &packed)
        .unwrap();
    assert_eq!(String::from_utf8(read).unwrap(), spoken);
    let delivery = arrived.fields.get(b"i").unwrap().clone();
    let answer = formats
        .convert(
            "standard_json",
            "msgpack",
            br#"{"id":"8","command":"done"}"#,
        )
        .unwrap();
    let fields: Fields = [
        ("t", Bytes::from("r")),
        ("ri", delivery),
        ("st", "ok".into()),
        ("r", answer.into()),
    ]
    .into_iter()
    .collect();
    world.store.append(&stream("b"), fields).await.unwrap();
    let home = world
        .wait_for(
            &stream("a"),
            &[("ri", "one"), ("r", r#"{"id":"8","command":"done"}"#)],
        )
        .await;
    assert_eq!(field(&home, "st"), "ok");
}

const DEFINITION: &str = r#"{"format_name":"shouted","version":"1","description":"In capitals","content_type":"application/json","binary":false,"detection_patterns":[{"pattern_type":"json_keys","pattern":"ID,COMMAND","confidence":0.9}],"field_mapping":{"ID":"id","COMMAND":"command","PARAMETERS":"parameters"}}"#;

impl World {
    async fn daemon(&self, site: &str, id: &str, command: &str, parameters: &str) -> Value {
        let fields = [("t", "c"), ("i", id), ("c", command), ("p", parameters)];
        self.write(site, &fields).await;
        let answer = self.answer(site, id).await;
        assert_eq!(field(&answer, "st"), "ok", "{answer:?}");
        serde_json::from_str(&field(&answer, "r")).unwrap()
    }
}

async fn formats_are_registered_by_administrators_and_hold_at_once(world: World) {
    let world = world.start().await;
    world.speaks("b", "shouted").await;
    let asked = [
        ("t", "c"),
        ("i", "no"),
        ("c", "register_format"),
        ("p", DEFINITION),
    ];
    world.write("a", &asked).await;
    assert_eq!(world.code("a", "no").await, "RELAY.FORBIDDEN");
    world
        .daemon("admin", "yes", "register_format", DEFINITION)
        .await;
    world
        .say("one", "b", r#"{"id":"7","command":"charge"}"#)
        .await;
    assert_eq!(
        field(&world.arrival("b", "one").await, "p"),
        r#"{"ID":"7","COMMAND":"charge"}"#
    );
    let builtin = DEFINITION.replace("shouted", "compact_json");
    let asked = [
        ("t", "c"),
        ("i", "taken"),
        ("c", "register_format"),
        ("p", &*builtin),
    ];
    world.write("admin", &asked).await;
    assert_eq!(world.code("admin", "taken").await, "RELAY.NAME_TAKEN");
    let faulty = DEFINITION.replace("\"confidence\":0.9", "\"confidence\":9");
    let asked = [
        ("t", "c"),
        ("i", "faulty"),
        ("c", "register_format"),
        ("p", &*faulty),
    ];
    world.write("admin", &asked).await;
    assert_eq!(world.code("admin", "faulty").await, "RELAY.BAD_PARAMETERS");
    let told = field(&world.answer("admin", "faulty").await, "e");
    assert!(told.contains("/detection_patterns/0/confidence"), "{told}");
}

async fn formats_are_listed_detected_and_converted(world: World) {
    let world = world.start().await;
    let listed = world.daemon("a", "1", "list_formats", "{}").await;
    let names: Vec<&str> = listed["formats"]
        .as_array()
        .unwrap()
        .iter()
        .map(|format| format["format_name"].as_str().unwrap())
        .collect();
    for name in [
        "standard_json",
        "resp3",
        "resp3_wire",
        "compact_json",
        "msgpack",
        "cbor",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let data = json!({"data": SPOKEN}).to_string();
    let detected = world.daemon("a", "2", "detect_format", &data).await;
    assert_eq!(detected["format"], "standard_json");
    let as_value = format!(r#"{{"data":{SPOKEN}}}"#);
    let detected = world.daemon("a", "3", "detect_format", &as_value).await;
    assert_eq!(detected["format"], "standard_json");
    let asked = format!(
        r#"{{"data":{SPOKEN},"source_format":"standard_json","target_format":"compact_json"}}"#
    );
    let fields = [
        ("t", "c"),
        ("i", "4"),
        ("c", "convert_format"),
        ("p", &*asked),
    ];
    world.write("a", &fields).await;
    let converted = field(&world.answer("a", "4").await, "r");
    assert!(
        converted.contains("12345678901234567890.10"),
        "digits are kept: {converted}"
    );
    let unknown = r#"{"data":{},"source_format":"nope","target_format":"compact_json"}"#;
    let fields = [
        ("t", "c"),
        ("i", "5"),
        ("c", "convert_format"),
        ("p", unknown),
    ];
    world.write("a", &fields).await;
    assert_eq!(world.code("a", "5").await, "RELAY.BAD_PARAMETERS");
}

async fn a_restart_keeps_the_registered_formats_and_the_way_home(world: World) {
    let mut world = world.start().await;
    world
        .daemon("admin", "register", "register_format", DEFINITION)
        .await;
    world.speaks("b", "shouted").await;
    world
        .say("before", "b", r#"{"id":"7","command":"charge"}"#)
        .await;
    let delivery = field(&world.arrival("b", "before").await, "i");
    world.stop().await;
    world.start_with(options("one")).await;
    let answer = r#"{"ID":"7","COMMAND":"charged"}"#;
    world
        .write("b", &[("t", "r"), ("ri", &delivery), ("r", answer)])
        .await;
    world
        .wait_for(
            &stream("a"),
            &[("ri", "before"), ("r", r#"{"id":"7","command":"charged"}"#)],
        )
        .await;
}
