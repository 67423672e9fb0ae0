//! `crossway check`: what is wrong, where, and what would be right.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use tempfile::NamedTempFile;

use crate::program::{Ran, finish, program, run};

fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    fs::write(&file, text).unwrap();
    file
}

fn check_with(text: &str, environment: &[(&str, &str)]) -> (Ran, String) {
    let file = file(text);
    let name = file.path().to_str().unwrap().to_owned();
    let mut command = program(&["check", &name, "--json"]);
    command.envs(environment.iter().copied());
    (finish(command, ""), name)
}

/// The faults without what stands before each of them.
fn faults(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    let file = file(text);
    let name = file.path().to_str().unwrap();
    let mut command = program(&["check", name]);
    command.envs(environment.iter().copied());
    let ran = finish(command, "");
    assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{ran:?}");
    ran.err
        .lines()
        .map(|line| {
            line.strip_prefix("crossway: ")
                .unwrap()
                .replace(name, "FILE")
        })
        .collect()
}

#[test]
fn a_rate_that_can_be_none_is_refused_where_it_stands() {
    let rate = |line: &str| faults(&format!("[relay.rate]\n{line}\n"), &[]);
    for line in [
        "per_site = { per_second = 0 }",
        "per_site = { per_second = 1, burst = 0 }",
        "pairs = { \"shop\" = { per_second = 1 } }",
        "sites = { \"a b\" = { per_second = 1 } }",
    ] {
        let found = rate(line);
        assert!(found[0].starts_with("FILE:2:"), "{line}: {found:?}");
    }
    let sound = "[relay.rate]\nper_pair = { per_second = 2 }\n[relay.rate.pairs]\n\"a:b\" = { per_second = 0.5, burst = 9 }\n";
    assert_eq!(check_with(sound, &[]).0.status, 0);
}

#[test]
fn a_sound_file_is_valid() {
    let sound = r#"
        data_dir = "/var/lib/crossway"
        node = "n1"
        [log]
        format = "json"
        level = "info,crossway_relay=debug"
        [admin]
        listen = "0.0.0.0:9400"
        [embedded]
        listen = "0.0.0.0:6390"
        sync = "every_second"
        password = "long"
        [relay]
        store = "rediss://user:secret@example.org:6380/1"
        environments = ["canary"]
        hash_tags = true
        default_policy = "deny"
        administrators = ["ops"]
        discovery = "scan"
    "#;
    for text in ["", sound] {
        let (ran, name) = check_with(text, &[]);
        assert_eq!(ran.status, 0, "{ran:?}");
        let object = ran.object();
        assert_eq!(object["valid"], true);
        assert_eq!(object["file"], name.as_str());
    }
}

#[test]
fn all_faults_are_told_at_once_each_with_its_place() {
    let found = faults(
        "colour = 1\n[relay]\nstor = \"embedded\"\nmax_attempts = 0\nenvironments = [\"a b\", \"ok\", \"c:d\"]\n[log]\nformat = \"jsn\"\n",
        &[],
    );
    assert_eq!(found.len(), 6, "{found:#?}");
    assert!(
        found[0].starts_with("FILE:1:1: unknown key colour; known keys: data_dir"),
        "{found:#?}"
    );
    assert_eq!(
        found[1],
        "FILE:3:1: unknown key relay.stor; did you mean store?"
    );
    assert!(
        found[2].starts_with("FILE:4:16: relay.max_attempts:"),
        "{found:#?}"
    );
    assert!(
        found[3].starts_with("FILE:5:17: relay.environments:"),
        "{found:#?}"
    );
    assert!(
        found[4].starts_with("FILE:5:30: relay.environments:"),
        "{found:#?}"
    );
    assert_eq!(
        found[5],
        "FILE:7:10: log.format can't be \"jsn\"; did you mean json?"
    );
}

#[test]
fn what_is_not_toml_is_told_with_its_place() {
    let found = faults("[relay\nstore = \"embedded\"\n", &[]);
    assert!(found[0].starts_with("FILE:1:7: "), "{found:#?}");
    let found = faults("node = \"ü\" x\n", &[]);
    assert!(
        found[0].starts_with("FILE:1:12: "),
        "columns count characters: {found:#?}"
    );
}

#[test]
fn a_file_that_can_not_be_read_is_named() {
    assert!(
        run(&["check", "/nonexistent.toml"])
            .refused()
            .starts_with("crossway: /nonexistent.toml: can't be read")
    );
    let binary = NamedTempFile::new().unwrap();
    fs::write(&binary, b"node = \"a\"\n# \xff\n").unwrap();
    let ran = run(&["check", binary.path().to_str().unwrap()]);
    assert!(
        ran.refused().contains(":2:3: this byte isn't UTF-8"),
        "{ran:?}"
    );
}

#[test]
fn the_environment_outdoes_the_file() {
    let (ran, _) = check_with(
        "[relay]\nmax_attempts = 0\n",
        &[
            ("CROSSWAY_RELAY__MAX_ATTEMPTS", "7"),
            ("CROSSWAY_RELAY__ENVIRONMENTS", "[\"canary\"]"),
            ("CROSSWAY_RELAY__HASH_TAGS", "true"),
            ("CROSSWAY_RELAY__STORE", "redis://127.0.0.1:6379"),
            ("CROSSWAY_EMBEDDED__PASSWORD", "12345"),
            ("CROSSWAY_DATA_DIR", "/tmp/x"),
            // What an orchestrator sets for a service of this name.
            ("CROSSWAY_SERVICE_HOST", "10.0.0.1"),
            ("CROSSWAY_PORT", "tcp://10.0.0.1:80"),
        ],
    );
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn a_fault_of_the_environment_names_the_variable() {
    let found = faults(
        "",
        &[
            ("CROSSWAY_COLOUR", "red"),
            ("CROSSWAY_RELAY__MAX_ATTEMPTS", "-1"),
            ("CROSSWAY_RELAY__STOER", "embedded"),
            ("CROSSWAY_RELAY__ENVIRONMENTS", "[\"a b\"]"),
            ("CROSSWAY_SECTION__KEY", "1"),
            ("CROSSWAY_LOG__", "1"),
        ],
    );
    assert_eq!(found.len(), 6, "{found:#?}");
    assert!(
        found[0].starts_with("CROSSWAY_COLOUR: unknown key colour"),
        "{found:#?}"
    );
    assert!(
        found[1].starts_with("CROSSWAY_LOG__: it names no key"),
        "{found:#?}"
    );
    assert!(
        found[2].starts_with("CROSSWAY_RELAY__ENVIRONMENTS: relay.environments: "),
        "{found:#?}"
    );
    assert!(
        found[3].starts_with("CROSSWAY_RELAY__MAX_ATTEMPTS: relay.max_attempts: "),
        "{found:#?}"
    );
    assert!(found[3].contains("`-1`"), "{found:#?}");
    assert_eq!(
        found[4],
        "CROSSWAY_RELAY__STOER: unknown key relay.stoer; did you mean store?"
    );
    assert!(
        found[5].starts_with("CROSSWAY_SECTION__KEY: unknown key section"),
        "{found:#?}"
    );
}

#[test]
fn an_open_embedded_store_without_a_password_is_refused() {
    let open = "[embedded]\nlisten = \"0.0.0.0:6390\"\n";
    let found = faults(open, &[]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with("FILE:2:10: embedded.listen: "),
        "{found:#?}"
    );
    assert!(found[0].contains("set embedded.password"), "{found:#?}");
    let found = faults("", &[("CROSSWAY_EMBEDDED__LISTEN", "[::]:6390")]);
    assert!(
        found[0].starts_with("CROSSWAY_EMBEDDED__LISTEN: "),
        "{found:#?}"
    );
    let (closed, _) = check_with(&format!("{open}password = \"p\"\n"), &[]);
    assert_eq!(closed.status, 0, "{closed:?}");
}

#[test]
fn no_fault_shows_a_secret() {
    for text in [
        "[relay]\nstore = \"http://me:hunter2@example.org\"\n",
        "[relay]\nstore = \"redis://me:hunter2@example.org:99999\"\n",
        "[relay]\nstore = \"redis://me:hunter2/@example.org\"\n",
        "[relay]\nstore = \"redis:hunter2\"\n",
        "[embedded]\npassword = [\"hunter2\"]\n",
        "[embedded]\npassword = { is = \"hunter2\" }\n",
        "[embedded]\npassword = \"hunter2\nlisten = 1\n",
    ] {
        let found = faults(text, &[]);
        assert!(!found.join("\n").contains("hunter2"), "{found:#?}");
    }
    for wrong in ["1234567", "true", "1.25", "1979-05-27"] {
        let found = faults(&format!("[embedded]\npassword = {wrong}\n"), &[]);
        assert!(!found.join("\n").contains(wrong), "{found:#?}");
    }
}

#[test]
fn a_faulty_manifest_is_a_fault_of_the_configuration() {
    let manifest = file("services:\n  - id: 'a:b'\n");
    let named = manifest.path().to_str().unwrap();
    let found = faults(&format!("[relay]\nmanifest = \"{named}\"\n"), &[]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with(&format!("FILE:2:12: relay.manifest: {named}: ")),
        "{found:#?}"
    );
    assert!(found[0].contains("a:b"), "{found:#?}");
    let found = faults("[relay]\nmanifest = \"/nonexistent.yaml\"\n", &[]);
    assert!(found[0].contains("/nonexistent.yaml"), "{found:#?}");
}

#[test]
fn what_is_not_a_regular_file_is_refused_without_reading_it() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    // Nobody writes into the pipe: whoever waits for it waits for ever.
    for other in [
        pipe.to_str().unwrap(),
        folder.path().to_str().unwrap(),
        "/dev/zero",
    ] {
        let says = |ran: Ran| ran.refused().contains("isn't a regular file");
        assert!(says(run(&["check", other])), "{other}");
        let found = faults(&format!("[relay]\nmanifest = \"{other}\"\n"), &[]);
        assert!(found[0].contains("isn't a regular file"), "{found:#?}");
        assert!(says(run(&["inspect", "manifest", other])), "{other}");
    }
}

#[test]
fn a_file_beyond_the_limit_is_refused() {
    let long = file(&"#".repeat((1 << 20) + 1));
    let ran = run(&["check", long.path().to_str().unwrap()]);
    assert!(ran.refused().contains("more than 1048576 bytes"), "{ran:?}");
    let (just_right, _) = check_with(&"#".repeat(1 << 20), &[]);
    assert_eq!(just_right.status, 0, "{just_right:?}");
}

#[test]
fn a_variable_of_ours_that_is_not_utf_8_is_a_fault() {
    let sound = file("");
    for (name, value) in [
        (&b"CROSSWAY_RELAY__STORE"[..], &b"redis://\xff"[..]),
        (b"CROSSWAY_NODE\xff", b"n1"),
    ] {
        let mut command = program(&["check", sound.path().to_str().unwrap()]);
        command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        let ran = finish(command, "");
        let named = String::from_utf8_lossy(name);
        assert!(
            ran.refused().starts_with(&format!("crossway: {named}: ")),
            "{ran:?}"
        );
    }
    let mut command = program(&["check", sound.path().to_str().unwrap()]);
    command.env("ELSEWHERE", OsStr::from_bytes(b"\xff"));
    assert_eq!(finish(command, "").status, 0);
}

#[test]
fn programs_are_told_all_faults_in_one_line() {
    let (ran, _) = check_with("colour = 1\nshape = 2\n", &[("CROSSWAY_TASTE", "sour")]);
    let said = ran.refused();
    for key in ["colour", "shape", "taste"] {
        assert!(said.contains(&format!("unknown key {key}")), "{said}");
    }
    assert!(said.contains("; "), "{said}");
}

#[test]
fn a_data_dir_that_no_folder_can_have_is_refused() {
    for name in ["", "a\\u0000b"] {
        let found = faults(&format!("data_dir = \"{name}\"\n"), &[]);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].starts_with("FILE:1:12: data_dir: "), "{found:#?}");
    }
}

#[test]
fn a_faulty_format_is_a_fault_of_the_configuration_that_names_file_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let named = folder.path().to_str().unwrap();
    let configuration = format!("[relay]\nformats = \"{named}\"\n");
    write(
        "good.yaml",
        "format_name: shouted\nversion: '1'\nfield_mapping: {ID: id}\n",
    );
    write("notes.txt", "not looked at");
    let checked = check_with(&configuration, &[]).0;
    assert_eq!(checked.status, 0, "{checked:?}");
    write(
        "again.json",
        r#"{"format_name":"shouted","version":"1","field_mapping":{}}"#,
    );
    write(
        "bad.json",
        r#"{"format_name":"bad","version":"1","field_mapping":{"ID":5}}"#,
    );
    let found = faults(&configuration, &[]);
    let says = |file: &str, what: &str| {
        let place = format!("FILE:2:11: relay.formats: {named}/{file}: ");
        found
            .iter()
            .any(|fault| fault.starts_with(&place) && fault.contains(what))
    };
    assert!(says("bad.json", "/field_mapping/ID"), "{found:?}");
    // They are read in the order of their names, so the second is the one to blame.
    assert!(says("good.yaml", "shouted"), "{found:?}");
    assert_eq!(found.len(), 2, "{found:?}");
}
