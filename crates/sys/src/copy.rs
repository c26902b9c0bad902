//! Ways to copy memory. Which one is fastest depends on the CPU, the size and whether the bytes are in a cache, so the
//! copy limit tries all of them and the `shm` engine picks one per lane.

/// One way to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The C library's `memcpy`, which chooses by size.
    Memcpy,
    /// The string instruction that recent x86 CPUs run in microcode.
    RepMovsb,
    /// Stores that bypass the caches: no line of the destination is read before it is written.
    NonTemporal,
}

impl Method {
    /// The methods that this CPU has. `Memcpy` is always the first.
    pub fn available() -> &'static [Self] {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx") {
            return &[Self::Memcpy, Self::RepMovsb, Self::NonTemporal];
        }
        &[Self::Memcpy]
    }

    /// The name in records and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcpy => "memcpy",
            Self::RepMovsb => "rep movsb",
            Self::NonTemporal => "non-temporal stores",
        }
    }

    /// Copies `len` bytes. A method that the CPU lacks copies with `memcpy`.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable for `len` bytes, and the two must not overlap.
    #[inline]
    pub(crate) unsafe fn copy(self, from: *const u8, to: *mut u8, len: usize) {
        match self {
            // SAFETY: the caller's promise is what `copy_nonoverlapping` asks for.
            Self::Memcpy => unsafe { std::ptr::copy_nonoverlapping(from, to, len) },
            // SAFETY: the caller's promise is passed on.
            Self::RepMovsb => unsafe { rep_movsb(from, to, len) },
            // SAFETY: the caller's promise is passed on.
            Self::NonTemporal => unsafe { non_temporal(from, to, len) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn rep_movsb(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: every x86-64 CPU has the instruction; it reads and writes exactly `len` bytes, which the caller promised,
    // and the direction flag is clear by the calling convention.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn non_temporal(from: *const u8, to: *mut u8, len: usize) {
    if len >= 256 && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: AVX was just detected, and the caller's promise is passed on.
        unsafe { stream_avx(from, to, len) };
    } else {
        // SAFETY: the caller's promise is what `copy_nonoverlapping` asks for.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
}

/// 128 bytes per turn with aligned streaming stores; head and tail by `memcpy`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn stream_avx(from: *const u8, to: *mut u8, len: usize) {
    use core::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    let head = to.align_offset(32).min(len);
    // SAFETY: every access below lies within `len` bytes of both pointers: the head is at most `len`, each turn is
    // entered only with 128 bytes left, and the tail is what remains. The stores are 32-byte aligned after the head.
    // The fence orders the streaming stores before whatever tells a peer that the bytes are there.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        let mut at = head;
        while at + 128 <= len {
            let (source, target) = (from.add(at), to.add(at));
            let a = _mm256_loadu_si256(source.cast());
            let b = _mm256_loadu_si256(source.add(32).cast());
            let c = _mm256_loadu_si256(source.add(64).cast());
            let d = _mm256_loadu_si256(source.add(96).cast());
            _mm256_stream_si256(target.cast(), a);
            _mm256_stream_si256(target.add(32).cast(), b);
            _mm256_stream_si256(target.add(64).cast(), c);
            _mm256_stream_si256(target.add(96).cast(), d);
            at += 128;
        }
        std::ptr::copy_nonoverlapping(from.add(at), to.add(at), len - at);
        _mm_sfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn rep_movsb(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise is what `copy_nonoverlapping` asks for.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn non_temporal(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise is what `copy_nonoverlapping` asks for.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_copies_exactly_the_bytes_asked_for() {
        let source: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
        for &method in Method::available() {
            for len in [0, 1, 31, 32, 127, 255, 256, 257, 383, 384, 4096, 9000] {
                for shift in [0, 1, 31] {
                    let mut target = vec![0xee_u8; 10_000];
                    // SAFETY: both vectors hold 10,000 bytes, and 31 + 9000 is less.
                    unsafe {
                        method.copy(
                            source.as_ptr().add(shift),
                            target.as_mut_ptr().add(shift),
                            len,
                        );
                    }
                    assert_eq!(target[shift..shift + len], source[shift..shift + len]);
                    assert!(
                        target[..shift]
                            .iter()
                            .chain(&target[shift + len..])
                            .all(|&b| b == 0xee)
                    );
                }
            }
        }
    }
}
