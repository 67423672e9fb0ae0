//! A trace context that is read is written as one that is read the same.
#![no_main]

use crossway_core::trace::TraceParent;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(parent) = text.parse::<TraceParent>() {
        assert_eq!(parent.to_string().parse(), Ok(parent));
    }
});
