//! Why a command isn't carried out, in the words that clients of the protocol know.

use std::borrow::Cow;

/// A refusal; its text begins with the prefix that clients match on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Cow<'static, str>);

impl Refusal {
    pub(crate) const fn of(text: &'static str) -> Refusal {
        Refusal(Cow::Borrowed(text))
    }

    pub(crate) const WRONG_TYPE: Refusal =
        Refusal::of("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const SYNTAX: Refusal = Refusal::of("ERR syntax error");
    pub(crate) const NOT_AN_INTEGER: Refusal =
        Refusal::of("ERR value is not an integer or out of range");
    pub(crate) const INVALID_ID: Refusal =
        Refusal::of("ERR Invalid stream ID specified as stream command argument");
    pub(crate) const ID_TOO_SMALL: Refusal = Refusal::of(
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
    );
    pub(crate) const ID_ZERO: Refusal =
        Refusal::of("ERR The ID specified in XADD must be greater than 0-0");
    pub(crate) const EXHAUSTED: Refusal =
        Refusal::of("ERR The stream has exhausted the last possible ID, unable to add more items");
    pub(crate) const NO_SUCH_KEY: Refusal = Refusal::of("ERR no such key");
    pub(crate) const BUSY_GROUP: Refusal =
        Refusal::of("BUSYGROUP Consumer Group name already exists");
    pub(crate) const GROUP_NEEDS_KEY: Refusal = Refusal::of(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.",
    );
    pub(crate) const GROUP_WENT: Refusal =
        Refusal::of("NOGROUP the consumer group this client was blocked on no longer exists");
    pub(crate) const STREAM_WENT: Refusal =
        Refusal::of("UNBLOCKED the stream key no longer exists");

    /// The group, or the stream it should be on, doesn't exist.
    pub(crate) fn no_group(key: &[u8], group: &[u8], suffix: &str) -> Refusal {
        Refusal(
            format!(
                "NOGROUP No such key '{}' or consumer group '{}'{suffix}",
                String::from_utf8_lossy(key),
                String::from_utf8_lossy(group)
            )
            .into(),
        )
    }
}
