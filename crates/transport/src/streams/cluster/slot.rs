//! The slot of a key.

/// Slots of a cluster.
pub(crate) const SLOTS: usize = 16384;

/// The slot that a key lies in: that of its hash tag, where it has one.
pub(crate) fn slot(key: &str) -> u16 {
    let bytes = tag(key).unwrap_or(key).bytes();
    // CRC-16/XMODEM, as every node reckons it.
    let crc = bytes.fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    });
    crc % 16384
}

fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// A key beside another, in the same slot.
pub(crate) fn beside(key: &str, what: &str) -> String {
    if tag(key).is_some() {
        format!("{key}:{what}")
    } else {
        format!("{{{key}}}:{what}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_where_a_node_says() {
        for (key, at) in [
            ("123456789", 12739),
            ("foo", 12182),
            ("{foo}:bar", 12182),
            ("x{foo}{bar}", 12182),
            ("", 0),
        ] {
            assert_eq!(slot(key), at, "{key}");
        }
        assert_ne!(slot("{}foo"), slot(""));
    }

    #[test]
    fn a_key_beside_another_shares_its_slot() {
        for key in ["a", "{a}:b", "a:b", "x{a}"] {
            assert_eq!(slot(&beside(key, "claim")), slot(key), "{key}");
        }
    }
}
