//! Whatever is detected can be read, and no bytes make a conversion panic.
#![no_main]

use crossway_core::format::Formats;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let formats = Formats::builtin();
    if let Some(found) = formats.detect(data).best {
        formats
            .convert(found.name(), found.name(), data)
            .expect("what is detected is in that format");
    }
    for from in formats.iter() {
        for to in formats.iter() {
            let _ = formats.convert(from.name(), to.name(), data);
        }
    }
});
