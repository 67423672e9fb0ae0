//! How the bytes of a format become JSON text, and come from it.

use std::borrow::Cow;

use super::fault::Fault;
use super::{cbor, json, msgpack, resp};

/// The forms that a format's data may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Json,
    /// Written as JSON; read as RESP too.
    JsonOrResp,
    Resp,
    MsgPack,
    Cbor,
}

impl Codec {
    pub(crate) const ALL: [(&'static str, Codec); 5] = [
        ("json", Codec::Json),
        ("json_or_resp", Codec::JsonOrResp),
        ("resp", Codec::Resp),
        ("msgpack", Codec::MsgPack),
        ("cbor", Codec::Cbor),
    ];

    pub(crate) fn is_binary(self) -> bool {
        matches!(self, Codec::MsgPack | Codec::Cbor)
    }

    pub(crate) fn is_json(self) -> bool {
        matches!(self, Codec::Json | Codec::JsonOrResp)
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Codec::Json | Codec::JsonOrResp => "application/json",
            Codec::Resp => "application/x-resp",
            Codec::MsgPack => "application/vnd.msgpack",
            Codec::Cbor => "application/cbor",
        }
    }

    /// Whether data that begins with this byte may be a map in this form; asked before anything
    /// is taken apart only to find out.
    pub(crate) fn may_begin(self, first: u8) -> bool {
        match self {
            Codec::MsgPack => msgpack::begins_map(first),
            Codec::Cbor => cbor::begins_map(first),
            _ => true,
        }
    }

    /// The data as JSON text, which is checked by whoever reads it.
    pub(crate) fn read(self, data: &[u8]) -> Result<Cow<'_, str>, Fault> {
        let node = match self {
            Codec::Json => return utf8(data),
            Codec::JsonOrResp => match data.first() {
                Some(b'*' | b'+' | b':' | b'$' | b'%' | b'-') => resp::decode(data)?,
                _ => return utf8(data),
            },
            Codec::Resp => resp::decode(data)?,
            Codec::MsgPack => msgpack::decode(data)?,
            Codec::Cbor => cbor::decode(data)?,
        };
        Ok(Cow::Owned(node.to_json()))
    }

    /// The data that says what the JSON text says.
    pub(crate) fn write(self, text: String) -> Result<Vec<u8>, Fault> {
        if self.is_json() {
            return Ok(text.into_bytes());
        }
        let node = json::tree(&text)?;
        let mut out = Vec::with_capacity(text.len());
        match self {
            Codec::MsgPack => msgpack::encode(&node, &mut out)?,
            Codec::Cbor => cbor::encode(&node, &mut out)?,
            _ => resp::encode(&node, &mut out),
        }
        Ok(out)
    }
}

fn utf8(data: &[u8]) -> Result<Cow<'_, str>, Fault> {
    std::str::from_utf8(data)
        .map(Cow::Borrowed)
        .map_err(|error| Fault::at(error.valid_up_to(), "it isn't UTF-8"))
}
