//! A connection to each node, and calls that find their way to the right one.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{sleep, timeout};

use super::Nodes;
use super::map::SlotMap;
use super::mapper::Maps;
use crate::streams::valkey::connection::{ANSWER_DEADLINE, Connection, Written};
use crate::streams::valkey::dial::unreachable;
use crate::streams::valkey::encode::Outgoing;
use crate::streams::valkey::entries::Answer;
use crate::streams::valkey::frame::{Build, Frame, FrameBuilder};
use crate::streams::valkey::url::{self, Host};
use crate::streams::{Key, StoreError};

/// How long a call is sent after a slot that moves.
const CHASE: Duration = Duration::from_secs(1);
/// Between two attempts, while a slot moves.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a node may take to let us in.
const CONNECT: Duration = Duration::from_secs(1);
/// How long a node that couldn't be reached is left alone.
const LEFT_ALONE: Duration = Duration::from_millis(200);

/// One command about keys of one slot.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) slot: u16,
    pub(crate) pieces: Vec<Bytes>,
}

/// An answer that may be an error.
pub(crate) trait MayRefuse {
    fn refusal(&self) -> Option<&[u8]>;
}

impl MayRefuse for Frame {
    fn refusal(&self) -> Option<&[u8]> {
        match self {
            Frame::Error(text) => Some(text),
            _ => None,
        }
    }
}

impl MayRefuse for Answer {
    fn refusal(&self) -> Option<&[u8]> {
        match self {
            Answer::Refused(text) => Some(text),
            Answer::Streams(_) => None,
        }
    }
}

/// Where a refusal sends us instead.
#[derive(Debug, PartialEq, Eq)]
enum Redirection {
    /// The map is out of date.
    Moved,
    /// This once to another node.
    Ask(Host),
    /// Keys of the slot are on their way.
    Later,
}

fn redirection(refusal: &[u8]) -> Option<Redirection> {
    let text = std::str::from_utf8(refusal).ok()?;
    let mut words = text.split(' ');
    match words.next()? {
        "MOVED" => Some(Redirection::Moved),
        "TRYAGAIN" => Some(Redirection::Later),
        "ASK" => {
            let (name, port) = words.nth(1)?.rsplit_once(':')?;
            let host = match port.parse() {
                Ok(port) if !name.is_empty() => Host {
                    name: name.to_owned(),
                    port,
                },
                _ => url::host(name).ok()?,
            };
            Some(Redirection::Ask(host))
        }
        _ => None,
    }
}

/// Connections to the nodes of a cluster, used by one task at a time. One is taken out while it is
/// used: whoever gives up in the middle leaves none behind that is out of step.
pub(crate) struct Links {
    nodes: Arc<Nodes>,
    maps: Arc<Maps>,
    name: String,
    /// Keys whose change is told, where the nodes are to tell what is written.
    watched: Option<Vec<Key>>,
    links: HashMap<Host, Connection>,
    left_alone: HashMap<Host, Instant>,
    /// Nodes connected to since this was asked before.
    fresh: Vec<Host>,
}

impl Links {
    pub(crate) fn new(
        nodes: Arc<Nodes>,
        maps: Arc<Maps>,
        name: String,
        watched: Option<Vec<Key>>,
    ) -> Links {
        Links {
            nodes,
            maps,
            name,
            watched,
            links: HashMap::new(),
            left_alone: HashMap::new(),
            fresh: Vec::new(),
        }
    }

    pub(crate) fn at(&self) -> &str {
        &self.nodes.at
    }

    /// The newest map; waits a little for the first.
    pub(crate) async fn map(&self) -> Arc<SlotMap> {
        let map = self.maps.current();
        if map.masters.is_empty() {
            return self.maps.renewed().await;
        }
        map
    }

    /// Nodes connected to since this was asked before.
    pub(crate) fn take_fresh(&mut self) -> Vec<Host> {
        std::mem::take(&mut self.fresh)
    }

    /// Whether a node was connected to that wasn't asked for yet.
    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Connects to every master that can be reached; whether any can. Connections to others end.
    pub(crate) async fn open_all(&mut self) -> Result<(), StoreError> {
        let map = self.map().await;
        self.links
            .retain(|host, _| map.masters.iter().any(|master| master.host == *host));
        let mut failure = unreachable(&self.nodes.at, "none of its nodes gave a map of its slots");
        for master in &map.masters {
            match self.take(&master.host).await {
                Ok(link) => drop(self.links.insert(master.host.clone(), link)),
                Err(error) => {
                    self.maps.doubt();
                    failure = error;
                }
            }
        }
        if self.links.is_empty() {
            return Err(failure);
        }
        Ok(())
    }

    /// Takes the connection to a node out, making it where there is none.
    pub(crate) async fn take(&mut self, host: &Host) -> Result<Connection, StoreError> {
        if let Some(link) = self.links.remove(host) {
            return Ok(link);
        }
        if self
            .left_alone
            .get(host)
            .is_some_and(|until| Instant::now() < *until)
        {
            return Err(unreachable(
                &host.to_string(),
                "it couldn't be reached a moment ago",
            ));
        }
        match timeout(CONNECT, self.open(host)).await {
            Ok(Ok(link)) => {
                self.left_alone.remove(host);
                self.fresh.push(host.clone());
                Ok(link)
            }
            failed => {
                self.left_alone
                    .insert(host.clone(), Instant::now() + LEFT_ALONE);
                self.maps.doubt();
                match failed {
                    Ok(Err(error)) => Err(error),
                    _ => Err(unreachable(
                        &host.to_string(),
                        format!("no connection within {CONNECT:?}"),
                    )),
                }
            }
        }
    }

    async fn open(&self, host: &Host) -> Result<Connection, StoreError> {
        let mut link = Connection::open(&self.nodes.dialer(host)?, &self.name).await?;
        if let Some(watched) = &self.watched {
            link.watch_all(watched).await?;
        }
        Ok(link)
    }

    /// Puts a connection back that is in step.
    pub(crate) fn put_back(&mut self, host: Host, link: Connection) {
        self.links.insert(host, link);
    }

    /// Whether a node has something to tell, or its connection broke.
    pub(crate) fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut broken = None;
        let mut told = false;
        for (host, link) in &mut self.links {
            match link.poll_hear(cx, &mut FrameBuilder::default()) {
                Poll::Pending => {}
                Poll::Ready(Ok(None)) => told = true,
                Poll::Ready(Ok(Some(_)) | Err(_)) => broken = Some(host.clone()),
            }
        }
        if let Some(host) = broken {
            self.links.remove(&host);
            self.maps.doubt();
            return Poll::Ready(());
        }
        if told { Poll::Ready(()) } else { Poll::Pending }
    }

    /// What was written since this was asked before, and whether a watched key was.
    pub(crate) fn take_told(&mut self) -> (Vec<Written>, bool) {
        let mut changed = false;
        let written = self.links.values_mut().map(|link| {
            changed |= link.take_changed();
            link.take_written()
        });
        let written = written.collect();
        (written, changed)
    }

    /// Carries out calls, those to different nodes at the same time, and gives their answers in
    /// order. A call that is redirected is sent on; so no two in one round may depend on each
    /// other's order. With `confirm` a master that has a replica waits until it has the writes.
    pub(crate) async fn round<B>(
        &mut self,
        calls: &[Call],
        confirm: bool,
        builder: impl Fn() -> B,
    ) -> Vec<Result<B::Out, StoreError>>
    where
        B: Build,
        B::Out: MayRefuse,
    {
        let mut results: Vec<Option<Result<B::Out, StoreError>>> =
            calls.iter().map(|_| None).collect();
        let mut asking: HashMap<usize, Host> = HashMap::new();
        let end = Instant::now() + CHASE;
        let mut map = self.map().await;
        loop {
            let mut by_node: HashMap<Host, Vec<usize>> = HashMap::new();
            for (at, call) in calls.iter().enumerate() {
                if results.get(at).is_none_or(Option::is_some) {
                    continue;
                }
                let owner = map.owner(call.slot).map(|master| &master.host);
                match asking.get(&at).or(owner) {
                    Some(host) => by_node.entry(host.clone()).or_default().push(at),
                    None => set(&mut results, at, Err(self.nowhere(call.slot))),
                }
            }
            let mut under_way = Vec::new();
            for (host, places) in by_node {
                let confirm = confirm && !self.nodes.confirm.is_zero() && map.is_followed(&host);
                match self.send(&host, calls, &places, &asking, confirm).await {
                    Ok(link) => under_way.push((host, places, link, confirm)),
                    Err(error) => self.fail(&mut results, &places, &error),
                }
            }
            let (mut again, mut chased) = (false, HashMap::new());
            for (host, places, mut link, confirm) in under_way {
                let asked: Vec<bool> = places.iter().map(|at| asking.contains_key(at)).collect();
                match hear(&mut link, &asked, confirm, &builder).await {
                    Ok(answers) => {
                        self.put_back(host, link);
                        for (at, answer) in places.into_iter().zip(answers) {
                            match answer.refusal().and_then(redirection) {
                                Some(elsewhere) if Instant::now() < end => {
                                    again = true;
                                    if let Redirection::Ask(host) = elsewhere {
                                        chased.insert(at, host);
                                    }
                                }
                                _ => set(&mut results, at, Ok(answer)),
                            }
                        }
                    }
                    Err(error) => self.fail(&mut results, &places, &error),
                }
            }
            if !again {
                break;
            }
            if chased.is_empty() {
                sleep(PAUSE).await;
                map = self.maps.renewed().await;
            }
            asking = chased;
        }
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|| Err(unreachable(self.at(), "no answer"))))
            .collect()
    }

    fn nowhere(&self, slot: u16) -> StoreError {
        self.maps.doubt();
        unreachable(self.at(), format!("no node has slot {slot}"))
    }

    fn fail<T>(
        &self,
        results: &mut [Option<Result<T, StoreError>>],
        places: &[usize],
        error: &StoreError,
    ) {
        self.maps.doubt();
        for at in places {
            set(results, *at, Err(error.clone()));
        }
    }

    async fn send(
        &mut self,
        host: &Host,
        calls: &[Call],
        places: &[usize],
        asking: &HashMap<usize, Host>,
        confirm: bool,
    ) -> Result<Connection, StoreError> {
        let mut link = self.take(host).await?;
        let mut pieces = Vec::new();
        for at in places {
            if asking.contains_key(at) {
                let mut out = Outgoing::default();
                out.line(&[b"ASKING"]);
                pieces.extend(out.pieces());
            }
            if let Some(call) = calls.get(*at) {
                pieces.extend(call.pieces.iter().cloned());
            }
        }
        if confirm {
            let ms = self.nodes.confirm.as_millis().to_string();
            let mut out = Outgoing::default();
            out.line(&[b"WAIT", b"1", ms.as_bytes()]);
            pieces.extend(out.pieces());
        }
        link.send(pieces).await?;
        Ok(link)
    }
}

fn set<T>(results: &mut [Option<T>], at: usize, result: T) {
    if let Some(place) = results.get_mut(at) {
        *place = Some(result);
    }
}

/// The answers to calls that were sent over one connection.
async fn hear<B: Build>(
    link: &mut Connection,
    asked: &[bool],
    confirm: bool,
    builder: impl Fn() -> B,
) -> Result<Vec<B::Out>, StoreError> {
    let mut answers = Vec::with_capacity(asked.len());
    for asked in asked {
        if *asked {
            link.answer().await?;
        }
        let mut builder = builder();
        let whole = async {
            loop {
                if let Some(out) = link.hear(&mut builder).await? {
                    return Ok(out);
                }
            }
        };
        answers.push(timeout(ANSWER_DEADLINE, whole).await.unwrap_or_else(|_| {
            let reason = format!("it didn't answer within {ANSWER_DEADLINE:?}");
            Err(unreachable("a node of the cluster", reason))
        })?);
    }
    if confirm && !matches!(link.answer().await?, Frame::Integer(replicas) if replicas > 0) {
        return Err(unreachable(
            "a node of the cluster",
            "its replica didn't confirm a write in time",
        ));
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_is_told_from_another_refusal() {
        let host = Host {
            name: "::1".to_owned(),
            port: 7,
        };
        assert_eq!(redirection(b"MOVED 1 a:1"), Some(Redirection::Moved));
        assert_eq!(redirection(b"ASK 1 ::1:7"), Some(Redirection::Ask(host)));
        assert_eq!(redirection(b"TRYAGAIN x"), Some(Redirection::Later));
        for other in ["CLUSTERDOWN x", "ASK", "ASK 1 x", "", "WRONGTYPE"] {
            assert_eq!(redirection(other.as_bytes()), None, "{other}");
        }
    }
}
