//! Runs loops over plain numbers with AVX2 vector instructions, if the CPU has them and the compiler can use them.
//!
//! The program is built for the oldest CPU of its architecture. A loop passed to [`run`] is compiled twice; its wider
//! form runs on CPUs with AVX2. On other CPUs and architectures, the plain form runs. Both compute the same.

/// Runs work that writes to `out`. Functions that it calls must be `#[inline(always)]` to be vectorized too. `out` is
/// an argument so that the compiler knows that nothing else aliases it.
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
