//! The clock of the timed loops: nanoseconds on the scale of `CLOCK_MONOTONIC`, read from the CPU's own counter.
//!
//! A loop that times every operation reads the clock more often than it does anything else, and `clock_gettime` costs
//! about twice a bare counter read. The counter is used only where the kernel itself trusts it (its clock source is
//! "tsc", or the architecture defines the counter as constant); everywhere else [`Clock`] calls `clock_gettime`.
//!
//! All copies of a clock share one calibration. When one thread adjusts it to the kernel's clock ([`Clock::follow`]),
//! every loop uses the new rate, even if the loop copied its clock earlier.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Fixed-point scale of the counter's rate: nanoseconds per tick × 2^54. A month of ticks at 3 GHz stays exact to a
/// nanosecond, and counters from 1 MHz on fit.
const RATE_SHIFT: u32 = 54;

/// How long the first calibration compares the counter with the kernel's clock; [`Clock::follow`] extends the interval.
const CALIBRATION_NS: u64 = 10_000_000;

/// An interrupted calibration is repeated for twice the time, up to this maximum. If every attempt is interrupted,
/// `clock_gettime` is used.
const CALIBRATION_NS_MAX: u64 = 1_000_000_000;

/// The rates of this host's clocks may differ by 1 / `RATE_ERROR_ONE_IN`. A larger difference is a fault: oscillators
/// and ordinary time synchronisation stay below 0.06 %.
const RATE_ERROR_ONE_IN: u64 = 100;

/// A cheap clock. Copies share one calibration, so adjusting one clock adjusts all of them.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    calibration: &'static Calibration,
}

/// The rate of the counter, and the last comparison with the kernel's clock.
#[derive(Debug)]
struct Calibration {
    /// Nanoseconds per tick × 2^[`RATE_SHIFT`]; 0 if `clock_gettime` is read instead.
    rate: AtomicU64,
    base_ticks: u64,
    base_ns: u64,
    compared: Mutex<Compared>,
}

/// The last comparison of this host's clocks, and the first fault that [`Clock::check`] has not returned yet.
#[derive(Debug, Clone, Copy)]
struct Compared {
    last: Reading,
    fault: Option<ClockFault>,
}

/// The clocks of this host at one moment.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// `CLOCK_MONOTONIC`.
    ns: u64,
    /// `CLOCK_MONOTONIC_RAW`, which time synchronisation does not adjust.
    raw_ns: u64,
    /// How far apart in time `raw_ns` and `ns` may have been read, in nanoseconds.
    raw_doubt_ns: u64,
    /// The counter; 0 if it is not used.
    ticks: u64,
    /// How far apart in time `ticks` and `ns` may have been read, in ticks.
    doubt_ticks: u64,
}

/// Disagreement of this host's clocks by more than 1 %: times since the last comparison are not reliable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockFault {
    /// The CPU's counter jumped or has another rate. `clock_gettime` is read from now on.
    Counter {
        /// Difference between the counter and `CLOCK_MONOTONIC`.
        off_ns: u64,
        /// Time over which the difference arose.
        over_ns: u64,
    },
    /// Time synchronisation changes the rate of `CLOCK_MONOTONIC`.
    Slew {
        /// Difference between `CLOCK_MONOTONIC` and `CLOCK_MONOTONIC_RAW`.
        off_ns: u64,
        /// Time over which the difference arose.
        over_ns: u64,
    },
}

impl fmt::Display for ClockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = Duration::from_nanos;
        match *self {
            Self::Counter { off_ns, over_ns } => write!(
                f,
                "the CPU's counter and CLOCK_MONOTONIC drifted apart by {:.1?} within {:.1?}, more than 1 %: a virtual \
                 machine was resumed or migrated, or the counter is unreliable. Measure this point again; from now on, \
                 this process uses clock_gettime",
                time(off_ns),
                time(over_ns)
            ),
            Self::Slew { off_ns, over_ns } => write!(
                f,
                "time synchronisation moved CLOCK_MONOTONIC by {:.1?} within {:.1?}, more than 1 %. Measure this point \
                 again once the clock is synchronised, e.g. after `chronyc waitsync` or `ntpwait`",
                time(off_ns),
                time(over_ns)
            ),
        }
    }
}

impl std::error::Error for ClockFault {}

impl Clock {
    /// Picks the counter where the kernel trusts it, and calibrates it for 10 ms. The calibration is never freed, so
    /// make one clock and copy it.
    pub fn new() -> Self {
        let calibration = if counter_is_trusted() {
            Calibration::measure()
        } else {
            Calibration::kernel()
        };
        Self {
            calibration: Box::leak(Box::new(calibration)),
        }
    }

    /// Makes a clock with a calibration error of this many parts per million, for tests of code that must correct it.
    #[doc(hidden)]
    pub fn misjudged(parts_per_million: i32) -> Self {
        let clock = Self::new();
        let rate = clock.calibration.rate.load(Ordering::Relaxed);
        let error = i128::from(rate) * i128::from(parts_per_million) / 1_000_000;
        clock
            .calibration
            .rate
            .store((i128::from(rate) + error) as u64, Ordering::Relaxed);
        clock
    }

    /// Nanoseconds on the scale of `CLOCK_MONOTONIC`.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        let calibration = self.calibration;
        let rate = calibration.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return monotonic_ns();
        }
        calibration.ns_at(counter(), rate)
    }

    /// Returns [`Self::now_ns`] once all earlier instructions are done and stores have left the CPU's buffers. It costs
    /// some hundred cycles: use it to compare copy methods, not in timed loops.
    pub fn now_ns_settled(&self) -> u64 {
        settle_stores();
        self.now_ns()
    }

    /// Adjusts all copies of this clock to the kernel's clock, which time synchronisation may slew, and compares the
    /// clocks of this host. Call it between measured intervals: the time may jump by the accumulated error.
    pub fn follow(&self) {
        drop(self.calibration.follow());
    }

    /// Follows the kernel's clock, and reports the first disagreement of this host's clocks since the last call.
    ///
    /// # Errors
    /// The fault, if times since the last call are not reliable.
    pub fn check(&self) -> Result<(), ClockFault> {
        let fault = self.calibration.follow().fault.take();
        fault.map_or(Ok(()), Err)
    }

    /// "cpu counter" or "clock_gettime", for the record.
    pub fn source_name(&self) -> &'static str {
        match self.calibration.rate.load(Ordering::Relaxed) {
            0 => "clock_gettime",
            _ => "cpu counter",
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Calibration {
    /// Uses `clock_gettime` for the life of the process.
    fn kernel() -> Self {
        Self {
            rate: AtomicU64::new(0),
            base_ticks: 0,
            base_ns: 0,
            compared: Mutex::new(Compared {
                last: Reading::take(false),
                fault: None,
            }),
        }
    }

    fn measure() -> Self {
        let mut calibration_ns = CALIBRATION_NS;
        while calibration_ns <= CALIBRATION_NS_MAX {
            let first = Reading::take(true);
            while monotonic_ns() < first.ns + calibration_ns {
                std::hint::spin_loop();
            }
            let last = Reading::take(true);
            let ticks = last.ticks.wrapping_sub(first.ticks);
            // Interrupted readings would give a wrong rate.
            if (first.doubt_ticks + last.doubt_ticks) <= ticks / 1000 {
                return Self {
                    rate: AtomicU64::new(rate(last.ns - first.ns, ticks)),
                    base_ticks: first.ticks,
                    base_ns: first.ns,
                    compared: Mutex::new(Compared { last, fault: None }),
                };
            }
            calibration_ns *= 2;
        }
        Self::kernel()
    }

    /// Converts ticks to nanoseconds. If the counter was reset, the difference from the base wraps, and the result lies
    /// far in the future. Loops that wait for a time then end, and [`Self::follow`] finds the fault.
    #[inline]
    fn ns_at(&self, ticks: u64, rate: u64) -> u64 {
        self.base_ns
            .wrapping_add(scaled(ticks.wrapping_sub(self.base_ticks), rate))
    }

    fn follow(&self) -> MutexGuard<'_, Compared> {
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.rate.load(Ordering::Relaxed);
        let now = Reading::take(known != 0);
        let fault = self.fault(&compared.last, &now, known);
        let renewed = match fault {
            Some(ClockFault::Counter { .. }) => 0,
            _ if known == 0 => 0,
            _ => rate(
                now.ns - self.base_ns,
                now.ticks.wrapping_sub(self.base_ticks),
            ),
        };
        self.rate.store(renewed, Ordering::Relaxed);
        compared.last = now;
        compared.fault = compared.fault.or(fault);
        compared
    }

    fn fault(&self, before: &Reading, now: &Reading, rate: u64) -> Option<ClockFault> {
        let over_ns = now.ns.saturating_sub(before.ns);
        let most_ns = over_ns / RATE_ERROR_ONE_IN + 1000;
        if rate != 0 {
            let off_ns = self.ns_at(now.ticks, rate).abs_diff(now.ns);
            let doubt_ticks = before.doubt_ticks.saturating_add(now.doubt_ticks);
            if off_ns > most_ns.saturating_add(scaled(doubt_ticks, rate)) {
                return Some(ClockFault::Counter { off_ns, over_ns });
            }
        }
        let off_ns = over_ns.abs_diff(now.raw_ns.saturating_sub(before.raw_ns));
        let doubt_ns = before.raw_doubt_ns.saturating_add(now.raw_doubt_ns);
        (off_ns > most_ns.saturating_add(doubt_ns)).then_some(ClockFault::Slew { off_ns, over_ns })
    }
}

impl Reading {
    /// Reads each pair of clocks at nearly the same moment: the best of several tries.
    fn take(has_counter: bool) -> Self {
        let (mut ticks, mut ns, mut doubt_ticks) = (0, monotonic_ns(), 0);
        if has_counter {
            (ticks, ns, doubt_ticks) = tightest(counter, monotonic_ns);
        }
        let (at_ns, raw_ns, raw_doubt_ns) =
            tightest(monotonic_ns, || to_ns(clock_gettime(ClockId::MonotonicRaw)));
        Self {
            ns,
            // Shift `raw_ns` to the moment of `ns`. The shift is about a microsecond, so a rate error of 1 % doesn't
            // matter.
            raw_ns: raw_ns.wrapping_sub(at_ns.wrapping_sub(ns)),
            raw_doubt_ns,
            ticks,
            doubt_ticks,
        }
    }
}

/// Reads two clocks at one moment. The third number is the uncertainty, on the first clock's scale.
fn tightest(outer: impl Fn() -> u64, inner: impl Fn() -> u64) -> (u64, u64, u64) {
    let mut best = (0, 0, u64::MAX);
    for _ in 0..16 {
        let before = outer();
        let between = inner();
        let width = outer().wrapping_sub(before);
        if width < best.2 {
            best = (before.wrapping_add(width / 2), between, width);
        }
    }
    best
}

/// Nanoseconds per tick × 2^[`RATE_SHIFT`], never 0.
fn rate(ns: u64, ticks: u64) -> u64 {
    let exact = (u128::from(ns) << RATE_SHIFT) / u128::from(ticks.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX).max(1)
}

/// Maximum rate change that the kernel applies to `CLOCK_MONOTONIC` at present, in parts per 10^9. It is the sum of
/// frequency, tick length and remaining offset, as `adjtimex` reports them. If that call fails, the result is 500 ppm,
/// the maximum slew of `ntpd`.
pub fn slew_ppb_max() -> u64 {
    let Some(clock) = timex(0) else {
        return NTP_SLEW_PPB;
    };
    let left_us = timex(libc::ADJ_OFFSET_SS_READ).map_or(1, |adjtime| adjtime.offset);
    slew_ppb(&clock, left_us != 0)
}

/// 500 ppm: `MAXFREQ` of ntpd, and the rate at which the kernel carries out an `adjtime`.
const NTP_SLEW_PPB: u64 = 500_000;

fn slew_ppb(clock: &libc::timex, is_adjusting: bool) -> u64 {
    // Frequency is in parts per million × 2^16.
    let frequency_ppb = (clock.freq.unsigned_abs().saturating_mul(1000)) >> 16;
    // A tick is 10 ms long, and `tick` its length in microseconds.
    let tick_ppb = clock.tick.abs_diff(10_000).saturating_mul(100_000);
    // The kernel corrects 1 / 2^`shift` of the remaining offset per second (its `ntp_offset_chunk`).
    let shift = 2 + u32::try_from(clock.constant.clamp(0, 60)).unwrap_or(60);
    let offset_ns = match clock.status & libc::STA_NANO {
        0 => clock.offset.unsigned_abs().saturating_mul(1000),
        _ => clock.offset.unsigned_abs(),
    };
    let adjtime_ppb = if is_adjusting { NTP_SLEW_PPB } else { 0 };
    frequency_ppb
        .saturating_add(tick_ppb)
        .saturating_add(offset_ns.checked_shr(shift).unwrap_or(0))
        .saturating_add(adjtime_ppb)
}

/// Reads the kernel's state of its clock. `modes` must not change anything.
fn timex(modes: libc::c_uint) -> Option<libc::timex> {
    // SAFETY: all fields of `timex` are integers, for which zero is valid.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    clock.modes = modes;
    // SAFETY: the pointer is valid during the call, which fills the struct.
    let state = unsafe { libc::adjtimex(&mut clock) };
    (state >= 0).then_some(clock)
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

/// CPU time of all threads of this process, in nanoseconds, including kernel threads that work on its behalf.
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

    /// Returns the smallest of many differences, because preemption between two clock reads widens a difference.
    fn off_ns(clock: &Clock) -> u64 {
        let each = (0..100).map(|_| clock.now_ns().abs_diff(monotonic_ns()));
        each.min().unwrap()
    }

    fn has_counter() -> bool {
        let has = counter_is_trusted();
        if !has {
            println!("skip: the kernel does not trust this CPU's counter");
        }
        has
    }

    #[test]
    fn the_clock_follows_the_kernel_and_never_goes_back() {
        let clock = Clock::new();
        let mut last = clock.now_ns();
        for _ in 0..10_000 {
            let now = clock.now_ns();
            assert!(now >= last, "went back from {last} to {now}");
            last = now;
        }
        clock.check().unwrap();
        assert!(off_ns(&clock) < 20_000, "too far from CLOCK_MONOTONIC");
    }

    #[test]
    fn a_copy_follows_when_another_one_does() {
        if !has_counter() {
            return;
        }
        // A rate error of 0.5 % adds up to 500 µs in 100 ms.
        let clock = Clock::misjudged(5000);
        let kept = clock;
        std::thread::sleep(Duration::from_millis(100));
        assert!(off_ns(&kept) > 400_000, "{} ns", off_ns(&kept));
        clock.check().unwrap();
        assert!(off_ns(&kept) < 20_000, "{} ns", off_ns(&kept));
        assert_eq!(kept.source_name(), "cpu counter");
    }

    #[test]
    fn a_rate_2_percent_off_is_reported_once_and_the_kernels_clock_is_used_afterwards() {
        if !has_counter() {
            return;
        }
        for parts_per_million in [20_000, -20_000] {
            let clock = Clock::misjudged(parts_per_million);
            std::thread::sleep(Duration::from_millis(50));
            // A fault is kept until `check` returns it.
            clock.follow();
            clock.follow();
            let fault = clock.check().unwrap_err();
            let ClockFault::Counter { off_ns: by, .. } = fault else {
                panic!("{fault}");
            };
            assert!(by > 800_000, "{fault}");
            assert!(fault.to_string().contains("more than 1 %"), "{fault}");
            assert_eq!(clock.source_name(), "clock_gettime");
            assert!(off_ns(&clock) < 20_000);
            clock.check().unwrap();
        }
    }

    /// Returns the calibration of `clock`, changed as if the counter had jumped by `ticks` afterwards.
    fn jumped(clock: &Clock, ticks: i64) -> Calibration {
        let known = clock.calibration;
        Calibration {
            rate: AtomicU64::new(known.rate.load(Ordering::Relaxed)),
            base_ticks: known.base_ticks.wrapping_add_signed(-ticks),
            base_ns: known.base_ns,
            compared: Mutex::new(*known.compared.lock().unwrap()),
        }
    }

    #[test]
    fn a_jump_of_the_counter_is_found_and_hangs_no_loop() {
        if !has_counter() {
            return;
        }
        let clock = Clock::new();
        let rate = clock.calibration.rate.load(Ordering::Relaxed);
        let second = ((1_000_000_000u128 << RATE_SHIFT) / u128::from(rate)) as i64;
        assert_eq!(jumped(&clock, 0).follow().fault, None);
        // Jumps ahead, back, and to zero, as after a suspend.
        for by in [second, -second, -(counter() as i64)] {
            let calibration = jumped(&clock, by);
            // A counter below its base shows a time far ahead, so no loop hangs.
            assert!(calibration.ns_at(counter(), rate) > monotonic_ns() || by > 0);
            let fault = calibration.follow().fault;
            assert!(
                matches!(fault, Some(ClockFault::Counter { .. })),
                "{by} {fault:?}"
            );
        }
    }

    #[test]
    fn a_kernel_clock_that_is_slewed_by_8_percent_is_refused() {
        let calibration = Calibration::kernel();
        let reading = |ns, raw_ns| Reading {
            ns,
            raw_ns,
            raw_doubt_ns: 100,
            ticks: 0,
            doubt_ticks: 0,
        };
        let fault = |ns: u64, raw_ns: u64| {
            let (before, now) = (reading(7, 99), reading(7 + ns, 99 + raw_ns));
            calibration.fault(&before, &now, 0)
        };
        assert_eq!(fault(1_000_000_000, 1_000_500_000), None, "500 ppm");
        assert_eq!(
            fault(1_000, 2_200),
            None,
            "less than reading the clocks takes"
        );
        let slewed = fault(1_083_333_000, 1_000_000_000).unwrap();
        assert!(
            slewed.to_string().contains("83.3ms within 1.1s"),
            "{slewed}"
        );
    }

    #[test]
    fn the_slew_that_the_kernel_admits_is_added_up() {
        let mut clock = timex(0).unwrap_or_else(|| {
            // SAFETY: as in `timex`.
            unsafe { std::mem::zeroed() }
        });
        (clock.freq, clock.tick, clock.offset, clock.constant) = (0, 10_000, 0, 0);
        clock.status = libc::STA_NANO;
        assert_eq!(slew_ppb(&clock, false), 0);
        assert_eq!(slew_ppb(&clock, true), 500_000);
        clock.freq = -(30 << 16);
        assert_eq!(slew_ppb(&clock, false), 30_000);
        // The slew of chronyd at its maxslewrate of 83,333 ppm.
        clock.tick = 10_833;
        assert_eq!(slew_ppb(&clock, false), 83_330_000);
        (clock.freq, clock.tick, clock.offset, clock.constant) = (0, 10_000, -4_000_000, 3);
        assert_eq!(slew_ppb(&clock, false), 125_000);
        clock.status = 0;
        assert_eq!(slew_ppb(&clock, false), 125_000_000, "microseconds");
        assert!(slew_ppb_max() <= 200_000_000, "this host's slew");
    }
}
