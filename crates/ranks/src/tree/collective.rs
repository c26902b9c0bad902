//! Collectives in progress at one node of the tree. Contributions are combined on their way up, and results are
//! delivered on their way down.
//!
//! This is pure state without I/O: received messages go in, and messages to send come out. The connections are in
//! [`super::node`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::exchange::{Delivery, Subtree};
use super::shared::{CollectiveCall, CollectiveResult, CollectiveSlot, MergeFn};
use crate::RankInfo;
use crate::channel::message::{CallNumber, CollectiveKind, CollectiveTerms};
use crate::channel::pack::{pack, unpack_first};
use crate::rank_set::RankSet;
use tonnage_units::{Error, Result};

/// Limit on collectives in progress, in addition to two per rank. More of them mean that a peer breaks the protocol.
/// Collectives of a few ranks also pass through nodes outside the group, so a node may see several at once.
const UNDER_WAY_MAX: usize = 64;
/// Number of finished collectives that are remembered, so that a late report of a missing rank is recognised.
const FINISHED_KEPT: usize = 256;

/// The contribution of a child's subtree.
#[derive(PartialEq)]
enum CollectivePart {
    /// The subtree has no members.
    Absent,
    Awaited,
    Came(Vec<u8>),
}

struct Collective {
    terms: CollectiveTerms,
    /// The first rank that contributed, named in error messages.
    first: RankInfo,
    /// Whether this rank is a member. If it is not, it only forwards.
    takes_part: bool,
    mine: Option<Vec<u8>>,
    merge: Option<MergeFn>,
    slot: Option<Arc<CollectiveSlot>>,
    /// The children's contributions, in order of the children.
    parts: Vec<CollectivePart>,
    /// Messages of an exchange to receivers in this subtree.
    staying: Vec<u8>,
}

/// All collectives in progress at this node.
pub(crate) struct Collectives {
    pub(super) routes: Subtree,
    under_way: BTreeMap<CallNumber, Collective>,
    under_way_max: usize,
    finished: VecDeque<CallNumber>,
}

/// Combined contribution of a complete subtree. If the subtree contains all members, it goes back down as the result;
/// otherwise it goes to the parent.
pub(crate) struct CombinedPart {
    pub(crate) terms: CollectiveTerms,
    pub(crate) has_all: bool,
    pub(crate) payload: Vec<u8>,
}

impl Collectives {
    pub(crate) fn new(routes: Subtree, size: u32) -> Self {
        Self {
            routes,
            under_way: BTreeMap::new(),
            under_way_max: UNDER_WAY_MAX + 2 * size as usize,
            finished: VecDeque::new(),
        }
    }

    /// Adds this rank's own contribution.
    pub(crate) fn add_own_part(
        &mut self,
        here: &RankInfo,
        enter: CollectiveCall,
    ) -> Result<Option<CombinedPart>> {
        let call = enter.terms.call;
        let collective = self.find_or_begin(enter.terms, here)?;
        collective.mine = Some(enter.mine);
        collective.merge = enter.merge;
        collective.slot = Some(enter.slot);
        self.combine(call)
    }

    /// Adds the combined contribution of a child's subtree.
    pub(crate) fn add_child_part(
        &mut self,
        terms: CollectiveTerms,
        from: (usize, &RankInfo),
        payload: Vec<u8>,
    ) -> Result<Option<CombinedPart>> {
        let call = terms.call;
        let collective = self.find_or_begin(terms, from.1)?;
        let fault = match collective.parts.get_mut(from.0) {
            Some(part) if *part == CollectivePart::Awaited => {
                *part = CollectivePart::Came(payload);
                return self.combine(call);
            }
            Some(CollectivePart::Came(_)) => " twice",
            _ => ", which has no members below it",
        };
        let what = &collective.terms.what;
        Err(Error::Failed(format!("entered \"{what}\" ({call}){fault}")))
    }

    fn find_or_begin(&mut self, terms: CollectiveTerms, who: &RankInfo) -> Result<&mut Collective> {
        let call = terms.call;
        if self.under_way.len() >= self.under_way_max && !self.under_way.contains_key(&call) {
            return Err(Error::Failed(format!(
                "more than {} collectives are in progress at once",
                self.under_way_max
            )));
        }
        let routes = &self.routes;
        let collective = self.under_way.entry(call).or_insert_with(|| Collective {
            takes_part: terms.members.contains(routes.me),
            parts: routes
                .below(&terms.members)
                .map(|is_below| {
                    if is_below {
                        CollectivePart::Awaited
                    } else {
                        CollectivePart::Absent
                    }
                })
                .collect(),
            terms: terms.clone(),
            first: who.clone(),
            mine: None,
            merge: None,
            slot: None,
            staying: Vec::new(),
        });
        if collective.terms != terms {
            let (other, known) = (&collective.first, &collective.terms);
            return Err(Error::Failed(format!(
                "is at \"{}\" ({:?}) where rank {} on {} is at \"{}\" ({:?}), both in {call}: the ranks do not run the \
                 same plan",
                terms.what, terms.kind, other.rank, other.host, known.what, known.kind
            )));
        }
        Ok(collective)
    }

    /// Combines the contributions; `None` until all members at and below this node have contributed.
    fn combine(&mut self, call: CallNumber) -> Result<Option<CombinedPart>> {
        let Some(collective) = self.under_way.get_mut(&call) else {
            return Ok(None);
        };
        let own_is_missing = collective.takes_part && collective.mine.is_none();
        if own_is_missing || collective.parts.contains(&CollectivePart::Awaited) {
            return Ok(None);
        }
        let mut payload = collective.mine.take().unwrap_or_default();
        // `mine` stays `Some` to mark that this rank has entered, because the root may ask about that.
        collective.mine = collective.takes_part.then(Vec::new);
        let take = |part: &mut CollectivePart| match part {
            CollectivePart::Came(bytes) => std::mem::take(bytes),
            CollectivePart::Absent | CollectivePart::Awaited => Vec::new(),
        };
        let parts: Vec<_> = collective.parts.iter_mut().map(take).collect();
        match collective.terms.kind {
            CollectiveKind::Exchange => {
                let sorted = self.routes.sort(&payload, &parts)?;
                collective.staying = sorted.staying;
                payload = sorted.leaving;
            }
            CollectiveKind::Barrier | CollectiveKind::Broadcast => {}
            CollectiveKind::Gather
            | CollectiveKind::Reduce
            | CollectiveKind::Start
            | CollectiveKind::Collect => {
                for part in &parts {
                    payload.extend_from_slice(part);
                }
                // A rank outside the group has no merge function. It forwards the contributions unmerged, and the next
                // member on the path merges them.
                if let Some(merge) = collective.merge {
                    payload = merge(&payload)?;
                }
            }
        }
        Ok(Some(CombinedPart {
            has_all: {
                let members = &collective.terms.members;
                members.difference(&self.routes.subtree).is_empty()
            },
            terms: collective.terms.clone(),
            payload,
        }))
    }

    /// Returns the messages for each child and for this rank. `None` for kinds of collectives with the same result for
    /// all.
    pub(crate) fn deliver(
        &mut self,
        call: CallNumber,
        from_above: &[u8],
    ) -> Result<Option<Delivery>> {
        match self.under_way.get_mut(&call) {
            Some(collective) if collective.terms.kind == CollectiveKind::Exchange => {
                let staying = std::mem::take(&mut collective.staying);
                self.routes.deliver(&staying, from_above).map(Some)
            }
            Some(collective) if collective.terms.kind == CollectiveKind::Collect => {
                Ok(Some(Delivery {
                    mine: from_above.to_vec(),
                    children: vec![Vec::new(); collective.parts.len()],
                }))
            }
            _ => Ok(None),
        }
    }

    /// Returns, for each child, whether its subtree contains members that need the result.
    pub(crate) fn children_in_call(&self, call: CallNumber) -> Vec<bool> {
        let collective = self.under_way.get(&call);
        let parts = collective.map_or(&[][..], |collective| &collective.parts);
        parts
            .iter()
            .map(|part| *part != CollectivePart::Absent)
            .collect()
    }

    /// Hands the result to the main thread, and ends the collective.
    pub(crate) fn finish(&mut self, call: CallNumber, result: Vec<u8>) {
        let Some(collective) = self.under_way.remove(&call) else {
            return;
        };
        if let Some(slot) = collective.slot {
            slot.set_result(CollectiveResult::Result(result));
        }
        self.finished.push_back(call);
        if self.finished.len() > FINISHED_KEPT {
            self.finished.pop_front();
        }
    }

    /// Returns whether this rank's main thread has entered the collective.
    pub(crate) fn has_entered(&self, call: CallNumber) -> bool {
        let has_entered = |collective: &Collective| collective.mine.is_some();
        self.has_finished(call) || self.under_way.get(&call).is_some_and(has_entered)
    }

    pub(crate) fn has_finished(&self, call: CallNumber) -> bool {
        self.finished.contains(&call)
    }

    /// Releases all waiting threads when the run ends.
    pub(crate) fn stop(&mut self) {
        for (_, collective) in std::mem::take(&mut self.under_way) {
            if let Some(slot) = collective.slot {
                slot.set_result(CollectiveResult::Stopped);
            }
        }
    }
}

/// Encodes one contribution to a reduction. Contributions that are not merged are concatenated.
pub(crate) fn reduce_entry(mine: &[u8]) -> Result<Vec<u8>> {
    pack(mine)
}

/// Splits concatenated contributions to a reduction.
pub(crate) fn reduce_entries(mut bytes: &[u8]) -> Result<Vec<&[u8]>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let (entry, rest) = unpack_first::<&[u8]>(bytes)?;
        entries.push(entry);
        bytes = rest;
    }
    Ok(entries)
}

/// One rank's entry of a gather. The entries of several ranks are concatenated.
#[derive(Serialize, Deserialize)]
struct Entry<'a> {
    rank: u32,
    #[serde(borrow)]
    mine: &'a [u8],
}

/// Encodes one rank's entry.
pub(crate) fn gather_entry(rank: u32, mine: &[u8]) -> Result<Vec<u8>> {
    pack(&Entry { rank, mine })
}

/// Decodes the entries of all members, in rank order.
pub(crate) fn gather_entries(mut bytes: &[u8], members: &RankSet) -> Result<Vec<(u32, Vec<u8>)>> {
    let wrong = || Error::Failed("the gathered contributions cannot be read".into());
    let mut entries = BTreeMap::new();
    while !bytes.is_empty() {
        let (entry, rest) = unpack_first::<Entry<'_>>(bytes).map_err(|_| wrong())?;
        let is_new = entries.insert(entry.rank, entry.mine.to_vec()).is_none();
        if !is_new || !members.contains(entry.rank) {
            return Err(wrong());
        }
        bytes = rest;
    }
    if entries.len() != members.count() as usize {
        return Err(wrong());
    }
    Ok(entries.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{rank_info, says};
    use proptest::prelude::*;

    fn place(rank: u32) -> RankInfo {
        rank_info(rank, &format!("h{rank}"))
    }

    /// Returns the root of a tree in which all other ranks are its children.
    fn root_with(children: u32) -> Collectives {
        let size = children + 1;
        Collectives::new(Subtree::new(0, size, children), size)
    }

    fn terms(seq: u64, what: &str, members: RankSet) -> CollectiveTerms {
        CollectiveTerms {
            call: CallNumber { seq, turn: 0 },
            kind: CollectiveKind::Reduce,
            what: what.into(),
            members,
        }
    }

    fn entering(terms: CollectiveTerms, mine: &[u8]) -> CollectiveCall {
        let merge: MergeFn = |entries| reduce_entry(&reduce_entries(entries)?.concat());
        CollectiveCall {
            terms,
            mine: reduce_entry(mine).unwrap(),
            merge: Some(merge),
            slot: CollectiveSlot::new(Arc::default()),
        }
    }

    fn part(
        all: &mut Collectives,
        terms: &CollectiveTerms,
        child: usize,
        text: &[u8],
    ) -> Result<Option<CombinedPart>> {
        let from = (child, &place(child as u32 + 1));
        all.add_child_part(terms.clone(), from, reduce_entry(text)?)
    }

    #[test]
    fn a_node_waits_for_itself_and_all_children() {
        let (mut all, sum) = (root_with(2), terms(0, "sum", RankSet::all(3)));
        assert!(part(&mut all, &sum, 1, b"c").unwrap().is_none());
        assert!(!all.has_entered(sum.call));
        let entered = all
            .add_own_part(&place(0), entering(sum.clone(), b"a"))
            .unwrap();
        assert!(entered.is_none() && all.has_entered(sum.call));
        let twice = part(&mut all, &sum, 1, b"c").err().unwrap();
        assert!(twice.to_string().contains("twice"), "{twice}");
        let combined = part(&mut all, &sum, 0, b"b").unwrap().unwrap();
        assert_eq!(reduce_entries(&combined.payload).unwrap(), [b"abc"]);
        assert!(combined.has_all);
        assert!(all.has_entered(sum.call) && !all.has_finished(sum.call));
        all.finish(sum.call, b"abc".to_vec());
        assert!(all.has_finished(sum.call));
    }

    /// In this tree, rank 0 has children 1 and 2, rank 1 has children 3 and 4, and rank 2 has child 5. Nodes 0, 1 and 2
    /// forward for a group to which they do not belong.
    #[test]
    fn a_node_between_members_forwards_contributions() {
        let at = |me| Collectives::new(Subtree::new(me, 6, 2), 6);
        let few = terms(4, "turn", RankSet::from_ranks([3, 5]));
        let (mut root, mut one, mut two) = (at(0), at(1), at(2));
        let says = |rank: u32| reduce_entry(&[rank as u8]).unwrap();
        let from_one = one
            .add_child_part(few.clone(), (0, &place(3)), says(3))
            .unwrap();
        let from_two = two
            .add_child_part(few.clone(), (0, &place(5)), says(5))
            .unwrap();
        let (from_one, from_two) = (from_one.unwrap(), from_two.unwrap());
        assert!(!from_one.has_all && !from_two.has_all);
        assert!(!one.has_entered(few.call), "node 1 is not a member");
        let first = root.add_child_part(few.clone(), (0, &place(1)), from_one.payload);
        assert!(first.unwrap().is_none());
        let all = root.add_child_part(few.clone(), (1, &place(2)), from_two.payload);
        let all = all.unwrap().unwrap();
        assert!(all.has_all);
        assert_eq!(reduce_entries(&all.payload).unwrap(), [&[3], &[5]]);
        assert_eq!(root.children_in_call(few.call), [true, true]);
        assert_eq!(one.children_in_call(few.call), [true, false]);
        let near = terms(5, "turn", RankSet::from_ranks([3, 4]));
        let first = one.add_child_part(near.clone(), (0, &place(3)), says(3));
        assert!(first.unwrap().is_none());
        let both = one
            .add_child_part(near.clone(), (1, &place(4)), says(4))
            .unwrap();
        assert!(both.unwrap().has_all);
        let other = terms(6, "turn", RankSet::from_ranks([1, 3]));
        let foreign = root.add_child_part(other, (1, &place(2)), says(2));
        let error = foreign.err().unwrap().to_string();
        assert!(error.contains("no members below it"), "{error}");
    }

    #[test]
    fn ranks_in_different_collectives_are_both_named() {
        let mut all = root_with(1);
        let here = terms(0, "trial 1", RankSet::all(2));
        all.add_own_part(&place(0), entering(here.clone(), b""))
            .unwrap();
        let there = CollectiveTerms {
            what: "trial 2".into(),
            ..here
        };
        let error = part(&mut all, &there, 0, b"").err().unwrap();
        says(&error, &["trial 1", "trial 2", "rank 0 on h0", "same plan"]);
    }

    #[test]
    fn the_number_of_open_collectives_is_bounded() {
        let mut all = root_with(1);
        let mut open = |seq| part(&mut all, &terms(seq, "x", RankSet::all(2)), 0, b"");
        for seq in 0..UNDER_WAY_MAX as u64 + 4 {
            open(seq).unwrap();
        }
        assert!(open(1000).is_err());
    }

    #[test]
    fn gathered_entries_need_every_member_once() {
        let bytes = |ranks: &[u32]| -> Vec<u8> {
            let entries = ranks.iter().map(|&rank| gather_entry(rank, &[7; 3]));
            entries.flat_map(Result::unwrap).collect()
        };
        let members = RankSet::from_ranks([0, 2]);
        let gathered = gather_entries(&bytes(&[2, 0]), &members).unwrap();
        assert_eq!(gathered, [(0, vec![7; 3]), (2, vec![7; 3])]);
        for wrong in [&[0][..], &[0, 0], &[0, 1], &[0, 2, 2], &[0, 1, 2]] {
            let gathered = gather_entries(&bytes(wrong), &members);
            assert!(gathered.is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn gathered_garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = reduce_entries(&bytes);
            let _ = gather_entries(&bytes, &RankSet::all(3));
        }
    }
}
