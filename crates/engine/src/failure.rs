//! An operation's failure, as reported by the library or device that executed it.

use std::fmt;

use tonnage_units::Error;

use crate::{LaneKind, Peer};

/// A failed operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// The library's name for the error, such as "Connection refused" or "RETRY_EXC".
    pub name: String,
    /// The library's error number.
    pub code: i32,
    /// The engine that executed the operation, such as "fabric:tcp".
    pub engine: String,
    /// Kind of the operation.
    pub operation: Option<LaneKind>,
    /// Peer at the other end.
    pub peer: Option<Peer>,
    /// This side's device.
    pub device: Option<String>,
    /// Number of the queue pair, if there are several to a peer.
    pub queue_pair: Option<u32>,
    /// The device's own code, if it has one.
    pub vendor_code: Option<u32>,
    /// The usual cause, and how to fix it.
    pub usual_cause: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.engine.is_empty() {
            write!(f, "{}: ", self.engine)?;
        }
        f.write_str(self.operation.map_or("an operation", LaneKind::name))?;
        if let Some(peer) = self.peer {
            write!(f, " with rank {peer}")?;
        }
        if let Some(device) = &self.device {
            write!(f, " on {device}")?;
        }
        write!(f, " failed: {} ({})", self.name, self.code)?;
        if let Some(queue_pair) = self.queue_pair {
            write!(f, ", queue pair {queue_pair}")?;
        }
        if let Some(code) = self.vendor_code {
            write!(f, ", vendor code {code:#x}")?;
        }
        if let Some(cause) = &self.usual_cause {
            write!(f, "; usual cause: {cause}")?;
        }
        Ok(())
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verb;

    #[test]
    fn a_failure_message_contains_every_known_detail() {
        let least = Failure {
            name: "timed out".into(),
            code: 110,
            ..Failure::default()
        };
        assert_eq!(least.to_string(), "an operation failed: timed out (110)");
        let most = Failure {
            engine: "verbs:rc".into(),
            operation: Some(LaneKind::Initiate(Verb::Read)),
            peer: Some(3),
            device: Some("mlx5_0".into()),
            queue_pair: Some(77),
            vendor_code: Some(0x88),
            usual_cause: Some("the peer is gone".into()),
            ..least
        };
        assert_eq!(
            most.to_string(),
            "verbs:rc: read with rank 3 on mlx5_0 failed: timed out (110), queue pair 77, vendor code 0x88; usual cause: \
             the peer is gone"
        );
    }
}
