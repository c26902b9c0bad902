use super::super::BURST;
use super::*;
use crate::testing::mock;
use tonnage_sys::mapping::{Pages, Sharing};

const TELLING: CreditReturn = CreditReturn {
    every: 4,
    idle_polls: 3,
};
const DATA: Lane = Lane(1);
const COUNTS: Lane = Lane(2);

/// Credits with ranks 5 and 7. Rank 7 both sends and receives; rank 5 does neither.
pub(crate) fn credits() -> Credits {
    let bytes = Credits::bytes(2) as usize;
    let arena = Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap();
    let mut credits = Credits::new(Arc::new(arena));
    credits.add(5, 0, 0).unwrap();
    credits.add(7, 1, 640).unwrap();
    credits
        .begin(TELLING, 8, &[(7, DATA)], &[(7, COUNTS)])
        .unwrap();
    credits
}

fn done(lane: Lane, tag: u32) -> Completion {
    Completion {
        lane,
        tag,
        ..Completion::EMPTY
    }
}

/// Sets the peer's count, as if the peer had written it.
fn told(credits: &Credits, taken: u64) {
    let word = credits.arena.word(Credits::count_offset(1)).unwrap();
    word.store(taken, Ordering::Release);
}

fn tags(all: &[Completion]) -> Vec<u32> {
    all.iter().map(|completion| completion.tag).collect()
}

#[test]
fn a_completion_is_held_until_the_receiver_has_taken_its_message() {
    let mut credits = credits();
    let mut all = [Completion::EMPTY; BURST];
    for (at, place) in all.iter_mut().take(3).enumerate() {
        *place = done(DATA, at as u32);
    }
    assert_eq!(credits.hold_back_early(&mut all, 3), 0);
    told(&credits, 2);
    let count = credits.hold_back_early(&mut all, 0);
    assert_eq!(tags(&all[..count]), [0, 1]);
    assert_eq!(
        credits.hold_back_early(&mut all, 0),
        0,
        "one message is not consumed yet"
    );
    told(&credits, 3);
    let count = credits.hold_back_early(&mut all, 0);
    assert_eq!(tags(&all[..count]), [2]);
}

#[test]
fn a_count_that_arrives_before_the_completion_releases_it_too() {
    let mut credits = credits();
    told(&credits, 1);
    let mut all = [Completion::EMPTY; BURST];
    assert_eq!(credits.hold_back_early(&mut all, 0), 0);
    all[0] = done(DATA, 9);
    let count = credits.hold_back_early(&mut all, 1);
    assert_eq!(tags(&all[..count]), [9]);
}

#[test]
fn other_completions_pass_in_order() {
    let mut credits = credits();
    let mut all = [Completion::EMPTY; BURST];
    all[0] = Completion {
        ending: Ending::Arrived,
        ..done(DATA, 3)
    };
    all[1] = done(DATA, 4);
    all[2] = Completion {
        ending: Ending::Failed(7),
        ..done(DATA, 5)
    };
    all[3] = done(Lane(0), 6);
    all[4] = done(COUNTS, 0);
    let count = credits.hold_back_early(&mut all, 5);
    assert_eq!(tags(&all[..count]), [3, 5, 6]);
}

#[test]
fn a_poll_returns_no_more_completions_than_fit() {
    let mut credits = credits();
    let mut all = [done(DATA, 0); 4];
    assert_eq!(credits.hold_back_early(&mut all, 4), 0);
    told(&credits, 4);
    let mut room = [Completion::EMPTY; 3];
    assert_eq!(credits.hold_back_early(&mut room, 0), 3);
    assert_eq!(credits.hold_back_early(&mut room, 0), 1);
}

#[test]
fn credits_return_after_enough_messages_or_a_few_idle_polls() {
    let mut credits = credits();
    let mut mock = mock(9);
    for _ in 0..3 {
        credits.count_taken(0, &mut mock).unwrap();
    }
    assert_eq!(mock.lock().posted, 0);
    credits.count_taken(0, &mut mock).unwrap();
    assert_eq!(mock.lock().posted, 1);
    let word = credits.arena.word(Credits::source_offset(1)).unwrap();
    assert_eq!(word.load(Ordering::Acquire), 4);
    // The bytes of a count must not change while it is in flight.
    for _ in 0..5 {
        credits.count_taken(0, &mut mock).unwrap();
    }
    assert_eq!(mock.lock().posted, 1);
    assert!(!credits.is_settled());
    credits.hold_back_early(&mut [done(COUNTS, 0)], 1);
    for _ in 0..2 {
        credits.return_when_idle(&mut mock).unwrap();
    }
    assert_eq!(mock.lock().posted, 1, "too few idle polls so far");
    credits.return_when_idle(&mut mock).unwrap();
    assert_eq!(mock.lock().posted, 2);
    credits.hold_back_early(&mut [done(COUNTS, 0)], 1);
    assert!(credits.is_settled());
    for _ in 0..9 {
        credits.return_when_idle(&mut mock).unwrap();
    }
    assert_eq!(mock.lock().posted, 2, "all credits have been returned");
}

#[test]
fn a_busy_engine_is_asked_again() {
    let mut credits = credits();
    credits.count_taken(0, &mut mock(0)).unwrap();
    credits.return_all_credits(&mut mock(0)).unwrap();
    assert!(!credits.is_settled());
    let mut mock = mock(1);
    credits.return_all_credits(&mut mock).unwrap();
    assert_eq!(mock.lock().posted, 1);
}

#[test]
fn counts_continue_from_point_to_point() {
    let mut credits = credits();
    let mut mock = mock(9);
    credits.count_taken(0, &mut mock).unwrap();
    credits.return_all_credits(&mut mock).unwrap();
    credits.hold_back_early(&mut [done(COUNTS, 0)], 1);
    credits
        .begin(TELLING, 8, &[(7, Lane(4))], &[(7, Lane(3))])
        .unwrap();
    for _ in 0..4 {
        credits.count_taken(0, &mut mock).unwrap();
    }
    let word = credits.arena.word(Credits::source_offset(1)).unwrap();
    assert_eq!(word.load(Ordering::Acquire), 5);
    assert!(
        credits
            .begin(TELLING, 8, &[(6, DATA)], &[])
            .unwrap_err()
            .to_string()
            .contains("rank 6")
    );
}

#[test]
fn each_count_has_a_cache_line_of_its_own() {
    let places =
        (0..3).flat_map(|index| [Credits::count_offset(index), Credits::source_offset(index)]);
    assert!(places.eq([0, 64, 128, 192, 256, 320]));
    assert_eq!(Credits::bytes(3), 384);
    assert_eq!(
        Credits::bytes(0),
        128,
        "memory of 0 bytes cannot be allocated"
    );
}

#[test]
fn peers_are_added_in_order_while_the_memory_suffices() {
    let mut credits = credits();
    assert!(credits.add(9, 3, 0).is_err(), "the next index is 2");
    let room = credits.arena.len() as u64 / Credits::bytes(1);
    for index in 2..room as usize {
        credits.add(index as Peer, index, 0).unwrap();
    }
    let error = credits.add(99, room as usize, 0).unwrap_err().to_string();
    assert!(error.contains("rank 99"), "{error}");
}

#[test]
fn lanes_of_the_previous_point_are_ignored() {
    let mut credits = credits();
    let lanes = [(5, Lane(4))];
    credits.begin(TELLING, 8, &lanes, &[(5, Lane(3))]).unwrap();
    let mut all = [done(DATA, 1), done(COUNTS, 2), done(Lane(4), 3)];
    let count = credits.hold_back_early(&mut all, 3);
    assert_eq!(tags(&all[..count]), [1, 2]);
    // Tag 0 now belongs to rank 5, the first sender of this point.
    let mut mock = mock(9);
    for _ in 0..4 {
        credits.count_taken(0, &mut mock).unwrap();
    }
    let word = credits.arena.word(Credits::source_offset(0)).unwrap();
    assert_eq!((mock.lock().posted, word.load(Ordering::Acquire)), (1, 4));
}

#[test]
fn a_poll_checks_some_receivers_and_the_next_one_the_others() {
    let bytes = Credits::bytes(20) as usize;
    let arena = Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap();
    let mut credits = Credits::new(Arc::new(arena));
    let lanes: Vec<_> = (0..20).map(|peer| (peer, Lane(peer))).collect();
    for peer in 0..20 {
        credits.add(peer, peer as usize, 0).unwrap();
    }
    credits.begin(TELLING, 1, &lanes, &[]).unwrap();
    let mut all = [Completion::EMPTY; BURST];
    for peer in 0..20 {
        all[peer as usize] = done(Lane(peer), peer);
    }
    assert_eq!(credits.hold_back_early(&mut all, 20), 0);
    for index in 0..20 {
        let word = credits.arena.word(Credits::count_offset(index)).unwrap();
        word.store(1, Ordering::Release);
    }
    // The previous poll checked peers 0 to 15, so this poll starts with peer 16.
    let count = credits.hold_back_early(&mut all, 0);
    assert!(tags(&all[..count]).into_iter().eq((16..20).chain(0..12)));
    let count = credits.hold_back_early(&mut all, 0);
    assert!(tags(&all[..count]).into_iter().eq(12..16));
    // A new point starts with its first receiver.
    assert_eq!(credits.hold_back_early(&mut all, 0), 0);
    credits.begin(TELLING, 1, &lanes[..1], &[]).unwrap();
    assert_eq!(credits.hold_back_early(&mut all, 0), 0);
}

#[test]
fn only_polls_in_a_row_without_an_arrival_are_idle() {
    let mut credits = credits();
    let mut mock = mock(9);
    for _ in 0..3 {
        credits.count_taken(0, &mut mock).unwrap();
        credits.return_when_idle(&mut mock).unwrap();
    }
    assert_eq!(mock.lock().posted, 0);
}
