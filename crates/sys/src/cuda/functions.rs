//! Tables of calls of a driver, looked up at once.

/// Declares a struct of calls, by the names that CUDA's driver gives them, each with the version that it came with and
/// its arguments; all of them return a code. Names of other drivers stand in their own folders.
macro_rules! functions {
    ($calls:ident: $($name:ident = $symbol:literal since $major:literal, $minor:literal ($($argument:ty),*);)*) => {
        /// Exported calls.
        #[derive(Debug, Clone, Copy)]
        pub(super) struct $calls {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $crate::cuda::abi::Code,)*
        }

        impl $calls {
            /// Looks them up.
            ///
            /// # Errors
            /// `TooOld`, with the first that the library lacks; `NotOffered` where no version of it has the call.
            pub(super) fn of(
                library: &$crate::cuda::driver::DriverLibrary,
                has: Option<$crate::cuda::CudaVersion>,
            ) -> Result<Self, $crate::cuda::CudaFailure> {
                Ok(Self {
                    $($name: {
                        let needs = $crate::cuda::CudaVersion { major: $major, minor: $minor };
                        let address = library.symbol($symbol, needs, has)?;
                        // SAFETY: the symbol has the signature that the header declares for the name with its version,
                        // which is the one that stands here; another driver's symbol that is named in its place has the
                        // same, but for addresses of memory, which are pointers there and go the same way.
                        unsafe {
                            std::mem::transmute::<
                                std::ptr::NonNull<std::ffi::c_void>,
                                unsafe extern "C" fn($($argument),*) -> $crate::cuda::abi::Code,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

pub(crate) use functions;
