//! Tests of when slots become free, and of where the ends of their operations are reported.

use super::*;
use crate::error::{ErrorSubject, TransferErrorKind};

fn error() -> TransferError {
    TransferError::new(TransferErrorKind::PeerLost, ErrorSubject::default(), "gone")
}

fn begun(flights: &mut OperationSlots, parts: u32) -> u32 {
    let number = flights.next_free().unwrap();
    flights.begin(7, OperationName::One(Verb::Write), parts);
    number
}

#[test]
fn a_slot_is_free_once_ended_and_released() {
    let mut flights = OperationSlots::new(2);
    let first = begun(&mut flights, 1);
    let second = begun(&mut flights, 2);
    assert_eq!((flights.next_free(), flights.in_flight()), (None, 2));
    assert_eq!(flights.notify_ends_of(6), 0);
    assert_eq!(flights.notify_ends_of(7), 2);
    assert!(
        !flights.end_plain(first, &mut Vec::new()),
        "its session waits for it"
    );
    assert_eq!(flights.end_parts(first, 1).unwrap().session, Some(7));
    assert_eq!((flights.free_count(), flights.in_flight()), (0, 1));
    flights.release_ticket(first);
    assert_eq!(flights.free_count(), 1);
    // The second ticket is released before its operation ends, and that operation has two parts.
    flights.release_ticket(second);
    assert_eq!(flights.end_parts(second, 1).unwrap().session, None);
    assert_eq!(flights.free_count(), 1);
    assert_eq!(flights.end_parts(second, 1).unwrap().session, Some(7));
    assert_eq!((flights.free_count(), flights.in_flight()), (2, 0));
    assert!(flights.end_parts(second, 1).is_none(), "completed twice");
    assert!(flights.end_parts(99, 1).is_none(), "an unknown tag");
}

#[test]
fn an_operation_given_up_keeps_its_slot_until_the_engine_ends_it() {
    let mut flights = OperationSlots::new(1);
    let number = begun(&mut flights, 1);
    assert!(flights.end_with_error(number, error()).unclaimed.is_none());
    assert_eq!(flights.status(number), TransferStatus::Failed);
    assert_eq!((flights.in_flight(), flights.unended()), (0, vec![]));
    flights.release_ticket(number);
    assert_eq!(flights.free_count(), 0);
    assert!(flights.engine_has_any_of(7));
    assert_eq!(flights.end_parts(number, 1).unwrap().session, None);
    assert!(!flights.engine_has_any_of(7));
    assert_eq!(flights.free_count(), 1);
    let number = begun(&mut flights, 1);
    assert!(flights.report_error(number).is_none());
}

#[test]
fn an_unclaimed_failure_is_returned() {
    let mut flights = OperationSlots::new(1);
    let number = begun(&mut flights, 1);
    flights.record_error(number, error());
    assert!(
        flights
            .release_ticket(number)
            .is_none_or(|ended| ended.unclaimed.is_none()),
        "not yet"
    );
    assert!(flights.end_parts(number, 1).unwrap().unclaimed.is_some());
    // The ticket existed when the operation failed. The failure is unclaimed only if nothing asked the ticket for its
    // error.
    for asked in [false, true] {
        let number = begun(&mut flights, 1);
        flights.record_error(number, error());
        assert!(flights.end_parts(number, 1).unwrap().unclaimed.is_none());
        assert!(!asked || flights.report_error(number).is_some());
        let unclaimed = flights
            .release_ticket(number)
            .and_then(|ended| ended.unclaimed);
        assert_eq!(unclaimed.is_none(), asked);
    }
    let number = begun(&mut flights, 1);
    flights.release_ticket(number);
    assert!(flights.end_with_error(number, error()).unclaimed.is_some());
}

#[test]
fn a_failure_is_reported_once_although_the_engine_reports_it_later() {
    let mut flights = OperationSlots::new(1);
    for held in [false, true] {
        let number = begun(&mut flights, 1);
        if !held {
            flights.release_ticket(number);
        }
        let given_up = flights.end_with_error(number, error());
        assert_eq!(given_up.unclaimed.is_some(), !held);
        if held {
            assert!(flights.report_error(number).is_some());
            let left = flights
                .release_ticket(number)
                .and_then(|ended| ended.unclaimed);
            assert!(left.is_none());
        }
        flights.record_error(number, error());
        assert!(flights.end_parts(number, 1).unwrap().unclaimed.is_none());
        assert_eq!(flights.free_count(), 1);
    }
}
