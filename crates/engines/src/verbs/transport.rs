//! Transports of verbs: those that the engine has, and the refusals of those that it does not.

use tonnage_units::{Error, Result};

/// A transport, by what follows the engine's name after a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VerbsTransport {
    /// Reliable connections.
    Rc,
    /// Dynamically connected, of mlx5 cards.
    Dc,
    /// Reliable connections of the kernel, to queue pairs of user space.
    Kernel,
}

impl VerbsTransport {
    /// The transport of a variant; of one that is none, reliable connections, which nobody opens then.
    pub(super) fn of(variant: &str) -> Self {
        match variant {
            DC => Self::Dc,
            KERNEL => Self::Kernel,
            _ => Self::Rc,
        }
    }

    /// The engine's name with it.
    pub(super) fn engine(self) -> &'static str {
        match self {
            Self::Rc => "verbs:rc",
            Self::Dc => "verbs:dc",
            Self::Kernel => "verbs:kernel",
        }
    }

    /// Its own name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rc => RC,
            Self::Dc => DC,
            Self::Kernel => KERNEL,
        }
    }

    /// An error of something that is not there, under the name of this transport.
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

/// Refuses a transport that the engine does not have, by its name where it is one of verbs.
pub(super) fn check_transport(variant: &str) -> Result<()> {
    let (why, how) = match variant {
        RC | DC | KERNEL => return Ok(()),
        "uc" => (
            "UC has no reads, and its writes are not acknowledged: one that is lost would count as completed".to_owned(),
            HAS,
        ),
        "ud" => (
            "UD carries datagrams of one packet, and neither reads nor writes".to_owned(),
            HAS,
        ),
        "xrc" => (
            "XRC lets processes of a host share receives, and its reads and writes are those of RC".to_owned(),
            HAS,
        ),
        "srd" => (
            "SRD is the transport of AWS's EFA, which is reached by libfabric here".to_owned(),
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

const HAS: &str = "It has verbs:rc, reliable connections, verbs:dc, dynamically connected, and verbs:kernel, which posts in \
                   the kernel; what libfabric makes of a device is fabric:verbs;ofi_rxm";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_refused_by_name_with_the_reason() {
        for (variant, reason, advice) in [
            ("uc", "no reads", "verbs:rc"),
            ("ud", "datagrams", "verbs:rc"),
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
            assert_eq!(VerbsTransport::of(transport.name()), transport);
            assert_eq!(transport.engine(), format!("verbs:{}", transport.name()));
        }
    }

    #[test]
    fn only_an_absence_is_named_for_the_transport() {
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
