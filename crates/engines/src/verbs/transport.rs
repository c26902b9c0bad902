//! Transports of verbs: the supported ones, and the errors for others.

use tonnage_units::{Error, Result};

/// A transport. Its name follows the colon in the engine's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VerbsTransport {
    /// Reliable connections.
    Rc,
    /// Dynamically connected transport of mlx5 NICs.
    Dc,
    /// Reliable connections from the kernel to user-space queue pairs.
    Kernel,
}

impl VerbsTransport {
    /// Returns the transport of a variant. An unknown variant gives [`Self::Rc`], but [`check_transport`] refuses to
    /// open it.
    pub(super) fn from_variant(variant: &str) -> Self {
        match variant {
            DC => Self::Dc,
            KERNEL => Self::Kernel,
            _ => Self::Rc,
        }
    }

    /// The engine's name, including this transport.
    pub(super) fn engine(self) -> &'static str {
        match self {
            Self::Rc => "verbs:rc",
            Self::Dc => "verbs:dc",
            Self::Kernel => "verbs:kernel",
        }
    }

    /// The name of the transport alone.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rc => RC,
            Self::Dc => DC,
            Self::Kernel => KERNEL,
        }
    }

    /// Adds this transport's name to [`Error::Unavailable`]. Returns other errors unchanged.
    pub(super) fn named(self, error: Error) -> Error {
        match error {
            Error::Unavailable { why, how, .. } => Error::Unavailable {
                what: self.engine().to_owned(),
                why,
                how,
            },
            other => other,
        }
    }
}

pub(super) const RC: &str = "rc";
pub(super) const DC: &str = "dc";
pub(super) const KERNEL: &str = "kernel";

/// Refuses a transport that tonnage does not support. For transports of libibverbs, the error explains why.
pub(super) fn check_transport(variant: &str) -> Result<()> {
    let (why, how) = match variant {
        RC | DC | KERNEL => return Ok(()),
        "uc" => (
            "UC has no reads, and its writes are not acknowledged: one that is lost would count as completed".to_owned(),
            HAS,
        ),
        "ud" => (
            "UD supports neither reads nor writes, and its messages are limited to one packet".to_owned(),
            HAS,
        ),
        "xrc" => (
            "XRC lets processes of a host share receives, and its reads and writes are those of RC".to_owned(),
            HAS,
        ),
        "srd" => (
            "SRD is the transport of AWS's EFA, which tonnage uses by libfabric".to_owned(),
            "Choose fabric:efa",
        ),
        other => (
            format!("this version of tonnage has no transport {other:?} of verbs"),
            HAS,
        ),
    };
    Err(Error::Unavailable {
        what: format!("verbs:{variant}"),
        why,
        how: how.to_owned(),
    })
}

const HAS: &str = "Choose verbs:rc (reliable connections), verbs:dc (dynamically connected) or verbs:kernel (posted in \
                   the kernel), or fabric:verbs;ofi_rxm for libfabric over RDMA devices";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_refused_by_name_with_the_reason() {
        for (variant, reason, advice) in [
            ("uc", "no reads", "verbs:rc"),
            ("ud", "limited to one packet", "verbs:rc"),
            ("xrc", "share receives", "verbs:rc"),
            ("srd", "EFA", "fabric:efa"),
            ("rd", "no transport \"rd\"", "verbs:rc"),
        ] {
            match check_transport(variant) {
                Err(Error::Unavailable { what, why, how }) => {
                    assert_eq!(what, format!("verbs:{variant}"));
                    assert!(why.contains(reason) && how.contains(advice), "{why}; {how}");
                }
                other => panic!("{other:?}"),
            }
        }
        for transport in [
            VerbsTransport::Rc,
            VerbsTransport::Dc,
            VerbsTransport::Kernel,
        ] {
            check_transport(transport.name()).unwrap();
            assert_eq!(VerbsTransport::from_variant(transport.name()), transport);
            assert_eq!(transport.engine(), format!("verbs:{}", transport.name()));
        }
    }

    #[test]
    fn only_unavailable_errors_get_the_name_of_the_transport() {
        let absent = Error::Unavailable {
            what: "verbs:rc".into(),
            why: "gone".into(),
            how: "wait".into(),
        };
        let named = VerbsTransport::Dc.named(absent).to_string();
        assert!(
            named.contains("verbs:dc") && !named.contains("verbs:rc"),
            "{named}"
        );
        let other = VerbsTransport::Dc.named(Error::Failed("it failed".into()));
        assert_eq!(
            other.to_string(),
            Error::Failed("it failed".into()).to_string()
        );
    }
}
