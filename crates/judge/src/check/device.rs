//! Devices of a host beside those that the baseline's figures went over.

use super::entry::EntryVerdict;
use super::verdict::CheckVerdict;
use crate::baseline::BaselineEntry;

/// A network device of the host that is checked.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceState {
    /// The kernel's name.
    pub name: String,
    /// State of its link: "up", "down", … as the kernel says it.
    pub state: String,
    /// Nominal speed of its link; `None` where the driver does not say.
    pub link_bytes_per_s: Option<f64>,
}

impl DeviceState {
    /// Returns whether the link certainly carries nothing.
    fn is_down(&self) -> bool {
        let state = self.state.to_ascii_lowercase();
        ["down", "lowerlayerdown", "notpresent", "dormant"].contains(&state.as_str())
            || state.contains("down")
    }
}

/// Verdicts on devices of entries that this host lacks, or whose links are down: each device once. An entry's figures
/// went over one device of each host; where this host has another entry's device of the same point, it lacks nothing.
pub fn device_failures(
    entries: &[&BaselineEntry],
    devices: &[DeviceState],
    host: &str,
) -> Vec<EntryVerdict> {
    let mut found: Vec<EntryVerdict> = Vec::new();
    for entry in entries {
        for name in entry.devices() {
            let why = match devices.iter().find(|device| device.name == name) {
                None => format!("{name} is gone"),
                Some(device) if device.is_down() => format!("link of {name} is {}", device.state),
                Some(_) => continue,
            };
            if found.iter().any(|known| known.name == name) || has_other(entries, entry, devices) {
                continue;
            }
            found.push(EntryVerdict {
                name: name.to_owned(),
                hosts: vec![host.to_owned()],
                verdict: CheckVerdict::Fail,
                why: Some(why),
                ..EntryVerdict::of(entry)
            });
        }
    }
    found
}

/// Returns whether the same point has an entry all of whose devices are here and up.
fn has_other(entries: &[&BaselineEntry], entry: &BaselineEntry, devices: &[DeviceState]) -> bool {
    let is_up = |name: &str| {
        let mut own = devices.iter().filter(|device| device.name == name);
        own.any(|device| !device.is_down())
    };
    entries.iter().any(|other| {
        other.point == entry.point && other.device != entry.device && other.devices().all(is_up)
    })
}
