//! The collectives that are under way at one node of the tree, and how contributions are combined on their way up.
//!
//! Pure state: what has come goes in, what is to be sent comes out. Sockets are in [`super::control`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::exchange::{Delivery, Subtree};
use super::shared::{CollectiveResult, Enter, Merge, Slot};
use crate::channel::message::CollectiveKind;
use crate::channel::pack::{pack, unpack_first};
use tonnage_units::{Error, Result};

/// Collectives that one rank may have under way; more is a peer that does not follow the rules.
const UNDER_WAY_MAX: usize = 64;
/// Numbers of finished collectives that are remembered, to know a late complaint.
const FINISHED_KEPT: usize = 256;

/// A rank and its host, for messages.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) rank: u32,
    pub(crate) host: String,
}

struct Collective {
    kind: CollectiveKind,
    what: String,
    first: Member,
    mine: Option<Vec<u8>>,
    merge: Option<Merge>,
    slot: Option<Arc<Slot>>,
    /// Contributions of the subtrees, in the order of the children.
    parts: Vec<Option<Vec<u8>>>,
    /// Messages of an exchange that do not leave this subtree.
    staying: Vec<u8>,
}

/// All collectives under way at this node.
pub(crate) struct Collectives {
    children: usize,
    routes: Subtree,
    under_way: BTreeMap<u64, Collective>,
    finished: VecDeque<u64>,
}

/// A subtree is complete: this goes to the parent, or at the root to everybody.
pub(crate) struct Combined {
    pub(crate) kind: CollectiveKind,
    pub(crate) what: String,
    pub(crate) payload: Vec<u8>,
}

impl Collectives {
    pub(crate) fn new(children: usize, routes: Subtree) -> Self {
        Self {
            children,
            routes,
            under_way: BTreeMap::new(),
            finished: VecDeque::new(),
        }
    }

    /// This rank enters.
    ///
    /// # Errors
    /// When another rank is somewhere else in the program.
    pub(crate) fn enter(&mut self, here: &Member, enter: Enter) -> Result<Option<Combined>> {
        let seq = enter.seq;
        let collective = self.at(seq, enter.kind, &enter.what, here)?;
        collective.mine = Some(enter.mine);
        collective.merge = enter.merge;
        collective.slot = Some(enter.slot);
        self.combine(seq)
    }

    /// A child's subtree is complete.
    ///
    /// # Errors
    /// When another rank is somewhere else in the program, or the child says it twice.
    pub(crate) fn child(
        &mut self,
        seq: u64,
        kind: CollectiveKind,
        what: &str,
        from: (usize, &Member),
        payload: Vec<u8>,
    ) -> Result<Option<Combined>> {
        let collective = self.at(seq, kind, what, from.1)?;
        match collective.parts.get_mut(from.0) {
            Some(part @ None) => *part = Some(payload),
            _ => {
                return Err(Error::Failed(format!(
                    "entered \"{what}\" (call {seq}) twice"
                )));
            }
        }
        self.combine(seq)
    }

    fn at(
        &mut self,
        seq: u64,
        kind: CollectiveKind,
        what: &str,
        who: &Member,
    ) -> Result<&mut Collective> {
        if self.under_way.len() >= UNDER_WAY_MAX && !self.under_way.contains_key(&seq) {
            return Err(Error::Failed(format!(
                "more than {UNDER_WAY_MAX} exchanges are under way at once"
            )));
        }
        let collective = self.under_way.entry(seq).or_insert_with(|| Collective {
            kind,
            what: what.to_owned(),
            first: who.clone(),
            mine: None,
            merge: None,
            slot: None,
            parts: (0..self.children).map(|_| None).collect(),
            staying: Vec::new(),
        });
        if collective.kind != kind || collective.what != what {
            let other = &collective.first;
            return Err(Error::Failed(format!(
                "is at \"{what}\" ({kind:?}) where rank {} on {} is at \"{}\" ({:?}), both in call {seq}: the ranks do \
                 not run the same plan",
                other.rank, other.host, collective.what, collective.kind
            )));
        }
        Ok(collective)
    }

    /// Combines the contributions into one when this rank and all children are there.
    fn combine(&mut self, seq: u64) -> Result<Option<Combined>> {
        let Some(collective) = self.under_way.get_mut(&seq) else {
            return Ok(None);
        };
        if collective.mine.is_none() || collective.parts.iter().any(Option::is_none) {
            return Ok(None);
        }
        let mut payload = collective.mine.take().unwrap_or_default();
        // A rank that has entered keeps that mark, because the parent may ask.
        collective.mine = Some(Vec::new());
        let parts = collective.parts.iter_mut().filter_map(Option::as_mut);
        let parts: Vec<_> = parts.map(std::mem::take).collect();
        match (collective.kind, collective.merge) {
            (CollectiveKind::Gather, _) => parts
                .iter()
                .for_each(|part| payload.extend_from_slice(part)),
            (CollectiveKind::Reduce, Some(merge)) => payload = merge(payload, &parts)?,
            (CollectiveKind::Exchange, _) => {
                let sorted = self.routes.sort(&payload, &parts)?;
                collective.staying = sorted.staying;
                payload = sorted.leaving;
            }
            _ => {}
        }
        Ok(Some(Combined {
            kind: collective.kind,
            what: collective.what.clone(),
            payload,
        }))
    }

    /// Returns the messages that have come for each child and for this rank, where the collective is an exchange.
    ///
    /// # Errors
    /// When what came cannot be read.
    pub(crate) fn deliver(&mut self, seq: u64, from_above: &[u8]) -> Result<Option<Delivery>> {
        match self.under_way.get_mut(&seq) {
            Some(collective) if collective.kind == CollectiveKind::Exchange => {
                let staying = std::mem::take(&mut collective.staying);
                self.routes.deliver(&staying, from_above).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The result has come: hands it to the main thread.
    pub(crate) fn finish(&mut self, seq: u64, result: Vec<u8>) {
        let Some(collective) = self.under_way.remove(&seq) else {
            return;
        };
        if let Some(slot) = collective.slot {
            slot.set(CollectiveResult::Result(result));
        }
        self.finished.push_back(seq);
        if self.finished.len() > FINISHED_KEPT {
            self.finished.pop_front();
        }
    }

    /// Returns whether this rank's main thread has entered.
    pub(crate) fn entered(&self, seq: u64) -> bool {
        self.has_finished(seq)
            || self
                .under_way
                .get(&seq)
                .is_some_and(|collective| collective.mine.is_some())
    }

    pub(crate) fn has_finished(&self, seq: u64) -> bool {
        self.finished.contains(&seq)
    }

    /// The run has ended: nobody waits any longer.
    pub(crate) fn stop(&mut self) {
        for (_, collective) in std::mem::take(&mut self.under_way) {
            if let Some(slot) = collective.slot {
                slot.set(CollectiveResult::Stopped);
            }
        }
    }
}

/// One rank's entry of a gather. Entries are put one after the other.
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    rank: u32,
    #[serde(borrow)]
    mine: &'a [u8],
}

/// The bytes of one rank's entry.
pub(crate) fn gather_entry(rank: u32, mine: &[u8]) -> Result<Vec<u8>> {
    pack(&Entry { rank, mine })
}

/// The entries of all ranks in the order of the ranks.
///
/// # Errors
/// When one is missing or there twice.
pub(crate) fn gather_entries(mut bytes: &[u8], size: u32) -> Result<Vec<Vec<u8>>> {
    let wrong = || Error::Failed("the gathered contributions cannot be read".into());
    let mut entries: Vec<Option<Vec<u8>>> = (0..size).map(|_| None).collect();
    while !bytes.is_empty() {
        let (entry, rest) = unpack_first::<Entry<'_>>(bytes).map_err(|_| wrong())?;
        match entries.get_mut(entry.rank as usize) {
            Some(place @ None) => *place = Some(entry.mine.to_vec()),
            _ => return Err(wrong()),
        }
        bytes = rest;
    }
    entries
        .into_iter()
        .collect::<Option<Vec<_>>>()
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(rank: u32) -> Member {
        Member {
            rank,
            host: format!("h{rank}"),
        }
    }

    /// The root of a tree with so many other ranks.
    fn of(children: u32) -> Collectives {
        Collectives::new(children as usize, Subtree::new(0, children + 1, children))
    }

    fn entering(seq: u64, what: &str, mine: &[u8]) -> Enter {
        let merge: Merge = |mine, parts| Ok([&[mine][..], parts].concat().concat());
        Enter {
            seq,
            kind: CollectiveKind::Reduce,
            what: what.into(),
            mine: mine.to_vec(),
            merge: Some(merge),
            slot: Slot::waking(Arc::default()),
        }
    }

    #[test]
    fn a_node_waits_for_itself_and_all_children() {
        let mut all = of(2);
        let part = |all: &mut Collectives, child: usize, text: &[u8]| {
            all.child(
                0,
                CollectiveKind::Reduce,
                "sum",
                (child, &place(child as u32 + 1)),
                text.to_vec(),
            )
        };
        assert!(part(&mut all, 1, b"c").unwrap().is_none());
        assert!(!all.entered(0));
        assert!(
            all.enter(&place(0), entering(0, "sum", b"a"))
                .unwrap()
                .is_none()
        );
        assert!(all.entered(0));
        assert!(part(&mut all, 1, b"c").is_err(), "twice");
        assert_eq!(part(&mut all, 0, b"b").unwrap().unwrap().payload, b"abc");
        assert!(all.entered(0) && !all.has_finished(0));
        all.finish(0, b"abc".to_vec());
        assert!(all.has_finished(0));
    }

    #[test]
    fn ranks_at_different_places_are_both_named() {
        let mut all = of(1);
        all.enter(&place(0), entering(0, "trial 1", b"")).unwrap();
        let error = all
            .child(
                0,
                CollectiveKind::Reduce,
                "trial 2",
                (0, &place(1)),
                Vec::new(),
            )
            .err()
            .unwrap();
        for part in ["trial 1", "trial 2", "rank 0 on h0"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_peer_cannot_open_any_number_of_collectives() {
        let mut all = of(1);
        let mut open = |seq| {
            all.child(
                seq,
                CollectiveKind::Barrier,
                "x",
                (0, &place(1)),
                Vec::new(),
            )
        };
        for seq in 0..UNDER_WAY_MAX as u64 {
            open(seq).unwrap();
        }
        assert!(open(1000).is_err());
    }

    #[test]
    fn gathered_entries_need_every_rank_once() {
        let bytes = |ranks: &[u32]| -> Vec<u8> {
            ranks
                .iter()
                .flat_map(|&rank| gather_entry(rank, &[7; 3]).unwrap())
                .collect()
        };
        assert_eq!(
            gather_entries(&bytes(&[1, 0]), 2).unwrap(),
            vec![vec![7; 3]; 2]
        );
        for wrong in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 1]] {
            assert!(gather_entries(&bytes(wrong), 2).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn gathered_garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = gather_entries(&bytes, 3);
        }
    }
}
