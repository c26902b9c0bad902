//! The remark about a device, such as a GPU, that serves the copies of several processes in time slices. `bound`
//! handles a different consequence: the sum of all copy rates cannot exceed the device's own copy rate.

use std::collections::BTreeMap;

use crate::opening::description::OpenMessage;
use tonnage_engine::DeviceMemoryAccess;
use tonnage_engine::memory::BusDevice;
use tonnage_plan::point::Traffic;
use tonnage_plan::transfer::{Pacing, TransferPoint};
use tonnage_ranks::{Distinct, Hosts, RankInfo};
use tonnage_units::number_list;

/// Ranks that request copies from the same device.
struct DeviceUsers<'a> {
    device: &'a BusDevice,
    ranks: Vec<u32>,
    first: (&'a str, u32),
    are_several: bool,
}

/// On rank 0, returns the remark about the first device that serves several processes in time slices. `None` if no
/// device does.
pub(super) fn time_slicing_remark(
    point: &TransferPoint,
    opened: &Distinct<OpenMessage>,
    (infos, hosts): (&[RankInfo], &Hosts),
) -> Option<String> {
    if opened.iter().all(|opened| opened.memory_device.is_none()) {
        return None;
    }
    let mut devices: BTreeMap<(Option<u32>, &str), DeviceUsers<'_>> = BTreeMap::new();
    for info in infos {
        let process = (&*info.pid_namespace, info.pid);
        for device in shared_copy_devices(point, info.rank, opened) {
            let place = (hosts.machine(info.rank), &*device.uuid);
            let askers = devices.entry(place).or_insert_with(|| DeviceUsers {
                device,
                ranks: Vec::new(),
                first: process,
                are_several: false,
            });
            askers.are_several |= askers.first != process;
            askers.ranks.push(info.rank);
        }
    }
    let is_in_turn =
        |askers: &DeviceUsers<'_>| askers.are_several && askers.device.shared_by.is_some();
    let askers = devices.into_values().find(is_in_turn)?;
    let shared_by = askers.device.shared_by.as_ref()?;
    Some(format!(
        "ranks {} are processes that share {} in time slices, because it works for one process at a time; each switch takes time \
         (some 0.15 ms on an H100), unless they share it by {shared_by}; a GPU for each rank, or ranks of one process, \
         avoid the switches",
        number_list::format(&askers.ranks),
        askers.device.title()
    ))
}

/// Returns the devices from which `rank` requests copies while other ranks may also request copies.
fn shared_copy_devices<'a>(
    point: &TransferPoint,
    rank: u32,
    opened: &'a Distinct<OpenMessage>,
) -> Vec<&'a BusDevice> {
    let Some(own) = opened.get(rank) else {
        return Vec::new();
    };
    let roles = point.roles;
    let initiators = || roles.initiators_of(rank);
    // With one pair per round, each pair has its device to itself.
    let is_alone = || point.roles.traffic == Traffic::Matrix && roles.initiating_at_once() == 1;
    let answers = || point.pacing == Pacing::PingPong && !point.op.returns_bytes();
    let device_of = |rank: u32| opened.get(rank)?.memory_device.as_ref();
    match (own.device_memory_by, device_of(rank)) {
        (DeviceMemoryAccess::Copies, device) => {
            let mut peers = Vec::new();
            if roles.initiates(rank) && !is_alone() {
                peers.extend(roles.targets(rank));
            }
            if answers() {
                peers.extend(initiators());
            }
            match device {
                Some(device) if !peers.is_empty() => vec![device],
                Some(_) => Vec::new(),
                // Host memory belongs to no device, so the device of the peer copies.
                None => peers.into_iter().filter_map(device_of).collect(),
            }
        }
        (DeviceMemoryAccess::Staging, Some(device))
            if roles.initiates(rank) || !initiators().is_empty() =>
        {
            vec![device]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::openings::tests::{device, hosts, opened};
    use tonnage_engine::{BoundKind, Verb};
    use tonnage_plan::transfer::Access;
    use tonnage_ranks::testing::rank_info;

    /// Returns a rank with a process ID. Its memory is on `gpu`, and `by` is how that memory is accessed.
    fn rank(gpu: Option<&str>, by: DeviceMemoryAccess, pid: u32) -> (OpenMessage, u32) {
        let device = |uuid: &str| BusDevice {
            uuid: uuid.into(),
            ..device()
        };
        let opened = OpenMessage {
            memory_device: gpu.map(device),
            device_memory_by: by,
            ..opened(BoundKind::MemoryCopy, None)
        };
        (opened, pid)
    }

    /// Returns the remark for ranks that are all on one machine.
    fn remark_of(
        all: &[(OpenMessage, u32)],
        change: impl Fn(&mut TransferPoint),
    ) -> Option<String> {
        let mut point = tonnage_plan::testing::slots_point(Access::Sequential, 1 << 16);
        (point.roles.traffic, point.roles.ranks) = (Traffic::AllToAll, all.len() as u32);
        change(&mut point);
        let info = |(rank, (_, pid)): (u32, &(OpenMessage, u32))| RankInfo {
            pid: *pid,
            ..rank_info(rank, "a")
        };
        let infos: Vec<_> = (0..).zip(all).map(info).collect();
        let hosts = hosts(&vec!["a"; all.len()]);
        let opened: Distinct<OpenMessage> = all.iter().map(|(opened, _)| opened.clone()).collect();
        time_slicing_remark(&point, &opened, (&infos, &hosts))
    }

    const BY: DeviceMemoryAccess = DeviceMemoryAccess::Copies;

    #[test]
    fn processes_that_share_a_gpu_in_time_slices_get_a_remark() {
        let all = [(Some("a"), 7), (Some("b"), 8), (Some("a"), 9)];
        let text = remark_of(&all.map(|(gpu, pid)| rank(gpu, BY, pid)), |_| ()).unwrap();
        assert!(
            text.starts_with(
                "ranks 0,2 are processes that share cuda:0 (0000:1b:00.0) in time slices"
            ),
            "{text}"
        );
        assert!(text.contains("share it by a daemon"), "{text}");
        // Two processes with pinned host memory write to the GPU of a third process.
        let fan_in = [(Some("a"), 7), (None, 8), (None, 9)];
        let text = remark_of(&fan_in.map(|(gpu, pid)| rank(gpu, BY, pid)), |point| {
            point.roles.traffic = Traffic::FanIn;
        });
        assert!(text.unwrap().starts_with("ranks 1-2 are"));
        // The second rank answers from pinned host memory, by copies to the GPU of the first one.
        let answered = remark_of(&[rank(Some("a"), BY, 7), rank(None, BY, 8)], |point| {
            (point.roles.traffic, point.pacing, point.op) =
                (Traffic::Pair, Pacing::PingPong, Verb::Send);
        });
        assert!(answered.unwrap().starts_with("ranks 0-1 are"));
        // With staging, both ends use the GPU, regardless of which end initiates.
        let staged = [7, 8].map(|pid| rank(Some("a"), DeviceMemoryAccess::Staging, pid));
        let pair = |point: &mut TransferPoint| point.roles.traffic = Traffic::Pair;
        assert!(remark_of(&staged, pair).is_some());
    }

    #[test]
    fn one_process_at_a_time_gets_no_remark() {
        let pair = |by, pids: [u32; 2]| pids.map(|pid| rank(Some("a"), by, pid));
        let with = |op: Verb, pacing: Option<Pacing>| {
            remark_of(&pair(BY, [7, 8]), |point| {
                (point.roles.traffic, point.op) = (Traffic::Pair, op);
                point.pacing = pacing.unwrap_or(point.pacing);
            })
        };
        assert_eq!(with(Verb::Write, None), None);
        assert!(with(Verb::Send, Some(Pacing::PingPong)).is_some());
        // The target of a read sends no answer.
        assert_eq!(with(Verb::Read, Some(Pacing::PingPong)), None);
        let matrix = |point: &mut TransferPoint| point.roles.traffic = Traffic::Matrix;
        assert_eq!(remark_of(&pair(BY, [7, 8]), matrix), None);
        // There is no remark for threads of one process, for a GPU per process, or for devices that serve several
        // processes at once.
        assert_eq!(remark_of(&pair(BY, [7, 7]), |_| ()), None);
        let apart = [rank(Some("a"), BY, 7), rank(Some("b"), BY, 8)];
        assert_eq!(remark_of(&apart, |_| ()), None);
        for by in [DeviceMemoryAccess::Cards, DeviceMemoryAccess::Unknown] {
            assert_eq!(remark_of(&pair(by, [7, 8]), |_| ()), None);
        }
        let mut at_once = pair(BY, [7, 8]);
        for (opened, _) in &mut at_once {
            opened.memory_device.as_mut().unwrap().shared_by = None;
        }
        assert_eq!(remark_of(&at_once, |_| ()), None);
    }
}
