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
}

impl DeviceState {
    /// Returns whether the link certainly carries nothing.
    fn is_down(&self) -> bool {
        let state = self.state.to_ascii_lowercase();
        ["notpresent", "dormant"].contains(&state.as_str()) || state.contains("down")
    }
}

/// Network devices of the host that is checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostDevices {
    /// Devices that are listed.
    pub devices: Vec<DeviceState>,
    /// Reason why there may be others that are not listed.
    pub gap: Option<String>,
}

impl HostDevices {
    fn named(&self, name: &str) -> Option<&DeviceState> {
        self.devices.iter().find(|device| device.name == name)
    }

    fn has_all(&self, way: &[&str]) -> bool {
        let mut own = way.iter().map(|name| self.named(name));
        own.all(|device| device.is_some_and(|device| !device.is_down()))
    }

    /// Verdict on a device by its name, and why; none on one whose link may carry bytes.
    fn fault(&self, name: &str) -> Option<(CheckVerdict, String)> {
        match (self.named(name), &self.gap) {
            (None, Some(gap)) => Some((CheckVerdict::Error, format!("{name} is not seen: {gap}"))),
            (None, None) => Some((CheckVerdict::Fail, format!("{name} is gone"))),
            (Some(device), _) if device.is_down() => Some((
                CheckVerdict::Fail,
                format!("link of {name} is {}", device.state),
            )),
            _ => None,
        }
    }
}

/// Verdicts on devices of entries that this host lacks, or whose links are down: each device once. An entry's figures
/// went over the devices of one way on each host; where this host has a way of the same point, it lacks nothing. Which
/// of several ways a host has lost nobody can say.
pub fn device_failures(
    entries: &[&BaselineEntry],
    own: &HostDevices,
    host: &str,
) -> Vec<EntryVerdict> {
    let mut found: Vec<EntryVerdict> = Vec::new();
    for entry in entries {
        let mut same_point = entries.iter().filter(|other| other.point == entry.point);
        if same_point.any(|other| other.ways().any(|way| own.has_all(&way))) {
            continue;
        }
        let is_of_others = |name: &str| entry.ways().count() > 1 && own.named(name).is_none();
        for name in entry.devices().filter(|name| !is_of_others(name)) {
            if found.iter().any(|known| known.name == name) {
                continue;
            }
            if let Some((verdict, why)) = own.fault(name) {
                found.push(EntryVerdict {
                    name: name.to_owned(),
                    hosts: vec![host.to_owned()],
                    verdict,
                    why: Some(why),
                    ..EntryVerdict::of(entry)
                });
            }
        }
    }
    found
}
