//! No text makes a definition panic, and what is accepted can be registered and used.
#![no_main]

use crossway_core::format::{Definition, Formats};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for parsed in [Definition::parse_json(text), Definition::parse_yaml(text)] {
        let Ok(definition) = parsed else { continue };
        let name = definition.name().to_owned();
        let mut formats = Formats::builtin();
        if formats.register(definition).is_ok() {
            let _ = formats.detect(text.as_bytes());
            let _ = formats.convert("standard_json", &name, text.as_bytes());
            let _ = formats.convert(&name, "standard_json", text.as_bytes());
        }
    }
});
