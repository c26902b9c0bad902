//! Methods to copy memory. The fastest method depends on the CPU, the size and whether the bytes are in a cache.
//! Therefore the copy bound tries all methods, and the `shm` engine picks one per lane.

/// A method to copy memory.
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
    /// Returns the methods that this CPU supports. `Memcpy` is always the first.
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

    /// Shortest length at which this method differs from `memcpy`.
    pub fn bytes_min(self) -> u64 {
        match self {
            Self::Memcpy | Self::RepMovsb => 0,
            Self::NonTemporal => 256,
        }
    }

    /// Copies `len` bytes. A method that the CPU lacks copies with `memcpy`.
    ///
    /// Other threads and processes may write to either side at the same time. The result is then a mixture.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable for `len` bytes, and the two must not overlap.
    #[inline]
    pub(crate) unsafe fn copy(self, from: *const u8, to: *mut u8, len: usize) {
        match self {
            // SAFETY: the caller's promise is passed on, here and below.
            Self::Memcpy => unsafe { shared::memcpy(from, to, len) },
            // SAFETY: as above.
            Self::RepMovsb => unsafe { shared::rep_movsb(from, to, len) },
            // SAFETY: as above.
            Self::NonTemporal => unsafe { shared::non_temporal(from, to, len) },
        }
    }
}

/// Copies of memory that other threads or processes may be writing. In Rust, this race is undefined behaviour unless
/// each access is atomic. Here CPU instructions make the accesses. They are atomic per byte, and the compiler cannot
/// see into the assembly.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod shared {
    use std::arch::asm;

    /// Bytes that one iteration of the non-temporal copy moves.
    const TURN: usize = 128;

    /// # Safety
    /// As for [`super::Method::copy`].
    #[inline]
    pub(super) unsafe fn memcpy(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: calls the C library's function with its calling convention; the caller's promise meets its
        // requirements.
        unsafe {
            asm!(
                "call {memcpy}@PLT",
                memcpy = sym libc::memcpy,
                inout("rdi") to => _,
                inout("rsi") from => _,
                inout("rdx") len => _,
                clobber_abi("C"),
            );
        }
    }

    /// # Safety
    /// As for [`super::Method::copy`].
    #[inline]
    pub(super) unsafe fn rep_movsb(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: every x86-64 CPU has the instruction; it reads and writes exactly `len` bytes, which the caller
        // promised, and the direction flag is clear by the calling convention.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// # Safety
    /// As for [`super::Method::copy`].
    pub(super) unsafe fn non_temporal(from: *const u8, to: *mut u8, len: usize) {
        if (len as u64) < super::Method::NonTemporal.bytes_min()
            || !std::arch::is_x86_feature_detected!("avx")
        {
            // SAFETY: the caller's promise is passed on.
            return unsafe { memcpy(from, to, len) };
        }
        // Copy the head and tail with `memcpy`, so that the stores between them are aligned.
        let head = to.align_offset(32);
        let body = (len - head) / TURN * TURN;
        let tail = head + body;
        // SAFETY: head, body and tail are the `len` bytes that the caller promised: the head is less than 32 of them.
        // AVX was just detected.
        unsafe {
            memcpy(from, to, head);
            stream(from.add(head), to.add(head), body);
            memcpy(from.add(tail), to.add(tail), len - tail);
        }
    }

    /// Uses streaming stores, with a final fence that orders them before any signal to a peer that the bytes have
    /// arrived.
    ///
    /// # Safety
    /// As for [`super::Method::copy`]; `len` is a multiple of [`TURN`] and above 0, `to` of 32, and the CPU has AVX.
    unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: reads and writes exactly `len` bytes by the caller's promise; all registers that change are declared.
        unsafe {
            asm!(
                "2:",
                "vmovdqu ymm0, ymmword ptr [rsi]",
                "vmovdqu ymm1, ymmword ptr [rsi + 32]",
                "vmovdqu ymm2, ymmword ptr [rsi + 64]",
                "vmovdqu ymm3, ymmword ptr [rsi + 96]",
                "vmovntdq ymmword ptr [rdi], ymm0",
                "vmovntdq ymmword ptr [rdi + 32], ymm1",
                "vmovntdq ymmword ptr [rdi + 64], ymm2",
                "vmovntdq ymmword ptr [rdi + 96], ymm3",
                "add rsi, 128",
                "add rdi, 128",
                "sub rcx, 128",
                "jnz 2b",
                "sfence",
                "vzeroupper",
                inout("rsi") from => _,
                inout("rdi") to => _,
                inout("rcx") len => _,
                // Includes the vector registers, because vzeroupper changes all of them.
                clobber_abi("C"),
                options(nostack)
            );
        }
    }
}

/// The same functions for other processors and for Miri. They call the C library's `memcpy` through a pointer that is
/// opaque to the compiler.
#[cfg(any(not(target_arch = "x86_64"), miri))]
mod shared {
    use std::hint::black_box;

    /// # Safety
    /// As for [`super::Method::copy`].
    pub(super) unsafe fn memcpy(from: *const u8, to: *mut u8, len: usize) {
        type Memcpy = unsafe extern "C" fn(
            *mut libc::c_void,
            *const libc::c_void,
            libc::size_t,
        ) -> *mut libc::c_void;
        let memcpy: Memcpy = black_box(libc::memcpy);
        // SAFETY: the caller's promise meets the function's requirements.
        unsafe { memcpy(to.cast(), from.cast(), len) };
    }

    pub(super) use memcpy as rep_movsb;
    pub(super) use memcpy as non_temporal;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_copies_exactly_the_requested_bytes() {
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
