//! Which node has which slot, as a node says it.

use super::slot::SLOTS;
use crate::streams::valkey::frame::Frame;
use crate::streams::valkey::url::Host;

/// A master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Master {
    pub(crate) host: Host,
    /// Whether a replica follows it that isn't taken for dead.
    pub(crate) followed: bool,
}

/// The masters, and the slots of each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SlotMap {
    pub(crate) masters: Vec<Master>,
    /// For each slot the place of its master in the list.
    owners: Vec<Option<usize>>,
}

impl SlotMap {
    /// From the answer to `CLUSTER SLOTS` that `asked` gave.
    pub(crate) fn read(answer: &Frame, asked: &Host) -> Option<SlotMap> {
        let mut map = SlotMap {
            masters: Vec::new(),
            owners: vec![None; SLOTS],
        };
        for range in answer.elements() {
            let [Frame::Integer(first), Frame::Integer(last), nodes @ ..] = range.elements() else {
                return None;
            };
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            let host = host(nodes.first()?, asked)?;
            let followed = nodes.len() > 1;
            let known = map.masters.iter().position(|master| master.host == host);
            let at = known.unwrap_or_else(|| {
                map.masters.push(Master { host, followed });
                map.masters.len() - 1
            });
            map.owners.get_mut(first..=last)?.fill(Some(at));
        }
        (!map.masters.is_empty()).then_some(map)
    }

    /// Who has a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<&Master> {
        let at = (*self.owners.get(usize::from(slot))?)?;
        self.masters.get(at)
    }

    /// Whether a replica follows this master.
    pub(crate) fn is_followed(&self, host: &Host) -> bool {
        self.masters
            .iter()
            .any(|master| master.host == *host && master.followed)
    }
}

/// A node that doesn't know its own name means the one by which it was reached.
fn host(node: &Frame, asked: &Host) -> Option<Host> {
    let [name, Frame::Integer(port), ..] = node.elements() else {
        return None;
    };
    let name = match name.text() {
        Some(b"" | b"?") | None => asked.name.clone(),
        Some(name) => String::from_utf8(name.to_vec()).ok()?,
    };
    let port = u16::try_from(*port).ok()?;
    Some(Host { name, port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn node(name: &'static str, port: i64) -> Frame {
        Frame::List(vec![
            Frame::Text(Bytes::from_static(name.as_bytes())),
            Frame::Integer(port),
        ])
    }

    fn asked() -> Host {
        Host {
            name: "seed".to_owned(),
            port: 1,
        }
    }

    #[test]
    fn ranges_name_their_master_and_whether_it_is_followed() {
        let range = |first, last, nodes: Vec<Frame>| {
            let ends = vec![Frame::Integer(first), Frame::Integer(last)];
            Frame::List([ends, nodes].concat())
        };
        let answer = Frame::List(vec![
            range(0, 9, vec![node("a", 7), node("b", 7)]),
            range(10, 16383, vec![node("", 8)]),
        ]);
        let map = SlotMap::read(&answer, &asked()).unwrap();
        assert_eq!(map.owner(9).unwrap().host.name, "a");
        assert_eq!(map.owner(10).unwrap().host.name, "seed");
        assert!(map.masters[0].followed && !map.masters[1].followed);
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let beyond = Frame::List(vec![Frame::Integer(0), Frame::Integer(16384), node("a", 7)]);
        for answer in [
            Frame::Null,
            Frame::List(vec![]),
            Frame::List(vec![Frame::Null]),
            Frame::List(vec![beyond]),
        ] {
            assert_eq!(SlotMap::read(&answer, &asked()), None, "{answer:?}");
        }
    }
}
