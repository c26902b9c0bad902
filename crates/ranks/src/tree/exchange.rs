//! Routes messages for single ranks through the tree. A node sends the messages that leave its subtree to its parent.
//! It keeps the others, and sends each child the messages for the child's subtree.
//!
//! This is pure state without I/O. [`super::collective`] decides when a node has all messages, and the connections are
//! in [`super::node`]. Bytes that one rank sends to several ranks cross each connection once, with the list of
//! receivers.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize, Serializer};

use super::shape::children_of;
use crate::rank_set::RankSet;
use tonnage_units::{Error, Result};

/// Messages, each with its receiver or its sender.
pub(crate) type Messages = Vec<(u32, Vec<u8>)>;

/// One message in transit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RoutedMessage<'a> {
    from: u32,
    to: RankSet,
    #[serde(borrow, serialize_with = "as_bytes")]
    bytes: Cow<'a, [u8]>,
}

fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

impl<'a> RoutedMessage<'a> {
    fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        let before = std::mem::take(out);
        *out = postcard::to_extend(self, before)
            .map_err(|error| Error::Failed(format!("a message cannot be written: {error}")))?;
        Ok(())
    }

    /// Decodes all messages of a payload.
    fn read_all(mut payload: &'a [u8], size: u32) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        while !payload.is_empty() {
            let (message, rest) = postcard::take_from_bytes::<RoutedMessage<'_>>(payload)
                .map_err(|_| Error::Failed("sent messages that cannot be decoded".into()))?;
            if message.from >= size || !message.to.is_valid(size) {
                return Err(Error::Failed(format!(
                    "sent a message from or for a rank outside 0..{size}"
                )));
            }
            all.push(message);
            payload = rest;
        }
        Ok(all)
    }

    /// Appends a copy of the message for the ranks `to`, unless this set is empty.
    fn write_for(&self, to: RankSet, out: &mut Vec<u8>) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let bytes = Cow::Borrowed(&*self.bytes);
        let from = self.from;
        RoutedMessage { from, to, bytes }.write(out)
    }
}

/// Encodes one rank's messages. Bytes for several ranks are stored once.
pub(crate) fn write_messages(from: u32, size: u32, mut messages: Messages) -> Result<Vec<u8>> {
    messages.sort_by_key(|(to, _)| *to);
    let twice = messages.windows(2).find(|two| two[0].0 == two[1].0);
    if let Some((to, _)) = twice.and_then(|two| two.first()) {
        return Err(Error::Failed(format!("two messages for rank {to}")));
    }
    if let Some((to, _)) = messages.last().filter(|(to, _)| *to >= size) {
        return Err(Error::Failed(format!("a message for rank {to} of {size}")));
    }
    let mut places = HashMap::<&[u8], usize>::new();
    let mut distinct: Vec<(&[u8], Vec<u32>)> = Vec::new();
    for (to, bytes) in &messages {
        let place = *places.entry(bytes).or_insert(distinct.len());
        match distinct.get_mut(place) {
            Some((_, ranks)) => ranks.push(*to),
            None => distinct.push((bytes, vec![*to])),
        }
    }
    let mut payload = Vec::new();
    for (bytes, ranks) in distinct {
        let to = RankSet::from_ranks(ranks);
        let bytes = Cow::Borrowed(bytes);
        RoutedMessage { from, to, bytes }.write(&mut payload)?;
    }
    Ok(payload)
}

/// Decodes the messages for one rank, sorted by sender.
pub(crate) fn read_messages(payload: &[u8], size: u32) -> Result<Messages> {
    let routed = RoutedMessage::read_all(payload, size)?.into_iter();
    let mut messages: Vec<_> = routed
        .map(|message| (message.from, message.bytes.into_owned()))
        .collect();
    messages.sort_by_key(|(from, _)| *from);
    Ok(messages)
}

/// The ranks at and below one node.
pub(crate) struct Subtree {
    pub(super) me: u32,
    size: u32,
    pub(super) subtree: RankSet,
    children: Vec<RankSet>,
}

/// The messages of a complete subtree: those that leave it, and those to receivers in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SortedMessages {
    pub(crate) leaving: Vec<u8>,
    pub(crate) staying: Vec<u8>,
}

/// The messages for a subtree: for its root, and for each child.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) mine: Vec<u8>,
    /// Messages for each child's subtree, in order of the children.
    pub(crate) children: Vec<Vec<u8>>,
}

impl Subtree {
    pub(crate) fn new(me: u32, size: u32, fanout: u32) -> Self {
        let children = children_of(me, size, fanout);
        Self {
            me,
            size,
            subtree: subtree(me, size, fanout),
            children: children.map(|child| subtree(child, size, fanout)).collect(),
        }
    }

    /// Returns, for each child, whether its subtree contains any of `members`.
    pub(crate) fn below(&self, members: &RankSet) -> impl Iterator<Item = bool> {
        let below = |child: &RankSet| !child.intersection(members).is_empty();
        self.children.iter().map(below)
    }

    /// Separates the messages that leave this subtree from the others. `parts` are the children's messages.
    pub(crate) fn sort(&self, mine: &[u8], parts: &[Vec<u8>]) -> Result<SortedMessages> {
        let mut sorted = SortedMessages::default();
        let mut add = |payload: &[u8], senders: &RankSet| {
            for message in RoutedMessage::read_all(payload, self.size)? {
                if !senders.contains(message.from) {
                    let from = message.from;
                    return Err(Error::Failed(format!(
                        "sent a message in the name of rank {from}"
                    )));
                }
                for (to, out) in [
                    (message.to.difference(&self.subtree), &mut sorted.leaving),
                    (message.to.intersection(&self.subtree), &mut sorted.staying),
                ] {
                    message.write_for(to, out)?;
                }
            }
            Ok(())
        };
        add(mine, &RankSet::from_ranks([self.me]))?;
        for (part, senders) in parts.iter().zip(&self.children) {
            add(part, senders)?;
        }
        Ok(sorted)
    }

    /// Separates the messages for this rank from the messages for each child's subtree.
    pub(crate) fn deliver(&self, staying: &[u8], from_above: &[u8]) -> Result<Delivery> {
        let own = RankSet::from_ranks([self.me]);
        let mut delivery = Delivery {
            mine: Vec::new(),
            children: vec![Vec::new(); self.children.len()],
        };
        for payload in [staying, from_above] {
            for message in RoutedMessage::read_all(payload, self.size)? {
                message.write_for(message.to.intersection(&own), &mut delivery.mine)?;
                for (ranks, out) in self.children.iter().zip(&mut delivery.children) {
                    message.write_for(message.to.intersection(ranks), out)?;
                }
            }
        }
        Ok(delivery)
    }
}

/// Returns the ranks at and below a node: one range per level of the tree.
fn subtree(rank: u32, size: u32, fanout: u32) -> RankSet {
    let (fanout, size) = (u64::from(fanout.max(1)), u64::from(size));
    let (mut first, mut end) = (u64::from(rank), u64::from(rank) + 1);
    let mut set = RankSet::default();
    while first < size {
        let count = end.min(size) - first;
        // Both numbers are at most `size`, so they fit 32 bits.
        set.add(first as u32, count as u32);
        (first, end) = (first * fanout + 1, end * fanout + 1);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::shape::parent_of;
    use proptest::prelude::*;

    /// Routes the messages of all ranks through a tree. Returns each rank's messages, and the number of bytes that it
    /// received from its parent.
    fn through(fanout: u32, messages: Vec<Messages>) -> Vec<(Messages, usize)> {
        let size = messages.len() as u32;
        let routes: Vec<_> = (0..size).map(|me| Subtree::new(me, size, fanout)).collect();
        let mut sorted: Vec<SortedMessages> = Vec::new();
        for (me, mine) in (0..size).zip(messages).rev() {
            let mine = write_messages(me, size, mine).unwrap();
            // The children have higher numbers, so their messages are already sorted.
            let parts: Vec<_> = children_of(me, size, fanout)
                .map(|child| sorted[(size - 1 - child) as usize].leaving.clone())
                .collect();
            sorted.push(routes[me as usize].sort(&mine, &parts).unwrap());
        }
        sorted.reverse();
        assert!(sorted[0].leaving.is_empty());
        let mut from_above = vec![Vec::new(); size as usize];
        let mut got = Vec::new();
        for me in 0..size as usize {
            let above = std::mem::take(&mut from_above[me]);
            let delivery = routes[me].deliver(&sorted[me].staying, &above).unwrap();
            for (child, bytes) in children_of(me as u32, size, fanout).zip(delivery.children) {
                assert_eq!(parent_of(child, fanout), me as u32);
                from_above[child as usize] = bytes;
            }
            got.push((read_messages(&delivery.mine, size).unwrap(), above.len()));
        }
        got
    }

    #[test]
    fn the_traffic_of_a_leaf_does_not_depend_on_the_number_of_ranks() {
        let reached = |size: u32| {
            let pairs = (0..size).map(|rank| vec![(rank ^ 1, vec![7; 200])]);
            let pairs = pairs.collect();
            let got = through(2, pairs);
            assert!(got.iter().all(|(messages, _)| messages.len() == 1));
            got[size as usize - 1].1
        };
        assert_eq!(reached(4), reached(100));
        assert!(reached(4) < 220);
    }

    #[test]
    fn equal_messages_for_all_travel_once() {
        let size = 40;
        let all: Vec<_> = (0..size).map(|to| (to, vec![5; 1000])).collect();
        let mut messages = vec![Vec::new(); size as usize];
        messages[39] = all;
        for (messages, bytes) in through(3, messages) {
            assert_eq!(messages, [(39, vec![5; 1000])]);
            assert!(bytes < 1040, "{bytes}");
        }
    }

    #[test]
    fn wrong_messages_are_refused() {
        let none = Vec::new;
        let twice = write_messages(0, 3, vec![(1, none()), (2, none()), (1, none())]);
        let twice = twice.unwrap_err().to_string();
        assert!(twice.contains("two messages for rank 1"), "{twice}");
        let above = write_messages(0, 3, vec![(3, none())]);
        assert!(above.unwrap_err().to_string().contains("rank 3 of 3"));
        let routes = Subtree::new(0, 3, 2);
        let foreign = write_messages(2, 3, vec![(0, vec![1])]).unwrap();
        let error = routes.sort(&[], &[foreign, none()]).unwrap_err();
        assert!(
            error.to_string().contains("in the name of rank 2"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn every_rank_gets_the_messages_meant_for_it(
            fanout in 1u32..5,
            to in prop::collection::vec(prop::collection::btree_map(0u32..20, 0u8..3, 0..20), 1..20),
        ) {
            let size = to.len() as u32;
            let messages: Vec<Vec<_>> = to
                .iter()
                .map(|all| all.iter().filter(|(to, _)| **to < size))
                .map(|all| all.map(|(to, byte)| (*to, vec![*byte; 3])).collect())
                .collect();
            let mut wanted = vec![Vec::new(); to.len()];
            for (from, all) in (0u32..).zip(&messages) {
                for (to, bytes) in all {
                    wanted[*to as usize].push((from, bytes.clone()));
                }
            }
            let got: Vec<_> = through(fanout, messages).into_iter().map(|(got, _)| got).collect();
            prop_assert_eq!(got, wanted);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let routes = Subtree::new(0, 13, 2);
            let parts = [bytes.clone(), Vec::new()];
            if let Ok(sorted) = routes.sort(&[], &parts) {
                prop_assert!(sorted.leaving.is_empty());
            }
            let _ = routes.deliver(&bytes, &bytes);
            let _ = read_messages(&bytes, 13);
        }
    }
}
