//! The first bytes of a round, as one worker sees them from each peer. An end counts a connection under two conditions.
//! Its own operation has completed exactly once. If the engine notifies targets, the peer's byte has also arrived
//! exactly once. The immediate of a byte names the sender. So a byte from a wrong peer or worker cannot replace a
//! missing byte.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tonnage_engine::{Completion, Lane, Peer};
use tonnage_plan::bounds::{RANKS_MAX, THREADS_MAX};
use tonnage_units::{Error, Result};

/// Number of bits in an immediate for the sender's rank and worker. One more bit marks an answer.
const RANK_BITS: u32 = 16;
const WORKER_BITS: u32 = 10;
const _: () = assert!(RANKS_MAX <= 1 << RANK_BITS && THREADS_MAX <= 1 << WORKER_BITS);

/// Numbers of connections that an end has counted in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// Number of connections that this end initiated.
    pub begun: u64,
    /// Number of connections that peers initiated.
    pub accepted: u64,
}

impl ConnectionCounts {
    /// Adds the counts of another worker, round or rank.
    pub fn add(&mut self, other: Self) {
        self.begun += other.begun;
        self.accepted += other.accepted;
    }
}

/// Events by which an end can observe its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisibleCompletions {
    /// The end's own operation completes, and the peer's byte arrives (write with immediate).
    BothWays,
    /// The end's own operation completes. This operation reads the peer's byte.
    OwnReads,
    /// Only the end's own operation completes, because the engine moves no bytes.
    OwnOnly,
}

/// This worker's end of one connection.
#[derive(Debug, Clone, Copy)]
struct Connection {
    peer: Peer,
    lane: Option<Lane>,
    done: u32,
    arrived: u32,
}

/// All connections of one worker. The tag of an operation is the connection's index. Connections that the worker
/// initiates come first, then those that its peers initiate. Both parts are in rank order.
#[derive(Debug)]
pub struct Connections {
    visibility: VisibleCompletions,
    worker: u32,
    all: Vec<Connection>,
    begins: usize,
    /// Sum of three counts: completed operations of this side, initiated connections with an answer, and accepted
    /// connections with a byte from the peer.
    done: usize,
    answered: usize,
    asked: usize,
    /// The first event that a correct engine would not produce.
    wrong: Option<String>,
}

impl Connections {
    /// Creates the connections of a worker: to `targets`, and from `initiators`.
    pub fn new(
        visibility: VisibleCompletions,
        worker: u32,
        mut targets: Vec<Peer>,
        mut initiators: Vec<Peer>,
    ) -> Self {
        targets.sort_unstable();
        initiators.sort_unstable();
        let begins = targets.len();
        let end = |peer| Connection {
            peer,
            lane: None,
            done: 0,
            arrived: 0,
        };
        Self {
            visibility,
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

    /// Returns the indices of the connections that this worker initiates.
    pub fn initiated_range(&self) -> Range<usize> {
        0..self.begins
    }

    /// Returns the indices of the connections that its peers initiate.
    pub fn accepted_range(&self) -> Range<usize> {
        self.begins..self.all.len()
    }

    /// Returns the peer of each connection.
    pub fn peers(&self) -> Vec<Peer> {
        self.all.iter().map(|end| end.peer).collect()
    }

    /// Records the lane of the operation on connection `index`, and returns the operation's immediate.
    pub fn post(&mut self, index: usize, rank: Peer, lane: Lane) -> u32 {
        self.all[index].lane = Some(lane);
        let answers = u32::from(index >= self.begins);
        rank | self.worker << RANK_BITS | answers << (RANK_BITS + WORKER_BITS)
    }

    /// Returns whether at least `count` ends have completed their own operation.
    pub fn are_done(&self, count: usize) -> bool {
        self.done >= count
    }

    /// Returns whether the bytes of all initiators have arrived.
    pub fn have_all_requests_arrived(&self) -> bool {
        self.begins + self.asked >= self.all.len()
    }

    /// Returns whether the answers of all targets have arrived.
    pub fn have_all_answers_arrived(&self) -> bool {
        self.answered >= self.begins
    }

    /// Describes the peer of the first connection in `range` to which `is_missing` applies.
    fn describe_missing(&self, range: Range<usize>, is_missing: fn(&Connection) -> bool) -> String {
        let missing = self.all[range].iter().find(|end| is_missing(end));
        missing.map_or_else(|| "a peer".to_owned(), |end| format!("rank {}", end.peer))
    }

    /// Describes a peer with an operation that was posted but has not completed.
    pub fn describe_incomplete(&self) -> String {
        self.describe_missing(0..self.all.len(), |end| end.lane.is_some() && end.done == 0)
    }

    /// Describes a peer in `range` whose byte has not arrived.
    pub fn describe_silent(&self, range: Range<usize>) -> String {
        self.describe_missing(range, |end| end.arrived == 0)
    }

    /// Records that an operation of this worker has completed.
    pub fn record_completion(&mut self, completion: &Completion) {
        let found = self.all.get_mut(completion.tag as usize);
        match found {
            Some(end) if end.lane == Some(completion.lane) => {
                end.done += 1;
                if end.done == 1 {
                    self.done += 1;
                    return;
                }
                let (peer, times) = (end.peer, end.done);
                self.note_fault(format!(
                    "the operation towards rank {peer} completed {times} times"
                ));
            }
            _ => {
                let (tag, lane) = (completion.tag, completion.lane.0);
                self.note_fault(format!(
                    "operation {tag} of lane {lane} completed, which was not posted"
                ));
            }
        }
    }

    /// Records that a byte has arrived.
    pub fn record_arrival(&mut self, completion: &Completion) {
        if self.visibility == VisibleCompletions::OwnOnly {
            return;
        }
        let imm = completion.imm;
        let rank = imm & ((1 << RANK_BITS) - 1);
        let worker = (imm >> RANK_BITS) & ((1 << WORKER_BITS) - 1);
        let answers = imm >> (RANK_BITS + WORKER_BITS) == 1;
        if completion.lane != Lane::UNNAMED && completion.lane.0 != rank {
            let from = completion.lane.0;
            self.note_fault(format!(
                "the first byte of rank {rank} arrived as one of rank {from}"
            ));
        }
        if worker != self.worker {
            return self.note_fault(format!(
                "the first byte of thread {worker} of rank {rank} arrived here"
            ));
        }
        let (range, seen) = if answers {
            (self.initiated_range(), &mut self.answered)
        } else {
            (self.accepted_range(), &mut self.asked)
        };
        let ends = &mut self.all[range];
        let found = ends.binary_search_by_key(&rank, |end| end.peer);
        let Some(end) = found.ok().and_then(|index| ends.get_mut(index)) else {
            return self.note_fault(format!(
                "a first byte arrived from rank {rank}, to which this rank has no connection"
            ));
        };
        end.arrived += 1;
        if end.arrived == 1 {
            *seen += 1;
            return;
        }
        let times = end.arrived;
        self.note_fault(format!(
            "the first byte of rank {rank} arrived {times} times"
        ));
    }

    fn note_fault(&mut self, what: String) {
        let worker = self.worker;
        self.wrong.get_or_insert_with(|| {
            format!("thread {worker}: {what}, so connections of this engine cannot be counted: try another --engine")
        });
    }

    /// Fails if an event occurred that a correct engine would not produce.
    pub fn check(&mut self) -> Result<()> {
        self.wrong
            .take()
            .map_or(Ok(()), |what| Err(Error::Failed(what)))
    }

    /// Returns the numbers of connections that are complete at this end.
    pub fn count_complete(&self) -> ConnectionCounts {
        let arrivals = u32::from(self.visibility == VisibleCompletions::BothWays);
        let is_complete = |end: &&Connection| {
            end.done == 1
                && (self.visibility == VisibleCompletions::OwnOnly || end.arrived == arrivals)
        };
        let count = |range: Range<usize>| self.all[range].iter().filter(is_complete).count() as u64;
        ConnectionCounts {
            begun: count(self.initiated_range()),
            accepted: count(self.accepted_range()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonnage_engine::Ending;

    /// Worker 3 of rank 5. It initiates connections to ranks 1 and 2, and accepts connections from ranks 1 and 7.
    fn ends(visibility: VisibleCompletions) -> Connections {
        Connections::new(visibility, 3, vec![2, 1], vec![7, 1])
    }

    fn byte(rank: u32, worker: u32, answers: bool) -> Completion {
        Completion {
            lane: Lane(rank),
            imm: rank | worker << 16 | u32::from(answers) << 26,
            ending: Ending::Arrived,
            ..Completion::EMPTY
        }
    }

    fn post_and_end(ends: &mut Connections, range: Range<usize>) {
        for index in range {
            let lane = Lane(40 + index as u32);
            ends.post(index, 5, lane);
            ends.record_completion(&Completion {
                tag: index as u32,
                lane,
                ..Completion::EMPTY
            });
        }
    }

    /// Plays a whole round. `replace` can drop, change or duplicate arrivals.
    fn round(
        ends: &mut Connections,
        replace: impl Fn(Completion) -> Vec<Completion>,
    ) -> Result<ConnectionCounts> {
        ends.clear();
        post_and_end(ends, ends.initiated_range());
        for asked in [byte(1, 3, false), byte(7, 3, false)] {
            replace(asked).iter().for_each(|it| ends.record_arrival(it));
        }
        post_and_end(ends, ends.accepted_range());
        for answer in [byte(1, 3, true), byte(2, 3, true)] {
            replace(answer)
                .iter()
                .for_each(|it| ends.record_arrival(it));
        }
        ends.check()?;
        Ok(ends.count_complete())
    }

    #[test]
    fn each_end_counts_its_connections_in_every_round() {
        let mut both = ends(VisibleCompletions::BothWays);
        assert_eq!(both.peers(), [1, 2, 1, 7]);
        for _ in 0..2 {
            let counted = round(&mut both, |it| vec![it]).unwrap();
            let (begun, accepted) = (2, 2);
            assert_eq!(counted, ConnectionCounts { begun, accepted });
            assert!(
                both.are_done(4)
                    && both.have_all_requests_arrived()
                    && both.have_all_answers_arrived()
            );
        }
        let unnamed = |it| {
            vec![Completion {
                lane: Lane::UNNAMED,
                ..it
            }]
        };
        assert!(
            round(&mut both, unnamed).is_ok(),
            "the immediate names the sender"
        );
        // The immediates of posted operations name this worker as the sender.
        assert_eq!(both.post(0, 5, Lane(0)), byte(5, 3, false).imm);
        assert_eq!(both.post(3, 5, Lane(0)), byte(5, 3, true).imm);
    }

    #[test]
    fn every_byte_comes_from_one_peer_and_arrives_once() {
        let wrong = |replace: &dyn Fn(Completion) -> Vec<Completion>| {
            let result = round(&mut ends(VisibleCompletions::BothWays), replace);
            result.unwrap_err().to_string()
        };
        let of_seven = |it: &Completion| it.lane == Lane(7);
        let twice = wrong(&|it| vec![it; 1 + usize::from(of_seven(&it))]);
        assert!(twice.contains("rank 7 arrived 2 times"), "{twice}");
        // The number of bytes is right, but one peer's byte is missing.
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
        assert!(stranger.contains("rank 2") && stranger.contains("has no connection"));
        let other_worker = wrong(&|it| match of_seven(&it) {
            true => vec![byte(7, 2, false)],
            false => vec![it],
        });
        assert!(
            other_worker.contains("thread 2 of rank 7"),
            "{other_worker}"
        );
    }

    #[test]
    fn missing_bytes_are_named_and_not_counted() {
        let mut ends = ends(VisibleCompletions::BothWays);
        let without_two = |it: Completion| match it.lane {
            Lane(2) => vec![],
            _ => vec![it],
        };
        let counted = round(&mut ends, without_two).unwrap();
        assert_eq!((counted.begun, counted.accepted), (1, 2));
        assert!(ends.have_all_requests_arrived() && !ends.have_all_answers_arrived());
        assert_eq!(ends.describe_silent(ends.initiated_range()), "rank 2");
        ends.clear();
        ends.post(1, 5, Lane(9));
        assert_eq!(ends.describe_incomplete(), "rank 2");
    }

    #[test]
    fn an_operation_completes_once_and_on_its_lane() {
        for (tag, lane, what) in [(0, 40, "completed 2 times"), (0, 41, "not posted")] {
            let mut ends = ends(VisibleCompletions::OwnReads);
            post_and_end(&mut ends, 0..4);
            assert!(ends.check().is_ok());
            assert_eq!(ends.count_complete().accepted, 2);
            let lane = Lane(lane);
            ends.record_completion(&Completion {
                tag,
                lane,
                ..Completion::EMPTY
            });
            let message = ends.check().unwrap_err().to_string();
            assert!(message.contains(what), "{message}");
        }
    }

    #[test]
    fn without_bytes_only_the_initiator_counts() {
        let mut ends = ends(VisibleCompletions::OwnOnly);
        post_and_end(&mut ends, 0..2);
        // An engine that moves no bytes reports this worker's own byte as the answer.
        ends.record_arrival(&byte(5, 3, false));
        assert!(ends.check().is_ok());
        let counted = ends.count_complete();
        assert_eq!((counted.begun, counted.accepted), (2, 0));
    }
}
