//! Proof that written data has arrived. Depending on the provider's guarantees and on the option `completion`, the
//! completion of a write is this proof, or a later flush gives it.
//!
//! [`super::choose`] finds out which guarantees the provider offers.

use tonnage_units::{Error, Result};

/// How the arrival of writes is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrivalProof {
    /// The initiator itself copies the bytes (process_vm_writev) before the write completes.
    Synchronous,
    /// Every write requests a completion that means delivery.
    EveryWrite,
    /// A completion only means that the buffer may be reused. At the end of a trial, a read of the last byte proves
    /// arrival, because the provider executes the read after the writes. If `on_request`, batches and timetables
    /// request delivery instead.
    Flush {
        /// Whether a lane can request delivery.
        on_request: bool,
    },
}

/// Guarantees of a provider, for its current way of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Granted {
    /// Completions can mean delivery.
    pub(super) delivery: bool,
    /// Reads are ordered after earlier writes, so they see the written bytes.
    pub(super) reads_after_writes: bool,
    /// The initiator itself copies the bytes of a write.
    pub(super) synchronous: bool,
}

impl ArrivalProof {
    /// Chooses the proof for a value of the option `completion`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the provider's grants do not allow this proof.
    pub(super) fn choose(option: &str, granted: Granted, provider: &str) -> Result<Self> {
        let unavailable = |why: &str, how: &str| Error::Unavailable {
            what: format!("completion={option} on fabric:{provider}"),
            why: why.to_owned(),
            how: how.to_owned(),
        };
        let Granted {
            delivery,
            reads_after_writes,
            synchronous,
        } = granted;
        match option {
            "delivery" if synchronous => Ok(Self::Synchronous),
            "delivery" if delivery => Ok(Self::EveryWrite),
            "delivery" => Err(unavailable(
                "the provider does not grant completions that mean delivery",
                "Use --engine-option completion=auto, or --op write-imm, which counts arrivals",
            )),
            "transmit" if synchronous => Ok(Self::Synchronous),
            "transmit" if reads_after_writes => Ok(Self::Flush { on_request: false }),
            "transmit" => Err(unavailable(
                "the provider does not order reads after writes, so nothing could prove that writes arrived",
                "Use --engine-option completion=delivery",
            )),
            _ if synchronous => Ok(Self::Synchronous),
            _ if reads_after_writes => Ok(Self::Flush {
                on_request: delivery,
            }),
            _ if delivery => Ok(Self::EveryWrite),
            _ => Err(unavailable(
                "the provider grants neither completions that mean delivery nor reads ordered after writes, so \
                 nothing could prove that writes arrived",
                "Use --op send, which counts arrivals",
            )),
        }
    }

    /// Describes the proof, for records.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Synchronous => {
                "delivery: the initiator copies the bytes itself before a write completes"
            }
            Self::EveryWrite => "delivery: a completed write is in the peer's memory",
            Self::Flush { on_request: true } => {
                "batches and paced operations: delivery; streams: transmit (the buffer may be reused), and a trial \
                 ends with a read of the last byte"
            }
            Self::Flush { on_request: false } => {
                "transmit: the buffer may be reused; a trial ends with a read of the last byte"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Granted = Granted {
        delivery: true,
        reads_after_writes: true,
        synchronous: false,
    };

    fn chosen(option: &str, granted: Granted) -> Option<ArrivalProof> {
        ArrivalProof::choose(option, granted, "x").ok()
    }

    #[test]
    fn arrival_is_never_taken_for_granted() {
        let unordered = Granted {
            reads_after_writes: false,
            ..ALL
        };
        let undelivered = Granted {
            delivery: false,
            ..ALL
        };
        let neither = Granted {
            delivery: false,
            ..unordered
        };
        let flush = |on_request| Some(ArrivalProof::Flush { on_request });
        assert_eq!(chosen("auto", ALL), flush(true));
        assert_eq!(chosen("auto", unordered), Some(ArrivalProof::EveryWrite));
        assert_eq!(chosen("auto", undelivered), flush(false));
        assert_eq!(chosen("auto", neither), None);
        assert_eq!(chosen("delivery", ALL), Some(ArrivalProof::EveryWrite));
        assert_eq!(chosen("delivery", undelivered), None);
        assert_eq!(chosen("transmit", ALL), flush(false));
        assert_eq!(chosen("transmit", unordered), None);
        let synchronous = Granted {
            synchronous: true,
            ..neither
        };
        for option in ["auto", "delivery", "transmit"] {
            assert_eq!(
                chosen(option, synchronous),
                Some(ArrivalProof::Synchronous),
                "{option}"
            );
        }
    }
}
