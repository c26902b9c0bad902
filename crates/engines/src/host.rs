//! Which host and which container this process is in, for engines whose ranks must share one.

/// Changes when the host starts anew, and differs between hosts; empty where the system does not say it.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Differs between containers; empty where the system does not say it.
pub(crate) fn pid_namespace() -> String {
    std::fs::read_link("/proc/self/ns/pid")
        .map(|link| link.display().to_string())
        .unwrap_or_default()
}
