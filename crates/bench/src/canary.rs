//! The canary: the time of a cache line that two CPUs pass back and forth, before and after each point. It takes 2 ms
//! and shows whether the path between the CPUs changed. On virtual machines, the same two CPUs may be 60 ns apart now,
//! and 240 ns a minute later. Many points don't depend on this path, so a changed canary alone proves nothing about
//! their figures.

use std::sync::atomic::{AtomicU64, Ordering};

use tonnage_sys::clock::Clock;

use crate::threads::start;
use tonnage_record::Canary;

/// A counter with cache lines of its own. The alignment is 128 bytes, because CPUs fetch cache lines in pairs.
#[repr(align(128))]
struct CacheLine(AtomicU64);

/// Number of round trips between two clock reads.
const ROUND_TRIPS: u64 = 200;

/// Number of measurements; the median is reported.
const MEASUREMENTS: usize = 15;

/// Value of the counter that makes the other thread stop waiting.
const GIVEN_UP: u64 = u64::MAX;

/// If the times before and after differ by more than this fraction of the smaller one, the path counts as changed.
const CHANGE: f64 = 0.2;

/// Returns the one-way time between the two CPUs in nanoseconds, or the reason why it cannot be measured.
pub fn one_way_ns(cpus: [u32; 2], clock: &Clock) -> Result<f64, String> {
    if cpus[0] == cpus[1] {
        return Err(format!("both ends run on CPU {}", cpus[0]));
    }
    let line = CacheLine(AtomicU64::new(0));
    let last = 2 * ROUND_TRIPS * MEASUREMENTS as u64;
    std::thread::scope(|scope| {
        let echo = start(scope, "canary", || {
            tonnage_machine::pin_thread(cpus[1]).map_err(|error| error.to_string())?;
            for turn in (1..last).step_by(2) {
                wait_for(&line, turn)?;
                line.0.store(turn + 1, Ordering::Release);
            }
            Ok::<(), String>(())
        })
        .map_err(|error| error.to_string())?;
        let own = start(scope, "canary", || {
            tonnage_machine::pin_thread(cpus[0]).map_err(|error| error.to_string())?;
            let mut times = Vec::with_capacity(MEASUREMENTS);
            let mut turn = 0;
            for _ in 0..MEASUREMENTS {
                let start_ns = clock.now_ns();
                for _ in 0..ROUND_TRIPS {
                    line.0.store(turn + 1, Ordering::Release);
                    wait_for(&line, turn + 2)?;
                    turn += 2;
                }
                times.push((clock.now_ns() - start_ns) as f64 / (2 * ROUND_TRIPS) as f64);
            }
            times.sort_by(f64::total_cmp);
            Ok::<f64, String>(times[MEASUREMENTS / 2])
        })
        .map_err(|error| {
            line.0.store(GIVEN_UP, Ordering::Release);
            error.to_string()
        })?;
        let dead = |_| "a canary thread died".to_owned();
        let result = own.join().map_err(dead)?;
        echo.join().map_err(dead)??;
        result
    })
}

/// Spins until the counter has this value. Fails if the other thread has given up, or does not respond.
fn wait_for(line: &CacheLine, value: u64) -> Result<(), String> {
    for _ in 0..200_000_000_u64 {
        match line.0.load(Ordering::Acquire) {
            now if now == value => return Ok(()),
            GIVEN_UP => break,
            _ => {}
        }
        std::hint::spin_loop();
    }
    Err("the other thread did not answer".into())
}

/// Builds the record's canary from the measurements before and after the point.
pub fn compare(cpus: [u32; 2], before: Result<f64, String>, after: Result<f64, String>) -> Canary {
    match (before, after) {
        (Ok(before_ns), Ok(after_ns)) => {
            let changed = (before_ns - after_ns).abs() > CHANGE * before_ns.min(after_ns);
            Canary::Measured {
                cpus,
                before_ns,
                after_ns,
                changed,
            }
        }
        (Err(why), _) | (_, Err(why)) => Canary::Skipped { why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_are_some_nanoseconds_apart() {
        let cpus = tonnage_machine::Topology::read().allowed;
        let [first, second, ..] = cpus[..] else {
            println!("skip: the canary needs two CPUs, this process may use {cpus:?}");
            return;
        };
        let ns = one_way_ns([first, second], &Clock::new()).unwrap();
        assert!((5.0..1e6).contains(&ns), "{ns} ns");
    }

    #[test]
    fn one_cpu_is_a_reason_and_a_fifth_is_a_change() {
        assert!(one_way_ns([3, 3], &Clock::new()).is_err());
        let changed = |before, after| {
            matches!(
                compare([0, 1], Ok(before), Ok(after)),
                Canary::Measured { changed: true, .. }
            )
        };
        assert!(changed(100.0, 121.0) && changed(121.0, 100.0) && !changed(100.0, 119.0));
        assert!(matches!(
            compare([0, 1], Ok(1.0), Err("x".into())),
            Canary::Skipped { .. }
        ));
    }
}
