//! Completion states of failed work requests: their names and usual causes.

use tonnage_sys::verbs::status_name;

/// Returns the library's name of a state.
pub(super) fn state_name(state: u32) -> &'static str {
    status_name(state).unwrap_or("unknown")
}

/// Returns the usual cause of a state, given the library's name of the state; `None` if there is no typical cause.
pub(super) fn usual_cause(name: &str) -> Option<&'static str> {
    Some(match name {
        "RETRY_EXC_ERR" => {
            "the peer or its device is gone, its link is down, packets are lost for longer than it retries \
             (engine-options retry and timeout), or they are too long for a switch on the path (mtu)"
        }
        "RNR_RETRY_EXC_ERR" => {
            "the peer posted no receives for longer than the sender retries (engine-option rnr-retry)"
        }
        "REM_ACCESS_ERR" => "the peer's registration does not allow it, or is gone",
        "REM_INV_REQ_ERR" => {
            "a message longer than its receive, or more reads than the peer accepts (engine-option rd-atomic)"
        }
        "REM_OP_ERR" => "the peer's device could not finish the request: see its kernel's log",
        "LOC_LEN_ERR" => "a message longer than its receive, or than the port carries",
        "LOC_PROT_ERR" | "LOC_ACCESS_ERR" => {
            "this side's registration does not allow it, or is gone"
        }
        "WR_FLUSH_ERR" => "an operation before it has failed on the same queue pair",
        "LOC_QP_OP_ERR" => {
            "the device cannot carry out this work request; a software device also reports this when its interface is \
             down or has no route to the peer"
        }
        "FATAL_ERR" => "the device has failed, or is gone",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_belongs_to_an_existing_state() {
        let names: Vec<_> = (0..64).filter_map(status_name).collect();
        let known = names.iter().filter(|name| usual_cause(name).is_some());
        assert_eq!(known.count(), 11);
        assert_eq!(status_name(12), Some("RETRY_EXC_ERR"));
        assert_eq!(status_name(10), Some("REM_ACCESS_ERR"));
        assert_eq!(status_name(5), Some("WR_FLUSH_ERR"));
        assert_eq!(status_name(24), None);
    }
}
