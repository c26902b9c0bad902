//! Whole runs with threads as ranks over loopback.
//!
//! The tree has a fan-out of 2, so that 13 ranks have four levels. Ranks do not end the process and catch no signals.

use std::thread::sleep;
use std::time::{Duration, Instant};

mod circles;
mod failures;
mod joining;
mod processes;

use serde::{Deserialize, Serialize};

use super::*;
use crate::testing::{SOON, door, identity, launched, options, run, run_with, says, start};
use tonnage_units::{Error, Reduce};

/// Runs `body` on all ranks, closes each rank normally, and returns the results in rank order.
fn run_and_close<T: Send + 'static>(
    size: u32,
    body: impl Fn(&mut Rank) -> T + Clone + Send + 'static,
) -> Vec<T> {
    run(size, move |mut rank| {
        let outcome = body(&mut rank);
        rank.close().unwrap();
        outcome
    })
}

fn blamed(error: &Error) -> (u32, String) {
    match error {
        Error::Rank {
            rank,
            host,
            message,
        } => {
            assert!(!message.is_empty());
            (*rank, host.clone())
        }
        other => panic!("not about a rank: {other}"),
    }
}

#[derive(Serialize, Deserialize)]
struct Sum(u64);

impl Reduce for Sum {
    fn merge(&mut self, other: Self) {
        self.0 += other.0;
    }
}

#[test]
fn every_exchange_works_for_every_size() {
    for size in [1u32, 2, 3, 13] {
        run_and_close(size, move |rank| {
            let me = rank.id();
            let hosts = rank.rank_infos().iter().map(|info| info.host.to_string());
            assert!(hosts.eq((0..size).map(|rank| format!("h{rank}"))));
            assert_eq!(rank.identity().local_size, Some(size));
            assert_eq!(rank.identity().local_rank, me);
            rank.barrier("begin", SOON).unwrap();
            let mine = vec![me as u8; me as usize];
            let all = rank.all_gather("names", mine, SOON).unwrap();
            for (other, bytes) in all.iter().enumerate() {
                assert_eq!(*bytes, vec![other as u8; other]);
            }
            let mine = (me == 0).then(|| b"hello".to_vec());
            assert_eq!(rank.broadcast("greeting", mine, SOON).unwrap(), b"hello");
            let total = rank.reduce("sum", Sum(u64::from(me)), SOON).unwrap().0;
            assert_eq!(total, u64::from(size) * u64::from(size - 1) / 2);
        });
    }
}

#[test]
fn rank_0_collects_all_values_and_the_others_learn_that_it_has() {
    run_and_close(13, |rank| {
        let mine = format!("kind {}", rank.id() % 3);
        let all = rank.collect("kinds", &mine, SOON).unwrap();
        match rank.id() {
            0 => {
                let kinds = (0..13).map(|rank| format!("kind {}", rank % 3));
                assert!(all.count() == 3 && all.iter().cloned().eq(kinds));
            }
            _ => assert_eq!(all, Distinct::default()),
        }
    });
}

/// The answer to ranks other than 0 must not contain the collected values.
#[test]
fn the_answer_to_a_collection_does_not_grow_with_the_ranks() {
    let of_a_leaf = |size: u32| {
        let all = run_and_close(size, |rank| {
            rank.barrier("before", SOON).unwrap();
            let before = rank.received_bytes();
            let mine = vec![rank.id() as u8; 5000];
            rank.collect("kinds", &mine, SOON).unwrap();
            rank.received_bytes() - before
        });
        all[size as usize - 1]
    };
    let (few, many) = (of_a_leaf(3), of_a_leaf(20));
    // A heartbeat may have arrived in the meantime.
    assert!(few.abs_diff(many) < 200, "{few} {many}");
}

#[test]
fn messages_reach_their_receivers() {
    for size in [1u32, 2, 3, 13] {
        run_and_close(size, move |rank| {
            let me = rank.id();
            // Even ranks send to all ranks, including themselves. Odd ranks send nothing.
            let text = |from: u32, to: u32| format!("{from} to {to}").into_bytes();
            let mine = (0..size).filter(|_| me % 2 == 0);
            let mine = mine.map(|to| (to, text(me, to))).collect();
            let got = rank.exchange("cards", mine, SOON).unwrap();
            let senders = (0..size).step_by(2);
            let wanted: Vec<_> = senders.map(|from| (from, text(from, me))).collect();
            assert_eq!(got, wanted);
            assert_eq!(rank.exchange("nothing", Vec::new(), SOON).unwrap(), []);
            let error = rank.exchange("wrong", vec![(size, Vec::new())], SOON);
            assert!(error.unwrap_err().to_string().contains("\"wrong\""));
        });
    }
}

#[test]
fn notes_reach_rank_0_before_later_collectives() {
    for size in [1u32, 2, 13] {
        run_and_close(size, move |rank| {
            let (me, notes) = (rank.id(), rank.notes());
            for round in 0..3u8 {
                for number in 0..5u8 {
                    notes.send(vec![round, number]).unwrap();
                }
                rank.barrier("round", SOON).unwrap();
                let mut came = notes.take_received();
                if me == 0 {
                    came.retain(|(_, note)| note[0] == round);
                    for from in 0..size {
                        let of_rank = came.iter().filter(|(rank, _)| *rank == from);
                        let numbers: Vec<u8> = of_rank.map(|(_, note)| note[1]).collect();
                        assert_eq!(numbers, [0, 1, 2, 3, 4], "{size} {from}");
                    }
                } else {
                    assert_eq!(came, []);
                }
                // No rank may send the next note before rank 0 has checked.
                rank.barrier("looked", SOON).unwrap();
            }
            let error = notes.send(vec![0; 64 << 20]).unwrap_err();
            assert!(error.to_string().contains("too long"), "{error}");
        });
    }
}

#[test]
fn large_exchanges_fit_and_larger_ones_are_refused() {
    for all in run(4, |mut rank| {
        let other = 3 - rank.id();
        let much = vec![rank.id() as u8; 4 << 20];
        let all = rank.exchange("cards", vec![(other, much)], SOON).unwrap();
        rank.barrier("between", SOON).unwrap();
        // Each rank may send this much. But rank 1 cannot forward the messages of ranks 0 and 2 to the ranks below it.
        let to = if rank.id() == 2 { 1 } else { 3 };
        let much = if rank.id() == 3 { 0 } else { 9 << 20 };
        let error = rank.exchange("more", vec![(to, vec![1; much])], SOON);
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("that the control channel carries")
        );
        let too_much = rank.all_gather("gather", vec![0; 17 << 20], SOON);
        says(&too_much.unwrap_err(), &["may give"]);
        all
    }) {
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].1.len(), 4 << 20);
    }
}

#[test]
fn pending_exchanges_finish_in_any_order() {
    run_and_close(5, |rank| {
        let barrier = rank.start_barrier("first").unwrap();
        let all = rank
            .all_gather("second", vec![rank.id() as u8], SOON)
            .unwrap();
        assert_eq!(all.concat(), [0, 1, 2, 3, 4]);
        rank.finish_barrier(barrier, SOON).unwrap();
        let early = rank.start_barrier("third").unwrap();
        if rank.id() != 3 {
            sleep(Duration::from_millis(50));
        }
        let since = Instant::now();
        while !early.is_done() {
            assert!(since.elapsed() < SOON);
            std::thread::yield_now();
        }
        rank.finish_barrier(early, Duration::ZERO).unwrap();
    });
}

#[test]
fn ranks_agree_on_the_lowest_failure_and_go_on() {
    run_and_close(7, |rank| {
        let me = rank.id();
        let fails = [3, 5].contains(&me);
        let mine = if fails {
            Err(Error::Failed("no".into()))
        } else {
            Ok(())
        };
        let error = rank.agree("setup", mine, SOON).unwrap_err();
        assert_eq!(error.to_string(), "rank 3 on h3: no");
        rank.agree("last", Ok(()), SOON).unwrap();
    });
}

#[test]
fn an_aligned_start_is_in_the_future_and_the_same_for_all() {
    let starts = run_and_close(6, |rank| {
        // All ranks of this test share one clock.
        assert_eq!(rank.clock_offset(), ClockOffset::default());
        let before = tree::clock::monotonic_ns();
        let start = rank.aligned_start("trial", SOON).unwrap();
        assert!(start >= before + 500_000);
        assert!(start < before + 20_000_000_000);
        start
    });
    assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
}

#[test]
fn clocks_of_other_boots_are_estimated_along_the_tree() {
    let offsets = run_with(
        7,
        |rank, options| options.boot_id = format!("boot {}", rank / 2),
        |rank| {
            let mut rank = rank.unwrap();
            let before = tree::clock::monotonic_ns();
            let start = rank.aligned_start("trial", SOON).unwrap();
            let offset = rank.clock_offset();
            // All these clocks are really the same, so the estimated offset is also its error.
            let doubt_ns = offset.offset_ns.unsigned_abs()..1_000_000_000;
            assert!(doubt_ns.contains(&offset.uncertainty_ns), "{offset:?}");
            assert!(start + offset.uncertainty_ns >= before + 500_000);
            let known_ns = |rank: &Rank| rank.known_clock().known_ns;
            let first = known_ns(&rank);
            // Heartbeats, which update the estimate, are half a second apart.
            for _ in 0..100 {
                if first.is_none() || known_ns(&rank) > first {
                    break;
                }
                sleep(Duration::from_millis(100));
            }
            assert!(
                first.is_none() || known_ns(&rank) > first,
                "the parent was asked again"
            );
            rank.close().unwrap();
            offset
        },
    );
    // Rank 1 has the same boot ID as rank 0.
    assert_eq!(offsets[..2], [ClockOffset::default(); 2]);
    let is_off = |offset: &ClockOffset| offset.uncertainty_ns > 0;
    assert!(offsets[2..].iter().all(is_off), "{offsets:?}");
}
