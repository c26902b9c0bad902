//! Life of slots: which are free, who hears of their ends.

use super::*;
use crate::error::{Subject, TransferErrorKind};

fn error() -> TransferError {
    TransferError::new(TransferErrorKind::PeerLost, Subject::default(), "gone")
}

fn begun(flights: &mut Flights, parts: u32) -> u32 {
    let number = flights.next().unwrap();
    flights.begin(7, OperationName::One(Verb::Write), parts);
    number
}

#[test]
fn a_slot_is_free_when_it_ended_and_nobody_holds_it() {
    let mut flights = Flights::new(2);
    let first = begun(&mut flights, 1);
    let second = begun(&mut flights, 2);
    assert_eq!((flights.next(), flights.in_flight()), (None, 2));
    assert_eq!(flights.await_all_of(6), 0);
    assert_eq!(flights.await_all_of(7), 2);
    assert!(
        !flights.end_plain(first, &mut Vec::new()),
        "its session waits for it"
    );
    assert_eq!(flights.end_parts(first, 1).unwrap().session, Some(7));
    assert_eq!((flights.free(), flights.in_flight()), (0, 1));
    flights.let_go(first);
    assert_eq!(flights.free(), 1);
    // The other way round, and in parts.
    flights.let_go(second);
    assert_eq!(flights.end_parts(second, 1).unwrap().session, None);
    assert_eq!(flights.free(), 1);
    assert_eq!(flights.end_parts(second, 1).unwrap().session, Some(7));
    assert_eq!((flights.free(), flights.in_flight()), (2, 0));
    assert!(flights.end_parts(second, 1).is_none(), "completed twice");
    assert!(flights.end_parts(99, 1).is_none(), "a tag of nobody");
}

#[test]
fn what_is_given_up_keeps_its_slot_until_the_engine_ends_it() {
    let mut flights = Flights::new(1);
    let number = begun(&mut flights, 1);
    assert!(flights.give_up(number, error()).unclaimed.is_none());
    assert_eq!(flights.status(number), TransferStatus::Failed);
    assert_eq!((flights.in_flight(), flights.unended()), (0, vec![]));
    flights.let_go(number);
    assert_eq!(flights.free(), 0);
    assert!(flights.has_any_of(7));
    assert_eq!(flights.end_parts(number, 1).unwrap().session, None);
    assert!(!flights.has_any_of(7));
    assert_eq!(flights.free(), 1);
    let number = begun(&mut flights, 1);
    assert!(flights.tell(number).is_none());
}

#[test]
fn a_failure_that_nobody_waits_for_is_handed_out() {
    let mut flights = Flights::new(1);
    let number = begun(&mut flights, 1);
    flights.blame(number, error());
    assert!(
        flights
            .let_go(number)
            .is_none_or(|ended| ended.unclaimed.is_none()),
        "not yet"
    );
    assert!(flights.end_parts(number, 1).unwrap().unclaimed.is_some());
    // Held until it failed, and never asked; then asked.
    for asked in [false, true] {
        let number = begun(&mut flights, 1);
        flights.blame(number, error());
        assert!(flights.end_parts(number, 1).unwrap().unclaimed.is_none());
        assert!(!asked || flights.tell(number).is_some());
        let unclaimed = flights.let_go(number).and_then(|ended| ended.unclaimed);
        assert_eq!(unclaimed.is_none(), asked);
    }
    let number = begun(&mut flights, 1);
    flights.let_go(number);
    assert!(flights.give_up(number, error()).unclaimed.is_some());
}

#[test]
fn a_failure_is_told_once_though_the_engine_reports_it_later() {
    let mut flights = Flights::new(1);
    for held in [false, true] {
        let number = begun(&mut flights, 1);
        if !held {
            flights.let_go(number);
        }
        let given_up = flights.give_up(number, error());
        assert_eq!(given_up.unclaimed.is_some(), !held);
        if held {
            assert!(flights.tell(number).is_some());
            let left = flights.let_go(number).and_then(|ended| ended.unclaimed);
            assert!(left.is_none());
        }
        flights.blame(number, error());
        assert!(flights.end_parts(number, 1).unwrap().unclaimed.is_none());
        assert_eq!(flights.free(), 1);
    }
}
