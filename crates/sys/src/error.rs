//! Errors of the C libraries that are loaded at run time, with fields that callers can match.
//!
//! One type serves libibverbs, librdmacm, libmlx5, libfabric, MPI, NVML and PMIx. Posts and polls of libfabric have
//! [`crate::libfabric::FabricError`], GPU drivers [`crate::cuda::CudaFailure`], and io_uring
//! [`crate::uring::PostError`].

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use crate::mapping::OutOfRange;

/// Error of a C library. It is one pointer, so that results of posts and polls fit into registers. Dereferences to its
/// [`LibraryErrorKind`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryError(Box<LibraryErrorKind>);

/// The reason for a [`LibraryError`], with its values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LibraryErrorKind {
    /// The library's own file does not exist.
    #[error("{reason}")]
    NotFound {
        /// The file or name that was asked for.
        library: String,
        /// The loader's message.
        reason: String,
    },
    /// The loader cannot load the file, for example because another library that it needs is missing.
    #[error("{reason}")]
    NotLoaded {
        /// The file or name that was asked for.
        library: String,
        /// The loader's message.
        reason: String,
    },
    /// The library lacks a symbol.
    #[error("{library}: has no {symbol}{}{}", of_version(.version), needed(.needs))]
    NoSymbol {
        /// The file or name that was loaded.
        library: String,
        /// The symbol.
        symbol: String,
        /// The symbol's version; empty for libraries without versions.
        version: String,
        /// The oldest release that works; empty if unknown.
        needs: &'static str,
    },
    /// A call failed.
    #[error("{message}")]
    Call {
        /// The function's name, which also identifies the library.
        call: &'static str,
        /// The library's number of the error: errno for verbs, without a sign; otherwise as it was returned.
        code: i32,
        /// The call, its object if there were several, and the library's description of the error.
        message: String,
    },
    /// The library has no device with the name that was asked for.
    #[error("{}", no_device(.known))]
    NoDevice {
        /// The name that was asked for.
        device: String,
        /// Names of the devices that exist.
        known: Vec<String>,
    },
    /// A range lies outside its memory.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// An argument is wrong, or the call came too early, too late or on the wrong thread.
    #[error("{0}")]
    Argument(Cow<'static, str>),
    /// This library, its driver or its device does not support the request, or its answer is not understood.
    #[error("{0}")]
    Unsupported(Cow<'static, str>),
}

fn of_version(version: &str) -> String {
    match version {
        "" => String::new(),
        version => format!(" of version {version}"),
    }
}

fn needed(release: &str) -> String {
    match release {
        "" => String::new(),
        release => format!(": {release} is needed"),
    }
}

fn no_device(known: &[String]) -> String {
    match known {
        [] => "libibverbs finds no device".to_owned(),
        known => format!("libibverbs finds only {}", known.join(", ")),
    }
}

impl LibraryError {
    /// A failed call, with the library's description of the error.
    #[cold]
    pub(crate) fn call(call: &'static str, code: i32, text: impl fmt::Display) -> Self {
        Self::call_with_message(call, code, format!("{call}: {text}"))
    }

    /// A failed call, as a sentence.
    #[cold]
    pub(crate) fn call_with_message(call: &'static str, code: i32, message: String) -> Self {
        LibraryErrorKind::Call {
            call,
            code,
            message,
        }
        .into()
    }

    /// A wrong argument, or a call at the wrong time.
    #[cold]
    pub(crate) fn argument(reason: impl Into<Cow<'static, str>>) -> Self {
        LibraryErrorKind::Argument(reason.into()).into()
    }

    /// A request that this library or device does not support.
    #[cold]
    pub(crate) fn unsupported(reason: impl Into<Cow<'static, str>>) -> Self {
        LibraryErrorKind::Unsupported(reason.into()).into()
    }

    /// Inserts the object of the failed call after the call's name.
    pub(crate) fn about(mut self, object: impl fmt::Display) -> Self {
        if let LibraryErrorKind::Call { call, message, .. } = &mut *self.0
            && message.starts_with(*call)
        {
            message.insert_str(call.len(), &format!(" {object}"));
        }
        self
    }

    /// Adds the oldest release that has the missing symbol.
    pub(crate) fn needs(mut self, release: &'static str) -> Self {
        if let LibraryErrorKind::NoSymbol { needs, .. } = &mut *self.0 {
            *needs = release;
        }
        self
    }
}

impl Deref for LibraryError {
    type Target = LibraryErrorKind;

    fn deref(&self) -> &LibraryErrorKind {
        &self.0
    }
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LibraryError {}

impl From<LibraryErrorKind> for LibraryError {
    #[cold]
    fn from(kind: LibraryErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl From<OutOfRange> for LibraryError {
    #[cold]
    fn from(range: OutOfRange) -> Self {
        LibraryErrorKind::OutOfRange(range).into()
    }
}

/// Lets callers include the message in errors of their own.
impl From<LibraryError> for String {
    fn from(error: LibraryError) -> Self {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Posts and polls are fast only if their results fit into registers.
    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<LibraryError>(), size_of::<usize>());
        assert_eq!(size_of::<Result<(), LibraryError>>(), size_of::<usize>());
    }

    #[test]
    fn errors_have_readable_messages() {
        let text = |kind| LibraryError::from(kind).to_string();
        let symbol = |version: &str, needs| LibraryErrorKind::NoSymbol {
            library: "libx.so.1".into(),
            symbol: "f".into(),
            version: version.into(),
            needs,
        };
        assert_eq!(text(symbol("", "")), "libx.so.1: has no f");
        assert_eq!(
            text(symbol("X_1", "libx 2")),
            "libx.so.1: has no f of version X_1: libx 2 is needed"
        );
        let call = LibraryError::call("rdma_listen", 98, "Address already in use");
        assert_eq!(call.to_string(), "rdma_listen: Address already in use");
        let call = call.about("at 127.0.0.1");
        assert_eq!(
            call.to_string(),
            "rdma_listen at 127.0.0.1: Address already in use"
        );
        let none = |known: &[&str]| {
            text(LibraryErrorKind::NoDevice {
                device: "mlx5_9".into(),
                known: known.iter().map(|&name| name.to_owned()).collect(),
            })
        };
        assert_eq!(none(&[]), "libibverbs finds no device");
        assert_eq!(
            none(&["mlx5_0", "mlx5_1"]),
            "libibverbs finds only mlx5_0, mlx5_1"
        );
    }
}
