//! Arenas over bytes that the caller owns. The parent module maps memory.

use std::any::Any;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use super::{Arena, Pages};

impl Arena {
    /// Makes an arena over the `len` bytes at `base`, which the caller still owns. `keeper` is dropped when the last
    /// holder has dropped the arena. Only then may the bytes be freed, or used in any other way.
    ///
    /// Peers cannot map such memory, so engines that share mappings with peers reject it.
    ///
    /// # Errors
    /// For zero bytes, and for more than an address range can have.
    ///
    /// # Safety
    /// Until `keeper` is dropped:
    ///
    /// - the bytes are mapped, readable and writable, and their address does not change;
    /// - no reference to them exists in this process except to atomics (`&[AtomicU8]`, not `&[u8]`): engines, devices
    ///   and peers read and write them at any time;
    /// - any value is valid in each of them, and stays harmless no matter what a peer writes there.
    pub unsafe fn over(
        base: NonNull<u8>,
        len: usize,
        keeper: Box<dyn Any + Send + Sync>,
    ) -> io::Result<Self> {
        if len == 0 || isize::try_from(len).is_err() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a memory of {len} bytes cannot be registered"),
            ));
        }
        Ok(Self {
            base,
            len,
            file: None,
            pages: Pages::Normal,
            range: None,
            _keeper: Some(keeper),
        })
    }

    /// Makes an arena over shared bytes that the caller accesses as atomics: a safe form of [`Self::over`].
    ///
    /// # Errors
    /// For zero bytes.
    pub fn over_atomics(bytes: Arc<[AtomicU8]>) -> io::Result<Self> {
        let base = NonNull::from(&*bytes).cast::<u8>();
        let len = bytes.len();
        // SAFETY: the bytes live as long as the `Arc`, which is the keeper, and do not move with it. All other holders
        // access them as atomics only, which have interior mutability and take any value.
        unsafe { Self::over(base, len, Box::new(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn atomics(len: usize) -> Arc<[AtomicU8]> {
        (0..len).map(|_| AtomicU8::new(0)).collect()
    }

    #[test]
    fn bytes_of_the_caller_are_the_arenas() {
        let bytes = atomics(100);
        let arena = Arena::over_atomics(Arc::clone(&bytes)).unwrap();
        assert_eq!((arena.len(), arena.file().is_none()), (100, true));
        arena.write(97, b"end").unwrap();
        assert_eq!(bytes[99].load(Ordering::Relaxed), b'd');
        bytes[97].store(b'E', Ordering::Relaxed);
        let mut back = [0; 3];
        arena.read(97, &mut back).unwrap();
        assert_eq!(&back, b"End");
        assert!(arena.write(98, b"end").is_err());
        drop(arena);
        assert_eq!(Arc::strong_count(&bytes), 1);
    }

    #[test]
    fn words_are_aligned_in_memory_and_not_only_in_the_arena() {
        let bytes = atomics(64);
        for skipped in 0..8 {
            let base = NonNull::from(&bytes[skipped]).cast::<u8>();
            let keeper = Box::new(Arc::clone(&bytes));
            // SAFETY: the bytes live as long as the keeper, and are atomics.
            let arena = unsafe { Arena::over(base, 32, keeper) }.unwrap();
            let aligned: Vec<u64> = (0..25).filter(|&at| arena.word(at).is_some()).collect();
            assert!(!aligned.is_empty());
            for at in aligned {
                assert_eq!((arena.address() + at) % 8, 0);
            }
        }
    }

    #[test]
    fn the_keeper_is_dropped_with_the_last_holder() {
        struct Keeper(Arc<AtomicBool>);
        impl Drop for Keeper {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let dropped = Arc::new(AtomicBool::new(false));
        let bytes = atomics(16);
        let base = NonNull::from(&*bytes).cast::<u8>();
        let keeper = Box::new(Keeper(Arc::clone(&dropped)));
        // SAFETY: `bytes` live to the end of this test and are atomics.
        let arena = Arc::new(unsafe { Arena::over(base, 16, keeper) }.unwrap());
        let other = Arc::clone(&arena);
        drop(arena);
        assert!(!dropped.load(Ordering::Relaxed));
        drop(other);
        assert!(dropped.load(Ordering::Relaxed));
    }

    #[test]
    fn zero_bytes_are_refused() {
        assert!(Arena::over_atomics(atomics(0)).is_err());
    }
}
