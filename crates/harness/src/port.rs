//! Free TCP ports.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below the range that the system hands to outgoing connections (32768 and up): otherwise a
/// client that keeps calling a killed server on loopback may be connected to itself and take the
/// port away.
const FIRST: u64 = 20_000;
const COUNT: u64 = 12_000;

/// A port that nobody listens on at this moment. Each call of a process gives another, and
/// processes start at random places.
pub(crate) fn free() -> u16 {
    static START: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let start = *START.get_or_init(|| RandomState::new().hash_one(std::process::id()) % COUNT);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port =
            u16::try_from(FIRST + (start + step) % COUNT).expect("the range ends below 65536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free TCP port between {FIRST} and {}", FIRST + COUNT);
}
