//! Inputs and results in a backend's memory, and descriptions of wrong data. `tonnage_collective::data` defines the
//! data.

use super::backend::Buffers;
use tonnage_collective::data::{Data, WrongElements, memory};
use tonnage_collective::{Dtype, Reduction, Shape};
use tonnage_plan::collective::{CollectivePoint, Grouping};
use tonnage_units::{Error, Result};

/// Inputs and expected results of one rank in the calls of a point.
#[derive(Debug, Clone, Copy)]
pub struct RankData {
    data: Data,
    /// Index of the rank in its group.
    place: u32,
    /// The grouping and the number of the rank's group; `None` if all ranks form one group.
    group: Option<(Grouping, u32)>,
    in_place: bool,
}

impl RankData {
    /// Creates the data of a rank.
    ///
    /// # Errors
    /// `Usage` if no data would give exact results for this call.
    pub fn new(point: &CollectivePoint, rank: u32, in_place: bool) -> Result<Self> {
        let reduction = point.reduction.unwrap_or(Reduction::Sum);
        let grouping = point.grouping();
        let position = grouping.position(rank);
        // Each group has its own seed, so that data of another group are detected as wrong.
        let seed = point.seed ^ u64::from(position.group) << 32;
        Ok(Self {
            data: Data::new(&point.shape(), reduction, seed, 0)?,
            place: position.place,
            group: (grouping.count() > 1).then_some((grouping, position.group)),
            in_place,
        })
    }

    /// Writes the input of a call. Calls are numbered from 1.
    pub fn fill(&self, call: u64, buffers: &Buffers) -> Result<()> {
        let data = self.data.for_call(call);
        memory::write_input(&data, self.place, &buffers.arena, buffers.input)
    }

    /// Overwrites the output of a call with bytes that differ from its result. Does nothing in place, where the output
    /// is also the input.
    pub fn poison(&self, call: u64, buffers: &Buffers) -> Result<()> {
        if self.in_place {
            return Ok(());
        }
        let data = self.data.for_call(call);
        memory::write_poison(&data, self.place, &buffers.arena, buffers.output)
    }

    /// Checks the result of a call. Returns the number of correct bytes.
    pub fn check(&self, call: u64, buffers: &Buffers) -> Result<u64> {
        let data = self.data.for_call(call);
        let mut found = WrongElements::default();
        memory::compare_output(
            &data,
            self.place,
            &buffers.arena,
            buffers.output,
            &mut found,
        )?;
        if found.is_clean() {
            return Ok(found.checked_elements * self.data.shape().dtype.bytes());
        }
        let in_group = |(grouping, group): (Grouping, u32)| {
            let ranks = grouping.describe_members(group);
            format!(" in group {group} of ranks {ranks}, which are counted there from 0")
        };
        let of = self.group.map(in_group).unwrap_or_default();
        let what = found.describe();
        Err(Error::Failed(format!("wrong results{of}: {what}")))
    }

    /// Returns the largest number of consecutive calls that use the result of the previous call as input. It is limited
    /// if values grow from call to call.
    pub fn repeats_max(&self) -> u64 {
        let Shape { dtype, ranks, .. } = *self.data.shape();
        let grows = matches!(
            self.data.reduction(),
            Some(Reduction::Sum | Reduction::Prod)
        );
        if !grows || ranks < 2 {
            return u64::MAX;
        }
        // Number of doublings after the first result before the type overflows, or before infinities slow down the
        // arithmetic. With small types, even the first result may be close to the type's limit.
        let exponents = match dtype {
            Dtype::Float32 | Dtype::Bfloat16 => 96,
            Dtype::Float64 => 900,
            Dtype::Int8 | Dtype::Uint8 | Dtype::Float16 | Dtype::Int32 | Dtype::Int64 => 1,
        };
        (exponents / u64::from(ranks.ilog2() + 1)).max(1)
    }
}
