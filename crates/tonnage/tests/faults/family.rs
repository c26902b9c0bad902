//! Runs all cases of a family, a few at a time. Cases that were only late are repeated, one at a time.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tonnage_units::lock::lock;

use super::cases::SEED;
use super::promises::{LATE, SOON};

/// Number of cases that run at a time. They have more ranks than most machines have CPUs, and this is intended.
const AT_A_TIME: usize = 2;

/// Locked by the family that runs: cases on one host, or cases on several hosts. On several hosts, a rank counts as
/// lost after two seconds. On two CPUs, a healthy rank could be silent that long if both families ran at once.
static ONE_FAMILY: Mutex<()> = Mutex::new(());

/// Returns the number in an environment variable.
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

/// Returns the numbers of the cases to run: `count` cases, or the single case that the variable `own` names. Returns
/// `None`, and prints the skip, if the user requested a single case of the other family.
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

/// Runs each case with `tried` and fails if any promise was broken. `tried` gets the case's number and a time limit,
/// and returns the broken promises. On a slow machine everything takes longer, so cases that were only late are
/// repeated alone with twice the limit.
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
