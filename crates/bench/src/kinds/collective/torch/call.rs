//! A collective call of torch, and the message that describes it to a worker.

use serde::Serialize;
use tonnage_collective::{Collective, Reduction, Shape};
use tonnage_units::{Error, Result};

/// Returns whether torch makes a call in place. `asked` is whether the plan requests this.
pub fn is_in_place(op: Collective, asked: bool) -> bool {
    match op {
        // Torch takes a single tensor for these calls. It is input and output.
        Collective::AllReduce | Collective::Reduce | Collective::Broadcast => true,
        // In place, the smaller of the two tensors is a part of the larger one.
        Collective::AllGather
        | Collective::ReduceScatter
        | Collective::Gather
        | Collective::Scatter => asked,
        Collective::AllToAll
        | Collective::Barrier
        | Collective::SendRecvPairs
        | Collective::SendRecvRing => false,
    }
}

/// One collective call by a group of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchCall {
    /// The call. Its ranks and its root are numbers within the group.
    pub shape: Shape,
    /// How elements are combined, if the call is a reduction.
    pub reduction: Reduction,
    /// Whether to use the call's in-place form, if it has one.
    pub in_place: bool,
    /// All groups, each with its ranks in order. Every rank is in exactly one group, and all ranks pass the same list.
    /// Usually all ranks form one group.
    pub groups: Vec<Vec<u32>>,
}

/// The message that describes a call to the worker.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CallMessage<'a> {
    op: &'static str,
    dtype: &'static str,
    reduction: Option<&'static str>,
    root: u32,
    groups: &'a [Vec<u32>],
    group: usize,
    place: u32,
    block: u64,
    input: u64,
    output: u64,
    in_place: bool,
}

impl TorchCall {
    /// Returns the number of a rank's group, and the rank's index in the group.
    pub(super) fn group_and_index(&self, rank: u32) -> Result<(usize, u32)> {
        let places = (0..).zip(&self.groups).filter_map(|(group, ranks)| {
            let place = (0u32..).zip(ranks).find(|(_, each)| **each == rank)?.0;
            Some((group, place, ranks.len()))
        });
        match places.collect::<Vec<_>>()[..] {
            [(group, place, size)] if size == self.shape.ranks as usize => Ok((group, place)),
            _ => Err(Error::Failed(format!(
                "rank {rank} is not in one group of {} ranks: {:?}",
                self.shape.ranks, self.groups
            ))),
        }
    }

    /// Returns this call, reduced to a few bytes.
    pub(super) fn with_few_bytes(&self) -> Self {
        let block = match self.shape.op {
            Collective::Barrier => 0,
            _ => (8 / self.shape.dtype.bytes()).max(1),
        };
        Self {
            shape: Shape {
                block,
                ..self.shape
            },
            ..self.clone()
        }
    }

    /// Returns the number of input bytes and of output bytes of a rank.
    pub fn bytes(&self, rank: u32) -> Result<(u64, u64)> {
        let (_, place) = self.group_and_index(rank)?;
        Ok((
            self.shape.input_bytes(place),
            self.shape.output_bytes(place),
        ))
    }

    pub(super) fn order(&self, rank: u32) -> Result<CallMessage<'_>> {
        let (group, place) = self.group_and_index(rank)?;
        let Shape {
            op,
            root,
            dtype,
            block,
            ..
        } = self.shape;
        Ok(CallMessage {
            op: op.name(),
            dtype: dtype.name(),
            reduction: op.reduces().then(|| self.reduction.name()),
            root,
            groups: &self.groups,
            group,
            place,
            block,
            input: self.shape.input(place),
            output: self.shape.output(place),
            in_place: self.in_place,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_collective::Dtype;

    fn call(groups: &[&[u32]], op: Collective) -> TorchCall {
        TorchCall {
            shape: Shape::from_size((op, 0), 2, Dtype::Float32, 4096),
            reduction: Reduction::Sum,
            in_place: false,
            groups: groups.iter().map(|ranks| ranks.to_vec()).collect(),
        }
    }

    #[test]
    fn each_rank_has_one_group_and_an_index_in_it() {
        let call = |groups: &[&[u32]]| call(groups, Collective::AllGather);
        assert_eq!(
            call(&[&[0, 2], &[1, 3]]).group_and_index(3).unwrap(),
            (1, 1)
        );
        assert_eq!(call(&[&[0, 1]]).bytes(1).unwrap(), (2048, 4096));
        for wrong in [
            &[&[0, 2][..]][..],
            &[&[0, 1][..], &[1, 2][..]],
            &[&[1, 2, 3][..]],
        ] {
            assert!(call(wrong).group_and_index(1).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_small_call_differs_only_in_its_size() {
        let all = call(&[&[0, 1]], Collective::AllToAll);
        let small = all.with_few_bytes();
        assert_eq!(small.bytes(0).unwrap(), (16, 16));
        assert_eq!(
            TorchCall {
                shape: all.shape,
                ..small
            },
            all
        );
    }
}
