//! All cases of a family, some at a time, and once more alone what was only late.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tonnage_units::lock::lock;

use super::cases::SEED;
use super::promises::{LATE, SOON};

/// Cases at a time. Their ranks are more than most machines have CPUs, which is part of the test.
const AT_A_TIME: usize = 2;

/// Held by cases of one host or by those of several: the latter take a rank for lost after two seconds, which two CPUs
/// may take where all are at work.
static ONE_FAMILY: Mutex<()> = Mutex::new(());

/// Number that a variable of the environment has.
pub(super) fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}

/// Seed of all cases.
pub(super) fn seed() -> u64 {
    variable("FAULT_SEED").unwrap_or(SEED)
}

/// Numbers of the cases to run: of `count`, or the one that the variable `own` names; `None`, with a visible skip,
/// where one of the other family is asked for alone.
pub(super) fn numbers(own: &str, other: &str, count: u64) -> Option<Range<u64>> {
    match (variable(own), variable(other)) {
        (Some(number), _) => Some(number..number + 1),
        (None, Some(number)) => {
            println!("skip: {other}={number} is asked for alone");
            None
        }
        (None, None) => Some(0..count),
    }
}

/// Has `tried` run each case, which returns the promises that were broken when everything ended within the given time,
/// and fails where there are any. On a busy or a slow machine everything takes longer, so what was only late is tried
/// alone, and may be as late again.
pub(super) fn all_hold(
    own: &str,
    numbers: Range<u64>,
    tried: impl Fn(u64, Duration) -> Vec<String> + Sync,
) {
    let _alone = lock(&ONE_FAMILY);
    let next = AtomicU64::new(numbers.start);
    let (failures, late) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let fail = |number: u64, found: &[String]| {
        let failure = format!("FAULT_SEED={} {own}={number}", seed());
        println!("{failure}: {found:#?}");
        failures.lock().unwrap().push(failure);
    };
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end {
                return;
            }
            match tried(number, SOON).as_slice() {
                [] => {}
                [one] if one.starts_with(LATE) => late.lock().unwrap().push(number),
                found => fail(number, found),
            }
        }
    };
    std::thread::scope(|scope| {
        (0..AT_A_TIME).for_each(|_| drop(scope.spawn(worker)));
    });
    for number in late.into_inner().unwrap() {
        println!("again, alone:");
        let found = tried(number, 2 * SOON);
        if !found.is_empty() {
            fail(number, &found);
        }
    }
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "promises were broken in {failures:#?}");
}
