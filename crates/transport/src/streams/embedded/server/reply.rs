//! Answers, and how each version of the protocol puts them.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use redis_protocol::error::RedisProtocolError;
use redis_protocol::resp2::types::BytesFrame as Frame2;
use redis_protocol::resp3::types::{BytesFrame as Frame3, VerbatimStringFormat};
use redis_protocol::types::CRLF;
use redis_protocol::{resp2, resp3};

use crate::streams::embedded::blocked::Fault;
use crate::streams::embedded::engine::Refusal;

/// The version of the protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Two,
    Three,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Simple(&'static str),
    Error(Cow<'static, str>),
    Int(i64),
    Bulk(Bytes),
    /// Text for people.
    Text(String),
    Null,
    NullArray,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

impl Reply {
    pub(super) const OK: Reply = Reply::Simple("OK");

    pub(super) fn bulk(text: impl Into<String>) -> Reply {
        Reply::Bulk(Bytes::from(text.into()))
    }

    pub(super) fn word(text: &'static str) -> Reply {
        Reply::Bulk(Bytes::from_static(text.as_bytes()))
    }

    pub(super) fn count(count: usize) -> Reply {
        Reply::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(super) fn number(number: u64) -> Reply {
        Reply::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub(super) fn or_null(value: Option<Bytes>) -> Reply {
        value.map_or(Reply::Null, Reply::Bulk)
    }

    /// Writes it at the end of a buffer.
    pub(super) fn encode(
        self,
        protocol: Protocol,
        out: &mut BytesMut,
    ) -> Result<(), RedisProtocolError> {
        match protocol {
            // Version two has two nulls, and the codec only one of them.
            Protocol::Two if self == Reply::NullArray => {
                out.extend_from_slice(&[resp2::types::ARRAY_BYTE]);
                out.extend_from_slice(b"-1");
                out.extend_from_slice(CRLF.as_bytes());
            }
            Protocol::Two => {
                resp2::encode::extend_encode(out, &self.into_two(), false)?;
            }
            Protocol::Three => {
                resp3::encode::complete::extend_encode(out, &self.into_three(), false)?;
            }
        }
        Ok(())
    }

    fn into_two(self) -> Frame2 {
        match self {
            Reply::Simple(text) => Frame2::SimpleString(Bytes::from_static(text.as_bytes())),
            Reply::Error(text) => Frame2::Error(one_line(&text).into()),
            Reply::Int(number) => Frame2::Integer(number),
            Reply::Bulk(bytes) => Frame2::BulkString(bytes),
            Reply::Text(text) => Frame2::BulkString(Bytes::from(text)),
            Reply::Null | Reply::NullArray => Frame2::Null,
            Reply::Array(items) => Frame2::Array(items.into_iter().map(Reply::into_two).collect()),
            Reply::Map(items) => Frame2::Array(
                items
                    .into_iter()
                    .flat_map(|(key, value)| [key.into_two(), value.into_two()])
                    .collect(),
            ),
        }
    }

    fn into_three(self) -> Frame3 {
        let attributes = None;
        match self {
            Reply::Simple(text) => Frame3::SimpleString {
                data: Bytes::from_static(text.as_bytes()),
                attributes,
            },
            Reply::Error(text) => Frame3::SimpleError {
                data: one_line(&text).into(),
                attributes,
            },
            Reply::Int(data) => Frame3::Number { data, attributes },
            Reply::Bulk(data) => Frame3::BlobString { data, attributes },
            Reply::Text(text) => Frame3::VerbatimString {
                data: Bytes::from(text),
                format: VerbatimStringFormat::Text,
                attributes,
            },
            Reply::Null | Reply::NullArray => Frame3::Null,
            Reply::Array(items) => Frame3::Array {
                data: items.into_iter().map(Reply::into_three).collect(),
                attributes,
            },
            Reply::Map(items) => Frame3::Map {
                data: items
                    .into_iter()
                    .map(|(key, value)| (key.into_three(), value.into_three()))
                    .collect(),
                attributes,
            },
        }
    }
}

/// An error ends with its line, and may repeat what a client sent.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

impl From<Refusal> for Reply {
    fn from(Refusal(text): Refusal) -> Reply {
        Reply::Error(text)
    }
}

impl From<Fault> for Reply {
    fn from(fault: Fault) -> Reply {
        match fault {
            Fault::Refused(refusal) => refusal.into(),
            Fault::Store(crate::streams::StoreError::Refused { reason, .. }) => {
                Reply::Error(reason.into())
            }
            Fault::Store(error) => Reply::Error(format!("MISCONF {error}").into()),
        }
    }
}
