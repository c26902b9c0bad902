//! Compares a host's network devices with those used by the baseline.

use super::entry::EntryVerdict;
use super::verdict::CheckVerdict;
use crate::baseline::BaselineEntry;

/// A network device of the host under check.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceState {
    /// Kernel name.
    pub name: String,
    /// Link state as reported by the kernel: "up", "down", …
    pub state: String,
}

impl DeviceState {
    /// Returns whether the link certainly carries no traffic.
    fn is_down(&self) -> bool {
        let state = self.state.to_ascii_lowercase();
        ["notpresent", "dormant"].contains(&state.as_str()) || state.contains("down")
    }
}

/// Network devices of the host under check.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostDevices {
    /// Listed devices.
    pub devices: Vec<DeviceState>,
    /// Why the list may be incomplete.
    pub gap: Option<String>,
}

impl HostDevices {
    fn find(&self, name: &str) -> Option<&DeviceState> {
        self.devices.iter().find(|device| device.name == name)
    }

    fn has_all(&self, way: &[&str]) -> bool {
        let mut own = way.iter().map(|name| self.find(name));
        own.all(|device| device.is_some_and(|device| !device.is_down()))
    }

    /// Returns a verdict and reason if the device is missing or down; `None` if its link may carry traffic.
    fn fault(&self, name: &str) -> Option<(CheckVerdict, String)> {
        match (self.find(name), &self.gap) {
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

/// Reports each device that is missing on this host or is down, once. An entry lists the devices of every host in its
/// baseline group.
///
/// If this host has all devices of one of the point's lists, nothing is reported. If an entry has several lists, absent
/// devices are not reported, because any of the lists may be this host's.
pub fn device_failures(
    entries: &[&BaselineEntry],
    own: &HostDevices,
    host: &str,
) -> Vec<EntryVerdict> {
    let mut found: Vec<EntryVerdict> = Vec::new();
    for entry in entries {
        let mut same_point = entries.iter().filter(|other| other.point == entry.point);
        if same_point.any(|other| other.device_lists().any(|way| own.has_all(&way))) {
            continue;
        }
        let is_of_others =
            |name: &str| entry.device_lists().count() > 1 && own.find(name).is_none();
        for name in entry.devices().filter(|name| !is_of_others(name)) {
            if found.iter().any(|known| known.name == name) {
                continue;
            }
            if let Some((verdict, why)) = own.fault(name) {
                found.push(EntryVerdict {
                    name: name.to_owned(),
                    device: Some(name.to_owned()),
                    hosts: vec![host.to_owned()],
                    verdict,
                    why: Some(why),
                    ..EntryVerdict::unmeasured(entry)
                });
            }
        }
    }
    found
}
