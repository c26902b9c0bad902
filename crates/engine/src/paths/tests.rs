//! Paths over an engine that keeps posted operations until a test completes them.

mod rails;
mod support;

use std::sync::Arc;

use proptest::prelude::*;

use super::{Division, divide};
use crate::testing::arrival;
use crate::{
    Caps, Completion, Ending, EndpointAddress, Flush, Lane, LaneKind, LaneSpec, Op, PeerEndpoint,
    Verb,
};
use support::{ALL, Bench, bench, device, op};

#[test]
fn one_path_with_nothing_to_cut_is_the_device_itself() {
    let device = device(&Arc::default(), ALL);
    let domains = divide(vec![Arc::clone(&device)], Division::NONE);
    assert!(Arc::ptr_eq(&domains[0], &device));
    assert!(domains[0].caps().ordered_writes);
    let two = Division {
        queue_pairs: 2,
        ..Division::NONE
    };
    let domains = divide(domains, two);
    assert!(!domains[0].caps().ordered_writes);
    let report = serde_json::to_value(domains[0].report()).unwrap();
    assert_eq!(report["queue_pairs"], 2);
}

#[test]
fn operations_take_their_paths_in_turn_and_keep_their_names() {
    let mut bench = bench(3, None, ALL);
    let lane = bench.writes();
    let ops: Vec<Op> = (0..7).map(|tag| op(lane, tag, 8)).collect();
    assert_eq!(bench.worker.post(&ops).unwrap(), 7);
    for (path, imms) in [vec![90, 93, 96], vec![91, 94], vec![92, 95]]
        .into_iter()
        .enumerate()
    {
        let posted = bench.posted(path);
        assert_eq!(posted.iter().map(|op| op.imm).collect::<Vec<_>>(), imms);
        assert!(
            posted
                .iter()
                .all(|op| op.lane == Lane(10 * (path as u32 + 1) + 1))
        );
        // One call posts all of a path's operations.
        assert_eq!(bench.path(path, |script| script.handed.len()), 1);
        for part in &posted {
            bench.completes(path, part, Ending::Done);
        }
    }
    let mut tags: Vec<u32> = bench.polled().iter().map(|done| done.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, [0, 1, 2, 3, 4, 5, 6]);
    assert!(bench.polled().is_empty());
}

#[test]
fn a_long_operation_is_cut_and_completes_once_with_its_last_part() {
    let mut bench = bench(2, Some((100, 64)), ALL);
    let lane = bench.writes();
    assert_eq!(bench.worker.post(&[op(lane, 5, 250)]).unwrap(), 1);
    let (first, second) = (bench.posted(0), bench.posted(1));
    let ranges =
        |ops: &[Op]| -> Vec<_> { ops.iter().map(|op| (op.local, op.remote, op.len)).collect() };
    assert_eq!(ranges(&first), [(1000, 5000, 100), (1200, 5200, 50)]);
    assert_eq!(ranges(&second), [(1100, 5100, 100)]);
    bench.completes(0, &first[1], Ending::Done);
    bench.completes(1, &second[0], Ending::Done);
    assert!(bench.polled().is_empty());
    bench.completes(0, &first[0], Ending::Done);
    let done = bench.polled();
    assert_eq!((done[0].tag, done[0].lane, done[0].len), (5, lane, 250));
    assert_eq!(done.len(), 1);
    // A second completion of a part is an error.
    bench.completes(0, &first[0], Ending::Done);
    let error = bench.worker.poll(&mut [Completion::EMPTY; 4]).unwrap_err();
    assert!(error.to_string().contains("twice"), "{error}");
}

#[test]
fn parts_wait_for_room_on_their_path_while_other_paths_continue() {
    let mut bench = bench(2, None, ALL);
    let lane = bench.writes();
    bench.path(0, |script| script.room = Some(1));
    let ops: Vec<Op> = (0..6).map(|tag| op(lane, tag, 8)).collect();
    assert_eq!(bench.worker.post(&ops).unwrap(), 6);
    assert_eq!((bench.posted(0).len(), bench.posted(1).len()), (1, 3));
    bench.path(0, |script| script.room = Some(3));
    assert!(bench.polled().is_empty());
    assert_eq!(
        bench.posted(0).iter().map(|op| op.imm).collect::<Vec<_>>(),
        [90, 92, 94]
    );
    // The worker takes only as many operations as it has entries. It loses none of them.
    bench.path(0, |script| script.room = Some(0));
    bench.path(1, |script| script.room = Some(0));
    let more: Vec<Op> = (6..100).map(|tag| op(lane, tag, 8)).collect();
    let taken = bench.worker.post(&more).unwrap();
    assert_eq!(taken, 3);
    bench.path(0, |script| script.room = Some(100));
    bench.path(1, |script| script.room = Some(100));
    bench.polled();
    assert_eq!(bench.posted(0).len() + bench.posted(1).len(), 9);
}

#[test]
fn a_failed_part_fails_the_whole_at_once_and_only_once() {
    let mut bench = bench(2, Some((4, 64)), ALL);
    let lane = bench.writes();
    bench.worker.post(&[op(lane, 3, 12)]).unwrap();
    let (first, second) = (bench.posted(0), bench.posted(1));
    bench.completes(1, &second[0], Ending::Failed(5));
    let done = bench.polled();
    assert_eq!(
        (done.len(), done[0].tag, done[0].ending),
        (1, 3, Ending::Failed(5))
    );
    let failure = bench.worker.failure(&done[0]);
    assert_eq!((&*failure.name, failure.queue_pair), ("path 1", Some(1)));
    let explained = bench.path(1, |script| script.explained).unwrap();
    assert_eq!(
        (explained.lane, explained.tag),
        (second[0].lane, second[0].tag)
    );
    bench.completes(0, &first[0], Ending::Failed(5));
    bench.completes(0, &first[1], Ending::Done);
    assert!(bench.polled().is_empty());
}

#[test]
fn a_flush_asks_every_path_that_was_used_and_waits_for_all() {
    let mut bench = bench(3, None, ALL);
    let lane = bench.writes();
    assert_eq!(bench.worker.flush(lane, 7).unwrap(), Flush::Delivered);
    let ops = [op(lane, 0, 8), op(lane, 1, 8)];
    bench.worker.post(&ops).unwrap();
    for path in 0..2 {
        bench.completes(path, &bench.posted(path)[0], Ending::Done);
    }
    assert_eq!(bench.polled().len(), 2);
    bench.path(0, |script| script.flush_answers.push_back(Flush::Posted));
    let answers = [Flush::Again, Flush::Posted];
    bench.path(1, |script| script.flush_answers.extend(answers));
    assert_eq!(bench.worker.flush(lane, 7).unwrap(), Flush::Again);
    bench.path(0, |script| script.end(1, Ending::Done));
    assert!(
        bench.polled().is_empty(),
        "the second path has not been asked to flush"
    );
    assert_eq!(bench.worker.flush(lane, 7).unwrap(), Flush::Posted);
    assert!(bench.polled().is_empty());
    bench.path(1, |script| script.end(1, Ending::Done));
    let done = bench.polled();
    assert_eq!((done.len(), done[0].tag, done[0].lane), (1, 7, lane));
    let asked = |path| bench.path(path, |script| script.flushes);
    assert_eq!([asked(0), asked(1), asked(2)], [1, 2, 0]);
    // Nothing was posted since the last flush.
    assert_eq!(bench.worker.flush(lane, 8).unwrap(), Flush::Delivered);
    // Peers may have written on any path.
    assert!(bench.worker.flush_incoming().unwrap());
    let incoming = |path| bench.path(path, |script| script.incoming);
    assert_eq!([incoming(0), incoming(1), incoming(2)], [1; 3]);
}

#[test]
fn receives_complete_with_their_own_tags_and_name_the_sender() {
    let mut bench = bench(2, None, ALL);
    let receives = bench.lane(LaneKind::Receive, 2);
    let ops = [
        op(receives, 0, 64),
        op(receives, 0, 64),
        op(receives, 1, 64),
    ];
    assert_eq!(bench.worker.post(&ops).unwrap(), 3);
    let filled = bench.posted(1)[0];
    bench.delivers(
        1,
        Completion {
            tag: filled.tag,
            ..arrival(2, 0, 17)
        },
    );
    let arrived = bench.polled();
    assert_eq!(
        (arrived[0].tag, arrived[0].lane, arrived[0].len),
        (0, Lane(2), 17)
    );
    let last = bench.posted(0)[1];
    bench.completes(0, &last, Ending::Arrived);
    assert_eq!(bench.polled()[0].tag, 1);
}

#[test]
fn a_write_imm_arrives_once_with_its_last_part_on_any_path() {
    let mut bench = bench(2, Some((100, 64)), ALL);
    bench.worker.expect(1, Some(250)).unwrap();
    bench.worker.expect(2, Some(100)).unwrap();
    bench.delivers(0, arrival(1, 7, 100));
    bench.delivers(0, arrival(1, 8, 100));
    bench.delivers(1, arrival(1, 7, 50));
    bench.delivers(1, arrival(2, 7, 100));
    let whole: Vec<_> = bench.polled();
    assert_eq!(
        whole.len(),
        1,
        "only rank 2's write-imm has arrived, because it is not cut"
    );
    assert_eq!(whole[0].lane, Lane(2));
    bench.delivers(1, arrival(1, 7, 100));
    let whole = bench.polled();
    assert_eq!(
        (whole.len(), whole[0].imm, whole[0].len, whole[0].lane),
        (1, 7, 250, Lane(1))
    );
    let missing = bench.worker.expect(1, None).unwrap_err().to_string();
    assert_eq!(
        missing,
        "write-imm 8 from rank 1 has 1 of 3 parts: some are missing, or one arrived twice"
    );
    bench.worker.expect(2, None).unwrap();
}

#[test]
fn parts_of_several_peers_need_a_device_that_names_them() {
    let unnamed = Caps {
        arrivals_named: false,
        ..ALL
    };
    let mut bench = bench(1, Some((100, 64)), unnamed);
    bench.worker.expect(1, Some(250)).unwrap();
    for _ in 0..2 {
        bench.delivers(0, arrival(u32::MAX, 7, 0));
    }
    assert!(bench.polled().is_empty());
    bench.delivers(0, arrival(u32::MAX, 7, 0));
    assert_eq!(bench.polled().len(), 1);
    let refused = bench.worker.expect(2, Some(250)).unwrap_err().to_string();
    assert!(refused.contains("which rank a part came from"), "{refused}");
}

#[test]
fn peers_with_other_paths_are_refused() {
    let mut two = bench(2, None, ALL);
    let mut three = bench(3, None, ALL);
    let address = three.worker.endpoint_addresses(&[1]).unwrap().remove(0);
    let refused = two
        .worker
        .connect(&[PeerEndpoint::same_container(1, address)])
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("rank 1 has 3 paths and this rank has 2"),
        "{refused}"
    );
    let torn = two
        .worker
        .connect(&[PeerEndpoint::same_container(1, EndpointAddress(vec![9]))]);
    assert!(
        torn.unwrap_err()
            .to_string()
            .contains("cannot decode the paths")
    );
}

#[test]
fn a_lane_is_resolved_once_and_its_number_is_reused() {
    let mut bench = bench(2, None, ALL);
    let first = bench.writes();
    assert_eq!(bench.writes(), first);
    let second = bench.lane(LaneKind::Initiate(Verb::Write), 2);
    assert_ne!(second, first);
    bench.worker.release_lane(first);
    assert!(bench.worker.post(&[op(first, 0, 8)]).is_err());
    assert!(bench.worker.flush(first, 0).is_err());
    assert_eq!(bench.writes(), first);
    for lane in [first, second] {
        bench.worker.release_lane(lane);
    }
    let region = bench.region.id;
    bench.worker.deregister(region).unwrap();
    assert!(bench.worker.deregister(region).is_err());
}

#[test]
fn a_lane_in_order_keeps_to_one_path_and_is_not_cut() {
    let mut bench = bench(2, Some((4, 64)), ALL);
    let remote = bench.region.descriptor.clone();
    let write = LaneKind::Initiate(Verb::Write);
    let spec = LaneSpec {
        in_order: true,
        ..LaneSpec::new(write, 1, bench.region.id, &remote)
    };
    let lane = bench.worker.lane(&spec).unwrap();
    assert_ne!(bench.writes(), lane);
    let ops: Vec<Op> = (0..3).map(|tag| op(lane, tag, 8)).collect();
    assert_eq!(bench.worker.post(&ops).unwrap(), 3);
    assert_eq!((bench.posted(0).len(), bench.posted(1).len()), (0, 3));
    assert_eq!(bench.worker.flush(lane, 0).unwrap(), Flush::Delivered);
    let asked = |path| bench.path(path, |script| script.flushes);
    assert_eq!([asked(0), asked(1)], [0, 1]);
}

#[test]
fn a_full_peer_does_not_block_the_others() {
    let mut bench = bench(2, None, ALL);
    let (slow, fast) = (
        bench.writes(),
        bench.lane(LaneKind::Initiate(Verb::Write), 2),
    );
    bench.refuse(slow);
    let ops: Vec<Op> = (0..4).map(|tag| op(slow, tag, 8)).collect();
    assert_eq!(bench.worker.post(&ops).unwrap(), 4);
    let ops: Vec<Op> = (4..8).map(|tag| op(fast, tag, 8)).collect();
    assert_eq!(bench.worker.post(&ops).unwrap(), 4);
    let imms =
        |bench: &Bench, path| -> Vec<u32> { bench.posted(path).iter().map(|op| op.imm).collect() };
    assert_eq!(
        (imms(&bench, 0), imms(&bench, 1)),
        (vec![94, 96], vec![95, 97])
    );
    for path in 0..2 {
        bench.path(path, |script| script.takes = None);
    }
    bench.polled();
    assert_eq!(imms(&bench, 0), [94, 96, 90, 92]);
    assert_eq!(imms(&bench, 1), [95, 97, 91, 93]);
}

#[test]
fn every_path_is_polled_even_if_the_buffer_is_full() {
    let mut bench = bench(2, None, ALL);
    let lane = bench.writes();
    let ops: Vec<Op> = (0..8).map(|tag| op(lane, tag, 8)).collect();
    bench.worker.post(&ops).unwrap();
    for path in 0..2 {
        for part in bench.posted(path) {
            bench.completes(path, &part, Ending::Done);
        }
    }
    let mut done = [Completion::EMPTY; 2];
    let mut tags = Vec::new();
    for _ in 0..2 {
        assert_eq!(bench.worker.poll(&mut done).unwrap(), 2);
        tags.extend(done.map(|done| done.tag % 2));
    }
    assert_eq!(tags, [0, 0, 1, 1]);
}

#[test]
fn released_lanes_leave_no_entries_behind() {
    let mut bench = bench(2, None, ALL);
    for _ in 0..100 {
        let lane = bench.writes();
        bench.worker.release_lane(lane);
    }
    let lane = bench.writes();
    for path in 0..2 {
        bench.path(path, |script| script.room = Some(0));
    }
    let ops: Vec<Op> = (0..100).map(|tag| op(lane, tag, 8)).collect();
    assert_eq!(bench.worker.post(&ops).unwrap(), 9);
}

proptest! {
    /// Operations are cut, posted in pieces and completed in any order. Each operation completes once, and its parts
    /// cover its bytes.
    #[test]
    fn every_operation_completes_once_and_its_parts_cover_its_bytes(
        queue_pairs in 1u32..5, chunk in 1u32..50, chunks_max in 1u32..9,
        lens in prop::collection::vec(0u32..300, 1..40), room in 1usize..6, order in any::<u64>(),
    ) {
        let mut bench = bench(queue_pairs, Some((chunk, chunks_max)), ALL);
        let lane = bench.writes();
        let ops: Vec<Op> = (0..).zip(&lens).map(|(tag, &len)| op(lane, tag, len)).collect();
        let (mut posted, mut ended, mut state) = (0, Vec::new(), order | 1);
        let mut seen = vec![0; queue_pairs as usize];
        let mut bytes = vec![Vec::new(); lens.len()];
        for _ in 0..100_000 {
            for path in 0..queue_pairs as usize {
                bench.path(path, |script| script.room = Some(room));
            }
            posted += bench.worker.post(&ops[posted..]).unwrap();
            for path in 0..queue_pairs as usize {
                let all = bench.posted(path);
                // Completes the parts posted since the last round, sometimes in reverse order.
                let mut parts = all[seen[path]..].to_vec();
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if state >> 63 == 1 { parts.reverse(); }
                for part in &parts {
                    bytes[(part.imm - 90) as usize].push((part.local - 1000, part.len));
                    bench.completes(path, part, Ending::Done);
                }
                seen[path] = all.len();
            }
            ended.extend(bench.polled().iter().map(|done| done.tag));
            if ended.len() >= ops.len() { break; }
        }
        ended.sort_unstable();
        prop_assert!(ended.into_iter().eq(0..ops.len() as u32));
        for (mut parts, len) in bytes.into_iter().zip(lens) {
            parts.sort_unstable();
            let mut at = 0;
            for (offset, part) in parts {
                prop_assert_eq!(offset, u64::from(at));
                at += part;
            }
            prop_assert_eq!(at, len);
        }
    }
}
