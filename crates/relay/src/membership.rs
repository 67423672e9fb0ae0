//! How several daemons share the streams of one store.
//!
//! Sites are spread over a fixed number of slices by the hash of their id; each slice is held by
//! one live daemon, so a site's streams are read by one daemon at a time and order is kept. All
//! of it lies in one hash: `i:MEMBER` is a member's incarnation, `b:MEMBER` its heartbeat,
//! `s:SLICE` the member that holds a slice.
//!
//! No clock is compared with another. A member counts its heartbeat up; the others count how
//! many of their own rounds it stood still, and after [`DEAD_AFTER`] they remove it. A store that
//! was paused stops everybody's rounds alike, so nobody is declared dead for it. Whoever is
//! removed is fenced: its writes carry its incarnation as a condition, and that is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crossway_core::address::{Keyspace, SiteId};
use crossway_transport::streams::{Fence, HashChange};

/// Slices that all sites are spread over: enough that a few dozen daemons share evenly, few
/// enough that a round reads them all in one go.
pub(crate) const SLICES: u16 = 64;

/// Time between two rounds.
pub(crate) const ROUND: Duration = Duration::from_millis(500);

/// Rounds that a member's heartbeat may stand still before it is taken for dead: four seconds.
const DEAD_AFTER: u32 = 8;

/// How long after its last round a member may still start a read. With the longest wait of a
/// read (one second) this stays below the four seconds after which others take over.
pub(crate) const VALID_FOR: Duration = Duration::from_millis(2500);

/// The slice of a site.
pub(crate) fn slice(site: &SiteId) -> u16 {
    // FNV-1a; must never change, or two versions would read one stream at a time.
    let hash = site
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    u16::try_from(hash % u64::from(SLICES)).unwrap_or_default()
}

/// One daemon's view of the others.
#[derive(Debug)]
pub(crate) struct Membership {
    me: String,
    /// Names this process; `None` until it has joined.
    incarnation: Option<String>,
    /// Makes incarnations of one process differ.
    joined: u32,
    process: String,
    beat: u64,
    /// The others' heartbeats as last seen, and for how many rounds they stood still.
    others: BTreeMap<String, (String, u32)>,
}

/// What a round found, once it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The slices this daemon holds.
    pub(crate) slices: BTreeSet<u16>,
    /// Slices it holds beyond its fair share, which it should let go of.
    pub(crate) surplus: Vec<u16>,
    /// The live daemons, this one included.
    pub(crate) members: usize,
    /// It was removed by another and has joined anew: all that it held may be held by others.
    pub(crate) evicted: bool,
}

/// Why a daemon can't go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another process runs under this daemon's identity; each needs a data folder of its own")]
pub(crate) struct Impostor;

impl Membership {
    /// `me` outlives restarts; `process` is new for each process.
    pub(crate) fn new(me: &str, process: &str) -> Membership {
        Membership {
            me: me.to_owned(),
            process: process.to_owned(),
            incarnation: None,
            joined: 0,
            beat: 0,
            others: BTreeMap::new(),
        }
    }

    /// The condition under which this daemon may write.
    pub(crate) fn fence(&self, keyspace: &Keyspace) -> Option<Fence> {
        let value = self.incarnation.clone()?;
        Some(Fence {
            key: keyspace.members(),
            field: format!("i:{}", self.me),
            value,
        })
    }

    /// Plans one round on the hash as it is: what to write, and how things stand then. `release`
    /// are slices that this daemon has stopped reading.
    ///
    /// A plan may be made several times before one is written; [`Membership::settle`] tells that it was.
    pub(crate) fn plan(
        &self,
        hash: &HashMap<String, String>,
        release: &BTreeSet<u16>,
    ) -> Result<Plan, Impostor> {
        let mine = format!("i:{}", self.me);
        let mut changes = Vec::new();
        let mut evicted = false;
        let mut joined = self.joined;
        let incarnation = match (&self.incarnation, hash.get(&mine)) {
            (Some(ours), Some(stored)) if ours == stored => ours.clone(),
            // One of this process's own that it never heard of having written: nothing under it was
            // begun, and it joins anew.
            (Some(_), Some(stored)) if !self.is_mine(stored) => return Err(Impostor),
            (ours, stored) => {
                joined = joined.max(
                    stored
                        .and_then(|stored| self.number_of(stored))
                        .unwrap_or_default(),
                );
                // An incarnation never comes back: what was fenced stays fenced.
                evicted = ours.is_some();
                joined += 1;
                let fresh = format!("{}.{joined}", self.process);
                changes.push(HashChange::Set(mine, fresh.clone()));
                fresh
            }
        };
        let beat = self.beat + 1;
        changes.push(HashChange::Set(format!("b:{}", self.me), beat.to_string()));

        let mut others = BTreeMap::new();
        for name in hash
            .keys()
            .filter_map(|field| field.strip_prefix("i:"))
            .filter(|name| *name != self.me)
        {
            let seen = hash.get(&format!("b:{name}")).cloned().unwrap_or_default();
            let still = match self.others.get(name) {
                Some((before, still)) if *before == seen => still + 1,
                _ => 0,
            };
            if still >= DEAD_AFTER {
                changes.push(HashChange::Remove(format!("i:{name}")));
                changes.push(HashChange::Remove(format!("b:{name}")));
            } else {
                others.insert(name.to_owned(), (seen, still));
            }
        }

        let members = others.len() + 1;
        let fair = usize::from(SLICES).div_ceil(members);
        let holder = |slice: u16| hash.get(&format!("s:{slice}")).map(String::as_str);
        let live = |name: &str| others.contains_key(name);
        let mut slices: BTreeSet<u16> = (0..SLICES)
            .filter(|slice| {
                !evicted && holder(*slice) == Some(self.me.as_str()) && !release.contains(slice)
            })
            .collect();
        for slice in (0..SLICES)
            .filter(|slice| release.contains(slice) && holder(*slice) == Some(self.me.as_str()))
        {
            changes.push(HashChange::Remove(format!("s:{slice}")));
        }
        for slice in 0..SLICES {
            let free = !holder(slice).is_some_and(|name| live(name) || name == self.me && !evicted);
            if free && slices.len() < fair && !release.contains(&slice) {
                changes.push(HashChange::Set(format!("s:{slice}"), self.me.clone()));
                slices.insert(slice);
            }
        }
        let surplus = slices
            .iter()
            .rev()
            .take(slices.len().saturating_sub(fair))
            .copied()
            .collect();
        let standing = Standing {
            slices,
            surplus,
            members,
            evicted,
        };
        Ok(Plan {
            changes,
            standing,
            incarnation,
            joined,
            beat,
            others,
        })
    }

    fn number_of(&self, incarnation: &str) -> Option<u32> {
        let (process, number) = incarnation.rsplit_once('.')?;
        number.parse().ok().filter(|_| process == self.process)
    }

    fn is_mine(&self, incarnation: &str) -> bool {
        self.number_of(incarnation).is_some()
    }

    /// Takes over a plan that was written.
    pub(crate) fn settle(&mut self, plan: Plan) -> Standing {
        self.incarnation = Some(plan.incarnation);
        self.joined = plan.joined;
        self.beat = plan.beat;
        self.others = plan.others;
        plan.standing
    }

    /// What to write to leave: others take over at once.
    pub(crate) fn leave(&self, hash: &HashMap<String, String>) -> Vec<HashChange> {
        let mine = format!("i:{}", self.me);
        if self.incarnation.as_ref() != hash.get(&mine) {
            return Vec::new();
        }
        let held = hash
            .iter()
            .filter(|(field, holder)| field.starts_with("s:") && **holder == self.me);
        let mut changes: Vec<_> = held
            .map(|(field, _)| HashChange::Remove(field.clone()))
            .collect();
        changes.push(HashChange::Remove(mine));
        changes.push(HashChange::Remove(format!("b:{}", self.me)));
        changes
    }
}

/// One round, not yet written.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) changes: Vec<HashChange>,
    standing: Standing,
    incarnation: String,
    joined: u32,
    beat: u64,
    others: BTreeMap<String, (String, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Store(HashMap<String, String>);

    impl Store {
        fn apply(&mut self, changes: &[HashChange]) {
            for change in changes {
                match change {
                    HashChange::Set(field, value) => {
                        drop(self.0.insert(field.clone(), value.clone()))
                    }
                    HashChange::Remove(field) => drop(self.0.remove(field)),
                }
            }
        }

        fn round(
            &mut self,
            member: &mut Membership,
            release: &BTreeSet<u16>,
        ) -> Result<Standing, Impostor> {
            let plan = member.plan(&self.0, release)?;
            self.apply(&plan.changes);
            Ok(member.settle(plan))
        }
    }

    fn nothing() -> BTreeSet<u16> {
        BTreeSet::new()
    }

    #[test]
    fn a_lone_daemon_holds_everything_at_once() {
        let mut store = Store::default();
        let standing = store
            .round(&mut Membership::new("a", "p"), &nothing())
            .unwrap();
        assert_eq!(standing.slices.len(), usize::from(SLICES));
        assert!(standing.surplus.is_empty() && !standing.evicted);
    }

    #[test]
    fn a_restarted_daemon_takes_its_slices_back_at_once_and_fences_its_predecessor() {
        let mut store = Store::default();
        let mut old = Membership::new("a", "p1");
        store.round(&mut old, &nothing()).unwrap();
        let keys = Keyspace::new("gnode", "gnode", Default::default(), &[]).unwrap();
        let fence = old.fence(&keys).unwrap();
        assert_eq!(store.0.get(&fence.field), Some(&fence.value));
        let standing = store
            .round(&mut Membership::new("a", "p2"), &nothing())
            .unwrap();
        assert_eq!(standing.slices.len(), usize::from(SLICES));
        assert_ne!(store.0.get(&fence.field), Some(&fence.value));
        assert_eq!(store.round(&mut old, &nothing()), Err(Impostor));
    }

    #[test]
    fn a_dead_daemon_is_replaced_and_comes_back_with_nothing_of_its_own() {
        let mut store = Store::default();
        let (mut a, mut b) = (Membership::new("a", "pa"), Membership::new("b", "pb"));
        let keys = Keyspace::new("gnode", "gnode", Default::default(), &[]).unwrap();
        store.round(&mut a, &nothing()).unwrap();
        let before = a.fence(&keys).unwrap();
        let mut rounds = 0;
        while store.round(&mut b, &nothing()).unwrap().slices.len() < usize::from(SLICES) {
            rounds += 1;
            assert!(rounds <= DEAD_AFTER + 1);
        }
        assert!(rounds >= DEAD_AFTER);
        assert_eq!(store.0.get(&before.field), None);
        let standing = store.round(&mut a, &nothing()).unwrap();
        assert!(standing.evicted && standing.slices.is_empty());
        assert_ne!(a.fence(&keys).unwrap(), before);
    }

    #[test]
    fn a_round_whose_answer_was_lost_makes_nobody_an_impostor() {
        let mut store = Store::default();
        let mut a = Membership::new("a", "pa");
        store.round(&mut a, &nothing()).unwrap();
        store.0.clear();
        let unheard = a.plan(&store.0, &nothing()).unwrap();
        store.apply(&unheard.changes);
        let standing = store.round(&mut a, &nothing()).unwrap();
        assert!(standing.evicted);
        assert_eq!(standing.slices.len(), usize::from(SLICES));
        let keys = Keyspace::new("gnode", "gnode", Default::default(), &[]).unwrap();
        let fence = a.fence(&keys).unwrap();
        assert_eq!(store.0.get(&fence.field), Some(&fence.value));
    }

    #[test]
    fn a_daemon_that_leaves_is_replaced_in_the_next_round() {
        let mut store = Store::default();
        let (mut a, mut b) = (Membership::new("a", "pa"), Membership::new("b", "pb"));
        store.round(&mut a, &nothing()).unwrap();
        let leave = a.leave(&store.0);
        store.apply(&leave);
        assert_eq!(
            store.round(&mut b, &nothing()).unwrap().slices.len(),
            usize::from(SLICES)
        );
    }

    proptest! {
        /// Whatever the order of rounds, joins, deaths and leavings: no slice has two holders
        /// that can write, and soon after things are quiet every slice is held and shared evenly.
        #[test]
        fn slices_are_never_shared_and_never_lost(steps in prop::collection::vec((0usize..4, 0u8..8), 1..120)) {
            let mut store = Store::default();
            /// A daemon, the slices it holds, and those it lets go of.
            type Daemon = (Membership, BTreeSet<u16>, BTreeSet<u16>);
            let mut members: Vec<Option<Daemon>> = (0..4).map(|_| None).collect();
            let mut processes = 0;
            let keys = Keyspace::new("gnode", "gnode", Default::default(), &[]).unwrap();
            for (who, what) in steps {
                match (what, members[who].take()) {
                    (0, Some(_)) => {} // killed
                    (1, Some((member, _, _))) => {
                        let leave = member.leave(&store.0);
                        store.apply(&leave);
                    }
                    (_, None) => {
                        processes += 1;
                        let member = Membership::new(&format!("m{who}"), &format!("p{processes}"));
                        members[who] = Some((member, BTreeSet::new(), BTreeSet::new()));
                    }
                    (_, Some((mut member, _, release))) => {
                        let standing = store.round(&mut member, &release).unwrap();
                        members[who] = Some((member, standing.slices, standing.surplus.into_iter().collect()));
                    }
                }
                let mut held = HashMap::new();
                for (index, member) in members.iter().enumerate() {
                    let Some((member, slices, _)) = member else { continue };
                    let writes = member.fence(&keys).is_some_and(|fence| store.0.get(&fence.field) == Some(&fence.value));
                    for slice in slices.iter().filter(|_| writes) {
                        prop_assert_eq!(held.insert(*slice, index), None, "slice {} is held twice", slice);
                    }
                }
            }
            members[0].get_or_insert_with(|| (Membership::new("m0", "last"), BTreeSet::new(), BTreeSet::new()));
            for _ in 0..40 {
                for (member, slices, release) in members.iter_mut().flatten() {
                    let standing = store.round(member, release).unwrap();
                    *slices = standing.slices;
                    *release = standing.surplus.into_iter().collect();
                }
            }
            let sizes: Vec<usize> = members.iter().flatten().map(|(_, slices, _)| slices.len()).collect();
            prop_assert_eq!(sizes.iter().sum::<usize>(), usize::from(SLICES));
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 3, "{:?}", sizes);
        }
    }
}
