//! The clock of the timed loops: nanoseconds on the scale of `CLOCK_MONOTONIC`, read from the CPU's own counter.
//!
//! A loop that times every operation reads the clock more often than it does anything else, and `clock_gettime` costs
//! about twice a bare counter read. The counter is used only where the kernel itself trusts it (its clock source is
//! "tsc", or the architecture defines the counter as constant); everywhere else [`Clock`] is `clock_gettime`.

use rustix::time::{ClockId, clock_gettime};

/// Fixed-point scale of the counter's rate: nanoseconds per tick × 2^32.
const RATE_SHIFT: u32 = 32;

/// Time for which the counter is compared with the kernel's clock at first; [`Clock::resync`] lengthens the base.
const CALIBRATION_NS: u64 = 10_000_000;

/// A cheap clock. Copy it into each worker; [`Clock::resync`] between trials keeps it on the kernel's scale.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    source: Source,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Kernel,
    Counter {
        first_ticks: u64,
        first_ns: u64,
        base_ticks: u64,
        base_ns: u64,
        rate: u64,
    },
}

impl Clock {
    /// Picks the counter where the kernel trusts it, and calibrates it for 10 ms.
    pub fn new() -> Self {
        if !counter_is_trusted() {
            return Self {
                source: Source::Kernel,
            };
        }
        let (first_ticks, first_ns) = paired_reading();
        while monotonic_ns() < first_ns + CALIBRATION_NS {
            std::hint::spin_loop();
        }
        let mut clock = Self {
            source: Source::Counter {
                first_ticks,
                first_ns,
                base_ticks: first_ticks,
                base_ns: first_ns,
                rate: 0,
            },
        };
        clock.resync();
        clock
    }

    /// Nanoseconds on the scale of `CLOCK_MONOTONIC`.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match self.source {
            Source::Kernel => monotonic_ns(),
            Source::Counter {
                base_ticks,
                base_ns,
                rate,
                ..
            } => {
                // A thread that moved may read a counter that is a little behind.
                let ticks = counter().saturating_sub(base_ticks);
                base_ns + scaled(ticks, rate)
            }
        }
    }

    /// Like [`Self::now_ns`], after everything before it is done: stores have left the CPU's buffers. It costs some
    /// hundred cycles, so it is for comparing ways of copying and not for the timed loops.
    pub fn now_ns_settled(&self) -> u64 {
        settle_stores();
        self.now_ns()
    }

    /// Sets the counter's base and rate anew against the kernel's clock, which time synchronisation may slew.
    pub fn resync(&mut self) {
        if let Source::Counter {
            first_ticks,
            first_ns,
            base_ticks,
            base_ns,
            rate,
        } = &mut self.source
        {
            let (ticks, ns) = paired_reading();
            let elapsed_ticks = ticks.wrapping_sub(*first_ticks).max(1);
            *rate = ((u128::from(ns - *first_ns) << RATE_SHIFT) / u128::from(elapsed_ticks)) as u64;
            (*base_ticks, *base_ns) = (ticks, ns);
        }
    }

    /// "cpu counter" or "clock_gettime", for the record.
    pub fn source_name(&self) -> &'static str {
        match self.source {
            Source::Kernel => "clock_gettime",
            Source::Counter { .. } => "cpu counter",
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// The kernel's `CLOCK_MONOTONIC` in nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    to_ns(clock_gettime(ClockId::Monotonic))
}

/// CPU time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    to_ns(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time that all threads of this process have used, those included that the kernel runs on its behalf, in
/// nanoseconds.
pub fn process_cpu_ns() -> u64 {
    to_ns(clock_gettime(ClockId::ProcessCPUTime))
}

fn to_ns(time: rustix::time::Timespec) -> u64 {
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[inline]
fn scaled(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> RATE_SHIFT) as u64
}

/// A counter value and the kernel's time at the same moment: the tightest of several tries.
fn paired_reading() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..16 {
        let before = counter();
        let ns = monotonic_ns();
        let after = counter();
        let width = after.wrapping_sub(before);
        if width < best.0 {
            best = (width, before + width / 2, ns);
        }
    }
    (best.1, best.2)
}

#[cfg(target_arch = "x86_64")]
fn settle_stores() {
    // SAFETY: both fences are part of SSE2, which every x86-64 CPU has; they order and access no memory of ours.
    unsafe {
        core::arch::x86_64::_mm_mfence();
        core::arch::x86_64::_mm_lfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn settle_stores() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(target_arch = "x86_64")]
fn counter_is_trusted() -> bool {
    std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: `rdtsc` exists on every x86-64 CPU and touches no memory; a kernel that traps it does not name "tsc" as
    // its clock source, and then this function is not called.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
fn counter_is_trusted() -> bool {
    true
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: the virtual counter is readable from user space on Linux and reading it has no side effect.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter_is_trusted() -> bool {
    false
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> u64 {
    monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_follows_the_kernel_and_never_goes_back() {
        let mut clock = Clock::new();
        let mut last = clock.now_ns();
        for _ in 0..10_000 {
            let now = clock.now_ns();
            assert!(now >= last, "went back from {last} to {now}");
            last = now;
        }
        clock.resync();
        // A descheduled thread widens the difference, so the best of several is compared.
        let difference = (0..100)
            .map(|_| clock.now_ns().abs_diff(monotonic_ns()))
            .min();
        assert!(
            difference < Some(20_000),
            "{difference:?} ns from CLOCK_MONOTONIC"
        );
    }
}
