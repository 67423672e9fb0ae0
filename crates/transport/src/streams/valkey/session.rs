//! The connection of a reader that settles, and what it holds while it is connected.

use super::connection::Connection;
use super::dial::Dialer;
use super::frame::Frame;
use super::settle::SCRIPT;
use crate::streams::StoreError;

/// What a reader has while it is connected, beside the connections of its lanes.
pub(crate) struct Session {
    /// Settles, and does what is due while the others wait.
    pub(crate) settle: Connection,
    /// The digest of the script that settles.
    pub(crate) digest: Vec<u8>,
    /// Whether the store tells of changes.
    pub(crate) tells_changes: bool,
}

impl Session {
    /// Connects. `name` must be the reader's own, and no other's; `former` are the numbers that
    /// its connections had on the store before they broke.
    pub(crate) async fn open(
        dialer: &Dialer,
        name: &str,
        former: &[u64],
    ) -> Result<Session, StoreError> {
        let mut settle = Connection::open(dialer, name).await?;
        end(&mut settle, name, former).await?;
        let digest = load(&mut settle).await?;
        Ok(Session {
            settle,
            digest,
            tells_changes: true,
        })
    }
}

/// Gives the script to the store and gives its digest.
pub(crate) async fn load(connection: &mut Connection) -> Result<Vec<u8>, StoreError> {
    match connection
        .must("SCRIPT LOAD", &[b"SCRIPT", b"LOAD", SCRIPT.as_bytes()])
        .await?
    {
        Frame::Text(digest) => Ok(digest.to_vec()),
        _ => Err(connection.refused("SCRIPT LOAD", b"ERR it answered without a digest")),
    }
}

/// Ends connections that broke for us but perhaps not for the store: one that still waits there
/// would be given entries that nobody hears of until the next time pending ones are read.
///
/// The numbers may since belong to others, after a restart of the store; so the name must fit.
async fn end(connection: &mut Connection, name: &str, former: &[u64]) -> Result<(), StoreError> {
    for number in former {
        let number = number.to_string();
        let listed = connection
            .ask(&[b"CLIENT", b"LIST", b"ID", number.as_bytes()])
            .await?;
        let ours = listed
            .text()
            .is_some_and(|text| is_listed(text, &number, name));
        if ours
            && let Frame::Error(text) = connection
                .ask(&[b"CLIENT", b"KILL", b"ID", number.as_bytes()])
                .await?
        {
            tracing::warn!(reason = %String::from_utf8_lossy(&text), "the store didn't end a broken connection");
        }
    }
    Ok(())
}

fn is_listed(list: &[u8], number: &str, name: &str) -> bool {
    let has = |line: &str, field: &str, value: &str| {
        line.split(' ').any(|word| {
            word.strip_prefix(field)
                .and_then(|rest| rest.strip_prefix('='))
                == Some(value)
        })
    };
    String::from_utf8_lossy(list)
        .lines()
        .any(|line| has(line, "id", number) && has(line, "name", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_of_this_reader_is_ended() {
        let list = b"id=7 addr=127.0.0.1:5 name=mine age=3\nid=8 addr=127.0.0.1:6 name=other\n";
        assert!(is_listed(list, "7", "mine"));
        assert!(!is_listed(list, "8", "mine"));
        assert!(!is_listed(list, "9", "mine"));
        assert!(!is_listed(b"", "7", "mine"));
    }
}
