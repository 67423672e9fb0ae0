//! What a codec reads is JSON with the same value when it is written and read again.
#![no_main]

use crossway_core::format::Formats;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let formats = Formats::builtin();
    for codec in ["resp3_wire", "msgpack", "cbor"] {
        // Within one format no field is mapped: what comes out is what its codec made of it.
        let Ok(written) = formats.convert(codec, codec, data) else {
            continue;
        };
        let again = formats.convert(codec, codec, &written);
        assert_eq!(again.as_ref(), Ok(&written), "{codec}");
    }
});
