//! Times of iterations over all ranks: longest, sum, shortest, and the rank that began last. The control tree combines
//! them on the way to its root.

use serde::{Deserialize, Serialize};

use crate::deadlines::DEADLINES;
use tonnage_loops::calls::CallSpan;
use tonnage_ranks::{Rank, RankGroup};
use tonnage_units::{Reduce, Result};

/// Number of iterations per message. It limits the size of messages in long trials.
const BLOCK: usize = 4096;

/// Times of each iteration, combined over the ranks that are merged so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct IterationTimes {
    longest_ns: Vec<u64>,
    sum_ns: Vec<u64>,
    shortest_ns: Vec<u64>,
    /// For each iteration, the time of its last start on rank 0's clock, and the rank that began last.
    begun_last: Vec<(u64, u32)>,
}

impl IterationTimes {
    /// Builds the times of one rank. Its clock is ahead of rank 0's by `offset_ns`.
    fn from_spans(spans: &[CallSpan], rank: u32, offset_ns: i64) -> Self {
        let took_ns: Vec<u64> = spans.iter().map(CallSpan::took_ns).collect();
        let begun = |span: &CallSpan| (span.begin_ns.saturating_add_signed(-offset_ns), rank);
        Self {
            longest_ns: took_ns.clone(),
            sum_ns: took_ns.clone(),
            shortest_ns: took_ns,
            begun_last: spans.iter().map(begun).collect(),
        }
    }
}

impl Reduce for IterationTimes {
    fn merge(&mut self, other: Self) {
        fn each<T: Copy>(mine: &mut [T], theirs: &[T], merge: fn(T, T) -> T) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine = merge(*mine, *theirs);
            }
        }
        each(&mut self.longest_ns, &other.longest_ns, Ord::max);
        each(&mut self.sum_ns, &other.sum_ns, std::ops::Add::add);
        each(&mut self.shortest_ns, &other.shortest_ns, Ord::min);
        each(&mut self.begun_last, &other.begun_last, Ord::max);
    }
}

/// Times of a trial over all ranks. Except for the last two fields, they are the same on all ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialTimes {
    /// Time of each iteration on its slowest rank.
    pub longest_ns: Vec<u64>,
    /// Sum of the times of all iterations on all ranks.
    pub sum_ns: u64,
    /// Sum over the iterations of the fastest rank's times.
    pub shortest_sum_ns: u64,
    /// Number of iterations that this rank began last.
    pub began_last: u64,
    /// Sums for this rank's group; `None` if all ranks form one group.
    pub group: Option<GroupSums>,
}

/// Sums over the iterations of a trial, within one group of ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GroupSums {
    /// Sum of the times on each iteration's slowest rank.
    pub longest_ns: u64,
    /// Sum of the times on all ranks.
    pub all_ns: u64,
    /// Sum of the times on each iteration's fastest rank.
    pub shortest_ns: u64,
}

impl GroupSums {
    fn add(&mut self, times: &IterationTimes) {
        self.longest_ns += times.longest_ns.iter().sum::<u64>();
        self.all_ns += times.sum_ns.iter().sum::<u64>();
        self.shortest_ns += times.shortest_ns.iter().sum::<u64>();
    }
}

impl TrialTimes {
    fn add(&mut self, times: &IterationTimes, rank: u32) {
        self.longest_ns.extend(&times.longest_ns);
        self.sum_ns += times.sum_ns.iter().sum::<u64>();
        self.shortest_sum_ns += times.shortest_ns.iter().sum::<u64>();
        let own = times.begun_last.iter().filter(|(_, last)| *last == rank);
        self.began_last += own.count() as u64;
    }
}

/// Combines the spans of all ranks and, separately, those of this rank's group. Every rank must pass the same number of
/// spans.
pub fn combine(
    spans: &[CallSpan],
    group: Option<&RankGroup>,
    rank: &mut Rank,
) -> Result<TrialTimes> {
    let mut all = TrialTimes::default();
    let (id, offset_ns) = (rank.id(), rank.clock_offset().offset_ns);
    for block in spans.chunks(BLOCK) {
        let mine = IterationTimes::from_spans(block, id, offset_ns);
        if let Some(group) = group {
            let what = "times of a group";
            let (_, merged) = rank.reduce_and_align_start(group, what, &mine, DEADLINES.step)?;
            all.group.get_or_insert_default().add(&merged);
        }
        let merged = rank.reduce("times of iterations", mine, DEADLINES.step)?;
        all.add(&merged, id);
    }
    Ok(all)
}

/// Returns how long each span took on its slowest rank.
pub fn slowest<const SPANS: usize>(
    spans: [CallSpan; SPANS],
    rank: &mut Rank,
) -> Result<[u64; SPANS]> {
    let all = combine(&spans, None, rank)?;
    Ok(std::array::from_fn(|at| {
        all.longest_ns.get(at).copied().unwrap_or(0)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(all: &[(u64, u64)]) -> Vec<CallSpan> {
        let span = |&(begin_ns, end_ns): &(u64, u64)| CallSpan { begin_ns, end_ns };
        all.iter().map(span).collect()
    }

    #[test]
    fn iterations_record_their_slowest_and_last_rank() {
        // The second rank's clock is 100 ns ahead, and this offset is subtracted.
        let mut all = IterationTimes::from_spans(&spans(&[(10, 20), (30, 60)]), 0, 0);
        all.merge(IterationTimes::from_spans(
            &spans(&[(111, 116), (125, 165)]),
            1,
            100,
        ));
        assert_eq!(all.longest_ns, [10, 40]);
        assert_eq!(all.shortest_ns, [5, 30]);
        assert_eq!(all.sum_ns, [15, 70]);
        assert_eq!(all.begun_last, [(11, 1), (30, 0)]);
        let mut trial = TrialTimes::default();
        trial.add(&all, 1);
        assert_eq!((trial.sum_ns, trial.shortest_sum_ns), (85, 35));
        assert_eq!((trial.longest_ns, trial.began_last), (vec![10, 40], 1));
    }
}
