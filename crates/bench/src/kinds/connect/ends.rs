//! First bytes of a round as one worker sees them, per peer. A connection counts at an end that saw its own operation
//! end once and, where the engine notifies targets, the peer's byte arrive once. The immediate of a byte names its
//! sender, so that a byte of another peer, or of another worker, does not pass for the one that is missing.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tonnage_engine::{Completion, Lane, Peer};
use tonnage_plan::bounds::{RANKS_MAX, WORKERS_MAX};
use tonnage_units::{Error, Result};

/// Bits of an immediate: the sender's rank, its worker, and whether it is the answer to a byte.
const RANK_BITS: u32 = 16;
const WORKER_BITS: u32 = 10;
const _: () = assert!(RANKS_MAX <= 1 << RANK_BITS && WORKERS_MAX <= 1 << WORKER_BITS);

/// The connections of one worker that an end has counted in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Those that this side began.
    pub begun: u64,
    /// Those that its peers began.
    pub accepted: u64,
}

impl Counted {
    /// Adds those of another worker, round or rank.
    pub fn add(&mut self, other: Self) {
        self.begun += other.begun;
        self.accepted += other.accepted;
    }
}

/// Completions that an end can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    /// Its own operation and the peer's byte: write with immediate.
    BothWays,
    /// Its own operation, which brings the peer's byte: read.
    OwnReads,
    /// Its own operation, where the engine moves no bytes: the peer sees nothing.
    OwnOnly,
}

/// One connection at this end.
#[derive(Debug, Clone, Copy)]
struct End {
    peer: Peer,
    lane: Option<Lane>,
    done: u32,
    arrived: u32,
}

/// The connections of one worker. Their tags are their places: those that it begins, then those that its peers begin,
/// each in the order of the ranks.
#[derive(Debug)]
pub struct Ends {
    sees: Sees,
    worker: u32,
    all: Vec<End>,
    begins: usize,
    /// Ends that saw their own operation end, those begun here that saw the answer, and those that saw the peer begin.
    done: usize,
    answered: usize,
    asked: usize,
    /// The first thing seen that no honest engine shows.
    wrong: Option<String>,
}

impl Ends {
    /// Connections of a worker to `targets`, and from `initiators`.
    pub fn new(sees: Sees, worker: u32, mut targets: Vec<Peer>, mut initiators: Vec<Peer>) -> Self {
        targets.sort_unstable();
        initiators.sort_unstable();
        let begins = targets.len();
        let end = |peer| End {
            peer,
            lane: None,
            done: 0,
            arrived: 0,
        };
        Self {
            sees,
            worker,
            all: targets.into_iter().chain(initiators).map(end).collect(),
            begins,
            done: 0,
            answered: 0,
            asked: 0,
            wrong: None,
        }
    }

    /// Begins a round.
    pub fn clear(&mut self) {
        for end in &mut self.all {
            (end.lane, end.done, end.arrived) = (None, 0, 0);
        }
        (self.done, self.answered, self.asked) = (0, 0, 0);
        self.wrong = None;
    }

    /// Places of the connections that this side begins.
    pub fn begun(&self) -> Range<usize> {
        0..self.begins
    }

    /// Places of those that its peers begin.
    pub fn accepted(&self) -> Range<usize> {
        self.begins..self.all.len()
    }

    /// The peer of each connection.
    pub fn peers(&self) -> Vec<Peer> {
        self.all.iter().map(|end| end.peer).collect()
    }

    /// Notes the lane of the operation at this place, and returns its immediate.
    pub fn post(&mut self, place: usize, rank: Peer, lane: Lane) -> u32 {
        self.all[place].lane = Some(lane);
        let answers = u32::from(place >= self.begins);
        rank | self.worker << RANK_BITS | answers << (RANK_BITS + WORKER_BITS)
    }

    /// Returns whether so many ends have seen their own operation end.
    pub fn are_done(&self, count: usize) -> bool {
        self.done >= count
    }

    /// Returns whether each peer has begun.
    pub fn are_asked(&self) -> bool {
        self.begins + self.asked >= self.all.len()
    }

    /// Returns whether each peer has answered.
    pub fn are_answered(&self) -> bool {
        self.answered >= self.begins
    }

    /// The peer of the first of these connections that `is_missing`, in words.
    fn missing(&self, places: Range<usize>, is_missing: fn(&End) -> bool) -> String {
        let missing = self.all[places].iter().find(|end| is_missing(end));
        missing.map_or_else(|| "a peer".to_owned(), |end| format!("rank {}", end.peer))
    }

    /// A peer whose operation has not ended.
    pub fn undone(&self) -> String {
        self.missing(0..self.all.len(), |end| end.lane.is_some() && end.done == 0)
    }

    /// A peer among these whose byte has not come.
    pub fn silent(&self, places: Range<usize>) -> String {
        self.missing(places, |end| end.arrived == 0)
    }

    /// An operation of this side has ended.
    pub fn ended(&mut self, completion: &Completion) {
        let found = self.all.get_mut(completion.tag as usize);
        match found {
            Some(end) if end.lane == Some(completion.lane) => {
                end.done += 1;
                if end.done == 1 {
                    self.done += 1;
                    return;
                }
                let (peer, times) = (end.peer, end.done);
                self.note(format!(
                    "the operation towards rank {peer} completed {times} times"
                ));
            }
            _ => {
                let (tag, lane) = (completion.tag, completion.lane.0);
                self.note(format!(
                    "operation {tag} of lane {lane} completed, which was not posted"
                ));
            }
        }
    }

    /// A byte has arrived.
    pub fn arrived(&mut self, completion: &Completion) {
        if self.sees == Sees::OwnOnly {
            return;
        }
        let imm = completion.imm;
        let rank = imm & ((1 << RANK_BITS) - 1);
        let worker = (imm >> RANK_BITS) & ((1 << WORKER_BITS) - 1);
        let answers = imm >> (RANK_BITS + WORKER_BITS) == 1;
        if completion.lane != Lane::UNNAMED && completion.lane.0 != rank {
            let from = completion.lane.0;
            self.note(format!(
                "the first byte of rank {rank} arrived as one of rank {from}"
            ));
        }
        if worker != self.worker {
            return self.note(format!(
                "the first byte of worker {worker} of rank {rank} arrived here"
            ));
        }
        let (places, seen) = if answers {
            (self.begun(), &mut self.answered)
        } else {
            (self.accepted(), &mut self.asked)
        };
        let ends = &mut self.all[places];
        let found = ends.binary_search_by_key(&rank, |end| end.peer);
        let Some(end) = found.ok().and_then(|place| ends.get_mut(place)) else {
            return self.note(format!(
                "a first byte of rank {rank} arrived, which has no such connection here"
            ));
        };
        end.arrived += 1;
        if end.arrived == 1 {
            *seen += 1;
            return;
        }
        let times = end.arrived;
        self.note(format!(
            "the first byte of rank {rank} arrived {times} times"
        ));
    }

    fn note(&mut self, what: String) {
        let worker = self.worker;
        self.wrong.get_or_insert_with(|| {
            format!("worker {worker}: {what}, so connections of this engine cannot be counted: try another --engine")
        });
    }

    /// Checks that nothing wrong was seen so far.
    pub fn check(&mut self) -> Result<()> {
        self.wrong
            .take()
            .map_or(Ok(()), |what| Err(Error::Failed(what)))
    }

    /// Counts the connections that are complete at this end.
    pub fn count(&self) -> Counted {
        let arrivals = u32::from(self.sees == Sees::BothWays);
        let is_complete =
            |end: &&End| end.done == 1 && (self.sees == Sees::OwnOnly || end.arrived == arrivals);
        let count =
            |places: Range<usize>| self.all[places].iter().filter(is_complete).count() as u64;
        Counted {
            begun: count(self.begun()),
            accepted: count(self.accepted()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_engine::Ending;

    /// Worker 3 of rank 5, which begins connections to ranks 1 and 2, and accepts those of rank 1 and 7.
    fn ends(sees: Sees) -> Ends {
        Ends::new(sees, 3, vec![2, 1], vec![7, 1])
    }

    fn byte(rank: u32, worker: u32, answers: bool) -> Completion {
        Completion {
            lane: Lane(rank),
            imm: rank | worker << 16 | u32::from(answers) << 26,
            ending: Ending::Arrived,
            ..Completion::EMPTY
        }
    }

    fn post_and_end(ends: &mut Ends, places: Range<usize>) {
        for place in places {
            let lane = Lane(40 + place as u32);
            ends.post(place, 5, lane);
            ends.ended(&Completion {
                tag: place as u32,
                lane,
                ..Completion::EMPTY
            });
        }
    }

    /// A whole round, in which one arrival may be another.
    fn round(ends: &mut Ends, replace: impl Fn(Completion) -> Vec<Completion>) -> Result<Counted> {
        ends.clear();
        post_and_end(ends, ends.begun());
        for asked in [byte(1, 3, false), byte(7, 3, false)] {
            replace(asked).iter().for_each(|it| ends.arrived(it));
        }
        post_and_end(ends, ends.accepted());
        for answer in [byte(1, 3, true), byte(2, 3, true)] {
            replace(answer).iter().for_each(|it| ends.arrived(it));
        }
        ends.check()?;
        Ok(ends.count())
    }

    #[test]
    fn each_end_counts_its_connections_in_every_round() {
        let mut both = ends(Sees::BothWays);
        assert_eq!(both.peers(), [1, 2, 1, 7]);
        for _ in 0..2 {
            let counted = round(&mut both, |it| vec![it]).unwrap();
            let (begun, accepted) = (2, 2);
            assert_eq!(counted, Counted { begun, accepted });
            assert!(both.are_done(4) && both.are_asked() && both.are_answered());
        }
        let unnamed = |it| {
            vec![Completion {
                lane: Lane::UNNAMED,
                ..it
            }]
        };
        assert!(round(&mut both, unnamed).is_ok(), "the immediate names it");
        // The immediate that is posted is the one that is understood.
        assert_eq!(both.post(0, 5, Lane(0)), byte(5, 3, false).imm);
        assert_eq!(both.post(3, 5, Lane(0)), byte(5, 3, true).imm);
    }

    #[test]
    fn every_byte_is_of_one_peer_and_comes_once() {
        let wrong = |replace: &dyn Fn(Completion) -> Vec<Completion>| {
            let told = round(&mut ends(Sees::BothWays), replace);
            told.unwrap_err().to_string()
        };
        let of_seven = |it: &Completion| it.lane == Lane(7);
        let twice = wrong(&|it| vec![it; 1 + usize::from(of_seven(&it))]);
        assert!(twice.contains("rank 7 arrived 2 times"), "{twice}");
        // The same number of bytes, and a peer that none came from.
        let instead = wrong(&|it| match of_seven(&it) {
            true => vec![byte(1, 3, false)],
            false => vec![it],
        });
        assert!(instead.contains("rank 1 arrived 2 times"), "{instead}");
        let renamed = wrong(&|it| {
            let lane = if of_seven(&it) { Lane(1) } else { it.lane };
            vec![Completion { lane, ..it }]
        });
        assert!(
            renamed.contains("rank 7 arrived as one of rank 1"),
            "{renamed}"
        );
        let stranger = wrong(&|it| match of_seven(&it) {
            true => vec![byte(2, 3, false)],
            false => vec![it],
        });
        assert!(stranger.contains("rank 2") && stranger.contains("no such connection"));
        let other_worker = wrong(&|it| match of_seven(&it) {
            true => vec![byte(7, 2, false)],
            false => vec![it],
        });
        assert!(
            other_worker.contains("worker 2 of rank 7"),
            "{other_worker}"
        );
    }

    #[test]
    fn missing_bytes_are_named_and_not_counted() {
        let mut ends = ends(Sees::BothWays);
        let without_two = |it: Completion| match it.lane {
            Lane(2) => vec![],
            _ => vec![it],
        };
        let counted = round(&mut ends, without_two).unwrap();
        assert_eq!((counted.begun, counted.accepted), (1, 2));
        assert!(ends.are_asked() && !ends.are_answered());
        assert_eq!(ends.silent(ends.begun()), "rank 2");
        ends.clear();
        ends.post(1, 5, Lane(9));
        assert_eq!(ends.undone(), "rank 2");
    }

    #[test]
    fn an_operation_completes_once_and_on_its_lane() {
        for (tag, lane, what) in [(0, 40, "completed 2 times"), (0, 41, "not posted")] {
            let mut ends = ends(Sees::OwnReads);
            post_and_end(&mut ends, 0..4);
            assert!(ends.check().is_ok());
            assert_eq!(ends.count().accepted, 2);
            let lane = Lane(lane);
            ends.ended(&Completion {
                tag,
                lane,
                ..Completion::EMPTY
            });
            let told = ends.check().unwrap_err().to_string();
            assert!(told.contains(what), "{told}");
        }
    }

    #[test]
    fn without_bytes_only_the_initiator_counts() {
        let mut ends = ends(Sees::OwnOnly);
        post_and_end(&mut ends, 0..2);
        // The made-up answer is its own byte.
        ends.arrived(&byte(5, 3, false));
        assert!(ends.check().is_ok());
        let counted = ends.count();
        assert_eq!((counted.begun, counted.accepted), (2, 0));
    }
}
