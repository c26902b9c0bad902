//! Reasons for failed GPU operations. Advice for each is in `tonnage_engines::memory`.

use std::fmt;

use super::abi::Code;
use crate::mapping::OutOfRange;

/// A version of CUDA or of another interface. For a driver, the newest version that it supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    /// The number before the dot.
    pub major: i32,
    /// The number after the dot.
    pub minor: i32,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The reason for a failed GPU operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CudaFailure {
    /// The library cannot be loaded: the loader's reason.
    NoDriver(String),
    /// The library of the kernel compiler cannot be loaded: the loader's reason.
    NoCompiler(String),
    /// The library lacks a call.
    TooOld {
        /// Name of the interface.
        interface: &'static str,
        /// The version that the driver supports; `None` if it does not report one.
        has: Option<CudaVersion>,
        /// The version that introduced the call.
        needs: CudaVersion,
        /// The call's symbol.
        symbol: String,
    },
    /// The interface has no such call, or none that is usable here.
    NotOffered {
        /// Name of the interface.
        interface: &'static str,
        /// The call's name in CUDA's driver.
        call: String,
        /// Why the interface's counterpart of the call is not used; empty if there is no known counterpart.
        why: &'static str,
    },
    /// A call failed.
    Call {
        /// The call's symbol.
        call: &'static str,
        /// Result of the call.
        code: Code,
        /// The driver's name of the code, such as "CUDA_ERROR_OUT_OF_MEMORY"; empty if it has none.
        name: String,
        /// The driver's description of the code, and further details.
        text: String,
    },
    /// A range lies outside of its memory.
    Outside(OutOfRange),
    /// The machine has no path from one GPU to another one's memory.
    NoPeer {
        /// The call that reported it, by the driver's own name.
        call: &'static str,
        /// Prefix of the names of the driver's GPUs.
        name: &'static str,
        /// Number of the accessing GPU.
        gpu: u32,
        /// Number of the GPU that owns the memory.
        peer: u32,
    },
    /// Streams of the GPU cannot write words of 64 bits.
    NoWords,
    /// A kernel was given host memory that is not pinned.
    NotPinned,
    /// Neither end of a copy is memory of a GPU.
    NoGpu,
    /// Memory of one GPU's context was passed to a stream of another one's.
    OtherGpu {
        /// Prefix of the names of this driver's GPUs, such as "cuda" in "cuda:1".
        name: &'static str,
        /// Number of the GPU with the context that owns the memory.
        memory: u32,
        /// Number of the GPU with the context that owns the stream.
        stream: u32,
    },
    /// A GPU was to access memory of another driver library. Its own library doesn't know that memory.
    OtherDriver {
        /// Prefix of the names of the accessing driver's GPUs.
        own: &'static str,
        /// Prefix of the names of the other driver's GPUs.
        other: &'static str,
    },
}

impl CudaFailure {
    /// Returns the driver's name of the result code; empty if no call failed.
    pub fn name(&self) -> &str {
        match self {
            Self::Call { name, .. } => name,
            _ => "",
        }
    }

    /// Returns the result code of the failed call; `None` if no call failed. Drivers of other makers use CUDA's
    /// numbers.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Call { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Adds the purpose of the call to this failure.
    pub(super) fn while_doing(mut self, what: &str) -> Self {
        if let Self::Call { text, .. } = &mut self {
            let before = if text.is_empty() { "" } else { ", " };
            *text += &format!("{before}{what}");
        }
        self
    }

    /// Adds the first line of a compiler's messages to this failure.
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
                write!(f, "the GPU kernel compiler cannot be loaded ({why})")
            }
            Self::TooOld {
                interface,
                has,
                needs,
                symbol,
            } => {
                match has {
                    Some(has) => write!(f, "the driver supports {interface} {has}")?,
                    None => write!(f, "the library does not report its {interface} version")?,
                }
                write!(f, ", and {symbol} needs {interface} {needs} or newer")
            }
            Self::NotOffered {
                interface,
                call,
                why,
            } => {
                if !why.is_empty() {
                    return write!(f, "{interface}'s {why}");
                }
                write!(f, "tonnage uses no {interface} counterpart of {call}")
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
                    "the driver reports that streams of this GPU cannot write 64-bit words"
                )
            }
            Self::NotPinned => write!(
                f,
                "a GPU kernel can access host memory only if the driver has pinned it"
            ),
            Self::NoGpu => write!(f, "neither end of the copies is GPU memory"),
            Self::OtherGpu {
                name,
                memory,
                stream,
            } => write!(
                f,
                "a stream of {name}:{stream} cannot copy memory in the context of {name}:{memory}"
            ),
            Self::OtherDriver { own, other } => write!(
                f,
                "a {own} GPU cannot reach {other} memory: they use different driver libraries"
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
