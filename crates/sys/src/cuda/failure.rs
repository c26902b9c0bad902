//! Reasons why something could not be done with a GPU. Advice for each is in `tonnage_engines::memory`.

use std::fmt;

use super::abi::Code;
use crate::mapping::OutOfRange;

/// A version of CUDA, or of another interface, as drivers say it of themselves: the newest that they can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    /// The number before the dot.
    pub major: i32,
    /// The number behind it.
    pub minor: i32,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The reason why something could not be done with a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CudaFailure {
    /// The library cannot be loaded: the loader's reason.
    NoDriver(String),
    /// The library of the compiler of kernels cannot be loaded: the loader's reason.
    NoCompiler(String),
    /// The library lacks a call.
    TooOld {
        /// Name of the interface.
        interface: &'static str,
        /// The version that the driver serves; `None` where it cannot even say that.
        has: Option<CudaVersion>,
        /// The version that the call came with.
        needs: CudaVersion,
        /// The call's symbol.
        symbol: String,
    },
    /// The interface has no such call, or none that is used here.
    NotOffered {
        /// Name of the interface.
        interface: &'static str,
        /// The name that CUDA's driver gives the call.
        call: String,
        /// Reason why what it has in its place is not used here; empty where none is known.
        why: &'static str,
    },
    /// A call failed.
    Call {
        /// The call's symbol.
        call: &'static str,
        /// Its result.
        code: Code,
        /// The driver's name of it, such as "CUDA_ERROR_OUT_OF_MEMORY"; empty for a code that it has no name for.
        name: String,
        /// The driver's words for it, and what more it said.
        text: String,
    },
    /// A range lies outside of its memory.
    Outside(OutOfRange),
    /// The machine has no way from one GPU to another one's memory.
    NoPeer {
        /// The call that says so, by the driver's own name of it.
        call: &'static str,
        /// Prefix of the names of the driver's GPUs.
        name: &'static str,
        /// Number of the GPU that would reach.
        gpu: u32,
        /// Number of the GPU whose memory it would reach.
        peer: u32,
    },
    /// Streams of the GPU write no words of 64 bits.
    NoWords,
    /// A kernel was to reach memory of the host that is not pinned.
    NotPinned,
    /// Neither end of a copy is memory of a GPU.
    NoGpu,
    /// Memory of one GPU's context was handed to a stream of another one's.
    OtherGpu {
        /// Prefix of the names of the driver's GPUs.
        name: &'static str,
        /// Number of the GPU whose context the memory is of.
        memory: u32,
        /// Number of the GPU whose context the stream is of.
        stream: u32,
    },
    /// A GPU was to reach memory of a GPU that it knows nothing of, because another library has it.
    OtherDriver {
        /// Prefix of the names of the GPUs of the one that would reach.
        own: &'static str,
        /// Prefix of the names of the GPUs of the other.
        other: &'static str,
    },
}

impl CudaFailure {
    /// The driver's name of the result; empty where no call of it failed.
    pub fn name(&self) -> &str {
        match self {
            Self::Call { name, .. } => name,
            _ => "",
        }
    }

    /// The result of the call that failed; `None` where none did. Drivers of other makers took CUDA's numbers over.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Call { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// This failure, with what the call was for.
    pub(super) fn of_doing(mut self, what: &str) -> Self {
        if let Self::Call { text, .. } = &mut self {
            let before = if text.is_empty() { "" } else { ", " };
            *text += &format!("{before}{what}");
        }
        self
    }

    /// This failure, with the first of a compiler's complaints.
    pub(crate) fn with_complaint(mut self, complaints: &str) -> Self {
        if let Self::Call { text, .. } = &mut self
            && let Some(first) = complaints.lines().find(|line| !line.trim().is_empty())
        {
            *text = format!("{text}: {}", first.trim());
        }
        self
    }
}

impl fmt::Display for CudaFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver(why) => write!(f, "the driver library cannot be loaded ({why})"),
            Self::NoCompiler(why) => {
                write!(f, "the compiler of kernels cannot be loaded ({why})")
            }
            Self::TooOld {
                interface,
                has,
                needs,
                symbol,
            } => {
                match has {
                    Some(has) => write!(f, "the driver serves {interface} {has}")?,
                    None => write!(f, "the library does not say which {interface} it serves")?,
                }
                write!(f, ", and {symbol} came with {interface} {needs}")
            }
            Self::NotOffered {
                interface,
                call,
                why,
            } => {
                if !why.is_empty() {
                    return write!(f, "{interface}'s {why}");
                }
                write!(f, "nothing of {interface}'s is used in the place of {call}")
            }
            Self::Call {
                call,
                code,
                name,
                text,
            } => {
                let name = if name.is_empty() { "an error" } else { name };
                write!(f, "{call}: {name} ({code})")?;
                if text.is_empty() {
                    return Ok(());
                }
                write!(f, ": {text}")
            }
            Self::Outside(range) => range.fmt(f),
            Self::NoPeer {
                call,
                name,
                gpu,
                peer,
            } => write!(
                f,
                "{call}: {name}:{gpu} cannot reach the memory of {name}:{peer}"
            ),
            Self::NoWords => {
                write!(
                    f,
                    "the driver says that this GPU writes no words of 64 bits"
                )
            }
            Self::NotPinned => write!(
                f,
                "a kernel of a GPU reaches memory of the host only where the driver has pinned it"
            ),
            Self::NoGpu => write!(f, "neither end of the copies is memory of a GPU"),
            Self::OtherGpu {
                name,
                memory,
                stream,
            } => write!(
                f,
                "a stream of {name}:{stream} does not copy memory in the context of {name}:{memory}"
            ),
            Self::OtherDriver { own, other } => write!(
                f,
                "a GPU of {own} does not reach memory of {other}, whose driver is another library"
            ),
        }
    }
}

impl std::error::Error for CudaFailure {}

impl From<OutOfRange> for CudaFailure {
    fn from(range: OutOfRange) -> Self {
        Self::Outside(range)
    }
}
