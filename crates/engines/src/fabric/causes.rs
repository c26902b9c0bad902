//! Usual causes of error numbers of libfabric, which are those of errno.

/// Advice for an error number; `None` for what has no usual cause.
pub(super) fn usual_cause(code: i32) -> Option<&'static str> {
    Some(match code {
        // EIO, EPIPE, ESHUTDOWN, ECONNRESET, ECONNABORTED, ENOTCONN
        5 | 32 | 108 | 104 | 103 | 107 => {
            "the process at the other end has ended, or its device is gone"
        }
        // ECONNREFUSED, EHOSTUNREACH, ENETUNREACH
        111 | 113 | 101 => "a filter or a missing route between the two devices; see --devices",
        // ETIMEDOUT
        110 => "packets were lost for longer than the provider tries again",
        // ENOMEM
        12 => "too little memory, or too little that may be locked (ulimit -l)",
        // EACCES, EPERM, EKEYREJECTED
        13 | 1 | 129 => "the peer's registration does not allow it, or is gone",
        // EMSGSIZE, FI_ETRUNC
        90 | 265 => "a message that is longer than the receive that it met",
        _ => return None,
    })
}
