//! Tests the library with an engine that counts its calls. Every operation must go through the library, and must be
//! posted in the requested way.

use super::*;
use tonnage_engine::Verb;
use tonnage_engine::memory::Request;
use tonnage_engine::testing::{CAPS, TestEngine, TestScript, arrival, ends_at_once, failing_after};

const FLOWS: usize = 2;
const DEPTH: u32 = 8;

/// The library over the counting engine, with a lane to each of two peers.
fn library(posting: Posting) -> (LibraryEngine, TestEngine, [Lane; FLOWS]) {
    library_that(posting, None)
}

#[test]
fn device_events_are_passed_on() {
    let (mut library, counting, _) = library(Posting::Tickets);
    counting.lock().device_events.push("port error".into());
    assert_eq!(library.take_device_events(), ["port error"]);
}

/// Room for the batches of one lane.
const ROOM: BatchCapacity = BatchCapacity {
    batches: 1,
    operations: 2,
};

fn library_that(
    posting: Posting,
    gathers: Option<BatchCapacity>,
) -> (LibraryEngine, TestEngine, [Lane; FLOWS]) {
    let counting = TestEngine::new(TestScript {
        first: 1,
        failure: "broken".into(),
        lanes_distinct: true,
        room: Some(64),
        ends: Some(ends_at_once()),
        posts_flushes: true,
        keeps_handed: true,
        ..TestScript::default()
    });
    let memory = (tonnage_engines::memory::HOST.allocate)(&Request {
        bytes: 4096,
        ..Request::default()
    });
    let taken = AdoptedEngine {
        engine: Box::new(counting.clone()),
        caps: CAPS,
        name: "counting",
        rank: 0,
        memory: (&memory.unwrap(), RegionId(0)),
        peers: &[(1, 4096), (2, 4096)],
        depth: DEPTH,
    };
    let calls = LibraryCalls { posting, gathers };
    let mut library = LibraryEngine::adopt(taken, calls);
    let lanes = [1, 2].map(|peer| library.lane(&spec(peer)).unwrap());
    (library, counting, lanes)
}

static NO_REMOTE: Descriptor = Descriptor(Vec::new());

fn spec(peer: Peer) -> LaneSpec<'static> {
    let write = LaneKind::Initiate(Verb::Write);
    LaneSpec::new(write, peer, RegionId(0), &NO_REMOTE)
}

fn op(lane: Lane, tag: u32) -> Op {
    Op {
        lane,
        tag,
        local: 8,
        remote: 16,
        len: 24,
        imm: 0,
    }
}

/// Number of operations in each of the engine's post calls.
fn posts(counting: &TestEngine) -> Vec<usize> {
    counting.lock().handed.iter().map(Vec::len).collect()
}

/// Posts these operations and polls until all have ended, as the loops do.
fn carry(library: &mut LibraryEngine, ops: &[Op]) -> Vec<Completion> {
    let (mut posted, mut ended) = (0, Vec::new());
    let mut done = [Completion::EMPTY; 64];
    for _ in 0..100 {
        posted += library.post(&ops[posted..]).unwrap();
        let count = library.poll(&mut done).unwrap();
        ended.extend_from_slice(&done[..count]);
        if ended.len() == ops.len() {
            return ended;
        }
    }
    panic!("{} of {} operations ended", ended.len(), ops.len());
}

const WAYS: [Posting; 5] = [
    Posting::Tickets,
    Posting::Named(LaneSource::LookUp),
    Posting::Named(LaneSource::Fresh),
    Posting::Named(LaneSource::Register),
    Posting::Tasks,
];

#[test]
fn every_operation_goes_through_the_library_and_comes_back_with_its_own_tag() {
    for posting in WAYS {
        let (mut library, counting, lanes) = library(posting);
        // All operations have the same tag, as in a batch of the loops.
        let batch: Vec<Op> = (0..12).map(|at| op(lanes[at % FLOWS], 5)).collect();
        let ended = carry(&mut library, &batch);
        assert!(ended.iter().all(|done| done.tag == 5 && done.len == 24));
        let of_first = ended.iter().filter(|done| done.lane == lanes[0]);
        assert_eq!(of_first.count(), 6, "{posting:?}");
        // The library posts one operation per call, even though the loop posts all together.
        assert_eq!(posts(&counting), [1; 12], "{posting:?}");
        assert_eq!(counting.lock().in_flight.len(), 0);
    }
}

#[test]
fn lanes_are_created_as_the_session_requires() {
    let made = |posting| {
        let (mut library, counting, lanes) = library(posting);
        let before = counting.lock().lanes_asked;
        let ops: Vec<Op> = (0..10).map(|tag| op(lanes[0], tag)).collect();
        carry(&mut library, &ops);
        let calls = counting.lock();
        (
            before,
            calls.lanes_asked - before,
            calls.released,
            calls.regions_asked,
            calls.deregistered,
        )
    };
    use LaneSource::{Fresh, LookUp, Register};
    // Each of the two sessions has a lane for each of three verbs.
    assert_eq!(made(Posting::Tickets), (6, 0, 0, 0, 0));
    assert_eq!(made(Posting::Tasks), (6, 0, 0, 0, 0));
    assert_eq!(made(Posting::Named(LookUp)), (0, 3, 0, 0, 0));
    assert_eq!(made(Posting::Named(Fresh)), (0, 10, 10, 0, 0));
    assert_eq!(made(Posting::Named(Register)), (0, 10, 10, 10, 10));
}

/// Tasks run only when the loop polls.
#[test]
fn tasks_post_when_the_loop_polls_and_tickets_at_once() {
    for posting in WAYS {
        let (mut library, counting, lanes) = library(posting);
        let before = counting.lock().polls;
        assert_eq!(library.post(&[op(lanes[0], 1)]).unwrap(), 1);
        let at_once = posting != Posting::Tasks;
        assert_eq!(counting.lock().handed.len(), usize::from(at_once));
        let mut done = [Completion::EMPTY; 4];
        assert_eq!(library.poll(&mut done).unwrap(), 1, "{posting:?}");
        assert_eq!(counting.lock().polls, before + 1);
    }
}

#[test]
fn without_room_fewer_operations_are_accepted() {
    for posting in WAYS {
        let (mut library, counting, lanes) = library(posting);
        counting.lock().room = Some(3);
        let ops: Vec<Op> = (0..40).map(|tag| op(lanes[0], tag)).collect();
        let taken = library.post(&ops).unwrap();
        // With tasks, each idle task accepts one operation, and then waits for room in the engine.
        let most = match posting {
            Posting::Tasks => DEPTH as usize + 1,
            _ => 3,
        };
        assert_eq!(taken, most, "{posting:?}");
        let mut done = [Completion::EMPTY; 64];
        let mut ended = 0;
        for _ in 0..20 {
            ended += library.poll(&mut done).unwrap();
        }
        assert_eq!(ended, taken);
        let mut tags: Vec<_> = carry(&mut library, &ops)
            .iter()
            .map(|done| done.tag)
            .collect();
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..40));
    }
}

#[test]
fn ends_come_in_the_engines_order_and_arrivals_with_them() {
    let (mut library, counting, lanes) = library(Posting::Tickets);
    let ops = [4, 5, 6].map(|tag| op(lanes[0], tag));
    assert_eq!(library.post(&ops).unwrap(), 3);
    counting.lock().in_flight.make_contiguous().reverse();
    counting.lock().end(3, Ending::Done);
    counting.lock().done.push_back(arrival(1, 99, 0));
    let mut done = [Completion::EMPTY; 8];
    assert_eq!(library.poll(&mut done).unwrap(), 4);
    assert!(done[..3].iter().map(|done| done.tag).eq([6, 5, 4]));
    let arrived = done[3];
    assert_eq!(
        (arrived.ending, arrived.imm, arrived.lane),
        (Ending::Arrived, 99, Lane(1))
    );
    // If a poll has room only for the completion, the next poll returns the arrival, even though the engine itself
    // returns nothing.
    library.post(&ops[..1]).unwrap();
    counting.lock().end(1, Ending::Done);
    counting.lock().done.push_back(arrival(1, 98, 0));
    let mut one = [Completion::EMPTY; 1];
    assert_eq!(library.poll(&mut one).unwrap(), 1);
    assert_eq!(one[0].ending, Ending::Done);
    assert_eq!(library.poll(&mut one).unwrap(), 1);
    assert_eq!((one[0].ending, one[0].imm), (Ending::Arrived, 98));
}

#[test]
fn a_failed_operation_keeps_the_engines_message() {
    for posting in WAYS {
        let (mut library, counting, lanes) = library(posting);
        counting.lock().ends = Some(failing_after(0, 7));
        let ended = carry(&mut library, &[op(lanes[1], 3)]);
        assert_eq!((ended[0].ending, ended[0].tag), (Ending::Failed(7), 3));
        let failure = library.failure(&ended[0]);
        assert_eq!((&*failure.name, failure.code), ("broken", 7));
    }
}

#[test]
fn a_flush_goes_through_the_library_unless_each_operation_was_proved() {
    for posting in WAYS {
        let (mut library, counting, lanes) = library(posting);
        carry(&mut library, &[op(lanes[0], 3)]);
        let flushed = library.flush(lanes[0], 4).unwrap();
        let proved = matches!(
            posting,
            Posting::Named(LaneSource::Fresh | LaneSource::Register)
        );
        let expected = if proved {
            Flush::Delivered
        } else {
            Flush::Posted
        };
        assert_eq!(flushed, expected, "{posting:?}");
        if !proved {
            let mut done = [Completion::EMPTY; 4];
            assert_eq!(library.poll(&mut done).unwrap(), 1, "{posting:?}");
            assert_eq!((done[0].tag, done[0].ending), (4, Ending::Done));
        }
        assert_eq!(counting.lock().flushes, u32::from(!proved));
    }
}

#[test]
fn the_engine_comes_back_with_all_lanes_released_but_not_in_the_middle() {
    for posting in WAYS {
        let (mut library, counting, lanes) = library(posting);
        carry(&mut library, &[op(lanes[0], 3)]);
        lanes
            .into_iter()
            .for_each(|lane| library.release_lane(lane));
        assert!(library.post(&[op(lanes[0], 4)]).is_err());
        let calls = counting.lock();
        assert_eq!(calls.lanes_asked, calls.released, "{posting:?}");
        drop(calls);
        let mut engine = library.into_engine().unwrap();
        engine.lane(&spec(1)).unwrap();
    }
    let (mut library, _, lanes) = library(Posting::Tickets);
    library.post(&[op(lanes[0], 1)]).unwrap();
    assert!(library.into_engine().is_none());
}

#[test]
fn calls_that_the_library_lacks_are_errors() {
    let (mut library, _, lanes) = library(Posting::Tickets);
    let mut refused = |spec: LaneSpec<'_>| library.lane(&spec).unwrap_err().to_string();
    let receive = LaneSpec {
        kind: LaneKind::Receive,
        ..spec(1)
    };
    assert!(refused(receive).contains("no receives"));
    assert!(refused(spec(9)).contains("rank 9"));
    let in_order = LaneSpec {
        in_order: true,
        ..spec(1)
    };
    assert!(refused(in_order).contains("keep their order"));
    let other = LaneSpec {
        local: RegionId(5),
        ..spec(1)
    };
    assert!(refused(other).contains("second memory"));
    assert!(library.connect(&[]).is_err());
    let outside = Op {
        remote: 4090,
        ..op(lanes[0], 1)
    };
    let error = library.post(&[outside]).unwrap_err().to_string();
    assert!(error.contains("lies outside"), "{error}");
}

/// Operations of two lanes are posted together. The library makes one call per lane and returns one completion per
/// operation.
#[test]
fn operations_posted_together_are_one_call_if_requested() {
    for posting in WAYS {
        let (mut library, counting, lanes) = library_that(posting, Some(ROOM));
        let lanes_before = counting.lock().lanes_asked;
        // The batch has more completions than one poll has room for.
        let batch: Vec<Op> = (0..100).map(|at| op(lanes[at % FLOWS], 5)).collect();
        counting.lock().room = Some(100);
        for _ in 0..2 {
            let ended = carry(&mut library, &batch);
            assert!(
                ended
                    .iter()
                    .all(|done| done.tag == 5 && done.ending == Ending::Done)
            );
            let of_first = ended.iter().filter(|done| done.lane == lanes[0]);
            assert_eq!(of_first.count(), 50, "{posting:?}");
        }
        assert_eq!(posts(&counting), [50; 4], "{posting:?}");
        // Lanes are created per call, not per operation.
        let made = counting.lock().lanes_asked - lanes_before;
        let expected = match posting {
            Posting::Tickets | Posting::Tasks => 0,
            Posting::Named(LaneSource::LookUp) => 3 * FLOWS,
            Posting::Named(LaneSource::Fresh | LaneSource::Register) => 4,
        };
        assert_eq!(made, expected, "{posting:?}");
    }
}

#[test]
fn a_failed_batch_keeps_the_engines_message_and_one_without_room_waits() {
    for posting in WAYS {
        let (mut library, counting, lanes) = library_that(posting, Some(ROOM));
        // More batches than the library has room for: some wait until others have ended.
        let mut done = [Completion::EMPTY; 64];
        for tag in 0..40 {
            let batch = [op(lanes[0], tag), op(lanes[0], tag)];
            assert_eq!(library.post(&batch).unwrap(), 2, "{posting:?}");
        }
        let mut tags = Vec::new();
        for _ in 0..100 {
            let count = library.poll(&mut done).unwrap();
            tags.extend(done[..count].iter().map(|done| done.tag));
        }
        tags.sort_unstable();
        assert!(
            tags.into_iter().eq((0..40).flat_map(|tag| [tag, tag])),
            "{posting:?}"
        );
        counting.lock().ends = Some(failing_after(0, 7));
        library.post(&[op(lanes[1], 3), op(lanes[1], 3)]).unwrap();
        let mut count = 0;
        for _ in 0..10 {
            count = library.poll(&mut done).unwrap();
            if count > 0 {
                break;
            }
        }
        assert_eq!((count, done[0].tag, done[0].lane), (1, 3, lanes[1]));
        assert!(matches!(done[0].ending, Ending::Failed(_)));
        assert_eq!(library.failure(&done[0]).name, "broken", "{posting:?}");
    }
}
