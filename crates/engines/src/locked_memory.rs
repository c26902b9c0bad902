//! Advice where a device cannot register memory: most often this process may lock too little of it.

/// Words behind the refusal of so many bytes; empty where the limit is not the reason.
pub(crate) fn advice(bytes: usize) -> String {
    match tonnage_sys::process::locked_memory_limit() {
        Some(limit) if limit < bytes as u64 => format!(
            ": this process may lock {limit} bytes of memory; raise it with `ulimit -l unlimited`, or LimitMEMLOCK of the \
             service that starts it"
        ),
        _ => String::new(),
    }
}
