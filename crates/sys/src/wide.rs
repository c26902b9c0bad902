//! Loops over plain numbers in the widest instructions that the CPU has, where the compiler can use them.
//!
//! The program is built for the oldest CPU of its architecture. A loop that is handed to [`run`] is compiled twice, and
//! its wider form runs on CPUs that have AVX2; elsewhere, and on other architectures, the plain one does. What it
//! computes is the same.

/// Runs a piece of work that writes to `out`. Calls inside must be inlined to become wide: mark them
/// `#[inline(always)]`. `out` is an argument so that the compiler knows it to be apart from everything else.
#[inline]
pub fn run<T: ?Sized>(out: &mut T, work: impl FnOnce(&mut T)) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has the instructions that the function is compiled for.
        return unsafe { with_avx2(out, work) };
    }
    work(out)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<T: ?Sized>(out: &mut T, work: impl FnOnce(&mut T)) {
    work(out)
}

#[cfg(test)]
mod tests {
    #[test]
    fn work_is_done_once() {
        let mut numbers = [1u32; 100];
        super::run(&mut numbers, |numbers| {
            let indexed = numbers.iter_mut().zip(0u32..);
            indexed.for_each(|(number, index)| *number += index);
        });
        assert_eq!((numbers.iter().sum::<u32>(), numbers[99]), (5050, 100));
    }
}
