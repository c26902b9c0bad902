//! Finds missing ranks. When a rank has waited too long in a collective, the root asks all ranks. Each node asks the
//! ranks below it, and sends their answers up in a single message.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::shape::ancestors;
use crate::RankInfo;
use crate::channel::message::{CallNumber, CollectiveTerms, EndCause, clip_name};
use crate::rank_set::RankSet;
use tonnage_units::number_list;

/// Time in which the root collects answers. It is longer if many ranks share a CPU. Ranks that do not answer in time
/// are named in the verdict.
pub(crate) const COLLECT: Duration = Duration::from_millis(700);
/// Maximum number of ranks that are described individually. Of further ranks, only the numbers are listed.
const DESCRIBED_MAX: usize = 8;

/// Merged answers of some ranks, on their way to rank 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct InquiryAnswers {
    /// Ranks that have answered.
    heard: RankSet,
    /// Ranks that have answered and are members of the collective, but have not entered it.
    absent: RankSet,
    /// For each of the first absent ranks: its phase, and the milliseconds that it has spent in that phase.
    doing: BTreeMap<u32, (String, u64)>,
}

impl InquiryAnswers {
    /// Returns the answer of a rank that has entered the collective, or is not a member of it.
    pub(crate) fn from_present_rank(rank: u32) -> Self {
        Self {
            heard: RankSet::from_ranks([rank]),
            absent: RankSet::default(),
            doing: BTreeMap::new(),
        }
    }

    /// Returns the answer of a member that has not entered the collective.
    pub(crate) fn from_missing_rank(rank: u32, phase: &str, phase_for: Duration) -> Self {
        let phase_ms = u64::try_from(phase_for.as_millis()).unwrap_or(u64::MAX);
        Self {
            heard: RankSet::from_ranks([rank]),
            absent: RankSet::from_ranks([rank]),
            doing: BTreeMap::from([(rank, (clip_name(phase), phase_ms))]),
        }
    }

    /// Returns whether the answers are valid for a run of `size` ranks.
    pub(crate) fn is_valid(&self, size: u32) -> bool {
        let all = [&self.heard, &self.absent];
        all.into_iter().all(|ranks| ranks.is_valid(size)) && self.doing.len() <= DESCRIBED_MAX
    }

    fn merge(&mut self, other: Self) {
        self.heard = self.heard.union(&other.heard);
        self.absent = self.absent.union(&other.absent);
        self.doing.extend(other.doing);
        while self.doing.len() > DESCRIBED_MAX {
            self.doing.pop_last();
        }
    }

    fn describe(&self, rank: u32) -> String {
        match self.doing.get(&rank) {
            Some((phase, ms)) => format!("in \"{phase}\" for {:.1?}", Duration::from_millis(*ms)),
            None => "it does not answer".into(),
        }
    }
}

/// A report that a rank has waited too long in a collective.
pub(crate) struct OverdueReport {
    pub(crate) terms: CollectiveTerms,
    pub(crate) waited: Duration,
}

/// State of one inquiry at a node, while the node waits for answers of the ranks at and below it.
pub(crate) struct MissingInquiry {
    pub(crate) call: CallNumber,
    awaited: u32,
    pub(crate) until: Instant,
    pub(crate) answers: InquiryAnswers,
}

impl MissingInquiry {
    /// Creates an inquiry that awaits the answers of `awaited` ranks until `time` has passed.
    pub(crate) fn new(call: CallNumber, awaited: u32, time: Duration) -> Self {
        Self {
            call,
            awaited,
            until: Instant::now() + time,
            answers: InquiryAnswers::default(),
        }
    }

    pub(crate) fn answer(&mut self, answers: InquiryAnswers) {
        self.answers.merge(answers);
    }

    /// Returns whether all awaited ranks have answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.answers.heard.count() >= self.awaited
    }
}

/// Returns the time in which a node collects answers. It is `most` at rank 0, and half as long on each lower level, so
/// that answers reach the parent in time.
pub(crate) fn collect_time(most: Duration, rank: u32, fanout: u32) -> Duration {
    // With a fan-out of 1, the tree is a chain with one level per rank, so the number of levels is limited.
    let levels = ancestors(rank, fanout).take(20).count();
    most / (1 << levels)
}

impl OverdueReport {
    /// Determines from the answers which ranks are missing. `table` has all ranks.
    pub(crate) fn verdict(&self, answers: &InquiryAnswers, table: &[RankInfo]) -> EndCause {
        let entered = answers.heard.difference(&answers.absent);
        let absent = |info: &&RankInfo| {
            self.terms.members.contains(info.rank) && !entered.contains(info.rank)
        };
        let missing: Vec<&RankInfo> = table.iter().filter(absent).collect();
        let Some((first, rest)) = missing.split_first() else {
            let host = table.first().map_or("unknown host", |info| &info.host);
            let message = format!(
                "\"{}\" did not end within {:.1?} although all ranks have come to it: the network between the hosts \
                 is too slow, or the time too short",
                self.terms.what, self.waited
            );
            return EndCause::rank(0, host, &message);
        };
        let mut message = format!(
            "it has not come to \"{}\" while others have waited {:.1?} for it: {}",
            self.terms.what,
            self.waited,
            answers.describe(first.rank)
        );
        if !rest.is_empty() && rest.len() < DESCRIBED_MAX {
            for info in rest {
                message.push_str(&format!(
                    "; missing too: rank {} on {}: {}",
                    info.rank,
                    info.host,
                    answers.describe(info.rank)
                ));
            }
        } else if !rest.is_empty() {
            let ranks: Vec<u32> = rest.iter().map(|info| info.rank).collect();
            let list = number_list::format(&ranks);
            message.push_str(&format!("; missing too: ranks {list}"));
        }
        EndCause::rank(first.rank, &first.host, &message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::message::CollectiveKind;
    use crate::testing::{rank_info, says};

    /// Returns the rank that these answers blame, its host, and the message, in a run of `size` ranks.
    fn blamed(members: RankSet, size: u32, answers: &InquiryAnswers) -> (u32, String, String) {
        let table = (0..size).map(|rank| rank_info(rank, &format!("h{rank}")));
        let table: Vec<_> = table.collect();
        let terms = CollectiveTerms {
            call: CallNumber { seq: 3, turn: 0 },
            kind: CollectiveKind::Barrier,
            what: "trial 1".into(),
            members,
        };
        let waited = Duration::from_secs(5);
        match (OverdueReport { terms, waited }).verdict(answers, &table) {
            EndCause::Rank {
                rank,
                host,
                message,
            } => (rank, host, message),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the merged answers of these ranks. Each rank comes with a flag: whether it has entered the collective.
    fn answers(all: &[(u32, bool)]) -> InquiryAnswers {
        let mut merged = InquiryAnswers::default();
        for &(rank, entered) in all {
            let missed =
                || InquiryAnswers::from_missing_rank(rank, "warm-up", Duration::from_secs(7));
            merged.merge(if entered {
                InquiryAnswers::from_present_rank(rank)
            } else {
                missed()
            });
        }
        merged
    }

    #[test]
    fn absent_and_silent_ranks_are_named() {
        let answers = answers(&[(3, false), (0, true), (1, true)]);
        let (rank, host, message) = blamed(RankSet::all(4), 4, &answers);
        assert_eq!((rank, host.as_str()), (2, "h2"));
        says(&message, &["trial 1", "does not answer"]);
        says(&message, &["rank 3 on h3", "warm-up", "7.0s"]);
    }

    #[test]
    fn a_rank_outside_the_collective_is_not_missed() {
        let answers = answers(&[(0, true), (1, true), (3, false)]);
        let (rank, _, message) = blamed(RankSet::from_ranks([1, 3]), 4, &answers);
        assert_eq!(rank, 3);
        assert!(!message.contains("missing too"), "{message}");
    }

    #[test]
    fn if_all_ranks_have_entered_no_rank_is_blamed() {
        let answers = answers(&[(0, true), (1, true)]);
        let (_, _, message) = blamed(RankSet::all(2), 2, &answers);
        assert!(message.contains("all ranks have come"), "{message}");
    }

    #[test]
    fn answers_are_complete_when_all_below_have_answered() {
        let call = CallNumber { seq: 3, turn: 0 };
        let mut inquiry = MissingInquiry::new(call, 3, COLLECT);
        inquiry.answer(answers(&[(4, true), (9, false)]));
        // A second answer of the same rank must not count.
        inquiry.answer(answers(&[(9, false)]));
        assert!(!inquiry.is_complete());
        inquiry.answer(answers(&[(5, true)]));
        assert!(inquiry.is_complete());
        let all = answers(&[(9, false), (4, true), (5, true)]);
        assert_eq!(inquiry.answers, all);
    }

    /// Merged answers must stay short, however many ranks give the same answer.
    #[test]
    fn merged_answers_do_not_grow_with_the_ranks() {
        let many = |ranks: u32, entered| {
            let all: Vec<_> = (0..ranks).map(|rank| (rank, entered)).collect();
            crate::pack(&answers(&all)).unwrap().len()
        };
        assert!(many(10_000, true) < 12 && many(10_000, false) < 200);
        assert!(answers(&[(0, true), (9, false)]).is_valid(10));
        assert!(!answers(&[(0, true), (9, false)]).is_valid(9));
    }

    #[test]
    fn ranks_further_down_have_less_time() {
        let time = |rank| collect_time(COLLECT, rank, 32);
        assert_eq!(
            [0, 1, 32, 33].map(time),
            [COLLECT, COLLECT / 2, COLLECT / 2, COLLECT / 4]
        );
    }
}
