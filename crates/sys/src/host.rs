//! The kernel's names for this process's host, container and network.

/// Returns the host name, for messages and records.
pub fn name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Returns the identifier of this boot, which differs between hosts; empty if the system does not report it.
pub fn boot_id() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Returns the identifier of the PID namespace, which differs between containers; empty if the system does not report
/// it.
pub fn pid_namespace() -> String {
    namespace("pid")
}

/// Returns the identifier of the network namespace, which differs between networks of one machine; empty if the system
/// does not report it.
pub fn network_namespace() -> String {
    namespace("net")
}

/// Returns the identifier of the time namespace, which shifts `CLOCK_MONOTONIC`; empty if the system does not report
/// it.
pub fn time_namespace() -> String {
    namespace("time")
}

fn namespace(kind: &str) -> String {
    std::fs::read_link(format!("/proc/self/ns/{kind}"))
        .map(|link| link.display().to_string())
        .unwrap_or_default()
}
