//! Which host, container and network this process is in, by the kernel's own names.

/// Returns the name of this host, as messages and records show it.
pub fn name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Returns what changes when this host starts anew, and differs between hosts; empty where the system does not say it.
pub fn boot_id() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Returns what differs between containers; empty where the system does not say it.
pub fn pid_namespace() -> String {
    namespace("pid")
}

/// Returns what differs between networks of one machine; empty where the system does not say it.
pub fn network_namespace() -> String {
    namespace("net")
}

fn namespace(kind: &str) -> String {
    std::fs::read_link(format!("/proc/self/ns/{kind}"))
        .map(|link| link.display().to_string())
        .unwrap_or_default()
}
