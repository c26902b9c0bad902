//! Changes a file job to fewer bytes, or to fewer ranks than its plan was written for.

use super::names::ReadShift;
use super::options::{BLOCK_BYTES_DEFAULT, FileJob, SEGMENTS_DEFAULT, TRANSFER_BYTES_DEFAULT};
use super::point::FileOrder;
use crate::sweep::Sweep;
use tonnage_units::Count;

impl FileJob {
    /// Multiplies the bytes that each rank moves by `factor`.
    ///
    /// Changes the number of segments as long as there are enough segments, and then the block, which stays a whole
    /// number of transfers. Each rank keeps at least one transfer (as many as `threads` and a shuffled order need), so
    /// the result may be larger than requested. Times do not change. Sizes that do not fit each other stay as they are,
    /// so that scaling does not hide a mistake.
    pub(super) fn scale_bytes(&mut self, factor: f64) {
        let blocks = Sweep::values_or(&self.work.block, BLOCK_BYTES_DEFAULT);
        let Some(unit) = common_unit(&Sweep::values_or(
            &self.work.transfer,
            TRANSFER_BYTES_DEFAULT,
        )) else {
            return;
        };
        let Count(segments) = self.work.segments.unwrap_or(SEGMENTS_DEFAULT);
        let fits = |&block: &u64| block > 0 && block.is_multiple_of(unit);
        let smallest = blocks.iter().copied().min();
        let Some(smallest) = smallest.filter(|_| segments > 0 && blocks.iter().all(fits)) else {
            return;
        };
        let transfers_before = self.transfers_least();
        let needed = self.transfers_needed();
        let segments_needed = needed.div_ceil(smallest / unit).min(segments);
        let wanted = segments as f64 * factor;
        // Casts of floats saturate.
        let scaled = (wanted.round() as u64).max(segments_needed);
        self.work.segments =
            Some(Count(scaled)).filter(|_| self.work.segments.is_some() || scaled > 1);
        if wanted < 1.0 && scaled == 1 {
            let scaled = blocks.iter().map(|&block| {
                let units = (block as f64 * wanted / unit as f64).round() as u64;
                let units_needed = needed.min(block / unit);
                units.max(units_needed) * unit
            });
            self.work.block = without_repeats(scaled.collect()).or(self.work.block.take());
        }
        let transfers_after = self.transfers_least();
        if let Some(Count(bound)) = &mut self.length.wear_out_transfers
            && (1..=transfers_before).contains(bound)
        {
            *bound = ((*bound as f64 * factor) as u64).clamp(1, transfers_after.max(1));
        }
    }

    /// Returns the number of transfers of a rank for the smallest block and the largest transfer.
    fn transfers_least(&self) -> u64 {
        let blocks = Sweep::values_or(&self.work.block, BLOCK_BYTES_DEFAULT);
        let transfers = Sweep::values_or(&self.work.transfer, TRANSFER_BYTES_DEFAULT);
        let Count(segments) = self.work.segments.unwrap_or(SEGMENTS_DEFAULT);
        let longest = transfers.into_iter().max().unwrap_or(1).max(1);
        let of_block = blocks.into_iter().min().unwrap_or(0) / longest;
        of_block.saturating_mul(segments)
    }

    /// Returns the minimum number of transfers of a rank.
    fn transfers_needed(&self) -> u64 {
        let threads = self.how.threads.map_or(1, |Count(threads)| threads);
        let order = match self.work.order {
            Some(FileOrder::Shuffled) => 2,
            _ => 1,
        };
        threads.max(order)
    }

    /// Adapts the job to fewer ranks than its plan was written for: a read shift that is too large becomes the largest
    /// possible one.
    pub(super) fn limit_read_shift(&mut self, ranks: u32) {
        let farthest = u64::from(ranks.saturating_sub(1));
        match &mut self.work.read_shift {
            Some(ReadShift::Ranks(shift)) => *shift = farthest.min(*shift),
            Some(ReadShift::Nodes(_)) if ranks == 1 => self.work.read_shift = None,
            Some(ReadShift::Nodes(_)) | None => (),
        }
        if ranks == 1 {
            self.work.read_shuffled = None;
        }
    }
}

/// Returns the least common multiple; `None` if a value is 0 or the result overflows.
fn common_unit(values: &[u64]) -> Option<u64> {
    values.iter().try_fold(1u64, |unit, &value| {
        let (mut a, mut b) = (unit, value);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        (value > 0).then_some(())?;
        (unit / a).checked_mul(value)
    })
}

/// Removes repeated values, because blocks that became equal are measured only once.
fn without_repeats(mut values: Vec<u64>) -> Option<Sweep> {
    let mut seen = std::collections::HashSet::new();
    values.retain(|value| seen.insert(*value));
    Sweep::from_values(&values).ok()
}
