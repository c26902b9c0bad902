//! Missing ranks: the root's question to all ranks when one has waited too long in a collective.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::terms::Terms;
use crate::RankInfo;
use crate::channel::message::Cause;
use tonnage_units::number_list;

/// Time in which the root collects answers. A rank that does not answer in it is named as such.
const COLLECT: Duration = Duration::from_millis(700);
/// Ranks that are described one by one; of more only the numbers are listed.
const DESCRIBED_MAX: usize = 8;

/// One rank's answer.
pub(crate) struct RankState {
    pub(crate) entered: bool,
    pub(crate) phase: String,
    pub(crate) phase_for: Duration,
}

/// The state of one question.
pub(crate) struct Inquiry {
    pub(crate) terms: Terms,
    waited: Duration,
    until: Instant,
    answers: BTreeMap<u32, RankState>,
}

impl Inquiry {
    pub(crate) fn new(terms: Terms, waited: Duration) -> Self {
        Self {
            terms,
            waited,
            until: Instant::now() + COLLECT,
            answers: BTreeMap::new(),
        }
    }

    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    pub(crate) fn answer(&mut self, rank: u32, answer: RankState) {
        self.answers.insert(rank, answer);
    }

    /// True when nobody is left to answer.
    pub(crate) fn complete(&self, size: u32) -> bool {
        self.answers.len() >= size as usize
    }

    /// Returns the conclusion from the answers. `table` has all ranks.
    pub(crate) fn verdict(&self, table: &[RankInfo]) -> Cause {
        let absent = |info: &&RankInfo| {
            self.terms.members.contains(info.rank)
                && self.answers.get(&info.rank).is_none_or(|it| !it.entered)
        };
        let missing: Vec<&RankInfo> = table.iter().filter(absent).collect();
        let Some((first, rest)) = missing.split_first() else {
            let root = table.first();
            return Cause::rank(
                0,
                root.map_or("unknown host", |info| &info.host),
                &format!(
                    "\"{}\" did not end within {:.1?} although all ranks have come to it: the network between the hosts is \
                     too slow for it, or the time too short",
                    self.terms.what, self.waited
                ),
            );
        };
        let mut message = format!(
            "it has not come to \"{}\" while others have waited {:.1?} for it: {}",
            self.terms.what,
            self.waited,
            self.doing(first.rank)
        );
        if !rest.is_empty() && rest.len() < DESCRIBED_MAX {
            for info in rest {
                message.push_str(&format!(
                    "; missing too: rank {} on {}: {}",
                    info.rank,
                    info.host,
                    self.doing(info.rank)
                ));
            }
        } else if !rest.is_empty() {
            let ranks: Vec<u32> = rest.iter().map(|info| info.rank).collect();
            message.push_str(&format!(
                "; missing too: ranks {}",
                number_list::format(&ranks)
            ));
        }
        Cause::rank(first.rank, &first.host, &message)
    }

    fn doing(&self, rank: u32) -> String {
        match self.answers.get(&rank) {
            Some(answer) => format!("in \"{}\" for {:.1?}", answer.phase, answer.phase_for),
            None => "it does not answer".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::message::{CallNumber, CollectiveKind};
    use crate::rank_set::RankSet;

    fn info(rank: u32) -> RankInfo {
        RankInfo {
            rank,
            host: format!("h{rank}"),
            pid: 1,
            boot_id: String::new(),
            network_namespace: String::new(),
            pid_namespace: String::new(),
            local_rank: 0,
            local_size: None,
        }
    }

    fn terms(what: &str, size: u32) -> Terms {
        Terms {
            call: CallNumber { seq: 3, turn: 0 },
            kind: CollectiveKind::Barrier,
            what: what.into(),
            members: RankSet::all(size),
        }
    }

    /// Those who have no part in it need not come.
    #[test]
    fn only_members_are_missed() {
        let table: Vec<_> = (0..4).map(info).collect();
        let mut terms = terms("turn", 4);
        terms.members = RankSet::of([1, 3]);
        let mut inquiry = Inquiry::new(terms, Duration::from_secs(5));
        inquiry.answer(0, answer(false));
        inquiry.answer(1, answer(true));
        inquiry.answer(2, answer(false));
        inquiry.answer(3, answer(false));
        let Cause::Rank { rank, message, .. } = inquiry.verdict(&table) else {
            panic!()
        };
        assert_eq!(rank, 3);
        assert!(!message.contains("missing too"), "{message}");
    }

    fn answer(entered: bool) -> RankState {
        RankState {
            entered,
            phase: "warm-up".into(),
            phase_for: Duration::from_secs(7),
        }
    }

    #[test]
    fn the_missing_and_the_silent_are_named() {
        let table: Vec<_> = (0..4).map(info).collect();
        let mut inquiry = Inquiry::new(terms("trial 1", 4), Duration::from_secs(5));
        inquiry.answer(0, answer(true));
        inquiry.answer(1, answer(true));
        inquiry.answer(3, answer(false));
        assert!(!inquiry.complete(4));
        let Cause::Rank {
            rank,
            host,
            message,
        } = inquiry.verdict(&table)
        else {
            panic!()
        };
        assert_eq!((rank, host.as_str()), (2, "h2"));
        for part in [
            "trial 1",
            "does not answer",
            "rank 3 on h3",
            "warm-up",
            "7.0s",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn when_all_are_there_nobody_is_blamed() {
        let table: Vec<_> = (0..2).map(info).collect();
        let mut inquiry = Inquiry::new(terms("cards", 2), Duration::from_secs(5));
        inquiry.answer(0, answer(true));
        inquiry.answer(1, answer(true));
        assert!(inquiry.complete(2));
        let Cause::Rank { message, .. } = inquiry.verdict(&table) else {
            panic!()
        };
        assert!(message.contains("all ranks have come"), "{message}");
    }
}
